//! Packages of another suite of the distribution that this machine uses, unpacked into a folder: nothing is installed.
//!
//! The machine's own apt sources are read, and only the suite's name is replaced; so packages come from where the
//! machine gets its own, and are verified with the same keys.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail, ensure};

use super::{cache, elf};
use crate::shell;

/// A suite, with lists of its own and no package installed.
#[derive(Debug)]
pub(super) struct Suite {
    pub(super) name: String,
    folder: PathBuf,
    /// Nobody else uses these lists meanwhile.
    _lock: std::fs::File,
}

/// How long lists are good. A suite that moves drops old packages at once, so lists must not be older by much.
const LISTS: Duration = Duration::from_secs(3600);

impl Suite {
    /// Reads its lists, unless they were read a moment ago.
    pub(super) fn open(name: &str) -> Result<Suite> {
        let folder = cache::folder()?.join("suites").join(name);
        for part in ["sources", "lists/partial", "cache/archives/partial"] {
            std::fs::create_dir_all(folder.join(part))?;
        }
        let suite = Suite { name: name.to_owned(), _lock: cache::lock(&folder)?, folder };
        let codename = codename()?;
        let sources = Sources::of_the_machine(Path::new("/etc/apt"), &codename)?;
        ensure!(
            !sources.is_empty(),
            "apt's sources do not name {codename}: there is nothing to derive {name} from"
        );
        std::fs::write(suite.folder.join("sources/all.list"), sources.one_line(name))?;
        std::fs::write(suite.folder.join("sources/all.sources"), sources.deb822(name))?;
        std::fs::write(suite.folder.join("status"), "")?;
        std::fs::write(suite.folder.join("apt.conf"), suite.settings())?;
        let updated = std::fs::metadata(suite.folder.join("updated")).and_then(|data| data.modified());
        let age = updated.ok().and_then(|at| SystemTime::now().duration_since(at).ok());
        if age.is_none_or(|age| age > LISTS) {
            suite.update()?;
        }
        Ok(suite)
    }

    /// Everything that apt reads or writes is in the folder, but for the way to the network, which is the machine's.
    fn settings(&self) -> String {
        let at = |part: &str| self.folder.join(part).display().to_string();
        let mut settings = format!(
            "Dir::State::lists \"{}\";\nDir::State::status \"{}\";\nDir::Cache \"{}\";\n\
             Dir::Etc::sourcelist \"/dev/null\";\nDir::Etc::sourceparts \"{}\";\nDir::Etc::preferences \"/dev/null\";\n\
             Dir::Etc::preferencesparts \"/dev/null\";\nAPT::Install-Recommends \"false\";\nAcquire::Languages \"none\";\n\
             Acquire::Retries \"3\";\nAcquire::IndexTargets::deb::DEP-11::DefaultEnabled \"false\";\n",
            at("lists"),
            at("status"),
            at("cache"),
            at("sources")
        );
        if rustix::process::geteuid().is_root() {
            // Its user for downloads may not be able to read the folder.
            settings.push_str("APT::Sandbox::User \"root\";\n");
        }
        settings
    }

    fn apt(&self, program: &str, words: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(words).env("APT_CONFIG", self.folder.join("apt.conf")).env("LC_ALL", "C");
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command
    }

