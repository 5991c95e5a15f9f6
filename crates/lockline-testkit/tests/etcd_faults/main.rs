//! etcd with servers of its own that are killed, stopped, restarted, compacted and closed to strangers, while locks are held
//! and waited for. Runs if the run includes `etcd-cluster`.
//!
//! What is not here: a server whose clock is stepped. etcd is written in Go, which reads the kernel's clock without a
//! library in between, so that nobody but the whole machine can be told another time; its leases count on the monotonic one.
#![allow(clippy::unwrap_used)]

mod cluster;

use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Trial};
use lockline::driver::{BellBoard, Driver};
use lockline::drivers::etcd::{Etcd, EtcdConfig};
use lockline::fence::etcd::FencedStore;
use lockline::line::{Bell, Claim, ClaimId, Mode, Place, Primitive, Standing, Who};
use lockline::{EngineUrl, ErrorKind, Guard, Locks, LossReason, Name, Ticket};
use lockline_testkit::engines;
use lockline_testkit::setup::{eventually, granted, queue_up, soon, until_waiting, within};
use rustix::process::Signal;

use cluster::Cluster;

/// Long enough for a new leader and a new connection, several times over.
const LEASE: Duration = Duration::from_secs(6);

/// Guards stay good for longer than their lease.
async fn stay_valid(guards: &[&Guard], why: &str) {
    let until = Instant::now() + LEASE * 3 / 2;
    while Instant::now() < until {
        for guard in guards {
            assert!(guard.is_valid(), "{why}: {:?}", guard.loss());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn stays_valid(guard: &Guard, why: &str) {
    stay_valid(&[guard], why).await;
}

/// Algorithms §3: a failover with the state kept: claims go on, grants resume.
async fn leader_killed() {
    let mut cluster = Cluster::start(3);
    let (ann, bob) = (cluster.client().await, cluster.client().await);
    let held = ann.mutex("m").lock().await.unwrap();
    let waiting = queue_up(&bob, "m", 1).await;
    let leader = cluster.leader().unwrap();
    cluster.kill(leader);
    stays_valid(&held, "the others go on").await;
    assert!(!waiting.is_finished());
    let token = held.fence();
    held.release().await.unwrap();
    let next = granted(waiting).await;
    assert!(next.fence() > token);
    cluster.up(leader);
    next.release().await.unwrap();
}

/// A member that is stopped keeps its connections, and answers nothing: its clients find another one in time.
async fn follower_paused() {
    let cluster = Cluster::start(3);
    let paused = (cluster.leader().unwrap() + 1) % 3;
    one_paused(&cluster, paused).await;
}

/// The same for the leader: the others elect another one.
async fn leader_paused() {
    let cluster = Cluster::start(3);
    let paused = cluster.leader().unwrap();
    one_paused(&cluster, paused).await;
}

async fn one_paused(cluster: &Cluster, paused: usize) {
    let crowd = cluster.crowd().await;
    cluster.signal(paused, Signal::STOP);
    let guards: Vec<_> = crowd.iter().map(|(held, _)| held).collect();
    stay_valid(&guards, "another member is asked").await;
    for (held, waiting) in crowd {
        held.release().await.unwrap();
        granted(waiting).await.release().await.unwrap();
    }
    cluster.signal(paused, Signal::CONT);
}

/// Unsure means not held: without a majority the holder loses in time and nobody gets in; afterwards everything goes on.
async fn quorum_lost_and_back() {
    let mut cluster = Cluster::start(3);
    let (ann, bob) = (cluster.client().await, cluster.client().await);
    let held = ann.mutex("m").lock().await.unwrap();
    let waiting = queue_up(&bob, "m", 1).await;
    let lost_two = [0, 1];
    let began = Instant::now();
    lost_two.into_iter().for_each(|nth| cluster.kill(nth));
    let lost = soon("the holder is told", held.lost()).await;
    assert_eq!(lost.reason, LossReason::Unreachable);
    assert!(began.elapsed() <= LEASE + Duration::from_millis(500), "{:?}", began.elapsed());
    assert!(!waiting.is_finished(), "nobody gets in without a majority");
    lost_two.into_iter().for_each(|nth| cluster.up(nth));
    cluster.until_led();
    let limit = LEASE * 4;
    let next = tokio::time::timeout(limit, waiting).await.expect("grants resume").unwrap();
    match next {
        Ok(next) => assert!(next.fence() > held.fence()),
        // It asked for a whole lease without an answer, and said so.
        Err(error) => {
            assert!(error.kind().is_transient(), "{error}");
            let next = tokio::time::timeout(limit, bob.mutex("m").lock()).await.expect("grants resume");
            assert!(next.unwrap().fence() > held.fence());
        }
    }
}

/// A majority that is stopped for less than a lease costs nobody anything.
async fn quorum_stopped_for_a_moment() {
    let cluster = Cluster::start(3);
    let (ann, bob) = (cluster.client().await, cluster.client().await);
    let held = ann.mutex("m").lock().await.unwrap();
    let waiting = queue_up(&bob, "m", 1).await;
    [1, 2].into_iter().for_each(|nth| cluster.signal(nth, Signal::STOP));
    tokio::time::sleep(LEASE / 4).await;
    [1, 2].into_iter().for_each(|nth| cluster.signal(nth, Signal::CONT));
    stays_valid(&held, "it was back in time").await;
    held.release().await.unwrap();
    granted(waiting).await.release().await.unwrap();
}

#[derive(Debug)]
struct Deaf;

impl BellBoard for Deaf {
    fn ring(&self, _: &Name, _: &Bell) {}
    fn acknowledged(&self, _: ClaimId, _: u32) {}
    fn look_now(&self, _: ClaimId) {}
    fn look_at_all(&self) {}
}

/// A claim that lapsed while the server stood still is asked for again, and granted again: what was to take the lapsed one away must
/// not take the new one, which somebody believes in.
async fn lapsed_claim_joins_again() {
    let cluster = Cluster::start(1);
    let config = EngineUrl::parse(&cluster.url()).and_then(EtcdConfig::from_url).unwrap();
    let etcd = Etcd::connect(config, Arc::new(Deaf)).await.unwrap();
    let claim = Claim {
        name: Name::new("m").unwrap(),
        id: ClaimId::random(),
        mode: Mode::Exclusive,
        lease: Duration::from_secs(3),
        who: Arc::new(Who { owner: "me".into(), host: "here".into(), pid: 7 }),
        identity: None,
        primitive: Primitive::Mutex,
    };
    let Standing::In { ticket } = etcd.join(&claim, true).await.unwrap() else {
        panic!("the line was empty")
    };
    cluster.signal(0, Signal::STOP);
    tokio::time::sleep(claim.lease * 7 / 6).await;
    let (joined, ()) = tokio::join!(etcd.join(&claim, true), async {
        // Until whoever takes the lapsed one away has given up, and before its lease has ended.
        tokio::time::sleep(Duration::from_millis(2700)).await;
        cluster.signal(0, Signal::CONT);
    });
    let again = match joined {
        Ok(standing) => standing,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
            soon("it is answered", etcd.join(&claim, true)).await.unwrap()
        }
    };
    let Standing::In { ticket: later } = again else { panic!("{again:?}") };
    assert!(later > ticket, "{later:?} after {ticket:?}");
    tokio::time::sleep(claim.lease / 4).await;
    let (name, id, lease) = (claim.name.clone(), claim.id, claim.lease);
    let place = Place { name, id, ticket: Some(later), lease, last: false };
    assert_eq!(etcd.renew(&[place]).await.unwrap(), [again]);
}

/// A server that is killed and started again has kept everything: claims go on, and watches are there again.
async fn server_restarted() {
    let mut cluster = Cluster::start(1);
    let (ann, bob) = (cluster.client().await, cluster.client().await);
    let held = ann.mutex("m").lock().await.unwrap();
    let waiting = queue_up(&bob, "m", 1).await;
    cluster.kill(0);
    tokio::time::sleep(Duration::from_millis(300)).await;
    cluster.up(0);
    cluster.until_led();
    stays_valid(&held, "the server kept it").await;
    let released = Instant::now();
    held.release().await.unwrap();
    granted(waiting).await.release().await.unwrap();
    assert!(released.elapsed() < Duration::from_secs(5));
    // An eviction reaches a process whose streams were opened again.
    let guard = bob.mutex("m").lock().await.unwrap();
    assert!(ann.evict("m", Ticket::new(guard.fence().token()), false).await.unwrap());
    assert_eq!(soon("it is told", guard.lost()).await.reason, LossReason::Evicted);
}

/// Compacting the history away under those who wait changes nothing for them.
async fn compacted_while_waiting() {
    let cluster = Cluster::start(1);
    let (ann, bob) = (cluster.client().await, cluster.client().await);
    let held = ann.mutex("m").lock().await.unwrap();
    let waiting = queue_up(&bob, "m", 1).await;
    for nth in 0..20 {
        cluster.ctl(&["put", "noise", &nth.to_string()]);
    }
    let revision = cluster.ctl(&["get", "noise", "-w", "json"]);
    let revision: serde_json::Value = serde_json::from_str(&revision).unwrap();
    cluster.ctl(&["compact", &revision["header"]["revision"].to_string()]);
    held.release().await.unwrap();
    let next = granted(waiting).await;
    assert!(next.is_valid());
}

/// kill -9 of a member, again and again, among clients that lock: nobody meets another inside.
async fn members_killed_among_lockers() {
    let mut cluster = Cluster::start(3);
    let inside = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let newest = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let until = Instant::now() + Duration::from_secs(9);
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let locks = cluster.client().await;
        let (inside, newest) = (inside.clone(), newest.clone());
        tasks.push(tokio::spawn(async move {
            let mut turns = 0;
            while Instant::now() < until {
                let Ok(guard) = locks.mutex("m").lock().await else { continue };
                use std::sync::atomic::Ordering::SeqCst;
                assert_eq!(inside.fetch_add(1, SeqCst), 0, "two inside");
                assert!(newest.swap(guard.fence().token(), SeqCst) < guard.fence().token());
                let valid = guard.is_valid();
                inside.fetch_sub(1, SeqCst);
                turns += u32::from(valid);
                drop(guard);
            }
            turns
        }));
    }
    for nth in [0, 1, 2] {
        tokio::time::sleep(Duration::from_secs(1)).await;
        cluster.kill(nth);
        tokio::time::sleep(Duration::from_millis(700)).await;
        cluster.up(nth);
        cluster.until_led();
    }
    for task in tasks {
        let turns = tokio::time::timeout(Duration::from_secs(60), task).await.unwrap().unwrap();
        assert!(turns > 0, "everybody had a turn");
    }
}

/// Logins, roles, and what a wrong one says, which never contains the password.
async fn logins_and_roles() {
    let cluster = Cluster::start(1);
    for args in [
        &["user", "add", "root:r00t"][..],
        &["user", "grant-role", "root", "root"],
        &["role", "add", "locker"],
        &["role", "grant-permission", "locker", "--prefix=true", "readwrite", "lock/"],
        &["user", "add", "ann:c4nary"],
        &["user", "grant-role", "ann", "locker"],
        &["auth", "enable"],
    ] {
        cluster.ctl(args);
    }
    let host = format!("127.0.0.1:{}", cluster.members[0].clients);
    let failure = async |url: String| {
        let failed = match Locks::connect(&url).await {
            Ok(locks) => locks.mutex("m").lock().await.map(drop),
            Err(error) => Err(error),
        };
        failed.unwrap_err()
    };
    for url in [
        format!("etcd://ann:c4nary-wrong@{host}?space=lock/"),
        format!("etcd://nobody:c4nary@{host}?space=lock/"),
        format!("etcd://{host}?space=lock/"),
        format!("etcd://ann:c4nary@{host}?space=other/"),
    ] {
        let error = failure(url.clone()).await;
        assert_eq!(error.kind(), ErrorKind::Denied, "{url}: {error}");
        assert!(!format!("{error} {error:?}").contains("c4nary"), "{error:?}");
    }
    let url = format!("etcd://ann:c4nary@{host}?space=lock/");
    let (ann, other) = (Locks::connect(&url).await.unwrap(), Locks::connect(&url).await.unwrap());
    let held = ann.mutex("m").lock().await.unwrap();
    let waiting = queue_up(&other, "m", 1).await;
    assert!(other.evict("m", Ticket::new(held.fence().token()), false).await.unwrap());
    assert_eq!(soon("it is told", held.lost()).await.reason, LossReason::Evicted);
    granted(waiting).await.release().await.unwrap();
    let shared = ann.shared_owner("job", "job-7").mutex("s").lock().await.unwrap();
    assert_eq!(other.shared_owner("job", "job-7").mutex("s").lock().await.unwrap().fence(), shared.fence());
}

/// A full database takes no new claims, but lets go.
async fn full_server_lets_go() {
    let cluster = Cluster::start(1);
    let locks = cluster.client_with(Duration::from_secs(30)).await;
    let held = locks.mutex("m").lock().await.unwrap();
    let other = cluster.client_with(Duration::from_secs(30)).await;
    let waiting = queue_up(&other, "m", 1).await;
    // What a server does by itself when its quota is used up.
    let raised = Command::new("curl")
        .args(["-s", "-d", r#"{"action":1,"alarm":1,"memberID":"0"}"#])
        .arg(format!("http://127.0.0.1:{}/v3/maintenance/alarm", cluster.members[0].clients))
        .output()
        .unwrap();
    assert!(raised.status.success());
    eventually("the alarm is raised", async || cluster.ctl(&["alarm", "list"]).contains("NOSPACE")).await;
    let refused = locks.mutex("new").try_lock().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Full, "{refused}");
    held.release().await.unwrap();
    let next = granted(waiting).await;
    assert!(locks.evict("m", Ticket::new(next.fence().token()), true).await.unwrap(), "also then");
    cluster.ctl(&["alarm", "disarm"]);
    drop(soon("new ones again", locks.mutex("new").lock()).await.unwrap());
}

/// A write that carries the check: done while the lock is held, refused afterwards.
async fn fenced_writes() {
    let cluster = Cluster::start(1);
    let (ann, bob) = (cluster.client().await, cluster.client().await);
    let store = FencedStore::connect(&cluster.url()).await.unwrap();
    let old = ann.mutex("m").lock().await.unwrap();
    store.put(&old, "data", "ann").await.unwrap();
    let proof = store.proof(&old).await.unwrap();
    assert_eq!(proof.create_revision.cast_unsigned(), old.fence().token());
    assert!(proof.key.starts_with(b"m/"));
    let waiting = queue_up(&bob, "m", 1).await;
    assert!(bob.evict("m", Ticket::new(old.fence().token()), true).await.unwrap());
    let next = granted(waiting).await;
    store.put(&next, "data", "bob").await.unwrap();
    let refused = store.put(&old, "data", "ann again").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Lost, "{refused}");
    assert_eq!(cluster.ctl(&["get", "data", "--print-value-only"]).trim(), "bob");
}

/// The line that `etcdctl lock` stands in is the same line, and its keys are where its documentation says.
async fn the_layout_is_that_of_concurrency() {
    let cluster = Cluster::start(1);
    let locks = cluster.client().await;
    let held = locks.mutex("a/b").lock().await.unwrap();
    let keys = cluster.ctl(&["get", "--prefix", "a/b/", "--keys-only"]);
    let key = keys.trim();
    let suffix = key.strip_prefix("a/b/").unwrap();
    assert!(i64::from_str_radix(suffix, 16).is_ok(), "{key}");
    let leases = cluster.ctl(&["lease", "list"]);
    assert!(leases.contains(suffix), "{leases}");
    // A lock whose name begins like another's is another lock.
    let outer = soon("it is free", locks.mutex("a").lock()).await.unwrap();
    assert!(locks.mutex("a").try_lock().await.unwrap().is_none());
    until_waiting(&locks, "a", 0).await;
    drop((held, outer));
    within(Duration::from_secs(5), "nothing is left", async || {
        cluster.ctl(&["get", "--prefix", "", "--keys-only"]).trim().is_empty()
    })
    .await;
}

/// TLS with a certificate authority of one's own, and a client certificate that the server demands.
#[cfg(feature = "etcd-tls")]
async fn tls_and_client_certificates() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).display().to_string();
    let openssl = |args: &[&str]| {
        let done = Command::new("openssl").args(args).current_dir(dir.path()).output().unwrap();
        assert!(done.status.success(), "{args:?}: {done:?}");
    };
    let new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];
    let ca = ["req", "-x509", "-days", "2", "-subj", "/CN=test", "-keyout", "ca.key", "-out", "ca.pem"];
    openssl(&[&ca[..], &new_key].concat());
    std::fs::write(
        dir.path().join("leaf.cnf"),
        "subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth,clientAuth\n",
    )
    .unwrap();
    for leaf in ["server", "client"] {
        let (key, request, certificate) =
            (format!("{leaf}.key"), format!("{leaf}.csr"), format!("{leaf}.pem"));
        let subject = format!("/CN={leaf}");
        openssl(&[&["req", "-subj", &subject, "-keyout", &key, "-out", &request], &new_key[..]].concat());
        let sign = ["x509", "-req", "-days", "2", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"];
        openssl(&[&sign[..], &["-extfile", "leaf.cnf", "-in", &request, "-out", &certificate]].concat());
    }
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (clients, peers) = (format!("https://127.0.0.1:{port}"), "http://127.0.0.1:0");
    let mut server = Command::new("etcd")
        .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
        .args(["--listen-peer-urls", peers, "--logger", "zap", "--unsafe-no-fsync"])
        .args(["--cert-file", &file("server.pem"), "--key-file", &file("server.key")])
        .args(["--client-cert-auth", "--trusted-ca-file", &file("ca.pem"), "--data-dir", &file("data")])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let trusted = format!("etcds://127.0.0.1:{port}?ca={}", file("ca.pem"));
    let whole = format!("{trusted}&cert={}&key={}", file("client.pem"), file("client.key"));
    eventually("it answers", async || Locks::connect(&whole).await.is_ok()).await;
    let (ann, bob) = (Locks::connect(&whole).await.unwrap(), Locks::connect(&whole).await.unwrap());
    let held = ann.mutex("m").lock().await.unwrap();
    let waiting = queue_up(&bob, "m", 1).await;
    held.release().await.unwrap();
    granted(waiting).await.release().await.unwrap();
    // No silent downgrade, and no stranger: without a certificate, without trust, without TLS.
    for url in [trusted, format!("etcds://127.0.0.1:{port}"), format!("etcd://127.0.0.1:{port}")] {
        let error = Locks::connect(&url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{url}: {error}");
    }
    server.kill().unwrap();
    server.wait().unwrap();
}

fn trial<F: Future<Output = ()> + 'static>(name: &str, behaviour: fn() -> F) -> Trial {
    Trial::test(name, move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(async {
            tokio::time::timeout(Duration::from_secs(120), behaviour()).await.expect("the test was stuck");
        });
        Ok(())
    })
}

fn main() -> ExitCode {
    let left_out = engines::required_url("etcd-cluster").is_none();
    let trials = vec![
        trial("leader_killed", leader_killed),
        trial("leader_paused", leader_paused),
        trial("follower_paused", follower_paused),
        trial("quorum_lost_and_back", quorum_lost_and_back),
        trial("quorum_stopped_for_a_moment", quorum_stopped_for_a_moment),
        trial("lapsed_claim_joins_again", lapsed_claim_joins_again),
        trial("server_restarted", server_restarted),
        trial("compacted_while_waiting", compacted_while_waiting),
        trial("members_killed_among_lockers", members_killed_among_lockers),
        trial("logins_and_roles", logins_and_roles),
        trial("full_server_lets_go", full_server_lets_go),
        trial("fenced_writes", fenced_writes),
        trial("the_layout_is_that_of_concurrency", the_layout_is_that_of_concurrency),
        #[cfg(feature = "etcd-tls")]
        trial("tls_and_client_certificates", tls_and_client_certificates),
    ];
    let trials = trials.into_iter().map(|trial| trial.with_ignored_flag(left_out)).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
