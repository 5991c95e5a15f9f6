//! The tables and functions in the database: made on first use, or by an operator, and brought up to date.

use std::sync::Arc;

use tokio_postgres::Client;

use super::error::explain;
use crate::error::{Error, ErrorKind, Result};

/// What this build's functions expect. A change of the tables raises it and adds a step to [`install`]; a change of a function
/// raises it, too, so that whoever connects first replaces the functions.
/// The printed schema says it, too.
const VERSION: i32 = 3;

const TABLES: &str = include_str!("sql/schema.sql");
const FUNCTIONS: &[&str] = &[
    include_str!("sql/line.sql"),
    include_str!("sql/join.sql"),
    include_str!("sql/renew.sql"),
    include_str!("sql/leave.sql"),
    include_str!("sql/evict.sql"),
    include_str!("sql/letters.sql"),
];

/// A statement of ours in a schema of another name.
pub(super) fn in_schema(text: &str, schema: &str) -> String {
    text.replace("\"lockline\"", &format!("\"{schema}\""))
}

/// Everything an operator runs for applications whose role may not create anything: `lockline schema postgres`.
pub fn sql(schema: &str) -> String {
    let mut text = String::from("BEGIN;\n\n");
    text.push_str(TABLES);
    for functions in FUNCTIONS {
        text.push('\n');
        text.push_str(functions);
    }
    text.push_str("\nCOMMIT;\n");
    in_schema(&text, schema)
}

/// Makes what is missing. Any number of clients may do this at the same time.
pub(super) async fn prepare(client: &Client, schema: &str, address: &Arc<str>) -> Result<()> {
    match version(client, schema).await {
        Ok(Some(VERSION)) => Ok(()),
        Ok(Some(found)) if found > VERSION => Err(Error::new(
            ErrorKind::Unsupported,
            "connect",
            format!("the schema {schema:?} has version {found}, and this build knows {VERSION}"),
        )
        .hint("use a later version of Lockline, or another schema=")
        .at(address)),
        Ok(_) => install(client, schema, address).await,
        Err(e) => Err(explain("connect", address, &e, false)),
    }
}

/// `None` if there is no such table. That is asked first: behind a pooler an error ends the session.
async fn version(client: &Client, schema: &str) -> Result<Option<i32>, tokio_postgres::Error> {
    let ask = in_schema("SELECT to_regclass('\"lockline\".meta') IS NOT NULL", schema);
    if !client.query_typed_one(&ask, &[]).await?.try_get::<_, bool>(0)? {
        return Ok(None);
    }
    let ask = in_schema("SELECT max(version) FROM \"lockline\".meta", schema);
    client.query_typed_one(&ask, &[]).await?.try_get(0)
}

async fn install(client: &Client, schema: &str, address: &Arc<str>) -> Result<()> {
    let all = format!(
        // Whoever comes first takes a while, and the others wait for it: longer than a verb may wait for a row. Then they ask the
        // catalogue itself: `to_regclass` may answer from the session's cache, which an advisory lock does not refresh, and
        // the table that the first one has just made would be made again.
        "DO $lockline$ BEGIN\n\
         PERFORM set_config('lock_timeout', '4s', true);\n\
         PERFORM pg_advisory_xact_lock(hashtextextended('lockline schema {schema}', 0));\n\
         IF NOT EXISTS (SELECT FROM pg_catalog.pg_tables WHERE schemaname = '{schema}' AND tablename = 'meta') THEN\n{}\nEND IF;\n\
         ALTER TABLE \"{schema}\".lines ADD COLUMN IF NOT EXISTS entered_us bigint;\n{}\n\
         UPDATE \"{schema}\".meta SET version = {VERSION};\nEND $lockline$",
        in_schema(TABLES, schema),
        in_schema(&FUNCTIONS.concat(), schema),
    );
    client.batch_execute(&all).await.map_err(|e| {
        let error = explain("connect", address, &e, false);
        if error.kind() == ErrorKind::Denied {
            error.hint("have an operator run `lockline schema postgres`, or let this role create a schema")
        } else {
            error
        }
    })
}
