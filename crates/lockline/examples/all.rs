//! Several locks at once: two transfers between the same accounts, in opposite directions, without deadlock.

#![allow(clippy::print_stdout)] // An example talks.

use lockline::Locks;

#[tokio::main(flavor = "current_thread")]
async fn main() -> lockline::Result<()> {
    let locks = Locks::memory();
    let transfer = |from: &'static str, to: &'static str| {
        let locks = locks.clone();
        tokio::spawn(async move {
            for _ in 0..100 {
                let both = locks.all([from, to]).lock().await?; // in the order of their names, whatever was written
                tokio::task::yield_now().await;
                both.release().await?;
            }
            Ok::<(), lockline::Error>(())
        })
    };
    let (there, back) = (transfer("acct/1", "acct/2"), transfer("acct/2", "acct/1"));
    there.await.expect("the task does not panic")?;
    back.await.expect("the task does not panic")?;
    println!("200 transfers, no deadlock");

    let both = locks.all(["acct/1", "acct/2"]).lock().await?;
    for (name, fence) in both.fences() {
        println!("{name}: token {fence}");
    }
    both.release().await
}
