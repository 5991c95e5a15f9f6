//! The test programs: found by asking cargo to build them, then run several at a time.
//!
//! Most of them wait: for leases to end, for servers to elect a leader. One after the other they would leave the machine
//! idle for half of the time.

use std::collections::VecDeque;
use std::fmt;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::engines::{Engine, Fleet};
use crate::shell;

/// One program with tests in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    pub(super) name: String,
    file: PathBuf,
    /// Cargo runs tests in the folder of their package, and so do we.
    folder: PathBuf,
}

/// What a program said, from its beginning to its end.
#[derive(Clone, Debug, Default)]
pub(super) struct Said {
    pub(super) name: String,
    pub(super) text: String,
    pub(super) end: End,
    /// Its own server, and the version that it said it had.
    pub(super) server: Option<&'static Engine>,
    pub(super) version: String,
    pub(super) seconds: u64,
}

/// How it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum End {
    #[default]
    Running,
    Ended(ExitStatus),
    /// Nobody has its server's release, or nobody could be asked.
    NotHad(String),
    /// Its server did not start.
    NotStarted(String),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Running => f.write_str("running"),
            End::Ended(status) => status.fmt(f),
            End::NotHad(why) | End::NotStarted(why) => write!(f, "not run: {why}"),
        }
    }
}

/// What cargo is asked for to build them.
const BUILD: [&str; 4] = ["test", "--workspace", "--all-features", "--no-run"];

/// Builds them beside something that mostly waits, with the time that it leaves. If that fails, whoever needs them is told.
pub(crate) fn build_beside() {
    let cargo = shell::cargo(BUILD);
    let mut nice = Command::new("nice");
    nice.args(["-n", "19"]).arg(cargo.get_program()).args(cargo.get_args()).arg("--quiet");
    if let Some(folder) = cargo.get_current_dir() {
        nice.current_dir(folder);
    }
    let _ = nice.stdout(Stdio::null()).stderr(Stdio::null()).status();
}

/// Builds every test program. By name, and not as cargo happened to finish them: the library's own tests take longest, and the
/// others can run beside them only if they begin first.
pub(super) fn build() -> Result<Vec<Program>> {
    let mut command = shell::cargo(BUILD);
    let messages = shell::output(command.arg("--message-format=json-render-diagnostics"))?;
    let mut programs: Vec<_> =
        messages.lines().filter_map(|line| program(&serde_json::from_str(line).ok()?)).collect();
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(programs)
}

/// The program that one of cargo's messages is about, if it is a test.
fn program(message: &Value) -> Option<Program> {
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let file = PathBuf::from(message["executable"].as_str()?);
    let folder = PathBuf::from(message["manifest_path"].as_str()?).parent()?.to_owned();
    let source = PathBuf::from(message["target"]["src_path"].as_str()?);
    let source = source.strip_prefix(&folder).unwrap_or(&source).display();
    let package = folder.file_name()?.to_string_lossy();
    Some(Program { name: format!("{package} {source}"), file, folder })
}

impl Program {
    /// As cargo would run it.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.file);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }
}

/// A program to be run, on the servers that run already or on one of its own.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) name: String,
    pub(super) command: Command,
    /// Started for this job and stopped after it.
    pub(super) server: Option<&'static Engine>,
}

impl Job {
    /// Runs it. If its server cannot be had or started, that is how it ended.
    fn run(self) -> Result<Said> {
        let Job { name, mut command, server } = self;
        let Some(engine) = server else { return said(name, command) };
        let ended = |end| Said { name: name.clone(), end, server, ..Said::default() };
        let tools = match engine.toolchain() {
            Ok(tools) => tools,
            Err(error) => return Ok(ended(End::NotHad(format!("{error:#}")))),
        };
        match Fleet::start(&[engine]) {
            Ok(fleet) => {
                command.envs([fleet.environment_of(engine.name)?]).envs(tools.environment());
                let version = fleet.version(engine.name).unwrap_or_default().to_owned();
                Ok(Said { server, version, ..said(name, command)? })
            }
            Err(error) => Ok(ended(End::NotStarted(format!("{error:#}")))),
        }
    }
}

/// Runs jobs, `at_once` at a time, in the order given; tells what each said as soon as it ends.
pub(super) fn run(jobs: Vec<Job>, at_once: usize, mut tell: impl FnMut(Said) -> Result<()>) -> Result<()> {
    let queue = Mutex::new(VecDeque::from(jobs));
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            let sender = sender.clone();
            scope.spawn(move || {
                while let Some(job) = next() {
                    if sender.send(job.run()).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        receiver.into_iter().try_for_each(|one| tell(one?))
    })
}

/// Runs one, with one pipe for both of its outputs, so that what it says stays in order.
fn said(name: String, mut command: Command) -> Result<Said> {
    let start = Instant::now();
    let (mut reader, writer) = std::io::pipe()?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().with_context(|| format!("cannot run {}", shell::shown(&command)))?;
    // The command keeps its ends of the pipe open for as long as it lives.
    drop(command);
    let mut text = Vec::new();
    reader.read_to_end(&mut text)?;
    let end = End::Ended(child.wait()?);
    let text = String::from_utf8_lossy(&text).into_owned();
    Ok(Said { name, text, end, seconds: start.elapsed().as_secs(), ..Said::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_program_is_found_among_what_cargo_built() {
        let message = |test: bool| {
            serde_json::json!({
                "reason": "compiler-artifact",
                "manifest_path": "/w/crates/lockline-cli/Cargo.toml",
                "target": { "src_path": "/w/crates/lockline-cli/tests/view.rs" },
                "profile": { "test": test },
                "executable": "/w/target/debug/deps/view-0123abcd",
            })
        };
        let expected = Program {
            name: "lockline-cli tests/view.rs".to_owned(),
            file: "/w/target/debug/deps/view-0123abcd".into(),
            folder: "/w/crates/lockline-cli".into(),
        };
        assert_eq!(program(&message(true)), Some(expected));
        assert_eq!(program(&message(false)), None);
        assert_eq!(program(&serde_json::json!({ "reason": "build-finished" })), None);
    }

    #[test]
    fn what_programs_say_is_not_mixed() {
        let talk = |word: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", &format!("echo {word} 1; sleep 0.1; echo {word} 2 >&2; test {word} = good")]);
            Job { name: word.to_owned(), command, server: None }
        };
        let mut heard = Vec::new();
        let all = vec![talk("good"), talk("bad"), talk("good")];
        run(all, 2, |said| {
            let good = matches!(said.end, End::Ended(status) if status.success());
            heard.push((said.name, said.text, good));
            Ok(())
        })
        .unwrap();
        heard.sort();
        let of = |word: &str, good| (word.to_owned(), format!("{word} 1\n{word} 2\n"), good);
        assert_eq!(heard, [of("bad", false), of("good", true), of("good", true)]);
    }
}
