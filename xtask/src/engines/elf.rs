//! Programs of another suite, bound to the libraries that were unpacked beside them: the machine's may be older.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::toolchain::Toolchain;
use crate::shell;

/// `patchelf`, and how it is run.
#[derive(Debug)]
pub(super) struct Patchelf(Vec<PathBuf>);

impl Patchelf {
    pub(super) fn of_the_machine() -> Option<Patchelf> {
        Some(Patchelf(vec![Toolchain::system().find("patchelf")?]))
    }

    /// One that was unpacked with its libraries, which its loader is told of.
    pub(super) fn unpacked(root: &Path) -> Result<Patchelf> {
        let folders = libraries(root);
        let loader = folders.iter().find_map(|folder| {
            let files = std::fs::read_dir(folder).ok()?.filter_map(|file| Some(file.ok()?.path()));
            let is_loader = |file: &PathBuf| {
                let name = file.file_name().unwrap_or_default().to_string_lossy();
                name.starts_with("ld-linux") && name.contains(".so")
            };
            files.into_iter().find(is_loader)
        });
        let loader = loader.context("patchelf came without a loader")?;
        let path = paths(&folders).into();
        Ok(Patchelf(vec![loader, "--library-path".into(), path, root.join("usr/bin/patchelf")]))
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.0[0]);
        command.args(&self.0[1..]);
        command
    }

    /// Binds a program below `new` to the libraries that are there, which will soon be below `root`.
    pub(super) fn bind(&self, program: &Path, new: &Path, root: &Path) -> Result<()> {
        if program.is_symlink() {
            return Ok(());
        }
        let asked = self.command().arg("--print-interpreter").arg(program).output().context("patchelf")?;
        if !asked.status.success() {
            // A script, or a program that needs nothing.
            return Ok(());
        }
        let loader = PathBuf::from(String::from_utf8_lossy(&asked.stdout).trim());
        let loader = loader.file_name().context("a program names no loader")?;
        let folders = libraries(new);
        let home = folders.iter().find(|folder| folder.join(loader).is_file());
        let home = home.with_context(|| format!("{} is not among the packages", loader.to_string_lossy()))?;
        let moved = |folder: &Path| root.join(folder.strip_prefix(new).unwrap_or(folder));
        let folders: Vec<PathBuf> = folders.iter().map(|folder| moved(folder)).collect();
        let mut bind = self.command();
        bind.arg("--set-interpreter").arg(moved(home).join(loader));
        // Forced, because only then libraries that are loaded later are looked for there, too.
        bind.args(["--force-rpath", "--set-rpath", &paths(&folders)]).arg(program);
        shell::run(&mut bind).with_context(|| program.display().to_string())
    }
}

fn paths(folders: &[PathBuf]) -> String {
    folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(":")
}

/// The folders with libraries: `lib/ARCHITECTURE`, also in distributions that keep two of them.
fn libraries(root: &Path) -> Vec<PathBuf> {
    let parents = [root.join("usr/lib"), root.join("lib")];
    let all =
        parents.iter().flat_map(std::fs::read_dir).flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let is_one = |folder: &PathBuf| folder.to_string_lossy().contains("-linux-gnu") && folder.is_dir();
    all.filter(is_one).collect()
}

/// The folders with programs.
fn program_folders(root: &Path) -> Vec<PathBuf> {
    let postgres = std::fs::read_dir(root.join("usr/lib/postgresql")).into_iter().flatten();
    let postgres = postgres.filter_map(|version| Some(version.ok()?.path().join("bin")));
    let usual = ["usr/bin", "usr/sbin", "bin", "sbin"].map(|folder| root.join(folder));
    usual.into_iter().chain(postgres).collect()
}

/// Every program, and every link to one.
pub(super) fn programs(root: &Path) -> Vec<PathBuf> {
    let all = program_folders(root).into_iter().flat_map(std::fs::read_dir).flatten();
    let all = all.filter_map(|entry| Some(entry.ok()?.path()));
    all.filter(|path| path.is_file() || path.is_symlink()).collect()
}

/// Removes what no server needs: others' programs, rights that nobody should have here, and what only people read.
pub(super) fn prune(root: &Path, keep: &[PathBuf]) -> Result<()> {
    for program in programs(root).iter().filter(|program| !keep.contains(program)) {
        std::fs::remove_file(program).with_context(|| program.display().to_string())?;
    }
    for folder in ["doc", "man", "locale", "i18n", "info", "lintian", "perl", "bash-completion"] {
        let _ = std::fs::remove_dir_all(root.join("usr/share").join(folder));
    }
    for folder in libraries(root) {
        for part in ["perl", "perl-base", "systemd"] {
            let _ = std::fs::remove_dir_all(folder.join(part));
        }
        // PostgreSQL's compiler of queries, which tests switch off, and which is as large as all the rest.
        for file in std::fs::read_dir(&folder)?.filter_map(Result::ok) {
            if file.file_name().to_string_lossy().starts_with("libLLVM") {
                std::fs::remove_file(file.path())?;
            }
        }
    }
    without_rights(root)
}

/// A folder of unpacked packages must not give anybody root's rights.
fn without_rights(folder: &Path) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_symlink() {
            continue;
        }
        let mode = std::fs::metadata(&path)?.permissions().mode();
        if mode & 0o6000 != 0 {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode & 0o777))?;
        }
        if path.is_dir() {
            without_rights(&path)?;
        }
    }
    Ok(())
}
