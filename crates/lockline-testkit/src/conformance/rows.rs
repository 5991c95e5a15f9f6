//! Engines whose locks are rows: a session of somebody else that sits on some of them.

use std::time::{Duration, Instant};

use lockline::{Guard, Locks};

use crate::setup::{Setup, soon, until_empty};

/// Long enough for a busy machine, and so short that several of them pass in a test.
const LEASE: Duration = Duration::from_secs(2);

/// So many that every session of a client has to do with one of them.
const STUCK: usize = 8;

/// How many tasks ask for each of those.
const EACH: usize = 4;

/// Nothing that one lock waits for may delay the renewal or release of another: while somebody sits in a transaction on the rows of
/// some locks, whoever holds others keeps them for several leases and releases them at once, although its client asks for stuck ones,
/// leaves one, and renews one in the same batch. Once the rows are free, everybody who asked gets in.
pub async fn stuck_rows_cost_no_other_lock(setup: &Setup) {
    let locks = setup.client_with(|builder| builder.lease(LEASE)).await;
    let mut kept = Vec::new();
    for n in 0..2 * STUCK {
        kept.push(locks.mutex(format!("kept {n}")).lock().await.unwrap());
    }
    let stuck: Vec<String> = (0..STUCK).map(|n| format!("stuck {n}")).collect();
    // Their rows exist, and were last found free.
    for name in &stuck {
        locks.mutex(name).lock().await.unwrap().release().await.unwrap();
    }
    let held = locks.mutex("held").lock().await.unwrap();
    let left = locks.mutex("left").lock().await.unwrap();
    let rows = stuck.iter().map(String::as_str).chain(["held", "left"]);
    let foreign = setup.engine().sit_on(rows.map(str::to_owned).collect()).await;

    let leaving = tokio::spawn(async move { left.release().await });
    let mut asked = Vec::new();
    for name in stuck.iter().flat_map(|name| std::iter::repeat_n(name, EACH)) {
        let (locks, name) = (locks.clone(), name.clone());
        asked.push(tokio::spawn(async move { until_granted(&locks, &name).await?.release().await }));
    }
    let began = Instant::now();
    while began.elapsed() < 3 * LEASE {
        for (n, guard) in kept.iter().enumerate() {
            assert!(
                guard.is_valid(),
                "lock {n} was lost after {:?}, though its row was free",
                began.elapsed()
            );
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for guard in kept {
        let asked = Instant::now();
        guard.release().await.unwrap();
        assert!(asked.elapsed() < Duration::from_secs(1), "its release took {:?}", asked.elapsed());
    }
    soon("a free lock is taken", locks.mutex("kept 0").lock()).await.unwrap().release().await.unwrap();

    drop(foreign);
    for task in asked {
        soon("whoever asked gets in", task).await.unwrap().unwrap();
    }
    // Whether it could still be told is a matter of when the rows became free.
    let _ = leaving.await.unwrap();
    drop(held);
    until_empty(&locks, "once the rows are free").await;
}

/// Asks again for as long as the engine says that it cannot be done now.
async fn until_granted(locks: &Locks, name: &str) -> lockline::Result<Guard> {
    loop {
        match locks.mutex(name).lock().await {
            Err(error) if error.kind().is_transient() => {}
            outcome => return outcome,
        }
    }
}