    fn update(&self) -> Result<()> {
        let output = self.apt("apt-get", &["update", "--error-on=any"]).output().context("apt-get")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "the lists of {} cannot be read: {}", self.name, said.trim());
        Ok(std::fs::write(self.folder.join("updated"), "")?)
    }

    /// The version of a package, if the suite has it.
    pub(super) fn version_of(&self, package: &str) -> Result<Option<String>> {
        let said = shell::output(&mut self.apt("apt-cache", &["policy", package]))?;
        let candidate = said.lines().find_map(|line| line.trim().strip_prefix("Candidate: "));
        Ok(candidate.filter(|version| *version != "(none)").map(str::to_owned))
    }

    /// Unpacks packages with all that they need, down to the C library, such that their programs run from there.
    pub(super) fn unpack(&self, packages: &[&str], root: &Path) -> Result<()> {
        let patchelf = self.patchelf()?;
        let archives = self.downloaded(packages)?;
        let new = cache::unfinished(root)?;
        // The programs of the packages themselves; those of what they need are not needed.
        for archive in archives.iter().filter(|archive| is_one_of(archive, packages)) {
            extract(archive, &new)?;
        }
        let programs = elf::programs(&new);
        for archive in &archives {
            extract(archive, &new)?;
        }
        elf::prune(&new, &programs)?;
        for program in &programs {
            patchelf.bind(program, &new, root)?;
        }
        cache::finish(&new, root)?;
        self.clean()
    }

    /// The archives of packages and of all that they need.
    fn downloaded(&self, packages: &[&str]) -> Result<Vec<PathBuf>> {
        self.clean()?;
        let words: Vec<&str> =
            ["install", "--yes", "--quiet", "--download-only"].iter().chain(packages).copied().collect();
        let mut output = self.apt("apt-get", &words).output().context("apt-get")?;
        if !output.status.success() {
            // What the lists name may have been replaced since.
            self.update()?;
            output = self.apt("apt-get", &words).output().context("apt-get")?;
        }
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{} of {}: {}", packages.join(", "), self.name, said.trim());
        let all = std::fs::read_dir(self.folder.join("cache/archives"))?.filter_map(Result::ok);
        let archives =
            all.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|is| is == "deb"));
        Ok(archives.collect())
    }

    fn clean(&self) -> Result<()> {
        shell::run(&mut self.apt("apt-get", &["clean"]))
    }

    /// The program that tells others where their libraries are: the machine's, or one of the suite's.
    fn patchelf(&self) -> Result<elf::Patchelf> {
        if let Some(own) = elf::Patchelf::of_the_machine() {
            return Ok(own);
        }
        let root = self.folder.join("patchelf");
        if !root.is_dir() {
            let new = cache::unfinished(&root)?;
            for archive in self.downloaded(&["patchelf"])? {
                extract(&archive, &new)?;
            }
            cache::finish(&new, &root)?;
        }
        elf::Patchelf::unpacked(&root)
    }
}

/// Whether it is the archive of one of these: `NAME_VERSION_ARCHITECTURE.deb`.
fn is_one_of(archive: &Path, packages: &[&str]) -> bool {
    let name = archive.file_name().unwrap_or_default().to_string_lossy();
    packages.iter().any(|package| name.strip_prefix(package).is_some_and(|rest| rest.starts_with('_')))
}

fn extract(archive: &Path, root: &Path) -> Result<()> {
    shell::run(Command::new("dpkg").arg("--extract").arg(archive).arg(root))
}

/// The name of the distribution's release that this machine runs.
fn codename() -> Result<String> {
    let text = std::fs::read_to_string("/etc/os-release").context("/etc/os-release")?;
    let named = text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    Ok(named
        .context("/etc/os-release names no VERSION_CODENAME: is this a Debian?")?
        .trim_matches('"')
        .to_owned())
}

/// What apt was told about the distribution itself: not about its updates, and not about others' packages.
#[derive(Debug, Default)]
struct Sources {
    /// The options and address of each line, and its components.
    lines: Vec<(String, String)>,
    /// The fields of each paragraph, without its suites.
    paragraphs: Vec<String>,
}

impl Sources {
    fn of_the_machine(folder: &Path, codename: &str) -> Result<Sources> {
        let parts =
            std::fs::read_dir(folder.join("sources.list.d")).into_iter().flatten().filter_map(Result::ok);
        let mut files: Vec<_> = parts.map(|part| part.path()).collect();
        files.push(folder.join("sources.list"));
        files.sort();
        let mut sources = Sources::default();
        for file in files {
            let extension = file.extension().unwrap_or_default().to_string_lossy().into_owned();
            match (extension.as_str(), std::fs::read_to_string(&file)) {
                ("list", Ok(text)) => sources.read_lines(&text, codename),
                ("sources", Ok(text)) => sources.read_paragraphs(&text, codename),
                // There need not be such a file, and others are not for us.
                ("list" | "sources", Err(error)) if error.kind() != std::io::ErrorKind::NotFound => {
                    bail!("{}: {error}", file.display())
                }
                _ => {}
            }
        }
        Ok(sources)
    }

    fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.paragraphs.is_empty()
    }

    /// `deb [ options ] address suite components`.
    fn read_lines(&mut self, text: &str, codename: &str) {
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default().trim();
            let Some(rest) = line.strip_prefix("deb ") else { continue };
            let (options, rest) =
                match rest.trim_start().strip_prefix('[').and_then(|rest| rest.split_once(']')) {
                    Some((options, rest)) => (format!("[{options}] "), rest),
                    None => (String::new(), rest),
                };
            let words: Vec<&str> = rest.split_whitespace().collect();
            if let [address, suite, components @ ..] = words.as_slice()
                && *suite == codename
            {
                self.lines.push((format!("{options}{address}"), components.join(" ")));
            }
        }
    }

    /// Fields of the form `Name: value`; a line that begins with a space belongs to the field before.
    fn read_paragraphs(&mut self, text: &str, codename: &str) {
        for paragraph in text.split("\n\n") {
            let mut fields: Vec<(String, String)> = Vec::new();
            for line in paragraph.lines().filter(|line| !line.starts_with('#')) {
                match (line.starts_with([' ', '\t']), fields.last_mut(), line.split_once(':')) {
                    (true, Some((_, value)), _) => {
                        value.push('\n');
                        value.push_str(line);
                    }
                    (false, _, Some((name, value))) => {
                        fields.push((name.to_lowercase(), value.trim().to_owned()));
                    }
                    _ => {}
                }
            }
            let value =
                |name: &str| fields.iter().find(|(of, _)| of == name).map(|(_, value)| value.as_str());
            let has = |name: &str, word: &str| {
                value(name).is_some_and(|all| all.split_whitespace().any(|one| one == word))
            };
            let is_off = value("enabled").is_some_and(|enabled| enabled.eq_ignore_ascii_case("no"));
            if is_off || !has("types", "deb") || !has("suites", codename) {
                continue;
            }
            let mut kept = String::new();
            for (name, value) in fields.iter().filter(|(name, _)| name != "suites" && name != "types") {
                let _ = writeln!(kept, "{name}: {value}");
            }
            self.paragraphs.push(kept);
        }
    }

    fn one_line(&self, suite: &str) -> String {
        self.lines
            .iter()
            .map(|(address, components)| format!("deb {address} {suite} {components}\n"))
            .collect()
    }

    fn deb822(&self, suite: &str) -> String {
        self.paragraphs.iter().map(|kept| format!("Types: deb\nSuites: {suite}\n{kept}\n")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_suite_of_the_machines_sources_is_replaced() {
        let mut sources = Sources::default();
        sources.read_lines(
            "# a comment\ndeb [signed-by=/k arch=amd64] http://one/debian bookworm main contrib # why\n\
             deb http://one/security bookworm-security main\ndeb-src http://one/debian bookworm main\n\
             deb http://two/debian bookworm main\n",
            "bookworm",
        );
        assert_eq!(
            sources.one_line("sid"),
            "deb [signed-by=/k arch=amd64] http://one/debian sid main contrib\ndeb http://two/debian sid main\n"
        );
        sources.read_paragraphs(
            "Types: deb deb-src\n# http://snapshot\nURIs: http://one/debian\nSuites: bookworm bookworm-updates\n\
             Components: main\nSigned-By:\n -----BEGIN\n .\n abc\n\n\
             Types: deb\nURIs: http://one/security\nSuites: bookworm-security\nComponents: main\n\n\
             Types: deb\nURIs: http://off\nSuites: bookworm\nEnabled: no\n",
            "bookworm",
        );
        assert_eq!(
            sources.deb822("trixie"),
            "Types: deb\nSuites: trixie\nuris: http://one/debian\ncomponents: main\nsigned-by: \n -----BEGIN\n .\n abc\n\n"
        );
    }

    #[test]
    fn a_machine_with_other_sources_is_told_so() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Sources::of_the_machine(folder.path(), "bookworm").unwrap().is_empty());
    }

    #[test]
    fn archives_are_told_apart_by_their_whole_name() {
        assert!(is_one_of(Path::new("/a/valkey-server_9.1.2-1_amd64.deb"), &["valkey-server"]));
        assert!(!is_one_of(Path::new("/a/mysql-server-core_9.7.4-2_amd64.deb"), &["mysql-server"]));
    }
}
