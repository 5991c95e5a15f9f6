//! Another boot, another boot id, and what a power loss takes back.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use super::files::sql;
use super::processes::{Other, child_command, said};
use super::{Heard, claim, is_in, open, place};
use crate::driver::{Driver, Query};
use crate::drivers::sqlite::{Sqlite, SqliteConfig};
use crate::line::{Mode, Now, Standing, Ticket};
use crate::time::Time;

const LEASE: Duration = Duration::from_secs(60);
const SECOND: u64 = 1_000_000;
const WALL: u64 = 1_800_000_000 * SECOND;

/// Opens the file as in a boot that began so many microseconds ago, with this on the wall clock.
async fn opened_at(path: &Path, boot_us: u64, wall_us: u64) -> Sqlite {
    let config =
        SqliteConfig::new(path).clock(move || Now { at: Time::from_micros(boot_us), ticket_us: wall_us });
    Sqlite::open(config, Arc::new(Heard::default())).await.unwrap()
}

async fn try_join(file: &Sqlite) -> Standing {
    file.join(&claim("x", Mode::Exclusive, LEASE), false).await.unwrap()
}

/// Starts a program under a boot id of its own, as systemd-nspawn and LXC do it, on the same kernel and clock.
fn container(dir: &Path) -> Vec<String> {
    let id = dir.join("boot_id");
    std::fs::write(&id, "01234567-89ab-cdef-0123-456789abcdef\n").unwrap();
    let mount = r#"mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@""#;
    ["unshare", "--mount", "sh", "-c", mount, id.to_str().unwrap()].map(str::to_owned).to_vec()
}

#[tokio::test]
async fn a_container_with_a_boot_id_of_its_own_ends_nobodys_claims() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let container = container(dir.path());
    let container: Vec<&str> = container.iter().map(String::as_str).collect();
    let (file, _) = open(&path).await;
    let mine = claim("x", Mode::Exclusive, LEASE);
    let ticket = file.join(&mine, true).await.unwrap().ticket();
    for _ in 0..2 {
        assert_eq!(said(&mut child_command(&container, &format!("view {}", path.display()))), "1 held");
        assert_eq!(said(&mut child_command(&container, &format!("try {}", path.display()))), "busy");
        let standing = file.renew(&[place(&mine, ticket)]).await.unwrap();
        assert_eq!(standing, [Standing::In { ticket: ticket.unwrap() }]);
        // Who comes from outside again finds its own boot id as it was.
        drop(open(&path).await);
    }
    file.leave(&place(&mine, ticket)).await.unwrap();
    let mut other = Other::start(&container, "hold", &path);
    other.hears("in");
    let (file, _) = open(&path).await;
    assert_eq!(try_join(&file).await, Standing::Out, "the container holds it");
}

#[tokio::test]
async fn a_claim_is_believed_from_its_renewal_to_its_deadline_on_this_boots_clock() {
    let renewed = 1000 * SECOND;
    let lease = LEASE.as_micros() as u64;
    // Of this boot, or of one that cannot be told from it: until the deadline.
    for (now, held) in [
        (renewed, true),
        (renewed + 1, true),
        (renewed + lease - 1, true),
        (renewed + lease, false),
        (u64::MAX >> 2, false),
        // Clocks of two cores may differ by a little.
        (renewed - 5_000, true),
        // What has not happened yet happened in another boot.
        (renewed - SECOND, false),
        (5 * SECOND, false),
        (0, false),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("locks.db");
        assert!(is_in(&try_join(&opened_at(&path, renewed, WALL).await).await));
        let file = opened_at(&path, now, WALL).await;
        let lines = file.view(&Query::Prefix(String::new())).await.unwrap();
        assert_eq!(lines.len(), usize::from(held), "at {now}");
        assert_eq!(is_in(&try_join(&file).await), !held, "at {now}");
    }
}

