//! wip smoke
use lockline::*;
use std::time::Duration;
#[tokio::test]
async fn smoke() {
    let locks = Locks::memory();
    let g = locks.mutex("a").lock().await.unwrap();
    assert!(locks.mutex("a").try_lock().await.unwrap().is_none());
    let l2 = locks.clone();
    let t = tokio::spawn(async move { l2.mutex("a").lock().await.unwrap().fence() });
    tokio::time::sleep(Duration::from_millis(20)).await;
    let f = g.fence();
    g.release().await.unwrap();
    assert!(t.await.unwrap() > f);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(locks.view("").await.unwrap().is_empty());
    let capped = locks
        .mutex("c")
        .lease(Duration::from_millis(300))
        .max_hold(Duration::from_millis(700))
        .lock()
        .await
        .unwrap();
    let t0 = std::time::Instant::now();
    assert_eq!(capped.lost().await.reason, LossReason::MaxHold);
    assert!((650..800).contains(&t0.elapsed().as_millis()), "{:?}", t0.elapsed());
    let fixed = locks.mutex("c").lease(Duration::from_millis(300)).fixed().lock().await.unwrap();
    let t0 = std::time::Instant::now();
    assert_eq!(fixed.lost().await.reason, LossReason::Expired);
    assert!((250..320).contains(&t0.elapsed().as_millis()), "{:?}", t0.elapsed());
}
#[test]
fn blocking() {
    let locks = lockline::blocking::Locks::connect("memory:x").unwrap();
    let g = locks.mutex("a").lock().unwrap();
    let l2 = locks.clone();
    let t = std::thread::spawn(move || l2.mutex("a").lock().unwrap().release().unwrap());
    std::thread::sleep(Duration::from_millis(30));
    drop(g);
    t.join().unwrap();
}
