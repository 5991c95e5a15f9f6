//! The rows of a table that other programs lock in, on this server. A row that somebody's transaction sits on is waited for as long as
//! the session's `lock_timeout` says, a moment, or not at all.

use std::sync::Arc;

use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row as PgRow};

use super::config::{Failover, PostgresConfig};
use super::connection::{Connection, Nth, param};
use super::durability::Durability;
use super::error::explain;
use crate::driver::{Bells, Exclusion, Verb};
use crate::drivers::foreign::Foreign;
use crate::drivers::relational::shared::{Column, Columns, Kind, Layout, Row, Rows, SharedTable, Take, hex};
use crate::drivers::relational::{line_key, nonsense};
use crate::drivers::turns::Turn;
use crate::error::{Error, Result};

/// Everything an operator runs who has no such table yet: `lockline schema postgres --layout NAME`.
pub fn shared_table_sql(layout: &Layout) -> &'static str {
    match layout.kind {
        Kind::Table => include_str!("sql/shared/table.sql"),
        Kind::Shedlock => include_str!("sql/shared/shedlock.sql"),
    }
}

/// The statements that verbs send, in the order of [`texts`].
#[derive(Clone, Copy, Debug)]
enum Ask {
    Columns,
    Look,
    Take,
    Extend,
    Release,
    Evict,
    EvictNow,
    Keys,
}

impl From<Ask> for Nth {
    fn from(ask: Ask) -> Nth {
        Nth { index: ask as usize, only_changes: false }
    }
}

const COLUMNS: &str = include_str!("sql/shared/columns.sql");

/// The statements for the table as this session finds it; refuses one that locks cannot be trusted to.
pub(super) async fn texts(client: &Client, layout: &Layout, address: &Arc<str>) -> Result<Vec<String>> {
    let fail = |e: tokio_postgres::Error| explain("connect", address, &e, false);
    let rows = client.query_typed(COLUMNS, &[(&layout.table, Type::TEXT)]).await.map_err(fail)?;
    let columns = columns_of(layout, &rows, address)?;
    // As this session must write it, whatever folds or hides it.
    let name = "SELECT to_regclass($1::text)::text";
    let row = client.query_typed_one(name, &[(&layout.table, Type::TEXT)]).await.map_err(fail)?;
    let table: String = row.try_get(0).map_err(fail)?;
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let [key, owner, until, last] =
        [&columns.key, &columns.owner, &columns.expiry, &columns.last].map(|column| quoted(&column.name));
    // Digits without a zone are UTC, as ShedLock has them.
    let clock_of = |column: &Column| match column.kind.as_str() {
        "timestamptz" => "clock_timestamp()",
        _ => "timezone('utc', clock_timestamp())",
    };
    let (clock, last_clock) = (clock_of(&columns.expiry), clock_of(&columns.last));
    let (is_free, last_text, last_value, since) = match layout.kind {
        Kind::Table => {
            let is_free = format!("COALESCE(t.{until} < {clock}, true)");
            (is_free, format!("COALESCE(t.{last}::text, '')"), "$4::text", "0".to_owned())
        }
        Kind::Shedlock => {
            let is_free = format!("COALESCE(t.{until} <= {clock}, true)");
            let since =
                format!("COALESCE((extract(epoch FROM {last_clock} - t.{last}) * 1000000)::bigint, 0)");
            (is_free, format!("COALESCE(t.{last}::text, '')"), last_clock, since)
        }
    };
    let (release, evict, evict_now) = match layout.kind {
        Kind::Table => (
            include_str!("sql/shared/release_table.sql"),
            include_str!("sql/shared/evict_table.sql"),
            include_str!("sql/shared/evict_table_now.sql"),
        ),
        Kind::Shedlock => (
            include_str!("sql/shared/release_shedlock.sql"),
            include_str!("sql/shared/evict_shedlock.sql"),
            include_str!("sql/shared/evict_shedlock_now.sql"),
        ),
    };
    let fill = |text: &str| {
        text.replace("{table}", &table)
            .replace("{is_free}", &is_free)
            .replace("{last_text}", &last_text)
            .replace("{last_value}", last_value)
            .replace("{since}", &since)
            .replace("{key}", &key)
            .replace("{owner}", &owner)
            .replace("{until}", &until)
            .replace("{last}", &last)
            .replace("{clock}", clock)
            .replace("{room}", &columns.text_room().to_string())
            .replace("{mark}", &layout.kind.format().mark_len().to_string())
    };
    let (look, take) = (include_str!("sql/shared/look.sql"), include_str!("sql/shared/take.sql"));
    let (extend, keys) = (include_str!("sql/shared/extend.sql"), include_str!("sql/shared/keys.sql"));
    Ok([COLUMNS, look, take, extend, release, evict, evict_now, keys].map(fill).to_vec())
}

