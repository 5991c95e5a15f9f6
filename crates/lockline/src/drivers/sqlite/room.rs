//! Free pages inside the file, so that whoever holds a lock can renew and leave it when the disk is full.
//!
//! A renewal makes a row longer now and then, which may split a page. So claims never take the last free pages: when few are
//! left the file is made larger while the disk has room for it, and when it has none, new claims are refused.

use std::path::Path;

use rusqlite::Connection;
use rustix::fs::statvfs;

/// Fewer free pages than this are kept for those who hold something already. A batch of joins takes about half.
const LOW_PAGES: u32 = 192;
/// By how much the file grows at once.
const GROWTH_BYTES: u32 = 512 * 1024;

/// Whether new claims would take pages that renewals may need.
pub(super) fn is_low(db: &Connection) -> rusqlite::Result<bool> {
    let free: u32 = db.prepare_cached("PRAGMA freelist_count")?.query_row([], |row| row.get(0))?;
    Ok(free < LOW_PAGES)
}

/// Makes the file larger if few of its pages are free. Answers whether there is room for new claims.
pub(super) fn top_up(db: &Connection, path: &Path) -> rusqlite::Result<bool> {
    if !is_low(db)? {
        return Ok(true);
    }
    // Looked at first: pages that fit into the log but not into the file could never be written back, and the log
    // could never start again.
    let free = statvfs(path).map_or(u64::MAX, |disk| disk.f_bavail.saturating_mul(disk.f_frsize));
    if free < 4 * u64::from(GROWTH_BYTES) {
        return Ok(false);
    }
    db.execute("INSERT INTO reserve VALUES (zeroblob(?1))", [GROWTH_BYTES])?;
    free_reserve(db)?;
    Ok(true)
}

/// The first free pages of a new file, in the transaction that makes it.
pub(super) fn first_reserve(db: &Connection) -> rusqlite::Result<()> {
    db.execute("INSERT INTO reserve VALUES (zeroblob(?1))", [GROWTH_BYTES]).map(drop)
}

/// Only a checkpoint makes the reserve real pages of the file; then they are given back to the free list.
pub(super) fn free_reserve(db: &Connection) -> rusqlite::Result<()> {
    db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
    db.execute("DELETE FROM reserve", []).map(drop)
}
