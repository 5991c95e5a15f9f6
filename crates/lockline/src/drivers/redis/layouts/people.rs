//! What people ask: who holds what, and to break a lock.

use std::time::Duration;

use redis::Value;

use super::link::Script;
use super::{Foreign, Holder, ticket_of};
use crate::driver::Query;
use crate::drivers::redis::error::nonsense;
use crate::drivers::redis::verbs::{number, text};
use crate::error::{ErrorKind, Result};
use crate::line::{ClaimView, LineView, Mode, Ticket};
use crate::name::Name;

/// How many names one call looks at: short enough that nobody waits behind it.
const NAMES: usize = 64;

/// What is stored under a key, who that is, and whether it has an end.
type Seen = (String, ClaimView, bool);

impl Foreign {
    pub(in crate::drivers::redis) async fn evict(
        &self,
        name: &Name,
        ticket: Ticket,
        at_once: bool,
    ) -> Result<bool> {
        let key = self.key(name);
        let Some((stored, holder, _)) = self.look("evict", std::slice::from_ref(&key)).await?.remove(0)
        else {
            return Ok(false);
        };
        if holder.ticket != ticket {
            return Ok(false);
        }
        let args = [stored, u8::from(at_once).to_string(), self.format.channel(&key).unwrap_or_default()];
        let answer = self.link.run("evict", Script::Evict, &self.format.keys(&key), &args).await?;
        match answer.as_slice() {
            [Value::Int(-1)] => Err(self
                .link
                .error(ErrorKind::Unsupported, "evict", "its holder has no lease that could end")
                .hint("evict it at once")
                .about(name)),
            [Value::Int(found)] => Ok(*found == 1),
            _ => Err(nonsense("evict", &self.link.address)),
        }
    }

    pub(in crate::drivers::redis) async fn view(&self, query: &Query) -> Result<Vec<LineView>> {
        let mut names = match query {
            Query::Name(name) => vec![name.clone()],
            Query::Prefix(prefix) => self.names(prefix).await?,
        };
        names.extend(self.waiters.names().into_iter().filter(|name| query.matches(name.as_str())));
        names.sort_unstable();
        names.dedup();
        let mut lines = Vec::new();
        for some in names.chunks(NAMES) {
            let keys: Vec<String> = some.iter().map(|name| self.key(name)).collect();
            for (name, found) in some.iter().zip(self.look("view", &keys).await?) {
                let mut line = LineView::free(name.clone());
                // Of all keys that a walk finds, those without an end are data, not locks.
                let listed = |has_end: bool| has_end || matches!(query, Query::Name(_));
                line.holders
                    .extend(found.filter(|(_, _, has_end)| listed(*has_end)).map(|(_, holder, _)| holder));
                line.waiters = self.waiters.view(name);
                if !line.holders.is_empty() || !line.waiters.is_empty() {
                    lines.push(line);
                }
            }
        }
        Ok(lines)
    }

    /// The names of all keys that may be locks: the server is walked through, a little at a time.
    async fn names(&self, prefix: &str) -> Result<Vec<Name>> {
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

    /// What is stored under each key, who that is, and whether it has an end.
    async fn look(&self, operation: &'static str, keys: &[String]) -> Result<Vec<Option<Seen>>> {
        let all: Vec<String> = keys.iter().flat_map(|key| self.format.keys(key)).collect();
        let answers = self.link.run(operation, Script::Look, &all, &[]).await?;
        if answers.len() != keys.len() {
            return Err(nonsense(operation, &self.link.address));
        }
        Ok(answers.iter().map(|answer| self.seen(answer)).collect())
    }

    fn seen(&self, answer: &Value) -> Option<Seen> {
        let Value::Array(parts) = answer else { return None };
        let [stored, Value::Int(rest), token] = parts.as_slice() else { return None };
        let stored = text(stored)?;
        let Holder { named_by, who, evicted } = self.format.holder(stored)?;
        let view = ClaimView {
            ticket: if self.fenced { Ticket::new(number(token)?) } else { ticket_of(&named_by) },
            mode: Mode::Exclusive,
            who,
            remaining: Duration::from_millis(u64::try_from(*rest).unwrap_or_default()),
            // Nobody wrote down since when.
            since: Duration::ZERO,
            evicted,
        };
        Some((stored.to_owned(), view, *rest >= 0))
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
