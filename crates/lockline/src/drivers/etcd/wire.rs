//! One connection to one member of the cluster at a time, and another one when that is of no use.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::uri::PathAndQuery;
use prost::Message;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::config::EtcdConfig;
use super::error::{explain, lost_leader, never_sent, old_token};
use super::proto;
use crate::error::{Error, ErrorKind, Result};
use crate::pause;
use crate::sync::locked;
use crate::time::{BootClock, Time};

/// How long one attempt to connect may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);
/// After how long without any answer a connection is given up, if there is another member to ask. A stopped server keeps
/// its connections, and a holder has only a lease to find another one.
const SILENT_FOR: Duration = Duration::from_secs(1);
/// The same if there is none.
const SILENT_ALONE: Duration = Duration::from_secs(3);
/// No answer is waited for any longer.
const AT_MOST: Duration = Duration::from_secs(10);
/// Servers close connections on which they are pinged more often than every five seconds.
const PING_EVERY: Duration = Duration::from_secs(6);
/// The pause before a question is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// A line of thousands of claims is one answer.
const LARGEST_ANSWER: usize = 256 << 20;

/// When somebody was last heard.
#[derive(Debug, Default)]
pub(super) struct Heard(AtomicU64);

impl Heard {
    pub(super) fn now(&self) {
        self.0.store(BootClock.now().as_micros(), Ordering::Relaxed);
    }

    fn last(&self) -> Time {
        Time::from_micros(self.0.load(Ordering::Relaxed))
    }
}

/// A connection to one member.
#[derive(Debug)]
pub(super) struct Link {
    index: usize,
    channel: Channel,
    heard: Heard,
    given_up: tokio::sync::watch::Sender<bool>,
}

impl Link {
    fn new(index: usize, endpoint: &Endpoint) -> Arc<Link> {
        Arc::new(Link {
            index,
            channel: endpoint.connect_lazy(),
            heard: Heard::default(),
            given_up: tokio::sync::watch::channel(false).0,
        })
    }

    pub(super) fn heard_from(&self) {
        self.heard.now();
    }

    /// Ends when nobody is to use it any longer.
    pub(super) async fn is_given_up(&self) {
        let mut given_up = self.given_up.subscribe();
        // It cannot fail: the sender is ours.
        let _ = given_up.wait_for(|given_up| *given_up).await;
    }

    fn grpc(&self) -> Grpc<Channel> {
        Grpc::new(self.channel.clone()).max_decoding_message_size(LARGEST_ANSWER)
    }
}

/// The way to a cluster.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) address: Arc<str>,
    config: EtcdConfig,
    endpoints: Vec<Endpoint>,
    link: Mutex<Arc<Link>>,
    token: Mutex<Option<MetadataValue<Ascii>>>,
    /// Held by whoever logs in: the others wait instead of doing the same.
    login: tokio::sync::Mutex<()>,
}

impl Wire {
    pub(super) async fn open(config: EtcdConfig) -> Result<Wire> {
        config.check()?;
        let address: Arc<str> = config.address().into();
        let endpoints = config.hosts.iter().map(|host| endpoint(host, &config));
        let endpoints = endpoints.collect::<Result<Vec<_>>>().map_err(|e| e.at(&address))?;
        // Not all clients on the same member.
        let first = usize::from(crate::line::ClaimId::random().as_u128() as u8) % endpoints.len();
        let link = Mutex::new(Link::new(first, &endpoints[first]));
        let wire =
            Wire { address, config, endpoints, link, token: Mutex::default(), login: Default::default() };
        wire.greet().await.map_err(|status| explain("connect", &wire.address, &status, false))?;
        Ok(wire)
    }

    /// Logs in, and finds out whether anybody is there.
    async fn greet(&self) -> std::result::Result<(), Status> {
        let link = self.link();
        let begun = if self.config.user.is_some() { self.log_in(None).await } else { Ok(()) };
        let status = match begun {
            Ok(()) => self.call::<_, proto::StatusResponse>(STATUS, proto::StatusRequest {}).await,
            Err(status) => Err(status),
        };
        match status {
            Ok(found) => {
                tracing::debug!(version = found.version, member = link.index, "connected to etcd");
                Ok(())
            }
            // Whoever may not ask for it may still lock.
            Err(status) if status.code() == Code::PermissionDenied => Ok(()),
            Err(status) => Err(status),
        }
    }

