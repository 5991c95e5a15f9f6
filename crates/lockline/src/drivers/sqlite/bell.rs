//! The bell: one datagram socket per process, found by a name that is made of the file and the process.
//!
//! Anyone on the host may send to it; but a bell must name a claim by its 128-bit id, which only readers of the file know.
//! On systems without such names ([`platform`]) there is no bell, and who waits looks by itself.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::platform;
use super::process::Process;
use super::verbs::Ring;
use crate::driver::Bells;
use crate::line::{Bell, ClaimId, News, Ticket};
use crate::name::Name;

const MAGIC: &[u8; 4] = b"LLb1";
/// Below every system's limit for a datagram; a message with more bells is split.
const MOST_BYTES: usize = 32 * 1024;
/// A listener whose queue stays full for longer is busy or stopped; its claims look again by themselves.
const RETRY_FOR: Duration = Duration::from_secs(1);
/// How many datagrams are kept for listeners whose queue is full.
const MOST_PENDING: usize = 1024;

/// This process's bell, and its way to ring others'.
#[derive(Debug)]
pub(super) struct Belfry {
    /// Device and inode of the file: bells of different files never meet.
    file: (u64, u64),
    me: Process,
    board: Bells,
    runtime: Handle,
    /// Made on first use: a process that never rings has no socket for it.
    out: Option<UnixDatagram>,
    listener: Option<AbortHandle>,
    /// It could not be hung up before: claims wait that nobody can ring for.
    has_failed: bool,
    pending: Vec<Pending>,
}

#[derive(Debug)]
struct Pending {
    to: Process,
    message: Vec<u8>,
    until: Instant,
}

impl Belfry {
    pub(super) fn new(file: (u64, u64), me: Process, board: Bells, runtime: Handle) -> Belfry {
        Belfry { file, me, board, runtime, out: None, listener: None, has_failed: false, pending: Vec::new() }
    }

    pub(super) fn is_listening(&self) -> bool {
        self.listener.is_some()
    }

    /// Hangs up this process's bell. To be done before the first join: a bell that is rung earlier finds nobody.
    pub(super) fn listen(&mut self) -> io::Result<()> {
        self.hang_up().inspect_err(|_| self.has_failed = true)?;
        if std::mem::take(&mut self.has_failed) {
            self.board.look_at_all();
        }
        Ok(())
    }

    fn hang_up(&mut self) -> io::Result<()> {
        let socket = UnixDatagram::bind_addr(&self.address(self.me.nonce)?)?;
        socket.set_nonblocking(true)?;
        let board = self.board.clone();
        let task = self.runtime.spawn(async move {
            match tokio::net::UnixDatagram::from_std(socket) {
                Ok(socket) => listen(socket, board).await,
                Err(e) => tracing::warn!(error = %e, "no bell: waiting claims look again by themselves"),
            }
        });
        self.listener = Some(task.abort_handle());
        Ok(())
    }

    /// Rings, after the commit. Answers the processes that did not listen: dead, or not listening yet.
    pub(super) fn ring(&mut self, rings: Vec<Ring>) -> Vec<Process> {
        let mut letters: HashMap<Process, Vec<Ring>> = HashMap::new();
        for ring in rings {
            if ring.to.nonce == self.me.nonce {
                self.board.ring(&ring.name, &ring.bell);
            } else {
                letters.entry(ring.to).or_default().push(ring);
            }
        }
        let mut silent = Vec::new();
        for (to, rings) in letters {
            for message in encode(&rings) {
                let until = Instant::now() + RETRY_FOR;
                self.deliver(Pending { to, message, until }, &mut silent);
            }
        }
        silent
    }

    /// When to call [`retry`](Belfry::retry).
    pub(super) fn retry_in(&self) -> Option<Duration> {
        (!self.pending.is_empty()).then_some(Duration::from_millis(1))
    }

    /// Tries again what a full queue refused.
    pub(super) fn retry(&mut self) -> Vec<Process> {
        let mut silent = Vec::new();
        for letter in std::mem::take(&mut self.pending) {
            if letter.until > Instant::now() {
                self.deliver(letter, &mut silent);
            }
        }
        silent
    }

    fn deliver(&mut self, letter: Pending, silent: &mut Vec<Process>) {
        match self.send(&letter) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                if self.pending.len() < MOST_PENDING {
                    self.pending.push(letter);
                }
            }
            // Nobody has this address. That alone is no proof of death: the process may be about to listen, or live
            // in another network namespace, where abstract names are others.
            Err(e) if e.kind() == ErrorKind::ConnectionRefused => silent.push(letter.to),
            // No bells here: who waits looks by itself.
            Err(e) if e.kind() == ErrorKind::Unsupported => {}
            Err(e) => tracing::debug!(error = %e, pid = letter.to.pid, "a bell could not be rung"),
        }
    }

    fn send(&mut self, letter: &Pending) -> io::Result<()> {
        let address = self.address(letter.to.nonce)?;
        if self.out.is_none() {
            let socket = UnixDatagram::unbound()?;
            socket.set_nonblocking(true)?;
            self.out = Some(socket);
        }
        let Some(out) = &self.out else { return Ok(()) };
        out.send_to_addr(&letter.message, &address).map(drop)
    }

    fn address(&self, nonce: u128) -> io::Result<SocketAddr> {
        platform::bell_address(self.file, nonce)
    }
}

