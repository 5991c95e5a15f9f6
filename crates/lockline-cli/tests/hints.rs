//! What people are expected to run into, provoked for real: each has its exit code, one line that says what is wrong, and one that says
//! what to do about it.

#![cfg(all(feature = "sqlite", feature = "redis", feature = "postgres", feature = "mysql"))]
#![cfg(all(feature = "zookeeper-tls", feature = "etcd-tls"))]
#![allow(clippy::unwrap_used)]

mod common;
use common::{Lab, Said, address_of, assert_hint, port_of, said, started_by};
use std::net::TcpListener;
use std::process::Stdio;

/// Asks for a lock on an engine, without waiting.
fn ask(lab: &Lab, on: &str) -> Said {
    lab.say(&["run", "-n", "--on", on, "x", "--", "echo", "no"])
}

/// The same where an address may have a password: after `--on` it would be warned of.
fn ask_secretly(lab: &Lab, on: &str) -> Said {
    let mut command = lab.command(&["run", "-n", "x", "--", "echo", "no"]);
    said(command.env("LOCKLINE_URL", on).output().unwrap())
}

/// The same of many engines at once: most of it is waiting.
fn ask_all(cases: &[(String, i32, &str)]) {
    let lab = &Lab::new();
    std::thread::scope(|scope| {
        for case in cases {
            scope.spawn(move || {
                let said = ask_secretly(lab, &case.0);
                assert_hint(&said, case.1, case.2, case);
                assert!(!said.err.contains("c4nary"), "{case:?}: {said:?}");
            });
        }
    });
}

#[test]
fn addresses_that_make_no_sense() {
    let lab = Lab::new();
    for on in [
        "nowhere",
        "redsi://h",
        "redis://",
        "redis://h:x",
        "redis://h:99999",
        "redis://a b",
        "redis://[::1",
        "redis://h/x",
        "redis://h?replicas=many",
        "redis://h?speed=fast",
        "redis://h?restart_guard=maybe",
        "redis://h?layout=other",
        "redis://h?ca=/ca",
        "rediss://h?ca=/no/such/file",
        "rediss://h?cert=/cert",
        "redis-sentinel://h",
        "redis-cluster://h/3",
        "valkey://h?space=",
        "redlock://a,b",
        "postgres://h/db",
        "postgres://me@h",
        "postgres:///db",
        "postgresql://me@h:x/db",
        "postgres://me@h/db?sslmode=maybe",
        "postgres://me@h/db?sslmode=require&sslrootcert=/no/such/file",
        "postgres://me@h/db?connections=9",
        "postgres://me@h/db?failover=maybe",
        "postgres://me@h/db?speed=fast",
        "mysql://h/db",
        "mysql://me@h",
        "mysql://me@h:x/db",
        "mysql://me@h/db?ssl-mode=maybe",
        "mysql://me@h/db?ssl-ca=/no/such/file",
        "mariadb://me@h/db?connections=many",
        "mariadb://me@h/db?speed=fast",
        "zookeeper://",
        "zookeeper://h:x",
        "zookeeper://h?session=never",
        "zookeeper://h?speed=fast",
        "zookeeper://h?tls=on&ca=/no/such/file",
        "etcd://",
        "etcd://h:x",
        "etcd://h?speed=fast",
        "etcds://h?ca=/no/such/file",
        "sqlite://host/x",
        "sqlite:/x?thread=other",
        "sqlite:/x?owner=nobody",
        "sqlite:/x?unproven_file_system=maybe",
        "sqlite:/x?speed=fast",
        "memory:?lease=1ms",
        "memory:?lease=soon",
        "memory:?prefix=%00",
        "@/no/such/file",
    ] {
        assert_hint(&ask(&lab, on), 64, "", &on);
    }
}

