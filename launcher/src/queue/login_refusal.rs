//! A server that does not let the owner of a found queue in: what to do about it, logged once. PURE.

use shared::db::db_error::refuses_login;
use shared::db::identifier::quoted;

/// Whether the present refusal is logged.
#[derive(Debug, Default)]
pub struct LoginRefusal {
    logged: bool,
}

impl LoginRefusal {
    /// What is to be logged now. The refusal lasts until the queue is served: what the scheduler reports between two
    /// tries does not end it.
    pub fn seen(&mut self, refused: Option<String>, running: bool) -> Option<String> {
        let before = self.logged;
        self.logged = refused.is_some() || before && !running;
        refused.filter(|_| !before)
    }
}

/// What to do, if the server's message is a refused login.
pub fn owner_refused(owner: &str, said: &str) -> Option<String> {
    refuses_login(said).then(|| {
        format!(
            "not served as {}, the owner of its table: {said}; let that role log in (put its password into the password \
             file), or set \"user\" in the queue \"*\" of the config",
            quoted(owner)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_logged_once_until_the_queue_is_served() {
        let mut login = LoginRefusal::default();
        let refused = || Some("refused".to_owned());
        assert_eq!(login.seen(refused(), false), refused());
        assert_eq!(login.seen(refused(), false), None);
        assert_eq!(login.seen(None, false), None);
        assert_eq!(login.seen(refused(), false), None);
        assert_eq!(login.seen(None, true), None);
        assert_eq!(login.seen(refused(), false), refused());
    }
}
