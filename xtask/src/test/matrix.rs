//! `cargo xtask test --matrix`: conformance on every release that people run, and the page that says so.

use anyhow::Result;

use super::counts::Target;
use super::{Which, all_passed, floor, jobs_on, programs, run, versions};
use crate::engines::{CELLS, Engine};
use crate::shell;

/// Runs conformance on these cells, one server at a time for each program.
pub(super) fn matrix(which: &Which, cells: &[&'static Engine]) -> Result<()> {
    let programs = programs::build()?;
    let mut jobs = Vec::new();
    for cell in cells {
        jobs.extend(jobs_on(cell, &programs, false)?);
    }
    let mut targets = run(which, jobs)?;
    let place = |target: &Target| cells.iter().position(|cell| Some(cell.name) == target.server);
    targets.sort_by_key(place);
    table(&targets)?;
    // A part of it would make the page say less than is known.
    if cells.len() == CELLS.len() && which.rest.is_empty() {
        versions::write(&targets)?;
    } else {
        shell::say(&format!("not written: {}, which needs all {} cells", versions::PAGE, CELLS.len()));
    }
    all_passed(which, &targets)?;
    if which.rest.is_empty() {
        floor::check(&targets, &[])?;
    }
    Ok(())
}

fn table(targets: &[Target]) -> Result<()> {
    shell::put(&format!("\n{:<24}  {:<26}  passed  failed  ignored  seconds", "cell", "version"))?;
    for target in targets {
        let Target { server, version, passed, failed, ignored, seconds, not_had, finished, .. } = target;
        let remark = match (not_had, finished, failed) {
            (Some(_), ..) => "  <- could not be had",
            (None, false, _) => "  <- did not finish",
            (None, true, 1..) => "  <- failed",
            _ => "",
        };
        let cell = server.unwrap_or_default();
        let counts = format!("{passed:>6}  {failed:>6}  {ignored:>7}  {seconds:>7}");
        shell::put(&format!("{cell:<24}  {version:<26}  {counts}{remark}"))?;
    }
    for target in targets {
        if let Some(why) = &target.not_had {
            shell::put(&format!("{}: {why}", target.server.unwrap_or_default()))?;
        }
    }
    Ok(())
}
