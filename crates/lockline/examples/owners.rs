//! Reentrancy: a function that locks calls another one that locks the same.

#![allow(clippy::print_stdout)] // An example talks.

use lockline::{Locks, Owner};

async fn close_account(me: &Owner) -> lockline::Result<()> {
    let guard = me.mutex("acct/7").lock().await?;
    pay_out(me).await?;
    guard.release().await
}

async fn pay_out(me: &Owner) -> lockline::Result<()> {
    let guard = me.mutex("acct/7").lock().await?; // the same hold: no word to the engine
    println!("paying out under token {}", guard.fence());
    guard.release().await // only counts down
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> lockline::Result<()> {
    let locks = Locks::memory();
    let me = locks.owner("worker-7");
    close_account(&me).await?;
    assert!(locks.show("acct/7").await?.holders.is_empty());
    Ok(())
}
