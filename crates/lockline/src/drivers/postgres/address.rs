//! What an address says, what the client crate's own settings say, and how a configuration is shown as an address.

use std::path::PathBuf;
use std::time::Duration;

use super::config::{CONNECT_AT_LEAST, CONNECT_AT_MOST, Failover, Pooler, PostgresConfig, Tls};
use crate::drivers::relational::shared::Layout;
use crate::drivers::relational::{Login, host_and_port};
use crate::error::{Error, ErrorKind, Result};
use crate::url::EngineUrl;

const PORT: u16 = 5432;

impl PostgresConfig {
    /// What an address says; `lease=` and `prefix=`, which are the client's, must have been taken out of it.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for an address that makes no sense.
    pub fn from_url(mut url: EngineUrl) -> Result<PostgresConfig> {
        let hosts = hosts_of(&mut url)?;
        let login = login_of(&mut url, hosts.iter().all(|(host, _)| host.starts_with('/')))?;
        let mut config = PostgresConfig::on(hosts, login);
        config.application_name = url.take("application_name").unwrap_or(config.application_name);
        if let Some(text) = url.take("connect_timeout") {
            let seconds: u64 = text.parse().map_err(|_| bad("connect_timeout is a number of seconds"))?;
            // libpq says so, too: 0 is no limit. Here there is always one.
            config.connect_within = Duration::from_secs(if seconds == 0 { 60 } else { seconds });
        }
        config.layout = Layout::from_url(&mut url)?;
        if let Some(schema) = url.take("schema") {
            if config.layout.is_some() {
                return Err(bad("schema= is of Lockline's own tables").hint("write table=schema.name"));
            }
            config.schema = schema;
        }
        config.pooler = match url.take("pooler").as_deref() {
            None | Some("none" | "session") => Pooler::None,
            Some("transaction") => Pooler::Transaction,
            Some(_) => return Err(bad("pooler is none, session or transaction")),
        };
        let authority = url.take("sslrootcert").map(PathBuf::from);
        config.tls = match (url.take("sslmode").as_deref(), authority) {
            (None | Some("disable"), None) => Tls::Off,
            (Some("require" | "verify-full"), None) => Tls::System,
            (None | Some("require" | "verify-full"), Some(file)) => Tls::Authority(file),
            (Some("prefer" | "allow"), None) => Tls::Prefer,
            (Some("disable" | "prefer" | "allow"), Some(_)) => {
                return Err(bad("it has sslrootcert= and an sslmode= that checks no certificate")
                    .hint("say sslmode=verify-full"));
            }
            (Some(_), _) => {
                return Err(bad("sslmode is disable, prefer, require or verify-full").hint(
                    "require checks the certificate here, too; prefer, and allow, take what the server has and check nothing",
                ));
            }
        };
        if let Some(text) = url.take("connections") {
            config.connections = text.parse().map_err(|_| bad("connections is not a number"))?;
        }
        config.failover = match url.take("failover").as_deref() {
            None => Failover::None,
            Some("sync") => Failover::Synchronous,
            Some("async") => Failover::Asynchronous,
            Some(_) => return Err(bad("failover is sync or async")),
        };
        url.finish()?;
        Ok(config)
    }

    /// As people see it: no secret, no user.
    pub(super) fn address(&self) -> String {
        if let [(folder, port)] = self.hosts.as_slice()
            && folder.starts_with('/')
        {
            let port = if *port == PORT { String::new() } else { format!("&port={port}") };
            return format!("postgres:///{}?host={folder}{port}", self.login.database);
        }
        let host = |(host, port): &(String, u16)| {
            if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
        };
        let hosts: Vec<String> = self.hosts.iter().map(host).collect();
        format!("postgres://{}/{}", hosts.join(","), self.login.database)
    }
}

/// The servers of an address: before the path, or as libpq has it with `host=` and `port=`, which may name the folder of a
/// Unix socket.
fn hosts_of(url: &mut EngineUrl) -> Result<Vec<(String, u16)>> {
    let (host, port) = (url.take("host"), url.take("port"));
    let port = port.map_or(Ok(PORT), |port| port.parse());
    let port = port.map_err(|_| bad("its port is not a number from 1 to 65535"))?;
    let hosts = match host {
        Some(_) if !url.hosts().is_empty() => {
            return Err(bad("it names a host twice").hint("write it before the path, or as host="));
        }
        Some(host) => host.split(',').map(str::to_owned).collect(),
        None => url.hosts().to_vec(),
    };
    if hosts.is_empty() {
        return Err(bad("it names no host").hint(
            "write postgres://user:password@host/database, or postgres:///database?host=/run/postgresql for a Unix socket",
        ));
    }
    let one = |host: &String| {
        if host.starts_with('/') {
            return Ok((host.clone(), port));
        }
        // It was not looked at before the path.
        let host = if host.contains(':') && !host.contains('[') && host.parse::<std::net::Ipv6Addr>().is_ok()
        {
            format!("[{host}]")
        } else {
            host.clone()
        };
        crate::url::host_of(&host)?;
        host_and_port(&host, port)
    };
    hosts.iter().map(one).collect()
}

