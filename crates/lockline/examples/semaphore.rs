//! A semaphore: at most four at the GPUs, whatever the number of machines.

#![allow(clippy::print_stdout)] // An example talks.

use lockline::Locks;

#[tokio::main(flavor = "current_thread")]
async fn main() -> lockline::Result<()> {
    let locks = Locks::memory();
    let gpus = locks.semaphore("gpu", 4);

    let two = gpus.acquire_many(2).await?;
    let one = gpus.acquire().await?;
    println!("three of four permits taken");
    assert!(gpus.try_acquire_many(2).await?.is_none());
    let last = gpus.try_acquire().await?.expect("one is left");

    // Five of four can never be had: refused before anything is sent.
    println!("{}", gpus.acquire_many(5).await.expect_err("never"));

    for guard in [two, one, last] {
        guard.release().await?;
    }
    Ok(())
}
