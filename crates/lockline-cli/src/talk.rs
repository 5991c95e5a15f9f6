//! What `run` says of its own: on standard error only, and nothing at all when asked to be quiet.

use std::time::Duration;

use lockline::driver::DriverInfo;
use lockline::fence::Fence;
use lockline::line::Shut;

use crate::cli::RunArgs;
use crate::exit::Failure;
use crate::json::{self, Event, millis};
use crate::members::{Member, named};
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

    pub(crate) fn waiting(self, name: &str, engine: &str) {
        let text = || format!("waiting for {} on {}", visible(name), visible(engine));
        self.tell(&Event::Waiting { name, engine }, text);
    }

    /// Says that the engine is up and lets nobody in; on a terminal the live line does.
    pub(crate) fn shut(self, name: &str, engine: &DriverInfo, shut: &Shut) {
        if self.quiet || !(self.json || self.verbose) {
            return;
        }
        let message = shut.about(engine.driver);
        let state = json::Shut::of(shut);
        self.say(&Event::Shut { name, engine: &engine.address, state, message: &message }, &message, None);
    }

    pub(crate) fn acquired(self, name: &str, fence: Fence, waited: Duration, engine: &str) {
        let token = (!fence.is_none()).then_some(fence.token());
        let event = Event::Acquired { name, token, waited_ms: millis(waited), engine };
        self.tell(&event, || {
            let token = token.map_or("no token".to_owned(), |token| format!("token {token}"));
            format!("got {} after {}, {token}, on {}", visible(name), age(waited), visible(engine))
        });
    }

    /// Says a failure; unlike the rest it is said without `-v`.
    pub(crate) fn failed(self, failure: &Failure) {
        if self.quiet || failure.message.is_empty() {
            return;
        }
        if self.json {
            let Failure { code, message, hint, retry_after, busy } = failure;
            let (holders, engine) = busy.as_deref().map_or((&[][..], None), |(held, on)| (held, Some(&**on)));
            let (hint, retry_after_ms) = (hint.as_deref(), retry_after.map(millis));
            say_json(&Event::Failed { exit: *code, message, hint, retry_after_ms, holders, engine });
        } else {
            say(&failure.text());
        }
    }

    /// Says something that does not change how it ends.
    pub(crate) fn warn(self, message: &str, hint: Option<&str>) {
        self.say(&Event::Warning { message, hint }, message, hint);
    }

    /// Says that a lock is lost, and who works on without it.
    pub(crate) fn unstoppable(self, name: &str, processes: &[Member]) {
        let message = format!(
            "{} is lost, but {} may not be stopped by this user and works on without it",
            visible(name),
            named(processes)
        );
        let hint = Some(
            "whoever runs a command as another user runs lockline as that user, too: sudo lockline run …",
        );
        self.say(&Event::Unstoppable { name, processes, message: &message, hint }, &message, hint);
    }

    fn say(self, event: &Event<'_>, message: &str, hint: Option<&str>) {
        if self.quiet {
            return;
        }
        if self.json {
            return say_json(event);
        }
        let hint = hint.map(|hint| format!("hint: {}\n", visible(hint))).unwrap_or_default();
        say(&format!("lockline: {}\n{hint}", visible(message)));
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
