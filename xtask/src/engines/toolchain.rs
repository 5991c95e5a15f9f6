//! Where the programs of an engine are: the machine's own, or a folder that packages were unpacked into.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

/// Where the programs of one release of an engine are.
#[derive(Clone, Debug)]
pub(crate) struct Toolchain {
    /// A file system's root; `/` is the machine's own.
    root: PathBuf,
    /// How the wanted version begins. Empty if any will do.
    version: &'static str,
    /// The program that the release is named after. Empty if any will do: a machine may have Redis and Valkey.
    main: &'static str,
}

impl Toolchain {
    /// What the machine has, in whatever version.
    pub(crate) fn system() -> Toolchain {
        Toolchain::at(Path::new("/"), "", "")
    }

    /// What is below this folder.
    pub(super) fn at(root: &Path, version: &'static str, main: &'static str) -> Toolchain {
        Toolchain { root: root.to_owned(), version, main }
    }

    /// What tests read that start servers of their own, so that these are of the same release.
    pub(crate) fn environment(&self) -> Vec<(&'static str, PathBuf)> {
        let program = self.find(self.main);
        match (self.main, program) {
            ("mysqld", Some(program)) => {
                vec![("LOCKLINE_TEST_MYSQLD", program), ("LOCKLINE_TEST_MYSQL_ROOT", self.root.clone())]
            }
            ("redis-server" | "valkey-server", Some(program)) => {
                vec![("LOCKLINE_TEST_REDIS_SERVER", program)]
            }
            _ => Vec::new(),
        }
    }

    /// Whether it is to be used for this program.
    pub(super) fn is_for(&self, program: &str) -> bool {
        self.main == program
    }

    pub(super) fn is_system(&self) -> bool {
        self.root == Path::new("/")
    }

    /// The folder that packages were unpacked into.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// A program, if it is there. Servers are not on everybody's path.
    pub(super) fn find(&self, program: &str) -> Option<PathBuf> {
        let mut folders: Vec<PathBuf> = Vec::new();
        if self.is_system() {
            folders.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        }
        folders.extend(["usr/bin", "usr/sbin"].map(|folder| self.root.join(folder)));
        folders
            .into_iter()
            .chain(self.postgres())
            .map(|folder| folder.join(program))
            .find(|path| path.is_file())
    }

    /// A program that must be there.
    pub(super) fn program(&self, program: &str) -> Result<PathBuf> {
        self.find(program).with_context(|| format!("{program} is not there"))
    }

    /// PostgreSQL's programs: several versions lie beside each other. That of the wanted version, or the newest.
    pub(super) fn postgres(&self) -> Option<PathBuf> {
        let versions = self.root.join("usr/lib/postgresql");
        let found = std::fs::read_dir(&versions).ok()?;
        let mut found: Vec<u32> = found
            .filter_map(|version| version.ok()?.file_name().to_str()?.parse().ok())
            .filter(|version| versions.join(format!("{version}/bin/postgres")).is_file())
            .collect();
        found.sort_unstable();
        let wanted = self.version.parse().ok().filter(|wanted| found.contains(wanted));
        Some(versions.join(wanted.or(found.pop())?.to_string()).join("bin"))
    }

    /// The version that a program says it has.
    pub(super) fn version_of(&self, program: &str) -> Option<String> {
        let output = Command::new(self.find(program)?).arg("--version").stdin(Stdio::null()).output().ok()?;
        version_in(&String::from_utf8_lossy(&output.stdout))
    }
}

/// The first version in a text: a program's name may have a digit, but a version has a dot between two.
pub(super) fn version_in(text: &str) -> Option<String> {
    let is_version = |word: &&str| {
        word.starts_with(|first: char| first.is_ascii_digit())
            && word
                .split_once('.')
                .is_some_and(|(_, rest)| rest.starts_with(|next: char| next.is_ascii_digit()))
    };
    let words = text.split(|letter: char| !letter.is_ascii_digit() && letter != '.');
    words.map(|word| word.trim_end_matches('.')).find(is_version).map(str::to_owned)
}

/// Whether a version is of a release: `9` means 9.1.2 and not 90.1.
pub(super) fn is_of(release: &str, version: &str) -> bool {
    let rest = version.strip_prefix(release);
    rest.is_some_and(|rest| release.is_empty() || !rest.starts_with(|next: char| next.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_programs_say() {
        for (said, version) in [
            ("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.2.1 bits=64", "7.0.15"),
            ("Valkey server v=9.1.2 sha=00000000:0", "9.1.2"),
            ("postgres (PostgreSQL) 18.6 (Debian 18.6-3)", "18.6"),
            ("PgBouncer 1.26.1\nlibevent 2.1.12-stable", "1.26.1"),
            ("mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64", "10.11.19"),
            ("/a/root-1/usr/sbin/mysqld  Ver 9.7.4-2 for Linux on x86_64", "9.7.4"),
            ("etcd Version: 3.4.23\nGit SHA: Not provided", "3.4.23"),
            ("Zookeeper version: 3.9.3-c26634f, built on 2024-10-17", "3.9.3"),
        ] {
            assert_eq!(version_in(said).as_deref(), Some(version), "{said}");
        }
        assert_eq!(version_in("no version 15 here."), None);
    }

    #[test]
    fn a_release_is_the_beginning_of_a_version() {
        assert!(is_of("9", "9.1.2") && is_of("9", "9") && is_of("10.11", "10.11.19") && is_of("", "1"));
        assert!(!is_of("9", "90.1") && !is_of("1.2", "1.26.1") && !is_of("9", "8.0"));
    }
}
