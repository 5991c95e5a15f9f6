//! One server that keeps locks in a format, and what it is asked about them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{PushInfo, Value};

use super::link::{Link, Script};
use super::{RedisFormat, format_of, millis};
use crate::driver::Verb;
use crate::drivers::foreign::{Ask, Eviction, Found, Holder, Seen, Store, ticket_of};
use crate::drivers::redis::answers::{number, text};
use crate::drivers::redis::config::RedisConfig;
use crate::drivers::redis::error::nonsense;
use crate::error::Result;
use crate::line::{ClaimId, ClaimView, Mode, Ticket};
use crate::name::Name;

/// A way to one server, and the format that it keeps locks in.
pub(in crate::drivers) struct Server {
    format: &'static dyn RedisFormat,
    space: String,
    link: Link,
}

impl Server {
    /// Connects, and refuses a server that locks cannot be trusted to. `hear` takes what the server pushes.
    pub(in crate::drivers) async fn open(
        config: &RedisConfig,
        hear: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<Server> {
        let format = format_of(config.layout);
        let link = Link::open(config, format.scripts(), hear).await?;
        Ok(Server { format, space: config.space.clone(), link })
    }

    /// As the scripts write it.
    fn found(&self, ask: &Ask, answer: &Value) -> Option<Found> {
        let Value::Array(parts) = answer else { return None };
        Some(match parts.as_slice() {
            [Value::Int(1), token] if self.format.fenced() => Found::In(Ticket::new(number(token)?)),
            [Value::Int(1), _] => Found::In(ticket_of(&self.format.mark(ask.id))),
            [Value::Int(2)] => Found::Evicted,
            [Value::Int(3)] => Found::Fair,
            [Value::Int(4)] => Found::NoLock,
            [Value::Int(0), Value::Int(-2)] => Found::Free,
            [Value::Int(0), Value::Int(rest)] => {
                Found::Busy(u64::try_from(*rest).ok().map(Duration::from_millis))
            }
            _ => return None,
        })
    }

    fn seen(&self, answer: &Value) -> Option<Seen> {
        let Value::Array(parts) = answer else { return None };
        let [stored, Value::Int(rest), token] = parts.as_slice() else { return None };
        let stored = text(stored)?;
        let Holder { named_by, who, evicted } = self.format.holder(stored)?;
        let view = ClaimView {
            ticket: if self.format.fenced() { Ticket::new(number(token)?) } else { ticket_of(&named_by) },
            mode: Mode::Exclusive,
            who,
            remaining: Duration::from_millis(u64::try_from(*rest).unwrap_or_default()),
            // Nobody wrote down since when.
            since: Duration::ZERO,
            held: None,
            evicted,
        };
        Some(Seen { stored: stored.to_owned(), view, has_end: *rest >= 0 })
    }

    async fn take_or_find(&self, ask: &Ask) -> Result<Found> {
        let asks = std::slice::from_ref(ask);
        let Some(set) = self.format.take(&ask.key, &ask.text, ask.lease) else {
            return Ok(self.run("join", Script::Acquire, asks).await?.remove(0));
        };
        if self.link.send("join", &set).await? == Value::Okay {
            return Ok(Found::In(ticket_of(&self.format.mark(ask.id))));
        }
        Ok(self.run("join", Script::Extend, asks).await?.remove(0))
    }

    async fn run(&self, operation: &'static str, script: Script, asks: &[Ask]) -> Result<Vec<Found>> {
        if asks.is_empty() {
            return Ok(Vec::new());
        }
        let (mut keys, mut args) = (Vec::new(), Vec::new());
        for ask in asks {
            keys.extend(self.format.keys(&ask.key));
            args.extend([
                self.format.mark(ask.id),
                millis(ask.lease).to_string(),
                ask.text.clone(),
                ask.known.clone(),
            ]);
        }
        let answers = self.link.run(operation, script, &keys, &args).await?;
        let found: Option<Vec<_>> =
            asks.iter().zip(&answers).map(|(ask, answer)| self.found(ask, answer)).collect();
        found.filter(|found| found.len() == asks.len()).ok_or_else(|| nonsense(operation, &self.link.address))
    }

    async fn let_go(&self, key: &str, id: ClaimId) -> Result<()> {
        let args = [self.format.mark(id), self.format.channel(key).unwrap_or_default()];
        self.link.run("leave", Script::Release, &self.format.keys(key), &args).await.map(drop)
    }

    /// The server is walked through, a little at a time.
    async fn walk(&self, prefix: &str) -> Result<Vec<Name>> {
        let mut names = Vec::new();
        let mut cursor: Vec<u8> = b"0".to_vec();
        let pattern = format!("{}*", escaped(&format!("{}{prefix}", self.space)));
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(&cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(1000);
            scan.arg("TYPE").arg(self.format.stored_as());
            let Value::Array(answer) = self.link.send("view", &scan).await? else { break };
            let [Value::BulkString(next), Value::Array(found)] = answer.as_slice() else { break };
            let keys = found.iter().filter_map(|key| text(key)?.strip_prefix(self.space.as_str()));
            names.extend(keys.filter_map(|name| Name::new(name).ok()));
            cursor.clone_from(next);
            if cursor == b"0" {
                return Ok(names);
            }
        }
        Err(nonsense("view", &self.link.address))
    }

    async fn see(&self, operation: &'static str, keys: &[String]) -> Result<Vec<Option<Seen>>> {
        let all: Vec<String> = keys.iter().flat_map(|key| self.format.keys(key)).collect();
        let answers = self.link.run(operation, Script::Look, &all, &[]).await?;
        if answers.len() != keys.len() {
            return Err(nonsense(operation, &self.link.address));
        }
        Ok(answers.iter().map(|answer| self.seen(answer)).collect())
    }

    async fn remove(&self, key: &str, stored: &str, at_once: bool) -> Result<Eviction> {
        let channel = self.format.channel(key).unwrap_or_default();
        let args = [stored.to_owned(), u8::from(at_once).to_string(), channel];
        let answer = self.link.run("evict", Script::Evict, &self.format.keys(key), &args).await?;
        match answer.as_slice() {
            [Value::Int(-1)] => Ok(Eviction::NoEnd),
            [Value::Int(1)] => Ok(Eviction::Done),
            [Value::Int(_)] => Ok(Eviction::NotThere),
            _ => Err(nonsense("evict", &self.link.address)),
        }
    }
}

impl Store for Server {
    fn address(&self) -> &Arc<str> {
        &self.link.address
    }

