//! The signals a wrapper hears, to pass them on.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, kill, killpg, sigaction};
use nix::unistd::{getpgrp, getpid};
use tokio::signal::unix::{self, SignalKind, signal};

use crate::platform::ignored;

/// What is passed on to the command. SIGTSTP stops both: see [`Child`](crate::child::Child).
const PASSED_ON: [Signal; 9] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGCONT,
    Signal::SIGTSTP,
];

/// Who is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopping {
    /// The whole job, as the keyboard has it: the shell must get its prompt.
    OurGroup,
    /// This process, as it was told.
    Alone,
}

/// Stops as if SIGTSTP had no handler, and returns when continued. Whoever waits for us sees the signal it expects.
#[allow(unsafe_code)]
pub(crate) fn stop_ourselves(whom: Stopping) {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: the default action runs no code of ours, and what is restored is the handler that was there before.
    let before = unsafe { sigaction(Signal::SIGTSTP, &default) };
    // Neither can fail for ourselves; others of our group may be another user's, and that user stops them.
    let _ = match whom {
        Stopping::OurGroup => killpg(getpgrp(), Signal::SIGTSTP),
        Stopping::Alone => kill(getpid(), Signal::SIGTSTP),
    };
    if let Ok(before) = before {
        // SAFETY: as above.
        let _ = unsafe { sigaction(Signal::SIGTSTP, &before) };
    }
}

/// All signals of interest, from the moment it is made.
#[derive(Debug)]
pub(crate) struct Signals {
    heard: Vec<(Signal, unix::Signal)>,
    children: unix::Signal,
}

impl Signals {
    /// Begins to listen. A signal that was ignored when the process started, as `nohup` and background jobs have it,
    /// stays ignored, for the command too.
    pub(crate) fn listen() -> io::Result<Signals> {
        // Whoever started us may have left signals blocked: then no end of a child would ever be heard of.
        SigSet::empty().thread_set_mask()?;
        let ignored = ignored();
        let heard = PASSED_ON
            .iter()
            .filter(|passed| ignored & (1 << (**passed as u32 - 1)) == 0)
            .map(|passed| Ok((*passed, signal(SignalKind::from_raw(*passed as i32))?)))
            .collect::<io::Result<_>>()?;
        Ok(Signals { heard, children: signal(SignalKind::child())? })
    }

    /// The next signal to pass on. Dropping the future loses none.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (number, stream) in &mut self.heard {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(*number);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The next signal, or word that something happened to a child: `None`.
    pub(crate) async fn next_or_child(&mut self) -> Option<Signal> {
        poll_fn(|context| {
            if self.children.poll_recv(context).is_ready() {
                return Poll::Ready(None);
            }
            for (number, stream) in &mut self.heard {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(Some(*number));
                }
            }
            Poll::Pending
        })
        .await
    }
}
