//! Which server it is, whether it can be trusted with locks, and what it may have forgotten.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::RedisResult;
use redis::aio::ConnectionLike;

use super::config::{MAX_LEASE, RedisConfig, RestartGuard, UNSAID_BEFORE};
use super::error::explain;
use super::met::Met;
use super::scripts::{Loaded, texts};
use crate::error::{Error, ErrorKind, Result};
use crate::line::{Shut, ShutReason};
use crate::pause::about;
use crate::time::{BootClock, Time};

/// The oldest version whose commands the scripts use: `SET … GET` and `ZADD … GT`.
const OLDEST: (u32, u32) = (6, 2);

/// How long a server that still reads its data is waited for: less than an attempt to connect may take.
const LOADED_WITHIN: Duration = Duration::from_secs(3);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// When an append-only file is written: an option, and here a key beside those of `INFO`.
const APPENDFSYNC: &str = "appendfsync";

/// One life of a server as a primary: from its start, or from its promotion, to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Incarnation {
    pub(super) life: String,
    pub(super) guard: Option<Guard>,
}

/// Until when nobody gets in, on the server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Guard {
    pub(super) ends_us: u64,
    pub(super) length_us: u64,
    /// What people are told of it; nothing where a test tells the server's time.
    pub(super) told: Option<Told>,
}

/// A guard on this process's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told {
    ends: Time,
    reason: ShutReason,
    began: Option<Time>,
}

impl Guard {
    /// The guard as it is now; nothing when it is over.
    pub(super) fn shut(&self) -> Option<Shut> {
        let (told, now) = (self.told?, BootClock.now());
        let rest = Some(told.ends.since(now)).filter(|rest| !rest.is_zero())?;
        Some(Shut::new(rest, told.reason).since(told.began.map(|began| now.since(began))))
    }
}

/// What `INFO` says.
#[derive(Debug)]
pub(super) struct Info(HashMap<String, String>);

impl Info {
    pub(super) fn parse(text: &str) -> Info {
        let pair = |line: &str| line.split_once(':').map(|(key, value)| (key.to_owned(), value.to_owned()));
        Info(text.lines().filter_map(pair).collect())
    }

    fn get(&self, key: &str) -> &str {
        self.0.get(key).map_or("", String::as_str)
    }

    pub(super) fn run_id(&self) -> &str {
        self.get("run_id")
    }

    /// Names one life of one server as a primary. The same server may be promoted twice, from different places of what it
    /// had copied by then.
    pub(super) fn life(&self) -> String {
        format!("{}/{}", self.run_id(), self.get("second_repl_offset"))
    }

    /// Whether it was a replica before: then it may lack what its former primary answered last.
    fn was_promoted(&self) -> bool {
        !matches!(self.get("second_repl_offset"), "-1" | "")
    }

    /// Whether it still reads its data. Meanwhile it says that it has no append-only file.
    fn is_loading(&self) -> bool {
        self.get("loading") == "1"
    }

    /// How many replicas follow it now.
    pub(super) fn replicas(&self) -> u32 {
        self.get("connected_slaves").parse().unwrap_or(0)
    }

