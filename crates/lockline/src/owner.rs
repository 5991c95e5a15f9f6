//! Owners: who may enter a lock again that is already theirs.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};

use tokio::sync::Notify;

use crate::error::{Error, ErrorKind, Result};
use crate::hold::acquire::{Patience, Request, acquire};
use crate::hold::client::Client;
use crate::hold::grip::Grip;
use crate::line::{Mode, Who};
use crate::name::Name;
use crate::sync::locked;

/// Somebody who holds locks: a worker, a request, a job. An owner is a value: not a thread, not a task.
///
/// Locks taken through one owner are *reentrant*: asking again for a lock that this owner holds gives another guard on
/// the same hold, in the same process and without a word to the engine. The lock is let go with the last guard.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockline::Result<()> {
/// let locks = lockline::Locks::memory();
/// let worker = locks.owner("worker-7");
/// let outer = worker.mutex("jobs/7").lock().await?;
/// let inner = worker.mutex("jobs/7").lock().await?;      // no round trip
/// assert_eq!(outer.fence(), inner.fence());
/// inner.release().await?;                                 // still held by `outer`
/// assert!(locks.mutex("jobs/7").try_lock().await?.is_none());
/// # Ok(()) }
/// ```
///
/// # When not to use one
/// If no code path of yours takes the same lock twice, plain [`Locks`](crate::Locks) is enough and checks more: there, a
/// second `lock` of the same name waits for the first.
#[derive(Clone)]
pub struct Owner {
    inner: Arc<Inner>,
}

struct Inner {
    client: Arc<Client>,
    who: Arc<Who>,
    identity: Option<Arc<str>>,
    /// Never let a grip go while this is locked: the last reference to one locks it itself, to forget the name. While
    /// somebody looks, a guard may be dropped elsewhere, and then the one in the looker's hand is the last.
    held: Mutex<HashMap<Name, Slot>>,
}

enum Slot {
    /// Another task of this owner is getting it.
    Acquiring(Arc<Notify>),
    Held(Weak<Grip>),
}

/// What the table says about a name.
enum Found {
    Held(Arc<Grip>),
    /// Somebody else is on it: wait for this.
    Busy(Arc<Notify>),
    /// It is ours to get.
    Free(Turn),
}

/// The right to fill a slot. Dropped unfilled, it frees the slot and wakes whoever waits for it.
struct Turn {
    owner: Arc<Inner>,
    name: Name,
    done: Arc<Notify>,
}

impl Owner {
    pub(crate) fn new(client: Arc<Client>, label: &str, identity: Option<&str>) -> Owner {
        let who = labelled(&client.settings.who, label);
        Owner {
            inner: Arc::new(Inner { client, who, identity: identity.map(Arc::from), held: Mutex::default() }),
        }
    }

    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.inner.client
    }

    pub(crate) fn who(&self) -> &Arc<Who> {
        &self.inner.who
    }

    pub(crate) fn identity(&self) -> Option<&Arc<str>> {
        self.inner.identity.as_ref()
    }

    /// This owner's label, as operators see it.
    pub fn label(&self) -> &str {
        &self.inner.who.owner
    }

    /// The hold this owner has on a lock, if it is still valid.
    pub(crate) fn holds(&self, name: &Name) -> Option<Arc<Grip>> {
        let grip = match locked(&self.inner.held).get(name)? {
            Slot::Held(grip) => grip.upgrade(),
            Slot::Acquiring(_) => None,
        };
        grip.filter(|grip| grip.loss().is_none())
    }

    /// Whether this owner holds any lock that sorts after `name`.
    pub(crate) fn holds_after(&self, name: &Name) -> Option<Name> {
        let later: Vec<(Name, Option<Arc<Grip>>)> = locked(&self.inner.held)
            .iter()
            .filter(|(other, _)| *other > name)
            .filter_map(|(other, slot)| match slot {
                Slot::Acquiring(_) => Some((other.clone(), None)),
                Slot::Held(grip) => Some((other.clone(), Some(grip.upgrade()?))),
            })
            .collect();
        let mut live =
            later.iter().filter(|(_, grip)| grip.as_ref().is_none_or(|grip| grip.loss().is_none()));
        live.next().map(|(other, _)| other.clone())
    }

    /// Enters again, or gets the lock.
    pub(crate) async fn acquire(&self, request: &Request, patience: Patience) -> Result<Option<Arc<Grip>>> {
        loop {
            match self.find(&request.name) {
                Found::Held(grip) if grip.mode().covers(request.mode) => return Ok(Some(grip)),
                Found::Held(grip) => return Err(would_deadlock(request, grip.mode())),
                Found::Free(turn) => {
                    let Some(grip) = acquire(&self.inner.client, request, patience).await? else {
                        return Ok(None);
                    };
                    return Ok(Some(turn.fill(grip)));
                }
                Found::Busy(done) => {
                    let mut freed = Box::pin(done.notified());
                    freed.as_mut().enable();
                    // Between finding it busy and listening it may have become free.
                    if matches!(locked(&self.inner.held).get(&request.name), Some(Slot::Acquiring(other)) if Arc::ptr_eq(other, &done))
                        && !wait_for(freed, patience, &self.inner.client).await
                    {
                        return Ok(None);
                    }
                }
            }
        }
    }

    fn find(&self, name: &Name) -> Found {
        let _gone;
        let mut held = locked(&self.inner.held);
        let mut entry = match held.entry(name.clone()) {
            Entry::Occupied(entry) => entry,
            Entry::Vacant(entry) => {
                let turn = self.turn(name);
                entry.insert(Slot::Acquiring(turn.done.clone()));
                return Found::Free(turn);
            }
        };
        match entry.get() {
            Slot::Acquiring(done) => Found::Busy(done.clone()),
            // A hold that was lost is not entered again: the owner stands in line anew, with a new id.
            Slot::Held(grip) => match grip.upgrade() {
                Some(grip) if grip.loss().is_none() || mutant!(OwnerEntersLost) => Found::Held(grip),
                gone => {
                    _gone = gone;
                    let turn = self.turn(name);
                    entry.insert(Slot::Acquiring(turn.done.clone()));
                    Found::Free(turn)
                }
            },
        }
    }

    fn turn(&self, name: &Name) -> Turn {
        Turn { owner: self.inner.clone(), name: name.clone(), done: Arc::new(Notify::new()) }
    }
}

