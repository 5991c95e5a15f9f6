//! What the processes wrote down: one line per event, appended with one write, so that a killed process loses nothing.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use lockline::time::{BootClock, Time};

/// Something that happened in a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It asks for a lock.
    Asks,
    /// It holds the lock.
    Got,
    /// It was told no, for certain: others have the lock, or the engine refused.
    Refused,
    /// Nobody can say whether it got the lock: the answer was lost, or it did not wait for it.
    Unknown,
    /// It still holds the lock: its guard said so just now.
    Valid,
    /// It was told that the lock is lost.
    Lost,
    /// It begins to let go; its guard was valid just before.
    Leaves,
    /// The engine knows that it let go.
    Left,
}

impl Kind {
    const ALL: [(Kind, &'static str); 8] = [
        (Kind::Asks, "asks"),
        (Kind::Got, "got"),
        (Kind::Refused, "refused"),
        (Kind::Unknown, "unknown"),
        (Kind::Valid, "valid"),
        (Kind::Lost, "lost"),
        (Kind::Leaves, "leaves"),
        (Kind::Left, "left"),
    ];

    fn word(self) -> &'static str {
        Kind::ALL.iter().find(|(kind, _)| *kind == self).map_or("?", |(_, word)| word)
    }

    fn parse(word: &str) -> Option<Kind> {
        Kind::ALL.iter().find(|(_, known)| *known == word).map(|(kind, _)| *kind)
    }
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

/// A lock under torture, by number; what it is called at the engine is [`name`](Lock::name).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Lock(pub(crate) u16);

impl Lock {
    /// Everybody wants these: two mutexes, a read-write lock, a semaphore of two.
    pub(crate) const HOT: [Lock; 4] = [Lock(0), Lock(1), Lock(2), Lock(3)];
    pub(crate) const READ_WRITE: Lock = Lock(2);
    pub(crate) const PERMITS: Lock = Lock(3);
    /// Mutexes that are held for long.
    pub(crate) const LONG: [Lock; 4] = [Lock(10), Lock(11), Lock(12), Lock(13)];

    /// Mutexes over which many tasks spread.
    pub(crate) fn spread(number: u16) -> Lock {
        Lock(100 + number)
    }

    pub(crate) fn name(self) -> String {
        format!("l{}", self.0)
    }
}

/// One line of a history.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) at: Time,
    pub(crate) kind: Kind,
    /// Which asking of this process it belongs to.
    pub(crate) ask: u32,
    pub(crate) lock: Lock,
    pub(crate) mode: Mode,
    pub(crate) token: u64,
    /// Until when the guard believed in itself when it was last asked.
    pub(crate) valid_until: Time,
}

/// A process's own history.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    file: Arc<File>,
    asked: Arc<AtomicU32>,
}

impl Log {
    pub(crate) fn create(path: &Path) -> io::Result<Log> {
        let file = File::options().append(true).create(true).open(path)?;
        Ok(Log { file: Arc::new(file), asked: Arc::default() })
    }

    /// A number for the next asking.
    pub(crate) fn next_ask(&self) -> u32 {
        self.asked.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn write(&self, event: &Event) -> io::Result<()> {
        let Event { at, kind, ask, lock, mode, token, valid_until } = event;
        let (at, until) = (at.as_micros(), valid_until.as_micros());
        let line = format!("{at} {} {ask} {} {} {token} {until}\n", kind.word(), lock.0, mode.word());
        (&*self.file).write_all(line.as_bytes())
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
        ask: words.next()?.parse().ok()?,
        lock: Lock(words.next()?.parse().ok()?),
        mode: Mode::parse(words.next()?)?,
        token: words.next()?.parse().ok()?,
        valid_until: Time::from_micros(words.next()?.parse().ok()?),
    })
}