    fn keeps_its_data(&self) -> bool {
        self.link.keeps_its_data
    }

    fn take<'a>(&'a self, ask: &'a Ask) -> Verb<'a, Found> {
        Box::pin(self.take_or_find(ask))
    }

    fn acquire<'a>(&'a self, asks: &'a [Ask]) -> Verb<'a, Vec<Found>> {
        Box::pin(self.run("renew", Script::Acquire, asks))
    }

    fn extend<'a>(&'a self, operation: &'static str, asks: &'a [Ask]) -> Verb<'a, Vec<Found>> {
        Box::pin(self.run(operation, Script::Extend, asks))
    }

    fn release<'a>(&'a self, key: &'a str, id: ClaimId, _: Duration) -> Verb<'a, ()> {
        Box::pin(self.let_go(key, id))
    }

    fn look<'a>(&'a self, operation: &'static str, keys: &'a [String]) -> Verb<'a, Vec<Option<Seen>>> {
        Box::pin(self.see(operation, keys))
    }

    fn names<'a>(&'a self, prefix: &'a str) -> Verb<'a, Vec<Name>> {
        Box::pin(self.walk(prefix))
    }

    fn evict<'a>(&'a self, key: &'a str, stored: &'a str, at_once: bool) -> Verb<'a, Eviction> {
        Box::pin(self.remove(key, stored, at_once))
    }

    fn listen<'a>(&'a self, channel: &'a str) -> Verb<'a, bool> {
        Box::pin(self.link.listen(channel))
    }

    fn stop_listening<'a>(
        &'a self,
        channel: &'a str,
        needed: Box<dyn FnOnce() -> bool + Send + 'a>,
    ) -> Verb<'a, ()> {
        Box::pin(async move {
            self.link.stop_listening(channel, needed).await;
            Ok(())
        })
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("format", &self.format)
            .field("link", &self.link)
            .finish_non_exhaustive()
    }
}

/// A text as the server's patterns want it.
fn escaped(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for letter in text.chars() {
        if "*?[]\\^-".contains(letter) {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern
}
