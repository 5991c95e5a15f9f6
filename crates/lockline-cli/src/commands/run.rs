//! `lockline run`: get the lock, run the command, let go when it has ended.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use lockline::line::Mode;
use lockline::time::BootClock;
use lockline::{ErrorKind, Guard, Locks};
use nix::sys::signal::Signal;
use tokio::time::Instant;

use crate::child::{Child, by_signal};
use crate::cli::{Children, RunArgs};
use crate::engine::{Engine, on_runtime};
use crate::exit::{Failure, code};
use crate::json;
use crate::label;
use crate::nested;
use crate::output::visible;
use crate::parse::Permits;
use crate::secret;
use crate::signals::{Signals, Stopping, stop_ourselves};
use crate::table::whom;
use crate::talk::Talk;
use crate::waiting::Waiting;

use self::keep::Hold;
use self::under_lock::keep;

mod keep;
mod under_lock;

/// How long to wait for the engine to hear that we go. After that the lease tells it.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);
/// How long whoever did not get the lock waits to be told who has it.
const LOOKED_FOR: Duration = Duration::from_millis(500);

/// What to do, checked as far as it can be without touching anything.
#[derive(Debug)]
struct Plan {
    engine: Engine,
    name: String,
    owner: String,
    kind: Kind,
    /// `None`: for as long as it takes.
    wait: Option<Duration>,
    lease: Option<Duration>,
    max_hold: Option<Duration>,
    grace: Duration,
    children: Children,
    pass_url: bool,
    not_acquired: u8,
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Exclusive,
    Shared,
    Permits(Permits),
}

impl Kind {
    fn mode(self) -> Mode {
        match self {
            Kind::Exclusive => Mode::Exclusive,
            Kind::Shared => Mode::Shared,
            Kind::Permits(Permits { count, limit }) => Mode::Permits { count, limit },
        }
    }
}

pub(crate) fn run(args: RunArgs) -> ExitCode {
    let talk = Talk::of(&args);
    let planned = plan(args);
    if let Some((message, hint)) = planned.as_ref().ok().and_then(|plan| plan.engine.warning()) {
        talk.warn(&message, Some(&hint));
    }
    match planned.and_then(|plan| on_runtime(carry_out(&plan, talk))) {
        Ok(code) => code.into(),
        Err(failure) => {
            talk.failed(&failure);
            failure.code.into()
        }
    }
}

fn plan(args: RunArgs) -> Result<Plan, Failure> {
    let engine = Engine::of(args.engine.on)?;
    engine.check(&args.name)?;
    Ok(Plan {
        owner: args.owner.unwrap_or_else(|| label::of(&args.command)),
        engine,
        name: args.name,
        kind: match args.permits {
            Some(permits) => Kind::Permits(permits),
            None if args.shared => Kind::Shared,
            None => Kind::Exclusive,
        },
        wait: if args.no_wait { Some(Duration::ZERO) } else { args.wait.or(args.seconds) },
        lease: args.lease,
        max_hold: args.max_hold,
        grace: args.grace,
        children: args.children,
        pass_url: args.pass_url,
        not_acquired: args.exit_code.unwrap_or(code::NOT_ACQUIRED),
        command: args.command,
    })
}

async fn carry_out(plan: &Plan, talk: Talk) -> Result<u8, Failure> {
    // Side by side: most engines open on another thread or machine, and meanwhile this thread has nothing to do.
    let began = Instant::now();
    let (opened, signals) = tokio::join!(plan.engine.open(&plan.owner), async { Signals::listen() });
    let mut signals = signals.map_err(|e| Failure::system("signals cannot be heard", e))?;
    let end = plan.wait.map(|wait| began + wait);
    let locks = match opened {
        Ok(locks) => locks,
        Err(failure) => tokio::select! {
            opened = plan.engine.open_again(&plan.owner, end, failure) => opened?,
            signal = ending(&mut signals) => return Ok(by_signal(signal as i32)),
        },
    };
    if let Some((message, hint)) = plan.engine.announcement() {
        talk.warn(&message, Some(&hint));
    }
    let guard = match get(&locks, plan, end, talk, &mut signals).await {
        Ok(Got::Guard(guard)) => guard,
        // Whatever stands in the line leaves it before we go.
        Ok(Got::Signal(signal)) => {
            let _ = locks.shutdown(LEAVE_WITHIN).await;
            return Ok(by_signal(signal as i32));
        }
        Err(failure) => {
            let _ = locks.shutdown(LEAVE_WITHIN).await;
            return Err(failure);
        }
    };
    let ended = hold(plan, &guard, talk, &mut signals).await;
    let let_go = let_go(&locks, guard, talk).await;
    // The process ends now, and its connections with it; closing them one by one would only take time.
    std::mem::forget(locks);
    // That the command could not be run says more than that the lock was lost meanwhile.
    ended.and_then(|code| let_go.map(|()| code))
}

/// Runs the command under the lock that was got.
async fn hold(plan: &Plan, guard: &Guard, talk: Talk, signals: &mut Signals) -> Result<u8, Failure> {
    // Counted here and not by the library, which lets the next one in as soon as it is over: this lock stays ours until
    // the command, which is asked then, has ended.
    let cap = plan.max_hold.map(|cap| BootClock.now() + cap);
    let hold = Hold { guard, name: &plan.name, grace: plan.grace, cap, talk };
    let fence = guard.fence();
    // Set even if there is none: a token of an outer `lockline run` is not this lock's.
    let token = if fence.is_none() { String::new() } else { fence.token().to_string() };
    let holds = nested::with(guard);
    let mut environment = vec![
        ("LOCKLINE_NAME", &*plan.name),
        ("LOCKLINE_TOKEN", &token),
        ("LOCKLINE_OWNER", &plan.owner),
        (nested::HOLDS, &holds),
    ];
    let open_url = if plan.pass_url { None } else { secret::withheld() };
    if let Some(url) = &open_url {
        environment.extend([(secret::URL, url.as_str()), (secret::WITHHELD, "1")]);
    }
    // First: from its fork on the command is watched.
    let guardian = hold.guardian()?;
    match Child::start(&plan.command, &environment, guardian.introduction()) {
        Ok(child) => keep(child, guardian, hold, plan.children, signals).await,
        Err(failure) => {
            guardian.dismiss();
            Err(failure)
        }
    }
}

