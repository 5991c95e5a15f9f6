//! Bad input: one clear line, exit code 64, no change anywhere; and never a secret.

#![allow(clippy::unwrap_used)]

mod common;
use common::{Lab, assert_hint};

const LONG: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

#[test]
fn every_mistake_is_one_line_64_and_changes_nothing() {
    let lab = Lab::new();
    let long = LONG.repeat(9);
    let wrong: &[&[&str]] = &[
        &[],
        &["rnu"],
        &["rnu", "x", "--", "true"],
        &["--no-such-flag"],
        &["run"],
        &["run", "x"],
        &["run", "x", "--"],
        &["run", "--", "true"],
        &["run", "x", "true"],
        &["run", "--no-such-flag", "x", "--", "true"],
        &["run", "", "--", "true"],
        &["run", &long, "--", "true"],
        &["run", "--lease", "99ms", "x", "--", "true"],
        &["run", "--lease", "25h", "x", "--", "true"],
        &["run", "--lease", "10", "x", "--", "true"],
        &["run", "--lease", "never", "x", "--", "true"],
        &["run", "--wait", "soon", "x", "--", "true"],
        &["run", "--wait", "1s", "-n", "x", "--", "true"],
        &["run", "-w", "-1", "x", "--", "true"],
        &["run", "-w", "10s", "x", "--", "true"],
        &["run", "-w", "nan", "x", "--", "true"],
        &["run", "-E", "256", "x", "--", "true"],
        &["run", "-E", "-1", "x", "--", "true"],
        &["run", "-E", "x", "x", "--", "true"],
        &["run", "--permits", "0/1", "x", "--", "true"],
        &["run", "--permits", "2/1", "x", "--", "true"],
        &["run", "--permits", "many", "x", "--", "true"],
        &["run", "--permits", "1/2", "-s", "x", "--", "true"],
        &["run", "--max-hold", "0s", "x", "--", "true"],
        &["run", "--grace", "-1s", "x", "--", "true"],
        &["run", "--children", "eat", "x", "--", "true"],
        &["run", "--owner", "", "x", "--", "true"],
        &["run", "--owner", &long, "x", "--", "true"],
        &["run", "-q", "-v", "x"],
        &["run", "--on", "nowhere", "x", "--", "true"],
        &["run", "--on", "redsi://h", "x", "--", "true"],
        &["run", "--on", "redlock://a,b", "x", "--", "true"],
        &["run", "--on", "sqlite:/", "x", "--", "true"],
        &["run", "--on", "sqlite:/no/such/directory/x", "x", "--", "true"],
        &["run", "--on", "memory:?lease=1ms", "x", "--", "true"],
        &["run", "--on", "memory:?no=such", "x", "--", "true"],
        &["run", "--on", "memory:?lease=5s&lease=6s", "x", "--", "true"],
        &["show"],
        &["show", ""],
        &["show", &long],
        &["show", "a", "b"],
        &["ls", "a", "b"],
        &["evict", "x"],
        &["evict", "x", "--token", "x"],
        &["evict", "x", "--token", "-1"],
        &["evict", "", "--token", "1"],
        &["completions", "fsh"],
        &["completions"],
        &["man", "rnu"],
    ];
    for args in wrong {
        if args.contains(&"-q") {
            assert_eq!(lab.say(args).err, "", "{args:?}");
            continue;
        }
        let said = lab.say(args);
        assert_hint(&said, 64, "", args);
        assert_eq!(std::fs::read_dir(lab.state.path()).unwrap().count(), 0, "{args:?} left something");
    }
}

#[test]
fn a_name_too_long_for_its_space_is_refused_before_the_file_is_made() {
    let lab = Lab::new();
    let file = lab.state.path().join("x.db");
    let on = format!("sqlite:{}?prefix={LONG}", file.display());
    let said = lab.say(&["run", "--on", &on, &LONG.repeat(8), "--", "true"]);
    assert_eq!(said.code, Some(64), "{said:?}");
    assert!(!file.exists());
}

#[test]
fn the_nearest_command_is_named() {
    let lab = Lab::new();
    for (word, nearest) in [("rnu", "'run'"), ("lss", "'ls'"), ("evcit", "'evict'"), ("whatch", "'watch'")] {
        let said = lab.say(&[word]);
        assert!(said.err.contains(nearest), "{said:?}");
    }
}

