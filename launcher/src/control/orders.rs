//! What operators ask through the control socket: `status`, which is answered at once, and `start`, `stop` and
//! `restart`, which are answered when they have come to their end, within the command's ten seconds.

use crate::control::control_socket::CallerId;
use crate::event_loop::Launcher;
use crate::limits::ORDER_TIMEOUT;
use crate::message::message_table::Command;
use serde_json::{Value, json};
use shared::process::order::WaitFor;
use std::time::Instant;

#[derive(Debug)]
struct Order {
    caller: CallerId,
    command: Command,
    database: u32,
    until: Instant,
}

/// Orders that have not come to their end yet.
#[derive(Debug, Default)]
pub struct Orders {
    open: Vec<Order>,
}

impl Orders {
    pub fn deadline(&self) -> Option<Instant> {
        self.open.iter().map(|order| order.until).min()
    }
}

impl Launcher {
    /// Takes questions; what can be answered at once is.
    pub(crate) fn hear_callers(&mut self, now: Instant) {
        for (caller, question) in self.parts.control.turn(now) {
            if let Some(answer) = self.ask(caller, &question, now) {
                self.parts.control.reply(caller, &answer.to_string());
            }
        }
    }

    /// Answers the orders that have come to their end.
    pub(crate) fn answer_callers(&mut self, now: Instant) {
        for order in std::mem::take(&mut self.orders.open) {
            let looked_for = order.command != Command::Stop && self.rows.to_look.contains(&order.database);
            let arrived = self.rows.arrived(order.database, order.command, None);
            match arrived.filter(|_| !looked_for) {
                None if now < order.until => self.orders.open.push(order),
                arrived => {
                    let answer = self.outcome(&order, arrived == Some(true));
                    self.parts.control.reply(order.caller, &answer.to_string());
                }
            }
        }
        self.parts.control.flush();
    }

    /// The answer, if it can be given at once.
    fn ask(&mut self, caller: CallerId, question: &str, now: Instant) -> Option<Value> {
        let question: Value = serde_json::from_str(question).unwrap_or(Value::Null);
        let text = |key: &str| question.get(key).and_then(Value::as_str);
        let name = text("command").unwrap_or_default();
        if name == "status" {
            return Some(self.report());
        }
        let (Some(command), Some(database)) = (Command::of_name(name), text("database")) else {
            return Some(json!({"error": "unknown command; this launcher knows: status, start, stop, restart"}));
        };
        if !self.leading() || !self.ear.knows_databases || self.stopping.asked() {
            let why =
                if self.stopping.asked() { "it ends" } else { self.said.current().unwrap_or("it has just begun") };
            return Some(json!({"done": false, "why": format!("the launcher is not at work: {why}")}));
        }
        let Some(oid) = self.rows.database_named(database) else {
            return Some(json!({"done": false, "why": format!("there is no database \"{database}\" on its server")}));
        };
        if command != Command::Stop {
            self.rows.look_again(oid);
        }
        if !self.rows.command(oid, command, WaitFor::default(), now) && !self.rows.covers(oid) {
            return Some(json!({"done": false, "why": format!("no row of its config serves database \"{database}\"")}));
        }
        shared::info!("order", order = command.name(), database = database);
        self.orders.open.push(Order { caller, command, database: oid, until: now + ORDER_TIMEOUT });
        None
    }

    fn outcome(&self, order: &Order, done: bool) -> Value {
        let rows = self.rows.report(None);
        let name = self.rows.database_name(order.database).unwrap_or_default();
        let of_it =
            rows.as_array().into_iter().flatten().filter(|row| row.get("data").is_some_and(|data| data == name));
        let unserved = of_it.clone().filter(|row| row.get("served") != Some(&Value::Bool(true)));
        let why: Vec<&str> = unserved.filter_map(|row| row.get("why")?.as_str()).collect();
        let otherwise = if self.rows.has_queue(order.database) {
            "it takes too long; see status".to_owned()
        } else {
            format!(
                "there is no task table in {name}; make one as the role that its tasks are to run as: launcher install --print \
                 | psql -U ROLE -d {name}"
            )
        };
        let why = if done { Value::Null } else { json!(why.first().copied().unwrap_or(&otherwise)) };
        json!({"done": done, "why": why, "databases": of_it.cloned().collect::<Vec<Value>>()})
    }
}
