//! Leader election: three nodes, one leads; when it resigns, the next one does.

#![allow(clippy::print_stdout)] // An example talks.

use lockline::Locks;
use std::time::Duration;

#[tokio::main(flavor = "current_thread")]
async fn main() -> lockline::Result<()> {
    let locks = Locks::memory();
    let mut nodes = Vec::new();
    for node in ["node-1", "node-2", "node-3"] {
        let election = locks.election("scheduler");
        nodes.push(tokio::spawn(async move {
            let term = election.campaign(node).await?;
            let leader = election.leader().await?.expect("somebody leads");
            println!("{} leads, term {}", leader.who.owner, term.fence());
            // A leader works for as long as it leads, and stops when it is told that it no longer does.
            let work = tokio::time::sleep(Duration::from_millis(20));
            if let Err(lost) = term.run(work).await {
                println!("{node} was replaced: {lost}");
                return Ok(());
            }
            term.release().await
        }));
    }
    for node in nodes {
        node.await.expect("the task does not panic")?;
    }
    Ok(())
}
