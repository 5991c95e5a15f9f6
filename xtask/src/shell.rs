//! Running commands, and the only places that write.

use std::ffi::OsStr;
use std::io::Write;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Talk, for people.
#[allow(clippy::print_stderr)] // This is a program, and this is its one place to talk.
pub(crate) fn say(text: &str) {
    eprintln!("{text}");
}

/// Data.
pub(crate) fn put(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// The cargo that runs this program, in the workspace's root.
pub(crate) fn cargo<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(crate::workspace::root()).args(args);
    command
}

/// Runs it, and fails if it does.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {}", shown(command)))?;
    ensure!(status.success(), "{} failed: {status}", shown(command));
    Ok(())
}

/// What it writes to stdout; fails if it does.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {}", shown(command)))?;
    ensure!(output.status.success(), "{} failed: {}", shown(command), output.status);
    Ok(String::from_utf8(output.stdout)?)
}

/// As one would type it.
pub(crate) fn shown(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}
