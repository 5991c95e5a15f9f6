//! A protected resource: a SQL row that refuses an older token, and what happens to a holder that overslept.
//!
//! The lock is held with a fixed lease that ends while its holder is "paused". The next holder writes; then the first
//! one wakes up, does not look at its lock, and writes too. The predicate refuses it.

#![allow(clippy::print_stdout)] // An example talks.

use lockline::Locks;
use lockline::fence::{Fence, Gate};
use rusqlite::Connection;
use std::time::Duration;

/// The write and the check are one statement: no pause can fall between them.
fn withdraw(bank: &Connection, amount: i64, fence: Fence) -> rusqlite::Result<bool> {
    let changed = bank.execute(
        "UPDATE account SET balance = balance - ?1, fence = ?2 WHERE id = 7 AND fence <= ?2",
        (amount, fence.token() as i64),
    )?;
    Ok(changed == 1)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bank = Connection::open_in_memory()?;
    bank.execute_batch(
        "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL, fence INTEGER NOT NULL DEFAULT 0);
         INSERT INTO account (id, balance) VALUES (7, 100);",
    )?;
    let locks = Locks::memory();
    let account = locks.mutex("acct/7");

    let sleeper = account.clone().lease(Duration::from_millis(150)).fixed().lock().await?;
    let fresh = account.lock().await?; // waits until the sleeper's lease has ended
    assert!(withdraw(&bank, 30, fresh.fence())?, "the holder's write counts");
    assert!(!withdraw(&bank, 30, sleeper.fence())?, "the sleeper's does not");

    let balance: i64 = bank.query_row("SELECT balance FROM account WHERE id = 7", [], |row| row.get(0))?;
    println!("balance {balance}: withdrawn once");
    assert_eq!(balance, 70);

    // The same for a resource in memory.
    let gate = Gate::default();
    gate.pass(fresh.fence())?;
    println!("{}", gate.pass(sleeper.fence()).expect_err("stale"));
    fresh.release().await?;
    Ok(())
}
