//! The driver against the pure machine, against the file system's faults, and against other processes.

mod against_the_line;
mod files;
mod full_disk;
mod processes;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::driver::BellBoard;
use crate::line::{Bell, Claim, ClaimId, Mode, Place, Standing, Ticket, Who};
use crate::name::Name;

/// A board that keeps what was rung.
#[derive(Debug, Default)]
pub(super) struct Heard {
    bells: Mutex<Vec<(Name, Bell)>>,
    rung: tokio::sync::Notify,
}

impl Heard {
    pub(super) fn take(&self) -> Vec<(Name, Bell)> {
        std::mem::take(&mut *self.bells.lock().unwrap())
    }

    /// The next bell, within ten seconds.
    pub(super) async fn next(&self) -> (Name, Bell) {
        let wait = async {
            loop {
                if let Some(bell) = self.bells.lock().unwrap().pop() {
                    return bell;
                }
                self.rung.notified().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), wait).await.expect("no bell rang")
    }
}

impl BellBoard for Heard {
    fn ring(&self, name: &Name, bell: &Bell) {
        self.bells.lock().unwrap().push((name.clone(), bell.clone()));
        self.rung.notify_one();
    }

    fn look_at_all(&self) {}
}

pub(super) fn claim(name: &str, mode: Mode, lease: Duration) -> Claim {
    let who = Who { owner: "tester".into(), host: "here".into(), pid: std::process::id() };
    Claim {
        name: Name::new(name).unwrap(),
        id: ClaimId::random(),
        mode,
        lease,
        who: Arc::new(who),
        identity: None,
    }
}

pub(super) fn place(claim: &Claim, ticket: Option<Ticket>) -> Place {
    Place { name: claim.name.clone(), id: claim.id, ticket, lease: claim.lease, last: false }
}

pub(super) fn is_in(standing: &Standing) -> bool {
    matches!(standing, Standing::In { .. })
}

pub(super) async fn open(path: impl AsRef<std::path::Path>) -> (super::Sqlite, Arc<Heard>) {
    let heard = Arc::new(Heard::default());
    let file = super::Sqlite::open(super::SqliteConfig::new(path.as_ref()), heard.clone()).await.unwrap();
    (file, heard)
}
