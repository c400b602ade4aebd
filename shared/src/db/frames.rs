//! PURE. What a server sends, watched on its way up to tokio-postgres: one that lies or floods is left.
//!
//! The library believes a server: it waits for a message of any length, keeps every parameter that is reported, every
//! row of an answer, every notice before the greeting, and asks for every type it does not know, which a server can
//! answer with one more such type for ever. A loop must survive a server that is broken, or is none. So the bytes
//! pass by here, between the library and the socket (or TLS), and the first message that no server of ours sends is
//! an error; the link is lost, and dialled again as after any other error.
//!
//! The limits are far above what our own statements lead to: their answers have at most some thousand short rows.

use crate::limits::{
    ANSWER_BYTES_MAX, DESCRIPTION_BYTES_MAX, LOGIN_BYTES_MAX, MESSAGE_BYTES_MAX, MESSAGE_OVERHEAD_BYTES,
    PARAMETER_BYTES_MAX, PARAMETERS_MAX, UNASKED_BYTES_MAX, UNASKED_PERIOD,
};
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::time::Instant;
use tokio_postgres::types::Type;

/// Where in the stream of bytes we are.
#[derive(Debug)]
enum FramePosition {
    /// The one byte with which a server answers the request for TLS.
    Answer,
    Head {
        bytes: [u8; 5],
        count: usize,
    },
    /// In the body; what must be looked into is kept.
    Body {
        tag: u8,
        left: usize,
        kept: Option<Vec<u8>>,
    },
}

#[derive(Debug)]
pub struct Frames {
    place: FramePosition,
    logged_in: bool,
    /// Bytes of the login, then of the present answer.
    answer: usize,
    chat: usize,
    chat_since: Instant,
    /// Hashes of the names reported so far.
    parameters: BTreeSet<u64>,
}

impl Frames {
    /// `asks_for_tls`: the first byte is the answer to that.
    pub fn new(asks_for_tls: bool, now: Instant) -> Frames {
        Frames {
            place: if asks_for_tls { FramePosition::Answer } else { FramePosition::Head { bytes: [0; 5], count: 0 } },
            logged_in: false,
            answer: 0,
            chat: 0,
            chat_since: now,
            parameters: BTreeSet::new(),
        }
    }

    /// Takes note of the next bytes.
    pub fn pass(&mut self, mut bytes: &[u8], now: Instant) -> io::Result<()> {
        while let Some((&first, after)) = bytes.split_first() {
            match &mut self.place {
                FramePosition::Answer => {
                    self.place = FramePosition::Head { bytes: [0; 5], count: 0 };
                    bytes = after;
                }
                FramePosition::Head { bytes: head, count } => {
                    head[*count] = first;
                    *count += 1;
                    bytes = after;
                    if *count == head.len() {
                        let [tag, length @ ..] = *head;
                        self.begin(tag, u32::from_be_bytes(length), now)?;
                    }
                }
                FramePosition::Body { left, kept, .. } => {
                    let (here, rest) = bytes.split_at(bytes.len().min(*left));
                    if let Some(kept) = kept {
                        kept.extend_from_slice(here);
                    }
                    *left -= here.len();
                    bytes = rest;
                }
            }
            if matches!(self.place, FramePosition::Body { left: 0, .. }) {
                self.end()?;
            }
        }
        Ok(())
    }

    /// A message begins: is there a limit that it breaks?
    fn begin(&mut self, tag: u8, length: u32, now: Instant) -> io::Result<()> {
        let body = (length as usize).checked_sub(4).ok_or_else(|| lie(tag, format!("the length {length}")))?;
        let whole = body.saturating_add(MESSAGE_OVERHEAD_BYTES);
        if matches!(tag, b'N' | b'A' | b'S') && self.logged_in {
            if now.saturating_duration_since(self.chat_since) >= UNASKED_PERIOD {
                (self.chat, self.chat_since) = (0, now);
            }
            self.chat = self.chat.saturating_add(whole);
        } else {
            self.answer = self.answer.saturating_add(whole);
        }
        let most = match (self.logged_in, tag) {
            (false, _) => LOGIN_BYTES_MAX,
            (true, b'D') => ANSWER_BYTES_MAX,
            (true, b'T' | b't') => DESCRIPTION_BYTES_MAX,
            (true, b'S') => PARAMETER_BYTES_MAX,
            (true, _) => MESSAGE_BYTES_MAX,
        };
        if body > most {
            return Err(lie(tag, format!("{body} bytes")));
        }
        if self.answer > if self.logged_in { ANSWER_BYTES_MAX } else { LOGIN_BYTES_MAX } {
            return Err(too_much("an answer without an end"));
        }
        if self.chat > UNASKED_BYTES_MAX {
            return Err(too_much("notices or notifications without an end"));
        }
        let kept = matches!(tag, b'S' | b'T' | b't').then(Vec::new);
        self.place = FramePosition::Body { tag, left: body, kept };
        Ok(())
    }

