//! Slots of a Redis cluster that move from node to node while their locks are held, if this run includes a cluster. Each test
//! starts a cluster of its own.
//!
//! A line of one claim is one key, and one with waiters four; a move takes them one by one. Somebody else asks for *these* locks
//! all the time: a line of which a part is elsewhere must never look free.
// A program with a harness of its own is not what clippy takes for a test.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use libtest_mimic::Arguments;
use lockline::{Guard, Locks};
use lockline_testkit::redis_servers::{self as servers, Server};
use lockline_testkit::server::{block_on as run, with_own_servers as test};
use lockline_testkit::setup::{until_waiting, within};

const LEASE: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let trials = vec![
        test("redis-cluster", "each_step_of_a_move_has_one_holder", each_step_of_a_move_has_one_holder),
        test("redis-cluster", "stock_tool_moves_held_locks", stock_tool_moves_held_locks),
        test("redis-cluster", "stock_tool_moves_replicated_locks", stock_tool_moves_replicated_locks),
        test("redis-cluster", "failover_by_hand_keeps_held_locks", failover_by_hand_keeps_held_locks),
    ];
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(1);
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn hosts(servers: &[Server]) -> String {
    servers.iter().map(|server| format!("127.0.0.1:{}", server.port)).collect::<Vec<_>>().join(",")
}

async fn client(url: &str, lease: Duration) -> Locks {
    Locks::builder().lease(lease).connect(url).await.unwrap()
}

fn id_of(node: &Server) -> String {
    node.cli(&["CLUSTER", "MYID"]).unwrap()
}

/// The name of the lock whose only claim is in this key: `*TICKET ID LEASE LENGTH NAME …`, or the same with a renewal's numbers.
fn name_in(root: &str) -> Option<String> {
    let words: Vec<&str> = root.splitn(if root.starts_with('*') { 5 } else { 9 }, ' ').collect();
    let [.., length, rest] = words.as_slice() else { return None };
    rest.get(..length.parse().ok()?).map(str::to_owned)
}

/// Every order of these.
fn orders(of: usize) -> Vec<Vec<usize>> {
    if of == 0 {
        return vec![Vec::new()];
    }
    let shorter = orders(of - 1);
    let with_last = |order: &Vec<usize>| {
        let order = order.clone();
        (0..of).map(move |at| {
            let mut order = order.clone();
            order.insert(at, of - 1);
            order
        })
    };
    shorter.iter().flat_map(with_last).collect()
}

/// The keys of a slot, at this node.
fn keys_in(node: &Server, slot: u16) -> Vec<String> {
    let keys = node.cli(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "100"]).unwrap();
    keys.lines().filter(|key| !key.is_empty()).map(str::to_owned).collect()
}

/// Locks that are held, each in a slot of its own that one node keeps.
async fn held_at(
    node: &Server,
    locks: &Locks,
    slots: std::ops::Range<u16>,
    count: usize,
) -> Vec<(u16, Guard)> {
    let mut guards = Vec::new();
    let mut found: Vec<(u16, String)> = Vec::new();
    for round in 0.. {
        assert!(round < 60, "too few names are in these slots");
        for n in 0..100 {
            guards.push(locks.mutex(format!("{round}/{n}")).lock().await.unwrap());
        }
        found.clear();
        for slot in slots.clone() {
            let keys = keys_in(node, slot);
            if let [key] = keys.as_slice()
                && let Some(name) = name_in(&node.cli(&["GET", key]).unwrap())
            {
                found.push((slot, name));
            }
        }
        if found.len() >= count {
            break;
        }
    }
    found.truncate(count);
    let mut held = Vec::new();
    for guard in guards {
        match found.iter().find(|(_, name)| name == guard.name()) {
            Some((slot, _)) => held.push((*slot, guard)),
            None => guard.release().await.unwrap(),
        }
    }
    assert_eq!(held.len(), count);
    held
}

/// Somebody else asks: busy, or nobody can tell; never theirs.
async fn asks_in_vain(other: &Locks, name: &str, when: &str) {
    match other.mutex(name).try_lock().await {
        Ok(None) => {}
        Ok(Some(_)) => panic!("{name}: two holders {when}"),
        Err(error) => assert!(error.kind().is_transient(), "{name} {when}: {error:?}"),
    }
}

