//! The README's sample: one lock, held and released. Run it twice at once and see the second wait its turn.

#![allow(clippy::print_stdout)] // An example talks.

use lockline::Locks;
use std::time::Duration;

#[tokio::main(flavor = "current_thread")]
async fn main() -> lockline::Result<()> {
    let file = std::env::temp_dir().join("lockline-quickstart.db");
    let locks = Locks::sqlite(file).await?;
    let guard = locks.mutex("orders/42").lock().await?; // waits its turn, first come first served
    println!("it is my turn, token {}", guard.fence());
    tokio::time::sleep(Duration::from_secs(1)).await; // the work
    guard.release().await
}
