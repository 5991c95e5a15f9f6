//! Rows that somebody else has locked: a verb asks for them again and again, and never waits inside the server for long.
//!
//! Sessions are shared. A statement that waited for one lock's row would keep the renewals and releases of all others waiting
//! behind it, and a transaction that somebody forgot to end would cost a client every lock it holds. So the first request does not
//! wait at all; if the row is locked at that moment, later ones wait for a moment each, one at a time, with pauses between them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Mutex as Queue, MutexGuard, OwnedMutexGuard};
use tokio::time::Instant;

use crate::error::{Error, ErrorKind};
use crate::pause::about;
use crate::sync::locked;

/// Pauses between two requests for a row: from the first to the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(100));
/// For how long a row on which a renewal failed is renewed apart from the others.
const APART: Duration = Duration::from_secs(10);

/// The rows of lines that are asked for again, and those who ask.
#[derive(Debug, Default)]
pub(in crate::drivers) struct BusyRows {
    lines: Mutex<HashMap<u128, Arc<Queue<()>>>>,
    /// At most one statement of a client waits inside the server.
    waits: Queue<()>,
    /// Lines whose renewal failed because of a lock, which would take others along, and until when that is believed.
    apart: Mutex<HashMap<u128, Instant>>,
}

/// One request for a row.
#[derive(Debug)]
pub(in crate::drivers) struct Try<'a> {
    /// Whether it may wait for a moment inside the server.
    pub(in crate::drivers) waits: bool,
    _waits: Option<MutexGuard<'a, ()>>,
}

impl BusyRows {
    /// Asks for the row of a line, for as long as this.
    pub(in crate::drivers) fn ask(&self, line: u128, within: Duration) -> Asking<'_> {
        Asking { rows: self, line, until: Instant::now() + within, pause: None, queue: None, turn: None }
    }

    fn is_busy(&self, line: u128) -> bool {
        locked(&self.lines).contains_key(&line)
    }

    /// Whether a line is to be renewed apart from others.
    pub(in crate::drivers) fn is_apart(&self, line: u128) -> bool {
        let apart = locked(&self.apart);
        !apart.is_empty() && apart.get(&line).is_some_and(|until| *until > Instant::now())
    }

    /// Notes whether the renewal of a line failed because of a lock.
    pub(in crate::drivers) fn note(&self, line: u128, failed: bool) {
        let mut apart = locked(&self.apart);
        if failed {
            let now = Instant::now();
            apart.retain(|_, until| *until > now);
            apart.insert(line, now + APART);
        } else if !apart.is_empty() {
            apart.remove(&line);
        }
    }
}

/// How long a verb may ask for a row: less than the deadline that core puts around it, so that its error can say what is wrong.
pub(in crate::drivers) fn patience(lease: Duration) -> Duration {
    // A claim whose lease is not known has the usual one, more or less.
    let lease = if lease.is_zero() { Duration::from_secs(8) } else { lease };
    (lease / 8).clamp(Duration::from_millis(10), Duration::from_secs(4))
}

/// The error of a verb that did not get its row.
pub(in crate::drivers) fn stayed_locked(operation: &'static str, address: &Arc<str>) -> Error {
    Error::new(ErrorKind::Unavailable, operation, "another session has locked the row of this lock")
        .hint("look for a transaction that stays open on the tables of locks, and end it")
        .at(address)
}

/// Asks for the row of one line. The first request is sent at once, unless others of this client wait for the same row.
///
/// # Cancel safety
/// Dropped at any time, it lets the next one ask.
#[derive(Debug)]
pub(in crate::drivers) struct Asking<'a> {
    rows: &'a BusyRows,
    line: u128,
    until: Instant,
    pause: Option<Duration>,
    queue: Option<Arc<Queue<()>>>,
    turn: Option<OwnedMutexGuard<()>>,
}

