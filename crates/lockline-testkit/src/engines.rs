//! Which engines a test run includes. Embedded ones always run; servers run when somebody has started them.
//!
//! `cargo xtask test` starts servers and says so in [`VARIABLE`]: a list such as `redis=redis://127.0.0.1:7001 etcd=…`. An
//! engine that is named there **must** work: if it cannot be reached, its tests fail. One that is not named is left out,
//! visibly: its tests count as ignored, and `tests/engines.rs` prints the list.

use std::collections::BTreeMap;

/// The environment variable that names servers and their addresses.
pub const VARIABLE: &str = "LOCKLINE_TEST_ENGINES";

/// The engines that need no server, in this build.
pub const EMBEDDED: &[&str] = &[
    "memory",
    #[cfg(feature = "sqlite")]
    "sqlite",
];

/// The engines that need a server, in this build. A driver that is added adds its name here, and its test file.
pub const SERVERS: &[&str] = &[
    #[cfg(feature = "redis")]
    "redis",
    #[cfg(feature = "redis")]
    "redis-tls",
    #[cfg(feature = "redis")]
    "redis-sentinel",
    #[cfg(feature = "redis")]
    "redis-cluster",
    #[cfg(feature = "redis")]
    "redis-replicas",
    #[cfg(feature = "redis")]
    "redlock",
    #[cfg(feature = "redis")]
    "redlock-3",
    #[cfg(feature = "zookeeper")]
    "zookeeper",
    #[cfg(feature = "zookeeper")]
    "zookeeper-ensemble",
    #[cfg(feature = "etcd")]
    "etcd",
    #[cfg(feature = "etcd")]
    "etcd-cluster",
    #[cfg(feature = "mysql")]
    "mysql",
    #[cfg(feature = "postgres")]
    "postgres",
    #[cfg(feature = "postgres")]
    "postgres-pooled",
    #[cfg(feature = "postgres")]
    "postgres-standby",
];

/// The servers that this run must include, by engine name.
///
/// # Panics
/// If the variable is not a list of `name=url`, or names an engine that nobody knows: a typing error must not look like a
/// run that passed.
pub fn required() -> BTreeMap<String, String> {
    parse(&std::env::var(VARIABLE).unwrap_or_default(), SERVERS)
}

/// The address of one server, if this run includes it.
pub fn required_url(name: &str) -> Option<String> {
    required().remove(name)
}

fn parse(list: &str, known: &[&str]) -> BTreeMap<String, String> {
    let mut required = BTreeMap::new();
    for entry in list.split_whitespace() {
        let Some((name, url)) = entry.split_once('=') else {
            panic!("{VARIABLE}: {entry:?} is not name=url")
        };
        assert!(
            known.contains(&name),
            "{VARIABLE}: no engine is called {name:?}; this build knows {known:?}"
        );
        required.insert(name.to_owned(), url.to_owned());
    }
    required
}

/// One line that says which engines a run includes and which it leaves out.
pub fn summary() -> String {
    let required = required();
    let run: Vec<&str> = EMBEDDED.iter().copied().chain(required.keys().map(String::as_str)).collect();
    let mut left_out: Vec<&str> =
        SERVERS.iter().copied().filter(|name| !required.contains_key(*name)).collect();
    if cfg!(not(feature = "sqlite")) {
        left_out.insert(0, "sqlite");
    }
    if cfg!(not(feature = "redis")) {
        left_out.push("redis");
    }
    if cfg!(not(feature = "zookeeper")) {
        left_out.push("zookeeper");
    }
    if cfg!(not(feature = "etcd")) {
        left_out.extend(["etcd", "etcd-cluster"]);
    }
    if cfg!(not(feature = "mysql")) {
        left_out.push("mysql");
    }
    if cfg!(not(feature = "postgres")) {
        left_out.push("postgres");
    }
    let left_out = if left_out.is_empty() { "none".to_owned() } else { left_out.join(", ") };
    format!("engines run: {}; left out: {left_out} (`cargo xtask test` starts the servers)", run.join(", "))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_list_of_servers_is_read() {
        let required = parse("redis=redis://h:1 etcd=etcd://a:1,b:2?x=y ", &["redis", "etcd"]);
        assert_eq!(required["redis"], "redis://h:1");
        assert_eq!(required["etcd"], "etcd://a:1,b:2?x=y");
        assert!(parse("", &[]).is_empty());
    }

    #[test]
    #[should_panic(expected = "no engine is called \"reddis\"")]
    fn a_misspelt_server_is_not_a_run_that_passed() {
        parse("reddis=redis://h:1", &["redis"]);
    }
}
