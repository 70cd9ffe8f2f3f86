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

/// Reads all keys at one revision. Values are decoded on other threads while the next page is read.
pub(crate) async fn load(
    client: &EtcdClient,
    keys: &KeySpace,
    codec: &Arc<dyn ValueCodec>,
) -> Result<Loaded, GrpcStatus> {
    let directory = keys.directory();
    let mut request = RangeRequest {
        key: directory.clone().into(),
        range_end: prefix_end(directory.as_bytes()),
        limit: FIRST_PAGE,
        ..RangeRequest::default()
    };
    let mut decoding = JoinSet::new();
    loop {
        let page = match client.range(&request).await {
            Ok(page) => page,
            // The page is larger than a message may be.
            Err(status) if status.code == GrpcCode::ResourceExhausted && request.limit > 1 => {
                request.limit /= 2;
                continue;
            }
            Err(status) => return Err(status),
        };
        if request.revision == 0 {
            request.revision = page.header.unwrap_or_default().revision;
        }
        let last = page.kvs.last().map(|last| last.key.clone());
        let (keys, codec) = (keys.clone(), Arc::clone(codec));
        decoding.spawn_blocking(move || {
            page.kvs.iter().filter_map(|kv| stored_record(&keys, codec.as_ref(), kv)).collect::<Vec<_>>()
        });
        match last {
            Some(last) if page.more => {
                request.key = after(&last);
                request.limit = request.limit.saturating_mul(2).min(LARGEST_PAGE);
            }
            _ => break,
        }
    }
    let mut records = Vec::new();
    while let Some(decoded) = decoding.join_next().await {
        records.extend(decoded.map_err(|error| {
            GrpcStatus::new(GrpcCode::Internal, format!("a value cannot be decoded: {error}"))
        })?);
    }
    Ok(Loaded { revision: u64::try_from(request.revision).unwrap_or_default(), records })
}

/// The key that follows `key` immediately.
pub(crate) fn after(key: &[u8]) -> Bytes {
    [key, &[0]].concat().into()
}

/// The record of a key; `None` if the key does not belong to the store.
pub(crate) fn stored_record(keys: &KeySpace, codec: &dyn ValueCodec, kv: &KeyValue) -> Option<StoredRecord> {
    let key = keys.store_key(&kv.key)?;
    let record: Record = codec.decode(&key, &kv.value);
    Some(StoredRecord {
        revision: u64::try_from(kv.mod_revision).unwrap_or_default(),
        created: u64::try_from(kv.create_revision).unwrap_or_default(),
        key,
        record,
    })
}
