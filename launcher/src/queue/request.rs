//! What a user's message or an operator's order asks of the queues of a database.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    Start,
    Stop,
    Restart,
}

impl Request {
    pub fn name(self) -> &'static str {
        match self {
            Request::Start => "start",
            Request::Stop => "stop",
            Request::Restart => "restart",
        }
    }

    pub fn of_name(name: &str) -> Option<Request> {
        [Request::Start, Request::Stop, Request::Restart].into_iter().find(|request| request.name() == name)
    }
}
