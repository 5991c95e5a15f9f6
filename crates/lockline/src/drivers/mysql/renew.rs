//! Renewing: claims that stand alone in their lines with one statement for all of them, the others with one procedure.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;
use std::sync::Arc;

use super::verbs::Verbs;
use super::wire::Value;
use crate::drivers::relational::{
    Answer, Batch, BusyRows, RenewsRows, lease_columns, micros, nonsense, ticket_column,
};
use crate::error::Result;
use crate::line::{ClaimId, Place, Standing};
use crate::sync::locked;

impl RenewsRows for Verbs {
    fn busy_rows(&self) -> &BusyRows {
        &self.busy
    }

    fn address(&self) -> &Arc<str> {
        &self.address
    }

    /// Never waits inside the server: a session of ours has no lock wait (lane.rs).
    async fn renew_some(
        &self,
        batch: &Batch<'_>,
        which: &[usize],
        _waits: bool,
        standings: &mut [Standing],
    ) -> Result<()> {
        let lines: Vec<u128> = which.iter().map(|nth| batch.lines[*nth]).collect();
        let places: Vec<&Place> = which.iter().map(|nth| &batch.places[*nth]).collect();
        let found = self.renew_together(&lines, &places).await?;
        for (nth, standing) in which.iter().zip(found) {
            standings[*nth] = standing;
        }
        Ok(())
    }
}

impl Verbs {
    async fn renew_together(&self, lines: &[u128], places: &[&Place]) -> Result<Vec<Standing>> {
        let renewed = self.renew_alone(lines, places).await?;
        let is_renewed = |line: u128, place: &Place| {
            !place.last && place.ticket.is_some() && renewed.contains(&(line, place.id))
        };
        let mut standings = vec![Standing::Unsure; places.len()];
        let mut rest: Vec<(usize, u128, &Place)> = Vec::new();
        for (nth, (line, place)) in lines.iter().copied().zip(places.iter().copied()).enumerate() {
            match place.ticket.filter(|_| is_renewed(line, place)) {
                Some(ticket) => standings[nth] = Standing::In { ticket },
                None => rest.push((nth, line, place)),
            }
        }
        let each: HashSet<_> = lines.iter().zip(places).map(|(line, place)| (line, place.id)).collect();
        // A place that is asked for twice is renewed in the order that was asked for.
        if each.len() == places.len() {
            // As the server counts places; and whoever waits finds those before it renewed.
            rest.sort_by_key(|(_, line, place)| (*line, place.ticket));
        }
        let in_order: Vec<(u128, &Place)> = rest.iter().map(|(_, line, place)| (*line, *place)).collect();
        for ((nth, ..), standing) in rest.iter().zip(self.renew_lines(&in_order).await?) {
            standings[*nth] = standing;
        }
        Ok(standings)
    }

    /// Extends those that stand alone in their lines, with one statement for all of them; tells which.
    async fn renew_alone(&self, lines: &[u128], places: &[&Place]) -> Result<HashSet<(u128, ClaimId)>> {
        let mut alone: BTreeMap<(u128, ClaimId), String> = BTreeMap::new();
        {
            let known = locked(&self.alone);
            for (line, place) in lines.iter().zip(places) {
                if place.last || place.ticket.is_none() || !known.contains(&(*line, place.id)) {
                    continue;
                }
                let (id, ticket) = (place.id.as_u128(), ticket_column(place.ticket));
                let text = format!("[\"{line:032x}\",\"{id:032x}\",{ticket},{}]", micros(place.lease));
                // The same place asked for twice, once with an old ticket, is for those who look at it closely.
                if alone.insert((*line, place.id), text.clone()).is_some_and(|before| before != text) {
                    return Ok(HashSet::new());
                }
            }
        }
        if alone.is_empty() {
            return Ok(HashSet::new());
        }
        let text = format!("[{}]", alone.values().map(String::as_str).collect::<Vec<_>>().join(","));
        let values = vec![Value::Bytes(text.into_bytes())];
        let answer =
            self.routine(self.lanes.spare(), "renew", "CALL lockline_renew_alone(?)", values).await?;
        // Somebody has locked one of them: they are looked at one by one.
        let answer = answer.unwrap_or_default();
        let bits = |hex: &str| u128::from_str_radix(hex, 16).ok();
        let place = |word: &str| {
            let (line, id) = word.split_at_checked(32)?;
            Some((bits(line)?, ClaimId::from_u128(bits(id)?)))
        };
        let renewed: HashSet<(u128, ClaimId)> = answer.split_whitespace().filter_map(place).collect();
        // Somebody came beside the others.
        let mut known = locked(&self.alone);
        alone.keys().filter(|place| !renewed.contains(place)).for_each(|place| {
            known.remove(place);
        });
        Ok(renewed)
    }

    async fn renew_lines(&self, places: &[(u128, &Place)]) -> Result<Vec<Standing>> {
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let mut text = looks(&places.iter().map(|(line, _)| *line).collect::<Vec<_>>());
        for (line, place) in places {
            let (lease, last) = lease_columns(place);
            let ticket = ticket_column(place.ticket);
            // A lease of nothing would only look.
            field(&mut text, *line, place.id.as_u128(), ticket, lease.max(1), last);
        }
        let values = vec![Value::Bytes(text.into_bytes()), Value::Bits(self.process)];
        let answer = self.routine(self.lanes.spare(), "renew", "CALL lockline_renew(?, ?)", values).await?;
        let Some(answer) = answer else { return Ok(vec![Standing::Unsure; places.len()]) };
        let answer = Answer::new(&answer);
        answer.ring(&self.bells);
        let standings = answer.standings(places.len()).ok_or_else(|| nonsense("renew", &self.address))?;
        let is_sure = |(_, standing): &(_, &Standing)| **standing != Standing::Unsure;
        for ((line, place), standing) in places.iter().zip(&standings).filter(is_sure) {
            // A place that was renewed this way is a row among claims.
            self.quiet.note(*line, false);
            self.watch.still_stands(&place.name, place.id, *standing);
            self.letters.note(place.id, *standing);
        }
        Ok(standings)
    }
}

/// A place as lockline_renew takes it.
fn field(text: &mut String, line: u128, id: u128, ticket: i64, lease: i64, last: bool) {
    let _ = write!(text, "{line:032x}{id:032x}{ticket:019}{lease:019}{}", u8::from(last));
}

/// Fields that lock lines, each once and always in one order, so that nobody waits in a circle.
pub(super) fn looks(lines: &[u128]) -> String {
    let mut sorted = lines.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let mut text = String::new();
    for line in sorted {
        field(&mut text, line, 0, 0, 0, false);
    }
    text
}