fn columns_of(layout: &Layout, rows: &[PgRow], address: &Arc<str>) -> Result<Columns> {
    let texts = texts_of(rows).ok_or_else(|| nonsense("connect", address))?;
    let found: Option<Vec<Column>> = texts.iter().map(|text| Column::parse(text)).collect();
    Columns::of(layout, &found.ok_or_else(|| nonsense("connect", address))?, address)
}

/// The text that is the first column of each row.
fn texts_of(rows: &[PgRow]) -> Option<Vec<String>> {
    rows.iter().map(|row| row.try_get(0).ok()).collect()
}

/// Connects, and refuses a table that locks cannot be trusted to.
pub(super) async fn open(
    config: PostgresConfig,
    layout: &Layout,
    address: Arc<str>,
    bells: Bells,
) -> Result<Foreign> {
    let durability = Arc::new(Durability::default());
    let mut connections = Vec::new();
    for _ in 0..config.connections {
        let (config, address, durability) = (config.clone(), address.clone(), durability.clone());
        connections.push(Connection::open(config, address, None, durability, bells.clone()).await?);
    }
    let table = vec![param(layout.table.clone(), Type::TEXT)];
    let found = connections[0].ask("connect", Ask::Columns, table).await?;
    let columns = columns_of(layout, &found, &address)?;
    let rows = SharedRows { address, durability, failover: config.failover(), columns, connections };
    let store = Box::new(SharedTable::new(Box::new(rows)));
    Ok(Foreign::new(layout.kind.format(), "", store, Arc::default(), bells))
}

#[derive(Debug)]
struct SharedRows {
    address: Arc<str>,
    durability: Arc<Durability>,
    failover: (Failover, usize),
    columns: Columns,
    /// What is about one lock always goes over the same one, so that a leave never overtakes its join.
    connections: Vec<Connection>,
}

impl SharedRows {
    fn of_key(&self, key: &str) -> &Connection {
        let nth = line_key(key) % self.connections.len() as u128;
        &self.connections[usize::try_from(nth).unwrap_or(0)]
    }

    fn nonsense(&self, operation: &'static str) -> Error {
        nonsense(operation, &self.address)
    }

    async fn look_at(&self, operation: &'static str, keys: &[String]) -> Result<Vec<Row>> {
        let Some(first) = keys.first() else { return Ok(Vec::new()) };
        let params = vec![param(keys.to_vec(), Type::TEXT_ARRAY)];
        let rows = self.of_key(first).ask(operation, Ask::Look, params).await?;
        let texts = texts_of(&rows).ok_or_else(|| self.nonsense(operation))?;
        let rows: Option<Vec<Row>> = texts.iter().map(|text| Row::parse(text)).collect();
        rows.ok_or_else(|| self.nonsense(operation))
    }

