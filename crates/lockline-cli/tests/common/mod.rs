//! The real command in a state directory of its own.

#![allow(dead_code, missing_docs, unreachable_pub)]

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

pub const PATIENCE: Duration = Duration::from_secs(30);

/// A machine on which nothing was ever locked.
pub struct Lab {
    pub state: tempfile::TempDir,
}

/// What a finished command said.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Lab {
    pub fn new() -> Lab {
        Lab { state: tempfile::tempdir().unwrap() }
    }

    pub fn file(&self) -> PathBuf {
        self.state.path().join("lockline/locks.db")
    }

    /// `lockline ARGS`, not yet started.
    pub fn command(&self, args: &[&str]) -> Command {
        // Whoever runs the tests in the background of a shell has them ignore signals that the command is to hear.
        let mut command = started_by("env", &["--default-signal"], &self.bare_command(args));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// The same with the signals that are ignored here.
    pub fn bare_command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockline"));
        command
            .args(args)
            .env("XDG_STATE_HOME", self.state.path())
            .env("XDG_CONFIG_HOME", self.state.path())
            // Empty: this user's file is meant.
            .env("LOCKLINE_URL", "")
            .env_remove("LOCKLINE_URL_FILE")
            .env_remove("LOCKLINE_CONFIG")
            .env_remove("NO_COLOR");
        command
    }

    pub fn say(&self, args: &[&str]) -> Said {
        said(self.command(args).output().unwrap())
    }

    pub fn json(&self, args: &[&str]) -> Value {
        let said = self.say(args);
        assert_eq!(said.code, Some(0), "{said:?}");
        serde_json::from_str(&said.out).unwrap()
    }

    pub fn show(&self, name: &str) -> Value {
        self.json(&["show", "--json", name])
    }

    /// How many hold and how many wait.
    pub fn counts(&self, name: &str) -> (usize, usize) {
        let line = self.show(name);
        (line["holders"].as_array().unwrap().len(), line["waiters"].as_array().unwrap().len())
    }

    /// Runs `script` in a shell under the lock, and waits until it printed its first line.
    pub fn hold(&self, flags: &[&str], name: &str, script: &str) -> Held {
        let mut args = vec!["run"];
        args.extend(flags);
        args.extend([name, "--", "sh", "-c", script]);
        let mut process = self.command(&args).stdin(Stdio::piped()).spawn().unwrap();
        let input = process.stdin.take();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut first = String::new();
        output.read_line(&mut first).unwrap();
        Held { process, input, output, first: first.trim().to_owned() }
    }

    /// Holds the lock until it is told to let go.
    pub fn hold_simply(&self, name: &str) -> Held {
        self.hold(&[], name, "echo in; read _; exit 0")
    }

    /// Starts a claim that will have to wait, and waits until it does.
    pub fn wait_in_line(&self, args: &[&str], name: &str) -> Child {
        let before = self.counts(name).1;
        let child = self.command(args).spawn().unwrap();
        until("the claim stands in line", || self.counts(name).1 == before + 1);
        child
    }
}

/// A program, with its own arguments, that gets a command and its environment.
pub fn started_by(program: &str, args: &[&str], command: &Command) -> Command {
    let mut outer = Command::new(program);
    outer.args(args).arg(command.get_program()).args(command.get_args());
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(key, value),
            None => outer.env_remove(key),
        };
    }
    outer
}

/// A lock that is held by a shell script.
pub struct Held {
    pub process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// The script's first line.
    pub first: String,
}

impl Held {
    pub fn pid(&self) -> i32 {
        self.process.id().cast_signed()
    }

    /// Closes the script's input and waits for the end.
    pub fn let_go(mut self) -> Said {
        self.input = None;
        self.end()
    }

    /// Waits for the end.
    pub fn end(mut self) -> Said {
        let status = self.process.wait().unwrap();
        let (mut out, mut err) = (String::new(), String::new());
        self.output.read_to_string(&mut out).unwrap();
        self.process.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        Said { code: status.code(), out, err }
    }
}

