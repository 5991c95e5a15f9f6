//! The verbs as the procedures take them.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::bell::Watch;
use super::config::MysqlConfig;
use super::durability::{Durability, WEAK};
use super::lane::{Lane, connect, text_of};
use super::lanes::Lanes;
use super::renew::looks;
use super::wire::{Failure, Row, Value};
use crate::driver::{Bells, Query, Verb};
use crate::drivers::partners::Partners;
use crate::drivers::quiet::QuietLines;
use crate::drivers::relational::{
    Answer, BusyRows, ClaimRow, LINES, LetterBox, assemble, line_key, micros, mode_columns, nonsense,
    patience, stayed_locked, ticket_column, would_wait_for_itself,
};
use crate::error::Result;
use crate::line::{Claim, ClaimId, LineView, Mode, Place, Standing, Ticket};
use crate::name::Name;
use crate::sync::locked;

/// How often a client that waits looks for evictions. Who gets in is told by the one before it, not by a letter.
const LETTERS: Duration = Duration::from_millis(500);

/// The line whose key is given, unless somebody else has locked its row: the shortest that an `UPDATE` of MySQL can wait is a second.
const FREE_ROW: &str = "(SELECT line FROM (SELECT line FROM lockline_lines WHERE line = ? LIMIT 1 FOR UPDATE SKIP LOCKED) free_row)";

/// The six verbs on one server.
#[derive(Debug)]
pub(super) struct Verbs {
    pub(super) address: Arc<str>,
    /// A claim's verbs go over one of them, so that a leave never overtakes its join, and releases on the session of the join what
    /// others wait for.
    pub(super) lanes: Arc<Lanes>,
    /// This client, to the server: whose bells are whose.
    pub(super) process: u128,
    pub(super) bells: Bells,
    pub(super) watch: Arc<Watch>,
    pub(super) letters: Arc<LetterBox>,
    /// What the server keeps, as its answers say.
    pub(super) durability: Arc<Durability>,
    /// Rows that somebody else has locked.
    pub(super) busy: BusyRows,
    /// Where one changed row may do.
    pub(super) quiet: QuietLines,
    /// Who leaves together with whom comes. Its turns are everybody's: a join may send twice.
    pub(super) partners: Partners<Standing>,
    /// Claims of ours that stood alone in their lines when they were last looked at.
    pub(super) alone: Mutex<HashSet<(u128, ClaimId)>>,
}

pub(super) fn bytes(text: &str) -> Value {
    Value::Bytes(text.as_bytes().to_vec())
}

impl Verbs {
    pub(super) async fn open(config: MysqlConfig, address: Arc<str>, bells: Bells) -> Result<Verbs> {
        // The lanes try for as long as somebody waits; the first connection of all is to fail at once, and say why. It is the one
        // that renewals go over, which are not to wait for it.
        let durability = Arc::new(Durability::default());
        let mut first = Some(connect(&config, &address, &durability).await?);
        let process = ClaimId::random().as_u128();
        let lane =
            |_| Lane::new(config.clone(), address.clone(), durability.clone(), bells.clone(), first.take());
        let lanes = Arc::new(Lanes::new((0..config.connections).map(lane).collect()));
        let watch = Watch::new(
            config.clone(),
            address.clone(),
            durability.clone(),
            process,
            lanes.clone(),
            bells.clone(),
        );
        let letters = letters_of(process, lanes.clone(), bells.clone());
        Ok(Verbs {
            address,
            lanes,
            process,
            bells,
            watch,
            letters,
            durability,
            busy: BusyRows::default(),
            quiet: QuietLines::new(),
            partners: Partners::default(),
            alone: Mutex::default(),
        })
    }

