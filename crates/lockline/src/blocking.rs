//! The same locks for programs without an async runtime.
//!
//! Each [`Locks`] has a thread of its own that renews and listens; calls block the calling thread and nothing else.
//!
//! ```
//! use lockline::blocking::Locks;
//! # fn main() -> lockline::Result<()> {
//! let locks = Locks::connect("memory:")?;
//! let guard = locks.mutex("nightly").lock()?;
//! println!("token {}", guard.fence());
//! guard.release()?;
//! # Ok(()) }
//! ```
//!
//! # When not to use it
//! Inside an async runtime: it would block the runtime's thread, so every call there is refused with
//! [`ErrorKind::Invalid`]. Use the async API.

use std::future::Future;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::error::{Error, ErrorKind, Lost, Result};
use crate::hold::client::Departures;
use crate::line::{ClaimView, LineView, Shut, Ticket};

/// The thread on which a client's background work runs, and which ends with its last user.
#[derive(Debug)]
struct Engine {
    handle: Handle,
    /// What leaves in the background, once there is a client.
    departures: Arc<OnceLock<Arc<Departures>>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// The process whose thread it is: a fork has none.
    pid: u32,
}

impl Engine {
    fn start() -> Result<Arc<Engine>> {
        let failed = |e: std::io::Error| {
            Error::new(ErrorKind::Unavailable, "connect", "no thread to work on").caused_by(e)
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let departures = Arc::new(OnceLock::<Arc<Departures>>::new());
        let leaving = departures.clone();
        let thread = std::thread::Builder::new()
            .name("lockline".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    // An error means that the sender is gone, which says the same.
                    let _ = stopped.await;
                    if let Some(departures) = leaving.get() {
                        // Let what is leaving leave, but never make a program hang on its way out: after half a second the
                        // leases do it.
                        let _ = tokio::time::timeout(Duration::from_millis(500), departures.all_gone()).await;
                    }
                });
            })
            .map_err(failed)?;
        Ok(Arc::new(Engine {
            handle,
            departures,
            stop: Some(stop),
            thread: Some(thread),
            pid: std::process::id(),
        }))
    }

    fn wait<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        if Handle::try_current().is_ok() {
            let message = "a blocking call inside an async runtime would stop the runtime";
            return Err(Error::new(ErrorKind::Invalid, "blocking", message)
                .hint("use lockline::Locks there, and await"));
        }
        self.handle.block_on(work)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if std::process::id() != self.pid {
            // The thread stayed in the parent: whoever joined it here would wait for ever, and waking it would reach for
            // locks that it may have held at the moment of the fork.
            std::mem::forget((self.stop.take(), self.thread.take()));
            return;
        }
        drop(self.stop.take());
        if let Some(thread) =
            self.thread.take().filter(|thread| thread.thread().id() != std::thread::current().id())
        {
            // It does not panic, and if it did there would be nobody to tell.
            let _ = thread.join();
        }
    }
}

/// Locks on one engine: the blocking form of [`lockline::Locks`](crate::Locks).
#[derive(Clone, Debug)]
pub struct Locks {
    engine: Arc<Engine>,
    locks: crate::Locks,
}

impl Locks {
    /// Connects to the engine at an address: see [`lockline::Locks::connect`](crate::Locks::connect).
    ///
    /// # Errors
    /// A bad address, an engine that cannot be reached or must not be trusted.
    pub fn connect(url: &str) -> Result<Locks> {
        Locks::connect_with(crate::Locks::builder(), url)
    }

    /// Connects with options.
    ///
    /// # Errors
    /// As [`connect`](Locks::connect).
    pub fn connect_with(builder: crate::Builder, url: &str) -> Result<Locks> {
        let engine = Engine::start()?;
        let locks = engine.wait(builder.connect(url))?;
        engine.departures.get_or_init(|| locks.departures());
        Ok(Locks { engine, locks })
    }

    fn with<T>(&self, inner: T) -> Blocking<T> {
        Blocking { engine: self.engine.clone(), inner }
    }

    /// A lock with one holder at a time.
    pub fn mutex(&self, name: impl AsRef<str>) -> Blocking<crate::Mutex> {
        self.with(self.locks.mutex(name))
    }

    /// A lock for many readers or one writer.
    pub fn rwlock(&self, name: impl AsRef<str>) -> Blocking<crate::RwLock> {
        self.with(self.locks.rwlock(name))
    }

    /// `limit` permits.
    pub fn semaphore(&self, name: impl AsRef<str>, limit: u32) -> Blocking<crate::Semaphore> {
        self.with(self.locks.semaphore(name, limit))
    }