    /// A message is whole.
    fn end(&mut self) -> io::Result<()> {
        let next = FramePosition::Head { bytes: [0; 5], count: 0 };
        let FramePosition::Body { tag, kept, .. } = std::mem::replace(&mut self.place, next) else { return Ok(()) };
        match (tag, kept) {
            (b'Z', _) => (self.logged_in, self.answer) = (true, 0),
            (b'S', Some(body)) => self.reported(&body)?,
            (b'T', Some(body)) => columns(&body)?,
            (b't', Some(body)) => {
                body.get(2..).unwrap_or_default().chunks_exact(4).try_for_each(known)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn reported(&mut self, body: &[u8]) -> io::Result<()> {
        let name = body.split(|byte| *byte == 0).next().unwrap_or_default();
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        self.parameters.insert(hasher.finish());
        if self.parameters.len() > PARAMETERS_MAX {
            return Err(too_much("settings without an end"));
        }
        Ok(())
    }
}

/// Are all columns of types that need no question? The library reads the rest, and says what is wrong with it.
fn columns(body: &[u8]) -> io::Result<()> {
    let mut rest = body.get(2..).unwrap_or_default();
    while let Some(end) = rest.iter().position(|byte| *byte == 0) {
        // Behind the name: table (4), attribute (2), type (4), size (2), modifier (4), format (2).
        let Some(facts) = rest.get(end + 1..end + 19) else { return Ok(()) };
        known(facts.get(6..10).unwrap_or_default())?;
        rest = rest.get(end + 19..).unwrap_or_default();
    }
    Ok(())
}

fn known(oid: &[u8]) -> io::Result<()> {
    let oid = oid.iter().fold(0u32, |oid, byte| oid << 8 | u32::from(*byte));
    match Type::from_oid(oid) {
        Some(_) => Ok(()),
        None => Err(io::Error::new(io::ErrorKind::InvalidData, format!("the server sent the unknown type OID {oid}"))),
    }
}

fn lie(tag: u8, what: String) -> io::Error {
    let text = format!("the server sent a message of type {} with {what}", tag.escape_ascii());
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn too_much(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the server sends {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        [&[tag], &(body.len() as u32 + 4).to_be_bytes()[..], body].concat()
    }

    fn column(oid: u32) -> Vec<u8> {
        message(b'T', &[b"\0\x01a\0\0\0\0\0\0\0", &oid.to_be_bytes()[..], b"\0\x04\xff\xff\xff\xff\0\0"].concat())
    }

    /// After a login.
    fn frames() -> Frames {
        let mut frames = Frames::new(false, Instant::now());
        frames.pass(&[message(b'R', &[0; 4]), message(b'Z', b"I")].concat(), Instant::now()).unwrap();
        frames
    }

    fn refusal(frames: &mut Frames, bytes: &[u8]) -> String {
        frames.pass(bytes, Instant::now()).unwrap_err().to_string()
    }

    #[test]
    fn a_conversation_passes_however_it_is_cut() {
        let talk = [
            b"S".to_vec(),
            message(b'R', &[0; 4]),
            message(b'S', b"server_version\x0018\0"),
            message(b'K', &[0; 8]),
            message(b'Z', b"I"),
            message(b'1', b""),
            message(b't', b"\0\x01\0\0\0\x17"),
            column(25),
            message(b'D', b"\0\x01\0\0\0\x02ab"),
            message(b'A', b"\0\0\0\x01mill\0\0"),
            message(b'C', b"SELECT 1\0"),
            message(b'Z', b"T"),
        ]
        .concat();
        for size in [1, 2, 7, 1000] {
            let mut frames = Frames::new(true, Instant::now());
            for part in talk.chunks(size) {
                frames.pass(part, Instant::now()).unwrap();
            }
            assert!(frames.logged_in && matches!(frames.place, FramePosition::Head { count: 0, .. }));
        }
    }

    #[test]
    fn lengths_that_no_server_sends_are_lies() {
        for length in [0u32, 3, 0x7fff_ffff, 0xffff_fff0] {
            let text = refusal(&mut frames(), &[&b"D"[..], &length.to_be_bytes()].concat());
            assert!(text.starts_with("the server sent a message of type D with"), "{text}");
        }
    }

    #[test]
    fn nothing_goes_on_without_an_end() {
        let endless = |frames: &mut Frames, bytes: &[u8]| {
            (0..10_000_000).find_map(|_| frames.pass(bytes, Instant::now()).err()).expect("it ends").to_string()
        };
        assert!(endless(&mut frames(), &message(b'D', b"\0\0")).ends_with("an answer without an end"));
        assert!(endless(&mut frames(), &message(b'N', &[b'x'; 4000])).ends_with("notifications without an end"));
        let mut login = Frames::new(false, Instant::now());
        assert!(endless(&mut login, &message(b'N', b"x")).ends_with("an answer without an end"));
        let mut frames = frames();
        let told = (0..1000).find_map(|number| {
            frames.pass(&message(b'S', format!("a.{number}\0x\0").as_bytes()), Instant::now()).err()
        });
        assert!(told.expect("it ends").to_string().ends_with("settings without an end"));
    }

    #[test]
    fn the_same_setting_may_change_for_ever_and_notifications_may_come_slowly() {
        let mut frames = frames();
        let mut now = Instant::now();
        let said = [message(b'S', b"search_path\0public\0"), message(b'A', b"\0\0\0\x01mill\0\0")].concat();
        for _ in 0..500_000 {
            now += Duration::from_millis(1);
            frames.pass(&said, now).unwrap();
        }
    }

    #[test]
    fn types_that_would_have_to_be_asked_for_are_refused() {
        assert!(refusal(&mut frames(), &column(99_999)).contains("99999"));
        assert!(refusal(&mut frames(), &message(b't', b"\0\x01\0\x01\x86\x9f")).contains("99999"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic_and_what_it_keeps_is_bounded(
            parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..20),
            logged_in: bool,
        ) {
            let mut frames = if logged_in { frames() } else { Frames::new(true, Instant::now()) };
            for part in parts {
                if frames.pass(&part, Instant::now()).is_err() {
                    break;
                }
                if let FramePosition::Body { kept: Some(kept), .. } = &frames.place {
                    prop_assert!(kept.len() <= DESCRIPTION_BYTES_MAX);
                }
            }
        }
    }
}
