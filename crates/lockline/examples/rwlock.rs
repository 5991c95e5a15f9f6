//! A read-write lock: readers share, a writer is alone, and neither starves.

#![allow(clippy::print_stdout)] // An example talks.

use lockline::Locks;

#[tokio::main(flavor = "current_thread")]
async fn main() -> lockline::Result<()> {
    let locks = Locks::memory();
    let config = locks.rwlock("config");

    let (one, two) = (config.read().await?, config.read().await?);
    println!("two readers, tokens {} and {}", one.fence(), two.fence());
    assert!(config.try_write().await?.is_none());

    // A writer stands in line; a reader that comes later does not pass it.
    let writer = tokio::spawn({
        let config = config.clone();
        async move { config.write().await }
    });
    while locks.show("config").await?.waiters.is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(config.try_read().await?.is_none());

    one.release().await?;
    two.release().await?;
    let written = writer.await.expect("the task does not panic")?;
    println!("the writer got in with token {}", written.fence());
    written.release().await
}
