//! Commits: sends the transactions of writes and interprets the answers.

use std::sync::Arc;
use std::time::Duration;

use grpc::{GrpcCode, GrpcStatus};
use storage::backend::{CommitFailure, Feed, OwnWrite, Unavailable, WriteDecision};
use storage::{Change, Expect, Fence, Write};

use crate::backend::EtcdBackend;
use crate::lineage::{Continuity, ExpectedLineage};
use crate::messages::{
    Compare, DeleteRangeRequest, PutRequest, RangeRequest, Request, Response, ResponseHeader, TxnRequest,
    TxnResponse,
};

/// How long a refused write waits for the watch to report the change that made it fail.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(10);

impl EtcdBackend {
    pub(super) async fn decide(
        &self,
        write: Write,
        fences: Vec<Fence>,
    ) -> Result<WriteDecision, CommitFailure> {
        let feed = self.running(|running| running.feed.clone())?;
        let fences = if fences.is_empty() || self.has_fences().await? { fences } else { Vec::new() };
        loop {
            let expected = match write.expect {
                Expect::Absent => 0,
                Expect::Revision(revision) => revision,
                Expect::Any => feed.revisions(&write.key).map_or(0, |current| current.revision),
            };
            let before = feed.entry(&write.key);
            if expected == 0 && write.change == Change::Delete {
                return Ok(WriteDecision::Refused { at: feed.revision() });
            }
            let lease = self.lease(&write).await?;
            let request = self.transaction(&write, expected, lease, &fences)?;
            let continued = self.lineage.expected(|| feed.revision());
            let answer = match self.client.txn(&request).await {
                Ok(answer) => answer,
                Err(status) => {
                    if status.code == GrpcCode::NotFound {
                        self.leases.forget();
                    }
                    return Err(failure(status));
                }
            };
            let header = answer.header.unwrap_or_default();
            if answer.succeeded {
                // Of replaced data, memory may have another change at this revision.
                self.check_continuity(continued, &header)
                    .map_err(|Unavailable(why)| CommitFailure::Unknown(why))?;
                let revision = u64::try_from(header.revision).unwrap_or_default();
                let (key, change) = (Arc::clone(&write.key), write.change);
                return feed.committed(OwnWrite { key, change, revision, replaced: expected, before }).await;
            }
            if !fences.is_empty() && found(&answer) == expected {
                self.check_continuity(continued, &header)?;
                return Ok(WriteDecision::Fenced);
            }
            let at = self.refused(&feed, &write.key, expected, continued, &header).await?;
            if write.expect != Expect::Any {
                return Ok(WriteDecision::Refused { at });
            }
        }
    }

    /// Waits until memory shows why a transaction that expected the key at this revision was refused; returns the revision that memory
    /// has reached. kine answers a refused transaction with a revision that can be older than the change that made it fail, and older
    /// than its earlier answers. So if the answer does not explain the refusal, the current revision decides.
    async fn refused(
        &self,
        feed: &Feed,
        key: &str,
        expected: u64,
        continued: ExpectedLineage,
        header: &ResponseHeader,
    ) -> Result<u64, CommitFailure> {
        if !matches!(self.lineage.check(continued, header), Continuity::Replaced(_)) {
            let at = u64::try_from(header.revision).unwrap_or_default();
            reach(feed, at).await?;
            if feed.revisions(key).map_or(0, |current| current.revision) != expected {
                return Ok(at);
            }
        }
        let at = self.current().await?;
        reach(feed, at).await?;
        Ok(at)
    }

    /// True if the service compares several keys in one transaction. etcd does; kine accepts only the forms that kube-apiserver sends.
    async fn has_fences(&self) -> Result<bool, CommitFailure> {
        let ask = async || {
            let compare = || Compare::mod_revision(self.keys.health(), 0);
            let request = TxnRequest { compare: vec![compare(), compare()], ..TxnRequest::default() };
            match self.client.txn(&request).await {
                Ok(_) => Ok(true),
                Err(status) if is_unsupported(&status) => {
                    tracing::warn!(
                        reason = %status.message,
                        "this service refuses transactions that compare two keys, which etcd executes; a ResourceQuota can be exceeded by a write that the service executes seconds after it was sent, and an object can be created in a namespace that is deleted at the same moment"
                    );
                    Ok(false)
                }
                Err(status) => Err(CommitFailure::NotStored(status.message)),
            }
        };
        self.has_fences.get_or_try_init(ask).await.copied()
    }

