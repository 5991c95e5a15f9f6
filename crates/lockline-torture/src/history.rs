//! What the processes wrote down: one line per event, appended with one write, so that a killed process loses nothing.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use lockline::time::{BootClock, Time};

/// Something that happened in a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It holds the lock.
    Got,
    /// It still holds it: its guard said so just now.
    Valid,
    /// It was told that the lock is lost.
    Lost,
    /// The engine or the client said no for another reason than others holding the lock.
    Failed,
}

impl Kind {
    const ALL: [(Kind, &'static str); 4] =
        [(Kind::Got, "got"), (Kind::Valid, "valid"), (Kind::Lost, "lost"), (Kind::Failed, "failed")];

    fn word(self) -> &'static str {
        Kind::ALL.iter().find(|(kind, _)| *kind == self).map_or("?", |(_, word)| word)
    }

    fn parse(word: &str) -> Option<Kind> {
        Kind::ALL.iter().find(|(_, known)| *known == word).map(|(kind, _)| *kind)
    }
}

/// One line of a history.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) at: Time,
    pub(crate) kind: Kind,
    pub(crate) lock: String,
    pub(crate) mode: Mode,
    pub(crate) token: u64,
    /// Until when the guard believed in itself, when it was asked.
    pub(crate) valid_until: Time,
}

/// How a lock was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Exclusive,
    Shared,
    /// One of two permits.
    Permit,
}

impl Mode {
    const ALL: [(Mode, &'static str); 3] = [(Mode::Exclusive, "x"), (Mode::Shared, "s"), (Mode::Permit, "p")];

    fn word(self) -> &'static str {
        Mode::ALL.iter().find(|(mode, _)| *mode == self).map_or("?", |(_, word)| word)
    }

    fn parse(word: &str) -> Option<Mode> {
        Mode::ALL.iter().find(|(_, known)| *known == word).map(|(mode, _)| *mode)
    }
}

/// A process's own history.
#[derive(Clone, Debug)]
pub(crate) struct Log(Arc<File>);

impl Log {
    pub(crate) fn create(path: &Path) -> io::Result<Log> {
        Ok(Log(Arc::new(File::options().append(true).create(true).open(path)?)))
    }

    pub(crate) fn write(&self, event: &Event) -> io::Result<()> {
        let Event { at, kind, lock, mode, token, valid_until } = event;
        let (at, until) = (at.as_micros(), valid_until.as_micros());
        let line = format!("{at} {} {lock} {} {token} {until}\n", kind.word(), mode.word());
        (&*self.0).write_all(line.as_bytes())
    }
}

/// The moment, on the clock that all processes of this host share.
pub(crate) fn now() -> Time {
    BootClock.now()
}

/// Reads a history back. A last line that a kill cut short is left out.
pub(crate) fn read(path: &Path) -> io::Result<Vec<Event>> {
    let text = std::fs::read_to_string(path)?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    Ok(whole.lines().filter_map(parse).collect())
}

fn parse(line: &str) -> Option<Event> {
    let mut words = line.split(' ');
    Some(Event {
        at: Time::from_micros(words.next()?.parse().ok()?),
        kind: Kind::parse(words.next()?)?,
        lock: words.next()?.to_owned(),
        mode: Mode::parse(words.next()?)?,
        token: words.next()?.parse().ok()?,
        valid_until: Time::from_micros(words.next()?.parse().ok()?),
    })
}
