//! What the table is like in this database, and the statements that fit it.

use std::sync::Arc;
use std::time::Duration;

use super::row::unhex;
use super::{Kind, Layout};
use crate::error::{Error, ErrorKind, Result};

/// A column, as the server describes it.
#[derive(Clone, Debug)]
pub(in crate::drivers) struct Column {
    /// As it is spelt there.
    pub(in crate::drivers) name: String,
    /// How many letters fit; `None` if there is no limit, or it is no text.
    room: Option<usize>,
    /// How many digits of a second a time has there.
    precision: Option<u32>,
    /// The type's name.
    #[cfg(feature = "postgres")]
    pub(in crate::drivers) kind: String,
    /// The index that makes it unique by itself.
    pub(in crate::drivers) index: Option<String>,
}

impl Column {
    /// `name room precision type index`, the names in hex, and -1 or `-` for what does not apply.
    pub(in crate::drivers) fn parse(text: &str) -> Option<Column> {
        let fields: Vec<&str> = text.split(' ').collect();
        let [name, room, precision, _kind, index] = fields[..] else { return None };
        Some(Column {
            name: unhex(name)?,
            room: usize::try_from(room.parse::<i64>().ok()?).ok(),
            precision: u32::try_from(precision.parse::<i64>().ok()?).ok(),
            #[cfg(feature = "postgres")]
            kind: _kind.to_owned(),
            index: if index == "-" { None } else { Some(unhex(index)?) },
        })
    }
}

/// The four columns of a layout.
#[derive(Clone, Debug)]
pub(in crate::drivers) struct Columns {
    pub(in crate::drivers) key: Column,
    pub(in crate::drivers) owner: Column,
    pub(in crate::drivers) expiry: Column,
    pub(in crate::drivers) last: Column,
    pub(in crate::drivers) kind: Kind,
}

/// Room enough where a column has no limit.
const NO_LIMIT: usize = 1024;
/// For a mark, `evicted ` before it, and a process behind it.
const SHORTEST_LOCKED_BY: usize = 64;

impl Columns {
    /// Finds the columns of a layout among those of its table, and refuses a table that locks cannot be trusted to.
    pub(in crate::drivers) fn of(layout: &Layout, found: &[Column], address: &Arc<str>) -> Result<Columns> {
        let table = &layout.table;
        let refuse = |kind, message: String, hint: &'static str| {
            Err(Error::new(kind, "connect", message).hint(hint).at(address))
        };
        if found.is_empty() {
            let message = format!("there is no table {table:?} that this user may read");
            let hint = "name it with table=; `lockline schema` with --layout prints what creates it";
            return refuse(ErrorKind::Unsupported, message, hint);
        }
        // As it is written first; a server that folds case has it in another.
        let column = |name: &str| {
            let exact = found.iter().find(|column| column.name == name);
            exact.or_else(|| found.iter().find(|column| column.name.eq_ignore_ascii_case(name))).cloned().ok_or_else(|| {
                Error::new(ErrorKind::Unsupported, "connect", format!("the table {table:?} has no column {name:?}"))
                    .hint("name the columns: key_column=, owner_column=, expiry_column=, and holds_column= or since_column=")
                    .at(address)
            })
        };
        let columns = Columns {
            key: column(&layout.key)?,
            owner: column(&layout.owner)?,
            expiry: column(&layout.expiry)?,
            last: column(&layout.last)?,
            kind: layout.kind,
        };
        if columns.key.index.is_none() {
            let message =
                format!("no unique index is on {:?} alone: two rows could be one lock", columns.key.name);
            return refuse(ErrorKind::Unsafe, message, "make it unique, or the primary key");
        }
        if columns.expiry.precision.is_none() {
            let message = format!("the column {:?} is no date and time", columns.expiry.name);
            return refuse(ErrorKind::Unsupported, message, "it is TIMESTAMP or DATETIME in this layout");
        }
        let least = if layout.kind == Kind::Table { 20 } else { SHORTEST_LOCKED_BY };
        if columns.owner.room.is_some_and(|room| room < least) {
            let message =
                format!("the column {:?} has room for fewer than {least} letters", columns.owner.name);
            return refuse(ErrorKind::Unsupported, message, "have it made wider");
        }
        Ok(columns)
    }

    /// How many letters a lock's name may have; `None` if there is no limit.
    pub(in crate::drivers) fn name_room(&self) -> Option<usize> {
        self.key.room
    }

    /// How many letters of a claim's text fit where it is written.
    pub(in crate::drivers) fn text_room(&self) -> usize {
        let column = if self.kind == Kind::Table { &self.last } else { &self.owner };
        column.room.unwrap_or(NO_LIMIT)
    }

    /// How far a time that is stored may be before the one that was meant. A lease must not end early because the server rounds.
    pub(in crate::drivers) fn rounding(&self) -> Duration {
        Duration::from_micros(10_u64.pow(6 - self.expiry.precision.unwrap_or(0).min(6)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(texts: &[&str]) -> Vec<Column> {
        texts.iter().map(|text| Column::parse(text).unwrap()).collect()
    }

    #[test]
    fn a_table_that_cannot_be_trusted_is_refused() {
        let address: Arc<str> = "mysql://h/db".into();
        let kind = |texts: &[&str]| {
            Columns::of(&Layout::table(), &found(texts), &address).map_err(|e| e.kind()).map(drop)
        };
        let rest = [
            "6f776e6572 20 -1 varchar -",
            "657870697265644174 -1 0 datetime -",
            "7265656e7472616e74 1024 -1 varchar -",
        ];
        let with = |key: &'static str| [&[key][..], &rest[..]].concat();
        assert_eq!(kind(&with("726b6579 20 -1 varchar 78")), Ok(()));
        assert_eq!(kind(&with("726b6579 20 -1 varchar -")), Err(ErrorKind::Unsafe), "not unique");
        assert_eq!(kind(&[]), Err(ErrorKind::Unsupported));
        assert_eq!(kind(&rest), Err(ErrorKind::Unsupported), "no key");
        let mut narrow = with("726b6579 20 -1 varchar 78");
        narrow[1] = "6f776e6572 19 -1 varchar -";
        assert_eq!(kind(&narrow), Err(ErrorKind::Unsupported));
        let mut number = with("726b6579 20 -1 varchar 78");
        number[2] = "657870697265644174 -1 -1 bigint -";
        assert_eq!(kind(&number), Err(ErrorKind::Unsupported));
    }

    #[test]
    fn names_are_found_as_the_server_spells_them() {
        let address: Arc<str> = "postgres://h/db".into();
        // rkey, owner, expiredat, reentrant.
        let all = found(&[
            "726b6579 255 -1 varchar 78",
            "6f776e6572 -1 -1 text -",
            "657870697265646174 -1 6 timestamptz -",
            "7265656e7472616e74 -1 -1 text -",
        ]);
        let columns = Columns::of(&Layout::table(), &all, &address).unwrap();
        assert_eq!(columns.expiry.name, "expiredat");
        assert_eq!(
            (columns.name_room(), columns.text_room(), columns.rounding()),
            (Some(255), NO_LIMIT, Duration::from_micros(1))
        );
    }
}
