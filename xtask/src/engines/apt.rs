//! Packages of a Debian machine, installed without a service being started: tests start their own servers.

use std::fs::{OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};

use crate::shell;

/// What Debian asks whether a service may start. A machine may have one of its own, which is not to be touched.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// Whether the policy that is there is ours.
static OURS: AtomicBool = AtomicBool::new(false);

/// Whether a command can be run.
pub(crate) fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Installs them.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    let by_hand = || format!("install it yourself: apt-get install {}", packages.join(" "));
    let _policy = Policy::forbid_services().with_context(by_hand)?;
    shell::say(&format!("installing {}", packages.join(", ")));
    shell::run(&mut apt_get(&["update", "--quiet"])).with_context(by_hand)?;
    let install = ["install", "--yes", "--quiet", "--no-install-recommends"];
    shell::run(apt_get(&install).args(packages)).with_context(by_hand)
}

fn apt_get(args: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command.args(["-o", "DPkg::Lock::Timeout=300", "-o", "Dpkg::Options::=--force-confold"]).args(args);
    // What it says is talk.
    command.stdout(std::io::stderr());
    command
}

/// While this lives no package starts a service.
struct Policy;

impl Policy {
    fn forbid_services() -> Result<Policy> {
        match OpenOptions::new().write(true).create_new(true).open(POLICY) {
            Ok(mut file) => {
                OURS.store(true, Ordering::SeqCst);
                let policy = Policy;
                file.write_all(b"#!/bin/sh\nexit 101\n")?;
                file.set_permissions(Permissions::from_mode(0o755))?;
                Ok(policy)
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(Policy),
            Err(error) => Err(error).context(POLICY),
        }
    }
}

impl Drop for Policy {
    fn drop(&mut self) {
        let_services_start();
    }
}

/// Takes our policy away; also for a program that is told to end in the middle of it.
pub(super) fn let_services_start() {
    if OURS.swap(false, Ordering::SeqCst)
        && let Err(error) = std::fs::remove_file(POLICY)
    {
        shell::say(&format!("remove {POLICY} yourself, or no service will start: {error}"));
    }
}
