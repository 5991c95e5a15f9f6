//! The requests that verbs are made of.

use std::time::Duration;

use tonic::Status;

use super::Inner;
use super::error::{explain, no_such_lease};
use super::lease::{Asked, Lease};
use super::place::{Keys, random_id};
use super::proto::{
    Compare, DeleteRangeRequest, DeleteRangeResponse, LeaseGrantRequest, LeaseGrantResponse,
    LeaseRevokeRequest, LeaseRevokeResponse, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse, RangeRequest,
    RangeResponse, RequestOp, TxnRequest, TxnResponse,
};
use crate::error::{Error, Result};
use crate::time::BootClock;

/// What reads go together with: servers take at most 128 operations in one transaction.
pub(super) const MOST_OPERATIONS: usize = 100;

impl Inner {
    pub(super) fn fail(&self, operation: &'static str, status: &Status, sent: bool) -> Error {
        explain(operation, &self.wire.address, status, sent)
    }

    /// One atomic step. Also when it only reads: the reads are of one moment.
    pub(super) async fn txn(
        &self,
        compare: Vec<Compare>,
        success: Vec<RequestOp>,
        failure: Vec<RequestOp>,
    ) -> std::result::Result<TxnResponse, Status> {
        self.wire.call("/etcdserverpb.KV/Txn", TxnRequest { compare, success, failure }).await
    }

    /// Reads of one moment, for people: they wait while the cluster finds a leader.
    pub(super) async fn read_all(&self, reads: Vec<RequestOp>) -> std::result::Result<TxnResponse, Status> {
        let request = TxnRequest { compare: Vec::new(), success: reads, failure: Vec::new() };
        self.wire.ask("/etcdserverpb.KV/Txn", request).await
    }

    pub(super) async fn range(&self, range: RangeRequest) -> std::result::Result<RangeResponse, Status> {
        self.wire.call("/etcdserverpb.KV/Range", range).await
    }

    pub(super) async fn delete(&self, keys: &Keys) -> std::result::Result<(), Status> {
        let request = DeleteRangeRequest { key: keys.key.clone(), range_end: keys.end.clone() };
        self.wire.call::<_, DeleteRangeResponse>("/etcdserverpb.KV/DeleteRange", request).await.map(drop)
    }

    pub(super) async fn grant(&self, seconds: i64) -> std::result::Result<Lease, Status> {
        let extended = BootClock.now();
        let request = LeaseGrantRequest { ttl: seconds, id: random_id() };
        let granted: LeaseGrantResponse = self.wire.call("/etcdserverpb.Lease/LeaseGrant", request).await?;
        if !granted.error.is_empty() {
            return Err(Status::internal(granted.error));
        }
        // A server grants more than it was asked for if that is below its minimum.
        let ttl = Duration::from_secs(u64::try_from(granted.ttl).unwrap_or_default());
        Ok(Lease { id: granted.id, ttl, extended })
    }

    /// Ends a lease, and every key on it. What is still on its way to a key on that lease fails from now on.
    pub(super) async fn revoke(&self, lease: i64) -> std::result::Result<(), Status> {
        let revoked =
            self.wire.call("/etcdserverpb.Lease/LeaseRevoke", LeaseRevokeRequest { id: lease }).await;
        match revoked {
            Ok(LeaseRevokeResponse {}) => Ok(()),
            Err(status) if no_such_lease(&status) => Ok(()),
            Err(status) => Err(status),
        }
    }

    /// What a lease has left, and what it was granted.
    pub(super) async fn time_to_live(&self, lease: i64) -> std::result::Result<(Duration, Duration), Status> {
        let request = LeaseTimeToLiveRequest { id: lease };
        let answer: LeaseTimeToLiveResponse =
            self.wire.ask("/etcdserverpb.Lease/LeaseTimeToLive", request).await?;
        let seconds = |number: i64| Duration::from_secs(u64::try_from(number).unwrap_or_default());
        Ok((seconds(answer.ttl), seconds(answer.granted_ttl)))
    }

    /// Begins a lease anew. `false`: it is gone.
    pub(super) async fn kept(&self, asked: Asked) -> std::result::Result<bool, Status> {
        Ok(self.keep_alives.answer(asked).await? > 0)
    }

    pub(super) async fn keep_alive(&self, lease: i64) -> std::result::Result<bool, Status> {
        self.kept(self.keep_alives.send(lease)).await
    }

    pub(super) fn unsure<T>(
        &self,
        operation: &'static str,
        result: std::result::Result<T, Status>,
    ) -> Result<T> {
        result.map_err(|status| self.fail(operation, &status, true))
    }
}