async fn let_go(locks: &Locks, guard: Guard, talk: Talk) -> Result<(), Failure> {
    let Err(error) = guard.release().await else { return Ok(()) };
    let _ = locks.shutdown(LEAVE_WITHIN).await;
    if error.kind() == ErrorKind::Lost {
        return Err(error.into());
    }
    // The command has done its work under the lock; that others wait a lease longer does not change its result.
    talk.warn(&format!("the lock could not be released, its lease will end it: {error}"), None);
    Ok(())
}

enum Got {
    Guard(Guard),
    /// A signal ended the waiting.
    Signal(Signal),
}

/// Waits for the lock, for a signal, or for the end of patience.
async fn get(
    locks: &Locks,
    plan: &Plan,
    end: Option<Instant>,
    talk: Talk,
    signals: &mut Signals,
) -> Result<Got, Failure> {
    if plan.wait != Some(Duration::ZERO) {
        nested::check(locks, &plan.name, plan.kind.mode()).await?;
    }
    let began = Instant::now();
    let mut waiting = Waiting::new(locks, &plan.name, talk);
    let answer = tokio::select! {
        biased;
        answer = ask(locks, plan, end) => answer,
        signal = ending(signals) => return Ok(Got::Signal(signal)),
        never = waiting.tell() => match never {},
    };
    drop(waiting);
    match answer {
        Ok(Some(guard)) => {
            talk.acquired(&plan.name, guard.fence(), began.elapsed(), &locks.info().address);
            Ok(Got::Guard(guard))
        }
        Ok(None) => Err(busy(locks, plan).await),
        Err(error) if error.kind() == ErrorKind::Evicted => {
            Err(Failure { code: plan.not_acquired, ..Failure::from(error) })
        }
        Err(error) => Err(error.into()),
    }
}

/// A signal that ends the waiting.
async fn ending(signals: &mut Signals) -> Signal {
    loop {
        match signals.next().await {
            Signal::SIGCONT => {}
            // Nothing runs yet that would have to be stopped with us.
            Signal::SIGTSTP => stop_ourselves(Stopping::Alone),
            signal => return signal,
        }
    }
}

/// Says who holds it. That is looked for once, and for a moment: whoever asked has been refused already.
async fn busy(locks: &Locks, plan: &Plan) -> Failure {
    let name = visible(&plan.name);
    let message = match plan.wait {
        Some(wait) if !wait.is_zero() => {
            format!("{name} was not free within {}", humantime::format_duration(wait))
        }
        _ => format!("{name} is busy"),
    };
    let line = match tokio::time::timeout(LOOKED_FOR, locks.show(&plan.name)).await {
        Ok(Ok(line)) => line,
        Ok(Err(_)) | Err(_) => {
            return Failure::new(plan.not_acquired, message).hint("lockline show NAME tells who holds it");
        }
    };
    let more = line.holders.len().saturating_sub(1);
    let held = match line.holders.first() {
        Some(holder) if more > 0 => format!(": held by {} and {more} more", whom(holder)),
        Some(holder) => format!(": held by {}", whom(holder)),
        None => match line.waiters.len() {
            0 => ", or was a moment ago".to_owned(),
            waiting => format!(": {waiting} wait for it already"),
        },
    };
    let holders = json::holders(&line, locks.guarantees().fencing);
    let hint = match plan.wait {
        Some(wait) if !wait.is_zero() => "a longer -w waits longer; lockline watch shows the line",
        _ => "without -n it waits its turn; lockline watch shows the line",
    };
    let failure = Failure::new(plan.not_acquired, format!("{message}{held}"));
    Failure { busy: Some(Box::new((holders, locks.info().address.to_string()))), ..failure }.hint(hint)
}

/// Asks for the lock; `None` is busy.
async fn ask(locks: &Locks, plan: &Plan, end: Option<Instant>) -> lockline::Result<Option<Guard>> {
    // What connecting took is part of the wait.
    let wait = plan.wait.map(|wait| end.map_or(wait, |end| end.saturating_duration_since(Instant::now())));
    macro_rules! with_options {
        ($lock:expr) => {{
            let lock = $lock;
            if let Some(lease) = plan.lease { lock.lease(lease) } else { lock }
        }};
    }
    match (plan.kind, wait) {
        (Kind::Exclusive, None) => with_options!(locks.mutex(&plan.name)).lock().await.map(Some),
        (Kind::Exclusive, Some(wait)) => with_options!(locks.mutex(&plan.name)).try_lock_for(wait).await,
        (Kind::Shared, None) => with_options!(locks.rwlock(&plan.name)).read().await.map(Some),
        (Kind::Shared, Some(wait)) => with_options!(locks.rwlock(&plan.name)).try_read_for(wait).await,
        (Kind::Permits(Permits { count, limit }), None) => {
            with_options!(locks.semaphore(&plan.name, limit)).acquire_many(count).await.map(Some)
        }
        (Kind::Permits(Permits { count, limit }), Some(wait)) => {
            with_options!(locks.semaphore(&plan.name, limit)).try_acquire_many_for(count, wait).await
        }
    }
}
