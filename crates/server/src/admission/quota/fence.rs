//! Fences: a key of a namespace that every charged write of a shared store compares, and that is written again before usage is released.
//!
//! INVARIANT: no write that was charged before usage was counted is stored after it was counted. The count reads the quota, writes the
//! fence, counts the objects, and replaces the quota that it has read. A write reads the fence before it is charged. If its charge is in
//! the quota that was read, its fence is older than the one that was written: the write is stored before the count, or never. If not,
//! the quota has changed, and the count is not used.
//!
//! This needs no assumption about time: it also holds for a request that etcd executes long after the server has given it up.

use std::time::Duration;

use admission::WriteFence;
use api::Status;
use catalog::encode;
use catalog::keys::ServerKey;
use runtime::LogLimit;
use storage::{CommitError, Expect, Record, Store};
use value::{Map, Value};

use crate::write;

/// A fence that is not written again expires, so that none is left of a deleted namespace. A write whose fence has expired is refused,
/// because revisions are not used twice.
const LIFETIME: Duration = Duration::from_hours(24);

/// The fence of a namespace from memory; it is created if memory has none. If memory is behind, a write may be refused that need not be.
pub(super) async fn current(store: &Store, namespace: &str) -> Result<WriteFence, Status> {
    let key = key_of(namespace)?;
    let revision = match store.get(key.as_str()) {
        Some(entry) => entry.revision,
        None => match put(store, &key, Expect::Absent).await {
            Ok(revision) => revision,
            // Another server was first; memory has its fence now.
            Err(CommitError::Conflict { current: Some(entry) }) => entry.revision,
            Err(error) => return Err(failed(&error)),
        },
    };
    Ok(WriteFence { key: key.as_str().into(), revision })
}

/// Changes the fence: from then on, writes that read it before are refused. Those that were stored earlier can be counted when this returns.
pub(super) async fn advance(store: &Store, namespace: &str) -> Result<(), Status> {
    let key = key_of(namespace)?;
    put(store, &key, Expect::Any).await.map(drop).map_err(|error| failed(&error))
}

async fn put(store: &Store, key: &ServerKey, expect: Expect) -> Result<u64, CommitError> {
    let entry = write::put_server_data(store, key, expect, record(), Some(LIFETIME)).await?;
    Ok(entry.revision)
}

/// Only the revision of the key counts.
fn record() -> Record {
    let object = Value::map([("metadata", Value::Map(Map::new()))]);
    encode::record(&encode::head("v1", "ConfigMap"), &object, Vec::new())
}

fn key_of(namespace: &str) -> Result<ServerKey, Status> {
    ServerKey::quota_fence(namespace).ok_or_else(|| Status::internal("the namespace has no quota fence"))
}

fn failed(error: &CommitError) -> Status {
    static LOG: LogLimit = LogLimit::new();
    if let Some(unlogged) = LOG.due() {
        tracing::warn!(%error, unlogged, "cannot write the fence of the quotas of a namespace");
    }
    Status::unavailable("the quotas of the namespace cannot be charged now; try again")
}
