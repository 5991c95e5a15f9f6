//! Who may lock on Redis: the access lists of the documents are enough, and certificates are looked at. Each test starts
//! servers of its own, if this run includes that kind of server.
// A program with a harness of its own is not what clippy takes for a test.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use libtest_mimic::Arguments;
use lockline::driver::{Exclusion, Fencing, Guarantees};
use lockline::{ErrorKind, Locks, LossReason};
use lockline_testkit::redis_servers::{self as servers, Server, WATCHED};
use lockline_testkit::server::{block_on as run, with_own_servers as test};
use lockline_testkit::setup::{granted, queue_up};

const LEASE: Duration = Duration::from_secs(4);

const GUIDE: &str = include_str!("../../lockline/src/drivers/redis/GUIDE.md");
const PAGE: &str = include_str!("../../../docs/engines/redis.md");

fn main() -> ExitCode {
    let trials = vec![
        test("redis-tls", "certificates_are_looked_at", certificates_are_looked_at),
        test("redis-sentinel", "sentinel_and_replicas_by_their_lists", sentinel_and_replicas_by_their_lists),
        test("redis-cluster", "cluster_by_its_list", cluster_by_its_list),
        test("redis", "kinds_of_servers_are_told_apart", kinds_of_servers_are_told_apart),
        test("redis", "append_only_file_by_its_list", append_only_file_by_its_list),
        test("redis", "weakened_server_is_noticed", weakened_server_is_noticed),
        test("redis", "server_told_to_evict_is_noticed", server_told_to_evict_is_noticed),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn hosts(servers: &[Server]) -> String {
    servers.iter().map(|server| format!("127.0.0.1:{}", server.port)).collect::<Vec<_>>().join(",")
}

/// The list of the guide.
fn shortest() -> String {
    let block = GUIDE.split("```text\n").nth(1).unwrap().split("```").next().unwrap();
    block.replace("\\\n", " ")
}

/// The line of the page that begins like this.
fn beside(what: &str) -> String {
    let line = PAGE.lines().find(|line| line.starts_with(what) && line.contains("ACL SETUSER")).unwrap();
    line[line.find("ACL").unwrap()..].to_owned()
}

fn give(servers: &[Server], list: &str) {
    for server in servers {
        let words: Vec<&str> = list.split_whitespace().collect();
        assert_eq!(server.cli(&words).unwrap(), "OK", "{list}");
    }
}

/// Everything that a user of locks does.
async fn use_locks(url: &str) -> Locks {
    let locks = Locks::builder().lease(LEASE).connect(url).await.unwrap();
    let other = Locks::connect(url).await.unwrap();
    for name in ["a", "b", "c", "d", "e", "f"] {
        let held = locks.mutex(name).lock().await.unwrap();
        let waits = queue_up(&other, name, 1).await;
        held.release().await.unwrap();
        granted(waits).await.release().await.unwrap();
    }
    let held = locks.mutex("renewed").lock().await.unwrap();
    tokio::time::sleep(LEASE + LEASE / 4).await;
    assert!(held.is_valid(), "{:?}", held.loss());
    assert_eq!(locks.view("").await.unwrap().len(), 1);
    assert!(locks.evict("renewed", lockline::Ticket::new(held.fence().token()), true).await.unwrap());
    locks
}

async fn refused(url: &str) -> ErrorKind {
    Locks::connect(url).await.unwrap_err().kind()
}

fn certificates_are_looked_at(home: &Path) {
    run(async {
        let list: Vec<String> = shortest().split_whitespace().skip(2).map(str::to_owned).collect();
        let (server, options) = servers::encrypted(home, &list).unwrap();
        let url = format!("rediss://locks:secret@127.0.0.1:{}{options}&restart_guard=off", server.port);
        use_locks(&url).await;
        let without = |option: &str| {
            let (before, rest) = url.split_once(&format!("{option}=")).unwrap();
            format!("{before}{}", rest.split_once('&').unwrap().1)
        };
        assert_eq!(refused(&without("ca")).await, ErrorKind::Denied, "nobody here knows who signed it");
        assert_eq!(refused(&without("key").replace("cert=", "ca2=")).await, ErrorKind::Invalid);
        let anonymous =
            format!("rediss://locks:secret@127.0.0.1:{}{}", server.port, options.split('&').next().unwrap());
        assert_eq!(refused(&anonymous).await, ErrorKind::Denied, "the server wants to see a certificate");
        assert_eq!(refused(&url.replace("ca.pem", "none.pem")).await, ErrorKind::Invalid);
        assert_eq!(refused(&url.replace("secret", "wrong")).await, ErrorKind::Denied);
        let plain = format!("redis://locks:secret@127.0.0.1:{}", server.port);
        assert!(refused(&plain).await.is_transient(), "it speaks TLS only");
    });
}

fn sentinel_and_replicas_by_their_lists(home: &Path) {
    run(async {
        let (all, sentinels) = servers::watched(home, servers::QUICK).unwrap();
        give(&all, &shortest());
        give(&sentinels, &beside("the Sentinels"));
        let url = format!(
            "redis-sentinel://locks:secret@{}/{WATCHED}?restart_guard=off&sentinel_user=watcher&sentinel_password=secret",
            hosts(&sentinels)
        );
        use_locks(&url).await;
        assert_eq!(
            refused(&url.replace("sentinel_password=secret", "sentinel_password=no")).await,
            ErrorKind::Denied
        );
        assert_eq!(refused(&url.replace(WATCHED, "other")).await, ErrorKind::Invalid);
        let error = Locks::connect(&format!("{url}&replicas=all")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied);
        assert!(error.to_string().contains("wait"), "{error}");
        give(&all, &beside("replicas="));
        let locks = use_locks(&format!("{url}&replicas=all")).await;
        assert_eq!(locks.mutex("a").lock().await.unwrap().replicas(), Some(2));
    });
}

fn cluster_by_its_list(home: &Path) {
    run(async {
        let nodes = servers::cluster(home, servers::QUICK).unwrap();
        give(&nodes, &shortest());
        let url = format!("redis-cluster://locks:secret@{}?restart_guard=off", hosts(&nodes[..2]));
        assert_eq!(refused(&url).await, ErrorKind::Denied);
        give(&nodes, &beside("Cluster"));
        use_locks(&url).await;
        give(&nodes, &beside("replicas="));
        let locks = use_locks(&format!("{url}&replicas=all")).await;
        assert_eq!(locks.mutex("a").lock().await.unwrap().replicas(), Some(1));
        let one = format!("redis://locks:secret@{}", hosts(&nodes[..1]));
        assert_eq!(refused(&one).await, ErrorKind::Unsupported);
    });
}

/// A Sentinel and a node of a cluster are no servers to be named alone, and a single server is no cluster. Valkey says what it
/// is in words of its own.
fn kinds_of_servers_are_told_apart(home: &Path) {
    run(async {
        let (all, sentinels) = servers::watched(home, servers::QUICK).unwrap();
        let node = Server::start(home, "node", &["--cluster-enabled", "yes"]).unwrap();
        for (url, meant) in [
            (format!("redis://127.0.0.1:{}", sentinels[0].port), "redis-sentinel://"),
            (format!("redis://127.0.0.1:{}", node.port), "redis-cluster://"),
            (format!("redis-cluster://127.0.0.1:{}", all[0].port), "redis://"),
        ] {
            let error = Locks::connect(&url).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{url}: {error:?}");
            assert!(error.hint_text().unwrap_or_default().contains(meant), "{url}: {error:?}");
        }
        use_locks(&format!("redis://127.0.0.1:{}?restart_guard=off", all[0].port)).await;
    });
}

/// A server that writes before it answers is known for it by those who may ask.
fn append_only_file_by_its_list(home: &Path) {
    run(async {
        let server = Server::start(home, "one", &["--appendonly", "yes", "--appendfsync", "always"]).unwrap();
        let servers = [server];
        give(&servers, &shortest());
        let url = format!("redis://locks:secret@{}?restart_guard=off", hosts(&servers));
        let locks = use_locks(&url).await;
        let promised = async |locks: Locks| locks.mutex("a").lock().await.unwrap().guarantees().fencing;
        assert_eq!(promised(locks).await, Fencing::ClockBounded);
        give(&servers, &beside("appendfsync"));
        assert_eq!(promised(Locks::connect(&url).await.unwrap()).await, Fencing::Always);
    });
}

/// An operator has the server write its file later: whoever relies on it is told within a lease, and gets nothing more.
fn weakened_server_is_noticed(home: &Path) {
    run(async {
        let server = Server::start(home, "one", &["--appendonly", "yes", "--appendfsync", "always"]).unwrap();
        let servers = [server];
        let url = format!("redis://{}?restart_guard=off", hosts(&servers));
        let demanded = Guarantees { fencing: Fencing::Always, exclusion: Exclusion::NoForwardStep };
        let careful = Locks::builder().require(demanded).connect(&url).await.unwrap();
        let careless = Locks::connect(&url).await.unwrap();
        let (guard, other) = (careful.mutex("a").lock().await, careless.mutex("b").lock().await);
        let (guard, other) = (guard.unwrap(), other.unwrap());
        servers[0].cli(&["CONFIG", "SET", "appendfsync", "everysec"]).unwrap();
        let lease = Duration::from_secs(10);
        let lost = tokio::time::timeout(lease, guard.lost()).await.expect("it is noticed within a lease");
        assert_eq!(lost.reason, LossReason::Weakened);
        assert_eq!(careful.mutex("a").lock().await.unwrap_err().kind(), ErrorKind::Unsupported);
        assert_eq!(
            Locks::builder().require(demanded).connect(&url).await.unwrap_err().kind(),
            ErrorKind::Unsupported
        );
        until(|| other.guarantees().fencing == Fencing::ClockBounded).await;
        assert!(other.is_valid());
    });
}

/// A server that is told to remove keys when its memory is full is no longer trusted.
fn server_told_to_evict_is_noticed(home: &Path) {
    run(async {
        let servers = [Server::start(home, "one", &[]).unwrap()];
        let locks = Locks::connect(&format!("redis://{}?restart_guard=off", hosts(&servers))).await.unwrap();
        let guard = locks.mutex("a").lock().await.unwrap();
        servers[0].cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).unwrap();
        let lost = tokio::time::timeout(Duration::from_secs(25), guard.lost()).await;
        assert_eq!(lost.expect("it is not renewed any more").reason, LossReason::Unreachable);
        assert_eq!(locks.mutex("b").lock().await.unwrap_err().kind(), ErrorKind::Unsafe);
        servers[0].cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).unwrap();
        tokio::time::timeout(Duration::from_secs(25), async {
            while locks.mutex("b").lock().await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await
        .expect("it is trusted again");
    });
}

async fn until(condition: impl Fn() -> bool) {
    let looking = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), looking).await.expect("it never came");
}
