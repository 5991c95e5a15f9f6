//! Servers that must not be trusted, and users who may not.

use std::sync::Arc;
use std::time::Duration;

use super::{Server, claim, included, is_in, open, place};
use crate::driver::{Driver, Query};
use crate::drivers::redis::{Redis, RedisConfig, RestartGuard};
use crate::drivers::testing::Heard;
use crate::error::{Error, ErrorKind};
use crate::line::{Mode, News};

const CANARY: &str = "c4nary";

async fn refused(config: RedisConfig) -> Error {
    let heard = Arc::new(Heard::default());
    let error = Redis::connect(config.restart_guard(RestartGuard::Off), heard).await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains(CANARY), "{error:?}");
    error
}

#[tokio::test]
async fn servers_that_locks_cannot_be_trusted_to() {
    if !included() {
        return;
    }
    let evicting = Server::start(&["--maxmemory-policy", "allkeys-lru"]);
    let error = refused(evicting.config()).await;
    assert_eq!(error.kind(), ErrorKind::Unsafe);
    assert!(error.hint_text().unwrap().contains("noeviction"));
    open(evicting.config().allow_eviction(true)).await;

    let primary = Server::start(&[]);
    let replica = Server::start(&["--replicaof", &format!("127.0.0.1 {}", primary.port)]);
    assert_eq!(refused(replica.config()).await.kind(), ErrorKind::Unsafe);

    let plain = Server::start(&[]);
    let error = refused(plain.config().tls(crate::drivers::redis::Tls::new())).await;
    assert_eq!(error.kind(), ErrorKind::Unsupported, "it is known, not only that nothing came: {error:?}");
    assert!(error.to_string().contains("answers in plain text"), "{error}");
    assert!(error.hint_text().unwrap().contains("the port that speaks TLS"), "{error:?}");

    let mut gone = Server::start(&[]);
    gone.kill();
    assert_eq!(refused(gone.config()).await.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn logins() {
    if !included() {
        return;
    }
    let server = Server::start(&["--requirepass", "right"]);
    assert_eq!(refused(server.config()).await.kind(), ErrorKind::Denied);
    assert_eq!(refused(server.config().login("", CANARY)).await.kind(), ErrorKind::Denied);
    assert_eq!(refused(server.config().login("nobody", CANARY)).await.kind(), ErrorKind::Denied);
    open(server.config().login("", "right")).await;
}

/// The access list of the guide, as it is printed there.
fn access_list() -> Vec<String> {
    let guide = include_str!("../GUIDE.md");
    let block = guide.split("```text\n").nth(1).expect("the guide has the list").split("```").next().unwrap();
    block.replace("\\\n", " ").split_whitespace().map(str::to_owned).collect()
}

#[tokio::test]
async fn the_access_list_of_the_guide_is_enough_and_each_of_its_rights_is_named_when_missing() {
    if !included() {
        return;
    }
    let server = Server::start(&[]);
    let mut operator = server.operator().await;
    let list = access_list();
    assert_eq!(list[..3], ["ACL", "SETUSER", "locks"]);
    redis::cmd("ACL").arg(&list[1..]).exec_async(&mut operator).await.unwrap();
    let config = server.config().login("locks", "secret");
    // With a guard, because its marks need rights, too; over at once for leases this short.
    let heard = Arc::new(Heard::default());
    let guarded = config.clone().max_lease(Duration::from_millis(100));
    drop(Redis::connect(guarded, heard).await.unwrap());

    let (redis, heard) = open(config.clone()).await;
    let lease = Duration::from_millis(400);
    let mut claims = Vec::new();
    for n in 0..3 {
        let mut one = claim("a", Mode::Exclusive, lease);
        one.identity = (n == 1).then(|| "shared".into());
        redis.join(&one, true).await.unwrap();
        claims.push(one);
    }
    redis.renew(&claims.iter().map(|claim| place(claim, None)).collect::<Vec<_>>()).await.unwrap();
    redis.leave(&place(&claims[0], None)).await.unwrap();
    assert_eq!(heard.next().await.1.news, News::In);
    let lines = redis.view(&Query::Prefix(String::new())).await.unwrap();
    let ticket = lines[0].holders[0].ticket;
    assert!(redis.evict(&claims[1].name, ticket, true).await.unwrap());
    assert_eq!(redis.view(&Query::Prefix("a".into())).await.unwrap()[0].holders.len(), 1);
    redis.leave(&place(&claims[2], None)).await.unwrap();
    for count in [2, 1] {
        let permits = Mode::Permits { count, limit: 4 - count };
        assert!(is_in(&redis.join(&claim("p", permits, lease), false).await.unwrap()) == (count == 2));
    }
    tokio::time::sleep(lease).await;
    assert!(is_in(&redis.join(&claim("p", Mode::Shared, lease), false).await.unwrap()));

    for right in ["evalsha", "script|load", "info", "subscribe"] {
        redis::cmd("ACL")
            .arg("SETUSER")
            .arg("locks")
            .arg(format!("-{right}"))
            .exec_async(&mut operator)
            .await
            .unwrap();
        let error = refused_somewhere(config.clone()).await;
        assert_eq!(error.kind(), ErrorKind::Denied, "{right}: {error:?}");
        assert!(error.to_string().contains(right), "{right}: {error}");
        redis::cmd("ACL")
            .arg("SETUSER")
            .arg("locks")
            .arg(format!("+{right}"))
            .exec_async(&mut operator)
            .await
            .unwrap();
    }
    redis::cmd("ACL").arg("SETUSER").arg("locks").arg("-set").exec_async(&mut operator).await.unwrap();
    assert_eq!(refused_somewhere(config).await.kind(), ErrorKind::Denied);
}

/// On connecting, or at the first claim.
async fn refused_somewhere(config: RedisConfig) -> Error {
    let heard = Arc::new(Heard::default());
    match Redis::connect(config.restart_guard(RestartGuard::Off), heard).await {
        Err(error) => error,
        Ok(redis) => {
            redis.join(&claim("z", Mode::Exclusive, Duration::from_secs(1)), true).await.unwrap_err()
        }
    }
}
