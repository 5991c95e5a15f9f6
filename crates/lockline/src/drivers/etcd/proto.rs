//! The messages of etcd's API that locks need, and nothing else: written by hand, so that nobody needs `protoc` or the
//! project's generated code. Field numbers are etcd's.

use prost::{Message, Oneof};

/// What every answer begins with.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Header {
    /// The store's revision when the request was applied.
    #[prost(int64, tag = "3")]
    pub(super) revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub(super) create_revision: i64,
    #[prost(int64, tag = "3")]
    pub(super) mod_revision: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(super) value: Vec<u8>,
    #[prost(int64, tag = "6")]
    pub(super) lease: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(super) limit: i64,
    /// See [`order`].
    #[prost(int32, tag = "5")]
    pub(super) sort_order: i32,
    #[prost(int32, tag = "6")]
    pub(super) sort_target: i32,
    #[prost(bool, tag = "8")]
    pub(super) keys_only: bool,
    #[prost(bool, tag = "9")]
    pub(super) count_only: bool,
    #[prost(int64, tag = "12")]
    pub(super) min_create_revision: i64,
    #[prost(int64, tag = "13")]
    pub(super) max_create_revision: i64,
}

/// Values of `sort_order` and `sort_target`.
pub(super) mod order {
    pub(in super::super) const ASCENDING: i32 = 1;
    pub(in super::super) const DESCENDING: i32 = 2;
    pub(in super::super) const BY_CREATION: i32 = 2;
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub(super) kvs: Vec<KeyValue>,
    /// How many keys there are in the range, whatever limits and filters say.
    #[prost(int64, tag = "4")]
    pub(super) count: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) value: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(super) lease: i64,
    #[prost(bool, tag = "5")]
    pub(super) ignore_value: bool,
    #[prost(bool, tag = "6")]
    pub(super) ignore_lease: bool,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct PutResponse {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DeleteRangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) range_end: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct DeleteRangeResponse {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RequestOp {
    #[prost(oneof = "Request", tags = "1, 2, 3")]
    pub(super) request: Option<Request>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Request {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    Delete(DeleteRangeRequest),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResponseOp {
    #[prost(oneof = "Response", tags = "1, 2, 3")]
    pub(super) response: Option<Response>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Response {
    #[prost(message, tag = "1")]
    Range(RangeResponse),
    #[prost(message, tag = "2")]
    Put(PutResponse),
    #[prost(message, tag = "3")]
    Delete(DeleteRangeResponse),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Compare {
    /// 0 equal, 2 less.
    #[prost(int32, tag = "1")]
    result: i32,
    /// 0 version, 1 create revision, 2 mod revision, 4 lease.
    #[prost(int32, tag = "2")]
    target: i32,
    #[prost(bytes = "vec", tag = "3")]
    key: Vec<u8>,
    #[prost(oneof = "Target", tags = "4, 5, 6, 8")]
    with: Option<Target>,
    /// If it is given, every key of the range must compare; a range without keys compares like a key that is not there.
    #[prost(bytes = "vec", tag = "64")]
    range_end: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Oneof)]
enum Target {
    #[prost(int64, tag = "4")]
    Version(i64),
    #[prost(int64, tag = "5")]
    Create(i64),
    #[prost(int64, tag = "6")]
    Mod(i64),
    #[prost(int64, tag = "8")]
    Lease(i64),
}

impl Compare {
    fn equal(key: &[u8], target: i32, with: Target) -> Compare {
        Compare { result: 0, target, key: key.to_vec(), with: Some(with), range_end: Vec::new() }
    }

    /// The key was created by this revision; 0: there is no such key.
    pub(super) fn created_at(key: &[u8], revision: i64) -> Compare {
        Compare::equal(key, 1, Target::Create(revision))
    }

    /// The key was last written by this revision.
    pub(super) fn written_at(key: &[u8], revision: i64) -> Compare {
        Compare::equal(key, 2, Target::Mod(revision))
    }

    /// The key hangs on this lease.
    pub(super) fn on_lease(key: &[u8], lease: i64) -> Compare {
        Compare::equal(key, 4, Target::Lease(lease))
    }

    /// There is no key in the range.
    pub(super) fn empty(key: &[u8], range_end: &[u8]) -> Compare {
        Compare { range_end: range_end.to_vec(), ..Compare::equal(key, 0, Target::Version(0)) }
    }

    /// No key of the range was created after this revision.
    pub(super) fn none_since(key: &[u8], range_end: &[u8], revision: i64) -> Compare {
        let created = Compare::equal(key, 1, Target::Create(revision + 1));
        Compare { result: 2, range_end: range_end.to_vec(), ..created }
    }
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(super) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub(super) failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(bool, tag = "2")]
    pub(super) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(super) responses: Vec<ResponseOp>,
}

impl TxnResponse {
    pub(super) fn revision(&self) -> i64 {
        self.header.map_or(0, |header| header.revision)
    }

    /// What the nth operation read.
    pub(super) fn range(&mut self, nth: usize) -> RangeResponse {
        match self.responses.get_mut(nth).and_then(|op| op.response.take()) {
            Some(Response::Range(range)) => range,
            _ => RangeResponse::default(),
        }
    }
}

impl From<RangeRequest> for RequestOp {
    fn from(range: RangeRequest) -> RequestOp {
        RequestOp { request: Some(Request::Range(range)) }
    }
}

impl From<PutRequest> for RequestOp {
    fn from(put: PutRequest) -> RequestOp {
        RequestOp { request: Some(Request::Put(put)) }
    }
}

impl From<DeleteRangeRequest> for RequestOp {
    fn from(delete: DeleteRangeRequest) -> RequestOp {
        RequestOp { request: Some(Request::Delete(delete)) }
    }
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    pub(super) ttl: i64,
    #[prost(int64, tag = "2")]
    pub(super) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    pub(super) id: i64,
    #[prost(int64, tag = "3")]
    pub(super) ttl: i64,
    #[prost(string, tag = "4")]
    pub(super) error: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct LeaseRevokeRequest {
    #[prost(int64, tag = "1")]
    pub(super) id: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct LeaseRevokeResponse {}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct LeaseKeepAliveRequest {
    #[prost(int64, tag = "1")]
    pub(super) id: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct LeaseKeepAliveResponse {
    #[prost(int64, tag = "2")]
    pub(super) id: i64,
    /// 0 or less: there is no such lease any more. That is not an error for etcd.
    #[prost(int64, tag = "3")]
    pub(super) ttl: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct LeaseTimeToLiveRequest {
    #[prost(int64, tag = "1")]
    pub(super) id: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct LeaseTimeToLiveResponse {
    #[prost(int64, tag = "3")]
    pub(super) ttl: i64,
    #[prost(int64, tag = "4")]
    pub(super) granted_ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchRequest {
    #[prost(oneof = "WatchCommand", tags = "1, 2")]
    pub(super) command: Option<WatchCommand>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum WatchCommand {
    #[prost(message, tag = "1")]
    Create(WatchCreate),
    #[prost(message, tag = "2")]
    Cancel(WatchCancel),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchCreate {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) range_end: Vec<u8>,
    /// 0 leaves out puts, 1 leaves out deletions.
    #[prost(int32, repeated, tag = "5")]
    pub(super) filters: Vec<i32>,
    #[prost(int64, tag = "7")]
    pub(super) watch_id: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct WatchCancel {
    #[prost(int64, tag = "1")]
    pub(super) watch_id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchResponse {
    #[prost(int64, tag = "2")]
    pub(super) watch_id: i64,
    #[prost(bool, tag = "3")]
    pub(super) created: bool,
    #[prost(bool, tag = "4")]
    pub(super) canceled: bool,
    #[prost(string, tag = "6")]
    pub(super) cancel_reason: String,
    #[prost(message, repeated, tag = "11")]
    pub(super) events: Vec<Event>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {
    /// 0 is a put, 1 a deletion.
    #[prost(int32, tag = "1")]
    pub(super) kind: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) kv: Option<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) password: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub(super) token: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct StatusRequest {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusResponse {
    #[prost(string, tag = "2")]
    pub(super) version: String,
    #[prost(uint64, tag = "4")]
    pub(super) leader: u64,
}
