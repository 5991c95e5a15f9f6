//! What is written into tables that others lock in, and what is obeyed there, beside the conformance suite.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_postgres::Client;

use super::{Postgres, PostgresConfig, claim, drop_schema, included, is_in, open, operator, place};
use crate::driver::{Driver, Fencing, Query};
use crate::drivers::postgres::{Layout, shared_table_sql};
use crate::drivers::testing::Heard;
use crate::error::ErrorKind;
use crate::line::{Claim, Mode, Standing, Ticket};

const LEASE: Duration = Duration::from_secs(10);

/// As others take it, by the founding document's conditions.
const LOCK: &str = "INSERT INTO tbl_distribute_lock AS t (rkey, owner, expiredAt) VALUES ('a', $1, now() + interval '30 seconds') \
    ON CONFLICT (rkey) DO UPDATE SET owner = EXCLUDED.owner, expiredAt = EXCLUDED.expiredAt \
    WHERE t.expiredAt < now() OR t.owner = EXCLUDED.owner";

fn mutex(name: &str) -> Claim {
    claim(name, Mode::Exclusive, LEASE)
}

/// A schema with both tables, a session of somebody else in it, and the addresses of ours.
async fn tables() -> Option<(PostgresConfig, Client, [PostgresConfig; 2])> {
    let config = included()?;
    let theirs = operator(&config).await;
    let schema = &config.schema;
    theirs
        .batch_execute(&format!("CREATE SCHEMA \"{schema}\"; SET search_path = \"{schema}\""))
        .await
        .unwrap();
    let ours = [Layout::table(), Layout::shedlock()].map(|layout| {
        let table = format!("{schema}.{}", layout.table);
        (shared_table_sql(&layout), config.clone().layout(layout.in_table(table)))
    });
    for (create, _) in &ours {
        theirs.batch_execute(create).await.unwrap();
    }
    Some((config, theirs, ours.map(|(_, config)| config)))
}

async fn one(theirs: &Client, statement: &str) -> Option<String> {
    theirs.query_opt(statement, &[]).await.unwrap().map(|row| row.get(0))
}

#[tokio::test]
async fn a_fleet_that_locks_by_the_founding_conditions_shares_the_lock() {
    let Some((config, theirs, [table, _])) = tables().await else { return };
    let (ours, _) = open(table).await;
    let (mine, waits) = (mutex("a"), mutex("a"));
    let stands = ours.join(&mine, true).await.unwrap();
    let row = one(&theirs, "SELECT concat_ws('|', owner, reentrant) FROM tbl_distribute_lock").await.unwrap();
    assert!(row.starts_with("ll") && row.find('|') == Some(20) && row.ends_with("te ster"), "{row}");
    assert_eq!(theirs.execute(LOCK, &[&"host-1"]).await.unwrap(), 0, "ours is not taken");
    ours.leave(&place(&mine, stands.ticket())).await.unwrap();
    assert_eq!(
        one(&theirs, "SELECT owner FROM tbl_distribute_lock").await,
        None,
        "a released lock has no row"
    );
    assert_eq!(theirs.execute(LOCK, &[&"host-1"]).await.unwrap(), 1);
    assert_eq!(ours.join(&mine, false).await.unwrap(), Standing::Out);
    assert!(matches!(ours.join(&waits, true).await.unwrap(), Standing::Waiting { ticket: Ticket::ZERO, .. }));
    theirs
        .batch_execute("UPDATE tbl_distribute_lock SET expiredAt = now() - interval '1 second'")
        .await
        .unwrap();
    assert!(is_in(&ours.renew(&[place(&waits, None)]).await.unwrap()[0]), "it has expired");
    assert_eq!(ours.guarantees().fencing, Fencing::None);
    drop_schema(&config).await;
}