/// Every key of a line is moved in every order, and after each step somebody else asks for the lock.
fn each_step_of_a_move_has_one_holder(home: &Path) {
    run(async {
        let nodes = servers::cluster(home, servers::PATIENT).unwrap();
        let url = format!("redis-cluster://{}?restart_guard=off", hosts(&nodes[..1]));
        // Nobody renews in time, so that what is not told is not found out by a renewal either; and one who does.
        let (one, other, third) =
            (client(&url, 6 * LEASE).await, client(&url, LEASE).await, client(&url, 6 * LEASE).await);
        let orders = orders(4);
        let held = held_at(&nodes[0], &one, 0..5461, orders.len() + 1).await;
        let (from, to) = (&nodes[0], &nodes[1]);
        let ids = [id_of(from), id_of(to)];
        let asking = |when: String| {
            let names: Vec<_> = held.iter().map(|(_, guard)| guard.name().to_string()).collect();
            let other = &other;
            async move {
                let all: Vec<_> = names
                    .into_iter()
                    .map(|name| {
                        let (other, when) = (other.clone(), when.clone());
                        tokio::spawn(async move { asks_in_vain(&other, &name, &when).await })
                    })
                    .collect();
                for one in all {
                    one.await.unwrap();
                }
            }
        };
        // All but the first have somebody waiting, and so four keys.
        let mut waiting = Vec::new();
        for (_, guard) in &held[1..] {
            let mutex = third.mutex(guard.name());
            waiting.push(tokio::spawn(async move { mutex.lock().await }));
            until_waiting(&one, guard.name(), 1).await;
        }
        for (slot, _) in &held {
            to.cli(&["CLUSTER", "SETSLOT", &slot.to_string(), "IMPORTING", &ids[0]]).unwrap();
            from.cli(&["CLUSTER", "SETSLOT", &slot.to_string(), "MIGRATING", &ids[1]]).unwrap();
        }
        asking("before any key has moved".into()).await;
        let mut keys: Vec<Vec<String>> = held.iter().map(|(slot, _)| keys_in(from, *slot)).collect();
        keys.iter_mut().for_each(|keys| keys.sort_unstable());
        for step in 0..4 {
            for (n, keys) in keys.iter().enumerate() {
                let key = match n {
                    0 => keys.get(step),
                    n => Some(&keys[orders[n - 1][step]]),
                };
                let Some(key) = key else { continue };
                assert!(n == 0 || keys.len() == 4, "{keys:?}");
                let port = to.port.to_string();
                let moved = from.cli(&["MIGRATE", "127.0.0.1", &port, key, "0", "3000"]).unwrap();
                assert_eq!(moved, "OK", "{key}: what was written at both nodes is in the tool's way");
            }
            asking(format!("with {} keys moved", step + 1)).await;
        }
        for (slot, _) in &held {
            assert_eq!(keys_in(from, *slot), Vec::<String>::new(), "nobody writes what has moved");
            to.cli(&["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &ids[1]]).unwrap();
        }
        asking("when one node knows".into()).await;
        for (slot, _) in &held {
            for node in [from, &nodes[2]] {
                node.cli(&["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &ids[1]]).unwrap();
            }
        }
        asking("when all know".into()).await;
        // Each is where it was, with who waits for it.
        for (_, guard) in held {
            assert!(guard.is_valid(), "{}: {:?}", guard.name(), guard.loss());
            guard.release().await.unwrap();
        }
        for waiter in waiting {
            let next = tokio::time::timeout(LEASE, waiter).await.expect("its turn comes").unwrap().unwrap();
            next.release().await.unwrap();
        }
    });
}

/// How many slots the tool moves, and how many locks are in them.
const SLOTS: u16 = 150;
const HELD: usize = 16;

/// `redis-cli --cluster reshard`, while many try for the locks that move.
fn moves_held_locks(home: &Path, options: &str, lease: Duration) {
    run(async {
        let nodes = servers::cluster(home, servers::PATIENT).unwrap();
        let url = format!("redis-cluster://{}?restart_guard=off{options}", hosts(&nodes[..1]));
        let (one, other) = (client(&url, lease).await, client(&url, lease).await);
        let held = held_at(&nodes[0], &one, 0..SLOTS, HELD).await;
        let (stop, second, asked) =
            (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let names: Vec<String> = held.iter().map(|(_, guard)| guard.name().to_string()).collect();
        let tasks: Vec<_> = (0..24)
            .map(|me| {
                let (other, names) = (other.clone(), names.clone());
                let (stop, second, asked) = (stop.clone(), second.clone(), asked.clone());
                tokio::spawn(async move {
                    for turn in 0.. {
                        if stop.load(Ordering::SeqCst) {
                            return;
                        }
                        match other.mutex(&names[(me + turn) % names.len()]).try_lock().await {
                            Ok(Some(_)) => drop(second.fetch_add(1, Ordering::SeqCst)),
                            Ok(None) => drop(asked.fetch_add(1, Ordering::SeqCst)),
                            Err(error) => assert!(error.kind().is_transient(), "{error:?}"),
                        }
                        tokio::time::sleep(Duration::from_millis(2)).await;
                    }
                })
            })
            .collect();
        let connected = connections(&nodes[..2]);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let lasting: Vec<_> =
            connections(&nodes[..2]).into_iter().filter(|one| connected.contains(one)).collect();
        // To and fro, for longer than leases last: what is not renewed while slots move is lost.
        let (start, mut moves) = (Instant::now(), 0);
        while start.elapsed() < lease * 2 || moves % 2 == 0 {
            let (from, to) = if moves % 2 == 0 { (0, 1) } else { (1, 0) };
            reshard(&nodes[from], &nodes[to]).await;
            moves += 1;
        }
        assert_eq!(keys_in(&nodes[1], held[0].0).len(), 1, "it has moved");
        let still = connections(&nodes[..2]);
        let gone: Vec<_> = lasting.iter().filter(|one| !still.contains(one)).collect();
        assert!(gone.is_empty(), "connections were made anew with the slots that moved: {gone:?}");
        // Longer than a lease: each of them is renewed where it is now.
        tokio::time::sleep(lease + lease / 5).await;
        stop.store(true, Ordering::SeqCst);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(second.load(Ordering::SeqCst), 0, "two holders in {moves} moves");
        assert!(asked.load(Ordering::SeqCst) > 0);
        for (_, guard) in held {
            assert!(guard.is_valid(), "{}: {:?} after {moves} moves", guard.name(), guard.loss());
            guard.release().await.unwrap();
        }
    });
}

/// Who is connected to these nodes: the node, and its number for the connection.
fn connections(nodes: &[Server]) -> Vec<(u16, String)> {
    let of = |node: &Server| {
        let list = node.cli(&["CLIENT", "LIST"]).unwrap();
        let ids = list.lines().filter_map(|line| line.split(' ').next().map(str::to_owned));
        ids.map(|id| (node.port, id)).collect::<Vec<_>>()
    };
    nodes.iter().flat_map(of).collect()
}

/// Moves the first slots of one node to another.
async fn reshard(from: &Server, to: &Server) {
    let seed = format!("127.0.0.1:{}", from.port);
    let mut tool = Command::new("redis-cli");
    tool.args(["--cluster", "reshard", &seed, "--cluster-yes", "--cluster-slots", &SLOTS.to_string()])
        .args(["--cluster-from", &id_of(from), "--cluster-to", &id_of(to)]);
    // The nodes have to agree before it begins.
    let agree = async || {
        let check = Command::new("redis-cli").args(["--cluster", "check", &seed]).output().unwrap();
        check.status.success()
    };
    within(LEASE, "the nodes agree", agree).await;
    let output = tokio::task::spawn_blocking(move || tool.output()).await.unwrap().unwrap();
    let says = [&output.stdout, &output.stderr].map(|text| last_of(text)).join("\n");
    assert!(output.status.success(), "the tool failed: {says}");
}

/// The end of what the tool says.
fn last_of(output: &[u8]) -> String {
    let lines: Vec<String> = String::from_utf8_lossy(output).lines().map(str::to_owned).collect();
    lines[lines.len().saturating_sub(6)..].join("\n")
}

fn stock_tool_moves_held_locks(home: &Path) {
    moves_held_locks(home, "", LEASE);
}

/// With a lease that is shorter than the move takes.
fn stock_tool_moves_replicated_locks(home: &Path) {
    moves_held_locks(home, "&replicas=all", Duration::from_secs(3));
}

/// `CLUSTER FAILOVER`: the replica has everything, so what is held stays held; the guard holds off everybody new, there only.
fn failover_by_hand_keeps_held_locks(home: &Path) {
    run(async {
        let nodes = servers::cluster(home, servers::PATIENT).unwrap();
        let off = format!("redis-cluster://{}?restart_guard=off", hosts(&nodes[..1]));
        let url = format!("redis-cluster://{}?replicas=all&{GUARD}", hosts(&nodes[..1]));
        let (one, other) = (client(&url, LEASE).await, client(&url, LEASE).await);
        // Servers that were just started are guarded, too.
        within(3 * LEASE, "the first guard ends", async || {
            matches!(one.mutex("x").try_lock().await, Ok(Some(_)))
        })
        .await;
        let held = held_at(&nodes[0], &one, 0..5461, 8).await;
        let answer = nodes[3].cli(&["CLUSTER", "FAILOVER"]).unwrap();
        assert_eq!(answer, "OK");
        let is_primary = async || nodes[3].cli(&["ROLE"]).is_ok_and(|role| role.starts_with("master"));
        within(LEASE, "the replica is promoted", is_primary).await;
        let promoted = Instant::now();
        let held_names: Vec<_> = held.iter().map(|(_, guard)| guard.name().to_string()).collect();
        while promoted.elapsed() < LEASE + LEASE / 5 {
            for name in &held_names {
                asks_in_vain(&other, name, "after a failover by hand").await;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        for (_, guard) in held {
            assert!(guard.is_valid(), "{}: {:?}", guard.name(), guard.loss());
            guard.release().await.unwrap();
        }
        let free = client(&off, LEASE).await;
        assert!(free.mutex("elsewhere").try_lock().await.unwrap().is_some());
    });
}

const GUARD: &str = "max_lease=10s&restart_guard=10s";