#[test]
fn servers_that_are_not_there() {
    let hosts = ["127.0.0.1:1", "no-such-host.invalid"];
    let cases = hosts.iter().flat_map(|host| {
        [
            format!("redis://{host}"),
            format!("rediss://{host}"),
            format!("redis-sentinel://{host}/main"),
            format!("redis-cluster://{host}"),
            format!("redis://{host}?layout=plain"),
            format!("postgres://me@{host}/db"),
            format!("mysql://me@{host}/db"),
            format!("zookeeper://{host}"),
            format!("etcd://{host}"),
        ]
    });
    let redlock = "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3".to_owned();
    let cases: Vec<_> = cases.chain([redlock]).map(|on| (on, 69, "")).collect();
    ask_all(&cases);
}

#[test]
fn servers_that_do_not_answer() {
    // The kernel takes connections for it.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = silent.local_addr().unwrap();
    let cases = [
        format!("redis://{host}"),
        format!("rediss://{host}"),
        format!("redis-sentinel://{host}/main"),
        format!("redis-cluster://{host}"),
        format!("postgres://me@{host}/db"),
        format!("postgres://me@{host}/db?sslmode=require"),
        format!("mysql://me@{host}/db"),
        format!("zookeeper://{host}"),
        format!("etcd://{host}"),
    ];
    ask_all(&cases.map(|on| (on, 69, "")));
}

/// A server of this run, and how it refuses: what follows the scheme, the exit code, and what is said. Nothing of it is a secret that may
/// be repeated.
fn refused_by(engine: &str, cases: &[(&str, i32, &str)]) {
    let Some(port) = address_of(engine).as_deref().map(port_of) else { return };
    let host = format!("127.0.0.1:{port}");
    let cases: Vec<_> =
        cases.iter().map(|(on, code, says)| (on.replace("HOST", &host), *code, *says)).collect();
    ask_all(&cases);
}

#[test]
fn redis_that_lets_nobody_in() {
    refused_by(
        "redis",
        &[
            ("redis://me:c4nary@HOST", 77, "refused"),
            ("rediss://HOST", 64, "plain text"),
            ("redis://HOST/99", 64, "no database of this number"),
            ("redis://HOST?replicas=2&restart_guard=off", 69, "0 of 2"),
            ("redis-cluster://HOST", 64, "cluster"),
            ("redis-sentinel://HOST/main", 64, "no Sentinel"),
        ],
    );
}

#[test]
fn postgres_that_lets_nobody_in() {
    refused_by(
        "postgres",
        &[
            ("postgres://nobody-there:c4nary@HOST/postgres", 77, "refused"),
            ("postgres://postgres@HOST/no-such-database", 64, ""),
            ("postgres://postgres@HOST/postgres?sslmode=require", 64, "does not speak TLS"),
            ("mysql://postgres@HOST/postgres", 69, ""),
        ],
    );
}

#[test]
fn mysql_that_lets_nobody_in() {
    refused_by(
        "mysql",
        &[
            ("mysql://nobody-there:c4nary@HOST/locks", 77, "refused"),
            ("mysql://root:c4nary@HOST/locks", 77, "refused"),
            ("mysql://root@HOST/no-such-database", 64, ""),
            ("mysql://root@HOST/locks?ssl-mode=required", 64, "does not speak TLS"),
            ("postgres://root@HOST/locks", 69, ""),
        ],
    );
}

#[test]
fn etcd_and_zookeeper_that_let_nobody_in() {
    refused_by(
        "etcd",
        &[("etcd://me:c4nary@HOST", 77, ""), ("etcds://HOST", 69, ""), ("redis://HOST", 69, "")],
    );
    refused_by("zookeeper", &[("zookeepers://HOST", 64, "ca="), ("etcd://HOST", 69, "")]);
}