#[tokio::test]
async fn a_claim_of_another_boot_is_never_believed_for_longer_than_its_lease() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let file = opened_at(&path, 1000 * SECOND, WALL).await;
    let mine = claim("x", Mode::Exclusive, 10 * LEASE);
    let ticket = file.join(&mine, true).await.unwrap().ticket();
    // A shorter lease does not move the deadline, and is no reason to take the renewal for a later one.
    let shorter = crate::line::Place { lease: Duration::from_secs(1), ..place(&mine, ticket) };
    assert!(is_in(&file.renew(&[shorter]).await.unwrap()[0]));
    drop(file);
    for (seconds, held) in [(1000, true), (1599, true), (1600, false)] {
        let file = opened_at(&path, seconds * SECOND, WALL).await;
        assert_eq!(try_join(&file).await == Standing::Out, held, "after {seconds} s");
    }
}

/// What is on the disk if the power is lost now, with nothing synced that SQLite or we did not sync: the files of `before`.
fn copy(from: &Path, to: &Path) {
    for ending in ["", "-wal"] {
        let path = |base: &Path| format!("{}{ending}", base.display());
        // By another process: to close a descriptor of the file in this one would drop its locks.
        assert!(Command::new("cp").args([path(from), path(to)]).status().unwrap().success());
    }
}

#[tokio::test]
async fn tokens_rise_over_a_power_loss_with_a_clock_that_is_behind() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let hour = 3600 * SECOND;
    // The same uptime, a shorter and a longer one: nothing but the boot id may tell that it is another boot.
    for (round, uptime) in [1000, 990, 1030].into_iter().enumerate() {
        let file = opened_at(&path, 1000 * SECOND, WALL).await;
        let first = claim("x", Mode::Exclusive, LEASE);
        file.join(&first, true).await.unwrap();
        file.leave(&place(&first, None)).await.unwrap();
        let disk = dir.path().join(format!("disk{round}.db"));
        copy(&path, &disk);
        // Commits that nobody syncs.
        let mut last = Ticket::ZERO;
        for later in 1..300 {
            let file = opened_at(&path, (1000 + later) * SECOND, WALL + later * SECOND).await;
            let standing = try_join(&file).await;
            last = last.max(standing.ticket().unwrap_or_default());
            drop(file);
            sql(&path, "DELETE FROM claims");
        }
        sql(&disk, "DELETE FROM boots");
        let file = opened_at(&disk, uptime * SECOND, WALL - hour).await;
        let token = file.join(&claim("y", Mode::Exclusive, LEASE), true).await.unwrap().ticket().unwrap();
        assert!(token > last, "{token:?} after {last:?}, uptime {uptime} s");
        // And once more, with all of that lost but what was synced.
        drop(file);
    }
}

#[tokio::test]
async fn every_ticket_lies_below_a_limit_that_is_raised_rarely() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let meta = || -> (i64, i64, i64) {
        let db = rusqlite::Connection::open(&path).unwrap();
        db.query_row("SELECT last_ticket, ticket_limit, ticket_reserve FROM meta", [], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .unwrap()
    };
    let mut limits = Vec::new();
    for second in (0..3600).step_by(20) {
        // Each is a command that lives for a moment; the wall clock goes back an hour in the middle.
        let wall =
            if second < 1800 { WALL + second * SECOND } else { WALL - 3600 * SECOND + second * SECOND };
        let file = opened_at(&path, 1000 * SECOND + second * SECOND, wall).await;
        let mine = claim("x", Mode::Exclusive, LEASE);
        file.join(&mine, true).await.unwrap();
        file.leave(&place(&mine, None)).await.unwrap();
        drop(file);
        let (last, limit, reserve) = meta();
        assert!(last < limit && limit <= reserve, "{last} {limit} {reserve}");
        limits.push(limit);
    }
    limits.dedup();
    assert!(limits.len() <= 8, "half an hour of tickets took {} syncs", limits.len());
}

#[tokio::test]
async fn a_boot_keeps_the_ticket_counter() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    drop(opened_at(&path, 1000 * SECOND, WALL).await);
    let ahead = 9_000_000_000_000_000_000_i64;
    sql(&path, &format!("UPDATE meta SET last_ticket = {ahead}"));
    let file = opened_at(&path, 5 * SECOND, WALL).await;
    assert!(try_join(&file).await.ticket().unwrap().get() > ahead as u64);
}
