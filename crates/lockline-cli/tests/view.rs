//! Who holds what: `ls`, `show`, `watch`, their JSON, hostile names; and first come, first served.

#![allow(clippy::unwrap_used)]

mod common;
use common::{Lab, ended};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};

#[test]
fn looking_makes_no_file() {
    let lab = Lab::new();
    let elsewhere = format!("sqlite:{}/other.db", lab.state.path().display());
    for on in [&[][..], &["--on", &elsewhere]] {
        assert_eq!(lab.say(&[&["ls"], on].concat()).out, "");
        let listed = lab.say(&[&["ls", "--json"], on].concat()).out;
        assert!(
            listed.starts_with("{\"engine\":\"sqlite:/") && listed.ends_with("\"locks\":[]}\n"),
            "{listed}"
        );
        let shown = lab.say(&[&["show", "x", "--json"], on].concat()).out;
        let free = "{\"name\":\"x\",\"holders\":[],\"waiters\":[],\"engine\":\"sqlite:/";
        assert!(shown.starts_with(free), "{shown}");
        assert_eq!(lab.say(&[&["show", "x"], on].concat()).out, "x is free\n");
        assert_eq!(lab.say(&[&["evict", "x", "--token", "5"], on].concat()).code, Some(1));
    }
    assert_eq!(std::fs::read_dir(lab.state.path()).unwrap().count(), 0);
}

#[test]
fn the_state_directory_is_this_users_alone() {
    use std::os::unix::fs::PermissionsExt;
    let lab = Lab::new();
    assert_eq!(lab.say(&["run", "x", "--", "true"]).code, Some(0));
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(lab.file().parent().unwrap()), mode(&lab.file())), (0o700, 0o600));
}

