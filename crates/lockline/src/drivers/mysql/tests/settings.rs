//! Servers that are set up in ways that others' are: what locks mean does not change with them.

use std::time::Duration;

use super::server::{Kind, Server};
use super::{claim, included, is_in, open, place};
use crate::Locks;
use crate::driver::{Driver, Query};
use crate::drivers::relational::testing::take_turns;
use crate::line::{Mode, Standing};

const LEASE: Duration = Duration::from_secs(30);

/// Everything that a lock is asked for, by two clients.
async fn works(server: &Server) {
    let (mysql, heard) = open(server.config.clone()).await;
    let (other, _) = open(server.config.clone()).await;
    let permits = Mode::Permits { count: 2, limit: 3 };
    for (name, mode) in [("ä'\\\"", Mode::Exclusive), ("b", Mode::Shared), ("c ", permits)] {
        let (first, second) = (claim(name, Mode::Exclusive, LEASE), claim(name, mode, LEASE));
        let Standing::In { ticket } = other.join(&first, true).await.unwrap() else { panic!("{name}") };
        let Standing::Waiting { ticket: next, .. } = mysql.join(&second, true).await.unwrap() else {
            panic!("{name}")
        };
        assert!(next > ticket);
        assert!(is_in(&other.renew(&[place(&first, Some(ticket))]).await.unwrap()[0]));
        let lines = mysql.view(&Query::Name(first.name.clone())).await.unwrap();
        assert_eq!((lines[0].holders.len(), lines[0].waiters.len()), (1, 1));
        let remaining = lines[0].holders[0].remaining;
        assert!(remaining > LEASE / 2 && remaining <= LEASE, "{remaining:?}");
        other.leave(&place(&first, Some(ticket))).await.unwrap();
        assert_eq!(heard.next().await.1.id, second.id);
        assert!(other.evict(&second.name, next, true).await.unwrap());
        assert!(mysql.view(&Query::Name(second.name.clone())).await.unwrap().is_empty());
        mysql.leave(&place(&second, Some(next))).await.unwrap();
    }
    let mut clients = Vec::new();
    for _ in 0..2 {
        clients.push(Locks::builder().mysql(server.config.clone()).await.unwrap());
    }
    take_turns(clients, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn modes_and_zones_of_the_server_change_nothing() {
    let Some(database) = included().await else { return };
    database.done().await;
    let hostile = match Kind::of_this_run() {
        Kind::Mariadb => "--sql-mode=ANSI,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH,ONLY_FULL_GROUP_BY",
        Kind::Mysql => "--sql-mode=ANSI,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH",
    };
    works(&Server::start_with(&[hostile, "--default-time-zone=-11:30", "--autocommit=0"]).await).await;
    works(
        &Server::start_with(&["--transaction-isolation=SERIALIZABLE", "--innodb-rollback-on-timeout=ON"])
            .await,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_wants_primary_keys_and_logs_everything_will_do() {
    let Some(database) = included().await else { return };
    database.done().await;
    let options: &[&str] = match Kind::of_this_run() {
        Kind::Mariadb => {
            &["--innodb-force-primary-key=ON", "--log-bin=log", "--server-id=1", "--gtid-strict-mode=ON"]
        }
        Kind::Mysql => &[
            "--sql-require-primary-key=ON",
            "--server-id=1",
            "--gtid-mode=ON",
            "--enforce-gtid-consistency=ON",
        ],
    };
    works(&Server::start_with(options).await).await;
}
