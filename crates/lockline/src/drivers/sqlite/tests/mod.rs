//! The driver against the pure machine, against the file system's faults, and against other processes.

mod against_the_line;
mod files;
mod full_disk;
mod processes;

use std::sync::Arc;
use std::time::Duration;

use crate::line::{Claim, ClaimId, Mode, Place, Primitive, Standing, Ticket, Who};
use crate::name::Name;

pub(super) use crate::drivers::against_the_line::Heard;

pub(super) fn claim(name: &str, mode: Mode, lease: Duration) -> Claim {
    let who = Who { owner: "tester".into(), host: "here".into(), pid: std::process::id() };
    Claim {
        name: Name::new(name).unwrap(),
        id: ClaimId::random(),
        mode,
        lease,
        who: Arc::new(who),
        identity: None,
        primitive: Primitive::Mutex,
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
