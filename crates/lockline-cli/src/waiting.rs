//! The live line: for whom one waits, and how many stand before.

use std::convert::Infallible;
use std::time::Duration;

use lockline::Locks;
use lockline::line::{LineView, Shut};
use tokio::time::{Instant, sleep};

use crate::output::{say, shortened, visible};
use crate::table::{age, whom};
use crate::talk::Talk;

/// Whoever gets the lock sooner than this has not noticed a wait.
const A_MOMENT: Duration = Duration::from_millis(700);
/// An engine that lets nobody in is told of sooner: people would take that for a hung program.
const AT_ONCE: Duration = Duration::from_millis(100);
const REDRAWN_EVERY: Duration = Duration::from_secs(1);
const NAME_COLUMNS_MAX: usize = 32;
const CLEAR_LINE: &str = "\r\u{1b}[K";

/// Tells people on what it waits. Dropped, it clears its line.
#[derive(Debug)]
pub(crate) struct Waiting<'a> {
    locks: &'a Locks,
    name: &'a str,
    talk: Talk,
    drawn: bool,
}

impl<'a> Waiting<'a> {
    pub(crate) fn new(locks: &'a Locks, name: &'a str, talk: Talk) -> Waiting<'a> {
        Waiting { locks, name, talk, drawn: false }
    }

    /// Tells for as long as it is polled.
    pub(crate) async fn tell(&mut self) -> Infallible {
        let began = Instant::now();
        sleep(AT_ONCE).await;
        let (mut said_waiting, mut said_shut) = (false, false);
        loop {
            let shut = self.locks.shut_for(self.name).ok().flatten();
            if let Some(shut) = &shut
                && !std::mem::replace(&mut said_shut, true)
            {
                self.talk.shut(self.name, self.locks.info(), shut);
            }
            said_shut &= shut.is_some();
            let waited = began.elapsed();
            if waited >= A_MOMENT && !std::mem::replace(&mut said_waiting, true) {
                self.talk.waiting(self.name, &self.locks.info().address);
            }
            if let Some(shut) = &shut {
                self.draw(&self.describe_shut(shut, waited));
            } else if said_waiting
                && self.talk.is_live()
                && let Ok(line) = self.locks.show(self.name).await
            {
                // An engine that cannot be asked right now is the acquirer's business, not that of this line.
                self.draw(&describe(&line, std::process::id(), began.elapsed()));
            }
            sleep(if said_waiting { REDRAWN_EVERY } else { A_MOMENT - AT_ONCE }).await;
        }
    }

    fn describe_shut(&self, shut: &Shut, waited: Duration) -> String {
        let name = visible(self.name);
        let name = shortened(&name, NAME_COLUMNS_MAX);
        format!("waiting {} for {name}: {}", age(waited), shut.about(self.locks.info().driver))
    }

    fn draw(&mut self, text: &str) {
        if !self.talk.is_live() {
            return;
        }
        let columns =
            terminal_size::terminal_size_of(std::io::stderr()).map_or(80, |(width, _)| usize::from(width.0));
        // One column less than there are: a full line wraps, and could not be cleared.
        say(&format!("{CLEAR_LINE}{}", shortened(text, columns.saturating_sub(1).max(20))));
        self.drawn = true;
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.drawn {
            say(CLEAR_LINE);
        }
    }
}

fn describe(line: &LineView, pid: u32, waited: Duration) -> String {
    let name = visible(line.name.as_str());
    let name = shortened(&name, NAME_COLUMNS_MAX);
    let place = line.waiters.iter().position(|claim| claim.who.pid == pid);
    let place =
        place.map_or_else(|| "in line".to_owned(), |before| format!("{} in line", ordinal(before + 1)));
    let waited = age(waited);
    match line.holders.as_slice() {
        [] => format!("waiting {waited} for {name}: {place}"),
        [holder] => format!("waiting {waited} for {name}: {place}, held by {}", whom(holder)),
        [holder, rest @ ..] => {
            format!("waiting {waited} for {name}: {place}, held by {} and {} more", whom(holder), rest.len())
        }
    }
}

fn ordinal(number: usize) -> String {
    let suffix = match (number % 10, number % 100) {
        (1, tens) if tens != 11 => "st",
        (2, tens) if tens != 12 => "nd",
        (3, tens) if tens != 13 => "rd",
        _ => "th",
    };
    format!("{number}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockline::line::{ClaimView, Mode, Who};
    use lockline::{Name, Ticket};

    #[test]
    fn ordinals_are_english() {
        let all: Vec<String> = [1, 2, 3, 4, 11, 12, 13, 21, 22, 103, 111].map(ordinal).to_vec();
        assert_eq!(all.join(" "), "1st 2nd 3rd 4th 11th 12th 13th 21st 22nd 103rd 111th");
    }

    #[test]
    fn says_for_whom_and_which_place() {
        let claim = |pid, owner: &str| ClaimView {
            ticket: Ticket::new(u64::from(pid)),
            mode: Mode::Exclusive,
            who: Who { owner: owner.to_owned(), host: "web-1".to_owned(), pid },
            remaining: Duration::from_secs(9),
            since: Duration::from_secs(12),
            held: (pid == 1).then_some(Duration::from_secs(5)),
            evicted: false,
        };
        let line = LineView {
            name: Name::new("orders/\u{1b}42").unwrap(),
            holders: vec![claim(1, "backup")],
            waiters: vec![claim(2, "a"), claim(3, "b"), claim(4, "c")],
            shut: None,
        };
        let text = describe(&line, 4, Duration::from_secs(3));
        assert_eq!(
            text,
            "waiting 3s for orders/\\u{1b}42: 3rd in line, held by backup (web-1, pid 1) for 5s"
        );
    }
}