    /// It is one statement, and what is sent later over the same connection comes behind it: the turn may end early.
    async fn take_row(&self, take: Take, _turn: Turn) -> Result<bool> {
        let owner = if self.columns.kind == Kind::Table { take.mark } else { take.text.clone() };
        let connection = self.of_key(&take.key);
        let mut params = vec![
            param(take.key.clone(), Type::TEXT),
            param(owner, Type::TEXT),
            param(take.lease_us, Type::INT8),
        ];
        if self.columns.kind == Kind::Table {
            params.push(param(take.text, Type::TEXT));
        }
        Ok(!connection.ask("join", Ask::Take, params).await?.is_empty())
    }

    async fn extend_rows(&self, operation: &'static str, takes: &[Take]) -> Result<Vec<usize>> {
        let Some(first) = takes.first() else { return Ok(Vec::new()) };
        let keys: Vec<String> = takes.iter().map(|take| take.key.clone()).collect();
        let marks: Vec<String> = takes.iter().map(|take| take.mark.clone()).collect();
        let leases: Vec<i64> = takes.iter().map(|take| take.lease_us).collect();
        let params = vec![
            param(keys, Type::TEXT_ARRAY),
            param(marks, Type::TEXT_ARRAY),
            param(leases, Type::INT8_ARRAY),
        ];
        let rows = self.of_key(&first.key).ask(operation, Ask::Extend, params).await?;
        let texts = texts_of(&rows).ok_or_else(|| self.nonsense(operation))?;
        let nth: Option<Vec<usize>> = texts.iter().map(|text| text.parse().ok()).collect();
        nth.ok_or_else(|| self.nonsense(operation))
    }

    async fn release_row(&self, key: &str, mark: &str) -> Result<bool> {
        let params = vec![param(key.to_owned(), Type::TEXT), param(mark.to_owned(), Type::TEXT)];
        Ok(!self.of_key(key).ask("leave", Ask::Release, params).await?.is_empty())
    }

    async fn evict_row(&self, key: &str, owner: &str, last: &str, at_once: bool) -> Result<Option<bool>> {
        let params = [key, owner, last].map(|text| param(text.to_owned(), Type::TEXT)).into();
        let ask = if at_once { Ask::EvictNow } else { Ask::Evict };
        let rows = self.of_key(key).ask("evict", ask, params).await?;
        let texts = texts_of(&rows).ok_or_else(|| self.nonsense("evict"))?;
        Ok(texts.first().map(|text| text != "0"))
    }

    async fn all_keys(&self) -> Result<Vec<String>> {
        let rows = self.connections[0].ask("view", Ask::Keys, Vec::new()).await?;
        texts_of(&rows).as_deref().and_then(hex).ok_or_else(|| self.nonsense("view"))
    }
}

impl Rows for SharedRows {
    fn address(&self) -> &Arc<str> {
        &self.address
    }

    fn columns(&self) -> &Columns {
        &self.columns
    }

    fn keeps_its_data(&self) -> bool {
        self.durability.guarantees(self.failover).exclusion > Exclusion::Probable
    }

    fn look<'a>(&'a self, operation: &'static str, keys: &'a [String]) -> Verb<'a, Vec<Row>> {
        Box::pin(self.look_at(operation, keys))
    }

    fn take<'a>(&'a self, take: Take, _has_row: bool, turn: Turn) -> Verb<'a, bool> {
        Box::pin(self.take_row(take, turn))
    }

    fn extend<'a>(&'a self, operation: &'static str, takes: &'a [Take]) -> Verb<'a, Vec<usize>> {
        Box::pin(self.extend_rows(operation, takes))
    }

    fn release<'a>(&'a self, key: &'a str, mark: &'a str) -> Verb<'a, bool> {
        Box::pin(self.release_row(key, mark))
    }

    fn evict<'a>(
        &'a self,
        key: &'a str,
        owner: &'a str,
        last: &'a str,
        at_once: bool,
    ) -> Verb<'a, Option<bool>> {
        Box::pin(self.evict_row(key, owner, last, at_once))
    }

    fn keys(&self) -> Verb<'_, Vec<String>> {
        Box::pin(self.all_keys())
    }
}
