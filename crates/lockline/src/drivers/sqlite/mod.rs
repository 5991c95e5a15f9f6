#![doc = include_str!("GUIDE.md")]

mod address;
mod bell;
mod boot;
mod checkpoint;
mod config;
mod desk;
mod early;
mod error;
mod file;
mod hooks;
mod identity;
mod meta;
mod platform;
mod process;
mod refuse;
mod request;
mod room;
mod rows;
mod schema;
mod tickets;
mod transaction;
mod verbs;
mod view;
mod worker;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Weak, mpsc};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

pub use config::SqliteConfig;

use crate::driver::{Bells, Driver, DriverInfo, Exclusion, Fencing, Guarantees, Query, Verb};
use crate::error::{Error, ErrorKind, Result};
use crate::line::{Claim, LineView, Place, Refusal, Standing, Ticket};
use crate::name::Name;
use desk::{AT_HAND_TIMEOUT, Desk, Station};
use request::{Done, Queue, Request, Work};
use worker::{Room, Worker};

/// Locks in one SQLite file, for the processes of one host. See the [module](self).
pub struct Sqlite {
    info: DriverInfo,
    desk: Arc<Desk>,
}

impl Sqlite {
    /// Opens the file, and makes it if it is missing. To be called inside a Tokio runtime with I/O and time enabled.
    ///
    /// # Errors
    /// [`Unsafe`](ErrorKind::Unsafe) for a network file system, a file of another application, a damaged file or one
    /// of a newer Lockline; [`Denied`](ErrorKind::Denied) without the right to write; [`Invalid`](ErrorKind::Invalid)
    /// for a missing directory or a path that is none of a file; [`Full`](ErrorKind::Full) if a new file has no room.
    /// A file that is refused is not changed.
    pub async fn open(config: SqliteConfig, bells: Bells) -> Result<Sqlite> {
        let runtime = Handle::try_current().map_err(|_| {
            Error::new(ErrorKind::Invalid, "open", "there is no Tokio runtime here")
                .hint("call it inside a runtime, or use the blocking API")
        })?;
        open(config, bells, runtime).await
    }