impl<'a> Asking<'a> {
    /// Until the next request may be sent; `None` if it is time to give up.
    pub(in crate::drivers) async fn next(&mut self) -> Option<Try<'a>> {
        let Some(pause) = self.pause else {
            self.pause = Some(Duration::ZERO);
            if !self.rows.is_busy(self.line) {
                return Some(Try { waits: false, _waits: None });
            }
            return self.next_in_turn(Duration::ZERO).await;
        };
        self.next_in_turn(pause).await
    }

    async fn next_in_turn(&mut self, pause: Duration) -> Option<Try<'a>> {
        self.pause = Some((pause * 2).clamp(PAUSES.0, PAUSES.1));
        let until = self.until;
        tokio::time::timeout_at(until, self.in_turn(pause)).await.ok()
    }

    async fn in_turn(&mut self, pause: Duration) -> Try<'a> {
        if self.turn.is_none() {
            let queue = locked(&self.rows.lines).entry(self.line).or_default().clone();
            self.queue = Some(queue.clone());
            self.turn = Some(queue.lock_owned().await);
        }
        tokio::time::sleep(about(pause)).await;
        Try { waits: true, _waits: Some(self.rows.waits.lock().await) }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.turn = None;
        let Some(queue) = &self.queue else { return };
        let mut lines = locked(&self.rows.lines);
        // The table has it, and this.
        if Arc::strong_count(queue) == 2 {
            lines.remove(&self.line);
        }
    }
}

/// Places by line, in the order in which they were asked for.
pub(super) fn by_line(lines: &[u128], which: impl Fn(usize) -> bool) -> Vec<(u128, Vec<usize>)> {
    let mut found: Vec<(u128, Vec<usize>)> = Vec::new();
    let mut at: HashMap<u128, usize> = HashMap::new();
    for (nth, line) in lines.iter().enumerate().filter(|(nth, _)| which(*nth)) {
        let entry = *at.entry(*line).or_insert_with(|| {
            found.push((*line, Vec::new()));
            found.len() - 1
        });
        found[entry].1.push(nth);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: u128 = 7;

    #[tokio::test(start_paused = true)]
    async fn the_first_request_does_not_wait_and_the_others_wait_one_at_a_time() {
        let rows = BusyRows::default();
        let mut one = rows.ask(LINE, Duration::from_secs(1));
        assert!(!one.next().await.unwrap().waits);
        let first = one.next().await.unwrap();
        assert!(first.waits);
        // Another line: its first request is not held up, its second waits for the one that may wait in the server.
        let mut other = rows.ask(LINE + 1, Duration::from_secs(1));
        assert!(!other.next().await.unwrap().waits);
        assert!(tokio::time::timeout(Duration::from_millis(50), other.next()).await.is_err());
        drop(first);
        assert!(other.next().await.unwrap().waits);
        // The same line: behind the one who asks already.
        let mut late = rows.ask(LINE, Duration::from_secs(1));
        assert!(tokio::time::timeout(Duration::from_millis(50), late.next()).await.is_err());
        drop(one);
        assert!(late.next().await.unwrap().waits);
        drop((late, other));
        assert!(locked(&rows.lines).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn it_gives_up_in_time() {
        let rows = BusyRows::default();
        let start = Instant::now();
        let mut asking = rows.ask(LINE, Duration::from_millis(300));
        let mut tries = 0;
        while asking.next().await.is_some() {
            tries += 1;
        }
        assert_eq!(start.elapsed(), Duration::from_millis(300));
        assert!((5..20).contains(&tries), "{tries}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_is_apart_for_a_while() {
        let rows = BusyRows::default();
        rows.note(LINE, true);
        assert!(rows.is_apart(LINE) && !rows.is_apart(LINE + 1));
        rows.note(LINE, false);
        assert!(!rows.is_apart(LINE));
        rows.note(LINE, true);
        tokio::time::advance(APART).await;
        assert!(!rows.is_apart(LINE));
    }

    #[test]
    fn places_are_grouped_by_line() {
        assert_eq!(by_line(&[1, 2, 1, 3], |nth| nth < 3), [(1, vec![0, 2]), (2, vec![1])]);
    }
}
