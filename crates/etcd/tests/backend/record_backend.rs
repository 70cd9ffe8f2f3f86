//! Backends of an etcd process, which store records as they are.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use conformance::EtcdProcess;
use etcd::{EtcdBackend, EtcdConfig, ValueCodec};
use grpc::{ChannelConfig, GrpcEndpoint};
use storage::Record;

/// An etcd that has no data; `None` if tests with etcd are left out.
pub(crate) async fn start_etcd() -> Option<EtcdProcess> {
    EtcdProcess::start().await.unwrap()
}

/// A channel to the process.
pub(crate) fn channel_to(etcd: &EtcdProcess) -> ChannelConfig {
    ChannelConfig::new(vec![GrpcEndpoint::parse(&etcd.url, None).unwrap()])
}

pub(crate) fn backend_of(etcd: &EtcdProcess) -> EtcdBackend {
    EtcdBackend::new(config(channel_to(etcd)))
}

pub(crate) fn config(channel: ChannelConfig) -> EtcdConfig {
    EtcdConfig {
        channel,
        prefix: "/registry".to_owned(),
        store_root: "/registry".to_owned(),
        codec: Arc::new(RecordCodec),
        compaction_interval: Duration::ZERO,
        call_timeout: Duration::from_secs(10),
        lease_reuse: Duration::from_mins(1),
        observer: Arc::new(()),
    }
}

/// Stores records as they are: the offset of the revision, the length of the body, the body and the facts.
struct RecordCodec;

impl ValueCodec for RecordCodec {
    fn encode(&self, _: &str, record: &Record) -> Result<Bytes, String> {
        let mut value = BytesMut::new();
        value.put_u32(record.revision_at);
        value.put_u32(u32::try_from(record.body.len()).unwrap());
        value.put(record.body.clone());
        value.put(record.facts.clone());
        Ok(value.freeze())
    }

    fn decode(&self, _: &str, _: u64, value: &Bytes) -> Option<Record> {
        let mut value = value.clone();
        let revision_at = value.get_u32();
        let length = value.get_u32() as usize;
        let body = value.split_to(length);
        Some(Record { body, revision_at, facts: value })
    }
}
