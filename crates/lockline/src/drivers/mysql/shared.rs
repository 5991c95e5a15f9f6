//! The rows of a table that other programs lock in, on this server.
//!
//! What may take a lock goes over sessions of its own: an insert can wait behind somebody's transaction, for a second on MySQL, and no
//! renewal or release may wait behind it.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::runtime::Handle;

use super::config::MysqlConfig;
use super::durability::{Durability, WEAK};
use super::lane::{Lane, connect, texts_of};
use super::wire::Value;
use crate::driver::{Bells, Exclusion, Verb};
use crate::drivers::foreign::Foreign;
use crate::drivers::relational::shared::{Column, Columns, Kind, Layout, Row, Rows, SharedTable, Take, hex};
use crate::drivers::relational::{line_key, nonsense};
use crate::drivers::turns::Turn;
use crate::drivers::under_way::UnderWay;
use crate::error::{Error, ErrorKind, Result};

/// Everything an operator runs who has no such table yet: `lockline schema mysql --layout NAME`.
pub fn shared_table_sql(layout: &Layout) -> &'static str {
    match layout.kind {
        Kind::Table => include_str!("sql/shared/table.sql"),
        Kind::Shedlock => include_str!("sql/shared/shedlock.sql"),
    }
}

/// Connects, and refuses a table that locks cannot be trusted to.
pub(super) async fn open(
    config: MysqlConfig,
    layout: &Layout,
    address: Arc<str>,
    bells: Bells,
) -> Result<Foreign> {
    let durability = Arc::new(Durability::default());
    // The lanes try for as long as somebody waits; the first connection of all is to fail at once, and say why.
    let mut first = Some(connect(&config, &address, &durability).await?);
    let mut lane =
        |_| Lane::new(config.clone(), address.clone(), durability.clone(), bells.clone(), first.take());
    let lanes: Vec<Lane> = (0..config.connections).map(&mut lane).collect();
    let takers = (0..config.connections).map(lane).collect();
    let columns = columns_of(layout, &lanes[0], &address).await?;
    let texts = Texts::of(layout, &columns);
    let rows = SharedRows { address, durability, columns, texts, lanes, takers, runtime: Handle::current() };
    Ok(Foreign::new(
        layout.kind.format(),
        "",
        Box::new(SharedTable::new(Box::new(rows))),
        Arc::default(),
        bells,
    ))
}

async fn columns_of(layout: &Layout, lane: &Lane, address: &Arc<str>) -> Result<Columns> {
    let (database, table) = layout.table_parts();
    let ask = async |text: &'static str| {
        let database = database.map_or(Value::Null, value);
        let rows = lane.ask("connect", text, vec![database, value(table)]).await?;
        texts_of(&rows).ok_or_else(|| nonsense("connect", address))
    };
    let columns = ask(include_str!("sql/shared/columns.sql")).await?;
    let indexes = ask(include_str!("sql/shared/indexes.sql")).await?;
    let engine = ask(include_str!("sql/shared/engine.sql")).await?;
    // A crash may leave half of what was answered in a table without transactions.
    if engine.first().is_some_and(|engine| !engine.eq_ignore_ascii_case("InnoDB")) {
        let message = format!("the table {:?} is not kept by InnoDB", layout.table);
        return Err(Error::new(ErrorKind::Unsupported, "connect", message)
            .hint("ALTER TABLE … ENGINE = InnoDB")
            .at(address));
    }
    let column = |text: &String| {
        let index = text.split(' ').next().and_then(|name| index_on(name, &indexes)).unwrap_or("-");
        Column::parse(&format!("{text} {index}"))
    };
    let found: Option<Vec<Column>> = columns.iter().map(column).collect();
    Columns::of(layout, &found.ok_or_else(|| nonsense("connect", address))?, address)
}

/// The index that makes a column unique by itself, all letters of it.
fn index_on<'a>(column: &str, indexes: &'a [String]) -> Option<&'a str> {
    let parts = |text: &'a String| text.split_once(' ');
    let alone =
        |index: &str| indexes.iter().filter_map(parts).filter(|(name, _)| *name == index).count() == 1;
    let whole = format!("{column} 0");
    indexes
        .iter()
        .filter_map(parts)
        .find(|(index, rest)| *rest == whole && alone(index))
        .map(|(index, _)| index)
}

/// The statements, with the names of this table in them.
#[derive(Debug)]
struct Texts {
    look: String,
    reach: String,
    take: String,
    extend: String,
    release: String,
    evict: [String; 2],
    keys: String,
}

