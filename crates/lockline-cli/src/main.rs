//! The `lockline` command: run a command under a lock, and see who holds what.

use std::process::ExitCode;

#[cfg(unix)]
fn main() -> ExitCode {
    lockline_cli::main()
}

#[cfg(not(unix))]
#[allow(clippy::print_stderr)]
fn main() -> ExitCode {
    eprintln!(
        "lockline: the command works on Linux and macOS only\nhint: on Windows use the library, or run it in WSL"
    );
    ExitCode::from(64)
}
