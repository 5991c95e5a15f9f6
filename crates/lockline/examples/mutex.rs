//! A mutex: wait for it, try it, wait for a while; a lost lock ends the work.

#![allow(clippy::print_stdout)] // An example talks.

use lockline::{Locks, LossReason};
use std::time::Duration;

#[tokio::main(flavor = "current_thread")]
async fn main() -> lockline::Result<()> {
    let locks = Locks::memory();
    let report = locks.mutex("report");

    let guard = report.lock().await?;
    println!("token {}, valid for {:?} without a word from the engine", guard.fence(), guard.remaining());

    // Busy is a value, not an error.
    assert!(report.try_lock().await?.is_none());
    assert!(report.try_lock_for(Duration::from_millis(20)).await?.is_none());

    // `run` drops the future if the lock is lost meanwhile.
    let rows = guard.run(async { 42 }).await?;
    println!("exported {rows} rows");
    guard.release().await?;

    // A hold that ends by itself, whatever happens.
    let short = report.lease(Duration::from_millis(150)).fixed().lock().await?;
    let lost = short.lost().await;
    assert_eq!(lost.reason, LossReason::Expired);
    println!("{lost}");
    Ok(())
}