impl Texts {
    fn of(layout: &Layout, columns: &Columns) -> Texts {
        let quoted = |name: &str| format!("`{}`", name.replace('`', "``"));
        let (database, table) = layout.table_parts();
        let table =
            database.map_or_else(|| quoted(table), |name| format!("{}.{}", quoted(name), quoted(table)));
        let [key, owner, until, last] =
            [&columns.key, &columns.owner, &columns.expiry, &columns.last].map(|column| quoted(&column.name));
        let index = quoted(columns.key.index.as_deref().unwrap_or_default());
        // By the rules of those who share it. `NOW()` has whole seconds there: a lock ends when the second has passed that its row
        // says, and to look at a fraction of it would be to end it before its holder does.
        let (clock, now, is_free, last_text, last_value, since) = match layout.kind {
            Kind::Table => {
                let is_free = format!("COALESCE({until} < NOW(), TRUE)");
                ("NOW(6)", "NOW()", is_free, format!("COALESCE({last}, '')"), "?", "0".to_owned())
            }
            Kind::Shedlock => {
                let is_free = format!("COALESCE({until} <= UTC_TIMESTAMP(3), TRUE)");
                let since = format!("COALESCE(TIMESTAMPDIFF(MICROSECOND, {last}, UTC_TIMESTAMP(6)), 0)");
                let last_text = format!("COALESCE(CAST({last} AS CHAR), '')");
                ("UTC_TIMESTAMP(6)", "UTC_TIMESTAMP(3)", is_free, last_text, "UTC_TIMESTAMP(3)", since)
            }
        };
        let fill = |text: &str| {
            text.replace("{weak}", WEAK)
                .replace("{table}", &table)
                .replace("{index}", &index)
                .replace("{is_free}", &is_free)
                .replace("{last_text}", &last_text)
                .replace("{last_value}", last_value)
                .replace("{since}", &since)
                .replace("{key}", &key)
                .replace("{owner}", &owner)
                .replace("{until}", &until)
                .replace("{last}", &last)
                .replace("{clock}", clock)
                .replace("{now}", now)
                .replace("{room}", &columns.text_room().to_string())
                .replace("{mark}", &layout.kind.format().mark_len().to_string())
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
        Texts {
            look: fill(include_str!("sql/shared/look.sql")),
            reach: fill(include_str!("sql/shared/reach.sql")),
            take: fill(include_str!("sql/shared/take.sql")),
            extend: fill(include_str!("sql/shared/extend.sql")),
            release: fill(release),
            evict: [fill(evict), fill(evict_now)],
            keys: fill(include_str!("sql/shared/keys.sql")),
        }
    }
}

/// A statement for so many keys.
fn for_keys(text: &str, many: usize) -> String {
    let nth: Vec<String> = (0..many).map(|nth| format!("WHEN ? THEN {nth}")).collect();
    text.replace("{nth}", &nth.join(" ")).replace("{keys}", &vec!["?"; many].join(", "))
}

fn value(text: &str) -> Value {
    Value::Text(text.to_owned())
}

#[derive(Debug)]
struct SharedRows {
    address: Arc<str>,
    durability: Arc<Durability>,
    columns: Columns,
    texts: Texts,
    lanes: Vec<Lane>,
    /// What may take a lock goes over these.
    takers: Vec<Lane>,
    runtime: Handle,
}

impl SharedRows {
    fn of_key<'a>(lanes: &'a [Lane], key: &str) -> &'a Lane {
        let nth = line_key(key) % lanes.len() as u128;
        &lanes[usize::try_from(nth).unwrap_or(0)]
    }

    async fn look_at(&self, operation: &'static str, keys: &[String]) -> Result<Vec<Row>> {
        let Some(first) = keys.first() else { return Ok(Vec::new()) };
        let values = keys.iter().chain(keys).map(|key| value(key)).collect();
        let text = for_keys(&self.texts.look, keys.len());
        let rows = SharedRows::of_key(&self.lanes, first).ask(operation, text, values).await?;
        let texts = texts_of(&rows).ok_or_else(|| nonsense(operation, &self.address))?;
        let row = |text: &String| {
            let (is_weak, row) = text.split_once(' ')?;
            self.durability.note(is_weak != "0");
            Row::parse(row)
        };
        let rows: Option<Vec<Row>> = texts.iter().map(row).collect();
        rows.ok_or_else(|| nonsense(operation, &self.address))
    }

    /// The rows that are there, and not locked by somebody else.
    async fn reach(&self, operation: &'static str, lane: &Lane, keys: &[&str]) -> Result<Vec<usize>> {
        let values = keys.iter().chain(keys).map(|key| value(key)).collect();
        let rows = lane.ask(operation, for_keys(&self.texts.reach, keys.len()), values).await?;
        let texts = texts_of(&rows).ok_or_else(|| nonsense(operation, &self.address))?;
        let nth: Option<Vec<usize>> = texts.iter().map(|text| text.parse().ok()).collect();
        nth.ok_or_else(|| nonsense(operation, &self.address))
    }

    async fn take_row(&self, take: Take, has_row: bool, turn: Turn) -> Result<bool> {
        let lane = SharedRows::of_key(&self.takers, &take.key);
        if has_row && self.reach("join", lane, &[&take.key]).await?.is_empty() {
            return Ok(false);
        }
        let lease = Value::Int(take.lease_us);
        let values = match self.columns.kind {
            Kind::Table => vec![value(&take.key), value(&take.mark), value(&take.text), lease],
            Kind::Shedlock => vec![value(&take.key), value(&take.text), lease],
        };
        let (lane, text) = (lane.turn().await?, self.texts.take.clone());
        // To its end: the leave of whoever goes away meanwhile waits for this turn.
        let taken = UnderWay::new(&self.runtime, async move {
            let taken = lane.change("join", text, values).await;
            drop(turn);
            taken
        });
        // What the number of changed rows means depends on the client.
        taken.await.map(|_| false)
    }

    async fn extend_rows(&self, operation: &'static str, takes: &[Take]) -> Result<Vec<usize>> {
        let Some(first) = takes.first() else { return Ok(Vec::new()) };
        let lane = SharedRows::of_key(&self.lanes, &first.key);
        let keys: Vec<&str> = takes.iter().map(|take| take.key.as_str()).collect();
        let reached = self.reach(operation, lane, &keys).await?;
        let mut by_lease: BTreeMap<i64, Vec<(usize, &Take)>> = BTreeMap::new();
        for nth in reached {
            if let Some(take) = takes.get(nth) {
                by_lease.entry(take.lease_us).or_default().push((nth, take));
            }
        }
        let mut extended = Vec::new();
        for (lease, takes) in by_lease {
            let mut values = vec![Value::Int(lease)];
            values.extend(takes.iter().map(|(_, take)| value(&take.key)));
            values.extend(takes.iter().map(|(_, take)| value(&take.mark)));
            // None of them if somebody has locked one meanwhile: then nothing was extended.
            if lane.change(operation, for_keys(&self.texts.extend, takes.len()), values).await?.is_some() {
                extended.extend(takes.iter().map(|(nth, _)| nth));
            }
        }
        Ok(extended)
    }

    async fn release_row(&self, key: &str, mark: &str) -> Result<bool> {
        let lane = SharedRows::of_key(&self.lanes, key);
        if !self.reach("leave", lane, &[key]).await?.is_empty() {
            let values = vec![value(key), value(mark)];
            if lane.change("leave", self.texts.release.clone(), values).await?.is_some() {
                return Ok(true);
            }
        }
        // It is not there, or not ours; or somebody has locked it, also in the moment between the two.
        let (rows, format) = (self.look_at("leave", &[key.to_owned()]).await?, self.columns.kind.format());
        let holds = |row: &Row| {
            let holder = format.holder(row);
            holder.named_by == mark && !holder.evicted && !row.is_free
        };
        Ok(!rows.iter().any(holds))
    }

    async fn evict_row(&self, key: &str, owner: &str, last: &str, at_once: bool) -> Result<Option<bool>> {
        let lane = SharedRows::of_key(&self.takers, key);
        if !self.reach("evict", lane, &[key]).await?.is_empty() {
            let text = self.texts.evict[usize::from(at_once)].clone();
            let done = lane.change("evict", text, vec![value(key), value(owner), value(last)]).await?;
            if done.is_some() {
                return Ok(Some(true));
            }
        }
        let rows = self.look_at("evict", &[key.to_owned()]).await?;
        let stands = |row: &Row| row.owner == owner && row.last == last && !row.is_free;
        Ok(if rows.iter().any(stands) { None } else { Some(false) })
    }

    async fn all_keys(&self) -> Result<Vec<String>> {
        let rows = self.lanes[0].ask("view", self.texts.keys.clone(), Vec::new()).await?;
        texts_of(&rows).as_deref().and_then(hex).ok_or_else(|| nonsense("view", &self.address))
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
        self.durability.guarantees().exclusion > Exclusion::Probable
    }

    fn look<'a>(&'a self, operation: &'static str, keys: &'a [String]) -> Verb<'a, Vec<Row>> {
        Box::pin(self.look_at(operation, keys))
    }

    fn take<'a>(&'a self, take: Take, has_row: bool, turn: Turn) -> Verb<'a, bool> {
        Box::pin(self.take_row(take, has_row, turn))
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
