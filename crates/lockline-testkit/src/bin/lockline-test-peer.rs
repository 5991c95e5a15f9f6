//! A process that locks on command: see `lockline_testkit::peer`.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, PipeWriter, Read, Write, stdin, stdout};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lockline::{Guard, Locks};
use lockline_testkit::peer::{Answer, Command, Numbered};
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, set_parent_process_death_signal, waitpid,
};
use tokio::sync::mpsc;

type Slots = Arc<Mutex<HashMap<String, Guard>>>;

#[derive(Clone)]
struct Peer {
    locks: Locks,
    label: String,
    url: String,
    slots: Slots,
}

/// One thread, because a fork copies only the thread that forks: another one could hold a lock of the standard library.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(url), Some(label), Some(lease)) = (args.next(), args.next(), args.next()) else {
        return Err("usage: lockline-test-peer URL LABEL LEASE_MS".into());
    };
    // Whatever happens to the test, no peer outlives it.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let builder = Locks::builder().owner(&label).lease(Duration::from_millis(lease.parse()?));
    let peer = Peer { locks: builder.connect(&url).await?, label, url, slots: Slots::default() };
    let (sender, mut commands) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for text in stdin().lock().lines().map_while(Result::ok) {
            if sender.send(text).is_err() {
                return;
            }
        }
    });
    while let Some(text) = commands.recv().await {
        let Numbered { number, what } = serde_json::from_str::<Numbered<Command>>(&text)?;
        let peer = peer.clone();
        tokio::spawn(async move {
            let what = peer.obey(what).await;
            let answer = serde_json::to_string(&Numbered { number, what }).expect("an answer is JSON");
            let mut out = stdout().lock();
            // The test has gone if it cannot be told.
            let _ = writeln!(out, "{answer}").and_then(|()| out.flush());
        });
    }
    Ok(())
}

impl Peer {
    async fn obey(&self, command: Command) -> Answer {
        match command {
            Command::Lock { slot, name, wait, identity } => {
                let mutex = match identity {
                    Some(identity) => self.locks.shared_owner(&self.label, identity).mutex(name),
                    None => self.locks.mutex(name),
                };
                let got = match wait {
                    None => mutex.lock().await.map(Some),
                    Some(wait) => mutex.try_lock_for(wait).await,
                };
                self.keep(slot, got)
            }
            Command::LockSide { slot, name, wait, write } => {
                let lock = self.locks.rwlock(name);
                let got = if write { lock.try_write_for(wait).await } else { lock.try_read_for(wait).await };
                self.keep(slot, got)
            }
            Command::Release { slot } => match self.take(&slot).release().await {
                Ok(()) => Answer::Done,
                Err(error) => failed(&error),
            },
            Command::Look { slot } => {
                let guard = self.take(&slot);
                let answer = match guard.loss() {
                    None => Answer::Valid,
                    Some(lost) => Answer::Lost { reason: lost.reason.word().to_owned() },
                };
                self.put(slot, guard);
                answer
            }
            Command::Spin { name, spin_for, dir } => {
                match self.spin(&name, spin_for, Path::new(&dir)).await {
                    Ok((turns, violations)) => Answer::Spun { turns, violations },
                    Err(error) => Answer::Failed { error: error.to_string() },
                }
            }
            Command::Fork { slot } => {
                // Only the child takes its copy out; the parent's is still there afterwards.
                let mut guard = Some(self.take(&slot));
                let answer = forked(|say| look_from_fork(&self.locks, guard.take(), say));
                guard.map_or(Answer::Failed { error: "the parent lost its guard".to_owned() }, |guard| {
                    self.put(slot, guard);
                    answer
                })
            }
            Command::ForkBlocking { name } => {
                let url = self.url.clone();
                // The blocking API refuses to work on a runtime's thread.
                let thread = std::thread::spawn(move || fork_blocking(&url, &name));
                thread.join().unwrap_or(Answer::Failed { error: "panicked".to_owned() })
            }
        }
    }

    fn keep(&self, slot: String, got: lockline::Result<Option<Guard>>) -> Answer {
        match got {
            Ok(Some(guard)) => {
                let token = guard.fence().token();
                self.put(slot, guard);
                Answer::Locked { token }
            }
            Ok(None) => Answer::Busy,
            Err(error) => failed(&error),
        }
    }

