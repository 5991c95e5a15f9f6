//! Renewing: all lines whose rows are free with one statement, and each of the others apart, for a moment.

use tokio_postgres::types::Type;

use super::bits::Bits;
use super::connection::{Ask, param};
use super::verbs::Verbs;
use crate::drivers::relational::{
    Answer, by_line, lease_columns, line_key, nonsense, patience, stayed_locked, ticket_column,
};
use crate::error::Result;
use crate::line::{Place, Standing};

impl Verbs {
    pub(super) async fn renew(&self, places: &[Place]) -> Result<Vec<Standing>> {
        let lines: Vec<u128> = places.iter().map(|place| line_key(place.name.as_str())).collect();
        let mut standings = vec![Standing::Unsure; places.len()];
        let together: Vec<usize> = (0..places.len()).filter(|nth| !self.busy.is_apart(lines[*nth])).collect();
        if !together.is_empty() {
            self.renew_some(&lines, places, &together, Ask::Renew, &mut standings).await?;
        }
        let missing = by_line(&lines, |nth| standings[nth] == Standing::Unsure);
        if missing.is_empty() {
            return Ok(standings);
        }
        // Those that have their answer are not to wait long for those that have none.
        let shortest = places.iter().map(|place| place.lease).min().unwrap_or_default();
        let all = self.renew_each(&lines, places, &missing, &mut standings);
        if let Ok(outcome) = tokio::time::timeout(patience(shortest) / 2, all).await {
            outcome?;
        }
        if standings.iter().all(|standing| *standing == Standing::Unsure) {
            return Err(stayed_locked("renew", &self.address));
        }
        Ok(standings)
    }

    /// Renews lines one by one whose rows are or were locked by others; one that stays locked is unsure.
    async fn renew_each(
        &self,
        lines: &[u128],
        places: &[Place],
        missing: &[(u128, Vec<usize>)],
        standings: &mut [Standing],
    ) -> Result<()> {
        for (line, which) in missing {
            let mut asking = self.busy.ask(*line, patience(places[which[0]].lease));
            while let Some(attempt) = asking.next().await {
                let ask = if attempt.waits { Ask::RenewWaits } else { Ask::Renew };
                self.renew_some(lines, places, which, ask, standings).await?;
                if attempt.waits || standings[which[0]] != Standing::Unsure {
                    break;
                }
            }
            self.busy.note(*line, standings[which[0]] == Standing::Unsure);
        }
        Ok(())
    }

    /// Renews these with one statement. Those whose rows somebody has locked stay as they are.
    async fn renew_some(
        &self,
        lines: &[u128],
        places: &[Place],
        which: &[usize],
        ask: Ask,
        standings: &mut [Standing],
    ) -> Result<()> {
        let some = || which.iter().map(|nth| &places[*nth]);
        let keys: Vec<Bits> = which.iter().map(|nth| Bits(lines[*nth])).collect();
        let ids: Vec<Bits> = some().map(|place| Bits(place.id.as_u128())).collect();
        let tickets: Vec<i64> = some().map(|place| ticket_column(place.ticket)).collect();
        let (leases, last): (Vec<i64>, Vec<bool>) = some().map(lease_columns).unzip();
        let params = vec![
            param(keys, Type::UUID_ARRAY),
            param(ids, Type::UUID_ARRAY),
            param(tickets, Type::INT8_ARRAY),
            param(leases, Type::INT8_ARRAY),
            param(last, Type::BOOL_ARRAY),
            param(self.process, Type::UUID),
        ];
        let Some(answer) = self.connections[0].routine("renew", ask, params).await? else { return Ok(()) };
        let answer = Answer::new(&answer);
        answer.ring(&self.bells);
        let found = answer.standings(which.len()).ok_or_else(|| nonsense("renew", &self.address))?;
        for (nth, standing) in which.iter().zip(found) {
            if standing != Standing::Unsure {
                // A place that was renewed is a row among claims.
                self.quiet.note(lines[*nth], false);
                self.note(places[*nth].id, standing);
            }
            standings[*nth] = standing;
        }
        Ok(())
    }
}