    /// The transaction that kube-apiserver sends for this write: a create has no alternative, the others read the key if they fail. A
    /// write with fences also compares those, and always reads the key if it fails, to know why.
    fn transaction(
        &self,
        write: &Write,
        expected: u64,
        lease: i64,
        fences: &[Fence],
    ) -> Result<TxnRequest, CommitFailure> {
        let key = self.keys.etcd_key(&write.key);
        let change = match &write.change {
            Change::Put(record) => {
                let value = match expected {
                    0 => self.codec.encode_new(&write.key, record),
                    _ => self.codec.encode(&write.key, record),
                };
                let value = value.map_err(CommitFailure::NotStored)?;
                Request::Put(PutRequest { key: key.clone(), value, lease })
            }
            Change::Delete => Request::DeleteRange(DeleteRangeRequest { key: key.clone() }),
        };
        let current = Request::Range(RangeRequest { key: key.clone(), ..RangeRequest::default() });
        let of_revision = |revision: u64| i64::try_from(revision).unwrap_or(i64::MAX);
        let compare = vec![Compare::mod_revision(key, of_revision(expected))];
        #[cfg(feature = "planted-bugs")]
        let compare = if expected != 0 && crate::planted::is_planted(crate::planted::STALE_COMPARE) {
            Vec::new()
        } else {
            compare
        };
        let of_fence = |fence: &Fence| {
            Compare::mod_revision(self.keys.etcd_key(&fence.key), of_revision(fence.revision))
        };
        Ok(TxnRequest {
            compare: compare.into_iter().chain(fences.iter().map(of_fence)).collect(),
            success: vec![change.into()],
            failure: if expected == 0 && fences.is_empty() { Vec::new() } else { vec![current.into()] },
        })
    }

    /// The lease of a write with a time to live; 0, which is none, for others.
    async fn lease(&self, write: &Write) -> Result<i64, CommitFailure> {
        let Some(ttl) = write.ttl.filter(|_| write.change != Change::Delete) else { return Ok(0) };
        #[cfg(feature = "planted-bugs")]
        if crate::planted::is_planted(crate::planted::LOST_LEASE) {
            return Ok(0);
        }
        let granted = self.leases.lease(ttl).await;
        granted.map_err(|status| CommitFailure::NotStored(status.message))
    }
}

/// The revision of the key that a refused transaction has read; zero if the key does not exist.
fn found(answer: &TxnResponse) -> u64 {
    let read = answer.responses.first().and_then(|read| read.response.as_ref());
    let Some(Response::Range(range)) = read else { return 0 };
    range.kvs.first().map_or(0, |kv| u64::try_from(kv.mod_revision).unwrap_or_default())
}

/// The service does not know this form of a transaction.
fn is_unsupported(status: &GrpcStatus) -> bool {
    let is_named = status.message.contains("unsupported") || status.message.contains("not supported");
    match status.code {
        GrpcCode::Unimplemented => true,
        GrpcCode::InvalidArgument | GrpcCode::Unknown => is_named,
        _ => false,
    }
}

/// Waits until memory has the revision at which a write was refused.
async fn reach(feed: &Feed, revision: u64) -> Result<(), CommitFailure> {
    tokio::time::timeout(REFUSAL_TIMEOUT, feed.reached(revision)).await.map_err(|_| {
        CommitFailure::NotStored("etcd refused the write, and its watch does not report why".to_owned())
    })
}

/// The failure of a transaction. etcd answers some requests with a code that says it did not execute them; after others, such as a
/// timeout, the write may still happen.
fn failure(status: GrpcStatus) -> CommitFailure {
    let is_refused = matches!(
        status.code,
        GrpcCode::InvalidArgument
            | GrpcCode::NotFound
            | GrpcCode::PermissionDenied
            | GrpcCode::ResourceExhausted
            | GrpcCode::FailedPrecondition
            | GrpcCode::OutOfRange
            | GrpcCode::Unimplemented
            | GrpcCode::Unauthenticated
    );
    if is_refused || !status.may_have_run {
        CommitFailure::NotStored(status.message)
    } else if status.code == GrpcCode::DeadlineExceeded {
        CommitFailure::TimedOut(status.message)
    } else {
        CommitFailure::Unknown(status.message)
    }
}
