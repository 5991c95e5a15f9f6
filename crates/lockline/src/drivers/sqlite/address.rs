//! A file as an address: `sqlite:/path/to/file`, or `sqlite:` for the user's own file.

use std::path::PathBuf;

use super::SqliteConfig;
use crate::error::{Error, ErrorKind, Result};
use crate::url::EngineUrl;

impl SqliteConfig {
    /// The user's own file: `lockline/locks.db` in `$XDG_STATE_HOME`, or in `~/.local/state`. Its directory is made if
    /// it is missing.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the environment names neither.
    pub fn of_user() -> Result<SqliteConfig> {
        let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
        let state = state.ok_or_else(|| {
            Error::new(
                ErrorKind::Invalid,
                "url",
                "neither XDG_STATE_HOME nor HOME says where the user's lock file is",
            )
            .hint("set one of them to an absolute path, or name the file: sqlite:/path/to/file")
        })?;
        let config = SqliteConfig::new(state.join("lockline").join("locks.db")).create_dir(true);
        Ok(SqliteConfig { is_of_user: true, ..config })
    }

    /// The file that an address names.
    pub(crate) fn from_url(mut url: EngineUrl) -> Result<SqliteConfig> {
        if let Some(host) = url.hosts().first() {
            let message = format!("a SQLite file is on this host, not on {host:?}");
            return Err(Error::new(ErrorKind::Invalid, "url", message).hint("write sqlite:/path/to/file"));
        }
        let config =
            if url.path().is_empty() { SqliteConfig::of_user()? } else { SqliteConfig::new(url.path()) };
        let config = match url.take("unproven_file_system").as_deref() {
            None | Some("refuse") => config,
            Some("allow") => config.allow_unproven_file_system(true),
            Some(_) => {
                let message = "unproven_file_system is either allow or refuse";
                return Err(Error::new(ErrorKind::Invalid, "url", message));
            }
        };
        let config = match url.take("thread").as_deref() {
            None | Some("own") => config,
            Some("late") => config.late_thread(true),
            Some(_) => return Err(Error::new(ErrorKind::Invalid, "url", "thread is either own or late")),
        };
        let config = match url.take("owner").as_deref() {
            None | Some("own") => config,
            Some("any") => config.any_owner(true),
            Some(_) => return Err(Error::new(ErrorKind::Invalid, "url", "owner is either own or any")),
        };
        url.finish()?;
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_addresses_are_refused_or_name_a_file() {
        let examples = [
            "sqlite:/tmp/a%20b.db?thread=late",
            "sqlite:x?unproven_file_system=allow&owner=any",
            "sqlite:///a",
        ];
        crate::hostile::texts(&examples, |text| {
            let Ok(url) = EngineUrl::parse(text) else { return };
            if let Ok(config) = SqliteConfig::from_url(url) {
                assert!(!format!("{config:?}").is_empty());
            }
        });
    }
}
