//! How the command ends: its exit codes, and what is said when it fails.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use lockline::{Error, ErrorKind};

use crate::json::Claim;
use crate::output::one_line;

/// The exit codes, those of `sysexits.h` where one fits.
pub(crate) mod code {
    pub(crate) const OK: u8 = 0;
    /// `evict`: there was no such claim.
    pub(crate) const NO_SUCH_CLAIM: u8 = 1;
    /// The call is wrong.
    pub(crate) const USAGE: u8 = 64;
    /// The engine cannot be reached or cannot do it now.
    pub(crate) const UNAVAILABLE: u8 = 69;
    /// The operating system refused something a program may expect, such as another thread.
    pub(crate) const SYSTEM: u8 = 71;
    /// Standard output could not be written.
    pub(crate) const INPUT_OUTPUT: u8 = 74;
    /// Not acquired in time.
    pub(crate) const NOT_ACQUIRED: u8 = 75;
    /// The engine refused this user.
    pub(crate) const DENIED: u8 = 77;
    /// The engine is set up in a way a lock cannot be trusted to.
    pub(crate) const UNSAFE: u8 = 78;
    /// Lost while the command was running. Not in `sysexits.h`, whose last is 78.
    pub(crate) const LOST: u8 = 79;
    /// As shells do.
    pub(crate) const NOT_EXECUTABLE: u8 = 126;
    /// As shells do.
    pub(crate) const NOT_FOUND: u8 = 127;
}

/// Why the command did not do what was asked: the exit code, one line, and perhaps what to do about it.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    /// Empty: there is nothing to say.
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    /// When the same may succeed, if the engine says so.
    pub(crate) retry_after: Option<Duration>,
    /// Who holds the lock that was not got, and the engine.
    pub(crate) busy: Option<Box<(Vec<Claim>, String)>>,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl AsRef<str>) -> Failure {
        Failure { code, message: one_line(message.as_ref()), hint: None, retry_after: None, busy: None }
    }

    pub(crate) fn usage(message: impl AsRef<str>) -> Failure {
        Failure::new(code::USAGE, message)
    }

    /// The operating system refused something that a program may expect.
    pub(crate) fn system(what: &str, error: impl std::fmt::Display) -> Failure {
        Failure::new(code::SYSTEM, format!("{what}: {error}"))
            .hint("the machine, or a limit of this user, is out of something: compare `ulimit -a` with what is in use")
    }

    pub(crate) fn hint(mut self, hint: impl AsRef<str>) -> Failure {
        self.hint = Some(one_line(hint.as_ref()));
        self
    }

    /// The lines for people.
    pub(crate) fn text(&self) -> String {
        let hint = self.hint.as_ref().map(|hint| format!("hint: {hint}\n")).unwrap_or_default();
        if self.message.is_empty() { String::new() } else { format!("lockline: {}\n{hint}", self.message) }
    }
}

/// Which code tells a caller what to do about this kind of failure.
fn code_of(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Invalid | ErrorKind::Unsupported | ErrorKind::Deadlock => code::USAGE,
        ErrorKind::Denied => code::DENIED,
        ErrorKind::Unsafe => code::UNSAFE,
        ErrorKind::Evicted => code::NOT_ACQUIRED,
        ErrorKind::Lost => code::LOST,
        // Unavailable, Unknown, Full, Limit, Closed, and what a later version adds: trying later may help.
        _ => code::UNAVAILABLE,
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let mut failure = Failure::new(code_of(error.kind()), error.to_string());
        failure.retry_after = error.retry_after();
        match error.hint_text() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

/// A failure to write to standard output. Whoever stopped reading has seen enough: that is no failure.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::new(code::OK, ""),
            _ => Failure::new(code::INPUT_OUTPUT, format!("cannot write to standard output: {error}"))
                .hint("check where it goes: a full disk, or a file that was closed"),
        }
    }
}

/// The end of a command that is not `run`.
pub(crate) fn finish(result: Result<u8, Failure>) -> ExitCode {
    match result {
        Ok(code) => code.into(),
        Err(failure) => {
            crate::output::say(&failure.text());
            failure.code.into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_codes() {
        let code = |kind| Failure::from(Error::new(kind, "test", "x")).code;
        assert_eq!(code(ErrorKind::Invalid), 64);
        assert_eq!(code(ErrorKind::Unsupported), 64);
        assert_eq!(code(ErrorKind::Deadlock), 64);
        assert_eq!(code(ErrorKind::Unavailable), 69);
        assert_eq!(code(ErrorKind::Unknown), 69);
        assert_eq!(code(ErrorKind::Full), 69);
        assert_eq!(code(ErrorKind::Limit), 69);
        assert_eq!(code(ErrorKind::Closed), 69);
        assert_eq!(code(ErrorKind::Evicted), 75);
        assert_eq!(code(ErrorKind::Denied), 77);
        assert_eq!(code(ErrorKind::Unsafe), 78);
        assert_eq!(code(ErrorKind::Lost), 79);
    }

    #[test]
    fn a_failure_is_one_line_and_a_hint() {
        let failure = Failure::usage("bad\nnews\u{1b}[31m").hint("do\nthis");
        assert_eq!(failure.text(), "lockline: bad\\nnews\\u{1b}[31m\nhint: do\\nthis\n");
    }
}