/// A transaction that sits on a row keeps others out for as long as it is open, and no longer: a session that dies is not a holder that
/// stopped. Nobody here waits for it inside the server, and ours is not held by a session.
#[tokio::test]
async fn a_session_that_dies_is_not_a_holder_that_stopped() {
    let Some((config, theirs, [table, _])) = tables().await else { return };
    let (ours, _) = open(table).await;
    let fifth = operator(&config).await;
    fifth.batch_execute(&format!("SET search_path = \"{}\"", config.schema)).await.unwrap();
    assert_eq!(fifth.execute(LOCK, &[&"v5"]).await.unwrap(), 1);
    fifth
        .batch_execute("UPDATE tbl_distribute_lock SET expiredAt = now() - interval '1 second'")
        .await
        .unwrap();
    fifth
        .batch_execute("BEGIN; SELECT 1 FROM tbl_distribute_lock WHERE rkey = 'a' FOR UPDATE")
        .await
        .unwrap();
    let (waits, start) = (mutex("a"), Instant::now());
    assert!(matches!(ours.join(&waits, true).await.unwrap(), Standing::Waiting { .. }));
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    let pid: i32 = fifth.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    theirs.execute("SELECT pg_terminate_backend($1)", &[&pid]).await.unwrap();
    let mut stands = ours.renew(&[place(&waits, None)]).await.unwrap();
    while !is_in(&stands[0]) {
        assert!(start.elapsed() < Duration::from_secs(5));
        stands = ours.renew(&[place(&waits, None)]).await.unwrap();
    }
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'lockline' AND query LIKE $1";
    theirs.query(kill, &[&format!("%{}%", config.schema)]).await.unwrap();
    assert_eq!(theirs.execute(LOCK, &[&"host-1"]).await.unwrap(), 0, "nobody gets in");
    let again = tokio::time::timeout(Duration::from_secs(5), async {
        loop {
            match ours.renew(&[place(&waits, stands[0].ticket())]).await {
                Ok(stands) => return stands,
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    });
    assert_eq!(again.await.unwrap(), stands);
    drop_schema(&config).await;
}

#[tokio::test]
async fn a_shedlock_row_stays_and_says_who_and_since_when() {
    let Some((config, theirs, [_, shedlock])) = tables().await else { return };
    let (ours, _) = open(shedlock).await;
    // Whatever the zone of their session is.
    theirs.batch_execute("SET TIME ZONE 'Asia/Tokyo'").await.unwrap();
    let mine = mutex("job");
    let stands = ours.join(&mine, true).await.unwrap();
    let row = "SELECT concat_ws('|', lock_until > timezone('utc', CURRENT_TIMESTAMP), \
        locked_at <= timezone('utc', CURRENT_TIMESTAMP), locked_by) FROM shedlock";
    let written = one(&theirs, row).await.unwrap();
    assert!(written.starts_with(&format!("t|t|{:032x} ", mine.id.as_u128())), "{written}");
    // As ShedLock takes it.
    let update = "UPDATE shedlock SET lock_until = timezone('utc', CURRENT_TIMESTAMP) + interval '30 seconds', \
        locked_at = timezone('utc', CURRENT_TIMESTAMP), locked_by = 'host-1' \
        WHERE name = 'job' AND lock_until <= timezone('utc', CURRENT_TIMESTAMP)";
    assert_eq!(theirs.execute(update, &[]).await.unwrap(), 0);
    assert_eq!(ours.renew(&[place(&mine, stands.ticket())]).await.unwrap(), [stands]);
    ours.leave(&place(&mine, stands.ticket())).await.unwrap();
    assert_eq!(theirs.execute(update, &[]).await.unwrap(), 1, "the row stays, and is free");
    let seen = ours.view(&Query::Prefix(String::new())).await.unwrap().remove(0).holders.remove(0);
    assert_eq!((seen.who.owner.as_str(), seen.since < LEASE), ("host-1", true));
    assert_eq!(ours.join(&mine, false).await.unwrap(), Standing::Out);
    drop_schema(&config).await;
}

#[tokio::test]
async fn evicting_closes_and_evicting_at_once_frees() {
    let Some((config, _, both)) = tables().await else { return };
    for layout in both {
        let (ours, _) = open(layout).await;
        let (holder, next) = (mutex("m"), mutex("m"));
        let Standing::In { ticket } = ours.join(&holder, true).await.unwrap() else { panic!() };
        let view =
            async || ours.view(&Query::Name(holder.name.clone())).await.unwrap().remove(0).holders.remove(0);
        assert!(!ours.evict(&holder.name, Ticket::new(ticket.get() + 1), true).await.unwrap());
        assert!(ours.evict(&holder.name, ticket, false).await.unwrap());
        assert_eq!(ours.renew(&[place(&holder, Some(ticket))]).await.unwrap(), [Standing::Out]);
        ours.leave(&place(&holder, Some(ticket))).await.unwrap();
        assert_eq!(ours.join(&next, false).await.unwrap(), Standing::Out, "nobody overlaps with it");
        let seen = view().await;
        assert_eq!((seen.ticket, seen.evicted, seen.who.owner.as_str()), (ticket, true, "te ster"));
        assert!(ours.evict(&holder.name, ticket, true).await.unwrap());
        assert!(is_in(&ours.join(&next, false).await.unwrap()));
    }
    drop_schema(&config).await;
}

#[tokio::test]
async fn a_table_that_locks_cannot_be_trusted_to_is_refused() {
    let Some((config, theirs, [_, shedlock])) = tables().await else { return };
    let kind = async |config: &PostgresConfig| {
        Postgres::connect(config.clone(), Arc::new(Heard::default())).await.unwrap_err().kind()
    };
    for (change, expected) in [
        ("ALTER TABLE shedlock ALTER locked_by TYPE varchar(40)", ErrorKind::Unsupported),
        ("ALTER TABLE shedlock DROP CONSTRAINT shedlock_pkey", ErrorKind::Unsafe),
        ("CREATE UNIQUE INDEX part ON shedlock (name) WHERE locked_by = 'me'", ErrorKind::Unsafe),
        ("ALTER TABLE shedlock DROP COLUMN locked_at", ErrorKind::Unsupported),
        ("DROP TABLE shedlock", ErrorKind::Unsupported),
    ] {
        theirs.batch_execute(change).await.unwrap();
        assert_eq!(kind(&shedlock).await, expected, "{change}");
    }
    let pooled = shedlock.pooler(crate::drivers::postgres::Pooler::Transaction);
    assert_eq!(kind(&pooled).await, ErrorKind::Unsupported, "its settings would be somebody else's");
    drop_schema(&config).await;
}
