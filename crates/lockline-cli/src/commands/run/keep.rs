//! From the start of the command to its end: signals go to it, the guardian hears of every renewal, and a lock that is lost,
//! or about to be, stops it.

use std::process::ExitStatus;
use std::time::Duration;

use lockline::time::{BootClock, Time};
use lockline::{Guard, LossReason, Lost};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use tokio::time::sleep;

use crate::child::{Change, Child, by_signal};
use crate::exit::{Failure, code};
use crate::guardian::{Guardian, Timing};
use crate::signals::{Signals, Stopping};
use crate::talk::Talk;

/// How often a group that was told to end is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What the command runs under.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold<'a> {
    pub(super) guard: &'a Guard,
    pub(super) name: &'a str,
    pub(super) grace: Duration,
    /// When it has been held for as long as the caller allows.
    pub(super) cap: Option<Time>,
    pub(super) talk: Talk,
}

impl Hold<'_> {
    /// Until when the lock is certainly valid, as of now.
    fn valid_until(&self) -> Time {
        let now = BootClock.now();
        now + self.guard.remaining()
    }

    /// A guardian for a command that is about to be started.
    pub(super) fn guardian(&self) -> Result<Guardian, Failure> {
        let timing = Timing::new(self.guard.remaining(), self.grace);
        Guardian::start(timing, self.valid_until())
            .map_err(|e| Failure::system("the command's guardian cannot be started", e))
    }
}

/// What helps the next time.
fn advice_after(over: &Over) -> &'static str {
    let reason = match over {
        Over::Lost(lost) => lost.reason,
        Over::Capped => LossReason::MaxHold,
        Over::Late => LossReason::Expired,
    };
    match reason {
        LossReason::MaxHold => "a longer --max-hold gives the command more time",
        LossReason::Expired | LossReason::Unreachable => {
            "with a longer --lease the lock outlives a longer silence; what the command wrote late, only its token keeps out"
        }
        LossReason::Evicted => "an operator evicted it: ask before it is run again",
        LossReason::Forgotten => {
            "the engine restarted, failed over or was emptied; docs/guarantees.md says which settings keep locks over that"
        }
        _ => "run it again; what the command wrote late, only its token keeps out",
    }
}

/// Why the command may not go on.
#[derive(Debug)]
pub(super) enum Over {
    Lost(Lost),
    /// Not lost yet, but not renewed either for so long that it will be before a command that is asked now has ended.
    Late,
    Capped,
}

/// How the command itself ended.
pub(super) enum Ending {
    Ended(ExitStatus),
    Over(Over),
}

pub(super) struct Keeping<'a> {
    pub(super) child: Child,
    pub(super) guardian: Guardian,
    pub(super) hold: Hold<'a>,
    pub(super) signals: &'a mut Signals,
    /// The longest the lock was seen valid for: its lease, or nearly.
    lease: Duration,
    /// The stop signal came to the wrapper, not from the keyboard.
    told_to_stop: bool,
    unguarded: bool,
}

