//! The rows as a store of locks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{Columns, Row, SharedFormat};
use crate::driver::Verb;
use crate::drivers::foreign::{Ask, Eviction, Found, Holder, Seen, Store, ticket_of};
use crate::drivers::relational::{BusyRows, line_key, micros, patience, stayed_locked};
use crate::drivers::turns::{Turn, Turns};
use crate::error::{Error, ErrorKind, Result};
use crate::line::{ClaimId, ClaimView, Mode};
use crate::name::Name;

/// A lock that is to be taken or extended.
#[derive(Clone, Debug)]
pub(in crate::drivers) struct Take {
    pub(in crate::drivers) key: String,
    pub(in crate::drivers) mark: String,
    /// What is written beside the mark; it fits the column.
    pub(in crate::drivers) text: String,
    pub(in crate::drivers) lease_us: i64,
}

/// What a server does with the rows of a shared table. None of it waits inside the server for somebody else's transaction for longer
/// than a moment.
pub(in crate::drivers) trait Rows: fmt::Debug + Send + Sync {
    fn address(&self) -> &Arc<str>;

    fn columns(&self) -> &Columns;

    fn keeps_its_data(&self) -> bool;

    /// The rows of these keys, as far as there are any. Waits for nobody.
    fn look<'a>(&'a self, operation: &'static str, keys: &'a [String]) -> Verb<'a, Vec<Row>>;

    /// Takes a lock if it has no row, or its row is free. `true` if that is sure; else only a look can tell.
    /// Once it is sent, the turn is over when it has been answered, whoever waits for that.
    fn take<'a>(&'a self, take: Take, has_row: bool, turn: Turn) -> Verb<'a, bool>;

    /// Extends those that are held, in one statement; gives the numbers of those that were, and perhaps of some that nobody holds.
    fn extend<'a>(&'a self, operation: &'static str, takes: &'a [Take]) -> Verb<'a, Vec<usize>>;

    /// Lets go of a lock if this mark has it; `false` if somebody has locked its row, and nothing was done.
    fn release<'a>(&'a self, key: &'a str, mark: &'a str) -> Verb<'a, bool>;

    /// Evicts whoever stands there as this, if the lock is held; `None` if somebody has locked its row.
    fn evict<'a>(
        &'a self,
        key: &'a str,
        owner: &'a str,
        last: &'a str,
        at_once: bool,
    ) -> Verb<'a, Option<bool>>;

    /// The keys of all rows that hold a lock.
    fn keys(&self) -> Verb<'_, Vec<String>>;
}

/// A table that other programs lock in, too.
pub(in crate::drivers) struct SharedTable {
    rows: Box<dyn Rows>,
    format: &'static dyn SharedFormat,
    /// Rows that somebody else has locked.
    busy: BusyRows,
    /// Of verbs that may change one claim: a join and the leave behind it go over different sessions.
    turns: Turns,
}

/// How long people wait for a row that somebody else has locked.
const PEOPLE_WAIT: Duration = Duration::from_secs(3);
/// Between the owner and the last column of what is evicted. No server keeps it in a text.
const BETWEEN: char = '\0';

impl SharedTable {
    pub(in crate::drivers) fn new(rows: Box<dyn Rows>) -> SharedTable {
        let format = rows.columns().kind.format();
        SharedTable { rows, format, busy: BusyRows::default(), turns: Turns::default() }
    }

    fn take_of(&self, ask: &Ask) -> Take {
        let columns = self.rows.columns();
        Take {
            key: ask.key.clone(),
            mark: self.format.mark(ask.id),
            text: ask.text.chars().take(columns.text_room()).collect(),
            lease_us: micros(ask.lease).saturating_add(micros(columns.rounding())),
        }
    }

