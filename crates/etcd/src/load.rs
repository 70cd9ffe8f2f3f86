//! Reads ranges of keys in pages.

use std::sync::Arc;

use bytes::Bytes;
use grpc::{GrpcCode, GrpcStatus};
use storage::Record;
use storage::backend::StoredRecord;
use tokio::task::JoinSet;

use crate::backend::ValueCodec;
use crate::client::{EtcdClient, prefix_end};
use crate::key_space::KeySpace;
use crate::messages::{KeyValue, RangeRequest};

/// Keys of the first page; each following page has twice as many, like kube-apiserver's.
const FIRST_PAGE: i64 = 500;
const LARGEST_PAGE: i64 = 10_000;

/// All records of the store at one revision.
pub(crate) struct Loaded {
    pub(crate) revision: u64,
    pub(crate) records: Vec<StoredRecord>,
}

/// Reads all keys of the store at one revision, page by page in key order.
pub(crate) struct Pages {
    client: EtcdClient,
    /// The next page; `None` after the last one.
    next: Option<RangeRequest>,
    /// The revision at which the pages are read; 0 before the first.
    revision: i64,
}

impl Pages {
    /// At `revision`; 0 for the one that is current when the first page is read.
    pub(crate) fn new(client: EtcdClient, keys: &KeySpace, revision: i64) -> Pages {
        let directory = keys.directory();
        let next = RangeRequest {
            range_end: prefix_end(directory.as_bytes()),
            key: directory.into(),
            limit: FIRST_PAGE,
            revision,
            ..RangeRequest::default()
        };
        Pages { client, next: Some(next), revision }
    }

    /// Leaves the values out.
    pub(crate) fn keys_only(mut self) -> Pages {
        if let Some(next) = &mut self.next {
            next.keys_only = true;
        }
        self
    }

    /// The next keys; `None` after the last page.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<KeyValue>>, GrpcStatus> {
        let Some(mut request) = self.next.take() else { return Ok(None) };
        let page = loop {
            match self.client.range(&request).await {
                Ok(page) => break page,
                // The page is larger than a message may be.
                Err(status) if status.code == GrpcCode::ResourceExhausted && request.limit > 1 => {
                    request.limit /= 2;
                }
                Err(status) => return Err(status),
            }
        };
        if self.revision == 0 {
            self.revision = page.header.unwrap_or_default().revision;
            request.revision = self.revision;
        }
        if let Some(last) = page.kvs.last().filter(|_| page.more) {
            request.key = after(&last.key);
            request.limit = request.limit.saturating_mul(2).min(LARGEST_PAGE);
            self.next = Some(request);
        }
        Ok(Some(page.kvs))
    }
}

/// Reads all keys at one revision. Values are decoded on other threads while the next page is read.
pub(crate) async fn load(
    client: &EtcdClient,
    keys: &KeySpace,
    codec: &Arc<dyn ValueCodec>,
) -> Result<Loaded, GrpcStatus> {
    let mut pages = Pages::new(client.clone(), keys, 0);
    let mut decoding = JoinSet::new();
    while let Some(page) = pages.next().await? {
        let (keys, codec) = (keys.clone(), Arc::clone(codec));
        decoding.spawn_blocking(move || {
            page.iter().filter_map(|kv| stored_record(&keys, codec.as_ref(), kv)).collect::<Vec<_>>()
        });
    }
    let mut records = Vec::new();
    while let Some(decoded) = decoding.join_next().await {
        records.extend(decoded.map_err(|error| {
            GrpcStatus::new(GrpcCode::Internal, format!("a value cannot be decoded: {error}"))
        })?);
    }
    Ok(Loaded { revision: u64::try_from(pages.revision).unwrap_or_default(), records })
}

/// The key that follows `key` immediately.
pub(crate) fn after(key: &[u8]) -> Bytes {
    [key, &[0]].concat().into()
}

/// The record of a key; `None` if the key does not belong to the store.
pub(crate) fn stored_record(keys: &KeySpace, codec: &dyn ValueCodec, kv: &KeyValue) -> Option<StoredRecord> {
    let key = keys.store_key(&kv.key)?;
    let revision = u64::try_from(kv.mod_revision).unwrap_or_default();
    let record: Record = codec.decode(&key, revision, &kv.value)?;
    Some(StoredRecord {
        revision,
        created: u64::try_from(kv.create_revision).unwrap_or_default(),
        key,
        record,
    })
}
