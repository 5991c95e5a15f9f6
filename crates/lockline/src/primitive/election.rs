//! One leader among many candidates.

use std::time::Duration;

use super::{Asking, options};
use crate::driver::Query;
use crate::error::Result;
use crate::guard::Guard;
use crate::line::{ClaimView, Mode, Ticket};
use crate::name::Name;

/// An election: candidates stand in line, the first leads until it resigns, is lost, or its lease ends.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockline::Result<()> {
/// let locks = lockline::Locks::memory();
/// let election = locks.election("scheduler");
/// let term = election.campaign("node-1").await?;              // waits until it leads
/// assert_eq!(election.leader().await?.map(|leader| leader.who.owner).as_deref(), Some("node-1"));
/// term.release().await?;                                       // resigns
/// # Ok(()) }
/// ```
///
/// A candidate for life stands again whenever it was replaced, and stops its work when it is told so:
///
/// ```no_run
/// # async fn job() {}
/// # async fn lead(locks: lockline::Locks) -> lockline::Result<()> {
/// loop {
///     let term = locks.election("scheduler").campaign("node-1").await?;
///     match term.run(job()).await {
///         Ok(()) => return term.release().await,
///         Err(lost) => eprintln!("replaced: {lost}"),
///     }
/// }
/// # }
/// ```
///
/// # When not to use it
/// A leader that writes to something shared needs its [`fence`](Guard::fence) checked there, exactly like any other
/// holder: between its last look and its write it may have been replaced.
#[derive(Clone, Debug)]
pub struct Election {
    asking: Asking,
    name: String,
}

impl Election {
    pub(crate) fn new(asking: Asking, name: &str) -> Election {
        Election { asking, name: name.to_owned() }
    }

    options!();

    /// Stands for election under a label and waits until it leads. The guard is the term: releasing it resigns.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    /// Dropping the future withdraws, in the background.
    pub async fn campaign(&self, label: &str) -> Result<Guard> {
        self.asking.labelled(label).lock(&self.name, Mode::Exclusive).await
    }

    /// Leads if nobody else does or wants to; `None` means that somebody does.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Cancel safety
    /// Dropping the future withdraws, in the background.
    pub async fn try_campaign(&self, label: &str) -> Result<Option<Guard>> {
        self.asking.labelled(label).try_lock(&self.name, Mode::Exclusive).await
    }

    /// Who leads, as the engine sees it now.
    ///
    /// # Errors
    /// When the engine cannot be asked.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn leader(&self) -> Result<Option<ClaimView>> {
        let client = &self.asking.client;
        client.check_open("leader")?;
        let name = Name::prefixed(&client.settings.prefix, &self.name)?;
        let lines = client.ask("view", client.driver.view(&Query::Name(name.clone()))).await;
        let lines = lines.map_err(|e| e.about(&name))?;
        Ok(lines.into_iter().next().and_then(|line| line.holders.into_iter().find(|claim| !claim.evicted)))
    }

    /// Watches who leads, without being a candidate.
    pub fn observe(&self) -> Observer {
        Observer { election: self.clone(), seen: None }
    }
}

/// Follows an election from outside.
///
/// It asks the engine once a second: an observer stands in no line, so no bell rings for it. Candidates are told at once.
#[derive(Debug)]
pub struct Observer {
    election: Election,
    /// The term last told about; the inner `None` is an empty chair.
    seen: Option<Option<Ticket>>,
}

impl Observer {
    const LOOK_EVERY: Duration = Duration::from_secs(1);

    /// Waits for the next change of leader, and tells the new one (`None`: nobody). The first call tells the present one.
    ///
    /// # Errors
    /// When the engine cannot be asked; it may be called again.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: the next call tells the change.
    pub async fn next(&mut self) -> Result<Option<ClaimView>> {
        loop {
            let leader = self.election.leader().await?;
            let term = leader.as_ref().map(|claim| claim.ticket);
            if self.seen != Some(term) {
                self.seen = Some(term);
                return Ok(leader);
            }
            tokio::time::sleep(Self::LOOK_EVERY).await;
        }
    }
}
