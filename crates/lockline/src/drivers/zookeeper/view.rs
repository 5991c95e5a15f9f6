//! `view` and `evict`: for people.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use zookeeper_client::{Error as ZkError, Stat};

use super::bell::SETTLED;
use super::claims::{GAP, Inner};
use super::node::{CURATOR_REVOKE, Data, Node, is_evicted};
use super::path;
use super::recipe::Places;
use super::session::Session;
use super::verbs::ticket_of;
use crate::driver::Query;
use crate::error::{ErrorKind, Result};
use crate::line::{ClaimView, LineView, Ticket, Who};
use crate::name::Name;
use crate::pause;

/// The session for what no lease hangs on is the one that most claims use.
pub(super) const USUAL_LEASE: Duration = Duration::from_secs(10);

/// How often a look is begun anew.
const LOOKS: usize = 3;

/// How many lines are looked at at the same time.
const AT_ONCE: usize = 64;

/// A claim as the ensemble has it.
struct Read<'a> {
    node: &'a Node,
    path: String,
    bytes: Vec<u8>,
    data: Option<Data>,
    stat: Stat,
}

impl Read<'_> {
    fn ticket(&self) -> Ticket {
        self.data.as_ref().and_then(|data| data.place).unwrap_or(ticket_of(&self.stat))
    }
}

impl Inner {
    /// A session that knows everything that was done before now.
    async fn up_to_date(self: &Arc<Self>, operation: &'static str) -> Result<Arc<Session>> {
        let session = self.session(operation, USUAL_LEASE).await?;
        let synced = session.client.sync("/").await;
        synced.map_err(|error| self.sessions.explain(operation, &error, false))?;
        Ok(session)
    }

