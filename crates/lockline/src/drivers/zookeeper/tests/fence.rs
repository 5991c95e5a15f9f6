//! Writes that count only while their lock is held.

use zookeeper_client::{Acls, CreateMode};

use super::{Ensemble, included};
use crate::error::ErrorKind;
use crate::fence::zookeeper::Held;
use crate::{Locks, Ticket};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_counts_only_while_its_lock_is_held() {
    if !included() {
        return;
    }
    let ensemble = Ensemble::start(1);
    let locks = Locks::connect(&ensemble.url()).await.unwrap();
    let client = ensemble.stranger().await;
    client.create("/order", b"new", &CreateMode::Persistent.with_acls(Acls::anyone_all())).await.unwrap();
    let old = locks.mutex("orders/42").lock().await.unwrap();
    let held = Held::find(&client, "/lockline", "orders/42", old.fence()).await.unwrap();
    held.write(&client, |write| write.add_set_data("/order", b"first", None)).await.unwrap();
    let refused = held.write(&client, |write| write.add_set_data("/nowhere", b"", None)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused:?}");

    assert!(locks.evict("orders/42", Ticket::new(old.fence().token()), true).await.unwrap());
    let new = locks.mutex("orders/42").lock().await.unwrap();
    let stale = held.write(&client, |write| write.add_set_data("/order", b"stale", None)).await.unwrap_err();
    assert_eq!(stale.kind(), ErrorKind::Lost, "{stale:?}");
    assert_eq!(client.get_data("/order").await.unwrap().0, b"first", "the late write did not count");
    let gone = Held::find(&client, "lockline/", "orders/42", old.fence()).await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::Lost);
    let held = Held::find(&client, "/lockline", "orders/42", new.fence()).await.unwrap();
    held.write(&client, |write| write.add_set_data("/order", b"second", None)).await.unwrap();
    assert_eq!(client.get_data("/order").await.unwrap().0, b"second");
}
