//! The tables and procedures in the database: made on first use, or by an operator, and brought up to date.

use std::fmt::Write;
use std::sync::Arc;

use super::durability::WEAK;
use super::error::explain;
use super::wire::{Connection, Failure};
use crate::error::{Error, ErrorKind, Result};

/// What this build's procedures expect. A change of the tables or of a procedure raises it, so that whoever connects first
/// brings them up to date.
const VERSION: i32 = 3;

/// What statements are written for, whatever the server's own is: with ONLY_FULL_GROUP_BY, ANSI, ORACLE and others they would mean
/// something else, or nothing.
pub(super) const SQL_MODE: &str = "STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION";

const TABLES: &str = include_str!("sql/schema.sql");
/// Each with what it calls before it.
const PROCEDURES: &[(&str, &str)] = &[
    ("lockline_settle", include_str!("sql/settle.sql")),
    ("lockline_drop_lapsed", include_str!("sql/drop_lapsed.sql")),
    ("lockline_settle_line", include_str!("sql/settle_line.sql")),
    ("lockline_standing", include_str!("sql/standing.sql")),
    ("lockline_stand_in_claims", include_str!("sql/stand_in_claims.sql")),
    ("lockline_make_line", include_str!("sql/make_line.sql")),
    ("lockline_join", include_str!("sql/join.sql")),
    ("lockline_leave", include_str!("sql/leave.sql")),
    ("lockline_tick_line", include_str!("sql/tick.sql")),
    ("lockline_renew", include_str!("sql/renew.sql")),
    ("lockline_renew_alone", include_str!("sql/renew_alone.sql")),
    ("lockline_evict", include_str!("sql/evict.sql")),
    ("lockline_watch", include_str!("sql/watch.sql")),
];
const STAMP: &str =
    "INSERT INTO lockline_meta (one, version) VALUES (1, 3) ON DUPLICATE KEY UPDATE version = 3";

/// Everything an operator runs, in the database of the locks, for applications whose user may not create anything:
/// `lockline schema mysql`.
pub fn sql() -> String {
    // A procedure keeps the mode that it was made with.
    let mut text = format!("SET SESSION sql_mode = '{SQL_MODE}';\n\n{TABLES}");
    text.push_str("\nDELIMITER //\n");
    for (name, procedure) in PROCEDURES {
        let procedure = procedure.replace("{weak}", WEAK);
        let _ = write!(text, "\nDROP PROCEDURE IF EXISTS {name}//\n{procedure}//\n");
    }
    let _ = write!(text, "\nDELIMITER ;\n\n{STAMP};\n");
    text
}

/// Makes what is missing. Any number of clients may do this at the same time.
pub(super) async fn prepare(connection: &mut Connection, address: &Arc<str>, clock: bool) -> Result<()> {
    let fail = |e: Failure| explain("connect", address, &e, false);
    match version(connection).await {
        Ok(Some(VERSION)) => return Ok(()),
        Ok(Some(found)) if found > VERSION => {
            let message = format!("the tables have version {found}, and this build knows {VERSION}");
            return Err(Error::new(ErrorKind::Unsupported, "connect", message)
                .hint("use a later version of Lockline, or another database")
                .at(address));
        }
        Ok(_) => {}
        Err(e) if e.number() == Some(1146) => {}
        Err(e) => return Err(fail(e)),
    }
    let denied = |e: Failure| {
        let error = fail(e);
        if error.kind() == ErrorKind::Denied {
            error.hint(
                "have an operator run `lockline schema mysql`, or let this user create tables and routines",
            )
        } else {
            error
        }
    };
    // Of this database: on one server others may be made at the same time.
    let turn = "CONCAT('lockline schema ', LEFT(SHA2(DATABASE(), 256), 40))";
    connection.query(&format!("DO GET_LOCK({turn}, 20)")).await.map_err(fail)?;
    let made = install(connection, clock).await;
    connection.query(&format!("DO RELEASE_LOCK({turn})")).await.map_err(fail)?;
    made.map_err(denied)
}

async fn version(connection: &mut Connection) -> Result<Option<i32>, Failure> {
    let found = connection.query("SELECT version FROM lockline_meta").await?;
    found.rows.first().map(|row| row.try_get(0)).transpose()
}

async fn install(connection: &mut Connection, clock: bool) -> Result<(), Failure> {
    // Somebody may have been faster.
    if let Ok(Some(VERSION)) = version(connection).await {
        return Ok(());
    }
    for table in TABLES.split(";\n").filter(|text| text.contains("CREATE ")) {
        connection.query(table).await?;
    }
    // Tables of version 2 lack it.
    match connection.query("SELECT entered_us FROM lockline_lines LIMIT 0").await {
        Err(error) if error.number() == Some(1054) => {
            connection.query("ALTER TABLE lockline_lines ADD COLUMN entered_us BIGINT").await?;
        }
        looked => drop(looked?),
    }
    for (name, procedure) in PROCEDURES {
        let text = procedure.replace("{weak}", WEAK);
        let text = if clock { text.replace(CLOCK, "@clock") } else { text };
        connection.query(&format!("DROP PROCEDURE IF EXISTS {name}")).await?;
        connection.query(&text).await?;
    }
    connection.query(STAMP).await.map(drop)
}

/// How statements read the time; tests put another clock there.
pub(super) const CLOCK: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6))";
/// The same, as it was when the statement began.
#[cfg(test)]
pub(super) const CLOCK_AT_BEGIN: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', NOW(6))";
