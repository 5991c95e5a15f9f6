//! The verbs as the functions take them.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::bits::Bits;
use super::config::{Failover, Pooler, PostgresConfig};
use super::connection::{Ask, Connection, Param, param};
use super::durability::Durability;
use crate::driver::{Bells, Guarantees, Query, Verb};
use crate::drivers::quiet::QuietLines;
use crate::drivers::relational::{
    Answer, BusyRows, ClaimRow, LINES, LetterBox, assemble, line_key, micros, mode_columns, nonsense,
    patience, stayed_locked, ticket_column, would_wait_for_itself,
};
use crate::drivers::turns::Turns;
use crate::error::Result;
use crate::line::{Claim, ClaimId, LineView, Place, Standing, Ticket};
use crate::name::Name;

/// How often a client that waits reads its letters behind a pooler, which passes no notifications: a handover between clients
/// takes half of it on average, and a client costs the server forty short statements a second, however many of its claims wait.
const LETTERS: Duration = Duration::from_millis(25);

/// The six verbs on one server.
#[derive(Debug)]
pub(super) struct Verbs {
    pub(super) address: Arc<str>,
    /// Each lock's joins and leaves go over one of them, so that a leave never overtakes its join; what is about many over the first.
    pub(super) connections: Vec<Arc<Connection>>,
    /// This client, to the server: whose bells are whose.
    pub(super) process: Bits,
    /// `None` if it hears notifications.
    letters: Option<Arc<LetterBox>>,
    /// What the server keeps, as its answers say.
    durability: Arc<Durability>,
    failover: (Failover, usize),
    /// Rows that somebody else has locked.
    pub(super) busy: BusyRows,
    /// Where one changed row may do.
    pub(super) quiet: QuietLines,
    /// A join may send twice.
    turns: Turns,
    pub(super) bells: Bells,
}

impl Verbs {
    pub(super) async fn open(config: PostgresConfig, address: Arc<str>, bells: Bells) -> Result<Verbs> {
        let process = Bits(ClaimId::random().as_u128());
        let listens = config.pooler == Pooler::None;
        let mut connections = Vec::new();
        let durability = Arc::new(Durability::default());
        // One statement at a time goes behind a pooler: renewals and letters are not to wait behind a thousand joins.
        let others = usize::from(!listens);
        for nth in 0..config.connections + others {
            // As `ring` in line.sql writes it.
            let channel = (nth == 0 && listens).then(|| format!("lockline_{}", hyphenated(process.0)));
            let connection =
                Connection::open(config.clone(), address.clone(), channel, durability.clone(), bells.clone())
                    .await?;
            connections.push(Arc::new(connection));
        }
        let letters = (!listens).then(|| letters_of(process, connections[0].clone(), bells.clone()));
        Ok(Verbs {
            address,
            connections,
            process,
            letters,
            durability,
            failover: config.failover(),
            busy: BusyRows::default(),
            quiet: QuietLines::new(),
            turns: Turns::default(),
            bells,
        })
    }

    /// What a lock can promise now.
    pub(super) fn guarantees(&self) -> Guarantees {
        self.durability.guarantees(self.failover)
    }

    fn way_of(&self, line: u128) -> &Connection {
        let ways = &self.connections[usize::from(self.letters.is_some())..];
        let nth = line % ways.len() as u128;
        &ways[usize::try_from(nth).unwrap_or(0)]
    }

    pub(super) async fn join(&self, claim: &Claim, wait: bool) -> Result<Standing> {
        let line = line_key(claim.name.as_str());
        let mut turn = self.turns.next(claim.id);
        turn.comes().await;
        let standing = match self.join_alone(line, claim).await? {
            Some(standing) => standing,
            None => self.join_line(line, claim, wait).await?,
        };
        self.note(claim.id, standing);
        Ok(standing)
    }

