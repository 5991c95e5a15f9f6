//! Which releases a usual test run includes: the newest of what most people run, always; the others by turns, so that a
//! week of runs has seen all.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;

use crate::engines::{self, Engine};
use crate::shell;

/// In every run, beside MySQL, which is an engine of its own.
const ALWAYS: [&str; 3] = ["postgres-18", "valkey-9", "valkey-9-cluster"];

/// So many days until it begins anew.
const DAYS: u64 = 7;

/// The releases of today's run, without those that it has already.
pub(super) fn of_today(already: &[&'static Engine]) -> Result<Vec<&'static Engine>> {
    let day = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / 86_400;
    let all = engines::cells(&[])?;
    let is_new = |cell: &&'static Engine| !already.iter().any(|engine| engine.name == cell.name);
    let (always, others): (Vec<&'static Engine>, Vec<&'static Engine>) =
        all.into_iter().filter(is_new).partition(|cell| ALWAYS.contains(&cell.name));
    // Those that the machine's own engines are of have their tests in every run.
    let others: Vec<_> = others.into_iter().filter(|cell| !cell.is_the_usual_one()).collect();
    let turn = turn(&others, day);
    let names = |cells: &[&Engine]| cells.iter().map(|cell| cell.name).collect::<Vec<_>>().join(", ");
    shell::say(&format!("releases in every run: {}", names(&always)));
    shell::say(&format!("and today (day {} of {DAYS}): {}", day % DAYS + 1, names(&turn)));
    Ok(always.into_iter().chain(turn).collect())
}

fn turn(cells: &[&'static Engine], day: u64) -> Vec<&'static Engine> {
    let is_next = |number: &usize| *number as u64 % DAYS == day % DAYS;
    cells.iter().enumerate().filter(|(number, _)| is_next(number)).map(|(_, cell)| *cell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_week_sees_every_release_once() {
        let all = engines::cells(&[]).unwrap();
        let mut seen: Vec<_> =
            (20_000..20_000 + DAYS).flat_map(|day| turn(&all, day)).map(|cell| cell.name).collect();
        seen.sort_unstable();
        let mut expected: Vec<_> = all.iter().map(|cell| cell.name).collect();
        expected.sort_unstable();
        assert_eq!(seen, expected);
    }

    #[test]
    fn what_is_in_every_run_exists() {
        let known = engines::cells(&[]).unwrap();
        assert!(ALWAYS.iter().all(|name| known.iter().any(|cell| cell.name == *name)));
    }
}