    /// Several mutexes at once, all or nothing.
    pub fn all(&self, names: impl IntoIterator<Item = impl AsRef<str>>) -> Blocking<crate::All> {
        self.with(self.locks.all(names))
    }

    /// One leader among many candidates.
    pub fn election(&self, name: impl AsRef<str>) -> Blocking<crate::Election> {
        self.with(self.locks.election(name))
    }

    /// Somebody in this process whose locks are reentrant.
    pub fn owner(&self, label: impl AsRef<str>) -> Blocking<crate::Owner> {
        self.with(self.locks.owner(label))
    }

    /// An owner that several processes share: see [`lockline::Locks::shared_owner`](crate::Locks::shared_owner).
    pub fn shared_owner(&self, label: impl AsRef<str>, identity: impl AsRef<str>) -> Blocking<crate::Owner> {
        self.with(self.locks.shared_owner(label, identity))
    }

    /// All locks whose names start with `prefix` and that somebody holds or waits for.
    ///
    /// # Errors
    /// When the engine cannot be asked.
    pub fn view(&self, prefix: &str) -> Result<Vec<LineView>> {
        self.engine.wait(self.locks.view(prefix))
    }

    /// One lock: its holders and waiters.
    ///
    /// # Errors
    /// A bad name, or when the engine cannot be asked.
    pub fn show(&self, name: &str) -> Result<LineView> {
        self.engine.wait(self.locks.show(name))
    }

    /// Whether nobody gets any lock yet although the engine is up: see [`lockline::Locks::shut`](crate::Locks::shut).
    pub fn shut(&self) -> Option<Shut> {
        self.locks.shut()
    }

    /// The same for one lock.
    ///
    /// # Errors
    /// A bad name.
    pub fn shut_for(&self, name: &str) -> Result<Option<Shut>> {
        self.locks.shut_for(name)
    }

    /// Shows out the claim that has this ticket: see [`lockline::Locks::evict`](crate::Locks::evict).
    ///
    /// # Errors
    /// A bad name, or when the engine cannot be told.
    pub fn evict(&self, name: &str, ticket: Ticket, at_once: bool) -> Result<bool> {
        self.engine.wait(self.locks.evict(name, ticket, at_once))
    }

    /// Gives up everything and waits until the engine knows, at most for `within`.
    ///
    /// # Errors
    /// If not everything had left in time; the leases do the rest.
    pub fn shutdown(&self, within: Duration) -> Result<()> {
        self.engine.wait(self.locks.shutdown(within))
    }
}

/// The blocking form of a primitive: the same options, and the same verbs without `await`.
#[derive(Clone, Debug)]
pub struct Blocking<T> {
    engine: Arc<Engine>,
    inner: T,
}

impl<T> Blocking<T> {
    fn guard(&self, work: impl Future<Output = Result<crate::Guard>>) -> Result<Guard> {
        self.engine.wait(work).map(|guard| self.hold(guard))
    }

    fn maybe(&self, work: impl Future<Output = Result<Option<crate::Guard>>>) -> Result<Option<Guard>> {
        Ok(self.engine.wait(work)?.map(|guard| self.hold(guard)))
    }

    fn hold(&self, guard: crate::Guard) -> Guard {
        Guard { guard, engine: self.engine.clone() }
    }

    fn map<U>(self, change: impl FnOnce(T) -> U) -> Blocking<U> {
        Blocking { engine: self.engine, inner: change(self.inner) }
    }
}

/// The options of every primitive, passed on.
macro_rules! options {
    ($($primitive:ident),*) => {$(
        impl Blocking<crate::$primitive> {
            #[doc = concat!("See [`", stringify!($primitive), "::lease`](crate::", stringify!($primitive), "::lease).")]
            #[must_use]
            pub fn lease(self, lease: Duration) -> Self {
                self.map(|inner| inner.lease(lease))
            }

            #[doc = concat!("See [`", stringify!($primitive), "::fixed`](crate::", stringify!($primitive), "::fixed).")]
            #[must_use]
            pub fn fixed(self) -> Self {
                self.map(|inner| inner.fixed())
            }

            #[doc = concat!("See [`", stringify!($primitive), "::max_hold`](crate::", stringify!($primitive), "::max_hold).")]
            #[must_use]
            pub fn max_hold(self, cap: Duration) -> Self {
                self.map(|inner| inner.max_hold(cap))
            }
        }
    )*};
}
options!(Mutex, RwLock, Semaphore, All, Election);

