//! Which table, and what its columns are called.

use crate::error::{Error, ErrorKind, Result};
use crate::url::EngineUrl;

/// A table that other programs lock in, too, and what its columns are called.
///
/// ```
/// # #[cfg(feature = "mysql")] {
/// # use lockline::drivers::mysql::{Layout, MysqlConfig};
/// let config = MysqlConfig::new("db.internal", 3306, "app").layout(Layout::shedlock().in_table("jobs.shedlock"));
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    pub(in crate::drivers) kind: Kind,
    pub(in crate::drivers) table: String,
    pub(in crate::drivers) key: String,
    pub(in crate::drivers) owner: String,
    pub(in crate::drivers) expiry: String,
    pub(in crate::drivers) last: String,
}

/// By whose rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::drivers) enum Kind {
    /// A row that is deleted when the lock is released, with a set of hold ids.
    Table,
    /// ShedLock's: a row that stays, and says until when and since when it is locked.
    Shedlock,
}

impl Layout {
    /// A row per lock with its owner, when it expires, and the ids of its holds; a released lock has no row.
    ///
    /// Default: the table `tbl_distribute_lock` with the columns `rkey`, `owner`, `expiredAt` and `reentrant`.
    pub fn table() -> Layout {
        Layout::named(Kind::Table, ["tbl_distribute_lock", "rkey", "owner", "expiredAt", "reentrant"])
    }

    /// The table of Java's ShedLock.
    ///
    /// Default: the table `shedlock` with the columns `name`, `locked_by`, `lock_until` and `locked_at`.
    pub fn shedlock() -> Layout {
        Layout::named(Kind::Shedlock, ["shedlock", "name", "locked_by", "lock_until", "locked_at"])
    }

    fn named(kind: Kind, names: [&str; 5]) -> Layout {
        let [table, key, owner, expiry, last] = names.map(str::to_owned);
        Layout { kind, table, key, owner, expiry, last }
    }

    /// The table's name: letters, digits and `_`, perhaps with its database or schema and a dot before it.
    #[must_use]
    pub fn in_table(mut self, table: impl Into<String>) -> Layout {
        self.table = table.into();
        self
    }

    /// The names of the columns: the lock's name, its owner, when it expires, and the hold ids (for ShedLock: since when it is locked).
    #[must_use]
    pub fn columns(mut self, key: &str, owner: &str, expiry: &str, last: &str) -> Layout {
        [self.key, self.owner, self.expiry, self.last] = [key, owner, expiry, last].map(str::to_owned);
        self
    }

    /// What an address says; `None` for Lockline's own tables.
    pub(in crate::drivers) fn from_url(url: &mut EngineUrl) -> Result<Option<Layout>> {
        let (mut layout, last) = match url.take("layout").as_deref() {
            None | Some("line") => return Ok(None),
            Some("table") => (Layout::table(), "holds_column"),
            Some("shedlock") => (Layout::shedlock(), "since_column"),
            Some(_) => return Err(bad("layout is line, table or shedlock")),
        };
        let mut set = |option: &str, name: &mut String| {
            if let Some(text) = url.take(option) {
                *name = text;
            }
        };
        set("table", &mut layout.table);
        set("key_column", &mut layout.key);
        set("owner_column", &mut layout.owner);
        set("expiry_column", &mut layout.expiry);
        set(last, &mut layout.last);
        Ok(Some(layout))
    }

    /// Names that are put into statements are letters, digits and `_`, and nothing else.
    pub(in crate::drivers) fn check(&self) -> Result<()> {
        let plain = |name: &str| {
            let letters = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            (1..=64).contains(&name.len()) && name.bytes().all(letters)
        };
        let (database, table) = self.table_parts();
        if !plain(table) || !database.is_none_or(plain) {
            return Err(bad(
                "a table is 1 to 64 letters, digits and _, perhaps with a schema and a dot before it",
            ));
        }
        let columns = [&self.key, &self.owner, &self.expiry, &self.last];
        if !columns.iter().all(|name| plain(name)) {
            return Err(bad("a column is 1 to 64 letters, digits and _"));
        }
        let distinct: std::collections::HashSet<_> =
            columns.iter().map(|name| name.to_ascii_lowercase()).collect();
        if distinct.len() < columns.len() {
            return Err(bad("two columns of the layout have the same name"));
        }
        Ok(())
    }

    /// The database or schema, if it is named, and the table.
    pub(in crate::drivers) fn table_parts(&self) -> (Option<&str>, &str) {
        self.table.split_once('.').map_or((None, &self.table), |(database, table)| (Some(database), table))
    }
}

fn bad(problem: &'static str) -> Error {
    Error::new(ErrorKind::Invalid, "url", problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(options: &str) -> Result<Option<Layout>> {
        let mut url = EngineUrl::parse(&format!("mysql://me@h/db?{options}")).unwrap();
        let layout = Layout::from_url(&mut url)?;
        url.finish()?;
        layout.as_ref().map_or(Ok(()), Layout::check)?;
        Ok(layout)
    }

    #[test]
    fn names_come_from_the_address() {
        assert_eq!(layout("").unwrap(), None);
        assert_eq!(layout("layout=line").unwrap(), None);
        assert_eq!(layout("layout=table").unwrap(), Some(Layout::table()));
        let named = "layout=shedlock&table=a.b&key_column=n&owner_column=o&expiry_column=u&since_column=s";
        let expected = Layout::shedlock().in_table("a.b").columns("n", "o", "u", "s");
        assert_eq!(layout(named).unwrap(), Some(expected));
        assert_eq!(layout("layout=table&table=a.b").unwrap().unwrap().table_parts(), (Some("a"), "b"));
    }

    #[test]
    fn what_could_be_more_than_a_name_is_refused() {
        for options in [
            "layout=other",
            "layout=line&table=a",
            "table=a",
            "layout=table&since_column=s",
            "layout=shedlock&holds_column=s",
            "layout=table&table=",
            "layout=table&table=a.b.c",
            "layout=table&table=a`b",
            "layout=table&table=a%20b",
            "layout=table&key_column=a%22",
            "layout=table&key_column=OWNER",
        ] {
            assert_eq!(layout(options).unwrap_err().kind(), ErrorKind::Invalid, "{options}");
        }
    }
}
