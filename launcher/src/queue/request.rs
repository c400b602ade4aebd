//! What a user's message or an operator's order asks of the queues of a database.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueRequest {
    Start,
    Stop,
    Restart,
}

impl QueueRequest {
    pub fn name(self) -> &'static str {
        match self {
            QueueRequest::Start => "start",
            QueueRequest::Stop => "stop",
            QueueRequest::Restart => "restart",
        }
    }

    pub fn of_name(name: &str) -> Option<QueueRequest> {
        [QueueRequest::Start, QueueRequest::Stop, QueueRequest::Restart]
            .into_iter()
            .find(|request| request.name() == name)
    }
}
