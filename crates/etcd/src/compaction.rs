//! Compacts old revisions, once per interval for all servers of the cluster, by kube-apiserver's protocol.
//!
//! The version of one key counts the rounds. The server that raises it compacts to the revision that was current a round ago; the others
//! learn the new count and try again after the interval.

use std::time::Duration;

use bytes::Bytes;
use grpc::GrpcStatus;

use crate::client::{EtcdClient, is_compacted};
use crate::messages::{Compare, PutRequest, RangeRequest, Request, Response, TxnRequest};

const ROUND_KEY: &[u8] = b"compact_rev_key";

/// The last round that this server has seen.
#[derive(Debug, Default)]
struct CompactionRound {
    /// The version of the key when this server last saw it.
    version: i64,
    /// The revision that was current then.
    revision: i64,
}

/// Compacts every `interval` until the task is aborted.
pub(crate) async fn run(client: EtcdClient, interval: Duration) {
    let mut round = CompactionRound::default();
    loop {
        tokio::time::sleep(interval).await;
        match round.next(&client).await {
            Ok(Some(revision)) => tracing::debug!(revision, "compacted etcd"),
            Ok(None) => {}
            Err(status) => {
                tracing::warn!(error = %status, "cannot compact etcd; retrying after the interval");
            }
        }
    }
}

impl CompactionRound {
    /// Tries to begin a round. Returns the revision to which it compacted, if this server began it and an earlier revision is known.
    async fn next(&mut self, client: &EtcdClient) -> Result<Option<i64>, GrpcStatus> {
        let key = Bytes::from_static(ROUND_KEY);
        let transaction = TxnRequest {
            compare: vec![Compare::version(key.clone(), self.version)],
            success: vec![
                Request::Put(PutRequest {
                    key: key.clone(),
                    value: self.revision.to_string().into(),
                    lease: 0,
                })
                .into(),
            ],
            failure: vec![Request::Range(RangeRequest { key, ..RangeRequest::default() }).into()],
        };
        let answer = client.txn(&transaction).await?;
        let current = answer.header.unwrap_or_default().revision;
        if !answer.succeeded {
            let seen = answer.responses.into_iter().find_map(|op| match op.response {
                Some(Response::Range(range)) => range.kvs.into_iter().next(),
                _ => None,
            });
            self.version = seen.map_or(0, |kv| kv.version);
            self.revision = current;
            return Ok(None);
        }
        self.version += 1;
        let before = std::mem::replace(&mut self.revision, current);
        if before == 0 {
            return Ok(None);
        }
        match client.compact(before).await {
            Ok(()) => Ok(Some(before)),
            // Another compaction, such as etcd's own, has gone further.
            Err(status) if is_compacted(&status) => Ok(None),
            Err(status) => Err(status),
        }
    }
}