    fn put(&self, slot: String, guard: Guard) {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).insert(slot, guard);
    }

    fn take(&self, slot: &str) -> Guard {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).remove(slot).expect("the slot is full")
    }

    /// Takes turns for a while. A witness file that only one may make at a time tells whether somebody else is inside; the log has a
    /// line per turn, in the order in which they happened.
    async fn spin(
        &self,
        name: &str,
        spin_for: Duration,
        dir: &Path,
    ) -> Result<(u32, u32), Box<dyn std::error::Error + Send + Sync>> {
        let witness = dir.join("inside");
        let mut log = OpenOptions::new().append(true).create(true).open(dir.join("log"))?;
        let mutex = self.locks.mutex(name);
        let (mut turns, mut violations) = (0, 0);
        let mut until = None;
        loop {
            let guard = mutex.lock().await?;
            // The first turn starts the clock: until then everybody waits for the test to begin.
            let until = *until.get_or_insert_with(|| Instant::now() + spin_for);
            if OpenOptions::new().write(true).create_new(true).open(&witness).is_err() {
                violations += 1;
            }
            writeln!(log, "{} {}", std::process::id(), guard.fence())?;
            turns += 1;
            fs::remove_file(&witness)?;
            guard.release().await?;
            // However slow the machine is: fewer turns would say nothing.
            if Instant::now() >= until && turns >= FEWEST_TURNS {
                return Ok((turns, violations));
            }
        }
    }
}

/// How many turns a process takes at least.
const FEWEST_TURNS: u32 = 5;

fn failed(error: &lockline::Error) -> Answer {
    Answer::Failed { error: format!("{error:?}") }
}

/// Runs something in a forked child, and gives back what it said before it ended.
fn forked(child: impl FnOnce(&mut dyn FnMut(String))) -> Answer {
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    // A real fork is what is to be tested, and there is none without `unsafe`: the child may touch nothing that
    // another thread could have left half-done. It reads and drops guards, allocates (glibc makes that safe after a
    // fork), writes to its own pipe, and ends by a signal, so that nothing of the parent's is run at its exit.
    #[allow(unsafe_code)]
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Answer::Failed { error: "could not fork".to_owned() },
        0 => {
            let _ = set_parent_process_death_signal(Some(Signal::KILL));
            tell_parent(writer, child);
            let _ = kill_process(getpid(), Signal::KILL);
            std::process::abort()
        }
        pid => {
            drop(writer);
            let mut said = String::new();
            reader.read_to_string(&mut said).expect("the child's words");
            let _ = waitpid(Pid::from_raw(pid), WaitOptions::empty());
            Answer::Child { said: said.lines().map(str::to_owned).collect() }
        }
    }
}

fn tell_parent(mut writer: PipeWriter, child: impl FnOnce(&mut dyn FnMut(String))) {
    child(&mut |words| {
        let _ = writeln!(writer, "{words}");
    });
}

fn look_from_fork(locks: &Locks, guard: Option<Guard>, say: &mut dyn FnMut(String)) {
    let Some(guard) = guard else { return };
    say(format!("valid {}", guard.is_valid()));
    say(format!("reason {}", guard.loss().map_or("none", |lost| lost.reason.word())));
    say(format!("remaining {:?}", guard.remaining()));
    say(format!("try_lock {}", polled_once(locks.mutex("other").try_lock())));
    say(format!("view {}", polled_once(locks.view(""))));
    say(format!("release {}", polled_once(guard.release())));
    say("end".to_owned());
}

fn fork_blocking(url: &str, name: &str) -> Answer {
    let locks = match lockline::blocking::Locks::connect(url) {
        Ok(locks) => locks,
        Err(error) => return failed(&error),
    };
    let guard = match locks.mutex(name).lock() {
        Ok(guard) => guard,
        Err(error) => return failed(&error),
    };
    let mut mine = Some((locks, guard));
    let answer = forked(|say| {
        let Some((locks, guard)) = mine.take() else { return };
        say(format!("check {}", guard.check().map_or_else(|lost| lost.reason.word(), |()| "valid")));
        say(format!("try_lock {}", outcome(locks.mutex("other").try_lock())));
        drop(guard);
        say("dropped guard".to_owned());
        drop(locks);
        say("end".to_owned());
    });
    // The child took its copy; the parent's is still here, and must still be held.
    match mine.map(|(_locks, guard)| guard.release()) {
        Some(Ok(())) => answer,
        other => Answer::Failed { error: format!("the parent's guard: {other:?}") },
    }
}

/// What a future says at its first look: in a fork there is no runtime to wait on.
fn polled_once<T>(work: impl Future<Output = lockline::Result<T>>) -> String {
    let mut work = std::pin::pin!(work);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match work.as_mut().poll(&mut context) {
        std::task::Poll::Ready(result) => outcome(result),
        std::task::Poll::Pending => "pending".to_owned(),
    }
}

fn outcome<T>(result: lockline::Result<T>) -> String {
    result.map_or_else(|error| format!("{:?}", error.kind()), |_| "ok".to_owned())
}
