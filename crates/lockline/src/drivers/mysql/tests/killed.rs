//! A server that is killed while a lock is held, with settings that keep what it answered and with settings that do not.

use std::time::Duration;

use super::included;
use super::server::Server;
use crate::driver::{Exclusion, Fencing, Guarantees};
use crate::{Error, ErrorKind, Locks, LossReason};

/// Longer than a server takes to be killed and started again on a busy machine.
const LEASE: Duration = Duration::from_secs(60);
/// What a server on its own disk promises.
const DEMANDED: Guarantees = Guarantees { fencing: Fencing::Always, exclusion: Exclusion::NoForwardStep };
/// Said after what tests' servers are started with.
const SYNCS: &str = "--innodb-flush-method=fsync";
const KEEPS: &str = "--innodb-flush-log-at-trx-commit=1";
/// The log is written once in a long while, so that every kill takes back what was answered, not only one at a bad moment.
const FORGETS: [&str; 2] = ["--innodb-flush-log-at-trx-commit=0", "--innodb-flush-log-at-timeout=2000"];

fn url(server: &Server) -> String {
    format!("mysql://root@127.0.0.1:{}/locks", server.config.port)
}

async fn demanding(server: &Server, lease: Duration) -> Result<Locks, Error> {
    Locks::builder().lease(lease).require(DEMANDED).connect(&url(server)).await
}

/// A client that demands nothing.
async fn careless(server: &Server) -> Locks {
    Locks::builder().lease(LEASE).connect(&url(server)).await.unwrap()
}

async fn crash(server: &mut Server) {
    server.kill();
    server.start_again().await;
}

#[tokio::test]
async fn a_lock_outlives_the_crash_of_a_server_that_keeps_what_it_answered() {
    let Some(database) = included().await else { return };
    database.done().await;
    let mut server = Server::start_with(&[SYNCS, KEEPS]).await;
    let one = demanding(&server, LEASE).await.unwrap();
    // The first use of a table may wait for the disk by itself: what counts is a server that is at work.
    one.mutex("x").lock().await.unwrap().release().await.unwrap();
    let held = one.mutex("x").lock().await.unwrap();
    crash(&mut server).await;
    let other = demanding(&server, LEASE).await.unwrap();
    assert!(other.mutex("x").try_lock().await.unwrap().is_none(), "two holders after a crash");
    assert!(held.is_valid(), "{:?}", held.loss());
    let before = held.fence();
    held.release().await.unwrap();
    let next = other.mutex("x").lock().await.unwrap();
    assert!(next.fence() > before, "tokens go on rising");
    next.release().await.unwrap();
}

/// Such a server is used by those who can live with two holders, who are told so; nobody else gets a lock from it.
#[tokio::test]
async fn a_server_that_forgets_in_a_crash_lets_nobody_in_who_demands_more() {
    let Some(database) = included().await else { return };
    database.done().await;
    let mut server = Server::start_with(&[&[SYNCS][..], &FORGETS].concat()).await;
    for _ in 0..2 {
        let error = demanding(&server, LEASE).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:?}");
        assert!(error.hint_text().unwrap_or_default().contains("guarantees page"), "{error:?}");
        let locks = careless(&server).await;
        assert_eq!(locks.guarantees().exclusion, Exclusion::Probable);
        let guard = locks.mutex("x").lock().await.unwrap();
        assert_eq!(guard.guarantees().exclusion, Exclusion::Probable);
        guard.release().await.unwrap();
        crash(&mut server).await;
    }
}

/// What an operator changes while a lock is held ends it, for those who demanded more, before a crash can give it to somebody else.
#[tokio::test]
async fn a_server_that_begins_to_forget_ends_the_locks_of_those_who_demanded_more() {
    let Some(database) = included().await else { return };
    database.done().await;
    let mut server = Server::start_with(&[SYNCS, KEEPS, FORGETS[1]]).await;
    let lease = Duration::from_secs(6);
    let one = demanding(&server, lease).await.unwrap();
    let held = one.mutex("x").lock().await.unwrap();
    server.run("SET GLOBAL innodb_flush_log_at_trx_commit = 0").await;
    let lost = tokio::time::timeout(lease, held.lost()).await.expect("it is noticed within a lease");
    assert_eq!(lost.reason, LossReason::Weakened);
    assert_eq!(one.mutex("x").lock().await.unwrap_err().kind(), ErrorKind::Unsupported);
    server.options = [&[SYNCS][..], &FORGETS].concat().iter().map(|&option| option.to_owned()).collect();
    crash(&mut server).await;
    assert_eq!(demanding(&server, lease).await.unwrap_err().kind(), ErrorKind::Unsupported);
    // Whoever gets it now is alone with it.
    let next = careless(&server).await.mutex("x").lock().await.unwrap();
    assert!(!held.is_valid() && next.is_valid());
}