    /// Takes a lock that is probably free; `None` if it was not, and nothing was done.
    async fn join_alone(&self, line: u128, claim: &Claim) -> Result<Option<Standing>> {
        let (_, permits, limit) = mode_columns(claim.mode);
        if !self.quiet.has(line) || permits > limit {
            return Ok(None);
        }
        let params = self.columns(line, claim);
        let rows = self.way_of(line).ask("join", Ask::JoinAlone, params).await?;
        let Some(row) = rows.first() else {
            self.quiet.note(line, false);
            return Ok(None);
        };
        let ticket: i64 = row.try_get(0).map_err(|e| nonsense("join", &self.address).caused_by(e))?;
        Ok(Some(Standing::In { ticket: Ticket::new(ticket.unsigned_abs()) }))
    }

    async fn join_line(&self, line: u128, claim: &Claim, wait: bool) -> Result<Standing> {
        let params = || {
            let mut params = self.columns(line, claim);
            params.extend([param(claim.name.as_str().to_owned(), Type::TEXT), param(wait, Type::BOOL)]);
            params
        };
        let asks = (Ask::Join, Ask::JoinWaits);
        let answer = self.on_row("join", line, patience(claim.lease), asks, params).await?;
        let answer = Answer::new(&answer);
        answer.ring(&self.bells);
        if answer.verdict == "D" {
            return Err(would_wait_for_itself(claim, &self.address));
        }
        self.quiet.note(line, answer.is_alone());
        answer.standing().ok_or_else(|| nonsense("join", &self.address))
    }

    /// Calls a routine on the row of a line, the second one if it may wait for it.
    async fn on_row(
        &self,
        operation: &'static str,
        line: u128,
        within: Duration,
        asks: (Ask, Ask),
        params: impl Fn() -> Vec<Param> + Send,
    ) -> Result<String> {
        let mut asking = self.busy.ask(line, within);
        while let Some(attempt) = asking.next().await {
            let ask = if attempt.waits { asks.1 } else { asks.0 };
            if let Some(answer) = self.way_of(line).routine(operation, ask, params()).await? {
                return Ok(answer);
            }
        }
        Err(stayed_locked(operation, &self.address))
    }

    /// A claim, as both ways of joining begin.
    fn columns(&self, line: u128, claim: &Claim) -> Vec<Param> {
        let (kind, permits, limit) = mode_columns(claim.mode);
        let who = &claim.who;
        vec![
            param(Bits(line), Type::UUID),
            param(Bits(claim.id.as_u128()), Type::UUID),
            param(kind, Type::INT2),
            param(permits, Type::INT8),
            param(limit, Type::INT8),
            param(micros(claim.lease), Type::INT8),
            param(who.owner.clone(), Type::TEXT),
            param(who.host.clone(), Type::TEXT),
            param(i64::from(who.pid), Type::INT8),
            param(claim.identity.as_deref().map(str::to_owned), Type::TEXT),
            param(self.process, Type::UUID),
            param(self.letters.is_none(), Type::BOOL),
        ]
    }

    pub(super) fn note(&self, id: ClaimId, standing: Standing) {
        if let Some(letters) = &self.letters {
            letters.note(id, standing);
        }
    }

    pub(super) async fn leave(&self, place: &Place) -> Result<()> {
        let mut turn = self.turns.next(place.id);
        turn.comes().await;
        if let Some(letters) = &self.letters {
            letters.forget(place.id);
        }
        let line = line_key(place.name.as_str());
        if self.quiet.has(line) {
            let params = vec![param(Bits(line), Type::UUID), param(Bits(place.id.as_u128()), Type::UUID)];
            if self.way_of(line).change("leave", Ask::LeaveAlone, params).await? > 0 {
                return Ok(());
            }
            self.quiet.note(line, false);
        }
        let params = || {
            vec![
                param(Bits(line), Type::UUID),
                param(place.name.as_str().to_owned(), Type::TEXT),
                param(Bits(place.id.as_u128()), Type::UUID),
                param(ticket_column(place.ticket), Type::INT8),
                param(self.process, Type::UUID),
            ]
        };
        let asks = (Ask::Leave, Ask::LeaveWaits);
        let answer = self.on_row("leave", line, patience(place.lease), asks, params).await?;
        Answer::new(&answer).ring(&self.bells);
        Ok(())
    }

