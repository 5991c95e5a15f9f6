//! Leases of the server: how long, how they are kept alive, and that one is used again by the next claim.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Status;

use super::proto::{LeaseKeepAliveRequest, LeaseKeepAliveResponse};
use super::wire::{Link, Wire};
use crate::sync::locked;
use crate::time::{BootClock, Time};

const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";

/// How many idle leases are kept for later claims. More than this at once is a crowd that has gone.
const IDLE: usize = 64;

/// A lease of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) id: i64,
    /// What the server granted, which may be more than was asked for.
    pub(super) ttl: Duration,
    /// When the last request was **sent** that is known to have begun it anew.
    pub(super) extended: Time,
}

impl Lease {
    /// It lives at least until then, whatever the server's clock shows.
    pub(super) fn lives_until(&self) -> Time {
        self.extended + self.ttl
    }
}

/// What to ask the server for, in its whole seconds, so that a place lives for `lease`.
///
/// A lease that is used again must still have all of `lease` before it. Where a second more is within the tenth that a
/// killed holder may cost the others, it is asked for: then a lock that is taken often needs a keep-alive once a second, and
/// not each time.
pub(super) fn seconds_for(lease: Duration) -> i64 {
    let whole = i64::try_from(lease.as_secs()).unwrap_or(i64::MAX) + i64::from(lease.subsec_nanos() > 0);
    if lease >= Duration::from_secs(10) { whole + 1 } else { whole.max(1) }
}

/// Leases without a key, by the seconds that were asked for.
#[derive(Debug, Default)]
pub(super) struct Idle(HashMap<i64, Vec<Lease>>);

impl Idle {
    /// One that surely lives still.
    pub(super) fn take(&mut self, seconds: i64, now: Time) -> Option<Lease> {
        let leases = self.0.get_mut(&seconds)?;
        let lease = leases.pop()?;
        // It must not run out while the request is under way. The others are older: they are gone, too.
        if lease.lives_until() > now + lease.ttl / 4 {
            return Some(lease);
        }
        leases.clear();
        None
    }

    /// Keeps one for later; `false` if there are enough.
    pub(super) fn keep(&mut self, seconds: i64, lease: Lease) -> bool {
        let leases = self.0.entry(seconds).or_default();
        if leases.len() >= IDLE {
            return false;
        }
        let at = leases.partition_point(|known| known.extended <= lease.extended);
        leases.insert(at, lease);
        true
    }
}

/// The stream on which all leases are kept alive.
#[derive(Debug)]
pub(super) struct KeepAlives {
    wire: Arc<Wire>,
    stream: Arc<Mutex<Option<Stream>>>,
}

#[derive(Debug)]
struct Stream {
    link: Arc<Link>,
    requests: mpsc::UnboundedSender<LeaseKeepAliveRequest>,
    /// Who waits for the answer about a lease. Answers come in the order of the requests.
    waiting: HashMap<i64, VecDeque<oneshot::Sender<i64>>>,
}

/// A keep-alive that has been sent.
pub(super) struct Asked {
    pub(super) sent: Time,
    link: Arc<Link>,
    answer: oneshot::Receiver<i64>,
}

impl KeepAlives {
    pub(super) fn new(wire: Arc<Wire>) -> KeepAlives {
        KeepAlives { wire, stream: Arc::default() }
    }

    /// Sends a keep-alive. Streams never heal by themselves: if the last one has ended, or belongs to a connection that was
    /// given up, this opens another.
    pub(super) fn send(&self, lease: i64) -> Asked {
        let (sender, answer) = oneshot::channel();
        let current = self.wire.link();
        let sent = BootClock.now();
        let mut stream = locked(&self.stream);
        let open = stream
            .as_ref()
            .is_some_and(|open| Arc::ptr_eq(&open.link, &current) && !open.requests.is_closed());
        if !open {
            *stream = Some(self.open(current.clone()));
        }
        if let Some(open) = stream.as_mut() {
            open.waiting.entry(lease).or_default().push_back(sender);
            // If it fails the stream has just ended, and drops who waits.
            let _ = open.requests.send(LeaseKeepAliveRequest { id: lease });
        }
        Asked { sent, link: current, answer }
    }

