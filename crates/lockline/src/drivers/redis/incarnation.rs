//! Which server it is, whether it can be trusted with locks, and what it may have forgotten.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::config::{RedisConfig, RestartGuard};
use crate::error::{Error, ErrorKind, Result};

/// The oldest version whose commands the scripts use: `SET … GET` and `ZADD … GT`.
const OLDEST: (u32, u32) = (6, 2);

/// One life of a server, from start to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Incarnation {
    pub(super) run_id: String,
    pub(super) guard: Option<Guard>,
}

/// Until when nobody gets in, on the server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Guard {
    pub(super) ends_us: u64,
    pub(super) length_us: u64,
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

    /// Whether what it answered is on disk, or soon will be, and is read again when it is started again.
    pub(super) fn keeps_its_data(&self) -> bool {
        self.get("aof_enabled") == "1"
    }

    /// Refuses a server that locks cannot be trusted to.
    pub(super) fn check(&self, config: &RedisConfig, address: &Arc<str>) -> Result<()> {
        let (kind, message, hint) = if self.version() < OLDEST {
            let version = self.get("redis_version");
            (
                ErrorKind::Unsupported,
                format!("the server has version {version:?}, which is too old"),
                "use Redis 6.2 or later",
            )
        } else if self.get("redis_mode") == "sentinel" {
            (
                ErrorKind::Unsupported,
                "this is a Sentinel, not a server that keeps data".to_owned(),
                "name the primary that it watches",
            )
        } else if self.get("redis_mode") == "cluster" {
            (
                ErrorKind::Unsupported,
                "the server is a node of a cluster".to_owned(),
                "this version knows one server",
            )
        } else if self.get("role") == "slave" {
            (
                ErrorKind::Unsafe,
                "the server is a replica: it would refuse every claim".to_owned(),
                "name the primary",
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

    /// The guard that this incarnation needs at `now_us` of its clock, and why. `before` is the incarnation that was
    /// known at this address.
    pub(super) fn guard(
        &self,
        config: &RedisConfig,
        now_us: u64,
        before: Option<&str>,
    ) -> Option<(Guard, &'static str)> {
        let length_us = micros(config.max_lease);
        let uptime: u64 = self.get("uptime_in_seconds").parse().unwrap_or(0);
        // The server counts whole seconds of a cached clock: it may have been up a second less.
        let up_us = uptime.saturating_sub(1) * 1_000_000;
        let another = before.is_some_and(|before| before != self.run_id());
        let (ends_us, why) = match config.restart_guard {
            RestartGuard::Off => return None,
            RestartGuard::On | RestartGuard::Always if up_us >= length_us => {
                if !another {
                    return None;
                }
                // It has been up for long, and yet is not the one that was here before: another server took its place.
                (now_us + length_us, "another server took the place of the one that was known")
            }
            RestartGuard::On if self.keeps_its_data() => return None,
            _ => (
                now_us + length_us - up_us,
                "the server was started a short while ago and may have forgotten locks",
            ),
        };
        Some((Guard { ends_us, length_us }, why))
    }
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
        assert!(info("").check(&config, &address).is_ok());
        for (lines, kind) in [
            ("redis_version:6.0.16", ErrorKind::Unsupported),
            ("redis_version:5.0.1", ErrorKind::Unsupported),
            ("redis_mode:sentinel", ErrorKind::Unsupported),
            ("redis_mode:cluster", ErrorKind::Unsupported),
            ("role:slave", ErrorKind::Unsafe),
            ("maxmemory_policy:allkeys-lru", ErrorKind::Unsafe),
        ] {
            assert_eq!(info(lines).check(&config, &address).unwrap_err().kind(), kind, "{lines}");
        }
        let allowed = config.allow_eviction(true);
        assert!(info("maxmemory_policy:volatile-lru").check(&allowed, &address).is_ok());
    }

    #[test]
    fn who_is_guarded_and_for_how_long() {
        let config = RedisConfig::new("h", 1);
        let minute = 60_000_000;
        let ends = |lines: &str, before, config: &RedisConfig| {
            info(lines).guard(config, 1_000_000_000, before).map(|(guard, _)| guard.ends_us - 1_000_000_000)
        };
        assert_eq!(ends("uptime_in_seconds:0", None, &config), Some(minute));
        assert_eq!(ends("uptime_in_seconds:11", Some("me"), &config), Some(minute - 10_000_000));
        assert_eq!(ends("uptime_in_seconds:61", None, &config), None);
        assert_eq!(ends("uptime_in_seconds:61", Some("me"), &config), None);
        assert_eq!(ends("uptime_in_seconds:61", Some("other"), &config), Some(minute));
        assert_eq!(ends("uptime_in_seconds:1\r\naof_enabled:1", Some("other"), &config), None);
        assert_eq!(ends("uptime_in_seconds:99\r\naof_enabled:1", Some("other"), &config), Some(minute));
        let always = config.clone().restart_guard(RestartGuard::Always);
        assert_eq!(ends("uptime_in_seconds:1\r\naof_enabled:1", None, &always), Some(minute));
        let off = config.restart_guard(RestartGuard::Off);
        assert_eq!(ends("uptime_in_seconds:1", Some("other"), &off), None);
    }
}
