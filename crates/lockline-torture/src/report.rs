//! What a run found, for people or as one JSON object.

use std::io::Write;

use serde_json::json;

use crate::conductor::{Outcome, Plan};

pub(crate) fn print(plan: &Plan, outcome: &Outcome, as_json: bool) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let findings = &outcome.findings;
    let faults: u64 = outcome.faults.values().sum();
    let recovery = outcome.recovery_p99.map(|delay| delay.as_secs_f64() * 1000.0);
    if as_json {
        let object = json!({
            "engine": plan.engine, "seconds": plan.seconds, "seed": plan.seed,
            "acquisitions": findings.acquisitions, "faults": faults, "faults_by_kind": outcome.faults,
            "overlaps": findings.overlaps, "fence_violations": findings.fence_violations,
            "order_violations": findings.order_violations, "late_losses": findings.late_losses,
            "leaks": outcome.leaks, "hangs": outcome.hangs, "recovery_p99_ms": recovery,
        });
        return writeln!(out, "{object}");
    }
    writeln!(
        out,
        "{} for {} s, seed {}: {} acquisitions under {faults} faults {:?}",
        plan.engine, plan.seconds, plan.seed, findings.acquisitions, outcome.faults
    )?;
    writeln!(
        out,
        "overlaps {}, fence violations {}, order violations {}, late losses {}, leaks {}, hangs {}",
        findings.overlaps,
        findings.fence_violations,
        findings.order_violations,
        findings.late_losses,
        outcome.leaks,
        outcome.hangs
    )?;
    if let Some(recovery) = recovery {
        writeln!(out, "the next grant after a kill came within {recovery:.1} ms (p99)")?;
    }
    if outcome.is_clean() {
        return writeln!(out, "nothing found");
    }
    writeln!(
        out,
        "FOUND SOMETHING; again with: cargo xtask torture {} --seconds {} --seed {}",
        plan.engine, plan.seconds, plan.seed
    )
}
