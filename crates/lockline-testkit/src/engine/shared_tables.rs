//! Tables that other programs lock in, too: a table for each test.

use std::sync::Arc;

use lockline::EngineUrl;
use lockline::driver::Driver;

#[cfg(feature = "mysql")]
use super::mysql::{MysqlDatabase, run_on_mysql};
#[cfg(feature = "postgres")]
use super::postgres::{PostgresSchema, run_on_postgres};
use super::{Engine, server_of};

/// The key of a layout's table, and what stands in a row that somebody forgot: it has expired.
fn key_and_forgotten(layout: &str) -> (&'static str, &'static str) {
    match layout {
        "table" => ("rkey", "(rkey, owner, expiredAt) VALUES ('{name}', 'gone', '2001-01-01')"),
        _ => (
            "name",
            "(name, locked_by, locked_at, lock_until) VALUES ('{name}', 'gone', '2001-01-01', '2001-01-01')",
        ),
    }
}

/// Names in tests are longer than most.
fn wide(table: &str) -> String {
    table.replace("rkey varchar(255)", "rkey varchar(512)").replace("name VARCHAR(64)", "name VARCHAR(512)")
}

/// A database of its own with the table of a layout, on the MariaDB or MySQL server of this run.
///
/// # Panics
/// If this run includes no such server, or its address makes no sense.
#[cfg(feature = "mysql")]
pub fn mysql_layout(layout: &'static str) -> Engine {
    use lockline::drivers::mysql::{Layout, Mysql, MysqlConfig, shared_table_sql};
    let server = server_of("mysql");
    let database = format!("test_{:016x}", fastrand::u64(..));
    let kind = if layout == "table" { Layout::table() } else { Layout::shedlock() };
    let (table, create) = (table_of(layout), wide(shared_table_sql(&kind)));
    // As names are here: what differs in case is another lock.
    let make = format!("CREATE DATABASE {database} COLLATE utf8mb4_bin; USE {database}; {create}");
    run_on_mysql(&server, &make).expect("a table is made");
    let (base, _) = server.rsplit_once('/').expect("the address names a database");
    let url = format!("{base}/{database}?layout={layout}");
    let config = EngineUrl::parse(&url).and_then(MysqlConfig::from_url).expect("the address makes sense");
    let open = move |bells| {
        let config = config.clone();
        async move { Ok(Arc::new(Mysql::connect(config, bells).await?) as Arc<dyn Driver>) }
    };
    let to_forget = (server.clone(), format!("DELETE FROM {database}.{table}"));
    let (to_sit, table) = (server.clone(), format!("{database}.{table}"));
    let sit = move |names: Vec<String>| {
        let (server, table) = (to_sit.clone(), table.clone());
        async move {
            let (key, forgotten) = key_and_forgotten(layout);
            for name in &names {
                let row = forgotten.replace("{name}", name);
                run_on_mysql(&server, &format!("INSERT IGNORE INTO {table} {row}")).expect("a row");
            }
            let lock = |name: &String| format!("SELECT {key} FROM {table} WHERE {key} = '{name}' FOR UPDATE");
            super::mysql::sit(&server, names.iter().map(lock).collect()).await
        }
    };
    Engine::new("mysql", url, open)
        .forgets(move || run_on_mysql(&to_forget.0, &to_forget.1).expect("the rows are deleted"))
        .sits_on(sit)
        .keeps(MysqlDatabase(server, format!("DROP DATABASE {database}")))
}

/// A schema of its own with the table of a layout, on the PostgreSQL server of this run.
///
/// # Panics
/// If this run includes no such server, or its address makes no sense.
#[cfg(feature = "postgres")]
pub fn postgres_layout(layout: &'static str) -> Engine {
    use lockline::drivers::postgres::{Layout, Postgres, PostgresConfig, shared_table_sql};
    let server = server_of("postgres");
    let schema = format!("test_{:016x}", fastrand::u64(..));
    let kind = if layout == "table" { Layout::table() } else { Layout::shedlock() };
    let (table, create) = (format!("{schema}.{}", table_of(layout)), wide(shared_table_sql(&kind)));
    let make = format!("CREATE SCHEMA {schema}; SET search_path = {schema}; {create}");
    run_on_postgres(&server, &make).expect("a table is made");
    let url = super::with_option(&server, &format!("layout={layout}&table={table}"));
    let config = EngineUrl::parse(&url).and_then(PostgresConfig::from_url).expect("the address makes sense");
    let open = move |bells| {
        let config = config.clone();
        async move { Ok(Arc::new(Postgres::connect(config, bells).await?) as Arc<dyn Driver>) }
    };
    let to_forget = (server.clone(), format!("DELETE FROM {table}"));
    let to_sit = server.clone();
    let sit = move |names: Vec<String>| {
        let (server, table) = (to_sit.clone(), table.clone());
        async move {
            let (key, forgotten) = key_and_forgotten(layout);
            for name in &names {
                let row = forgotten.replace("{name}", name);
                let insert = format!("INSERT INTO {table} {row} ON CONFLICT DO NOTHING");
                run_on_postgres(&server, &insert).expect("a row");
            }
            super::postgres::sit(&server, &table, key, names).await
        }
    };
    Engine::new("postgres", url, open)
        .forgets(move || run_on_postgres(&to_forget.0, &to_forget.1).expect("the rows are deleted"))
        .sits_on(sit)
        .keeps(PostgresSchema((server, format!("DROP SCHEMA IF EXISTS {schema} CASCADE"))))
}

fn table_of(layout: &str) -> &'static str {
    if layout == "table" { "tbl_distribute_lock" } else { "shedlock" }
}