pub fn said(output: Output) -> Said {
    Said {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

pub fn ended(child: Child) -> Said {
    said(child.wait_with_output().unwrap())
}

/// Polls until something is so.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// `kill -SIGNAL PID`.
pub fn kill(signal: &str, pid: i32) {
    assert!(Command::new("kill").args(["-s", signal, "--", &pid.to_string()]).status().unwrap().success());
}

/// Whether a process is there and not just waiting to be reaped.
pub fn lives(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// The state of a process as `/proc` has it: `T` is stopped.
pub fn state(pid: i32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()).unwrap_or('-')
}

/// The guardian among the children of a wrapper. It has its name only when it was first scheduled.
pub fn guardian_of(wrapper: i32) -> i32 {
    another_guardian_of(wrapper, 0)
}

/// The same, waited for until it is another one.
pub fn another_guardian_of(wrapper: i32, than: i32) -> i32 {
    let is_guardian = |pid: &i32| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
        *pid != than && lives(*pid) && name.is_ok_and(|name| name == "guardian\n")
    };
    let mut found = None;
    until("the guardian is there", || {
        let path = format!("/proc/{wrapper}/task/{wrapper}/children");
        let children = std::fs::read_to_string(path).unwrap_or_default();
        found = children.split_whitespace().filter_map(|pid| pid.parse().ok()).find(is_guardian);
        found.is_some()
    });
    found.unwrap()
}

/// A file in which holders write what they do, in the order they do it.
pub struct Log(pub PathBuf);

impl Log {
    pub fn new(lab: &Lab) -> Log {
        Log(lab.state.path().join("log"))
    }

    /// A shell function `work` that writes `w` into the log again and again, for as long as it lives.
    pub fn worker(&self) -> String {
        format!("work() {{ while :; do echo w >> '{}'; done; }}; ", self.0.display())
    }

    /// The next holder's script: it writes that it is in, and stays for a while.
    pub fn next(&self) -> String {
        format!("echo next >> '{0}'; sleep 0.1; echo out >> '{0}'", self.0.display())
    }

    pub fn text(&self) -> String {
        std::fs::read_to_string(&self.0).unwrap_or_default()
    }

    /// That nobody worked any more when the next holder was in. A process that was sent SIGKILL may take its time to be
    /// gone, but writes nothing more, so this does not depend on how busy the machine is.
    pub fn assert_nobody_worked_beside_the_next(&self) {
        let text = self.text();
        let (_, after) = text.split_once("next\n").expect("the next holder was in");
        assert_eq!(after, "out\n", "somebody worked beside the next holder");
    }
}

/// One line `lockline: …`, perhaps with a hint after it.
pub fn assert_one_line(said: &Said) {
    let lines: Vec<&str> = said.err.lines().collect();
    assert!(lines.first().is_some_and(|line| line.starts_with("lockline: ")), "{said:?}");
    assert!(lines.len() == 1 || lines.len() == 2 && lines[1].starts_with("hint: "), "{said:?}");
}

/// One line `lockline: …` that says this, and one `hint: …`; nothing on standard output.
pub fn assert_hint(said: &Said, code: i32, says: &str, of: &dyn std::fmt::Debug) {
    assert_eq!((said.code, said.out.as_str()), (Some(code), ""), "{of:?}: {said:?}");
    let lines: Vec<&str> = said.err.lines().collect();
    let [message, hint] = lines.as_slice() else { panic!("{of:?}: not one line and a hint: {said:?}") };
    assert!(message.starts_with("lockline: ") && message.contains(says), "{of:?}: {said:?}");
    assert!(hint.strip_prefix("hint: ").is_some_and(|hint| hint.len() > 10), "{of:?}: {said:?}");
}

/// Where an engine of this run is; if there is none, says so as `cargo xtask test` reads it.
pub fn address_of(engine: &str) -> Option<String> {
    let engines = std::env::var("LOCKLINE_TEST_ENGINES").unwrap_or_default();
    let named = engines.split_whitespace().filter_map(|pair| pair.split_once('='));
    let url = named.filter(|(name, _)| *name == engine).map(|(_, url)| url.to_owned()).next();
    if url.is_none() {
        let test = std::thread::current().name().unwrap_or_default().to_owned();
        // Written past the test harness, which swallows what a passing test prints.
        let line = format!("{test}: {engine} is left out (LOCKLINE_TEST_ENGINES does not name it)\n");
        std::io::stderr().write_all(line.as_bytes()).unwrap();
    }
    url
}

/// The port in an engine's address that names one server.
pub fn port_of(url: &str) -> String {
    let host = url.split("//").nth(1).unwrap().split(['/', '?']).next().unwrap();
    host.rsplit(':').next().unwrap().to_owned()
}

impl Held {
    /// The script's next line.
    pub fn next_line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }
}
