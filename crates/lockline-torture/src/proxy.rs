//! A proxy between the clients and one server: it cuts, holds back, swallows and delays.

use std::time::Duration;

use anyhow::Context;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::frames::{self, Protocol};

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
    weather: watch::Sender<Weather>,
    /// What passes, if bells can be told from it.
    pub(crate) protocol: Option<Protocol>,
}

impl Proxy {
    pub(crate) async fn to(server: &str, protocol: Option<Protocol>) -> anyhow::Result<Proxy> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no port for a proxy")?;
        let address = listener.local_addr()?.to_string();
        let (weather, forecast) = watch::channel(Weather::default());
        let server = server.to_owned();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(connect(client, server.clone(), protocol, forecast.clone()));
            }
        });
        Ok(Proxy { address, weather, protocol })
    }

    pub(crate) fn turns(&self, requests: Flow, answers: Flow) {
        self.weather.send_modify(|now| (now.requests, now.answers) = (requests, answers));
    }

    pub(crate) fn cut(&self) {
        self.weather.send_modify(|now| now.cuts += 1);
    }
}

/// One connection, until it is cut or either side ends it.
async fn connect(
    client: TcpStream,
    server: String,
    protocol: Option<Protocol>,
    mut weather: watch::Receiver<Weather>,
) {
    let cuts = weather.borrow().cuts;
    let Ok(server) = TcpStream::connect(&server).await else { return };
    // Small messages must not wait for each other here.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let (requests, answers) = (weather.clone(), weather.clone());
    tokio::select! {
        () = pump(from_client, to_server, None, requests, |weather| weather.requests) => {}
        () = pump(from_server, to_client, protocol, answers, |weather| weather.answers) => {}
        _ = weather.wait_for(|weather| weather.cuts != cuts) => {}
    }
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    protocol: Option<Protocol>,
    mut weather: watch::Receiver<Weather>,
    flow: fn(&Weather) -> Flow,
) {
    let mut buffer = vec![0; 16 << 10];
    let mut waiting = Vec::new();
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
        let passes = match protocol {
            None => to.write_all(&buffer[..read]).await,
            Some(protocol) => {
                waiting.extend_from_slice(&buffer[..read]);
                to.write_all(&whole(protocol, &mut waiting, now == Flow::LosesBells)).await
            }
        };
        if passes.is_err() {
            return;
        }
    }
}

/// Takes the whole messages out of what has arrived, and leaves out the bells if they are to be lost.
fn whole(protocol: Protocol, waiting: &mut Vec<u8>, loses_bells: bool) -> Vec<u8> {
    let mut passing = Vec::with_capacity(waiting.len());
    let mut at = 0;
    while let Some((length, is_bell)) = frames::first(protocol, &waiting[at..]) {
        if !(is_bell && loses_bells) {
            passing.extend_from_slice(&waiting[at..at + length]);
        }
        at += length;
    }
    waiting.drain(..at);
    passing
}
