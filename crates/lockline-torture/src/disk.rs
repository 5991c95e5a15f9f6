//! A disk of one's own that can be full for a moment: a file system in memory, whose bound is lowered to what is in it.
//!
//! The conductor runs among mounts of its own (`unshare --mount`), and so does whatever it starts: nobody else sees these
//! disks, and they vanish with the last of these processes, whatever it died of.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use rustix::fs::statvfs;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_move, mount_remount, unmount};

/// What it may hold, in bytes: more than any engine writes in a run.
const ROOM: u64 = 8 << 30;

/// Whether there can be such disks: it takes root, and not in every container.
pub(crate) fn can_be_mounted() -> bool {
    let tried = Command::new("unshare")
        .args(["--mount", "mount", "-t", "tmpfs", "none", "/tmp"])
        .stderr(Stdio::null())
        .status();
    tried.is_ok_and(|status| status.success())
}

/// Becomes the same program among mounts of its own. Returns only if that cannot be.
pub(crate) fn among_own_mounts(words: impl IntoIterator<Item = String>) -> anyhow::Error {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return error.into(),
    };
    anyhow::Error::from(Command::new("unshare").arg("--mount").arg(program).args(words).exec())
        .context("disks are filled among mounts of their own, and that needs unshare(1)")
}

/// A mounted disk, which is unmounted in the end: its folder could not be removed otherwise.
#[derive(Debug)]
pub(crate) struct Disk {
    folder: PathBuf,
}

impl Disk {
    /// An empty one, in a new folder.
    pub(crate) fn new(folder: &Path) -> anyhow::Result<Disk> {
        std::fs::create_dir(folder)?;
        // Only who owns it gets in: PostgreSQL refuses to work elsewhere.
        let options = std::ffi::CString::new(format!("size={ROOM},mode=700"))?;
        mount("none", folder, "tmpfs", MountFlags::empty(), options.as_c_str()).context("a disk to fill")?;
        Ok(Disk { folder: folder.to_owned() })
    }

    /// One that takes the place of a folder and has what is in it, and the same owner.
    pub(crate) fn in_place_of(folder: &Path) -> anyhow::Result<Disk> {
        let mut beside = folder.as_os_str().to_owned();
        beside.push("-disk");
        let mut disk = Disk::new(Path::new(&beside))?;
        // No holes: what a server had reserved for itself stays reserved.
        let copied = Command::new("cp")
            .args(["--archive", "--sparse=never"])
            .args([&folder.join("."), &disk.folder])
            .status()?;
        ensure!(copied.success(), "{} could not be copied", folder.display());
        mount_move(&disk.folder, folder)?;
        disk.folder = folder.to_owned();
        Ok(disk)
    }

    /// From now on there is room for so many more bytes.
    pub(crate) fn fill(&self, spare: u64) -> anyhow::Result<()> {
        loop {
            let now = statvfs(&self.folder)?;
            let used = (now.f_blocks - now.f_bfree) * now.f_frsize;
            match self.bound(used + spare) {
                // Somebody wrote in the meantime.
                Err(Errno::INVAL) => {}
                bounded => return Ok(bounded?),
            }
        }
    }

    /// There is room again.
    pub(crate) fn free(&self) -> anyhow::Result<()> {
        Ok(self.bound(ROOM)?)
    }

    fn bound(&self, bytes: u64) -> rustix::io::Result<()> {
        mount_remount(&self.folder, MountFlags::empty(), format!("size={bytes}"))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // If it is still in use, it goes with the last who uses it.
        let _ = unmount(&self.folder, UnmountFlags::DETACH);
    }
}
