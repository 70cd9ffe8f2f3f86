//! Reads etcd's current revision for consistent reads, one call for all readers that arrive together.

use bytes::Bytes;
use grpc::GrpcStatus;
use tokio::sync::{mpsc, oneshot};

use crate::client::EtcdClient;
use crate::messages::ResponseHeader;

type Waiting = oneshot::Sender<Result<ResponseHeader, GrpcStatus>>;

/// Readers that may wait for one call before further ones wait to enqueue.
const MAX_WAITING: usize = 10_000;

/// Hands out revisions that were current when, or after, they were asked for.
#[derive(Clone, Debug)]
pub(crate) struct CurrentRevision {
    readers: mpsc::Sender<Waiting>,
}

impl CurrentRevision {
    /// Starts a task that ends when all clones are dropped. `key` is any key; it need not exist.
    pub(crate) fn start(client: EtcdClient, key: Bytes) -> Self {
        let (readers, mut waiting) = mpsc::channel(MAX_WAITING);
        tokio::spawn(async move {
            let mut together: Vec<Waiting> = Vec::new();
            // Readers that arrive during a call wait for the next one: the answer may be older than their arrival.
            while waiting.recv_many(&mut together, MAX_WAITING).await > 0 {
                let read = client.current(&key).await;
                for reader in together.drain(..) {
                    // A reader that is gone needs no answer.
                    let _ = reader.send(read.clone());
                }
            }
        });
        CurrentRevision { readers }
    }

    pub(crate) async fn read(&self) -> Result<ResponseHeader, GrpcStatus> {
        let (reader, answer) = oneshot::channel();
        let stopped = || GrpcStatus::not_sent("the store is closed");
        self.readers.send(reader).await.map_err(|_| stopped())?;
        answer.await.unwrap_or_else(|_| Err(stopped()))
    }
}
