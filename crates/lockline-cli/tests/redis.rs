//! On a real Redis server, started by each test on a port of its own.

#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used)]

mod common;
use common::{Lab, until};
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

struct Redis {
    server: Child,
    port: u16,
}

impl Redis {
    fn start(options: &[&str]) -> Redis {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let server = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .args(options)
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        until("the server listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Redis { server, port }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Nobody holds it: what is missing are replicas, and whoever waits longer does not get them.
#[test]
fn a_wait_that_ends_for_want_of_replicas_says_so() {
    let lab = Lab::new();
    let redis = Redis::start(&[]);
    let on = format!("redis://127.0.0.1:{}?replicas=2&restart_guard=off", redis.port);
    for flags in [&["-w", "1.5"][..], &["--wait", "1500ms", "-E", "9"], &["-n"], &["--lease", "1s"]] {
        let said = lab.say(&[&["run", "--on", &on], flags, &["x", "--", "echo", "no"]].concat());
        assert_eq!((said.code, said.out.as_str()), (Some(69), ""), "{flags:?}: {said:?}");
        assert!(said.err.contains("0 of 2"), "{flags:?}: {said:?}");
        assert!(!said.err.contains("not free") && !said.err.contains("busy"), "{flags:?}: {said:?}");
    }
}

/// A server that was just started may have forgotten holders. Nobody else waits, so what takes time must be said.
#[test]
fn a_fresh_server_says_when_it_grants_locks() {
    let lab = Lab::new();
    let (redis, began) = (Redis::start(&[]), Instant::now());
    let on = format!("redis://127.0.0.1:{}", redis.port);
    let told =
        |text: &str| text.contains("redis restarted ") && text.contains("; locks are granted again in ");

    for flags in [&["-n"][..], &["-w", "0.3"], &["-n", "-E", "9"]] {
        let said = lab.say(&[&["run", "--on", &on], flags, &["x", "--", "echo", "no"]].concat());
        assert_eq!((said.code, said.out.as_str()), (Some(69), ""), "{flags:?}: {said:?}");
        assert!(told(&said.err) && said.err.contains("hint: "), "{flags:?}: {said:?}");
        assert!(!said.err.contains("busy") && !said.err.contains("not free"), "{flags:?}: {said:?}");
    }
    let said = lab.say(&["run", "--json", "-n", "--on", &on, "x", "--", "true"]);
    let event: serde_json::Value = serde_json::from_str(&said.err).unwrap();
    assert!((1..10_100).contains(&event["retry_after_ms"].as_u64().unwrap()), "{event}");

    assert!(told(&lab.say(&["show", "--on", &on, "x"]).out));
    let line = lab.json(&["show", "--json", "--on", &on, "x"]);
    assert_eq!(line["shut"]["reason"], "restarted", "{line}");
    assert!(told(&lab.say(&["ls", "--on", &on]).err));
    assert_eq!(lab.json(&["ls", "--json", "--on", &on])["shut"]["reason"], "restarted");
    let mut watch = lab.command(&["watch", "--on", &on]).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(watch.stdout.as_mut().unwrap()).read_line(&mut first).unwrap();
    watch.kill().unwrap();
    watch.wait().unwrap();
    assert!(told(&first), "{first}");

    let said = lab.say(&["run", "--json", "--on", &on, "x", "--", "echo", "in"]);
    assert_eq!((said.code, said.out.as_str()), (Some(0), "in\n"), "{said:?}");
    assert!(began.elapsed() < Duration::from_millis(11_500), "{:?}", began.elapsed());
    let event: serde_json::Value = serde_json::from_str(said.err.lines().next().unwrap()).unwrap();
    assert_eq!((&event["event"], &event["reason"]), (&"shut".into(), &"restarted".into()), "{event}");
    // It is over: now somebody who holds it is what keeps others out.
    let held = lab.hold(&["--on", &on], "x", "echo in; read _; exit 0");
    assert_eq!(lab.say(&["run", "-n", "--on", &on, "x", "--", "true"]).code, Some(75));
    assert!(!told(&lab.say(&["show", "--on", &on, "y"]).out));
    held.let_go();
}

/// The wrapper is awake, but nobody renews: the command is asked, and killed, before its lease ends. Later it would be told
/// that the engine could not be reached.
#[test]
fn a_command_whose_engine_is_silent_ends_before_its_lease_does() {
    let lab = Lab::new();
    let redis = Redis::start(&[]);
    let on = format!("redis://127.0.0.1:{}?restart_guard=off", redis.port);
    let script = "trap 'echo asked' TERM; echo in; while :; do sleep 0.02; done";
    let mut held = lab.hold(&["--lease", "4s", "--grace", "20s", "--on", &on], "x", script);
    let server = redis.server.id().cast_signed();
    common::kill("STOP", server);
    assert_eq!(held.next_line(), "asked");
    let said = held.end();
    common::kill("CONT", server);
    assert_eq!(said.code, Some(79), "{said:?}");
    assert!(said.err.contains("not renewed in time"), "{said:?}");
}

#[test]
fn a_lockline_inside_needs_the_password_to_be_passed_on() {
    let lab = Lab::new();
    let redis = Redis::start(&["--requirepass", "c4nary"]);
    let url = format!("redis://:c4nary@127.0.0.1:{}?restart_guard=off", redis.port);
    let script = format!("'{}' run -n y -- sh -c 'echo $LOCKLINE_NAME'", env!("CARGO_BIN_EXE_lockline"));
    let run = |flags: &[&str]| {
        let args = [&["run"], flags, &["x", "--", "sh", "-c", &script]].concat();
        common::said(lab.command(&args).env("LOCKLINE_URL", &url).output().unwrap())
    };
    let said = run(&[]);
    assert_eq!((said.code, said.out.as_str()), (Some(77), ""), "{said:?}");
    assert!(said.err.contains("hint: ") && said.err.contains("--pass-url"), "{said:?}");
    let said = run(&["--pass-url"]);
    assert_eq!((said.code, said.out.as_str()), (Some(0), "y\n"), "{said:?}");
}
