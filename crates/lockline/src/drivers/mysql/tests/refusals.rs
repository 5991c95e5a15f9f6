//! Users who may not, servers that must not be written to, and the grants of the guide.

use std::sync::Arc;
use std::time::Duration;

use super::{claim, included, is_in, open, operator, place};
use crate::driver::{Driver, Query};
use crate::drivers::mysql::{Mysql, MysqlConfig, Tls};
use crate::drivers::testing::Heard;
use crate::error::{Error, ErrorKind};
use crate::line::Mode;

const CANARY: &str = "c4nary";
const LEASE: Duration = Duration::from_secs(10);

async fn refused(config: MysqlConfig) -> Error {
    let error = Mysql::connect(config, Arc::new(Heard::default())).await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains(CANARY), "{error:?}");
    error
}

#[tokio::test]
async fn logins_and_addresses() {
    let Some(database) = included().await else { return };
    assert_eq!(refused(database.config.clone().login("nobody", CANARY)).await.kind(), ErrorKind::Denied);
    let mut gone = database.config.clone();
    gone.port = 1;
    assert_eq!(refused(gone).await.kind(), ErrorKind::Unavailable);
    // This server has no certificate: nothing falls back to a connection without TLS.
    assert!(Mysql::connect(database.config.clone().tls(Tls::On), Arc::new(Heard::default())).await.is_err());
    database.done().await;
}

/// The grants of the guide, as they are printed there.
fn grants(database: &str, user: &str) -> Vec<String> {
    let guide = include_str!("../GUIDE.md");
    let block =
        guide.split("```sql\n").nth(1).expect("the guide has the grants").split("```").next().unwrap();
    let text =
        block.replace("app.", &format!("{database}.")).replace("'locks'@'%'", &format!("'{user}'@'%'"));
    text.split(';').map(str::trim).filter(|one| !one.is_empty()).map(str::to_owned).collect()
}

#[tokio::test]
async fn the_grants_of_the_guide_are_enough() {
    let Some(database) = included().await else { return };
    let name = database.config.login.database.clone();
    let user = format!("u{}", &name[5..]);
    let config = database.config.clone().login(&user, "secret");
    let mut root = operator(&database.config).await;
    let create = format!("CREATE USER '{user}'@'%' IDENTIFIED BY 'secret'");
    root.query(&create).await.unwrap();
    let nothing = format!("GRANT SELECT ON {name}.* TO '{user}'@'%'");
    root.query(&nothing).await.unwrap();
    let error = refused(config.clone()).await;
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    assert!(error.hint_text().unwrap().contains("lockline schema mysql"), "{error:?}");
    let revoke = nothing.replace("GRANT", "REVOKE").replace(" TO ", " FROM ");
    root.query(&revoke).await.unwrap();

    // The operator makes the tables, by connecting once; the application gets its rights.
    drop(open(database.config.clone()).await);
    for grant in grants(&name, &user).into_iter().filter(|grant| grant.starts_with("GRANT")) {
        root.query(&grant).await.unwrap();
    }
    let (mysql, _) = open(config).await;
    let (first, second) = (claim("a", Mode::Exclusive, LEASE), claim("a", Mode::Exclusive, LEASE));
    let ticket = mysql.join(&first, true).await.unwrap().ticket();
    assert!(!is_in(&mysql.join(&second, true).await.unwrap()));
    mysql.renew(&[place(&first, ticket)]).await.unwrap();
    assert_eq!(mysql.view(&Query::Prefix(String::new())).await.unwrap().len(), 1);
    assert!(mysql.evict(&first.name, ticket.unwrap(), true).await.unwrap());
    mysql.leave(&place(&second, None)).await.unwrap();
    root.query(&format!("DROP USER '{user}'@'%'")).await.unwrap();
    database.done().await;
}
