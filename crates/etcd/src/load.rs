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
use crate::messages::{KeyValue, RangeRequest, ResponseHeader};

/// Keys of the first page; each following page has twice as many, like kube-apiserver's.
const FIRST_PAGE: i64 = 500;
const LARGEST_PAGE: i64 = 10_000;

/// All records of the store at one revision.
pub(crate) struct Loaded {
    pub(crate) revision: u64,
    /// The header of the first answer.
    pub(crate) header: ResponseHeader,
    pub(crate) records: Vec<StoredRecord>,
}

/// Reads a range of keys at one revision, page by page in key order.
pub(crate) struct Pages {
    client: EtcdClient,
    /// The next page; `None` after the last one.
    next: Option<RangeRequest>,
    /// The keys that are read at most, without those of the pages before.
    left: i64,
    /// The header of the first answer; `None` before it.
    first: Option<ResponseHeader>,
    /// The number of keys in the range after the pages so far.
    remaining: u64,
}

impl Pages {
    /// All keys of the store at `revision`; 0 for the one that is current when the first page is read.
    pub(crate) fn new(client: EtcdClient, keys: &KeySpace, revision: i64) -> Pages {
        let directory = keys.directory();
        let range = RangeRequest {
            range_end: prefix_end(directory.as_bytes()),
            key: directory.into(),
            limit: i64::MAX,
            revision,
            ..RangeRequest::default()
        };
        Pages::of(client, range)
    }

    /// The keys of a range, at most as many as its limit.
    pub(crate) fn of(client: EtcdClient, range: RangeRequest) -> Pages {
        let left = range.limit;
        let next = RangeRequest { limit: left.min(FIRST_PAGE), ..range };
        Pages { client, next: Some(next), left, first: None, remaining: 0 }
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
        let first = *self.first.get_or_insert(page.header.unwrap_or_default());
        if request.revision == 0 {
            request.revision = first.revision;
        }
        let count = i64::try_from(page.kvs.len()).unwrap_or(i64::MAX);
        self.left = self.left.saturating_sub(count);
        self.remaining = u64::try_from(page.count.saturating_sub(count)).unwrap_or_default();
        if let Some(last) = page.kvs.last().filter(|_| page.more && self.left > 0) {
            request.key = after(&last.key);
            request.limit = request.limit.saturating_mul(2).min(LARGEST_PAGE).min(self.left);
            self.next = Some(request);
        }
        Ok(Some(page.kvs))
    }

    /// The number of keys in the range after the pages so far.
    pub(crate) fn remaining(&self) -> u64 {
        self.remaining
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
    let header = pages.first.unwrap_or_default();
    Ok(Loaded { revision: u64::try_from(header.revision).unwrap_or_default(), header, records })
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
