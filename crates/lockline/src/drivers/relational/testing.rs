//! What the tests of SQL servers share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::Locks;
use crate::fence::Fence;

/// Lets six tasks of each client take turns on one lock: one at a time, with rising tokens, and without a deadlock.
pub(in crate::drivers) async fn take_turns(clients: Vec<Locks>, turns: usize) {
    let inside = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for locks in clients.iter().flat_map(|locks| std::iter::repeat_n(locks, 6)) {
        let (locks, inside) = (locks.clone(), inside.clone());
        tasks.push(tokio::spawn(async move {
            let mut last = 0;
            for _ in 0..turns {
                let guard = locks.mutex("turns").lock().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                assert!(guard.fence().token() > last);
                last = guard.fence().token();
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}

/// Tokens in the order in which they come to one resource, and whether each passes.
pub(in crate::drivers) fn fences_and_verdicts() -> Vec<(Fence, bool)> {
    let (exclusive, shared) = (Fence::from_token, |token| Fence::new(token, false));
    vec![
        (shared(5), true),
        (exclusive(7), true),
        (exclusive(7), true),
        (exclusive(6), false),
        (shared(6), false),
        (shared(7), true),
        (exclusive(8), true),
        (exclusive(7), false),
    ]
}
