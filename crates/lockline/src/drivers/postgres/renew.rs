//! Renewing: one statement for many places.

use std::sync::Arc;

use tokio_postgres::types::Type;

use super::bits::Bits;
use super::connection::{Ask, param};
use super::verbs::Verbs;
use crate::drivers::relational::{
    Answer, Batch, BusyRows, RenewsRows, lease_columns, nonsense, ticket_column,
};
use crate::error::Result;
use crate::line::Standing;

impl RenewsRows for Verbs {
    fn busy_rows(&self) -> &BusyRows {
        &self.busy
    }

    fn address(&self) -> &Arc<str> {
        &self.address
    }

    async fn renew_some(
        &self,
        Batch { lines, places }: &Batch<'_>,
        which: &[usize],
        waits: bool,
        standings: &mut [Standing],
    ) -> Result<()> {
        let ask = if waits { Ask::RenewWaits } else { Ask::Renew };
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