    /// What a procedure answers; `None` if somebody else has locked a row that it needs, and nothing was done.
    pub(super) async fn routine(
        &self,
        lane: &Lane,
        operation: &'static str,
        text: &'static str,
        values: Vec<Value>,
    ) -> Result<Option<String>> {
        let rows = lane.ask(operation, text, values).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        if let Ok(is_weak) = row.try_get::<i64>("weak") {
            self.durability.note(is_weak != 0);
        }
        text_of(&rows).map(Some).ok_or_else(|| nonsense(operation, &self.address))
    }

    /// Calls a procedure on the row of a line, again and again if somebody else has locked it.
    async fn on_row(
        &self,
        operation: &'static str,
        (line, lane): (u128, &Lane),
        within: Duration,
        text: &'static str,
        values: Vec<Value>,
    ) -> Result<String> {
        let mut asking = self.busy.ask(line, within);
        while let Some(_attempt) = asking.next().await {
            if let Some(answer) = self.routine(lane, operation, text, values.clone()).await? {
                return Ok(answer);
            }
        }
        Err(stayed_locked(operation, &self.address))
    }

    pub(super) async fn join(&self, claim: &Claim, wait: bool) -> Result<Standing> {
        let line = line_key(claim.name.as_str());
        let mut turn = self.partners.turns.next(claim.id);
        turn.comes().await;
        let standing = match self.join_along(line, claim, wait).await {
            Some(standing) => standing,
            None => {
                let lane = self.lanes.enter(line, claim.id, claim.lease);
                match self.join_alone(line, lane, claim).await? {
                    Some(standing) => standing,
                    None => self.join_line(line, lane, claim, wait).await?,
                }
            }
        };
        if standing == Standing::Out {
            self.lanes.forget(claim.id);
        }
        if claim.mode == Mode::Exclusive && matches!(standing, Standing::In { .. }) {
            self.partners.got_in(line);
        }
        self.letters.note(claim.id, standing);
        Ok(standing)
    }

    /// Takes a lock that is probably free; `None` if it was not, and nothing was done.
    async fn join_alone(&self, line: u128, lane: &Lane, claim: &Claim) -> Result<Option<Standing>> {
        let (kind, permits, limit) = mode_columns(claim.mode);
        if !self.quiet.has(line) || permits > limit {
            return Ok(None);
        }
        let values = vec![
            Value::Int(micros(claim.lease)),
            Value::Bits(claim.id.as_u128()),
            Value::Int(kind.into()),
            Value::Int(permits),
            Value::Int(limit),
            Value::Int(claim.who.pid.into()),
            Value::Bits(self.process),
            bytes(&claim.who.owner),
            bytes(&claim.who.host),
            claim.identity.as_deref().map_or(Value::Null, bytes),
            Value::Bits(line),
        ];
        let text = self.on_clock(include_str!("sql/join_alone.sql"));
        let Some(number) = lane.change("join", text, values).await? else {
            self.quiet.note(line, false);
            return Ok(None);
        };
        self.durability.note(number % 2 == 1);
        locked(&self.alone).insert((line, claim.id));
        Ok(Some(Standing::In { ticket: Ticket::new(number / 2) }))
    }

    async fn join_line(&self, line: u128, lane: &Lane, claim: &Claim, wait: bool) -> Result<Standing> {
        let (kind, permits, limit) = mode_columns(claim.mode);
        let values = vec![
            Value::Bits(line),
            bytes(claim.name.as_str()),
            Value::Bits(claim.id.as_u128()),
            Value::Int(kind.into()),
            Value::Int(permits),
            Value::Int(limit),
            Value::Int(micros(claim.lease)),
            Value::Int(wait.into()),
            bytes(&claim.who.owner),
            bytes(&claim.who.host),
            Value::Int(claim.who.pid.into()),
            claim.identity.as_deref().map_or(Value::Null, bytes),
            Value::Bits(self.process),
        ];
        let call = "CALL lockline_join(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
        let answer = self.on_row("join", (line, lane), patience(claim.lease), call, values).await?;
        let answer = Answer::new(&answer);
        answer.ring(&self.bells);
        if answer.verdict == "D" {
            return Err(would_wait_for_itself(claim, &self.address));
        }
        self.quiet.note(line, answer.is_alone());
        if answer.is_alone() {
            locked(&self.alone).insert((line, claim.id));
        }
        let standing = answer.standing().ok_or_else(|| nonsense("join", &self.address))?;
        self.watch.stands(&claim.name, claim.id, standing, !answer.is_behind_own());
        Ok(standing)
    }

