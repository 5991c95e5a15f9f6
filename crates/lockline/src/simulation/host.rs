//! A process of the simulated world: its clock runs a little faster or slower than others', and it can be stopped.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tokio::time::Instant;

use super::chance::below;
use crate::time::Time;

thread_local!(static HOSTS: RefCell<Vec<State>> = const { RefCell::new(Vec::new()) });

#[derive(Default)]
struct State {
    stopped: bool,
    /// Since when it runs again, in true time.
    awake_since: Time,
    waiting: Vec<Waker>,
}

/// Clocks differ from true time by at most so much, so from each other by 0.8 %: less than the margin of a hundredth.
const MOST_DRIFT_PPM: u64 = 4_000;

/// One process. It is known by its number on the thread that simulates it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Host {
    origin: Instant,
    number: usize,
    drift_ppm: i64,
}

/// A new world has no hosts.
pub(super) fn forget_all() {
    HOSTS.take();
}

impl Host {
    /// A new process in the world that began at `origin`.
    pub(super) fn new(origin: Instant) -> Host {
        let number = HOSTS.with_borrow_mut(|hosts| {
            hosts.push(State::default());
            hosts.len() - 1
        });
        let drift_ppm = below(2 * MOST_DRIFT_PPM + 1) as i64 - MOST_DRIFT_PPM as i64;
        Host { origin, number, drift_ppm }
    }

    pub(super) fn number(self) -> usize {
        self.number
    }

    fn state<T>(self, look: impl FnOnce(&mut State) -> T) -> T {
        HOSTS.with_borrow_mut(|hosts| look(&mut hosts[self.number]))
    }

    /// True time: what somebody sees who has a perfect clock and is never stopped.
    pub(super) fn true_time(self) -> Time {
        Time::from_micros(1_000_000) + self.origin.elapsed()
    }

    /// What its own clock shows.
    pub(crate) fn now(self) -> Time {
        let since = self.true_time().as_micros() as i64;
        Time::from_micros((since + since * self.drift_ppm / 1_000_000) as u64)
    }

    /// Nothing of it runs until it is let go on.
    pub(super) fn stop(self) {
        self.state(|state| state.stopped = true);
    }

    pub(super) fn go_on(self) {
        let now = self.true_time();
        let waiting = self.state(|state| {
            if std::mem::take(&mut state.stopped) {
                state.awake_since = now;
            }
            std::mem::take(&mut state.waiting)
        });
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Since when nothing has stopped it, in true time.
    pub(super) fn awake_since(self) -> Time {
        self.state(|state| state.awake_since)
    }

    fn is_stopped(self, context: &Context<'_>) -> bool {
        self.state(|state| {
            if state.stopped {
                state.waiting.push(context.waker().clone());
            }
            state.stopped
        })
    }

    /// Work of this process: it stands still while the process does.
    pub(crate) async fn runs<F: Future>(self, work: F) -> F::Output {
        let mut work = pin!(work);
        poll_fn(|context| if self.is_stopped(context) { Poll::Pending } else { work.as_mut().poll(context) })
            .await
    }
}
