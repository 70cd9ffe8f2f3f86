//! Reports of calls, events and leases, for metrics.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use grpc::GrpcStatus;
use tokio::time::Instant;

use crate::key_space::KeySpace;
use crate::messages::{CompareWith, Request, TxnRequest};

/// Receives reports of what a backend does. Keys are those of the store; operations have the names of kube-apiserver's metrics.
pub trait EtcdObserver: Send + Sync + 'static {
    /// A call has ended. A transaction that is refused counts as a success.
    fn request(&self, operation: &'static str, key: &str, is_success: bool, took: Duration);

    /// The watch has received a change of this key.
    fn event(&self, key: &str);

    /// The watch has received a progress notification.
    fn bookmark(&self);

    /// Called when a lease gets no further keys; `keys` is the number of writes that have used it.
    fn lease(&self, keys: u32);
}

/// Ignores all reports, for users of the backend without metrics.
impl EtcdObserver for () {
    fn request(&self, _: &'static str, _: &str, _: bool, _: Duration) {}
    fn event(&self, _: &str) {}
    fn bookmark(&self) {}
    fn lease(&self, _: u32) {}
}

/// Reports the calls of one client. Calls about keys outside of the store are not reported.
#[derive(Clone)]
pub(crate) struct ObservedCalls {
    keys: KeySpace,
    observer: Arc<dyn EtcdObserver>,
}

impl fmt::Debug for ObservedCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObservedCalls").field("keys", &self.keys).finish_non_exhaustive()
    }
}

impl ObservedCalls {
    pub(crate) fn new(keys: KeySpace, observer: Arc<dyn EtcdObserver>) -> ObservedCalls {
        ObservedCalls { keys, observer }
    }

    pub(crate) fn report<T>(
        &self,
        operation: &'static str,
        key: &[u8],
        began: Instant,
        outcome: &Result<T, GrpcStatus>,
    ) {
        if let Some(key) = self.keys.store_key(key) {
            self.observer.request(operation, &key, outcome.is_ok(), began.elapsed());
        }
    }
}

/// True if the transaction is executed only while the key does not exist.
fn expects_absence(request: &TxnRequest, key: &[u8]) -> bool {
    let of_key = request.compare.iter().find(|compare| compare.key == key);
    of_key.is_some_and(|compare| compare.with == Some(CompareWith::ModRevision(0)))
}

/// The operation of a transaction that changes one key, and the key.
pub(crate) fn operation(request: &TxnRequest) -> Option<(&'static str, &[u8])> {
    match request.success.first()?.request.as_ref()? {
        Request::Put(put) if expects_absence(request, &put.key) => Some(("create", &put.key)),
        Request::Put(put) => Some(("update", &put.key)),
        Request::DeleteRange(deletion) => Some(("delete", &deletion.key)),
        Request::Range(_) => None,
    }
}
