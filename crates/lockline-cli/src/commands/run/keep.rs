//! From the start of the command to its end: signals go to it, and the loss of the lock stops it.

use std::process::ExitStatus;
use std::time::Duration;

use lockline::{Guard, Lost};
use nix::sys::signal::Signal;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::child::{Change, Child};
use crate::exit::{Failure, code};
use crate::guardian::{Guardian, STARTS_AFTER};
use crate::signals::Signals;
use crate::talk::Talk;

/// How often a group that was told to end is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Keeps the command company until it has ended, and tells its exit code.
pub(super) async fn keep(
    child: Child,
    guard: &Guard,
    grace: Duration,
    signals: &mut Signals,
    talk: Talk,
) -> Result<u8, Failure> {
    let mut keeping = Keeping { child, signals, guardian: None };
    let ending = keeping.until_ended_or_lost(guard, talk).await?;
    let lost = match ending {
        Ending::Ended(status) => return Ok(keeping.settle(status)),
        Ending::Lost(lost) => lost,
    };
    keeping.stop(grace).await?;
    Err(Failure::new(code::LOST, format!("{lost}; the command was stopped")))
}

struct Keeping<'a> {
    child: Child,
    signals: &'a mut Signals,
    guardian: Option<Guardian>,
}

enum Ending {
    Ended(ExitStatus),
    Lost(Lost),
}

impl Keeping<'_> {
    async fn until_ended_or_lost(&mut self, guard: &Guard, talk: Talk) -> Result<Ending, Failure> {
        let guardian_due = Instant::now() + STARTS_AFTER;
        let mut guarded = false;
        loop {
            tokio::select! {
                biased;
                lost = guard.lost() => return Ok(Ending::Lost(lost)),
                heard = self.signals.next_or_child() => match heard {
                    Some(Signal::SIGCONT) => self.child.resume(),
                    Some(signal) => self.child.send(signal),
                    None => match self.change()? {
                        Change::Ended(status) => return Ok(Ending::Ended(status)),
                        Change::Stopped => {
                            self.child.stop_with_it().await;
                            // A command whose lock was lost while it was stopped must not go on.
                            if let Some(lost) = guard.loss() {
                                return Ok(Ending::Lost(lost));
                            }
                            self.child.resume();
                        }
                        Change::None => {}
                    },
                },
                () = sleep_until(guardian_due), if !guarded => {
                    guarded = true;
                    match Guardian::start(self.child.group()) {
                        Ok(guardian) => self.guardian = Some(guardian),
                        Err(error) => talk.warn(&format!("no guardian for the command's children: {error}")),
                    }
                }
            }
        }
    }

    /// After a loss: asks the whole group to end, gives it time, and kills what is left.
    async fn stop(mut self, grace: Duration) -> Result<(), Failure> {
        let deadline = Instant::now() + grace;
        self.child.send(Signal::SIGTERM);
        // What is stopped cannot hear.
        self.child.send(Signal::SIGCONT);
        let status = match timeout_at(deadline, self.until_ended()).await {
            Ok(status) => status?,
            Err(_) => {
                self.child.send(Signal::SIGKILL);
                self.until_ended().await?
            }
        };
        while self.child.has_left_others() {
            if Instant::now() >= deadline {
                self.child.send(Signal::SIGKILL);
                break;
            }
            sleep(LOOK_EVERY).await;
        }
        self.settle(status);
        Ok(())
    }

    async fn until_ended(&mut self) -> Result<ExitStatus, Failure> {
        loop {
            // Looked at before listening: it may have ended while somebody else listened.
            if let Change::Ended(status) = self.change()? {
                return Ok(status);
            }
            if let Some(signal) = self.signals.next_or_child().await {
                self.child.send(signal);
            }
        }
    }

    fn change(&mut self) -> Result<Change, Failure> {
        self.child
            .change()
            .map_err(|e| Failure::new(code::SYSTEM, format!("the command cannot be waited for: {e}")))
    }

    fn settle(self, status: ExitStatus) -> u8 {
        if let Some(guardian) = self.guardian {
            guardian.dismiss();
        }
        self.child.settle(status)
    }
}
