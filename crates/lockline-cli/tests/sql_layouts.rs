//! On tables that other programs lock in, too, made by what `lockline schema` prints.

#![cfg(any(feature = "mysql", feature = "postgres"))]
#![allow(clippy::unwrap_used)]

mod common;
use common::{Lab, address_of, port_of};
use std::io::Write;
use std::process::{Command, Stdio};

/// Runs statements as the engine's own program does.
fn feed(client: &mut Command, statements: &str) {
    let mut client =
        client.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("its client is installed");
    client.stdin.take().unwrap().write_all(statements.as_bytes()).unwrap();
    assert!(client.wait().unwrap().success(), "{statements}");
}

fn show(lab: &Lab, on: &str) {
    let run = |args: &[&str]| lab.say(&[&["run", "--on", on], args].concat());
    let said = run(&["nightly", "--", "sh", "-c", "echo in \"$LOCKLINE_TOKEN\""]);
    assert_eq!((said.code, said.out.as_str()), (Some(0), "in \n"), "no token: {said:?}");
    let held = lab.hold(&["--on", on], "nightly", "echo in; read _; exit 0");
    let said = run(&["-n", "-E", "9", "nightly", "--", "echo", "no"]);
    assert_eq!((said.code, said.out.as_str()), (Some(9), ""), "{said:?}");
    let said = lab.say(&["show", "--on", on, "nightly"]);
    assert!(said.code == Some(0) && said.out.contains("nightly"), "{said:?}");
    drop(held);
    let said = run(&["--permits", "1/2", "other", "--", "echo", "no"]);
    assert!(said.code != Some(0) && said.err.contains("mutexes only"), "{said:?}");
}

#[cfg(feature = "mysql")]
#[test]
fn a_command_runs_under_a_lock_of_mysql_tables() {
    let Some(port) = address_of("mysql").as_deref().map(port_of) else { return };
    let lab = Lab::new();
    for layout in ["table", "shedlock"] {
        let database = format!("cli_{layout}_{}", std::process::id());
        let schema = lab.say(&["schema", "mysql", "--layout", layout]);
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "-h127.0.0.1", "-uroot", "-P", &port]);
        feed(&mut client, &format!("CREATE DATABASE {database}; USE {database}; {}", schema.out));
        show(&lab, &format!("mysql://root@127.0.0.1:{port}/{database}?layout={layout}"));
        feed(&mut client, &format!("DROP DATABASE {database}"));
    }
}

#[cfg(feature = "postgres")]
#[test]
fn a_command_runs_under_a_lock_of_postgres_tables() {
    let Some(port) = address_of("postgres").as_deref().map(port_of) else { return };
    let lab = Lab::new();
    for (layout, table) in [("table", "tbl_distribute_lock"), ("shedlock", "shedlock")] {
        let schema_name = format!("cli_{layout}_{}", std::process::id());
        let schema = lab.say(&["schema", "postgres", "--layout", layout]);
        let mut client = Command::new("psql");
        client.args([
            "-X",
            "-q",
            "-v",
            "ON_ERROR_STOP=1",
            "-h127.0.0.1",
            "-Upostgres",
            "-p",
            &port,
            "postgres",
        ]);
        feed(
            &mut client,
            &format!("CREATE SCHEMA {schema_name}; SET search_path = {schema_name}; {}", schema.out),
        );
        show(
            &lab,
            &format!(
                "postgres://postgres@127.0.0.1:{port}/postgres?layout={layout}&table={schema_name}.{table}"
            ),
        );
        feed(&mut client, &format!("DROP SCHEMA {schema_name} CASCADE"));
    }
}
