//! Where requests are handed in, and who serves them: a thread of its own, or, for the first moments of a short-lived
//! program, whoever asks.

use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;

use super::request::{Queue, Request};
use super::worker::Worker;
use crate::sync::locked;

/// A program that lives for longer than this gets its thread.
const SHORT_LIFE: Duration = Duration::from_millis(50);
/// How long whoever asks is held up by others on the file, until there is a thread that can wait for longer.
pub(super) const AT_HAND_TIMEOUT: Duration = Duration::from_millis(100);

/// The queue to the worker. The worker ends when this is gone.
pub(super) struct Desk {
    queue: Arc<Queue>,
    /// The worker, while it has no thread.
    at_hand: Mutex<Option<Station>>,
}

/// A worker and what it is asked for.
pub(super) struct Station {
    pub(super) worker: Worker,
    pub(super) requests: Receiver<Request>,
    /// How long it may wait for others on the file once it has a thread.
    pub(super) busy_timeout: Duration,
}

impl Desk {
    /// A desk whose worker has its thread.
    pub(super) fn staffed(queue: Arc<Queue>) -> Arc<Desk> {
        Arc::new(Desk { queue, at_hand: Mutex::new(None) })
    }

    /// A desk whose worker gets its thread when somebody waits, or when the program turns out to live for longer.
    pub(super) fn at_hand(queue: Arc<Queue>, station: Station, runtime: &Handle) -> Arc<Desk> {
        let desk = Arc::new(Desk { queue, at_hand: Mutex::new(Some(station)) });
        let late = Arc::downgrade(&desk);
        runtime.spawn(async move {
            tokio::time::sleep(SHORT_LIFE).await;
            if let Some(desk) = late.upgrade() {
                move_to_thread(&mut locked(&desk.at_hand));
            }
        });
        desk
    }

    /// Hands a request in, in order. `false`: nobody serves any more.
    pub(super) fn send(&self, request: Request) -> bool {
        let sent = self.queue.send(request).is_ok();
        let mut at_hand = locked(&self.at_hand);
        if let Some(station) = at_hand.as_mut() {
            station.worker.serve_all(&station.requests);
            // Somebody waits: bells must be heard and processes watched while nobody asks.
            if station.worker.is_awaited() {
                move_to_thread(&mut at_hand);
            }
        }
        sent
    }
}

/// If no thread can be had the worker stays where it is: it serves, only less promptly.
fn move_to_thread(at_hand: &mut Option<Station>) {
    let Some(mut station) = at_hand.take() else { return };
    station.worker.settle_down(station.busy_timeout);
    let slot = Arc::new(Mutex::new(Some(station)));
    let inside = slot.clone();
    let run = move || {
        let station = locked(&inside).take();
        if let Some(Station { worker, requests, .. }) = station {
            worker.run(&requests);
        }
    };
    if let Err(e) = thread(run) {
        tracing::warn!(error = %e, "no thread for the lock file: bells are heard late");
        *at_hand = locked(&slot).take();
        if let Some(station) = at_hand {
            station.worker.stay_here();
        }
    }
}

/// Starts the worker's thread.
pub(super) fn thread(run: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new().name("lockline-sqlite".to_owned()).spawn(run).map(drop)
}