    /// Where a claim stands, by the row of its lock.
    fn found(&self, id: ClaimId, row: Option<&Row>) -> Found {
        let Some(row) = row.filter(|row| !row.is_free) else { return Found::Free };
        let (holder, mark) = (self.format.holder(row), self.format.mark(id));
        match holder {
            Holder { named_by, evicted: true, .. } if named_by == mark => Found::Evicted,
            Holder { named_by, .. } if named_by == mark => Found::In(ticket_of(&mark)),
            _ => Found::Busy(Some(row.rest)),
        }
    }

    async fn row_of(&self, operation: &'static str, ask: &Ask) -> Result<Option<Row>> {
        Ok(self.rows.look(operation, std::slice::from_ref(&ask.key)).await?.pop())
    }

    /// A lock that somebody holds is only read: whoever asks for it must not write, and so cannot wait behind a transaction.
    async fn take_if_free(&self, operation: &'static str, ask: &Ask) -> Result<Found> {
        let mut turn = self.turns.next(ask.id);
        turn.comes().await;
        let row = self.row_of(operation, ask).await?;
        match self.found(ask.id, row.as_ref()) {
            Found::Free => {}
            // An answer got lost. Whether it was extended, a look cannot tell.
            Found::In(_) => {
                return Ok(self.extend_all(operation, std::slice::from_ref(ask)).await?.remove(0));
            }
            found => return Ok(found),
        }
        if self.rows.take(self.take_of(ask), row.is_some(), turn).await? {
            return Ok(Found::In(ticket_of(&self.format.mark(ask.id))));
        }
        let row = self.row_of(operation, ask).await?;
        Ok(match self.found(ask.id, row.as_ref()) {
            // Somebody's transaction sits on it, and may hold it for as long as it likes.
            Found::Free => Found::Busy(None),
            found => found,
        })
    }

    async fn acquire_all(&self, asks: &[Ask]) -> Result<Vec<Found>> {
        let mut found = self.look_at_all("renew", asks).await?;
        for (ask, found) in asks.iter().zip(&mut found) {
            if matches!(found, Found::Free | Found::In(_)) {
                *found = self.take_if_free("renew", ask).await?;
            }
        }
        Ok(found)
    }

    async fn look_at_all(&self, operation: &'static str, asks: &[Ask]) -> Result<Vec<Found>> {
        if asks.is_empty() {
            return Ok(Vec::new());
        }
        let keys: Vec<String> = asks.iter().map(|ask| ask.key.clone()).collect();
        let rows = self.rows.look(operation, &keys).await?;
        let row = |nth: usize| rows.iter().find(|row| row.nth == nth);
        Ok(asks.iter().enumerate().map(|(nth, ask)| self.found(ask.id, row(nth))).collect())
    }

    async fn extend_all(&self, operation: &'static str, asks: &[Ask]) -> Result<Vec<Found>> {
        if asks.is_empty() {
            return Ok(Vec::new());
        }
        let takes: Vec<Take> = asks.iter().map(|ask| self.take_of(ask)).collect();
        let extended = self.rows.extend(operation, &takes).await?;
        let mut found = self.look_at_all(operation, asks).await?;
        for (nth, found) in found.iter_mut().enumerate() {
            // It is there, and was not extended: somebody's transaction sits on it.
            if matches!(found, Found::In(_)) && !extended.contains(&nth) {
                *found = Found::Unsure;
            }
        }
        if found.iter().all(|found| *found == Found::Unsure) {
            return Err(stayed_locked(operation, self.rows.address()));
        }
        Ok(found)
    }

    async fn let_go(&self, key: &str, id: ClaimId, lease: Duration) -> Result<()> {
        self.turns.next(id).comes().await;
        let mark = self.format.mark(id);
        let mut asking = self.busy.ask(line_key(key), patience(lease));
        while let Some(_attempt) = asking.next().await {
            if self.rows.release(key, &mark).await? {
                return Ok(());
            }
        }
        Err(stayed_locked("leave", self.rows.address()))
    }

