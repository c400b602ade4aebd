//! PURE. The reset of a pooled connection: its messages, and whether exactly their answers come.
//!
//! `DISCARD ALL`, then a SELECT of a fresh number. Without the number an answer that the worker had left unread, to a
//! DISCARD ALL of its own, would pass for ours, and every later answer would be one too late. Notices, notifications
//! and changed parameters may come at any time and are passed over; after anything else the connection is not
//! trusted.

use crate::limits::RESET_ANSWER_BYTES;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetProgress {
    More,
    Done,
    /// Another answer came: it cannot be trusted.
    Wrong,
}

/// The answers still to come, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Discarded,
    FirstReady,
    Columns,
    Number,
    Selected,
    LastReady,
    Nothing,
}

#[derive(Debug)]
pub struct Reset {
    number: String,
    wanted: Wanted,
    bytes: Vec<u8>,
}

impl Reset {
    pub fn new(number: String) -> Reset {
        Reset { number, wanted: Wanted::Discarded, bytes: Vec::new() }
    }

    /// The two requests, for one write.
    pub fn request(&self) -> Vec<u8> {
        let mut request = query("DISCARD ALL");
        request.extend(query(&format!("SELECT '{}'", self.number)));
        request
    }

    /// What has arrived.
    pub fn take(&mut self, bytes: &[u8]) -> ResetProgress {
        self.bytes.extend_from_slice(bytes);
        while let Some((tag, length)) = head(&self.bytes) {
            if !(4..=RESET_ANSWER_BYTES).contains(&length) {
                return ResetProgress::Wrong;
            }
            if self.bytes.len() < length + 1 {
                break;
            }
            let body: Vec<u8> = self.bytes.drain(..length + 1).skip(5).collect();
            if !self.message(tag, &body) {
                return ResetProgress::Wrong;
            }
        }
        match (self.wanted, self.bytes.is_empty()) {
            (Wanted::Nothing, true) => ResetProgress::Done,
            (Wanted::Nothing, false) => ResetProgress::Wrong,
            _ => ResetProgress::More,
        }
    }

    fn message(&mut self, tag: u8, body: &[u8]) -> bool {
        if matches!(tag, b'N' | b'A' | b'S') {
            return true;
        }
        let number = || {
            let mut row = vec![0, 1];
            row.extend((self.number.len() as u32).to_be_bytes());
            row.extend(self.number.as_bytes());
            row
        };
        let next = match (self.wanted, tag) {
            (Wanted::Discarded, b'C') if body == b"DISCARD ALL\0" => Wanted::FirstReady,
            (Wanted::FirstReady, b'Z') if body == b"I" => Wanted::Columns,
            (Wanted::Columns, b'T') => Wanted::Number,
            (Wanted::Number, b'D') if body == number() => Wanted::Selected,
            (Wanted::Selected, b'C') if body == b"SELECT 1\0" => Wanted::LastReady,
            (Wanted::LastReady, b'Z') if body == b"I" => Wanted::Nothing,
            _ => return false,
        };
        self.wanted = next;
        true
    }
}

/// Messages that a server sends by itself: true if they are only notices and the like, and whole.
pub fn is_notice(mut bytes: &[u8]) -> bool {
    while let Some((tag, length)) = head(bytes) {
        if !matches!(tag, b'N' | b'A' | b'S') || !(4..=RESET_ANSWER_BYTES).contains(&length) || bytes.len() < length + 1
        {
            return false;
        }
        bytes = &bytes[length + 1..];
    }
    bytes.is_empty()
}

fn head(bytes: &[u8]) -> Option<(u8, usize)> {
    let length = bytes.get(1..5)?.try_into().ok()?;
    Some((bytes[0], u32::from_be_bytes(length) as usize))
}

fn query(text: &str) -> Vec<u8> {
    let mut message = vec![b'Q'];
    message.extend((text.len() as u32 + 5).to_be_bytes());
    message.extend(text.as_bytes());
    message.push(0);
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![tag];
        bytes.extend((body.len() as u32 + 4).to_be_bytes());
        bytes.extend(body);
        bytes
    }

    fn answers(number: &str) -> Vec<Vec<u8>> {
        let mut row = vec![0, 1];
        row.extend((number.len() as u32).to_be_bytes());
        row.extend(number.as_bytes());
        vec![
            message(b'C', b"DISCARD ALL\0"),
            message(b'Z', b"I"),
            message(b'T', b"whatever"),
            message(b'D', &row),
            message(b'C', b"SELECT 1\0"),
            message(b'Z', b"I"),
        ]
    }

    #[test]
    fn exactly_the_two_answers_make_it_new_however_they_are_cut() {
        let all = answers("4711").concat();
        for step in [1, 3, 7, all.len()] {
            let mut reset = Reset::new("4711".into());
            let progress: Vec<ResetProgress> = all.chunks(step).map(|part| reset.take(part)).collect();
            assert_eq!(progress.last(), Some(&ResetProgress::Done));
            assert!(progress[..progress.len() - 1].iter().all(|progress| *progress == ResetProgress::More));
        }
    }

    #[test]
    fn chat_is_passed_over() {
        let mut reset = Reset::new("1".into());
        for part in answers("1") {
            for chat in [message(b'N', b"notice"), message(b'S', b"a\0b\0"), message(b'A', b"....x\0\0")] {
                assert_eq!(reset.take(&chat), ResetProgress::More);
            }
            let _ = reset.take(&part);
        }
        assert_eq!(reset.take(&[]), ResetProgress::Done);
    }

    #[test]
    fn the_answer_to_somebody_elses_discard_is_not_ours() {
        let mut early = answers("1")[..2].concat();
        early.extend(answers("1").concat());
        assert_eq!(Reset::new("1".into()).take(&early), ResetProgress::Wrong);
    }

    #[test]
    fn every_other_answer_is_wrong() {
        let all = answers("1");
        for at in 0..all.len() {
            for odd in
                [message(b'E', b"SERROR\0\0"), message(b'Z', b"T"), message(b'C', b"SELECT 0\0"), message(b'G', b"")]
            {
                let mut bytes = all[..at].concat();
                bytes.extend(&odd);
                assert_eq!(Reset::new("1".into()).take(&bytes), ResetProgress::Wrong, "{at} {odd:?}");
            }
        }
        let mut more = all.concat();
        more.push(b'N');
        assert_eq!(Reset::new("1".into()).take(&more), ResetProgress::Wrong);
        assert_eq!(Reset::new("2".into()).take(&all.concat()), ResetProgress::Wrong);
    }

    #[test]
    fn idle_chat_is_told_from_everything_else() {
        assert!(is_notice(&[]) && is_notice(&message(b'S', b"TimeZone\0UTC\0")));
        assert!(!is_notice(&message(b'E', b"SFATAL\0\0")) && !is_notice(b"S\0"));
    }
}