#[test]
fn files_that_cannot_be_used() {
    let lab = Lab::new();
    let garbage = lab.state.path().join("garbage.db");
    std::fs::write(&garbage, "this was never a lock file, and is long enough to be looked at\n".repeat(99))
        .unwrap();
    for (on, code) in [
        ("sqlite:/proc/no-such-folder/x".to_owned(), 64),
        ("sqlite:/dev/null/x".to_owned(), 64),
        ("sqlite:/".to_owned(), 64),
        ("sqlite:/proc/version".to_owned(), 69),
        (format!("sqlite:{}", garbage.display()), 78),
    ] {
        assert_hint(&ask(&lab, &on), code, "", &on);
    }
}

#[test]
fn a_lock_file_that_was_removed() {
    let lab = Lab::new();
    let held = lab.hold(&["--lease", "2s"], "x", "echo in; sleep 60");
    std::fs::remove_file(lab.file()).unwrap();
    assert_hint(&held.end(), 79, "lost the lock", &"a removed file");
}

#[test]
fn limits_of_the_machine() {
    let lab = Lab::new();
    for (limit, code) in [("ulimit -n 8", 71), ("ulimit -n 12", 71)] {
        let script = format!("{limit}; exec \"$@\"");
        let mut command =
            started_by("sh", &["-c", &script, "sh"], &lab.bare_command(&["run", "x", "--", "echo", "no"]));
        assert_hint(&said(command.stdin(Stdio::null()).output().unwrap()), code, "", &limit);
    }
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let child = lab.command(&["completions", "bash"]).stdout(full).spawn().unwrap();
    assert_hint(&common::ended(child), 74, "standard output", &"a full disk");
}

#[test]
fn what_cannot_be_run() {
    let lab = Lab::new();
    let on = ["--on", "memory:"];
    let run = |command: &[&str]| lab.say(&[&["run"], &on[..], &["x", "--"], command].concat());
    assert_hint(&run(&["/no/such/command"]), 127, "not found", &"no such command");
    assert_hint(&run(&["no-such-command-at-all"]), 127, "not found", &"no such command");
    assert_hint(&run(&["/etc/passwd"]), 126, "cannot be executed", &"no program");
}

#[test]
fn locks_that_others_have() {
    let lab = Lab::new();
    let held = lab.hold_simply("x");
    let run = |flags: &[&str]| lab.say(&[&["run"], flags, &["x", "--", "echo", "no"]].concat());
    assert_hint(&run(&["-n"]), 75, "held by", &"-n");
    let late = run(&["-w", "0.2"]);
    assert_hint(&late, 75, "held by", &"-w");
    assert!(!late.err.contains("without -n"), "{late:?}");
    assert_hint(&run(&["-n", "-E", "9"]), 9, "held by", &"-E");
    assert_hint(&run(&["-s", "-n"]), 75, "held by", &"-s");
    assert_hint(&lab.say(&["evict", "x", "--token", "1"]), 1, "no claim", &"a wrong ticket");
    assert_hint(&lab.say(&["evict", "y", "--token", "1"]), 1, "no claim", &"nobody's lock");
    held.let_go();
    let said = lab.say(&["run", "--max-hold", "300ms", "x", "--", "sleep", "60"]);
    assert_hint(&said, 79, "max_hold", &"--max-hold");
}

#[test]
fn addresses_that_are_kept_elsewhere() {
    let lab = Lab::new();
    let bad = lab.state.path().join("bad.toml");
    std::fs::write(&bad, "url: redis://h\n").unwrap();
    let bad = bad.to_str().unwrap();
    for (variable, value) in [
        ("LOCKLINE_URL_FILE", "/no/such/file"),
        ("LOCKLINE_CONFIG", "/no/such/file"),
        ("LOCKLINE_CONFIG", bad),
        ("LOCKLINE_URL", "redsi://h"),
    ] {
        let mut command = lab.command(&["run", "x", "--", "echo", "no"]);
        let said = said(command.env_remove("LOCKLINE_URL").env(variable, value).output().unwrap());
        assert_hint(&said, 64, "", &(variable, value));
    }
}