    pub(super) fn link(&self) -> Arc<Link> {
        locked(&self.link).clone()
    }

    /// Has the next requests go to the next member.
    pub(super) fn give_up(&self, link: &Arc<Link>) {
        let mut current = locked(&self.link);
        if Arc::ptr_eq(&current, link) {
            let next = (link.index + 1) % self.endpoints.len();
            *current = Link::new(next, &self.endpoints[next]);
            tracing::debug!(from = link.index, to = next, "another member of the etcd cluster is asked");
        }
        drop(current);
        link.given_up.send_replace(true);
    }

    /// Ends when nothing has been heard for too long, counted from `since`.
    pub(super) async fn silence(&self, heard: &Heard, since: Time) {
        let limit = if self.endpoints.len() > 1 { SILENT_FOR } else { SILENT_ALONE };
        loop {
            let until = (heard.last().max(since) + limit).as_micros().min((since + AT_MOST).as_micros());
            let rest = Time::from_micros(until).since(BootClock.now());
            if rest.is_zero() {
                return;
            }
            tokio::time::sleep(rest).await;
        }
    }

    /// One request, one answer.
    pub(super) async fn call<Q, A>(&self, path: &'static str, request: Q) -> std::result::Result<A, Status>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let (mut logins, mut links) = (0, 0);
        loop {
            let link = self.link();
            let token = locked(&self.token).clone();
            let status = match self.call_on(&link, path, request.clone(), token.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(status) => status,
            };
            if old_token(&status) && self.config.user.is_some() && logins < 2 {
                logins += 1;
                self.log_in(token).await?;
            } else if never_sent(&status) && links < self.endpoints.len() {
                // Nothing was done: whoever answers may do it.
                links += 1;
                self.give_up(&link);
            } else {
                if lost_leader(&status) {
                    self.give_up(&link);
                }
                return Err(status);
            }
        }
    }

    /// A question that changes nothing, asked again while the cluster finds a leader: whoever asks has a deadline of its own.
    pub(super) async fn ask<Q, A>(&self, path: &'static str, question: Q) -> std::result::Result<A, Status>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let give_up = BootClock.now() + AT_MOST;
        loop {
            match self.call(path, question.clone()).await {
                Err(status) if lost_leader(&status) && BootClock.now() < give_up => {
                    tokio::time::sleep(pause::about(ASK_AGAIN)).await;
                }
                answer => return answer,
            }
        }
    }

