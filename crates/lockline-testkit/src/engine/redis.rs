//! Redis: one server, other kinds of servers, and quorums.

use std::sync::Arc;

use lockline::EngineUrl;
use lockline::driver::Driver;
use lockline::drivers::redis::{Redis, RedisConfig};
use lockline::drivers::redlock::{Redlock, RedlockConfig};

use super::{Engine, server_of, with_option};

/// A name space of its own on the Redis server of this run.
///
/// # Panics
/// If this run includes no Redis, or its address makes no sense.
pub fn redis() -> Engine {
    redis_with(&format!("space=test-{:016x}", fastrand::u64(..)))
}

/// A name space of its own on the same server, where locks are stored as other clients store theirs.
///
/// # Panics
/// As [`redis()`].
pub fn redis_layout(layout: &str) -> Engine {
    redis_with(&format!("layout={layout}&space=test-{:016x}:", fastrand::u64(..)))
}

fn redis_with(options: &str) -> Engine {
    let (engine, server) = on_redis("redis", options);
    let space = options.split("space=").last().unwrap_or_default().to_owned();
    let keys = Arc::new(RedisKeys { server, space });
    let to_forget = keys.clone();
    engine.forgets(move || to_forget.delete().expect("the keys are deleted")).keeps(CleanedUp(keys))
}

/// The same on other kinds of Redis servers. They end with the run, and what tests leave there with them.
///
/// # Panics
/// If this run does not include it, or its address makes no sense.
pub fn redis_kind(name: &'static str) -> Engine {
    on_redis(name, &format!("space=test-{:016x}", fastrand::u64(..))).0
}

/// The engine, and the address of its servers.
fn on_redis(name: &'static str, options: &str) -> (Engine, String) {
    let server = server_of(name);
    let url = with_option(&server, options);
    let config = EngineUrl::parse(&url).and_then(RedisConfig::from_url).expect("the address makes sense");
    let open = move |bells| {
        let config = config.clone();
        async move { Ok(Arc::new(Redis::connect(config, bells).await?) as Arc<dyn Driver>) }
    };
    (Engine::new(name, url, open), server)
}

/// A name space of its own on the quorum of this run that is called `name`.
///
/// # Panics
/// If this run includes no such quorum, or its address makes no sense.
pub fn redlock(name: &'static str) -> Engine {
    redlock_with(name, &format!("space=test-{:016x}", fastrand::u64(..)))
}

/// The same, where locks are stored as other clients store theirs.
///
/// # Panics
/// As [`redlock`].
pub fn redlock_layout(name: &'static str, layout: &str) -> Engine {
    redlock_with(name, &format!("layout={layout}&space=test-{:016x}:", fastrand::u64(..)))
}

fn redlock_with(name: &'static str, options: &str) -> Engine {
    let servers = server_of(name);
    let space = options.split("space=").last().unwrap_or_default().to_owned();
    let url = with_option(&servers, options);
    let parsed = EngineUrl::parse(&url).expect("the address makes sense");
    let config = RedlockConfig::from_url(parsed.clone()).expect("the address makes sense");
    let open = move |bells| {
        let config = config.clone();
        async move { Ok(Arc::new(Redlock::connect(config, bells).await?) as Arc<dyn Driver>) }
    };
    let keys =
        |host: &String| Arc::new(RedisKeys { server: format!("redis://{host}"), space: space.clone() });
    let keys: Vec<_> = parsed.hosts().iter().map(keys).collect();
    let to_forget = keys.clone();
    Engine::new(name, url, open)
        .without_permits()
        .forgets(move || to_forget.iter().for_each(|keys| keys.delete().expect("the keys are deleted")))
        .keeps(keys.into_iter().map(CleanedUp).collect::<Vec<_>>())
}

/// All keys of one name space.
struct RedisKeys {
    server: String,
    space: String,
}

impl RedisKeys {
    /// Deletes them, all at once.
    fn delete(&self) -> redis::RedisResult<()> {
        const DELETE: &str =
            "for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('DEL', key) end";
        // Its options are ours, and nothing to this client.
        let server = self.server.split('?').next().unwrap_or_default();
        let mut connection = redis::Client::open(server)?.get_connection()?;
        redis::cmd("EVAL").arg(DELETE).arg(0).arg(format!("*{}*", self.space)).query(&mut connection)
    }
}

/// Leaves the server as it was found; one that is gone needs no cleaning.
struct CleanedUp(Arc<RedisKeys>);

impl Drop for CleanedUp {
    fn drop(&mut self) {
        let _ = self.0.delete();
    }
}
