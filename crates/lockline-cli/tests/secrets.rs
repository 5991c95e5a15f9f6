//! The password of the engine: neither the command nor `ps` gets it unasked.

#![allow(clippy::unwrap_used)]

mod common;
use common::Lab;

const URL: &str = "redis://me:c4nary@127.0.0.1:1/0?lease=5s&password=c4nary";

#[test]
fn the_command_does_not_get_the_password_unless_asked_for() {
    let lab = Lab::new();
    let on = format!("sqlite:{}/n.db", lab.state.path().display());
    let run = |flags: &[&str]| {
        let args = [&["run", "--on", &on], flags, &["x", "--", "sh", "-c", "env"]].concat();
        common::said(lab.command(&args).env("LOCKLINE_URL", URL).output().unwrap())
    };
    let said = run(&[]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{said:?}");
    assert!(!said.out.contains("c4nary"), "{said:?}");
    assert!(said.out.contains("LOCKLINE_URL=redis://me@127.0.0.1:1/0?lease=5s\n"), "{said:?}");
    let said = run(&["--pass-url"]);
    assert!(said.out.contains(&format!("LOCKLINE_URL={URL}\n")), "{said:?}");
}

#[test]
fn an_address_without_a_password_is_passed_on_as_it_is() {
    let lab = Lab::new();
    let on = format!("sqlite:{}/n.db?prefix=a/", lab.state.path().display());
    let mut command =
        lab.command(&["run", "x", "--", "sh", "-c", "echo $LOCKLINE_URL $LOCKLINE_PASSWORD_WITHHELD"]);
    let said = common::said(command.env("LOCKLINE_URL", &on).output().unwrap());
    assert_eq!(said.out, format!("{on}\n"));
}

/// Without an address it would take this user's own file, and lock nothing that anybody else looks at.
#[test]
fn a_lockline_inside_fails_and_says_why_instead_of_using_another_engine() {
    let lab = Lab::new();
    let on = format!("sqlite:{}/n.db", lab.state.path().display());
    let script = format!("'{}' run -n y -- echo in", env!("CARGO_BIN_EXE_lockline"));
    for url in [URL, "redis://u:p?c4nary@h"] {
        let mut command = lab.command(&["run", "--on", &on, "x", "--", "sh", "-c", &script]);
        let said = common::said(command.env("LOCKLINE_URL", url).output().unwrap());
        assert!(matches!(said.code, Some(64 | 69)), "{said:?}");
        assert_eq!(said.out, "");
        assert!(said.err.contains("--pass-url") && !said.err.contains("c4nary"), "{said:?}");
    }
}

#[test]
fn a_password_on_the_command_line_is_warned_of_once() {
    let lab = Lab::new();
    let warned = |said: &common::Said| said.err.matches("shown by ps").count();
    assert_eq!(warned(&lab.say(&["run", "--on", URL, "x", "--", "true"])), 1);
    assert_eq!(warned(&lab.say(&["run", &format!("--on={URL}"), "x", "--", "true"])), 1);
    assert_eq!(warned(&lab.say(&["show", "--on", URL, "x"])), 1);
    assert_eq!(warned(&lab.say(&["run", "-q", "--on", URL, "x", "--", "true"])), 0);
    assert_eq!(warned(&lab.say(&["run", "--on", "redis://127.0.0.1:1", "x", "--", "true"])), 0);
    assert_eq!(warned(&lab.say(&["run", "x", "--", "echo", "--on", URL])), 0);
    let mut command = lab.command(&["run", "x", "--", "true"]);
    assert_eq!(warned(&common::said(command.env("LOCKLINE_URL", URL).output().unwrap())), 0);
    let said = lab.say(&["run", "--json", "--on", URL, "x", "--", "true"]);
    let event: serde_json::Value = serde_json::from_str(said.err.lines().next().unwrap()).unwrap();
    assert_eq!(event["event"], "warning");
    assert!(!said.err.contains("c4nary"), "{said:?}");
}