/// Who logs in, and where to. On a Unix socket the server knows who comes, so that a user need not be named; and without a
/// database it is the user's, as for psql.
fn login_of(url: &mut EngineUrl, local: bool) -> Result<Login> {
    let [user, database, password] = ["user", "dbname", "password"].map(|key| url.take(key));
    if !local && user.is_none() && database.is_none() {
        let login = Login::of(url)?;
        return Ok(Login { password: password.or(login.password), ..login });
    }
    let hint = "write postgres://user:password@host/database";
    let user =
        user.or_else(|| url.user().map(str::to_owned)).or_else(|| if local { own_name() } else { None });
    let user = user.ok_or_else(|| bad("it names no user").hint(hint))?;
    let path = Some(url.path().trim_matches('/').to_owned()).filter(|path| !path.is_empty());
    let database = database.or(path).or_else(|| local.then(|| user.clone()));
    let database = database.ok_or_else(|| bad("it names no database").hint(hint))?;
    Ok(Login { user, password: password.or_else(|| url.password().map(str::to_owned)), database })
}

/// What the operating system calls this process's user.
#[cfg(unix)]
pub(super) fn own_name() -> Option<String> {
    let uid = rustix::process::geteuid().as_raw().to_string();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let known = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid).then(|| name.to_owned())
    });
    known.or_else(|| std::env::var("USER").ok().filter(|name| !name.is_empty()))
}

#[cfg(not(unix))]
pub(super) fn own_name() -> Option<String> {
    None
}

/// As far as it says something that locks can use: hosts, ports, user, password, database, `application_name`,
/// `connect_timeout`, and how TLS is asked for (`Prefer` is the crate's default; what is required is checked here).
impl From<tokio_postgres::Config> for PostgresConfig {
    fn from(theirs: tokio_postgres::Config) -> PostgresConfig {
        use tokio_postgres::config::{Host, SslMode};
        let host = |host: &Host| match host {
            Host::Tcp(name) => name.clone(),
            #[cfg(unix)]
            Host::Unix(folder) => folder.to_string_lossy().into_owned(),
        };
        let ports = theirs.get_ports();
        let port = |index: usize| ports.get(index).or(ports.first()).copied().unwrap_or(PORT);
        let mut hosts: Vec<(String, u16)> =
            theirs.get_hosts().iter().enumerate().map(|(index, one)| (host(one), port(index))).collect();
        if hosts.is_empty() {
            hosts.extend(theirs.get_hostaddrs().iter().enumerate().map(|(n, ip)| (ip.to_string(), port(n))));
        }
        let user = theirs.get_user().map(str::to_owned).or_else(own_name).unwrap_or_default();
        let database = theirs.get_dbname().map_or_else(|| user.clone(), str::to_owned);
        let password = theirs.get_password().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let mut config = PostgresConfig::on(hosts, Login { user, password, database });
        config.tls = match theirs.get_ssl_mode() {
            SslMode::Disable => Tls::Off,
            SslMode::Prefer => Tls::Prefer,
            _ => Tls::System,
        };
        if let Some(name) = theirs.get_application_name() {
            config.application_name = name.to_owned();
        }
        if let Some(within) = theirs.get_connect_timeout() {
            config.connect_within = (*within).clamp(CONNECT_AT_LEAST, CONNECT_AT_MOST);
        }
        config
    }
}

