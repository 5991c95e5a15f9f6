//! `cargo xtask package`: the command as a Debian package, with its manual and completions, tried before it is shown.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{shell, workspace};

/// What kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// A `.deb`, in the target folder.
    Deb,
}

/// Builds the package with the command of this profile, and runs what is in it.
pub(crate) fn package(kind: Kind, profile: &str) -> Result<()> {
    match kind {
        Kind::Deb => deb(profile),
    }
}

fn deb(profile: &str) -> Result<()> {
    let arguments =
        ["build", "--quiet", "--package", "lockline-cli", "--bin", "lockline", "--profile", profile];
    shell::run(&mut shell::cargo(arguments))?;
    let target = workspace::target_dir()?;
    let built = target.join(if profile == "dev" { "debug" } else { profile }).join("lockline");
    let folder = tempfile::tempdir()?;
    let root = folder.path().join("root");
    fill(&root, &built)?;
    let version =
        workspace::package_data("lockline-cli")?["version"].as_str().context("no version")?.to_owned();
    let architecture = shell::output(Command::new("dpkg").arg("--print-architecture"))?.trim().to_owned();
    control(&root, &version, &architecture)?;
    let file = target.join(format!("lockline_{version}_{architecture}.deb"));
    shell::run(Command::new("dpkg-deb").args(["--root-owner-group", "--build"]).arg(&root).arg(&file))?;
    try_it(&file, &version)?;
    shell::put(&file.display().to_string())
}

/// Everything in its place, as Debian's policy has it.
fn fill(root: &Path, built: &Path) -> Result<()> {
    let program = put(root, "usr/bin/lockline", &fs::read(built).context("the command was not built")?)?;
    executable(&program)?;
    shell::run(Command::new("strip").arg(&program))?;
    let says = |words: &[&str]| shell::output(Command::new(&program).args(words));
    for page in ["", "run", "ls", "show", "watch", "evict", "schema", "completions", "man"] {
        let words: &[&str] = if page.is_empty() { &["man"] } else { &["man", page] };
        let name = if page.is_empty() { "lockline.1".to_owned() } else { format!("lockline-{page}.1") };
        let path = put(root, &format!("usr/share/man/man1/{name}"), says(words)?.as_bytes())?;
        shell::run(Command::new("gzip").args(["-9", "-n"]).arg(&path))?;
    }
    for (shell, place) in [
        ("bash", "usr/share/bash-completion/completions/lockline"),
        ("zsh", "usr/share/zsh/vendor-completions/_lockline"),
        ("fish", "usr/share/fish/vendor_completions.d/lockline.fish"),
    ] {
        put(root, place, says(&["completions", shell])?.as_bytes())?;
    }
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        let text = fs::read(workspace::root().join(licence))?;
        put(root, &format!("usr/share/doc/lockline/{licence}"), &text)?;
    }
    let copyright = "License: MIT or Apache-2.0, at your choice; see the files beside this one.\n";
    put(root, "usr/share/doc/lockline/copyright", copyright.as_bytes())?;
    Ok(())
}

fn control(root: &Path, version: &str, architecture: &str) -> Result<()> {
    let text = format!(
        "Package: lockline\nVersion: {version}\nArchitecture: {architecture}\nSection: admin\nPriority: optional\n\
         Maintainer: The Lockline project <nobody@example.invalid>\nDepends: libc6 (>= 2.34), libgcc-s1\n\
         Description: run a command under a lock that several machines share\n Like flock(1), but between machines, in \
         order, and with fencing tokens: on\n Redis, PostgreSQL, MariaDB, MySQL, etcd or ZooKeeper, or on a file of \
         this\n machine.\n"
    );
    put(root, "DEBIAN/control", text.as_bytes())?;
    Ok(())
}

fn put(root: &Path, place: &str, bytes: &[u8]) -> Result<PathBuf> {
    let path = root.join(place);
    fs::create_dir_all(path.parent().context("a place has a folder")?)?;
    fs::write(&path, bytes).with_context(|| path.display().to_string())?;
    Ok(path)
}

fn executable(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

/// Unpacks the package into a folder of its own, and does the main job with what is there.
fn try_it(file: &Path, version: &str) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let root = folder.path().join("installed");
    shell::run(Command::new("dpkg-deb").arg("-x").arg(file).arg(&root))?;
    let lockline = root.join("usr/bin/lockline");
    let said = shell::output(Command::new(&lockline).arg("--version"))?;
    ensure!(said.starts_with(&format!("lockline {version}\nengines: memory, ")), "it says {said:?}");
    let locks = format!("sqlite:{}", folder.path().join("locks.db").display());
    let mut run = Command::new(&lockline);
    let said = shell::output(run.args(["run", "--on", &locks, "hello", "--", "echo", "it is my turn"]))?;
    ensure!(said == "it is my turn\n", "it says {said:?}");
    for place in [
        "usr/share/man/man1/lockline-run.1.gz",
        "usr/share/bash-completion/completions/lockline",
        "usr/share/zsh/vendor-completions/_lockline",
        "usr/share/fish/vendor_completions.d/lockline.fish",
    ] {
        ensure!(fs::metadata(root.join(place)).is_ok_and(|file| file.len() > 100), "{place} is not in it");
    }
    Ok(())
}
