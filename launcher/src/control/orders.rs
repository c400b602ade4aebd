//! What operators ask through the control socket: `status`, which is answered at once, and `start`, `stop` and
//! `restart`, which are answered when they are done or cannot be done, within the command's ten seconds.

use crate::control::control_socket::{CallerId, ControlSocket};
use crate::limits::ORDER_TIMEOUT;
use crate::queue::queue_counts;
use crate::queue::queue_table::QueueTable;
use crate::queue::request::QueueRequest;
use crate::status::queue_report::queue_report;
use serde_json::{Value, json};
use shared::process::order::WaitFor;
use std::time::Instant;

#[derive(Debug)]
struct OpenOrder {
    caller: CallerId,
    request: QueueRequest,
    database: u32,
    until: Instant,
}

/// One line of a caller.
#[derive(Debug, PartialEq, Eq)]
pub enum CallerRequest {
    Status,
    Order { request: QueueRequest, database: String },
    Unknown,
}

impl CallerRequest {
    pub fn parse(line: &str) -> CallerRequest {
        let question: Value = serde_json::from_str(line).unwrap_or(Value::Null);
        let text = |key: &str| question.get(key).and_then(Value::as_str);
        let name = text("command").unwrap_or_default();
        match (name, QueueRequest::of_name(name), text("database")) {
            ("status", _, _) => CallerRequest::Status,
            (_, Some(request), Some(database)) => CallerRequest::Order { request, database: database.to_owned() },
            (_, Some(_) | None, Some(_) | None) => CallerRequest::Unknown,
        }
    }
}

/// The control socket, and the orders that are not done yet.
#[derive(Debug)]
pub struct Orders {
    pub socket: ControlSocket,
    open: Vec<OpenOrder>,
}

impl Orders {
    pub fn new(socket: ControlSocket) -> Orders {
        Orders { socket, open: Vec::new() }
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.open.iter().map(|order| order.until).chain(self.socket.deadline()).min()
    }

    /// Begins an order. The answer, if there is one already.
    pub fn begin(
        &mut self,
        caller: CallerId,
        request: QueueRequest,
        database: &str,
        queues: &mut QueueTable,
        now: Instant,
    ) -> Option<Value> {
        let Some(oid) = queues.databases.oid_of(database) else {
            return Some(not_done(&format!("database \"{database}\" does not exist on its server")));
        };
        if request != QueueRequest::Stop {
            queues.databases.search_again(oid);
        }
        if !queues.request(oid, request, WaitFor::default(), now) && !queues.databases.covers(oid) {
            return Some(not_done(&format!("no queue of its config serves database \"{database}\"")));
        }
        shared::info!("order received", order = request.name(), database = database);
        self.open.push(OpenOrder { caller, request, database: oid, until: now + ORDER_TIMEOUT });
        None
    }

    /// Answers the orders that are done, or take too long.
    pub fn settle(&mut self, queues: &QueueTable, now: Instant) {
        for order in std::mem::take(&mut self.open) {
            let searched = order.request == QueueRequest::Stop || !queues.databases.is_to_be_searched(order.database);
            let arrived = queue_counts::arrived(queues, order.database, order.request, None);
            match arrived.filter(|_| searched) {
                None if now < order.until => self.open.push(order),
                arrived => {
                    let answer = outcome(&order, arrived == Some(true), queues);
                    self.socket.reply(order.caller, &answer.to_string());
                }
            }
        }
        self.socket.flush();
    }
}

/// The answer to an order that was not carried out.
pub fn not_done(why: &str) -> Value {
    json!({"done": false, "why": why})
}

fn outcome(order: &OpenOrder, done: bool, queues: &QueueTable) -> Value {
    let report = queue_report(queues, None);
    let name = queues.databases.name_of(order.database).unwrap_or_default();
    let of_it = report.as_array().into_iter().flatten().filter(|one| one.get("data").is_some_and(|data| data == name));
    let unserved = of_it.clone().filter(|one| one.get("served") != Some(&Value::Bool(true)));
    let why: Vec<&str> = unserved.filter_map(|one| one.get("why")?.as_str()).collect();
    let otherwise = if queues.has_queue(order.database) {
        "timeout: the order is still being carried out; see launcher status".to_owned()
    } else {
        format!(
            "database {name} has no task table; create one as the role that runs its tasks: launcher install --print \
             | psql -U ROLE -d {name}"
        )
    };
    let why = if done { Value::Null } else { json!(why.first().copied().unwrap_or(&otherwise)) };
    json!({"done": done, "why": why, "databases": of_it.cloned().collect::<Vec<Value>>()})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_question_only_with_a_known_command_and_its_database() {
        assert_eq!(CallerRequest::parse(r#"{"command": "status"}"#), CallerRequest::Status);
        let stop = CallerRequest::Order { request: QueueRequest::Stop, database: "app".to_owned() };
        assert_eq!(CallerRequest::parse(r#"{"command": "stop", "database": "app"}"#), stop);
        for line in ["", "[]", r#"{"command": "stop"}"#, r#"{"command": "go", "database": "app"}"#] {
            assert_eq!(CallerRequest::parse(line), CallerRequest::Unknown, "{line}");
        }
    }
}