    /// The seconds that a lease has from the sending on; 0 if it is gone.
    pub(super) async fn answer(&self, asked: Asked) -> Result<i64, Status> {
        let answer = async {
            asked.answer.await.map_err(|_| Status::unavailable("the stream of keep-alives has ended"))
        };
        self.wire.watched(&asked.link, answer).await
    }

    fn open(&self, link: Arc<Link>) -> Stream {
        let (requests, receiver) = mpsc::unbounded_channel();
        let (wire, stream) = (self.wire.clone(), Arc::downgrade(&self.stream));
        let (link_of_task, ours) = (link.clone(), requests.clone());
        tokio::spawn(async move {
            let link = link_of_task;
            let opened = wire.stream(&link, KEEP_ALIVE, UnboundedReceiverStream::new(receiver));
            let ended = tokio::select! {
                opened = opened => match opened {
                    Ok(mut answers) => loop {
                        let message = tokio::select! {
                            message = answers.message() => message,
                            () = link.is_given_up() => break Status::unavailable("given up"),
                        };
                        match message {
                            Ok(Some(LeaseKeepAliveResponse { id, ttl })) => {
                                link.heard_from();
                                let Some(stream) = stream.upgrade() else { return };
                                let mut stream = locked(&stream);
                                let waiting = stream.as_mut().and_then(|open| open.waiting.get_mut(&id));
                                if let Some(sender) = waiting.and_then(VecDeque::pop_front) {
                                    // Whoever asked may have gone.
                                    let _ = sender.send(ttl);
                                }
                                if let Some(open) = stream.as_mut() {
                                    open.waiting.retain(|_, waiting| !waiting.is_empty());
                                }
                            }
                            Ok(None) => break Status::unavailable("the server ended it"),
                            Err(status) => break status,
                        }
                    },
                    Err(status) => status,
                },
                () = link.is_given_up() => Status::unavailable("given up"),
            };
            tracing::debug!(status = ended.message(), "the stream of keep-alives has ended");
            wire.after_stream(&link, &ended).await;
            if let Some(stream) = stream.upgrade() {
                let mut stream = locked(&stream);
                if stream.as_ref().is_some_and(|open| open.requests.same_channel(&ours)) {
                    *stream = None;
                }
            }
        });
        Stream { link, requests, waiting: HashMap::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_rounded_up() {
        let seconds = |ms| seconds_for(Duration::from_millis(ms));
        assert_eq!([seconds(100), seconds(1000), seconds(1001), seconds(9500)], [1, 1, 2, 10]);
        assert_eq!([seconds(10_000), seconds(59_001), seconds(86_400_000)], [11, 61, 86_401]);
    }

    #[test]
    fn an_idle_lease_is_used_again_while_it_lives() {
        let lease = |id, at: u64| Lease {
            id,
            ttl: Duration::from_secs(8),
            extended: Time::from_micros(at * 1_000_000),
        };
        let mut idle = Idle::default();
        assert!(idle.keep(8, lease(2, 102)) && idle.keep(8, lease(1, 101)));
        assert_eq!(idle.take(9, Time::from_micros(102_000_000)), None);
        assert_eq!(
            idle.take(8, Time::from_micros(102_500_000)).map(|lease| lease.id),
            Some(2),
            "the freshest"
        );
        assert_eq!(idle.take(8, Time::from_micros(108_000_000)), None, "too old to be relied on");
        for _ in 0..IDLE {
            assert!(idle.keep(8, lease(3, 103)));
        }
        assert!(!idle.keep(8, lease(3, 103)));
    }
}
