//! Where the engine's address comes from: the command line, the environment, or a file.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::exit::Failure;
use crate::output::visible;
use crate::secret;

/// Names a file that contains an address and nothing else.
const URL_FILE: &str = "LOCKLINE_URL_FILE";
/// Names a configuration file to be read instead of the usual ones.
const CONFIG: &str = "LOCKLINE_CONFIG";
pub(crate) const OF_THE_MACHINE: &str = "/etc/lockline/config.toml";
/// This user's own file on this machine.
const DEFAULT_URL: &str = "sqlite:";
/// Others may read it.
const OPEN_TO_OTHERS: u32 = 0o044;

/// An address, and where it was found.
pub(crate) struct Source {
    /// May hold a password, so it is never shown.
    pub(crate) url: String,
    pub(crate) from: From,
    /// The file it was in has a secret that others can read.
    pub(crate) open_file: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    CommandLine,
    /// `LOCKLINE_URL` itself.
    Environment,
    File,
    /// Somebody said that it is to be the usual file.
    Asked,
    /// Nobody said anything.
    Default,
}

impl Source {
    fn new(url: impl Into<String>, from: From) -> Source {
        Source { url: url.into(), from, open_file: None }
    }

    /// The first that says something: `--on`, `LOCKLINE_URL`, `LOCKLINE_URL_FILE`, the user's configuration, the machine's.
    pub(crate) fn find(on: Option<String>) -> Result<Source, Failure> {
        if let Some(on) = on {
            return Source::said(on, From::CommandLine);
        }
        if let Some(url) = variable(secret::URL)? {
            return Source::said(url, From::Environment);
        }
        if let Some(file) = variable(URL_FILE)?.filter(|file| !file.is_empty()) {
            return Source::in_file(Path::new(&file));
        }
        if let Some(file) = variable(CONFIG)? {
            // Empty: no file is wanted.
            return if file.is_empty() {
                Ok(Source::new(DEFAULT_URL, From::Default))
            } else {
                Source::configured(Path::new(&file))
            };
        }
        let files = of_the_user().into_iter().chain([PathBuf::from(OF_THE_MACHINE)]);
        match files.into_iter().find(|file| file.exists()) {
            Some(file) => Source::configured(&file),
            None => Ok(Source::new(DEFAULT_URL, From::Default)),
        }
    }

    /// An address, `@FILE`, or nothing: `LOCKLINE_URL=` in front of a command is how one switches it off.
    fn said(text: String, from: From) -> Result<Source, Failure> {
        match text.strip_prefix('@') {
            _ if text.is_empty() => Ok(Source::new(DEFAULT_URL, From::Asked)),
            Some(file) => Source::in_file(Path::new(file)),
            None => Ok(Source::new(text, from)),
        }
    }

    /// A file that contains an address and nothing else.
    fn in_file(file: &Path) -> Result<Source, Failure> {
        let text = read(file)?;
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        match (lines.next(), lines.next()) {
            (Some(url), None) => Ok(Source::of_file(file, url)),
            _ => Err(unusable(file, "it is to contain an engine's address, in one line")
                .hint("a file with `url = \"…\"` is a configuration: LOCKLINE_CONFIG names it")),
        }
    }

    fn configured(file: &Path) -> Result<Source, Failure> {
        let url = url_in(&read(file)?).map_err(|problem| {
            unusable(file, &problem).hint("it has one line: url = \"redis://host:6379\"; # begins a comment")
        })?;
        Ok(match url {
            Some(url) => Source::of_file(file, &url),
            None => Source::new(DEFAULT_URL, From::Default),
        })
    }

    fn of_file(file: &Path, url: &str) -> Source {
        let mode = file.metadata().map_or(0, |data| data.permissions().mode());
        let is_open = mode & OPEN_TO_OTHERS != 0 && secret::without_secret(url).is_some();
        Source { open_file: is_open.then(|| file.to_owned()), ..Source::new(url, From::File) }
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source").field("from", &self.from).finish_non_exhaustive()
    }
}

fn variable(key: &str) -> Result<Option<String>, Failure> {
    match std::env::var(key) {
        Ok(value) => Ok(Some(value)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => {
            Err(Failure::usage(format!("{key} is not UTF-8")).hint("write it anew, or unset it"))
        }
    }
}

fn of_the_user() -> Option<PathBuf> {
    let named = |key| std::env::var_os(key).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = named("XDG_CONFIG_HOME").or_else(|| named("HOME").map(|home| home.join(".config")))?;
    Some(folder.join("lockline/config.toml"))
}

fn read(file: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(file).map_err(|e| {
        unusable(file, &e.to_string()).hint("it is a text file that this user may read; check its path")
    })
}

fn unusable(file: &Path, problem: &str) -> Failure {
    let file = file.display().to_string();
    Failure::usage(format!("the engine's address cannot be read from {}: {problem}", visible(&file)))
}

/// What a configuration says: `url = "…"`, in double or single quotes, and comments. A problem never repeats what it found:
/// it may be a secret.
fn url_in(text: &str) -> Result<Option<String>, String> {
    let mut url = None;
    for (number, line) in text.lines().enumerate() {
        let (line, at) = (line.trim(), number + 1);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (key, value) = line.split_once('=').ok_or_else(|| format!("line {at} is not KEY = \"VALUE\""))?;
        if key.trim() != "url" {
            return Err(format!("line {at} has a key that is not url"));
        }
        if url
            .replace(quoted(value.trim()).ok_or_else(|| format!("line {at} has no text in quotes"))?)
            .is_some()
        {
            return Err(format!("line {at} says url for the second time"));
        }
    }
    Ok(url)
}

/// A text in quotes, with nothing but a comment behind it.
fn quoted(value: &str) -> Option<String> {
    let quote = value.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
    let (text, rest) = value[1..].split_once(quote)?;
    let rest = rest.trim();
    // No address needs an escape, and one that is not understood would be another address.
    let is_plain = quote == '\'' || !text.contains('\\');
    (is_plain && (rest.is_empty() || rest.starts_with('#'))).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_one_line() {
        let said = |text: &str| url_in(text);
        assert_eq!(said("# nothing yet\n\n"), Ok(None));
        assert_eq!(said("url = \"redis://h\" # ours"), Ok(Some("redis://h".to_owned())));
        assert_eq!(said("# a\n  url='redis://h#x'\n"), Ok(Some("redis://h#x".to_owned())));
        for bad in [
            "url",
            "url = redis://u:c4nary@h",
            "url = \"redis://u:c4nary@h",
            "url = \"a\" c4nary",
            "url = \"a\\u0041\"",
            "[c4nary]",
            "c4nary = \"x\"",
            "url = \"a\"\nurl = \"b\"",
        ] {
            let problem = said(bad).unwrap_err();
            assert!(!problem.contains("c4nary") && problem.starts_with("line "), "{bad}: {problem}");
        }
    }
}
