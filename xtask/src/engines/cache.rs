//! Where fetched engines are kept: outside of `target`, so that they survive it and are shared by clones.
//!
//! Every version is a folder of its own that appears at once, when it is whole. Two runs may use the cache at the same
//! time: fetching is behind a lock, and what was used within a week is not removed.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};

/// The cache. Root's is where every user can read: PostgreSQL does not run as root.
pub(super) fn folder() -> Result<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = match (set("LOCKLINE_CACHE"), set("XDG_CACHE_HOME"), set("HOME")) {
        (Some(ours), ..) => ours,
        _ if rustix::process::geteuid().is_root() => PathBuf::from("/var/cache/lockline"),
        (_, Some(caches), _) => caches.join("lockline"),
        (_, _, Some(home)) => home.join(".cache/lockline"),
        _ => std::env::temp_dir().join("lockline-cache"),
    };
    let folder = folder.join("engines");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

/// Until it is dropped nobody else fetches into this folder.
pub(super) fn lock(folder: &Path) -> Result<File> {
    let file = File::create(folder.join("lock"))?;
    file.lock().with_context(|| format!("cannot lock {}", folder.display()))?;
    Ok(file)
}

/// A new, empty folder beside the one that it will become.
pub(super) fn unfinished(folder: &Path) -> Result<PathBuf> {
    let mut new = folder.as_os_str().to_owned();
    new.push(format!(".unfinished-{}", std::process::id()));
    let new = PathBuf::from(new);
    let _ = std::fs::remove_dir_all(&new);
    std::fs::create_dir_all(&new)?;
    Ok(new)
}

/// It is whole.
pub(super) fn finish(new: &Path, folder: &Path) -> Result<()> {
    std::fs::rename(new, folder).with_context(|| format!("cannot make {}", folder.display()))
}

/// The version that was used or looked for last.
pub(super) fn newest(folder: &Path) -> Option<PathBuf> {
    versions(folder).min_by_key(|version| age(version))
}

fn versions(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let all = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    all.map(|entry| entry.path()).filter(|path| stamp(path).is_file() && !is_abandoned(path))
}

/// When it was last known to be the newest.
pub(super) fn age(version: &Path) -> Duration {
    let stamped = std::fs::metadata(stamp(version)).and_then(|data| data.modified());
    stamped.ok().and_then(|at| SystemTime::now().duration_since(at).ok()).unwrap_or_default()
}

fn stamp(version: &Path) -> PathBuf {
    version.join(".newest-at")
}

/// Notes that this is the newest there is, now.
pub(super) fn used(version: &Path) -> Result<()> {
    Ok(std::fs::write(stamp(version), "")?)
}

/// Removes versions that nobody has looked at for long, and what was never finished.
pub(super) fn forget_older(folder: &Path, than: &Path) {
    const LONG: Duration = Duration::from_secs(7 * 24 * 3600);
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    for path in entries.map(|entry| entry.path()).filter(|path| path.is_dir() && path != than) {
        let touched = std::fs::metadata(&path).and_then(|data| data.modified());
        let untouched = touched.ok().and_then(|at| SystemTime::now().duration_since(at).ok());
        if untouched.is_some_and(|untouched| untouched > LONG) && age(&path) > LONG || is_abandoned(&path) {
            let _ = std::fs::remove_dir_all(path);
        }
    }
}

/// Whether it was left unfinished: whoever fetches holds the lock, so nobody is at it now.
fn is_abandoned(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.to_string_lossy().starts_with("unfinished-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_finished_is_not_used_and_goes() {
        let dir = tempfile::tempdir().unwrap();
        let version = dir.path().join("9.1.2-1");
        let abandoned = unfinished(&version).unwrap();
        used(&abandoned).unwrap();
        let whole = unfinished(&dir.path().join("9.1.1-1")).unwrap();
        finish(&whole, &version).unwrap();
        assert_eq!(newest(dir.path()), None);
        used(&version).unwrap();
        assert_eq!(newest(dir.path()), Some(version.clone()));
        forget_older(dir.path(), &version);
        assert!(version.is_dir() && !abandoned.exists());
    }
}