    pub(super) async fn leave(&self, place: &Place) -> Result<()> {
        let line = line_key(place.name.as_str());
        let mut turn = self.partners.turns.next(place.id);
        turn.comes().await;
        self.watch.forget(&place.name, place.id);
        self.letters.forget(place.id);
        locked(&self.alone).remove(&(line, place.id));
        if let Some(partner) = self.partners.take(line) {
            match self.pass(line, place, &partner).await? {
                Some(standing) => partner.joined(standing),
                // It goes alone, when this has left.
                None => {
                    self.leave_line(line, place).await?;
                    drop(partner);
                }
            }
        } else {
            self.leave_line(line, place).await?;
        }
        // Not before it has left: a second try releases on the same session what others wait for.
        self.lanes.forget(place.id);
        Ok(())
    }

    async fn leave_line(&self, line: u128, place: &Place) -> Result<()> {
        if self.leave_alone(line, place).await? {
            self.partners.got_out(line);
            return Ok(());
        }
        let values = vec![
            Value::Bits(line),
            bytes(place.name.as_str()),
            Value::Bits(place.id.as_u128()),
            Value::Int(ticket_column(place.ticket)),
            Value::Bits(self.process),
        ];
        let call = "CALL lockline_leave(?, ?, ?, ?, ?)";
        let answer = self
            .on_row("leave", (line, self.lanes.of(place.id)), patience(place.lease), call, values)
            .await?;
        self.has_left(line, &place.name, &Answer::new(&answer));
        Ok(())
    }

    /// Rings whom a leave has let in, and notes whether that is one of ours.
    fn has_left(&self, line: u128, name: &Name, answer: &Answer<'_>) {
        // It may leave as soon as it hears the bell, and whoever stands behind it must not be taken for somebody who waits for others.
        let let_in = answer.ring_if(&self.bells, |id| {
            self.watch.got_in(name, id);
            true
        });
        if let_in.is_empty() {
            self.partners.got_out(line);
        } else {
            self.partners.got_in(line);
        }
        self.watch.left(name, !let_in.is_empty());
    }

    /// Gives back a lock that probably nobody else wants; `false` if somebody does, and nothing was done.
    async fn leave_alone(&self, line: u128, place: &Place) -> Result<bool> {
        if !self.quiet.has(line) {
            return Ok(false);
        }
        let values = vec![Value::Bits(line), Value::Bits(place.id.as_u128())];
        let text = self.on_clock(include_str!("sql/leave_alone.sql"));
        let left = self.lanes.of(place.id).change("leave", text, values).await?;
        if left.is_none() {
            self.quiet.note(line, false);
        }
        Ok(left.is_some())
    }

    pub(super) async fn evict(&self, name: &Name, ticket: Ticket, at_once: bool) -> Result<bool> {
        let line = line_key(name.as_str());
        let values = vec![
            Value::Bits(line),
            bytes(name.as_str()),
            Value::Int(ticket_column(Some(ticket))),
            Value::Int(at_once.into()),
            Value::Bits(self.process),
        ];
        let call = "CALL lockline_evict(?, ?, ?, ?, ?)";
        let answer =
            self.on_row("evict", (line, self.lanes.prompt()), patience(Duration::MAX), call, values).await?;
        let answer = Answer::new(&answer);
        answer.ring(&self.bells);
        Ok(answer.verdict == "1")
    }