    async fn call_on<Q, A>(
        &self,
        link: &Arc<Link>,
        path: &'static str,
        request: Q,
        token: Option<MetadataValue<Ascii>>,
    ) -> std::result::Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = link.grpc();
        let request = with_metadata(Request::new(request), token);
        let exchange = async move {
            grpc.ready().await.map_err(|e| Status::from_error(Box::new(e)))?;
            grpc.unary(request, PathAndQuery::from_static(path), ProstCodec::default()).await
        };
        self.watched(link, exchange).await.map(tonic::Response::into_inner)
    }

    /// Waits for something on a link, but not on one that is silent or given up.
    pub(super) async fn watched<T>(
        &self,
        link: &Arc<Link>,
        exchange: impl Future<Output = std::result::Result<T, Status>>,
    ) -> std::result::Result<T, Status> {
        let since = BootClock.now();
        tokio::select! {
            answer = exchange => {
                link.heard_from();
                answer
            }
            () = link.is_given_up() => Err(Status::unavailable("the connection was given up")),
            () = self.silence(&link.heard, since) => {
                self.give_up(link);
                Err(Status::unavailable("the server does not answer"))
            }
        }
    }

    /// A stream in both directions. The server answers it with the first message that it sends.
    pub(super) async fn stream<Q, A>(
        &self,
        link: &Arc<Link>,
        path: &'static str,
        requests: UnboundedReceiverStream<Q>,
    ) -> std::result::Result<Streaming<A>, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = link.grpc();
        let request = with_metadata(Request::new(requests), locked(&self.token).clone());
        grpc.ready().await.map_err(|e| Status::from_error(Box::new(e)))?;
        let opened = grpc.streaming(request, PathAndQuery::from_static(path), ProstCodec::default()).await;
        Ok(opened?.into_inner())
    }

    /// Gets a token, unless somebody else has got another one than `old` meanwhile.
    pub(super) async fn log_in(&self, old: Option<MetadataValue<Ascii>>) -> std::result::Result<(), Status> {
        let _one_at_a_time = self.login.lock().await;
        if *locked(&self.token) != old {
            return Ok(());
        }
        let request = proto::AuthenticateRequest {
            name: self.config.user.clone().unwrap_or_default(),
            password: self.config.password.clone().unwrap_or_default(),
        };
        for _ in 0..=self.endpoints.len() {
            let link = self.link();
            match self
                .call_on::<_, proto::AuthenticateResponse>(&link, AUTHENTICATE, request.clone(), None)
                .await
            {
                Ok(answer) => {
                    let token = answer.token.parse().map_err(|_| Status::internal("the token is no text"))?;
                    *locked(&self.token) = Some(token);
                    return Ok(());
                }
                Err(status) if never_sent(&status) => self.give_up(&link),
                Err(status) => return Err(status),
            }
        }
        Err(Status::unavailable("no member can be reached"))
    }

    /// Whether a stream that ended did so because the login is too old.
    pub(super) async fn after_stream(&self, link: &Arc<Link>, status: &Status) {
        if old_token(status) && self.config.user.is_some() {
            let token = locked(&self.token).clone();
            // The next stream will tell if it did not work.
            let _ = self.log_in(token).await;
        } else if never_sent(status) || lost_leader(status) {
            self.give_up(link);
        }
    }
}

const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";
const STATUS: &str = "/etcdserverpb.Maintenance/Status";

fn with_metadata<T>(mut request: Request<T>, token: Option<MetadataValue<Ascii>>) -> Request<T> {
    // A member that has lost its cluster says so at once, instead of when its patience ends.
    request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
    if let Some(token) = token {
        request.metadata_mut().insert("token", token);
    }
    request
}

fn endpoint(host: &str, config: &EtcdConfig) -> Result<Endpoint> {
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let endpoint = Endpoint::from_shared(format!("{scheme}://{host}"))
        .map_err(|_| Error::new(ErrorKind::Invalid, "url", "a host of it is none"))?
        .connect_timeout(CONNECT_WITHIN)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(SILENT_ALONE);
    with_tls(endpoint, config)
}

#[cfg(not(feature = "etcd-tls"))]
fn with_tls(endpoint: Endpoint, _: &EtcdConfig) -> Result<Endpoint> {
    Ok(endpoint)
}

#[cfg(feature = "etcd-tls")]
fn with_tls(endpoint: Endpoint, config: &EtcdConfig) -> Result<Endpoint> {
    use tonic::transport::{Certificate, ClientTlsConfig, Identity};
    let Some(tls) = &config.tls else { return Ok(endpoint) };
    let read = |file: &std::path::PathBuf| {
        std::fs::read(file).map_err(|e| {
            let problem = format!("cannot read {}", file.display());
            Error::new(ErrorKind::Invalid, "connect", problem).caused_by(e.to_string())
        })
    };
    let mut options = ClientTlsConfig::new();
    options = match &tls.ca {
        Some(file) => options.ca_certificate(Certificate::from_pem(read(file)?)),
        None => options.with_native_roots(),
    };
    if let Some((certificate, key)) = &tls.identity {
        options = options.identity(Identity::from_pem(read(certificate)?, read(key)?));
    }
    if let Some(name) = &tls.server_name {
        options = options.domain_name(name);
    }
    endpoint.tls_config(options).map_err(|e| {
        Error::new(ErrorKind::Invalid, "connect", "a certificate or key makes no sense").caused_by(cause(&e))
    })
}

#[cfg(feature = "etcd-tls")]
fn cause(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}