/// Verbs that give a guard, or maybe one, passed on. Their contracts are those of the async verbs of the same name.
macro_rules! verbs {
    ($primitive:ident: $($how:ident $verb:ident($($arg:ident: $kind:ty),*) -> $answer:ty;)*) => {
        impl Blocking<crate::$primitive> {
            $(
                #[doc = concat!("Blocking form of [`", stringify!($primitive), "::", stringify!($verb), "`](crate::",
                    stringify!($primitive), "::", stringify!($verb), ").\n\n# Errors\nAs there.")]
                pub fn $verb(&self, $($arg: $kind),*) -> Result<$answer> {
                    self.$how(self.inner.$verb($($arg),*))
                }
            )*
        }
    };
}

verbs! { Mutex:
    guard lock() -> Guard;
    maybe try_lock() -> Option<Guard>;
    maybe try_lock_for(wait: Duration) -> Option<Guard>;
}
verbs! { RwLock:
    guard read() -> Guard;
    maybe try_read() -> Option<Guard>;
    maybe try_read_for(wait: Duration) -> Option<Guard>;
    guard write() -> Guard;
    maybe try_write() -> Option<Guard>;
    maybe try_write_for(wait: Duration) -> Option<Guard>;
}
verbs! { Semaphore:
    guard acquire() -> Guard;
    guard acquire_many(count: u32) -> Guard;
    maybe try_acquire() -> Option<Guard>;
    maybe try_acquire_many(count: u32) -> Option<Guard>;
    maybe try_acquire_many_for(count: u32, wait: Duration) -> Option<Guard>;
}
verbs! { All:
    guard lock() -> Guard;
    maybe try_lock() -> Option<Guard>;
    maybe try_lock_for(wait: Duration) -> Option<Guard>;
}
verbs! { Election:
    guard campaign(label: &str) -> Guard;
    maybe try_campaign(label: &str) -> Option<Guard>;
}

impl Blocking<crate::Election> {
    /// Who leads, as the engine sees it now.
    ///
    /// # Errors
    /// When the engine cannot be asked.
    pub fn leader(&self) -> Result<Option<ClaimView>> {
        self.engine.wait(self.inner.leader())
    }
}

impl Blocking<crate::Owner> {
    /// A lock with one holder at a time, reentrant for this owner.
    pub fn mutex(&self, name: impl AsRef<str>) -> Blocking<crate::Mutex> {
        self.clone().map(|owner| owner.mutex(name))
    }

    /// A lock for many readers or one writer, reentrant for this owner.
    pub fn rwlock(&self, name: impl AsRef<str>) -> Blocking<crate::RwLock> {
        self.clone().map(|owner| owner.rwlock(name))
    }

    /// `limit` permits.
    pub fn semaphore(&self, name: impl AsRef<str>, limit: u32) -> Blocking<crate::Semaphore> {
        self.clone().map(|owner| owner.semaphore(name, limit))
    }

    /// Several mutexes at once, reentrant for this owner.
    pub fn all(&self, names: impl IntoIterator<Item = impl AsRef<str>>) -> Blocking<crate::All> {
        self.clone().map(|owner| owner.all(names))
    }
}

/// A lock that is held: the blocking form of [`lockline::Guard`](crate::Guard), with everything of it that does not wait.
#[must_use = "the lock is released as soon as the guard is dropped"]
#[derive(Debug)]
pub struct Guard {
    // Dropped before the engine, which may end with it: its departure must still be heard.
    guard: crate::Guard,
    engine: Arc<Engine>,
}

impl Guard {
    /// Fails if the lock is lost by now: to be asked before each step of the work.
    ///
    /// # Errors
    /// [`Lost`], with the reason.
    pub fn check(&self) -> Result<(), Lost> {
        self.guard.loss().map_or(Ok(()), Err)
    }

    /// Waits until the lock is lost, at most for `wait`.
    ///
    /// # Errors
    /// Inside an async runtime.
    pub fn lost_within(&self, wait: Duration) -> Result<Option<Lost>> {
        self.engine.wait(async { Ok(tokio::time::timeout(wait, self.guard.lost()).await.ok()) })
    }

    /// Releases the lock and waits until the engine knows.
    ///
    /// # Errors
    /// As [`lockline::Guard::release`](crate::Guard::release).
    pub fn release(self) -> Result<()> {
        let Guard { guard, engine } = self;
        engine.wait(guard.release())
    }
}

impl Deref for Guard {
    type Target = crate::Guard;
    fn deref(&self) -> &crate::Guard {
        &self.guard
    }
}
