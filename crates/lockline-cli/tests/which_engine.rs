//! Which engine it is: the command line, the environment, files; and what is said of it. Who holds it when it is busy.

#![allow(clippy::unwrap_used)]

mod common;
use common::{Lab, Said, said};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

struct Files(Lab);

impl Files {
    fn write(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.0.state.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    fn url(&self, name: &str) -> String {
        format!("sqlite:{}", self.0.state.path().join(name).display())
    }

    /// Runs `true` under a lock, and says on which file.
    fn run(&self, flags: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String, Said) {
        let mut command = self.0.command(&[&["run", "-v"], flags, &["x", "--", "true"]].concat());
        command.env_remove("LOCKLINE_URL").envs(variables.iter().copied());
        let said = said(command.output().unwrap());
        let on = said.err.split(" on sqlite:").last().unwrap_or_default().trim().to_owned();
        let on =
            Path::new(&on).file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        (said.code, on, said)
    }
}

#[test]
fn the_nearest_word_names_the_engine() {
    let files = Files(Lab::new());
    let [a, b, c, d, e] = ["a.db", "b.db", "c.db", "d.db", "e.db"].map(|name| files.url(name));
    let secret = files.write("secret", &format!("\n{c}\n"), 0o600);
    let config = files.write("other.toml", &format!("# ours\nurl = \"{d}\"\n"), 0o644);
    files.write("lockline/config.toml", &format!("url = '{e}'"), 0o644);
    let (secret, config) = (secret.to_str().unwrap(), config.to_str().unwrap());
    let at = format!("@{secret}");
    let all = [("LOCKLINE_URL", b.as_str()), ("LOCKLINE_URL_FILE", secret), ("LOCKLINE_CONFIG", config)];
    for (flags, variables, expected) in [
        (&["--on", a.as_str()][..], &all[..], "a.db"),
        (&["--on", at.as_str()], &all[..1], "c.db"),
        (&[], &all[..], "b.db"),
        (&[], &all[1..], "c.db"),
        (&[], &all[2..], "d.db"),
        (&[], &[], "e.db"),
        (&[], &[("LOCKLINE_URL", at.as_str())], "c.db"),
        (&[], &[("LOCKLINE_URL", "")], "locks.db"),
        (&["--on", ""], &all[..], "locks.db"),
    ] {
        let (code, on, said) = files.run(flags, variables);
        assert_eq!((code, on.as_str()), (Some(0), expected), "{flags:?} {variables:?}: {said:?}");
    }
}

#[test]
fn files_that_name_no_engine_are_refused_and_not_repeated() {
    let files = Files(Lab::new());
    for (name, text) in
        [("a", ""), ("b", "redis://u:c4nary@h\nredis://i"), ("c.toml", "c4nary = 1"), ("d", "c4nary")]
    {
        let path = files.write(name, text, 0o600);
        let path = path.to_str().unwrap();
        let variable = if name.ends_with("toml") { "LOCKLINE_CONFIG" } else { "LOCKLINE_URL_FILE" };
        let (code, _, said) = files.run(&[], &[(variable, path)]);
        assert_eq!(code, Some(64), "{name}: {said:?}");
        assert!(!said.err.contains("c4nary") && said.err.contains("hint: "), "{name}: {said:?}");
    }
    let (code, _, said) = files.run(&["--on", "@/nowhere/at/all"], &[]);
    assert_eq!(code, Some(64), "{said:?}");
    assert!(said.err.contains("/nowhere/at/all") && said.err.contains("hint: "), "{said:?}");
}

/// Nobody looks, and nobody said which engine: that is said, once.
#[test]
fn the_usual_file_is_announced_once_where_nobody_looks() {
    let files = Files(Lab::new());
    let (_, _, first) = files.run(&[], &[]);
    assert!(
        first.err.contains("no engine is named") && first.err.contains("/lockline/locks.db"),
        "{first:?}"
    );
    assert!(first.err.contains("hint: set LOCKLINE_URL"), "{first:?}");
    let (_, _, second) = files.run(&[], &[]);
    assert!(!second.err.contains("no engine is named"), "{second:?}");
    let others = Files(Lab::new());
    for (flags, variables) in [(&["--on", "sqlite:"][..], &[][..]), (&[], &[("LOCKLINE_URL", "")])] {
        let (code, _, said) = others.run(flags, variables);
        assert!(code == Some(0) && !said.err.contains("no engine is named"), "{said:?}");
    }
}

#[test]
fn a_password_that_others_can_read_is_warned_of() {
    let files = Files(Lab::new());
    // Nobody listens there.
    let url = "redis://u:c4nary@127.0.0.1:1";
    for (mode, warned) in [(0o600, false), (0o644, true), (0o640, true)] {
        let path = files.write("secret", url, mode);
        let (_, _, said) = files.run(&["--on", &format!("@{}", path.display())], &[]);
        assert_eq!(said.err.contains("other users can read"), warned, "{mode:o}: {said:?}");
        assert!(!said.err.contains("c4nary"), "{said:?}");
    }
}

#[test]
fn whoever_is_refused_is_told_by_whom() {
    let lab = Lab::new();
    let held = lab.hold(&["--owner", "the boss"], "x", "echo in; read _; exit 0");
    let pid = held.pid();
    for (flags, begins) in [
        (&["-n"][..], "lockline: x is busy: held by the boss ("),
        (&["-w", "0.2"], "lockline: x was not free within 200ms: held by the boss ("),
    ] {
        let said = lab.say(&[&["run"], flags, &["x", "--", "true"]].concat());
        assert_eq!(said.code, Some(75), "{said:?}");
        assert!(said.err.starts_with(begins) && said.err.contains(&format!(", pid {pid}) for ")), "{said:?}");
        common::assert_one_line(&said);
    }
    let said = lab.say(&["run", "-n", "--json", "x", "--", "true"]);
    let event: serde_json::Value = serde_json::from_str(&said.err).unwrap();
    assert_eq!((&event["event"], &event["exit"]), (&"failed".into(), &75.into()), "{event}");
    let holder = &event["holders"][0];
    assert_eq!((&holder["owner"], &holder["pid"]), (&"the boss".into(), &pid.into()), "{event}");
    assert!(event["engine"].as_str().unwrap().starts_with("sqlite:/"), "{event}");
    held.let_go();
}

/// *Held for* does not count what it waited before.
#[test]
fn waiting_is_not_holding() {
    let lab = Lab::new();
    let held = lab.hold_simply("x");
    let waits = lab.wait_in_line(&["run", "x", "--", "sleep", "5"], "x");
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let line = lab.show("x");
    assert!(
        line["waiters"][0]["held_ms"].is_null() && line["waiters"][0]["waited_ms"].as_u64() >= Some(1400),
        "{line}"
    );
    let holder = &line["holders"][0];
    assert_eq!((&holder["waited_ms"], &holder["held_ms"]), (&0.into(), &holder["since_ms"]), "{line}");
    held.let_go();
    common::until("the next is in", || lab.counts("x") == (1, 0));
    let line = lab.show("x");
    let of = |key: &str| line["holders"][0][key].as_u64().unwrap();
    assert!(of("waited_ms") >= 1400 && of("held_ms") < 1400, "{line}");
    common::kill("TERM", waits.id().cast_signed());
    common::ended(waits);
}

#[test]
fn the_label_says_who() {
    let lab = Lab::new();
    let user = said(std::process::Command::new("id").arg("-un").output().unwrap()).out.trim().to_owned();
    let said = lab.say(&["run", "x", "--", "nice", "-n", "1", "sh", "-c", "echo $LOCKLINE_OWNER; :"]);
    assert_eq!(said.out, format!("{user}: echo\n"), "{said:?}");
}

#[test]
fn too_few_files_are_a_sentence() {
    let lab = Lab::new();
    for limit in 4..=12 {
        let line = format!("ulimit -n {limit}; exec '{}' run x -- true", env!("CARGO_BIN_EXE_lockline"));
        let mut command = std::process::Command::new("bash");
        command.args(["-c", &line]).env("XDG_STATE_HOME", lab.state.path()).env("LOCKLINE_URL", "");
        let said = said(command.output().unwrap());
        assert_eq!(said.code, Some(71), "{limit}: {said:?}");
        assert!(said.err.contains("ulimit -n") && !said.err.contains("panicked"), "{limit}: {said:?}");
        common::assert_one_line(&said);
    }
}
