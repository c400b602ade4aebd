//! What a process has said about its trouble. PURE.
//!
//! A condition is told once when it begins and once when it ends, however its words change while it lasts (a server
//! that stops says three different things). But what somebody must mend is told when it appears, even if it was
//! hidden behind something that passes.

use super::trouble::Trouble;

#[derive(Debug, Default)]
pub struct Saying {
    current: Option<Trouble>,
    told: Option<Trouble>,
}

impl Saying {
    /// Takes the trouble down. True: it is worth a line.
    #[must_use]
    pub fn begin(&mut self, trouble: Trouble) -> bool {
        let new = match &self.told {
            None => true,
            Some(told) => !trouble.passes() && trouble.text != told.text,
        };
        if new {
            self.told = Some(trouble.clone());
        }
        self.current = Some(trouble);
        new
    }

    /// What lasts is worth another line.
    pub fn remind(&mut self) {
        self.told = None;
    }

    /// It is over. True: there was something.
    pub fn end(&mut self) -> bool {
        self.told = None;
        self.current.take().is_some()
    }

    /// What is wrong at present.
    pub fn current(&self) -> Option<&str> {
        self.current.as_ref().map(|trouble| trouble.text.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::super::trouble::TroubleKind;
    use super::*;

    #[test]
    fn what_passes_is_told_once_and_what_must_be_mended_when_it_appears() {
        let mut saying = Saying::default();
        let (down, wrong, other) = (Trouble::passing("down"), Trouble::standing("wrong"), Trouble::standing("other"));
        let told: Vec<bool> = [&down, &Trouble::passing("starting"), &wrong, &wrong, &down, &wrong, &other]
            .into_iter()
            .map(|trouble| saying.begin(trouble.clone()))
            .collect();
        assert_eq!(told, [true, false, true, false, false, false, true]);
        assert_eq!(saying.current(), Some("other"));
        assert!(saying.end() && !saying.end());
        assert!(saying.begin(down));
        let apart = Trouble { kind: TroubleKind::Apart, text: "two servers".into() };
        assert!(saying.begin(apart.clone()) && !saying.begin(Trouble::passing("cut")) && !saying.begin(apart));
    }
}
