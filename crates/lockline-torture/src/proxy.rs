//! A proxy between the clients and one server: it cuts, holds back, swallows and delays.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::frames::{self, Ports, Protocol};

/// What becomes of bytes in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Flow {
    #[default]
    Passes,
    /// They arrive when the weather is better: a black hole that opens again, and late delivery.
    IsHeld,
    /// They never arrive. The connections must be cut afterwards.
    IsSwallowed,
    Takes(Duration),
    /// Bells never arrive, and everything else does.
    LosesBells,
}

/// How it is on the way to the server just now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Weather {
    requests: Flow,
    answers: Flow,
    /// How often all connections were cut.
    cuts: u64,
}

/// The way to one server.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) address: String,
    /// Where it leads to.
    pub(crate) server: String,
    weather: watch::Sender<Weather>,
    /// What passes, if bells can be told from it.
    pub(crate) protocol: Option<Protocol>,
}

impl Proxy {
    /// One to each of these servers. Where an answer names one of them, the client reads its proxy's address instead.
    pub(crate) async fn to_all(servers: &[String], protocol: Option<Protocol>) -> anyhow::Result<Vec<Proxy>> {
        let mut doors = Vec::new();
        for server in servers {
            let listener = TcpListener::bind("127.0.0.1:0").await.context("no port for a proxy")?;
            doors.push((server.clone(), listener.local_addr()?.to_string(), listener));
        }
        let ports = Ports::new(doors.iter().map(|(server, address, _)| (server.as_str(), address.as_str())))?;
        let ports = Arc::new(ports);
        let open = |(server, address, listener)| Proxy::open(server, address, listener, protocol, &ports);
        Ok(doors.into_iter().map(open).collect())
    }

    fn open(
        server: String,
        address: String,
        listener: TcpListener,
        protocol: Option<Protocol>,
        ports: &Arc<Ports>,
    ) -> Proxy {
        let (weather, forecast) = watch::channel(Weather::default());
        let (goal, ports) = (server.clone(), ports.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let reader = protocol.map(|protocol| Reader::new(protocol, ports.clone()));
                tokio::spawn(connect(client, goal.clone(), reader, forecast.clone()));
            }
        });
        Proxy { address, server, weather, protocol }
    }

    pub(crate) fn turns(&self, requests: Flow, answers: Flow) {
        self.weather.send_modify(|now| (now.requests, now.answers) = (requests, answers));
    }

    pub(crate) fn cut(&self) {
        self.weather.send_modify(|now| now.cuts += 1);
    }
}

/// What reads what passes on a connection whose protocol is known.
struct Reader {
    protocol: Protocol,
    ports: Arc<Ports>,
    /// Whether nothing but bells will come.
    listens: bool,
    /// The beginning of a message whose end has not come yet.
    waiting: Vec<u8>,
}

/// One connection, until it is cut or either side ends it.
async fn connect(
    client: TcpStream,
    server: String,
    reader: Option<Reader>,
    mut weather: watch::Receiver<Weather>,
) {
    let cuts = weather.borrow().cuts;
    let Ok(server) = TcpStream::connect(&server).await else { return };
    // Small messages must not wait for each other here.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let (requests, answers) = (weather.clone(), weather.clone());
    let reader = Mutex::new(reader);
    let asks = |bytes: &[u8], _| {
        if let Some(reader) = lock(&reader).as_mut() {
            reader.listens |= frames::listens(reader.protocol, bytes);
        }
        Some(bytes.to_vec())
    };
    let says = |bytes: &[u8], loses_bells| match lock(&reader).as_mut() {
        None => Some(bytes.to_vec()),
        Some(reader) => reader.passes(bytes, loses_bells),
    };
    tokio::select! {
        () = pump(from_client, to_server, asks, requests, |weather| weather.requests) => {}
        () = pump(from_server, to_client, says, answers, |weather| weather.answers) => {}
        _ = weather.wait_for(|weather| weather.cuts != cuts) => {}
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `reads` says what passes; `None`: nothing any more, and the connection ends with the weather.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut reads: impl FnMut(&[u8], bool) -> Option<Vec<u8>>,
    mut weather: watch::Receiver<Weather>,
    flow: fn(&Weather) -> Flow,
) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let Ok(read @ 1..) = from.read(&mut buffer).await else { return };
        let Ok(now) = weather.wait_for(|weather| flow(weather) != Flow::IsHeld).await.map(|now| flow(&now))
        else {
            return;
        };
        match now {
            Flow::IsSwallowed => continue,
            Flow::Takes(time) => tokio::time::sleep(time).await,
            Flow::Passes | Flow::IsHeld | Flow::LosesBells => {}
        }
        let Some(passing) = reads(&buffer[..read], now == Flow::LosesBells) else {
            let _ = weather.wait_for(|weather| flow(weather) != Flow::LosesBells).await;
            return;
        };
        if to.write_all(&passing).await.is_err() {
            return;
        }
    }
}

impl Reader {
    fn new(protocol: Protocol, ports: Arc<Ports>) -> Reader {
        Reader { protocol, ports, listens: false, waiting: Vec::new() }
    }

    /// Takes the whole messages out of what has arrived, and leaves out the bells if they are to be lost.
    fn passes(&mut self, bytes: &[u8], loses_bells: bool) -> Option<Vec<u8>> {
        if self.listens && loses_bells {
            return None;
        }
        let Reader { protocol, ports, waiting, .. } = self;
        waiting.extend_from_slice(bytes);
        let mut passing = Vec::with_capacity(waiting.len());
        let mut at = 0;
        while let Some((length, is_bell)) = frames::first(*protocol, &waiting[at..]) {
            let message = &waiting[at..at + length];
            if is_bell && loses_bells {
                passing.extend(frames::without_bell(*protocol, message));
            } else {
                passing.extend_from_slice(message);
            }
            at += length;
        }
        waiting.drain(..at);
        if *protocol == Protocol::Resp {
            ports.translate(&mut passing);
        }
        Some(passing)
    }
}
