//! The requests of [`fence::etcd`](crate::fence::etcd).

use tonic::Status;

use super::config::EtcdConfig;
use super::error::explain;
use super::place::{Layout, is_place};
use super::proto::{
    Compare, DeleteRangeRequest, PutRequest, RangeRequest, RangeResponse, RequestOp, TxnRequest, TxnResponse,
};
use super::wire::Wire;
use crate::error::{Error, ErrorKind, Result};
use crate::fence::etcd::{Proof, Write};
use crate::name::Name;

#[derive(Debug)]
pub(crate) struct Store {
    wire: Wire,
    layout: Layout,
}

impl Store {
    pub(crate) async fn connect(config: EtcdConfig) -> Result<Store> {
        let layout = Layout { space: config.space.clone() };
        Ok(Store { wire: Wire::open(config).await?, layout })
    }

    /// The place in the line of this name that was made by this revision.
    pub(crate) async fn proof(&self, name: &Name, token: u64) -> Result<Proof> {
        let create_revision = i64::try_from(token).unwrap_or_default();
        let line = self.layout.line(name);
        let question = RangeRequest {
            min_create_revision: create_revision,
            max_create_revision: create_revision,
            keys_only: true,
            ..line.read()
        };
        let found: std::result::Result<RangeResponse, Status> =
            self.wire.ask("/etcdserverpb.KV/Range", question).await;
        let found = found.map_err(|status| explain("fence", &self.wire.address, &status, false))?;
        match found.kvs.into_iter().find(|kv| is_place(&line, kv)) {
            Some(kv) => Ok(Proof { key: kv.key, create_revision }),
            None => Err(self.lost().about(name)),
        }
    }

    pub(crate) async fn write(&self, name: &str, proofs: &[Proof], changes: Vec<Write>) -> Result<()> {
        let change = |change| -> RequestOp {
            match change {
                Write::Put { key, value } => PutRequest { key, value, ..PutRequest::default() }.into(),
                Write::Delete { key } => DeleteRangeRequest { key, range_end: Vec::new() }.into(),
            }
        };
        let request = TxnRequest {
            compare: proofs
                .iter()
                .map(|proof| Compare::created_at(&proof.key, proof.create_revision))
                .collect(),
            success: changes.into_iter().map(change).collect(),
            failure: Vec::new(),
        };
        let answer: std::result::Result<TxnResponse, Status> =
            self.wire.call("/etcdserverpb.KV/Txn", request).await;
        let answer = answer.map_err(|status| explain("fence", &self.wire.address, &status, true))?;
        if answer.succeeded {
            return Ok(());
        }
        Err(Name::new(name).map_or_else(|e| e, |name| self.lost().about(&name)))
    }

    fn lost(&self) -> Error {
        Error::new(ErrorKind::Lost, "fence", "the lock is not held any more: nothing was written")
            .at(&self.wire.address)
    }
}
