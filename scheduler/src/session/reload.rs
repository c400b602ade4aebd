//! A reload: the launcher has put new settings into our cell, and a second session reads those of the server.

use super::queue_session::{SessionAnswer, rename};
use crate::base::Base;
use crate::command::{Command, SessionName, query_on};
use crate::limits::ANSWER_TIMEOUT;
use crate::table::make;
use shared::process::order::SchedulerOrder;

/// SIGHUP. None: there are no new settings. Otherwise whether those of the column defaults have changed.
pub fn accept(base: &mut Base) -> Option<bool> {
    let payload = base.start.region.accept_published(base.start.slot.index())?;
    base.start.signal_parent();
    let order = payload.ok().and_then(|payload| serde_json::from_slice::<SchedulerOrder>(&payload).ok());
    let Some(order) = order else {
        shared::error!("cannot read the new settings; keeping the former ones", queue = base.label);
        return None;
    };
    base.order.settings = order.settings;
    base.order.remotes = order.remotes;
    let changed = base.order.defaults != order.defaults;
    if changed {
        base.order.defaults = order.defaults;
    }
    Some(changed)
}

/// The second session is up: it only reads the settings.
pub fn read_settings() -> Command<SessionAnswer> {
    query_on(SessionName::Settings, "reading settings", ANSWER_TIMEOUT, |client| async move {
        Ok(SessionAnswer::Settings(make::settings(&client).await?))
    })
}

/// The server's settings over the config's.
pub fn apply(base: &mut Base, from_server: Vec<(String, String)>) -> Option<Command<SessionAnswer>> {
    let mut settings = base.order.settings.clone();
    for (name, text) in from_server {
        if let Err(why) = settings.set_from_server(&name, &text) {
            shared::warning!("setting of the server ignored", queue = base.label, why = why);
        }
    }
    if settings != base.settings {
        let run = if settings.run == u32::MAX { "unlimited".to_owned() } else { settings.run.to_string() };
        shared::info!("settings in force", queue = base.label, sleep_ms = settings.sleep_ms, run = run);
    }
    let renamed = settings.sleep_ms != base.settings.sleep_ms;
    base.settings = settings;
    renamed.then(|| rename(base))
}
