//! Leases of the server: how long, how they are kept alive, and that one is used again by the next claim.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Status;

use super::proto::{LeaseKeepAliveRequest, LeaseKeepAliveResponse};
use super::wire::{Heard, Link, Wire};
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
    heard: Arc<Heard>,
    requests: mpsc::UnboundedSender<LeaseKeepAliveRequest>,
    /// Who waits for the answer about a lease. Answers come in the order of the requests.
    waiting: HashMap<i64, VecDeque<oneshot::Sender<i64>>>,
    /// When it is dropped, nobody listens to it any more.
    _open: oneshot::Sender<Infallible>,
}

/// A keep-alive that has been sent.
pub(super) struct Asked {
    pub(super) sent: Time,
    link: Arc<Link>,
    stream: Arc<Heard>,
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
            *stream = None;
        }
        let open = stream.get_or_insert_with(|| self.open(current.clone()));
        open.waiting.entry(lease).or_default().push_back(sender);
        // If it fails the stream has just ended, and drops who waits.
        let _ = open.requests.send(LeaseKeepAliveRequest { id: lease });
        Asked { sent, link: current, stream: open.heard.clone(), answer }
    }

    /// The seconds that a lease has from the sending on; 0 if it is gone.
    ///
    /// A member hands keep-alives to the leader, one after the other, and waits for each: if that leader stopped, the
    /// stream is stuck behind it for seconds, although the member has found another one and answers everything else. So
    /// silence is counted for the stream itself, and whoever asks again gets a new one.
    pub(super) async fn answer(&self, asked: Asked) -> Result<i64, Status> {
        let Asked { link, stream, answer, .. } = asked;
        let since = BootClock.now();
        let answer = async {
            tokio::select! {
                biased;
                answer = answer => {
                    answer.map_err(|_| Status::unavailable("the stream of keep-alives has ended"))
                }
                () = self.wire.silence(&stream, since) => {
                    close(&self.stream, &stream);
                    Err(Status::unavailable("the stream of keep-alives does not answer"))
                }
            }
        };
        self.wire.watched(&link, answer).await
    }

    fn open(&self, link: Arc<Link>) -> Stream {
        let (requests, receiver) = mpsc::unbounded_channel();
        let (open, closed) = oneshot::channel::<Infallible>();
        let heard = Arc::new(Heard::default());
        let listener = Listener {
            wire: self.wire.clone(),
            link: link.clone(),
            heard: heard.clone(),
            stream: Arc::downgrade(&self.stream),
        };
        tokio::spawn(async move {
            tokio::select! {
                () = listener.listen(UnboundedReceiverStream::new(receiver)) => {}
                // What it would still hear is about requests that were sent before those of its successor.
                _ = closed => {}
            }
        });
        Stream { link, heard, requests, waiting: HashMap::new(), _open: open }
    }
}

/// The side of a stream that hears the answers.
struct Listener {
    wire: Arc<Wire>,
    link: Arc<Link>,
    heard: Arc<Heard>,
    stream: Weak<Mutex<Option<Stream>>>,
}

impl Listener {
    async fn listen(&self, requests: UnboundedReceiverStream<LeaseKeepAliveRequest>) {
        let answers = async {
            let mut answers = self.wire.stream(&self.link, KEEP_ALIVE, requests).await?;
            while let Some(answer) = answers.message().await? {
                self.link.heard_from();
                self.heard.now();
                self.hear(&answer);
            }
            Err(Status::unavailable("the server ended it"))
        };
        let ended: Result<Infallible, Status> = tokio::select! {
            ended = answers => ended,
            () = self.link.is_given_up() => Err(Status::unavailable("given up")),
        };
        let Err(status) = ended;
        tracing::debug!(status = status.message(), "the stream of keep-alives has ended");
        self.wire.after_stream(&self.link, &status).await;
        if let Some(stream) = self.stream.upgrade() {
            close(&stream, &self.heard);
        }
    }

    fn hear(&self, answer: &LeaseKeepAliveResponse) {
        let Some(stream) = self.stream.upgrade() else { return };
        let mut stream = locked(&stream);
        // Not with those who wait on a later stream: their leases count from a later sending.
        let Some(open) = stream.as_mut().filter(|open| Arc::ptr_eq(&open.heard, &self.heard)) else { return };
        if let Some(waiting) = open.waiting.get_mut(&answer.id) {
            if let Some(sender) = waiting.pop_front() {
                // Whoever asked may have gone.
                let _ = sender.send(answer.ttl);
            }
            if waiting.is_empty() {
                open.waiting.remove(&answer.id);
            }
        }
    }
}

/// Ends a stream, unless another one has taken its place.
fn close(stream: &Mutex<Option<Stream>>, heard: &Arc<Heard>) {
    let mut stream = locked(stream);
    if stream.as_ref().is_some_and(|open| Arc::ptr_eq(&open.heard, heard)) {
        *stream = None;
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