    async fn see(&self, operation: &'static str, keys: &[String]) -> Result<Vec<Option<Seen>>> {
        let mut seen: Vec<Option<Seen>> = vec![None; keys.len()];
        let rounding = self.rows.columns().rounding();
        for row in self.rows.look(operation, keys).await? {
            let Some(slot) = seen.get_mut(row.nth).filter(|_| !row.is_free) else { continue };
            let Holder { named_by, who, evicted } = self.format.holder(&row);
            let view = ClaimView {
                ticket: ticket_of(&named_by),
                mode: Mode::Exclusive,
                who,
                // What was added when it was written is nobody's.
                remaining: row.rest.saturating_sub(rounding),
                since: row.since,
                // Nobody waits in such a table: it holds since it is there.
                held: Some(row.since).filter(|since| !since.is_zero()),
                evicted,
            };
            *slot = Some(Seen { stored: format!("{}{BETWEEN}{}", row.owner, row.last), view, has_end: true });
        }
        Ok(seen)
    }

    async fn remove(&self, key: &str, stored: &str, at_once: bool) -> Result<Eviction> {
        let (owner, last) = stored.split_once(BETWEEN).unwrap_or((stored, ""));
        let mut asking = self.busy.ask(line_key(key), PEOPLE_WAIT);
        while let Some(_attempt) = asking.next().await {
            match self.rows.evict(key, owner, last, at_once).await? {
                Some(true) => return Ok(Eviction::Done),
                Some(false) => return Ok(Eviction::NotThere),
                None => {}
            }
        }
        Err(stayed_locked("evict", self.rows.address()))
    }

    async fn names_of(&self, prefix: &str) -> Result<Vec<Name>> {
        let keys = self.rows.keys().await?;
        // A server may take two names for the same that are not.
        let asked = keys.into_iter().filter(|key| key.starts_with(prefix));
        Ok(asked.filter_map(|key| Name::new(key).ok()).collect())
    }
}

impl Store for SharedTable {
    fn address(&self) -> &Arc<str> {
        self.rows.address()
    }

    fn keeps_its_data(&self) -> bool {
        self.rows.keeps_its_data()
    }

    fn check(&self, name: &Name, key: &str) -> Result<()> {
        let Some(room) = self.rows.columns().name_room().filter(|room| key.chars().count() > *room) else {
            return Ok(());
        };
        let message = format!("the table has room for names of {room} letters");
        Err(Error::new(ErrorKind::Invalid, "join", message)
            .hint("use a shorter name, or have the column made wider")
            .about(name)
            .at(self.address()))
    }

    fn take<'a>(&'a self, ask: &'a Ask) -> Verb<'a, Found> {
        Box::pin(self.take_if_free("join", ask))
    }

    fn acquire<'a>(&'a self, asks: &'a [Ask]) -> Verb<'a, Vec<Found>> {
        Box::pin(self.acquire_all(asks))
    }

    fn extend<'a>(&'a self, operation: &'static str, asks: &'a [Ask]) -> Verb<'a, Vec<Found>> {
        Box::pin(self.extend_all(operation, asks))
    }

    fn release<'a>(&'a self, key: &'a str, id: ClaimId, lease: Duration) -> Verb<'a, ()> {
        Box::pin(self.let_go(key, id, lease))
    }

    fn look<'a>(&'a self, operation: &'static str, keys: &'a [String]) -> Verb<'a, Vec<Option<Seen>>> {
        Box::pin(self.see(operation, keys))
    }

    fn names<'a>(&'a self, prefix: &'a str) -> Verb<'a, Vec<Name>> {
        Box::pin(self.names_of(prefix))
    }

    fn evict<'a>(&'a self, key: &'a str, stored: &'a str, at_once: bool) -> Verb<'a, Eviction> {
        Box::pin(self.remove(key, stored, at_once))
    }
}

impl fmt::Debug for SharedTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedTable").field("rows", &self.rows).finish_non_exhaustive()
    }
}
