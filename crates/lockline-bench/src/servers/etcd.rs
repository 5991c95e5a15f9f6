//! etcd: `get`, `put` + `delete`, and the lock that servers have themselves (`v3lock`).

use std::sync::atomic::{AtomicI64, Ordering};

use anyhow::{Context, Result};
use http::uri::PathAndQuery;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use super::{Server, Soon};
use crate::engine::Site;

/// A key, in the only field that these requests need.
#[derive(Clone, PartialEq, Message)]
struct Key {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Put {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
    #[prost(int64, tag = "3")]
    lease: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Grant {
    #[prost(int64, tag = "1")]
    ttl: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Granted {
    #[prost(int64, tag = "2")]
    id: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Lock {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
    #[prost(int64, tag = "2")]
    lease: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Locked {
    #[prost(bytes = "vec", tag = "2")]
    key: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Done {}

/// One channel, as the driver has it.
#[derive(Debug)]
pub(super) struct Bare {
    channel: Channel,
    address: String,
    /// A name space of its own.
    space: String,
    /// The lease of each worker, once it has one.
    leases: Vec<AtomicI64>,
}

impl Bare {
    pub(super) async fn connect(site: &Site) -> Result<Bare> {
        let rest = site.url.strip_prefix("etcd://").context("no etcd")?;
        let address = rest.split(['?', ',', '/']).next().context("no address")?.to_owned();
        let channel = Endpoint::from_shared(format!("http://{address}"))?.tcp_nodelay(true).connect().await?;
        let space = site.dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Bare { channel, address, space, leases: (0..1024).map(|_| AtomicI64::new(0)).collect() })
    }

    async fn call<Q: Message + 'static, A: Message + Default + 'static>(
        &self,
        path: &'static str,
        request: Q,
    ) -> Result<A> {
        let mut grpc = Grpc::new(self.channel.clone());
        grpc.ready().await?;
        let request = tonic::Request::new(request);
        let codec: ProstCodec<Q, A> = ProstCodec::default();
        Ok(grpc.unary(request, PathAndQuery::from_static(path), codec).await?.into_inner())
    }

    /// As a lock is: with a lease, which was granted before.
    async fn put_and_delete(&self, worker: usize) -> Result<()> {
        let key = format!("{}/floor/{worker}", self.space).into_bytes();
        let lease = self.lease(worker).await?;
        let _: Done =
            self.call("/etcdserverpb.KV/Put", Put { key: key.clone(), value: Vec::new(), lease }).await?;
        let _: Done = self.call("/etcdserverpb.KV/DeleteRange", Key { key }).await?;
        Ok(())
    }

    async fn lease(&self, worker: usize) -> Result<i64> {
        let slot = self.leases.get(worker).context("too many workers")?;
        if slot.load(Ordering::Relaxed) == 0 {
            let granted: Granted = self.call("/etcdserverpb.Lease/LeaseGrant", Grant { ttl: 600 }).await?;
            slot.store(granted.id, Ordering::Relaxed);
        }
        Ok(slot.load(Ordering::Relaxed))
    }

    /// The sum of what the server counts under these names.
    async fn counted(&self, counts: impl Fn(&str) -> bool) -> Result<f64> {
        let mut stream = tokio::net::TcpStream::connect(&self.address).await?;
        let request = format!("GET /metrics HTTP/1.0\r\nHost: {}\r\n\r\n", self.address);
        stream.write_all(request.as_bytes()).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        let lines = text.lines().filter(|line| !line.starts_with('#') && counts(line));
        Ok(lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
    }
}

impl Server for Bare {
    fn round_trip_is(&self) -> &'static str {
        "get"
    }

    fn round_trip(&self) -> Soon<'_, ()> {
        Box::pin(async {
            let key = format!("{}/floor", self.space).into_bytes();
            let _: Done = self.call("/etcdserverpb.KV/Range", Key { key }).await?;
            Ok(())
        })
    }

    fn pair_is(&self) -> &'static str {
        "put with a lease + delete, as many workers"
    }

    fn pair(&self, worker: usize) -> Soon<'_, ()> {
        Box::pin(self.put_and_delete(worker))
    }

    /// Every message of a client: requests, keep-alives, watches; but not `get`, which is the floor.
    fn commands(&self) -> Soon<'_, Option<u64>> {
        Box::pin(async {
            let messages = |line: &str| {
                line.starts_with("grpc_server_msg_received_total")
                    && !line.contains("\"Range\"")
                    && ["etcdserverpb.KV", "etcdserverpb.Lease", "etcdserverpb.Watch"]
                        .iter()
                        .any(|of| line.contains(of))
            };
            Ok(Some(self.counted(messages).await? as u64))
        })
    }

    fn memory(&self) -> Soon<'_, Option<u64>> {
        Box::pin(async {
            let resident = |line: &str| line.starts_with("process_resident_memory_bytes");
            Ok(Some(self.counted(resident).await? as u64))
        })
    }

    fn peer(&self) -> Option<&'static str> {
        Some("v3lock")
    }

    fn peer_turn<'a>(&'a self, worker: usize, name: &'a str, inside: Soon<'a, ()>) -> Soon<'a, ()> {
        Box::pin(async move {
            let name = format!("{}/v3lock-{name}", self.space).into_bytes();
            let lease = self.lease(worker).await?;
            let locked: Locked = self.call("/v3lockpb.Lock/Lock", Lock { name, lease }).await?;
            inside.await?;
            let _: Done = self.call("/v3lockpb.Lock/Unlock", Key { key: locked.key }).await?;
            Ok(())
        })
    }
}