impl Drop for Belfry {
    fn drop(&mut self) {
        if let Some(task) = &self.listener {
            task.abort();
        }
    }
}

async fn listen(socket: tokio::net::UnixDatagram, board: Bells) {
    let mut buffer = vec![0; 2 * MOST_BYTES];
    loop {
        match socket.recv(&mut buffer).await {
            Ok(length) => {
                for (name, bell) in decode(&buffer[..length]) {
                    board.ring(&name, &bell);
                }
            }
            Err(e) => {
                tracing::warn!(error = %e, "the bell failed: waiting claims look again by themselves");
                board.look_at_all();
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

fn encode(rings: &[Ring]) -> Vec<Vec<u8>> {
    let mut messages: Vec<Vec<u8>> = Vec::new();
    for Ring { name, bell, .. } in rings {
        let name = name.as_str().as_bytes();
        let size = 2 + name.len() + 16 + 8 + 1;
        if messages.last().is_none_or(|message| message.len() + size > MOST_BYTES) {
            messages.push(MAGIC.to_vec());
        }
        let Some(message) = messages.last_mut() else { continue };
        // A name has at most 512 bytes.
        message.extend(u16::try_from(name.len()).unwrap_or(u16::MAX).to_be_bytes());
        message.extend(name);
        message.extend(bell.id.as_u128().to_be_bytes());
        message.extend(bell.ticket.get().to_be_bytes());
        message.push(match bell.news {
            News::In => 1,
            News::Out => 2,
        });
    }
    messages
}

/// The bells in a message, up to the first thing that makes no sense: anyone on the host may send anything.
fn decode(message: &[u8]) -> Vec<(Name, Bell)> {
    let mut bells = Vec::new();
    let Some(mut rest) = message.strip_prefix(MAGIC) else { return bells };
    while let Some((bell, behind)) = decode_one(rest) {
        bells.push(bell);
        rest = behind;
    }
    bells
}

fn decode_one(bytes: &[u8]) -> Option<((Name, Bell), &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    let (name, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    let (id, rest) = rest.split_first_chunk::<16>()?;
    let (ticket, rest) = rest.split_first_chunk::<8>()?;
    let (news, rest) = rest.split_first()?;
    let name = Name::new(std::str::from_utf8(name).ok()?).ok()?;
    let news = match news {
        1 => News::In,
        2 => News::Out,
        _ => return None,
    };
    let id = ClaimId::from_u128(u128::from_be_bytes(*id));
    Some(((name, Bell { id, ticket: Ticket::new(u64::from_be_bytes(*ticket)), news }), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn process() -> Process {
        Process { nonce: 1, pid: 1, start: 1, pid_ns: 1 }
    }

    proptest! {
        #[test]
        fn a_message_says_what_was_put_in(names in prop::collection::vec("[a-z/ä]{1,200}", 0..300), out: bool) {
            let rings: Vec<Ring> = names.iter().enumerate().map(|(n, name)| Ring {
                name: Name::new(name).unwrap(),
                bell: Bell {
                    id: ClaimId::from_u128(n as u128),
                    ticket: Ticket::new(n as u64 * 7),
                    news: if out { News::Out } else { News::In },
                },
                to: process(),
            }).collect();
            let heard: Vec<_> = encode(&rings).iter().flat_map(|message| decode(message)).collect();
            prop_assert!(encode(&rings).iter().all(|message| message.len() <= MOST_BYTES));
            let said: Vec<_> = rings.into_iter().map(|ring| (ring.name, ring.bell)).collect();
            prop_assert_eq!(heard, said);
        }

        #[test]
        fn garbage_is_ignored(mut bytes in prop::collection::vec(any::<u8>(), 0..200), ours: bool) {
            if ours {
                bytes.splice(0..0, *MAGIC);
            }
            decode(&bytes);
        }
    }

    #[test]
    fn broken_messages_ring_only_what_they_say() {
        let ring = |name: &str, news| Ring {
            name: Name::new(name).unwrap(),
            bell: Bell { id: ClaimId::from_u128(7), ticket: Ticket::new(9), news },
            to: process(),
        };
        let whole = encode(&[ring("a", News::In), ring("ü/b", News::Out), ring("c", News::In)]);
        crate::hostile::bytes(&[&whole[0], MAGIC], |message| {
            let heard = decode(message);
            let rings: Vec<Ring> = heard
                .iter()
                .map(|(name, bell)| Ring { name: name.clone(), bell: bell.clone(), to: process() })
                .collect();
            let again: Vec<_> = encode(&rings).iter().flat_map(|message| decode(message)).collect();
            assert_eq!(again, heard);
        });
    }
}
