//! `cargo xtask targets`: the library, and the command, checked for other systems than this one.
//!
//! `cargo check` links nothing, so what it needs of a foreign C compiler is only that one answers: a stand-in makes empty
//! objects. That shows that every line of Rust compiles there. That it runs there is shown by the workflows.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{shell, workspace};

const ENGINES: &str = "redis,postgres,mysql,etcd-tls,zookeeper-tls,sqlite";

/// A target, and what is checked for it: a package with features.
const TARGETS: [(&str, &[(&str, &str)]); 4] = [
    ("x86_64-unknown-linux-musl", &[("lockline", ENGINES)]),
    ("aarch64-unknown-linux-gnu", &[("lockline", ENGINES)]),
    ("aarch64-apple-darwin", &[("lockline", ENGINES), ("lockline-cli", ENGINES)]),
    ("x86_64-pc-windows-gnu", &[("lockline", ENGINES), ("lockline-cli", ENGINES)]),
];

const COMPILER: &str = r#"#!/bin/sh
out=
while [ $# -gt 0 ]; do case $1 in -o) out=$2; shift;; -o*) out=${1#-o};; -E) echo clang; exit 0;; esac; shift; done
[ -z "$out" ] || : > "$out"
"#;

const ARCHIVER: &str = r#"#!/bin/sh
for word; do case $word in *.a|*.lib) : > "$word";; esac; done
"#;

/// Checks these targets, or all; `features` instead of every engine.
pub(crate) fn targets(only: &[String], features: Option<&str>) -> Result<()> {
    for (target, checks) in TARGETS.into_iter().filter(|(name, _)| wanted(only, name)) {
        add(target)?;
        check_all(target, checks, features)?;
    }
    Ok(())
}

/// The same for CI: a target whose standard library rustup cannot bring here is named, and left to the workflows.
pub(crate) fn those_that_can_be_had() -> Result<()> {
    for (target, checks) in TARGETS {
        match add(target) {
            Ok(()) => check_all(target, checks, None)?,
            Err(error) => shell::say(&format!("   NOT CHECKED: {target}: {error:#}")),
        }
    }
    Ok(())
}

/// Adds the target's standard library, unless it is there.
fn add(target: &str) -> Result<()> {
    let folder = shell::output(Command::new("rustc").args(["--print", "target-libdir", "--target", target]))?;
    let is_there = std::fs::read_dir(folder.trim()).is_ok_and(|mut files| files.next().is_some());
    if is_there {
        return Ok(());
    }
    let added = shell::run(Command::new("rustup").args(["target", "add", target]).stdout(std::io::stderr()));
    added.with_context(|| format!("there is no standard library for {target}, and rustup cannot bring it"))
}

fn check_all(target: &str, checks: &[(&str, &str)], features: Option<&str>) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let compiler = script(folder.path(), "cc", COMPILER)?;
    let archiver = script(folder.path(), "ar", ARCHIVER)?;
    let name = target.replace('-', "_");
    for (package, every) in checks {
        let features = features.unwrap_or(every);
        let mut check = shell::cargo(["check", "--quiet", "--target", target, "--package", package]);
        check
            .args(["--no-default-features", "--features", features])
            .env("CARGO_TARGET_DIR", workspace::target_dir()?.join("targets"))
            .env(format!("CC_{name}"), &compiler)
            .env(format!("CXX_{name}"), &compiler)
            .env(format!("AR_{name}"), &archiver);
        shell::run(&mut check).with_context(|| target.to_owned())?;
        shell::say(&format!("   {target}: {package} with {features} compiles"));
    }
    Ok(())
}

fn wanted(only: &[String], target: &str) -> bool {
    only.is_empty() || only.iter().any(|word| target.contains(word.as_str()))
}

fn script(folder: &Path, name: &str, text: &str) -> Result<std::path::PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.join(name);
    std::fs::write(&path, text)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
    Ok(path)
}
