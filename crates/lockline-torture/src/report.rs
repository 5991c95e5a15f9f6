//! What a run found, for people or as one JSON object.

use std::io::Write;
use std::time::Duration;

use serde_json::json;

use crate::check::p99;
use crate::conductor::{Outcome, Plan};

fn ms(delay: Option<Duration>) -> Option<f64> {
    delay.map(|delay| (delay.as_secs_f64() * 10_000.0).round() / 10.0)
}

pub(crate) fn print(plan: &Plan, outcome: &Outcome, as_json: bool) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let (findings, progress) = (&outcome.findings, &outcome.progress);
    let faults: u64 = outcome.faults.values().sum();
    let recovery = ms(p99(&progress.recoveries));
    let handoff = ms(p99(&progress.handoffs));
    if as_json {
        let (from, step, rates) = &outcome.around_healing;
        let object = json!({
            "engine": plan.engine, "seconds": plan.seconds, "seed": plan.seed,
            "acquisitions": findings.acquisitions, "faults": faults, "faults_by_kind": outcome.faults,
            "promised": format!("{:?}", outcome.promised),
            "overlaps": findings.overlaps, "not_linearizable": findings.not_linearizable,
            "fence_violations": findings.fence_violations, "order_violations": findings.order_violations,
            "late_losses": findings.late_losses, "stalls": progress.stalls.len(), "lost_wakeups": progress.lost_wakeups,
            "leaks": outcome.leaks, "hangs": outcome.hangs, "recoveries": progress.recoveries.len(),
            "recovery_p99_ms": recovery, "recovery_max_ms": ms(progress.recoveries.last().copied()),
            "handoffs": progress.handoffs.len(), "handoff_p99_ms": handoff,
            "around_healing": { "from_ms": from, "step_ms": step, "per_second": rates },
        });
        return writeln!(out, "{object}");
    }
    writeln!(
        out,
        "{} for {} s, seed {}: {} acquisitions under {faults} faults {:?}",
        plan.engine, plan.seconds, plan.seed, findings.acquisitions, outcome.faults
    )?;
    for (what, count) in [
        ("overlaps", findings.overlaps),
        ("answers that no order explains", findings.not_linearizable),
        ("fence violations", findings.fence_violations),
        ("order violations", findings.order_violations),
        ("late losses", findings.late_losses),
        ("stalls after healing", progress.stalls.len() as u64),
        ("lost wake-ups", progress.lost_wakeups),
        ("leaks", outcome.leaks),
        ("hangs", outcome.hangs),
    ] {
        writeln!(out, "{count:>6} {what}")?;
    }
    if let (Some(recovery), Some(handoff)) = (recovery, handoff) {
        writeln!(out, "recovered within {recovery} ms of healing, handed over within {handoff} ms (p99)")?;
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
