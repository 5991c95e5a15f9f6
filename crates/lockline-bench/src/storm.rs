//! The row *storm*: many clients lose their engine in the same instant, and come back.
//!
//! An engine that just came up must not meet all its clients at once. Between the clients and the engine stands a small
//! proxy that goes away for a while, as a server does that is started again, and notes when each connection comes.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lockline::Locks;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::engine::{Engine, Site};
use crate::row::Row;

/// How long the engine is away: long enough that every client has noticed and pauses, far below a lease.
const AWAY: Duration = Duration::from_millis(1_500);
/// How long connections are counted once it is back.
const COUNTED: Duration = Duration::from_secs(3);
/// The slots in which they are counted.
const SLOT: Duration = Duration::from_millis(10);

/// How many clients: as many as a server of this kind lets in with its defaults.
pub fn clients_on(engine: Engine) -> usize {
    match engine.name() {
        "postgres" => 60,
        "mysql" => 40,
        _ => 500,
    }
}

/// Whether there is one server behind one address, which a proxy can stand before.
pub fn is_for(engine: Engine) -> bool {
    matches!(engine.name(), "redis" | "postgres" | "mysql" | "etcd" | "zookeeper")
}

/// Has all clients lose their engine at once, and counts how they come back.
///
/// # Errors
/// What the engine fails with.
pub async fn storm(site: &Site) -> Result<Row> {
    let (before, server, after) = split(&site.url).context("the address names no server")?;
    let mut proxy = Proxy::start(server).await?;
    let url = format!("{before}{}{after}", proxy.address);
    let many = clients_on(site.engine);
    let mut held = Vec::with_capacity(many);
    for n in 0..many {
        let locks = Locks::connect(&url).await?;
        let guard = locks.mutex(format!("storm/{n}")).lock().await?;
        held.push((locks, guard));
    }
    proxy.goes_away();
    tokio::time::sleep(AWAY).await;
    let back = proxy.comes_back().await?;
    let mut answered = JoinSet::new();
    for (n, (locks, _)) in held.iter().enumerate() {
        let mutex = locks.mutex(format!("storm/again/{n}"));
        answered.spawn(async move {
            while mutex.try_lock().await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Instant::now()
        });
    }
    let mut last = back;
    while let Some(at) = answered.join_next().await {
        last = last.max(at?);
    }
    tokio::time::sleep(COUNTED.saturating_sub(back.elapsed())).await;
    let came = proxy.came();
    let slots = histogram(&came, back, SLOT, COUNTED);
    let peak = slots.iter().copied().max().unwrap_or(0);
    let until_all = last.duration_since(back);
    let even = came.len() as f64 * SLOT.as_secs_f64() / until_all.as_secs_f64().max(SLOT.as_secs_f64());
    let lost = held.iter().filter(|(_, guard)| !guard.is_valid()).count();
    let mut row = Row {
        engine: site.engine.name().to_owned(),
        row: "storm".to_owned(),
        workers: many,
        turns_min: 1,
        turns_max: 1,
        ..Row::default()
    }
    .against("connects/10ms", peak as f64, "an even spread until all are back", even)
    .with("connects", came.len() as f64)
    .with("all_back_ms", until_all.as_secs_f64() * 1e3)
    .with("lost", lost as f64);
    row.extra.insert(
        "connects_per_100_ms".to_owned(),
        histogram(&came, back, Duration::from_millis(100), COUNTED).into(),
    );
    Ok(row)
}

/// The parts of an address before and after its server.
fn split(url: &str) -> Option<(&str, &str, &str)> {
    let start = url.find("://")? + 3;
    let end = url[start..].find(['/', '?']).map_or(url.len(), |end| start + end);
    let start = url[start..end].rfind('@').map_or(start, |at| start + at + 1);
    Some((&url[..start], &url[start..end], &url[end..]))
}

fn histogram(came: &[Instant], from: Instant, slot: Duration, within: Duration) -> Vec<u64> {
    let mut slots = vec![0; (within.as_micros() / slot.as_micros()) as usize];
    for at in came {
        let number = (at.duration_since(from).as_micros() / slot.as_micros()) as usize;
        if let Some(slot) = slots.get_mut(number) {
            *slot += 1;
        }
    }
    slots
}

/// Stands before a server, and notes who comes.
struct Proxy {
    address: SocketAddr,
    server: String,
    came: Arc<Mutex<Vec<Instant>>>,
    /// What listens, and all connections it has made; they end with it.
    listening: Option<tokio::task::AbortHandle>,
}

impl Proxy {
    async fn start(server: &str) -> Result<Proxy> {
        let listener = listen_on(([127, 0, 0, 1], 0).into())?;
        let address = listener.local_addr()?;
        let mut proxy = Proxy { address, server: server.to_owned(), came: Arc::default(), listening: None };
        proxy.serve(listener);
        Ok(proxy)
    }

    fn serve(&mut self, listener: TcpListener) {
        let (server, came) = (self.server.clone(), self.came.clone());
        let listening = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                came.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
                let server = server.clone();
                connections.spawn(async move { forward(client, &server).await });
                while connections.try_join_next().is_some() {}
            }
        });
        self.listening = Some(listening.abort_handle());
    }

    fn goes_away(&mut self) {
        if let Some(listening) = self.listening.take() {
            listening.abort();
        }
    }

    async fn comes_back(&mut self) -> Result<Instant> {
        self.came.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let back = Instant::now();
        self.serve(listen_on(self.address)?);
        Ok(back)
    }

    fn came(&self) -> Vec<Instant> {
        self.came.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.goes_away();
    }
}

fn listen_on(address: SocketAddr) -> Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    // The connections that it had before are still there for a while.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket.listen(4_096)?)
}

async fn forward(mut client: TcpStream, server: &str) -> Result<()> {
    let mut server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_split_at_its_server() {
        let parts = split("postgres://me:secret@127.0.0.1:5432/locks?prefix=a/");
        assert_eq!(parts, Some(("postgres://me:secret@", "127.0.0.1:5432", "/locks?prefix=a/")));
        assert_eq!(split("redis://127.0.0.1:1?a=b"), Some(("redis://", "127.0.0.1:1", "?a=b")));
    }

    #[test]
    fn connections_are_counted_in_slots() {
        let from = Instant::now();
        let came = [0, 5, 15, 31, 900].map(|ms| from + Duration::from_millis(ms));
        let slots = histogram(&came, from, SLOT, Duration::from_millis(40));
        assert_eq!(slots, [2, 1, 0, 1]);
    }
}