    pub(super) async fn evict(&self, name: &Name, ticket: Ticket, at_once: bool) -> Result<bool> {
        let line = line_key(name.as_str());
        let params = || {
            vec![
                param(Bits(line), Type::UUID),
                param(name.as_str().to_owned(), Type::TEXT),
                param(ticket_column(Some(ticket)), Type::INT8),
                param(at_once, Type::BOOL),
                param(self.process, Type::UUID),
            ]
        };
        let asks = (Ask::Evict, Ask::EvictWaits);
        let answer = self.on_row("evict", line, patience(Duration::MAX), asks, params).await?;
        let answer = Answer::new(&answer);
        answer.ring(&self.bells);
        Ok(answer.verdict == "1")
    }

    pub(super) async fn view(&self, query: &Query) -> Result<Vec<LineView>> {
        let lines = match query {
            Query::Name(name) => vec![Bits(line_key(name.as_str()))],
            Query::Prefix(_) => self.all_lines().await?,
        };
        let mut rows = Vec::new();
        for some in lines.chunks(LINES) {
            let lines = || param(some.to_vec(), Type::UUID_ARRAY);
            let way = &self.connections[0];
            // Sent one behind the other, and answered together.
            let (ticked, read) = tokio::join!(
                way.routine("view", Ask::Tick, vec![lines(), param(self.process, Type::UUID)]),
                way.ask("view", Ask::View, vec![lines()])
            );
            if let Some(ticked) = ticked? {
                Answer::new(&ticked).ring(&self.bells);
            }
            for row in read? {
                rows.push(claim_row(&row).map_err(|e| nonsense("view", &self.address).caused_by(e))?);
            }
        }
        Ok(assemble(rows, query))
    }

    async fn all_lines(&self) -> Result<Vec<Bits>> {
        let rows = self.connections[0].ask("view", Ask::Names, Vec::new()).await?;
        rows.iter()
            .map(|row| row.try_get(0).map_err(|e| nonsense("view", &self.address).caused_by(e)))
            .collect()
    }

    /// Tries first what does for quiet lines, on all of them.
    #[cfg(test)]
    pub(super) fn guess(&self) {
        self.quiet.guess();
    }

    #[cfg(test)]
    pub(super) fn connections(&self) -> &[Arc<Connection>] {
        &self.connections
    }
}

fn letters_of(process: Bits, connection: Arc<Connection>, bells: Bells) -> Arc<LetterBox> {
    let fetch = move || -> Verb<'static, String> {
        let connection = connection.clone();
        let params = vec![param(process, Type::UUID)];
        Box::pin(
            async move { Ok(connection.routine("letters", Ask::Letters, params).await?.unwrap_or_default()) },
        )
    };
    LetterBox::new(Box::new(fetch), LETTERS, bells)
}

/// As PostgreSQL writes a `uuid`.
fn hyphenated(bits: u128) -> String {
    let hex = format!("{bits:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// As view.sql gives it.
fn claim_row(row: &Row) -> Result<ClaimRow, tokio_postgres::Error> {
    Ok(ClaimRow {
        name: row.try_get("name")?,
        is_in: row.try_get("is_in")?,
        now_us: row.try_get("now_us")?,
        ticket: row.try_get("ticket")?,
        kind: row.try_get("kind")?,
        permits: row.try_get("permits")?,
        permit_limit: row.try_get("permit_limit")?,
        deadline_us: row.try_get("deadline_us")?,
        since_us: row.try_get("since_us")?,
        entered_us: row.try_get("entered_us")?,
        closed: row.try_get("closed")?,
        owner: row.try_get("owner")?,
        host: row.try_get("host")?,
        pid: row.try_get("pid")?,
    })
}