impl<'a> Keeping<'a> {
    pub(super) fn new(
        child: Child,
        guardian: Guardian,
        hold: Hold<'a>,
        signals: &'a mut Signals,
    ) -> Keeping<'a> {
        let lease = hold.guard.remaining();
        Keeping { child, guardian, hold, signals, lease, told_to_stop: false, unguarded: false }
    }

    /// Keeps the command company until it has ended, or may not go on.
    pub(super) async fn until_ended_or_over(&mut self) -> Result<Ending, Failure> {
        loop {
            if let Some(over) = self.over() {
                return Ok(Ending::Over(over));
            }
            let rest = self.beat();
            tokio::select! {
                biased;
                lost = self.hold.guard.lost() => return Ok(Ending::Over(Over::Lost(lost))),
                heard = self.signals.next_or_child() => match heard {
                    Some(Signal::SIGTSTP) => {
                        self.told_to_stop = true;
                        self.pass_on(Signal::SIGTSTP);
                    }
                    Some(Signal::SIGCONT) => match self.over() {
                        // Somebody stopped the wrapper for too long: the command must not go on.
                        Some(over) => return Ok(Ending::Over(over)),
                        None => self.resume(),
                    },
                    Some(signal) => self.pass_on(signal),
                    None => match self.change()? {
                        Change::Ended(status) => return Ok(self.judge(status)),
                        Change::Stopped => {
                            let told = std::mem::take(&mut self.told_to_stop);
                            let whom = if told { Stopping::Alone } else { Stopping::OurGroup };
                            self.child.stop_with_it(whom).await;
                            if let Some(over) = self.over() {
                                return Ok(Ending::Over(over));
                            }
                            self.resume();
                        }
                        Change::None => {}
                    },
                },
                () = sleep(rest) => {}
            }
        }
    }

    /// A command that failed after the guardian had perhaps asked it to end did not fail by itself.
    fn judge(&mut self, status: ExitStatus) -> Ending {
        if self.guardian.may_have_asked() && !status.success() {
            Ending::Over(self.over().unwrap_or(Over::Late))
        } else {
            Ending::Ended(status)
        }
    }

    /// Whether the command may not go on. To be asked before the guardian is told of a renewal: it may have acted already.
    pub(super) fn over(&mut self) -> Option<Over> {
        if let Some(lost) = self.hold.guard.loss() {
            return Some(Over::Lost(lost));
        }
        let now = BootClock.now();
        if self.hold.cap.is_some_and(|cap| now >= cap) {
            return Some(Over::Capped);
        }
        let asked = self.guardian.may_have_asked();
        (asked || now >= self.guardian.timing().ask_at(self.hold.valid_until())).then_some(Over::Late)
    }

    /// Tells the guardian of a renewal, if there was one. Answers when to do so again.
    pub(super) fn beat(&mut self) -> Duration {
        let remaining = self.hold.guard.remaining();
        if remaining > self.lease {
            self.lease = remaining;
            self.guardian.set_timing(Timing::new(remaining, self.hold.grace));
        }
        let valid_until = self.hold.valid_until();
        let told = self.guardian.renewed(self.child.group(), valid_until);
        self.warn_if_unguarded(told);
        let now = BootClock.now();
        let timing = self.guardian.timing();
        let asked_in = timing.ask_at(valid_until).since(now);
        let capped_in = self.hold.cap.map_or(Duration::MAX, |cap| cap.since(now));
        // Never zero: tokio's timer knows milliseconds.
        timing.beat().min(asked_in).min(capped_in).max(Duration::from_millis(1))
    }

    fn warn_if_unguarded(&mut self, told: std::io::Result<()>) {
        if let Err(error) = told
            && !std::mem::replace(&mut self.unguarded, true)
        {
            self.hold.talk.warn(&format!("the command has no guardian any more: {error}"), None);
        }
    }

    /// Ends the command whose lock is over, and says so.
    pub(super) async fn stop(&mut self, over: Over) -> Result<Failure, Failure> {
        let stopped = self.end_group().await?;
        let advice = advice_after(&over);
        let why = match over {
            Over::Lost(lost) => lost.to_string(),
            Over::Capped => format!("lost the lock {:?}: {}", self.hold.name, LossReason::MaxHold),
            Over::Late => format!(
                "lost the lock {:?}: it was not renewed in time, because the engine did not answer or lockline was stopped",
                self.hold.name
            ),
        };
        let how = if stopped {
            "the command was stopped"
        } else {
            "the command could not be stopped, and has ended by itself"
        };
        Ok(Failure::new(code::LOST, format!("{why}; {how}")).hint(advice))
    }

    /// Asks the whole group to end, gives it the grace but not longer than the lock is valid, kills what is left, and
    /// waits until nothing is. Answers whether all of it could be stopped.
    pub(super) async fn end_group(&mut self) -> Result<bool, Failure> {
        let told = self.guardian.stopping(self.child.group(), BootClock.now() + self.hold.grace);
        self.warn_if_unguarded(told);
        // Whom they did not reach is looked for below, one by one: a group is reached if one of it is.
        let _ = self.child.send(Signal::SIGTERM);
        // What is stopped cannot hear.
        let _ = self.child.send(Signal::SIGCONT);
        let mut stopped = self.say_who_is_out_of_reach();
        let mut killed = false;
        loop {
            let has_ended = matches!(self.change()?, Change::Ended(_));
            if has_ended && self.child.left_running().is_empty() {
                return Ok(stopped);
            }
            if self.hold.guard.is_valid() {
                self.beat();
            }
            let mut rest = self.guardian.kill_at().since(BootClock.now());
            if rest.is_zero() {
                let _ = self.child.send(Signal::SIGKILL);
                // What could be killed is out of sight soon; only then can hidden ones be told from it.
                if killed && stopped {
                    stopped = self.say_who_is_out_of_reach();
                }
                killed = true;
                rest = LOOK_EVERY * 5;
            }
            if has_ended {
                rest = rest.min(LOOK_EVERY);
            }
            tokio::select! {
                biased;
                heard = self.signals.next_or_child() => match heard {
                    // It is ending: now is no time to stop.
                    None | Some(Signal::SIGTSTP) => {}
                    Some(signal) => self.pass_on(signal),
                },
                () = sleep(rest.min(self.guardian.timing().beat()).max(Duration::from_millis(1))) => {}
            }
        }
    }

    /// Says who of the group cannot be stopped. Answers whether everybody can.
    fn say_who_is_out_of_reach(&self) -> bool {
        let out_of_reach = self.child.out_of_reach();
        if !out_of_reach.is_empty() {
            self.hold.talk.unstoppable(self.hold.name, &out_of_reach);
        }
        out_of_reach.is_empty()
    }

    pub(super) fn pass_on(&self, signal: Signal) {
        let sent = self.child.send(signal);
        self.warn_if_not_sent(signal, sent);
    }

    fn resume(&mut self) {
        let sent = self.child.resume();
        self.warn_if_not_sent(Signal::SIGCONT, sent);
    }

    fn warn_if_not_sent(&self, signal: Signal, sent: Result<(), Errno>) {
        if let Err(error) = sent {
            let message = format!("{signal} could not be passed on to the command: {}", error.desc());
            self.hold.talk.warn(&message, Some("a command of another user hears only that user and root"));
        }
    }

    fn change(&mut self) -> Result<Change, Failure> {
        self.child.change().map_err(|e| Failure::system("the command cannot be waited for", e))
    }

    /// Waits until nothing of the ended command's group is left. Answers the signal that ended the waiting, if one did.
    pub(super) async fn until_alone(&mut self) -> Result<Result<Option<u8>, Over>, Failure> {
        const TOLD_AFTER: Duration = Duration::from_secs(1);
        const LONGEST_PAUSE: Duration = Duration::from_millis(50);
        let told_at = BootClock.now() + TOLD_AFTER;
        let mut told = false;
        let mut pause = Duration::from_millis(2);
        loop {
            let left = self.child.left_running();
            if left.is_empty() {
                return Ok(Ok(None));
            }
            if let Some(over) = self.over() {
                return Ok(Err(over));
            }
            if !told && BootClock.now() >= told_at {
                told = true;
                let message = format!(
                    "the command has ended; waiting for what it left running: {}",
                    crate::members::named(&left)
                );
                self.hold.talk.warn(
                    &message,
                    Some("--children stop ends it, --children leave lets it go on without the lock"),
                );
            }
            let rest = self.beat().min(pause);
            tokio::select! {
                biased;
                lost = self.hold.guard.lost() => return Ok(Err(Over::Lost(lost))),
                heard = self.signals.next_or_child() => match heard {
                    None => {}
                    Some(signal @ (Signal::SIGINT | Signal::SIGTERM | Signal::SIGHUP | Signal::SIGQUIT)) => {
                        // Shells have their background jobs ignore the keyboard: whoever wants us to end means them, too.
                        self.end_group().await?;
                        return Ok(Ok(Some(by_signal(signal as i32))));
                    }
                    Some(Signal::SIGTSTP) => {
                        // Nobody tells us that they have stopped, so they are not asked.
                        self.pass_on(Signal::SIGSTOP);
                        self.child.stop_with_it(Stopping::Alone).await;
                        if let Some(over) = self.over() {
                            return Ok(Err(over));
                        }
                        self.pass_on(Signal::SIGCONT);
                    }
                    Some(signal) => self.pass_on(signal),
                },
                () = sleep(rest) => {}
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}
