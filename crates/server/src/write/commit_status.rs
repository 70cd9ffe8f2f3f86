//! The answers to writes that the store refuses or does not confirm.

use api::{GroupResource, Status};
use runtime::LogLimit;
use storage::CommitError;

/// kube-apiserver's message for a conflict of `resourceVersion`.
pub const OPTIMISTIC_LOCK: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// Logs a failure of the store, which any client can cause with any write while it lasts.
fn log_failure(error: &CommitError, resource: &GroupResource, name: &str, effect: &str) {
    static LOG: LogLimit = LogLimit::with_burst(20);
    if let Some(unlogged) = LOG.due() {
        tracing::error!(%error, %resource, name, unlogged, "{effect}. Check the storage backend");
    }
}

pub(super) fn commit_status(error: &CommitError, resource: &GroupResource, name: &str) -> Status {
    match error {
        CommitError::Conflict { .. } | CommitError::Fenced => {
            Status::conflict(resource, name, OPTIMISTIC_LOCK)
        }
        CommitError::TooLarge { limit, .. } => Status::too_large(format!("limit is {limit}")),
        CommitError::Invalid(why) => Status::bad_request(why.clone()),
        // Begins with etcd's message, which clients and operators recognize, and adds the remedy.
        CommitError::OverQuota { live, quota } => Status::plain(format!(
            "etcdserver: mvcc: database space exceeded: the store holds {live} bytes of objects and its quota is {quota}; delete objects or raise --quota-backend-bytes"
        )),
        CommitError::Unavailable(_) | CommitError::Closed => {
            log_failure(error, resource, name, "cannot store a write; the object is unchanged");
            match error {
                // As kube-apiserver: the client gets etcd's message, such as that etcd is full. Other reasons are for the log only.
                CommitError::Unavailable(why) if why.starts_with("etcdserver: ") => {
                    Status::plain(why.clone())
                }
                _ => Status::internal("the store cannot write; nothing was changed"),
            }
        }
        // As kube-apiserver: the client gets etcd's message and cannot know whether the write happened.
        CommitError::Unknown(why) => {
            log_failure(
                error,
                resource,
                name,
                "the store did not confirm a write; the object may have changed",
            );
            Status::plain(why.clone())
        }
        CommitError::TimedOut(_) => {
            log_failure(
                error,
                resource,
                name,
                "the store did not confirm a write in time; the object may have changed",
            );
            Status::timeout(
                "request did not complete within requested timeout - context deadline exceeded",
                0,
            )
        }
    }
}

#[cfg(test)]
mod tests;