    pub(super) async fn view(&self, query: &Query) -> Result<Vec<LineView>> {
        let lines = match query {
            Query::Name(name) => vec![line_key(name.as_str())],
            Query::Prefix(_) => self.all_lines().await?,
        };
        let lane = self.lanes.prompt();
        let mut rows = Vec::new();
        for some in lines.chunks(LINES) {
            let look = vec![Value::Bytes(looks(some).into_bytes()), Value::Bits(self.process)];
            let looked = self.routine(lane, "view", "CALL lockline_renew(?, ?)", look).await?;
            if let Some(looked) = looked {
                Answer::new(&looked).ring(&self.bells);
            }
            let marks = vec!["?"; some.len()].join(", ");
            let text =
                self.on_clock(include_str!("sql/view.sql")).replace("IN (?)", &format!("IN ({marks})"));
            let values: Vec<Value> = some.iter().chain(some).map(|line| Value::Bits(*line)).collect();
            for row in lane.ask("view", text, values).await? {
                rows.push(claim_row(&row).map_err(|e| nonsense("view", &self.address).caused_by(e))?);
            }
        }
        Ok(assemble(rows, query))
    }

    async fn all_lines(&self) -> Result<Vec<u128>> {
        let rows = self.lanes.prompt().ask("view", include_str!("sql/names.sql"), Vec::new()).await?;
        let key = |row: &Row| {
            let bytes: Vec<u8> = row.try_get(0).ok()?;
            Some(u128::from_be_bytes(bytes.try_into().ok()?))
        };
        rows.iter().map(|row| key(row).ok_or_else(|| nonsense("view", &self.address))).collect()
    }

    /// Tries first what does for quiet lines, on all of them.
    #[cfg(test)]
    pub(super) fn guess(&self) {
        self.quiet.guess();
    }

    /// Whether a join that is called now waits for a leave.
    #[cfg(test)]
    pub(super) fn would_go_along(&self, name: &Name) -> bool {
        self.partners.has(line_key(name.as_str()))
    }

    /// A statement as this server takes it: `{line}` is the line's row, which is not waited for (MariaDB's sessions wait for none); it reads
    /// the time, and tests have another clock.
    pub(super) fn on_clock(&self, text: &'static str) -> Cow<'static, str> {
        let line = if self.durability.is_mysql() { FREE_ROW } else { "?" };
        let text = text.replace("{weak}", WEAK).replace("{line}", line);
        #[cfg(test)]
        if self.watch.has_test_clock() {
            let text = text.replace(super::schema::CLOCK, "@clock");
            return text.replace(super::schema::CLOCK_AT_BEGIN, "@clock").into();
        }
        text.into()
    }
}

fn letters_of(process: u128, lanes: Arc<Lanes>, bells: Bells) -> Arc<LetterBox> {
    let fetch = move || -> Verb<'static, String> {
        let lane = lanes.spare().clone();
        Box::pin(async move {
            let rows =
                lane.ask("letters", include_str!("sql/letters.sql"), vec![Value::Bits(process)]).await?;
            Ok(text_of(&rows).unwrap_or_default())
        })
    };
    LetterBox::new(Box::new(fetch), LETTERS, bells)
}

/// As view.sql gives it.
fn claim_row(row: &Row) -> Result<ClaimRow, Failure> {
    let text = |column: &str| -> Result<String, Failure> {
        let bytes: Vec<u8> = row.try_get(column)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    Ok(ClaimRow {
        name: text("name")?,
        is_in: row.try_get::<i64>("is_in")? != 0,
        now_us: row.try_get("now_us")?,
        ticket: row.try_get("ticket")?,
        kind: row.try_get("kind")?,
        permits: row.try_get("permits")?,
        permit_limit: row.try_get("permit_limit")?,
        deadline_us: row.try_get("deadline_us")?,
        since_us: row.try_get("since_us")?,
        entered_us: row.try_get("entered_us")?,
        closed: row.try_get("closed")?,
        owner: text("owner")?,
        host: text("host")?,
        pid: row.try_get("pid")?,
    })
}
