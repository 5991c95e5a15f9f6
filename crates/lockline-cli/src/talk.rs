//! What `run` says of its own: on standard error only, and nothing at all when asked to be quiet.

use std::time::Duration;

use lockline::fence::Fence;

use crate::cli::RunArgs;
use crate::exit::Failure;
use crate::json::{Event, millis};
use crate::output::{say, talks_to_terminal, visible};
use crate::table::age;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Talk {
    quiet: bool,
    verbose: bool,
    json: bool,
}

impl Talk {
    pub(crate) fn of(args: &RunArgs) -> Talk {
        Talk { quiet: args.quiet, verbose: args.verbose, json: args.json }
    }

    /// Whether a line that changes in place may be shown.
    pub(crate) fn is_live(self) -> bool {
        !self.quiet && !self.json && talks_to_terminal()
    }

    pub(crate) fn waiting(self, name: &str) {
        self.tell(&Event::Waiting { name }, || format!("waiting for {}", visible(name)));
    }

    pub(crate) fn acquired(self, name: &str, fence: Fence, waited: Duration) {
        let token = (!fence.is_none()).then_some(fence.token());
        let event = Event::Acquired { name, token, waited_ms: millis(waited) };
        self.tell(&event, || {
            let token = token.map_or("no token".to_owned(), |token| format!("token {token}"));
            format!("got {} after {}, {token}", visible(name), age(waited))
        });
    }

    /// Says a failure; unlike the rest it is said without `-v`.
    pub(crate) fn failed(self, failure: &Failure) {
        if self.quiet || failure.message.is_empty() {
            return;
        }
        if self.json {
            let Failure { code, message, hint } = failure;
            say_json(&Event::Failed { exit: *code, message, hint: hint.as_deref() });
        } else {
            say(&failure.text());
        }
    }

    /// Says something that does not change how it ends.
    pub(crate) fn warn(self, message: &str) {
        if !self.quiet && !self.json {
            say(&format!("lockline: {}\n", visible(message)));
        }
    }

    fn tell(self, event: &Event<'_>, text: impl Fn() -> String) {
        if !self.verbose {
            return;
        }
        if self.json { say_json(event) } else { say(&format!("lockline: {}\n", text())) }
    }
}

fn say_json(event: &Event<'_>) {
    if let Ok(text) = serde_json::to_string(event) {
        say(&format!("{text}\n"));
    }
}