    /// How many of them have all that it had when they came: the others are not promoted.
    pub(super) fn online_replicas(&self) -> u32 {
        let is_replica = |key: &str| {
            key.strip_prefix("slave")
                .is_some_and(|n| !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let online = self
            .0
            .iter()
            .filter(|(key, value)| is_replica(key) && value.split(',').any(|part| part == "state=online"));
        u32::try_from(online.count()).unwrap_or(u32::MAX)
    }

    /// What kind of server it is. Valkey has another word for it.
    fn mode(&self) -> &str {
        match self.get("redis_mode") {
            "" => self.get("server_mode"),
            mode => mode,
        }
    }

    /// Whether what it answered was on disk before, and is read again when it is started again. With `everysec`, the usual
    /// setting, Redis answers for up to two seconds before it writes while the disk is slow, and also a server that merely crashed
    /// lacks that; with `no` one that lost its power does.
    pub(super) fn keeps_its_data(&self) -> bool {
        self.has_append_only_file() && self.get(APPENDFSYNC) == "always"
    }

    /// The same, of all that it has answered: an append-only file that was switched on is none until all is written to it once.
    fn has_written_all(&self) -> bool {
        let is_none = |key| matches!(self.get(key), "0" | "");
        self.keeps_its_data() && is_none("aof_rewrite_in_progress") && is_none("aof_rewrite_scheduled")
    }

    fn has_append_only_file(&self) -> bool {
        self.get("aof_enabled") == "1"
    }

    /// Refuses a server that locks cannot be trusted to. `node` tells that it is to be one of a cluster; `passing` that a
    /// replica will be a primary soon, or is about to be replaced by one.
    pub(super) fn check(
        &self,
        config: &RedisConfig,
        node: bool,
        passing: bool,
        address: &Arc<str>,
    ) -> Result<()> {
        let mode = self.mode();
        let (kind, message, hint) = if self.version() < OLDEST {
            let version = self.get("redis_version");
            (
                ErrorKind::Unsupported,
                format!("the server has version {version:?}, which is too old"),
                "use Redis 6.2 or later",
            )
        } else if self.is_loading() {
            (
                ErrorKind::Unavailable,
                "the server is still reading its data".to_owned(),
                "try again when it has read it",
            )
        } else if mode == "sentinel" {
            (
                ErrorKind::Unsupported,
                "this is a Sentinel, not a server that keeps data".to_owned(),
                "write redis-sentinel://host,host/NAME",
            )
        } else if mode == "cluster" && !node {
            (
                ErrorKind::Unsupported,
                "the server is a node of a cluster".to_owned(),
                "write redis-cluster://host,host",
            )
        } else if mode != "cluster" && node {
            (
                ErrorKind::Unsupported,
                "the server is not a node of a cluster".to_owned(),
                "write redis://host for one server",
            )
        } else if self.get("role") == "slave" {
            (
                if passing { ErrorKind::Unavailable } else { ErrorKind::Unsafe },
                "the server is a replica: it would refuse every claim".to_owned(),
                "name the primary; or the Sentinels, who know which it is",
            )
        } else if !config.allow_eviction && !matches!(self.get("maxmemory_policy"), "noeviction" | "") {
            let policy = self.get("maxmemory_policy");
            (
                ErrorKind::Unsafe,
                format!(
                    "the server removes keys when its memory is full (maxmemory-policy {policy}): a lock could vanish"
                ),
                "set maxmemory-policy noeviction, use another server for locks, or accept it with eviction=allow",
            )
        } else {
            return Ok(());
        };
        Err(Error::new(kind, "connect", message).hint(hint).at(address))
    }

    fn version(&self) -> (u32, u32) {
        let mut parts = self.get("redis_version").split('.').map(|part| part.parse().unwrap_or(0));
        (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
    }

    /// Why its clients guard it, whoever of them decided that, and for how long it has been up if that is why.
    fn reason(&self, length_us: u64) -> (ShutReason, Option<Duration>) {
        let up = Duration::from_secs(self.get("uptime_in_seconds").parse().unwrap_or(0));
        if self.was_promoted() {
            (ShutReason::TookOver, None)
        } else if micros(up) <= length_us {
            (ShutReason::Restarted, Some(up))
        } else {
            (ShutReason::Replaced, None)
        }
    }

    /// The guard that a life of a server needs that nobody has met before, at `now_us` of its clock, and why. `before` is
    /// the server that was known here; `last` the life that left its data behind.
    fn guard(
        &self,
        config: &RedisConfig,
        now_us: u64,
        before: Option<&str>,
        last: Option<Met<'_>>,
    ) -> Option<(Guard, &'static str)> {
        let length_us = micros(config.guard_length());
        let uptime: u64 = self.get("uptime_in_seconds").parse().unwrap_or(0);
        let up_us = certainly_up_us(uptime, now_us);
        let long_up = up_us >= length_us;
        let another = before.is_some_and(|before| before != self.run_id());
        let has_all = self.keeps_its_data() && last.is_some_and(|last| last.writes_first);
        let (ends_us, why) = if config.restart_guard == RestartGuard::Off {
            return None;
        } else if self.was_promoted() {
            // Nobody can tell when: its uptime is that of a replica.
            (now_us + length_us, "a replica became the primary and may lack locks")
        } else if long_up && another {
            (now_us + length_us, "another server took the place of the one that was known")
        } else if long_up || (config.restart_guard != RestartGuard::Always && has_all) {
            return None;
        } else {
            let why = "the server was started a short while ago and may have forgotten locks";
            (now_us + length_us - up_us, why)
        };
        Some((Guard { ends_us, length_us, told: None }, why))
    }
}

/// How long a server has certainly been up that said so many seconds, at `now_us` of its clock. It keeps the second of its clock in which
/// it was started, and says how many whole seconds lie between that one and the present one. So it was started before that second
/// ended, and no lease of its former life was granted later. Its clock must be read after it was asked: before, a second could have
/// begun in between, which would be counted twice.
fn certainly_up_us(uptime: u64, now_us: u64) -> u64 {
    uptime.saturating_mul(1_000_000).saturating_add(now_us % 1_000_000).saturating_sub(1_000_000)
}

/// Asks a server what it is. One that still reads its data, which says wrong things about itself, is waited for, for a while.
pub(super) async fn info(connection: &mut impl ConnectionLike) -> RedisResult<Info> {
    let start = Instant::now();
    let mut info = loop {
        let text: String = redis::cmd("INFO").query_async(connection).await?;
        let info = Info::parse(&text);
        if !info.is_loading() || start.elapsed() > LOADED_WITHIN {
            break info;
        }
        tokio::time::sleep(about(LOOK_AGAIN)).await;
    };
    if info.has_append_only_file() {
        // Whoever may not ask is not told that the server keeps everything.
        let asked: RedisResult<HashMap<String, String>> =
            redis::cmd("CONFIG").arg("GET").arg(APPENDFSYNC).query_async(connection).await;
        match asked {
            Ok(says) => info.0.extend(says),
            Err(e) if e.is_io_error() => return Err(e),
            Err(e) => {
                tracing::debug!(error = %e, "the server does not say when it writes its append-only file")
            }
        }
    }
    Ok(info)
}

/// Decides whether nobody may get in yet. Who first meets a life of a server decides for all, and writes it down in this
/// key, which replicas copy: they will find that it speaks of another life than theirs. Gives that record, too.
///
/// Refuses to go on if the record says that others guard for another time.
pub(super) async fn decide(
    connection: &mut impl ConnectionLike,
    config: &RedisConfig,
    info: &Info,
    key: &str,
    before: Option<&str>,
    address: &Arc<str>,
) -> Result<(Incarnation, Option<String>)> {
    let life = info.life();
    #[cfg(test)]
    if let Some((ends_us, length_us)) = config.guard {
        return Ok((Incarnation { life, guard: Some(Guard { ends_us, length_us, told: None }) }, None));
    }
    if config.restart_guard == RestartGuard::Off {
        return Ok((Incarnation { life, guard: None }, None));
    }
    let fail = |e: redis::RedisError| explain("connect", address, &e, false);
    let (seconds, rest): (u64, u64) = redis::cmd("TIME").query_async(connection).await.map_err(fail)?;
    // Read after the answer came: what is counted from it ends a little later than on the server.
    let (now_us, now) = (seconds * 1_000_000 + rest, BootClock.now());
    let written: Option<String> = redis::cmd("GET").arg(key).query_async(connection).await.map_err(fail)?;
    let met = written.as_deref().and_then(Met::parse);
    let guards_us = micros(config.guard_length());
    // Whoever wrote a record without a length guarded for what was the default then, or for longer.
    if let Some(others_us) = met.map(|met| met.guards_us.unwrap_or(guards_us.max(micros(UNSAID_BEFORE))))
        && others_us != guards_us
    {
        return Err(guards_differ(others_us, guards_us, key, address));
    }
    let (decided, is_new) = match met {
        Some(met) if met.life == life => {
            // It was told to write later; or we may not ask, and so cannot vouch for it.
            let writes_first = met.writes_first && info.keeps_its_data();
            (Met { writes_first, guards_us: Some(guards_us), ..met }, false)
        }
        last => {
            let guard = info.guard(config, now_us, before, last);
            if let Some((_, why)) = &guard {
                tracing::warn!("restart guard: {why}");
            }
            // What a life before this one had forgotten, this one does not know either, even if it has all that the other had.
            let of_last = last.map_or(0, |last| last.ends_us.min(now_us + guards_us));
            let ends_us = guard.map_or(0, |(guard, _)| guard.ends_us).max(of_last);
            let writes_first = info.has_written_all();
            (Met { life: &life, ends_us, writes_first, guards_us: Some(guards_us) }, true)
        }
    };
    let (ends_us, record) = (decided.ends_us, Some(decided.text()));
    if is_new || met != Some(decided) {
        decided.write(connection, key).await.map_err(fail)?;
    }
    if ends_us <= now_us {
        return Ok((Incarnation { life, guard: None }, record));
    }
    let rest = Duration::from_millis((ends_us - now_us) / 1000);
    tracing::warn!(
        rest = %crate::words::told(rest),
        "restart guard: nobody gets a lock until every lease from before has ended"
    );
    let (reason, up) = info.reason(guards_us);
    // A little more than that: the clocks may go at different rates.
    let ends = now + rest + rest / 1000 + Duration::from_millis(2);
    let told = Some(Told { ends, reason, began: up.map(|up| now.minus(up)) });
    Ok((Incarnation { life, guard: Some(Guard { ends_us, length_us: guards_us, told }) }, record))
}

/// After a restart that forgets, whoever comes first guards for as long as it thinks right: if some guard for less, somebody could
/// get in while the lease of one who guards for more goes on.
fn guards_differ(others_us: u64, ours_us: u64, key: &str, address: &Arc<str>) -> Error {
    let [others, ours] = [others_us, ours_us].map(|us| crate::words::told(Duration::from_micros(us)));
    let message = format!(
        "this client would guard the locks for {ours} after a restart, and the others here do for {others}"
    );
    // Two defaults: it is enough to tell those who were upgraded, and to forget the old one when nobody has it.
    let is_older = others_us == micros(UNSAID_BEFORE) && ours_us == micros(MAX_LEASE);
    let same = if is_older {
        "an older Lockline guards for that by default: say max_lease=60s here while somebody has it"
    } else {
        "say the same max_lease= and restart_guard= everywhere"
    };
    let hint = format!("{same}; when nobody has had the old ones for {others}: DEL {key} on the server");
    Error::new(ErrorKind::Invalid, "connect", message).hint(hint).at(address)
}

/// Makes the scripts of an incarnation known to the server.
pub(super) async fn load(
    connection: &mut impl ConnectionLike,
    config: &RedisConfig,
    incarnation: Incarnation,
) -> RedisResult<Loaded> {
    #[cfg(test)]
    let test_clock = config.clock.is_some();
    #[cfg(not(test))]
    let test_clock = false;
    let mut all = redis::pipe();
    for text in texts(&incarnation, config, test_clock) {
        all.cmd("SCRIPT").arg("LOAD").arg(text);
    }
    let shas = all.query_async(connection).await?;
    Ok(Loaded { incarnation, shas })
}

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(lines: &str) -> Info {
        Info::parse(&format!(
            "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nrun_id:me\r\nrole:master\r\nmaxmemory_policy:noeviction\r\n{lines}"
        ))
    }

    #[test]
    fn servers_that_are_refused() {
        let address: Arc<str> = "redis://h".into();
        let config = RedisConfig::new("h", 1);
        let check = |lines: &str| info(lines).check(&config, false, false, &address);
        assert!(check("").is_ok());
        for (lines, kind) in [
            ("loading:1\r\nrole:slave", ErrorKind::Unavailable),
            ("redis_version:6.0.16", ErrorKind::Unsupported),
            ("redis_version:5.0.1", ErrorKind::Unsupported),
            ("redis_mode:sentinel", ErrorKind::Unsupported),
            ("redis_mode:cluster", ErrorKind::Unsupported),
            ("role:slave", ErrorKind::Unsafe),
            ("maxmemory_policy:allkeys-lru", ErrorKind::Unsafe),
        ] {
            assert_eq!(check(lines).unwrap_err().kind(), kind, "{lines}");
        }
        assert!(info("redis_mode:cluster").check(&config, true, false, &address).is_ok());
        assert!(info("").check(&config, true, false, &address).is_err());
        let soon = info("role:slave").check(&config, false, true, &address).unwrap_err();
        assert_eq!(soon.kind(), ErrorKind::Unavailable);
        let allowed = config.clone().allow_eviction(true);
        assert!(info("maxmemory_policy:volatile-lru").check(&allowed, false, false, &address).is_ok());
    }

    #[test]
    fn a_server_of_valkey_says_what_it_is_in_its_own_word() {
        let valkey = |mode: &str| {
            Info::parse(&format!(
                "server_name:valkey\r\nvalkey_version:8.1.1\r\nredis_version:7.2.4\r\nserver_mode:{mode}\r\nrole:master"
            ))
        };
        let (config, address): (_, Arc<str>) = (RedisConfig::new("h", 1), "redis://h".into());
        let check = |mode, node| valkey(mode).check(&config, node, false, &address).map_err(|e| e.kind());
        assert_eq!(check("standalone", false), Ok(()));
        assert_eq!(check("cluster", true), Ok(()));
        for (mode, node) in [("cluster", false), ("sentinel", false), ("standalone", true)] {
            assert_eq!(check(mode, node), Err(ErrorKind::Unsupported), "{mode}");
        }
    }

    #[test]
    fn replicas_count_when_they_are_online() {
        let lines = "connected_slaves:3\r\nslave0:ip=a,port=1,state=online,offset=5,lag=0\r\n\
            slave1:ip=b,port=2,state=wait_bgsave,offset=0,lag=0\r\nslave10:ip=c,port=3,state=online,offset=1,lag=1\r\n\
            slave_read_only:state=online";
        assert_eq!((info(lines).replicas(), info(lines).online_replicas()), (3, 2));
        assert_eq!(info("").online_replicas(), 0);
    }

    #[test]
    fn records_of_an_older_version_are_read_and_the_other_way_round() {
        let old = Met::parse("me/-1 17 writes-first").unwrap();
        assert_eq!((old.ends_us, old.writes_first, old.guards_us), (17, true, None));
        let new = Met { guards_us: Some(5), writes_first: false, ..old };
        assert_eq!(Met::parse(&new.text()), Some(new));
        assert_eq!(Met::parse(&old.text()), Some(old));
        // As the older version reads it.
        assert_eq!(new.text().split(' ').take(3).collect::<Vec<_>>(), ["me/-1", "17", "-"]);
    }

    #[test]
    fn nobody_guards_for_less_than_others_may_have_leases_for() {
        let length = |config: RedisConfig| config.guard_length().as_secs();
        let config = || RedisConfig::new("h", 1);
        assert_eq!(config().guard_length(), crate::builder::DEFAULT_LEASE, "a newcomer waits no longer");
        assert_eq!(length(config().max_lease(Duration::from_secs(2))), 10);
        assert_eq!(length(config().max_lease(Duration::from_secs(300))), 300);
        let short = RestartGuard::For(Duration::from_secs(5));
        assert_eq!(length(config().max_lease(Duration::from_secs(2)).restart_guard(short)), 5);
        assert!(config().restart_guard(short).check().is_err(), "the usual leases would outlast it");
    }

    #[test]
    fn who_is_guarded_and_for_how_long() {
        let config = RedisConfig::new("h", 1).max_lease(Duration::from_secs(60));
        let minute = 60_000_000;
        let ends = |lines: &str, before, config: &RedisConfig| {
            let last = Met::parse("last 0 writes-first");
            let guard = info(lines).guard(config, 1_000_000_000, before, last);
            guard.map(|(guard, _)| guard.ends_us - 1_000_000_000)
        };
        assert_eq!(ends("uptime_in_seconds:0", None, &config), Some(minute));
        assert_eq!(ends("uptime_in_seconds:11", Some("me"), &config), Some(minute - 10_000_000));
        // It was started before its first second ended: that is known to the microsecond.
        assert_eq!(
            [(0, 0), (0, 999_999), (1, 0), (1, 300_000), (2, 0)].map(|(up, now)| certainly_up_us(up, now)),
            [0, 0, 0, 300_000, 1_000_000]
        );
        assert_eq!(ends("uptime_in_seconds:61", None, &config), None);
        assert_eq!(ends("uptime_in_seconds:61", Some("me"), &config), None);
        assert_eq!(ends("uptime_in_seconds:61", Some("other"), &config), Some(minute));
        let kept = "uptime_in_seconds:1\r\naof_enabled:1\r\nappendfsync:always";
        assert_eq!(ends(kept, Some("other"), &config), None);
        for last in [None, Met::parse("last 0"), Met::parse("last 0 ")] {
            let guard = info(kept).guard(&config, 1_000_000_000, None, last);
            assert!(guard.is_some(), "it has all that was left behind, which was not all");
        }
        for sooner in ["aof_enabled:1", "aof_enabled:1\r\nappendfsync:everysec", "appendfsync:always"] {
            assert_eq!(
                ends(&format!("uptime_in_seconds:0\r\n{sooner}"), None, &config),
                Some(minute),
                "{sooner}"
            );
        }
        assert_eq!(ends("uptime_in_seconds:99\r\naof_enabled:1", Some("other"), &config), Some(minute));
        let promoted = "uptime_in_seconds:99\r\naof_enabled:1\r\nsecond_repl_offset:17";
        assert_eq!(ends(promoted, None, &config), Some(minute));
        assert_eq!(ends("uptime_in_seconds:99\r\nsecond_repl_offset:-1", None, &config), None);
        assert_ne!(info(promoted).life(), info("second_repl_offset:18").life());
        let always = config.clone().restart_guard(RestartGuard::Always);
        assert_eq!(ends(kept, None, &always), Some(minute));
        let off = config.restart_guard(RestartGuard::Off);
        assert_eq!(ends("uptime_in_seconds:1", Some("other"), &off), None);
    }

    #[test]
    fn a_file_that_is_being_made_is_not_complete() {
        let kept = "aof_enabled:1\r\nappendfsync:always\r\naof_rewrite_scheduled:0";
        assert!(info(kept).has_written_all());
        for busy in ["aof_rewrite_in_progress:1", "aof_rewrite_scheduled:1"] {
            let says = info(&format!("{kept}\r\n{busy}"));
            assert!(says.keeps_its_data() && !says.has_written_all(), "{busy}");
        }
    }

    #[test]
    fn broken_infos_are_refused_or_understood() {
        let examples = [
            "redis_version:7.2.4\r\nrun_id:abc\r\nredis_mode:standalone\r\nrole:master\r\nsecond_repl_offset:-1",
            "redis_version:6.2\nrole:slave\nconnected_slaves:2\naof_enabled:1\nmaxmemory_policy:noeviction",
        ];
        let address: Arc<str> = "redis://h".into();
        crate::hostile::texts(&["9f1c/-1 1794933239035845 writes-first", "9f1c/17 0 "], |text| {
            let _ = Met::parse(text);
        });
        crate::hostile::texts(&examples, |text| {
            let info = Info::parse(text);
            let _ = info.check(&RedisConfig::new("h", 1), false, false, &address);
            let _ =
                (info.life(), info.was_promoted(), info.replicas(), info.keeps_its_data(), info.version());
        });
    }
}