    /// Sends work when the verb is *called*, not when its future is first polled: a `leave` called later stands
    /// behind its `join` in the queue, whatever happens to the futures.
    fn ask<T>(&self, work: Work, pick: impl FnOnce(Done) -> Result<T> + Send + 'static) -> Verb<'static, T> {
        let (reply, answer) = oneshot::channel();
        let sent = self.desk.send(Request::Work(work, reply));
        let address = self.info.address.clone();
        Box::pin(async move {
            let answer = if sent { answer.await.ok() } else { None };
            answer.unwrap_or_else(|| Err(gone(&address))).and_then(pick)
        })
    }
}

async fn open(mut config: SqliteConfig, bells: Bells, runtime: Handle) -> Result<Sqlite> {
    let path = std::path::absolute(&config.path)
        .map_err(|e| Error::new(ErrorKind::Invalid, "open", "the path is empty").caused_by(e.to_string()))?;
    let address: Arc<str> = format!("sqlite:{}", path.display()).into();
    let info = DriverInfo { driver: "sqlite", address: address.clone() };
    let (queue, requests) = mpsc::channel();
    // What watches processes has a weak one: it must not keep the worker alive.
    let queue = Arc::new(queue);
    let weak = Arc::downgrade(&queue);
    if config.late_thread {
        let hasty = config.clone().busy_timeout(AT_HAND_TIMEOUT);
        match worker(hasty, &path, &address, bells.clone(), &runtime, weak.clone()) {
            Ok(worker) => {
                let station = Station { worker, requests, busy_timeout: config.busy_timeout };
                return Ok(Sqlite { info, desk: Desk::at_hand(queue, station, &runtime) });
            }
            // Others are on the file: a new one is being made, or the machine is busy. A thread can wait for longer.
            Err(error) if error.kind() == ErrorKind::Unavailable => config.late_thread = false,
            Err(error) => return Err(error),
        }
    }
    let (opened, is_open) = oneshot::channel();
    let serve = move || match worker(config, &path, &address, bells, &runtime, weak) {
        Err(e) => drop(opened.send(Err(e))),
        Ok(worker) => {
            if opened.send(Ok(())).is_ok() {
                worker.run(&requests);
            }
        }
    };
    desk::thread(serve).map_err(|e| {
        Error::new(ErrorKind::Limit, "open", "no thread could be started").caused_by(e).at(&info.address)
    })?;
    is_open.await.unwrap_or_else(|_| Err(gone(&info.address)))?;
    Ok(Sqlite { info, desk: Desk::staffed(queue) })
}

/// Opens the file and makes what serves it. Blocks.
fn worker(
    config: SqliteConfig,
    path: &Path,
    address: &Arc<str>,
    bells: Bells,
    runtime: &Handle,
    queue: Weak<Queue>,
) -> Result<Worker> {
    let file = file::open(&config, path, address)?;
    let me = process::Process::this();
    Ok(Worker {
        belfry: bell::Belfry::new(file.identity.file, me, bells, runtime.clone()),
        watches: process::Watches::new(me, runtime.clone()),
        file,
        clock: config.clock,
        me,
        address: address.clone(),
        checkpoints: checkpoint::Checkpoints::new(),
        queue,
        room: Room::Enough,
        awaited: false,
        unheard: config.late_thread.then(early::Unheard::default),
        deferred: Vec::new(),
        was_busy: false,
        reserving: tickets::Reserving::default(),
        low_on_tickets: None,
        said_gone: false,
    })
}

/// The worker has ended in the middle of its work, which only a bug can do.
fn gone(address: &Arc<str>) -> Error {
    Error::new(ErrorKind::Unknown, "work", "the thread that serves the file has ended").at(address)
}

/// A [`Done`] of another verb than was asked.
fn mixed_up<T>() -> Result<T> {
    Err(Error::new(ErrorKind::Unknown, "work", "the answer belongs to another verb"))
}

impl Driver for Sqlite {
    fn info(&self) -> &DriverInfo {
        &self.info
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees { fencing: Fencing::Always, exclusion: Exclusion::Always }
    }

    fn join<'a>(&'a self, claim: &'a Claim, wait: bool) -> Verb<'a, Standing> {
        let (name, address) = (claim.name.clone(), self.info.address.clone());
        self.ask(Work::Join(claim.clone(), wait), move |done| match done {
            Done::Joined(Ok(standing)) => Ok(standing),
            Done::Joined(Err(Refusal::WouldWaitForItself)) => Err(Error::new(
                ErrorKind::Deadlock,
                "join",
                "this owner already stands in the line in another mode and would wait for itself",
            )
            .hint("release what the owner has on this name first")
            .about(&name)
            .at(&address)),
            _ => mixed_up(),
        })
    }

    fn renew<'a>(&'a self, places: &'a [Place]) -> Verb<'a, Vec<Standing>> {
        self.ask(Work::Renew(places.to_vec()), |done| match done {
            Done::Renewed(standings) => Ok(standings),
            _ => mixed_up(),
        })
    }

    fn leave<'a>(&'a self, place: &'a Place) -> Verb<'a, ()> {
        self.ask(Work::Leave(place.name.clone(), place.id), |done| match done {
            Done::Left => Ok(()),
            _ => mixed_up(),
        })
    }

    fn view<'a>(&'a self, query: &'a Query) -> Verb<'a, Vec<LineView>> {
        let (reply, answer) = oneshot::channel();
        let sent = self.desk.send(Request::View(query.clone(), reply));
        Box::pin(async move {
            let answer = if sent { answer.await.ok() } else { None };
            answer.unwrap_or_else(|| Err(gone(&self.info.address)))
        })
    }

    fn evict<'a>(&'a self, name: &'a Name, ticket: Ticket, at_once: bool) -> Verb<'a, bool> {
        self.ask(Work::Evict(name.clone(), ticket, at_once), |done| match done {
            Done::Evicted(found) => Ok(found),
            _ => mixed_up(),
        })
    }
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").field("address", &self.info.address).finish_non_exhaustive()
    }
}