#[test]
fn json_has_the_promised_shape() {
    let lab = Lab::new();
    let held = lab.hold(&["--owner", "boss", "--lease", "5s"], "jobs/1", "echo in; read _; exit 0");
    let waiter = lab.wait_in_line(&["run", "--permits", "2/3", "jobs/1", "--", "true"], "jobs/1");
    let other = lab.hold(&["-s"], "other", "echo in; read _; exit 0");
    let all = lab.json(&["ls", "--json"]);
    let names: Vec<&str> =
        all["locks"].as_array().unwrap().iter().map(|line| line["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["jobs/1", "other"]);
    let some = lab.json(&["ls", "jobs/", "--json"]);
    assert_eq!(some["locks"].as_array().unwrap().len(), 1);
    let line = lab.show("jobs/1");
    let (holder, waits) = (&line["holders"][0], &line["waiters"][0]);
    let keys: BTreeSet<&str> = holder.as_object().unwrap().keys().map(String::as_str).collect();
    let promised = "ticket token owner host pid mode permits limit remaining_ms since_ms waited_ms held_ms";
    assert_eq!(keys, promised.split(' ').collect());
    assert_eq!(holder["token"], holder["ticket"]);
    assert_eq!((&holder["owner"], &holder["mode"]), (&"boss".into(), &"exclusive".into()));
    assert_eq!((&holder["permits"], &holder["limit"]), (&0.into(), &0.into()));
    assert_eq!(holder["pid"].as_i64(), Some(i64::from(held.pid())));
    assert!(holder["remaining_ms"].as_u64().unwrap() <= 5000 && holder["since_ms"].is_u64());
    assert!(!holder["host"].as_str().unwrap().is_empty());
    assert!(waits["token"].is_null() && waits["ticket"].as_u64() > holder["ticket"].as_u64());
    assert_eq!(
        (&waits["mode"], &waits["permits"], &waits["limit"]),
        (&"permits".into(), &2.into(), &3.into())
    );
    assert_eq!(lab.show("other")["holders"][0]["mode"], "shared");
    let table = lab.say(&["ls"]).out;
    assert!(table.contains("boss") && table.contains("jobs/1") && !table.contains('\u{1b}'), "{table}");
    let claims = lab.say(&["show", "jobs/1"]).out;
    assert!(
        claims.contains("holds") && claims.contains("waits") && claims.contains("permits 2/3"),
        "{claims}"
    );
    held.let_go();
    ended(waiter);
    other.let_go();
    assert_eq!(lab.json(&["ls", "--json"])["locks"].as_array().unwrap().len(), 0);
}

#[test]
fn hostile_names_are_data_and_cannot_drive_a_terminal() {
    let lab = Lab::new();
    let emoji = "🔒".repeat(128);
    let names = [
        "\u{1b}[2J\u{1b}]0;owned\u{7}",
        "a\nb\r\tc",
        "'; DROP TABLE claims; --",
        "%s%n{}{0}$(id)`id`",
        "../../etc",
        &emoji,
        "*",
        "%",
        "_",
    ];
    for name in names {
        let held = lab.hold(&["--owner", "\u{1b}[31mred\n"], name, "echo in; read _; exit 0");
        assert_eq!(lab.show(name)["name"].as_str(), Some(name));
        assert_eq!(lab.counts(name), (1, 0));
        for args in [
            &["ls"][..],
            &["show", name],
            &["run", "-n", name, "--", "true"],
            &["evict", name, "--token", "1"],
        ] {
            let said = lab.say(args);
            let text = format!("{}{}", said.out, said.err);
            assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{args:?}: {text:?}");
            assert!(said.err.lines().count() <= 2);
        }
        let alone = lab.json(&["ls", name, "--json"]);
        assert_eq!(alone["locks"].as_array().unwrap().len(), 1, "a prefix is no pattern: {name:?}");
        let said = held.let_go();
        assert_eq!(said.code, Some(0), "{name:?}");
    }
    let said = lab.say(&["run", "tab\there", "--", "sh", "-c", "printf %s \"$LOCKLINE_NAME\""]);
    assert_eq!(said.out, "tab\there");
}

#[test]
fn watch_tells_each_change_once() {
    let lab = Lab::new();
    for json in [true, false] {
        let mut args = vec!["watch", "w/"];
        args.extend(json.then_some("--json"));
        // On the first round there is no file yet: it waits for one without making it.
        let mut watcher = lab.command(&args).spawn().unwrap();
        let mut told = BufReader::new(watcher.stdout.take().unwrap()).lines();
        let held = lab.hold_simply("w/1");
        let ignored = lab.hold_simply("other");
        let first = told.next().unwrap().unwrap();
        held.let_go();
        let second = told.next().unwrap().unwrap();
        if json {
            let (first, second): (serde_json::Value, serde_json::Value) =
                (serde_json::from_str(&first).unwrap(), serde_json::from_str(&second).unwrap());
            assert_eq!((&first["name"], first["holders"].as_array().unwrap().len()), (&"w/1".into(), 1));
            assert_eq!((&second["name"], second["holders"].as_array().unwrap().len()), (&"w/1".into(), 0));
        } else {
            assert!(first.contains(" w/1: held by "), "{first}");
            assert!(second.ends_with(" w/1: free"), "{second}");
        }
        ignored.let_go();
        watcher.kill().unwrap();
        watcher.wait().unwrap();
    }
}

#[test]
fn first_come_first_served_among_processes() {
    let lab = Lab::new();
    let held = lab.hold_simply("x");
    let log = lab.state.path().join("log");
    let script = format!("echo $LOCKLINE_TOKEN $0 >> {}", log.display());
    let waiters: Vec<_> = (0..6)
        .map(|number| lab.wait_in_line(&["run", "x", "--", "sh", "-c", &script, &number.to_string()], "x"))
        .collect();
    held.let_go();
    for waiter in waiters {
        assert_eq!(ended(waiter).code, Some(0));
    }
    let log = std::fs::read_to_string(log).unwrap();
    let (tokens, order): (Vec<u64>, Vec<&str>) = log
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .map(|(t, n)| (t.parse::<u64>().unwrap(), n))
        .unzip();
    assert_eq!(order, ["0", "1", "2", "3", "4", "5"]);
    assert!(tokens.is_sorted(), "{tokens:?}");
}

#[test]
fn a_named_engine_and_its_name_space_are_used() {
    let lab = Lab::new();
    let on = format!("sqlite:{}/n.db?prefix=space/", lab.state.path().display());
    let script = format!("echo $LOCKLINE_NAME; '{}' ls --json", env!("CARGO_BIN_EXE_lockline"));
    let said = common::said(
        lab.command(&["run", "x", "--", "sh", "-c", &script]).env("LOCKLINE_URL", &on).output().unwrap(),
    );
    assert_eq!(said.code, Some(0), "{said:?}");
    let (name, seen) = said.out.split_once('\n').unwrap();
    assert_eq!(name, "x");
    let seen: serde_json::Value = serde_json::from_str(seen).unwrap();
    assert_eq!(seen["locks"][0]["name"], "x");
    assert!(!lab.file().exists());
}