    /// A look that a broken connection interrupted is begun anew on the next one.
    pub(super) async fn view(self: &Arc<Self>, query: &Query) -> Result<Vec<LineView>> {
        for _ in 0..LOOKS {
            match self.look(query).await {
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    tokio::time::sleep(pause::about(GAP)).await
                }
                seen => return seen,
            }
        }
        self.look(query).await
    }

    async fn look(self: &Arc<Self>, query: &Query) -> Result<Vec<LineView>> {
        self.drop_lapsed(None).await;
        let session = self.up_to_date("view").await?;
        let base = &self.sessions.config.base;
        let mut lines = Vec::new();
        match query {
            Query::Name(name) => {
                let line = path::of_line(base, name.as_str());
                let places = self.places(&session, &line, "view").await?;
                lines.extend(self.line_view(&session, &line, name.clone(), &places).await?);
            }
            Query::Prefix(prefix) => {
                for (line, places) in self.walk(&session, path::of_prefix(base, prefix)).await? {
                    let name =
                        line.strip_prefix(base.as_str()).and_then(|below| path::name_of(below.get(1..)?));
                    let name = name.filter(|name| query.matches(name)).and_then(|name| Name::new(name).ok());
                    if let Some(name) = name {
                        lines.extend(self.line_view(&session, &line, name, &places).await?);
                    }
                }
            }
        }
        lines.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(lines)
    }

    /// All lines below a znode, and at it.
    async fn walk(&self, session: &Session, from: String) -> Result<Vec<(String, Places)>> {
        let mut lines = Vec::new();
        let mut ahead = vec![from];
        while !ahead.is_empty() {
            let some = ahead.split_off(ahead.len().saturating_sub(AT_ONCE));
            // All are asked for before the first answer is awaited.
            let asked: Vec<_> = some.iter().map(|path| session.client.list_children(path)).collect();
            for (path, answer) in some.iter().zip(asked) {
                let children = match answer.await {
                    Ok(children) => children,
                    // Empty ones vanish; others are none of our business.
                    Err(ZkError::NoNode | ZkError::NoAuth) => continue,
                    Err(error) => return Err(self.sessions.explain("view", &error, false)),
                };
                let folders = children.iter().filter(|name| Node::parse(name).is_none());
                ahead.extend(folders.map(|name| format!("{path}/{name}")));
                let places = Places::new(&children);
                if places.iter().next().is_some() {
                    lines.push((path.clone(), places));
                }
            }
        }
        Ok(lines)
    }

    async fn read_all<'a>(
        &self,
        session: &Session,
        line: &str,
        nodes: impl Iterator<Item = &'a Node>,
        operation: &'static str,
    ) -> Result<Vec<Read<'a>>> {
        let asked: Vec<_> = nodes
            .map(|node| {
                let path = format!("{line}/{}", node.name);
                let answer = session.client.get_data(&path);
                (node, path, answer)
            })
            .collect();
        let mut all = Vec::with_capacity(asked.len());
        for (node, path, answer) in asked {
            match answer.await {
                Ok((bytes, stat)) => {
                    let data = Data::read(&bytes);
                    all.push(Read { node, path, bytes, data, stat });
                }
                // It left meanwhile.
                Err(ZkError::NoNode) => {}
                Err(error) => return Err(self.sessions.explain(operation, &error, false)),
            }
        }
        Ok(all)
    }

    /// One line as people see it; `None` if nobody stands in it.
    async fn line_view(
        &self,
        session: &Session,
        line: &str,
        name: Name,
        places: &Places,
    ) -> Result<Option<LineView>> {
        let mut view = LineView::free(name);
        let nodes = places.iter().flat_map(|place| &place.nodes);
        let mut all = self.read_all(session, line, nodes, "view").await?;
        for (ahead, place) in places.iter().enumerate() {
            let list = if places.is_in(ahead) { &mut view.holders } else { &mut view.waiters };
            let mut here: Vec<_> = all.extract_if(.., |read| read.node.number == place.number).collect();
            here.sort_by_key(|read| read.stat.czxid);
            list.extend(here.iter().map(|read| self.claim_view(&view.name, read)));
        }
        Ok(Some(view).filter(|view| !view.holders.is_empty() || !view.waiters.is_empty()))
    }

    /// Of a claim of ours everything is known. Of another one the znode tells what it was made with, and when, by the clock of
    /// the ensemble: good enough for people.
    fn claim_view(&self, name: &Name, read: &Read<'_>) -> ClaimView {
        let now = self.now();
        let own = read.node.id.and_then(|id| self.entry(name, id));
        let own = own.and_then(|entry| {
            entry.with(|spot| {
                let spot = spot.as_ref().filter(|spot| spot.path == read.path)?;
                Some((spot.deadline.since(now), now.since(spot.since)))
            })
        });
        let (remaining, since) = own.unwrap_or_else(|| {
            let remaining = read.data.as_ref().map_or(Duration::ZERO, |data| match data.fixed {
                true => data.lease.saturating_sub(ago(read.stat.mtime)),
                false => data.lease,
            });
            (remaining, ago(read.stat.ctime))
        });
        let stranger = || Who {
            owner: "another program".to_owned(),
            // Curator writes the address of its host.
            host: String::from_utf8(read.bytes.clone()).unwrap_or_default(),
            pid: 0,
        };
        ClaimView {
            ticket: read.ticket(),
            mode: read.node.mode,
            who: read.data.as_ref().map_or_else(stranger, |data| data.who.clone()),
            remaining,
            since,
            held: None,
            evicted: is_evicted(&read.bytes),
        }
    }

    /// Shows a place out. A claim that is in is marked, and stands until its client or its session ends; others are given a
    /// moment to hear that they were evicted, and to go by themselves.
    pub(super) async fn evict(self: &Arc<Self>, name: &Name, ticket: Ticket, at_once: bool) -> Result<bool> {
        self.drop_lapsed(Some(name)).await;
        let session = self.up_to_date("evict").await?;
        let line = self.line(name.as_str());
        let places = self.places(&session, &line, "evict").await?;
        let nodes = places.iter().flat_map(|place| &place.nodes);
        let all = self.read_all(&session, &line, nodes, "evict").await?;
        let mut found = false;
        for read in all.iter().filter(|read| read.ticket() == ticket) {
            let mark = match &read.data {
                Some(data) => Data { evicted: true, ..data.clone() }.write(),
                None => CURATOR_REVOKE.to_vec(),
            };
            match session.client.set_data(&read.path, &mark, None).await {
                Ok(_) => found = true,
                Err(ZkError::NoNode) => continue,
                Err(error) => return Err(self.sessions.explain("evict", &error, true)),
            }
            let is_in = places.ahead_of(read.node.number).is_some_and(|ahead| places.is_in(ahead));
            if at_once || !is_in {
                self.see_off(&session, &read.path).await?;
            }
        }
        Ok(found)
    }

    async fn see_off(&self, session: &Session, path: &str) -> Result<()> {
        if let Ok((Some(_), watcher)) = session.client.check_and_watch_stat(path).await {
            let _ = tokio::time::timeout(SETTLED * 2, watcher.changed()).await;
        }
        match session.client.delete(path, None).await {
            Ok(()) | Err(ZkError::NoNode) => Ok(()),
            Err(error) => Err(self.sessions.explain("evict", &error, true)),
        }
    }
}

/// How long ago this was, in milliseconds of the wall clock.
fn ago(ms: i64) -> Duration {
    let then = UNIX_EPOCH + Duration::from_millis(u64::try_from(ms).unwrap_or_default());
    SystemTime::now().duration_since(then).unwrap_or_default()
}

/// The znode of the place with this ticket, for who wants to write only while it is there.
pub(crate) async fn znode_of(
    client: &zookeeper_client::Client,
    config: &super::ZookeeperConfig,
    name: &Name,
    ticket: Ticket,
) -> std::result::Result<Option<String>, ZkError> {
    let line = path::of_line(&config.base, name.as_str());
    client.sync("/").await?;
    let children = match client.list_children(&line).await {
        Err(ZkError::NoNode) => return Ok(None),
        other => other?,
    };
    for node in Places::new(children).iter().flat_map(|place| &place.nodes) {
        let path = format!("{line}/{}", node.name);
        match client.get_data(&path).await {
            Ok((bytes, stat)) => {
                let read = Read { node, path, data: Data::read(&bytes), bytes, stat };
                if read.ticket() == ticket {
                    return Ok(Some(read.path));
                }
            }
            Err(ZkError::NoNode) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}
