//! What nobody meant to send: for the tests of everything that reads what others wrote.
//!
//! Starts from examples and breaks them: bits, pieces, numbers too large, letters of several bytes. The same cases in every
//! run; `LOCKLINE_FUZZ=1000000` makes more of them.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::simulation::chance::{below, seeded, strikes};
use crate::sync::locked;

const CASES: u64 = 20_000;

/// A reader that takes so long for one case hangs.
const HANGS: Duration = Duration::from_secs(60);

/// What breaks readers: signs, ends of numbers, separators, letters that are more than a byte, bytes that are no letters.
const PIECES: &[&[u8]] = &[
    b"",
    b" ",
    b"  ",
    b"\0",
    b"\n",
    b"\r\n",
    b"+",
    b"-",
    b"-1",
    b"+1",
    b"0",
    b"00",
    b"1e9",
    b"0x10",
    b"nan",
    b"255",
    b"256",
    b"65535",
    b"65536",
    b"2147483648",
    b"4294967295",
    b"4294967296",
    b"9223372036854775807",
    b"9223372036854775808",
    b"18446744073709551615",
    b"18446744073709551616",
    b"99999999999999999999999",
    b"%",
    b"%0",
    b"%00",
    b"%+f",
    b"%zz",
    b"%ff",
    b"%25",
    b"/",
    b"//",
    b"..",
    b":",
    b"::",
    b"@",
    b"?",
    b"&",
    b"=",
    b"#",
    b",",
    b";",
    b"{",
    b"}",
    b"{}",
    b"[",
    b"]",
    b"[::1]",
    b"\"",
    b"'",
    b"\\",
    b"in",
    b"out",
    b"lock-",
    "ü".as_bytes(),
    "名".as_bytes(),
    "🔒".as_bytes(),
    "\u{202e}".as_bytes(),
    b"\xff",
    b"\xc3",
    b"\xf0\x9f",
];

/// Gives broken copies of the examples to a reader, which must neither panic nor hang.
pub(crate) fn bytes(examples: &[&[u8]], read: impl Fn(&[u8])) {
    let watched = Watched::start();
    seeded(1, || {
        for example in examples {
            watched.reads(example, &read);
        }
        for _ in 0..cases() {
            watched.reads(&broken(examples), &read);
        }
    });
}

/// The same for a reader of text.
pub(crate) fn texts(examples: &[&str], read: impl Fn(&str)) {
    let examples: Vec<&[u8]> = examples.iter().map(|text| text.as_bytes()).collect();
    bytes(&examples, |bytes| read(&String::from_utf8_lossy(bytes)));
}

/// Broken addresses of an engine, whose examples have the password `c4nary`: whatever is said of one does not show it.
pub(crate) fn addresses<C: std::fmt::Debug>(examples: &[&str], config: impl Fn(&str) -> crate::Result<C>) {
    const SECRET: &str = "c4nary";
    texts(examples, |text| {
        let is_password = crate::url::EngineUrl::parse(text)
            .is_ok_and(|url| url.password().is_some_and(|password| password.contains(SECRET)));
        let said = match config(text) {
            // In another place it is a user, a host, a path or an option.
            Ok(config) if is_password && text.matches(SECRET).count() == 1 => format!("{config:?}"),
            Ok(_) => String::new(),
            Err(error) => format!("{error} {error:?}"),
        };
        assert!(!said.contains(SECRET), "{said}");
    });
}

/// Calls a test that makes its own cases by chance.
#[cfg(feature = "redis")]
pub(crate) fn cases_of(case: impl Fn()) {
    let watched = Watched::start();
    seeded(1, || (0..cases()).for_each(|number| watched.reads(&number.to_be_bytes(), |_| case())));
}

fn cases() -> u64 {
    std::env::var("LOCKLINE_FUZZ").ok().and_then(|text| text.parse().ok()).unwrap_or(CASES)
}

fn broken(examples: &[&[u8]]) -> Vec<u8> {
    let mut bytes = any_of(examples).to_vec();
    for _ in 0..=below(4) {
        let at = below(bytes.len() as u64 + 1) as usize;
        let end = (at + below(8) as usize).min(bytes.len());
        match below(7) {
            0 => drop(bytes.drain(at..end)),
            1 => bytes.truncate(at),
            2 => drop(bytes.splice(at..at, any_of(PIECES).iter().copied())),
            3 => drop(bytes.splice(at..end, any_of(PIECES).iter().copied())),
            4 => {
                let again = bytes[at..end].repeat(1 + below(3) as usize);
                bytes.splice(at..at, again);
            }
            5 => {
                let other = any_of(examples);
                let from = below(other.len() as u64 + 1) as usize;
                bytes.splice(at.., other[from..].iter().copied());
            }
            _ if at < bytes.len() => bytes[at] ^= 1 << below(8),
            _ => {}
        }
    }
    if strikes(5) {
        bytes = bytes.repeat(200);
    }
    bytes
}

pub(crate) fn any_of<'a, T: ?Sized>(all: &[&'a T]) -> &'a T {
    all[below(all.len() as u64) as usize]
}

/// Knows what is being read, to tell when that makes the reader panic or hang.
struct Watched {
    current: Arc<Mutex<(u64, Vec<u8>)>>,
    over: Arc<AtomicBool>,
}

impl Watched {
    fn start() -> Watched {
        let (current, over) = (Arc::new(Mutex::new((0, Vec::new()))), Arc::new(AtomicBool::new(false)));
        let watched = Watched { current: current.clone(), over: over.clone() };
        std::thread::spawn(move || {
            let mut last = 0;
            let mut waited = Duration::ZERO;
            while !over.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(100));
                let (number, bytes) = &*locked(&current);
                waited = if *number == last { waited + Duration::from_millis(100) } else { Duration::ZERO };
                last = *number;
                if waited > HANGS {
                    eprintln!("the reader hangs on b\"{}\"", bytes.escape_ascii());
                    std::process::abort();
                }
            }
        });
        watched
    }

    fn reads(&self, bytes: &[u8], read: impl Fn(&[u8])) {
        {
            let mut current = locked(&self.current);
            current.0 += 1;
            current.1 = bytes.to_vec();
        }
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| read(bytes))) {
            eprintln!("on reading b\"{}\"", bytes.escape_ascii());
            resume_unwind(panic);
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
    }
}
