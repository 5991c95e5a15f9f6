//! What people ask: who holds what, and to break a lock.

use super::{Eviction, Foreign, Seen};
use crate::driver::Query;
use crate::error::{Error, ErrorKind, Result};
use crate::line::{LineView, Ticket};
use crate::name::Name;

/// How many names one call looks at: short enough that nobody waits behind it.
const NAMES: usize = 64;

impl Foreign {
    pub(in crate::drivers) async fn evict(&self, name: &Name, ticket: Ticket, at_once: bool) -> Result<bool> {
        let key = self.key(name);
        let Some(seen) = self.store.look("evict", std::slice::from_ref(&key)).await?.remove(0) else {
            return Ok(false);
        };
        if seen.view.ticket != ticket {
            return Ok(false);
        }
        match self.store.evict(&key, &seen.stored, at_once).await? {
            Eviction::Done => Ok(true),
            Eviction::NotThere => Ok(false),
            Eviction::NoEnd => {
                let message = "its holder has no lease that could end";
                Err(Error::new(ErrorKind::Unsupported, "evict", message)
                    .hint("evict it at once")
                    .about(name)
                    .at(self.address()))
            }
        }
    }

    pub(in crate::drivers) async fn view(&self, query: &Query) -> Result<Vec<LineView>> {
        let mut names = match query {
            Query::Name(name) => vec![name.clone()],
            Query::Prefix(prefix) => self.store.names(prefix).await?,
        };
        names.extend(self.waiters.names().into_iter().filter(|name| query.matches(name.as_str())));
        names.sort_unstable();
        names.dedup();
        let mut lines = Vec::new();
        for some in names.chunks(NAMES) {
            let keys: Vec<String> = some.iter().map(|name| self.key(name)).collect();
            for (name, found) in some.iter().zip(self.store.look("view", &keys).await?) {
                let mut line = LineView::free(name.clone());
                // Of all keys that a walk finds, those without an end are data, not locks.
                let listed = |seen: &Seen| seen.has_end || matches!(query, Query::Name(_));
                line.holders.extend(found.filter(listed).map(|seen| seen.view));
                line.waiters = self.waiters.view(name);
                if !line.holders.is_empty() || !line.waiters.is_empty() {
                    lines.push(line);
                }
            }
        }
        Ok(lines)
    }
}
