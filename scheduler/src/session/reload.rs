//! What the scheduler hears and says beside its work: a reload, and the one line when trouble begins and ends.

use crate::event_loop::{Answer, Scheduler};
use crate::limits::ANSWER_TIMEOUT;
use crate::table::make as queue;
use shared::db::link::{Link, LinkEvent};
use shared::db::trouble::Trouble;
use shared::process::order::SchedulerOrder;
use shared::sys::memory;
use std::time::Instant;

impl Scheduler {
    /// SIGHUP: the launcher has put a new order into our cell.
    pub(crate) fn reload(&mut self) {
        let Some(payload) = self.base.start.region.accept_published(self.base.start.slot.index()) else { return };
        self.base.start.ring_parent();
        let order = payload.ok().and_then(|payload| serde_json::from_slice::<SchedulerOrder>(&payload).ok());
        let Some(order) = order else {
            shared::error!("the new settings cannot be read; the old ones stay", queue = self.base.label);
            return;
        };
        self.base.order.settings = order.settings;
        self.base.order.remotes = order.remotes;
        if self.base.order.defaults != order.defaults {
            self.base.order.defaults = order.defaults;
            self.align_defaults();
        }
        let region = Some(&self.base.start.region);
        self.links.probe = Some(Link::dial(
            &self.session.home.target(&self.base.order.target),
            &self.base.application_name(),
            region,
            false,
        ));
    }

    /// The second session of a reload: it only reads the settings.
    pub(crate) fn probed(&mut self, event: LinkEvent<Answer>, now: Instant) {
        match event {
            LinkEvent::Up => {
                if let Some(probe) = &mut self.links.probe {
                    probe.ask("reading settings", ANSWER_TIMEOUT, |client| async move {
                        Ok(Answer::Settings(queue::settings(&client).await?))
                    });
                }
            }
            LinkEvent::Answered(answer) => {
                self.links.probe = None;
                self.answered(answer, now);
            }
            LinkEvent::Notified | LinkEvent::CatalogRang => {}
            // Without a server the config's settings hold; the next session reads the rest.
            LinkEvent::Lost(_) => {
                self.links.probe = None;
                self.apply(Vec::new());
            }
        }
    }

    /// A condition is said once when it begins; its changes go into the notes.
    pub(crate) fn say(&mut self, trouble: Trouble) {
        let reason = trouble.text.clone();
        // A server that is away gives the same reason each second: nobody needs to be woken for that.
        if self.session.said.current() != Some(reason.as_str()) {
            self.base.notes().set_reason(&reason);
            self.base.start.ring_parent();
        }
        if self.session.said.begin(trouble) {
            shared::warning!("queue waits", queue = self.base.label, reason = reason);
        } else {
            shared::debug!("queue still waits", queue = self.base.label, reason = reason);
        }
    }

    pub(crate) fn say_well(&mut self) {
        self.base.notes().set_reason("");
        self.base.start.ring_parent();
        // What it took to get here is not needed again soon.
        memory::shed_heap();
        if self.session.said.end() {
            shared::info!("queue served again", queue = self.base.label);
        } else {
            shared::info!("queue served", queue = self.base.label);
        }
    }
}