pub(super) fn bad(problem: &'static str) -> Error {
    Error::new(ErrorKind::Invalid, "url", problem)
        .hint("it looks like postgres://user:password@host:5432/database?sslmode=verify-full")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Result<PostgresConfig> {
        PostgresConfig::from_url(EngineUrl::parse(text)?)
    }

    #[test]
    fn addresses() {
        let all = config(
            "postgres://me:c4nary@h:1,[::1]/db?schema=a&pooler=transaction&sslmode=verify-full&sslrootcert=/ca&connections=3&failover=sync",
        )
        .unwrap();
        assert_eq!(all.hosts, [("h".to_owned(), 1), ("::1".to_owned(), 5432)]);
        assert_eq!((all.schema.as_str(), all.pooler, all.connections), ("a", Pooler::Transaction, 3));
        assert_eq!(all.tls, Tls::Authority("/ca".into()));
        assert_eq!(all.address(), "postgres://h:1,[::1]:5432/db");
        assert!(!format!("{all:?} {}", all.address()).contains("c4nary"));
        assert_eq!(config("postgres://me@h/db?sslmode=require").unwrap().tls, Tls::System);
    }

    #[test]
    fn addresses_as_libpq_has_them() {
        let all = config(
            "postgresql://me@h/db?sslmode=prefer&application_name=nightly%20report&connect_timeout=3&port=7",
        )
        .unwrap();
        assert_eq!((all.tls, all.application_name.as_str()), (Tls::Prefer, "nightly report"));
        assert_eq!((all.connect_within, all.hosts), (Duration::from_secs(3), vec![("h".to_owned(), 7)]));
        let me = own_name().expect("this user has a name");
        for text in [
            "postgres:///db?host=/run/postgresql",
            "postgresql://%2Frun%2Fpostgresql/db",
            "postgres:///db?host=%2Frun%2Fpostgresql&port=5432",
        ] {
            let socket = config(text).unwrap();
            assert_eq!(socket.hosts, [("/run/postgresql".to_owned(), 5432)], "{text}");
            assert_eq!((&socket.login.user, socket.login.database.as_str()), (&me, "db"), "{text}");
            assert_eq!(socket.address(), "postgres:///db?host=/run/postgresql");
            assert!(socket.check().is_ok());
        }
        assert_eq!(config("postgres:///?host=/run/postgresql").unwrap().login.database, me);
        let query = config("postgres:///?host=h,i&user=me&dbname=db&password=c4nary").unwrap();
        assert_eq!((query.hosts.len(), query.login.user.as_str()), (2, "me"));
        assert!(!format!("{query:?} {}", query.address()).contains("c4nary"));
    }

    #[test]
    fn the_client_crates_own_settings_are_taken() {
        let theirs: tokio_postgres::Config =
            "host=a,/run/pg port=1,2 user=me password=c4nary dbname=db application_name=x connect_timeout=7"
                .parse()
                .unwrap();
        let ours = PostgresConfig::from(theirs);
        assert_eq!(ours.hosts, [("a".to_owned(), 1), ("/run/pg".to_owned(), 2)]);
        assert_eq!((ours.login.user.as_str(), ours.login.password.as_deref()), ("me", Some("c4nary")));
        assert_eq!((ours.login.database.as_str(), ours.application_name.as_str()), ("db", "x"));
        assert_eq!((ours.tls, ours.connect_within.as_secs()), (Tls::Prefer, 7));
    }

    #[test]
    fn what_is_said_of_a_failover() {
        let failover = |text: &str| config(text).unwrap().failover();
        assert_eq!(failover("postgres://me@h/db"), (Failover::None, 1));
        assert_eq!(failover("postgres://me@a,b/db"), (Failover::None, 2));
        assert_eq!(failover("postgres://me@a,b/db?failover=async"), (Failover::Asynchronous, 2));
        assert_eq!(failover("postgres://me@a/db?failover=sync"), (Failover::Synchronous, 1));
    }

    #[test]
    fn what_is_refused() {
        for text in [
            "postgres:///db",
            "postgres://h/db",
            "postgres://me@h",
            "postgres://me@h:x/db",
            "postgres://me@h/db?pooler=statement",
            "postgres://me@h/db?sslmode=maybe",
            "postgres://me@h/db?sslmode=prefer&sslrootcert=/ca",
            "postgres://me@h/db?host=i",
            "postgres:///db?host=half%5B",
            "postgres:///db?host=a%20b",
            "postgres://me@h/db?connect_timeout=soon",
            "postgres://me@h/db?port=x",
            "postgres://me@h/db?sslmode=disable&sslrootcert=/ca",
            "postgres://me@h/db?connections=many",
            "postgres://me@h/db?failover=maybe",
            "postgres://me@h/db?speed=fast",
            "postgres://me@h/db?layout=other",
            "postgres://me@h/db?layout=table&schema=a",
            "postgres://me@h/db?table=locks",
        ] {
            assert_eq!(config(text).unwrap_err().kind(), ErrorKind::Invalid, "{text}");
        }
        for text in [
            "postgres://me@h/db?schema=a%22b",
            "postgres://me@h/db?connections=9",
            "postgres:///db?host=/run/postgresql&sslmode=require",
            "postgres://me@h/db?connect_timeout=61",
        ] {
            assert_eq!(config(text).unwrap().check().unwrap_err().kind(), ErrorKind::Invalid, "{text}");
        }
    }

    #[test]
    fn broken_addresses_show_no_secret() {
        let examples = [
            "postgres://me:c4nary@h:1,[::1]/db?schema=a&pooler=transaction&sslmode=verify-full&sslrootcert=/ca&connections=3&failover=sync",
        ];
        crate::hostile::addresses(&examples, config);
    }
}