/// Waits for a turn to end; `false` if patience ended first.
async fn wait_for(freed: impl Future<Output = ()>, patience: Patience, client: &Client) -> bool {
    match patience {
        Patience::Try => false,
        Patience::Forever => {
            freed.await;
            true
        }
        Patience::Until(end) => tokio::select! {
            biased;
            () = freed => true,
            () = client.clock.sleep_until(end) => false,
        },
    }
}

fn would_deadlock(request: &Request, held: Mode) -> Error {
    let message = format!(
        "this owner holds it as {} and asks for {}: it would wait for itself",
        held.word(),
        request.mode.word()
    );
    Error::new(ErrorKind::Deadlock, "lock", message)
        .about(&request.name)
        .hint("release the first hold, or take the stronger one from the start")
}

impl Turn {
    fn fill(self, mut grip: Grip) -> Arc<Grip> {
        let owner = Arc::downgrade(&self.owner);
        let name = self.name.clone();
        grip.when_let_go(Box::new(move || {
            if let Some(owner) = owner.upgrade() {
                forget_if_gone(&owner, &name);
            }
        }));
        let grip = Arc::new(grip);
        locked(&self.owner.held).insert(self.name.clone(), Slot::Held(Arc::downgrade(&grip)));
        grip
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut held = locked(&self.owner.held);
        if matches!(held.get(&self.name), Some(Slot::Acquiring(done)) if Arc::ptr_eq(done, &self.done))
            && !mutant!(TurnKept)
        {
            held.remove(&self.name);
        }
        drop(held);
        if !mutant!(TurnDoesNotWake) {
            self.done.notify_waiters();
        }
    }
}

/// Without this an owner that takes many locks in turn would remember every name it ever held.
fn forget_if_gone(owner: &Inner, name: &Name) {
    let mut held = locked(&owner.held);
    if matches!(held.get(name), Some(Slot::Held(grip)) if grip.strong_count() == 0) {
        held.remove(name);
    }
}

/// The most bytes of an owner's label.
const LABEL_BYTES: usize = 256;

/// The same process under another label.
pub(crate) fn labelled(who: &Who, label: &str) -> Arc<Who> {
    Arc::new(Who { owner: label.to_owned(), host: who.host.clone(), pid: who.pid })
}

pub(crate) fn check_label(what: &'static str, label: &str) -> Result<()> {
    let problem = if label.is_empty() {
        "it is empty".to_owned()
    } else if label.len() > LABEL_BYTES {
        format!("it is {} bytes long; the most is {LABEL_BYTES}", label.len())
    } else if label.contains('\0') {
        "it contains a NUL character".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::Invalid, what, format!("bad label: {problem}")))
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner").field("label", &self.label()).finish_non_exhaustive()
    }
}