#[test]
fn without_a_home_there_is_a_hint() {
    let lab = Lab::new();
    let mut command = lab.command(&["run", "x", "--", "true"]);
    let said = common::said(command.env_remove("XDG_STATE_HOME").env_remove("HOME").output().unwrap());
    assert_eq!(said.code, Some(64), "{said:?}");
    assert!(said.err.contains("\nhint: "), "{said:?}");
}

#[test]
fn no_secret_is_ever_printed() {
    let lab = Lab::new();
    let urls = [
        "redis://user:c4nary@127.0.0.1:1/0",
        "redis://user:c4nary@127.0.0.1?lease=never",
        "redis://user:c4nary@127.0.0.1?a=1&a=2",
        "redsi://:c4nary@host",
        "user:c4nary@host",
        "c4nary",
        "://c4nary",
        "mysql://u:c4nary@127.0.0.1:1/db",
        "sqlite://u:c4nary@h/no/such/dir/x.db",
        "memory:?password=c4nary",
        "redis://u:%ffc4nary@h",
    ];
    let commands: &[&[&str]] = &[
        &["run", "-v", "x", "--", "true"],
        &["run", "--json", "-v", "x", "--", "true"],
        &["run", "--help"],
        &["run", "-h"],
        &["run", "--no-such-flag", "x", "--", "true"],
        &["ls"],
        &["ls", "--help"],
        &["ls", "--json"],
        &["show", "x"],
        &["evict", "x", "--token", "1"],
        &["evict", "--help"],
        &["--help"],
        &["--version"],
        &["man", "run"],
        &["completions", "bash"],
    ];
    for url in urls {
        for args in commands {
            let said = common::said(lab.command(args).env("LOCKLINE_URL", url).output().unwrap());
            assert!(!format!("{said:?}").contains("c4nary"), "{url} {args:?}: {said:?}");
        }
        for args in
            [&["run", "--on", url, "x", "--", "true"][..], &["ls", "--on", url], &["show", "x", "--on", url]]
        {
            let said = lab.say(args);
            assert!(!format!("{said:?}").contains("c4nary"), "{args:?}: {said:?}");
        }
    }
    for args in [
        &["redis://u:c4nary@h"][..],
        &["run", "x", "redis://u:c4nary@h", "--", "true"],
        &["ls", "--onn=redis://u:c4nary@h"],
    ] {
        let said = lab.say(args);
        assert_eq!(said.code, Some(64));
        assert!(!format!("{said:?}").contains("c4nary"), "{args:?}: {said:?}");
    }
}

#[test]
fn help_lists_the_codes_and_the_variable() {
    let lab = Lab::new();
    let said = lab.say(&["run", "--help"]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    for word in ["64", "69", "75", "77", "78", "79", "126", "127", "128+n", "LOCKLINE_URL", "LOCKLINE_TOKEN"]
    {
        assert!(said.out.contains(word), "{word}");
    }
    for words in [
        "--children",
        "--pass-url",
        "LOCKLINE_HOLDS",
        "process group",
        "another user",
        "guardian",
        "Keep the lock until they have ended",
    ] {
        // Both wrap their lines.
        let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let man = flat(&lab.say(&["man", "run"]).out.replace("\\-", "-"));
        assert!(flat(&said.out).contains(words) && man.contains(words), "{words}");
    }
    let version = format!("lockline {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(lab.say(&["-V"]).out, version);
    let engines = lab.say(&["--version"]).out;
    let engines = engines.strip_prefix(&version).and_then(|rest| rest.strip_prefix("engines: ")).unwrap();
    assert!(
        engines.starts_with("memory") && engines.contains("sqlite") == cfg!(feature = "sqlite"),
        "{engines}"
    );
    assert_eq!(engines.contains("redis"), cfg!(feature = "redis"), "{engines}");
    let help = lab.say(&["--help"]).out;
    assert!(help.contains("Engines in this build: memory"), "{help}");
    assert!(lab.say(&["man"]).out.contains(".TH lockline"));
    assert!(lab.say(&["man", "run"]).out.contains("permits"));
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(lab.say(&["completions", shell]).out.contains("lockline"), "{shell}");
    }
}

#[test]
fn a_reader_who_has_seen_enough_is_no_failure() {
    let lab = Lab::new();
    let mut child = lab.command(&["completions", "bash"]).spawn().unwrap();
    drop(child.stdout.take());
    let said = common::ended(child);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
}
