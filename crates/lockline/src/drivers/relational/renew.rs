//! Renewing rows: all whose rows are free with one request, and each line of the others apart, for a moment.

use std::future::Future;
use std::sync::Arc;

use super::busy::{BusyRows, by_line, patience, stayed_locked};
use super::line_key;
use crate::error::Result;
use crate::line::{Place, Standing};

/// Places to be renewed, and the keys of their lines.
pub(in crate::drivers) struct Batch<'a> {
    pub(in crate::drivers) lines: Vec<u128>,
    pub(in crate::drivers) places: &'a [Place],
}

/// What renewing needs of an engine whose lines are rows.
pub(in crate::drivers) trait RenewsRows: Sync {
    fn busy_rows(&self) -> &BusyRows;

    fn address(&self) -> &Arc<str>;

    /// Renews these places of a batch with one request; with `waits` it may wait for a moment inside the server. Those whose rows
    /// somebody else has locked stay as they are.
    fn renew_some(
        &self,
        batch: &Batch<'_>,
        which: &[usize],
        waits: bool,
        standings: &mut [Standing],
    ) -> impl Future<Output = Result<()>> + Send;
}

/// Renews places, and tells where each stands. One whose row stays locked is unsure, and costs no other its renewal.
pub(in crate::drivers) async fn renew(engine: &impl RenewsRows, places: &[Place]) -> Result<Vec<Standing>> {
    let lines: Vec<u128> = places.iter().map(|place| line_key(place.name.as_str())).collect();
    let batch = Batch { lines, places };
    let mut standings = vec![Standing::Unsure; places.len()];
    let is_apart = |nth: &usize| engine.busy_rows().is_apart(batch.lines[*nth]);
    let together: Vec<usize> = (0..places.len()).filter(|nth| !is_apart(nth)).collect();
    if !together.is_empty() {
        engine.renew_some(&batch, &together, false, &mut standings).await?;
    }
    let missing = by_line(&batch.lines, |nth| standings[nth] == Standing::Unsure);
    if missing.is_empty() {
        return Ok(standings);
    }
    // Those that have their answer are not to wait long for those that have none.
    let shortest = places.iter().map(|place| place.lease).min().unwrap_or_default();
    let apart = renew_apart(engine, &batch, &missing, &mut standings);
    if let Ok(outcome) = tokio::time::timeout(patience(shortest) / 2, apart).await {
        outcome?;
    }
    if standings.iter().all(|standing| *standing == Standing::Unsure) {
        return Err(stayed_locked("renew", engine.address()));
    }
    Ok(standings)
}

/// Renews lines one by one whose rows are or were locked by others.
async fn renew_apart(
    engine: &impl RenewsRows,
    batch: &Batch<'_>,
    missing: &[(u128, Vec<usize>)],
    standings: &mut [Standing],
) -> Result<()> {
    for (line, which) in missing {
        let mut asking = engine.busy_rows().ask(*line, patience(batch.places[which[0]].lease));
        while let Some(attempt) = asking.next().await {
            engine.renew_some(batch, which, attempt.waits, standings).await?;
            if attempt.waits || standings[which[0]] != Standing::Unsure {
                break;
            }
        }
        engine.busy_rows().note(*line, standings[which[0]] == Standing::Unsure);
    }
    Ok(())
}
