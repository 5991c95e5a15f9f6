//! On a terminal: the live line, and who the keyboard talks to. The terminal is made by `script` of util-linux.

#![allow(clippy::unwrap_used)]

mod common;
use common::{Lab, Said, said, until};
use std::process::{Command, Stdio};

const LOCKLINE: &str = env!("CARGO_BIN_EXE_lockline");

fn on_terminal(lab: &Lab, line: &str) -> Command {
    // A test that waits for a word that never comes ends with its terminal.
    let mut command = Command::new("timeout");
    command
        .args(["--foreground", "60", "script", "-qec", line, "/dev/null"])
        // `script` takes the user's shell, and shells differ in what an interrupt does to themselves.
        .env("SHELL", "/bin/sh")
        .env("XDG_STATE_HOME", lab.state.path())
        .env("XDG_CONFIG_HOME", lab.state.path())
        .env("LOCKLINE_URL", "");
    command.env("TERM", "xterm").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn typed(command: &mut Command, keys: &[u8], after: &str) -> Said {
    use std::io::{Read, Write};
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = child.stdout.take().unwrap();
    let mut seen = Vec::new();
    let mut byte = [0];
    while !String::from_utf8_lossy(&seen).contains(after) && output.read(&mut byte).unwrap() == 1 {
        seen.push(byte[0]);
    }
    input.write_all(keys).unwrap();
    output.read_to_end(&mut seen).unwrap();
    let code = child.wait().unwrap().code();
    Said { code, out: String::from_utf8_lossy(&seen).into_owned(), err: String::new() }
}

#[test]
fn whoever_waits_on_a_terminal_sees_for_whom_and_its_place() {
    let lab = Lab::new();
    let held = lab.hold(&["--owner", "the-boss"], "x", "echo in; read _; exit 0");
    let other = lab.wait_in_line(&["run", "x", "--", "true"], "x");
    let mut shown = on_terminal(&lab, &format!("'{LOCKLINE}' run x -- true"));
    let mut quiet = on_terminal(&lab, &format!("'{LOCKLINE}' run -q x -- true"));
    let (shown, quiet) = (shown.spawn().unwrap(), quiet.spawn().unwrap());
    until("all stand in line", || lab.counts("x") == (1, 3));
    // Longer than the moment after which the line appears.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let pid = held.pid();
    held.let_go();
    common::ended(other);
    let shown = said(shown.wait_with_output().unwrap()).out;
    assert!(shown.contains("held by the-boss (") && shown.contains(&format!("pid {pid}")), "{shown:?}");
    assert!(shown.contains("2nd in line") || shown.contains("3rd in line"), "{shown:?}");
    assert!(shown.ends_with("\r\u{1b}[K"), "the line is cleared: {shown:?}");
    let quiet = said(quiet.wait_with_output().unwrap());
    assert_eq!((quiet.code, quiet.out.as_str()), (Some(0), ""));
}

#[test]
fn nothing_is_shown_when_it_is_no_terminal() {
    let lab = Lab::new();
    let held = lab.hold_simply("x");
    let plain = lab.wait_in_line(&["run", "x", "--", "true"], "x");
    let verbose = lab.wait_in_line(&["run", "-v", "x", "--", "true"], "x");
    std::thread::sleep(std::time::Duration::from_millis(1200));
    held.let_go();
    assert_eq!(common::ended(plain).err, "");
    let verbose = common::ended(verbose).err;
    assert!(
        verbose.starts_with("lockline: waiting for x on sqlite:/")
            && verbose.contains("\nlockline: got x after ")
            && !verbose.contains('\u{1b}'),
        "{verbose:?}"
    );
}

#[test]
fn the_command_gets_the_keyboard() {
    let lab = Lab::new();
    // A command in the background would be stopped when it reads the terminal.
    let line = format!("'{LOCKLINE}' run x -- sh -c 'echo ready; read line; echo got:$line'");
    let seen = typed(&mut on_terminal(&lab, &line), b"hello\n", "ready");
    assert_eq!(seen.code, Some(0), "{seen:?}");
    assert!(seen.out.contains("got:hello"), "{seen:?}");
}

#[test]
fn the_keyboard_comes_back() {
    let lab = Lab::new();
    let line = format!("'{LOCKLINE}' run x -- true; echo ready; read line; echo got:$line");
    let seen = typed(&mut on_terminal(&lab, &line), b"hello\n", "ready");
    assert!(seen.out.contains("got:hello"), "{seen:?}");
    let line = format!("'{LOCKLINE}' run x -- no-such-program; echo ready; read line; echo got:$line");
    let seen = typed(&mut on_terminal(&lab, &line), b"hello\n", "ready");
    assert!(seen.out.contains("got:hello"), "{seen:?}");
}

#[test]
fn the_interrupt_key_reaches_the_command() {
    let lab = Lab::new();
    let line = format!("'{LOCKLINE}' run x -- sh -c 'echo ready; while :; do sleep 0.05; done'");
    let seen = typed(&mut on_terminal(&lab, &line), b"\x03", "ready");
    assert_eq!(seen.code, Some(130), "{seen:?}");
    assert_eq!(lab.counts("x"), (0, 0));
}

#[test]
fn the_stop_key_gives_the_shell_its_prompt_and_fg_goes_on() {
    let lab = Lab::new();
    // A shell with job control inside the terminal. It stops the job, continues it, and sees its code.
    let inner = format!(
        "set -m; '{LOCKLINE}' run x -- sh -c 'echo rea''dy; while read line; do echo got:$line; test \"$line\" = end && exit 5; done'; echo stopped:$?; fg >/dev/null; echo code:$?"
    );
    let script = lab.state.path().join("job.sh");
    std::fs::write(&script, inner).unwrap();
    let mut command = on_terminal(&lab, &format!("bash {}", script.display()));
    use std::io::{Read, Write};
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = child.stdout.take().unwrap();
    let mut seen = String::new();
    let mut read_until = |word: &str| {
        let mut byte = [0];
        while !seen.contains(word) && output.read(&mut byte).unwrap() == 1 {
            seen.push(char::from(byte[0]));
        }
        assert!(seen.contains(word), "{word}: {seen:?}");
    };
    read_until("ready");
    input.write_all(b"\x1a").unwrap();
    read_until("stopped:148");
    input.write_all(b"end\n").unwrap();
    read_until("got:end");
    read_until("code:5");
    child.wait().unwrap();
    assert_eq!(lab.counts("x"), (0, 0));
}

#[test]
fn q_leaves_the_screen_and_the_terminal_is_as_it_was() {
    let lab = Lab::new();
    let held = lab.hold_simply("x");
    let line = format!(
        "trap : INT; before=$(stty -g); '{LOCKLINE}' watch; echo code:$?; test \"$before\" = \"$(stty -g)\" && echo as it was"
    );
    for (key, code) in [(&b"q"[..], "code:0"), (b"\x03", "code:130")] {
        let seen = typed(&mut on_terminal(&lab, &line), key, "WAITING");
        assert!(seen.out.contains(code) && seen.out.contains("as it was"), "{seen:?}");
        assert!(!seen.out.contains("qcode") && !seen.out.contains("q\r\n"), "it is not echoed: {seen:?}");
    }
    held.let_go();
}

#[test]
fn tables_have_colour_on_a_terminal_only_and_not_with_no_color() {
    let lab = Lab::new();
    let held = lab.hold_simply("x");
    let coloured = said(on_terminal(&lab, &format!("'{LOCKLINE}' ls")).output().unwrap()).out;
    assert!(coloured.contains('\u{1b}'), "{coloured:?}");
    let plain =
        said(on_terminal(&lab, &format!("'{LOCKLINE}' ls")).env("NO_COLOR", "1").output().unwrap()).out;
    assert!(plain.contains("HELD BY") && !plain.contains('\u{1b}'), "{plain:?}");
    held.let_go();
}
