//! Reads the objects of a store in the form in which they are compared: as a server that uses etcd has them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use catalog::encode;
use catalog::etcd_values::{KubernetesValues, resource_at};
use catalog::keys;
use etcd::{EtcdKeys, EtcdReader, EtcdValue, ValueCodec as _};
use storage::backend::StoredRecord;
use storage::embedded::ExpiringRecord;
use storage::{OpenError, Record};
use value::Value;

use super::{MigrateError, MigrationStep, now};

/// Left-out keys that are reported one by one.
const MAX_REPORTED: usize = 100;

/// An object of the source or the target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MigrationItem {
    pub(super) key: Arc<str>,
    pub(super) resource: String,
    pub(super) created: u64,
    pub(super) revision: u64,
    /// The record that a server which uses etcd has in memory.
    pub(super) record: Record,
    /// The value in etcd; empty if the source is etcd.
    pub(super) value: Bytes,
    /// When it expires, since the Unix epoch.
    pub(super) expires: Option<Duration>,
}

/// A key with which a server shows that it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServerLease {
    pub(super) key: Arc<str>,
    pub(super) lease: i64,
}

/// The store that objects are read from.
enum Entries<'a> {
    /// The embedded store as the source: objects are converted to values and back.
    Source(Box<dyn Iterator<Item = Result<ExpiringRecord, OpenError>> + 'a>),
    /// The embedded store as the target: its objects have the form already.
    Target(Box<dyn Iterator<Item = Result<ExpiringRecord, OpenError>> + 'a>),
    Etcd {
        keys: Box<EtcdKeys>,
        reader: Box<EtcdReader>,
        leases: HashMap<i64, Option<Duration>>,
    },
}

/// Reads all objects in key order.
pub(super) struct ItemReader<'a> {
    entries: Entries<'a>,
    codec: &'a KubernetesValues,
    leave_out_unknown: bool,
    /// The keys of servers, which are not items.
    pub(super) server_leases: Vec<ServerLease>,
    unknown: Vec<Arc<str>>,
}

impl<'a> ItemReader<'a> {
    pub(super) fn of_stopped(
        entries: impl Iterator<Item = Result<ExpiringRecord, OpenError>> + 'a,
        codec: &'a KubernetesValues,
        leave_out_unknown: bool,
    ) -> Self {
        ItemReader::new(Entries::Source(Box::new(entries)), codec, leave_out_unknown)
    }

    pub(super) fn of_import(
        entries: impl Iterator<Item = Result<ExpiringRecord, OpenError>> + 'a,
        codec: &'a KubernetesValues,
    ) -> Self {
        ItemReader::new(Entries::Target(Box::new(entries)), codec, false)
    }

    /// Reads the keys that etcd has at one revision.
    pub(super) fn of_etcd(
        keys: &EtcdKeys,
        revision: u64,
        codec: &'a KubernetesValues,
        leave_out_unknown: bool,
    ) -> Self {
        let (reader, keys) = (keys.read(revision), Box::new(keys.clone()));
        ItemReader::new(
            Entries::Etcd { keys, reader: Box::new(reader), leases: HashMap::new() },
            codec,
            leave_out_unknown,
        )
    }

    fn new(entries: Entries<'a>, codec: &'a KubernetesValues, leave_out_unknown: bool) -> Self {
        ItemReader { entries, codec, leave_out_unknown, server_leases: Vec::new(), unknown: Vec::new() }
    }

    /// The next object; `None` after the last. After [`MigrateError::Unreadable`] and [`MigrateError::UnknownKey`] it continues with
    /// the next key.
    pub(super) async fn next(&mut self) -> Result<Option<MigrationItem>, MigrateError> {
        loop {
            let (raw, lease) = match &mut self.entries {
                Entries::Source(entries) | Entries::Target(entries) => {
                    let Some(entry) = entries.next() else { return Ok(None) };
                    (RawEntry::Embedded(entry.map_err(MigrateError::Source)?), 0)
                }
                Entries::Etcd { reader, .. } => {
                    let Some(value) = reader.next().await? else { return Ok(None) };
                    let lease = value.lease;
                    (RawEntry::Etcd(value), lease)
                }
            };
            let key = Arc::clone(raw.key());
            if key.starts_with(keys::MASTER_LEASES) || key.starts_with(keys::PEER_LEASES) {
                self.server_leases.push(ServerLease { key, lease });
                continue;
            }
            // No write that reads one is under way, and the revisions of another store are others.
            if key.starts_with(keys::QUOTA_FENCES) {
                continue;
            }
            let Some(resource) = resource_at(&key) else {
                if !self.leave_out_unknown {
                    return Err(MigrateError::UnknownKey(key.to_string()));
                }
                self.unknown.push(key);
                continue;
            };
            let expires = match &mut self.entries {
                Entries::Etcd { keys, leases, .. } if lease != 0 => match leases.get(&lease) {
                    Some(known) => *known,
                    None => {
                        let left = keys.lease_time_to_live(lease).await?.map(Duration::from_secs);
                        // One that has ended is in the past.
                        let ends = Some(left.map_or(Duration::ZERO, |left| now() + left));
                        leases.insert(lease, ends);
                        ends
                    }
                },
                _ => raw.expires(),
            };
            return self.convert(raw, resource, expires).map(Some);
        }
    }

    fn convert(
        &self,
        raw: RawEntry,
        resource: String,
        expires: Option<Duration>,
    ) -> Result<MigrationItem, MigrateError> {
        let (stored, value) = match raw {
            RawEntry::Etcd(EtcdValue { key, created, revision, value, .. }) => {
                let record = self.decode(&key, revision, &value)?;
                (StoredRecord { key, created, revision, record }, Bytes::new())
            }
            RawEntry::Embedded(ExpiringRecord { stored, .. }) => {
                if matches!(self.entries, Entries::Target(_)) {
                    (stored, Bytes::new())
                } else {
                    let (record, value) = self.to_etcd(&stored)?;
                    (StoredRecord { record, ..stored }, value)
                }
            }
        };
        let StoredRecord { key, created, revision, record } = stored;
        Ok(MigrationItem { key, resource, created, revision, record, value, expires })
    }

    /// Decodes a value of etcd. Fails if its key is not one that this server serves.
    fn decode(&self, key: &Arc<str>, revision: u64, value: &Bytes) -> Result<Record, MigrateError> {
        let record = self.codec.decode(key, revision, value);
        let record = record.ok_or_else(|| MigrateError::UnknownKey(key.to_string()))?;
        parse(key, &record)?;
        Ok(record)
    }

    /// The value of a record in etcd, and the record that a server has of this value. Fails if a field would be lost.
    fn to_etcd(&self, stored: &StoredRecord) -> Result<(Record, Bytes), MigrateError> {
        let StoredRecord { key, revision, record, .. } = stored;
        let before = parse(key, record)?;
        let unreadable = |why: String| MigrateError::Unreadable { key: key.to_string(), why };
        let value = self.codec.encode(key, record).map_err(unreadable)?;
        let read_back = self.decode(key, *revision, &value)?;
        if let Some(path) = lost_field(&before, &parse(key, &read_back)?) {
            return Err(unreadable(format!("its field `{path}` has no place in etcd's encoding")));
        }
        Ok((read_back, value))
    }

    /// Reports the keys that are not copied.
    pub(super) fn report_left_out(&self, report: &mut dyn FnMut(MigrationStep)) {
        let unknown = self.unknown.iter().map(|key| (key, "its resource is not known"));
        let servers = self.server_leases.iter().map(|lease| (&lease.key, "the sign of a server"));
        for (key, why) in unknown.chain(servers).take(MAX_REPORTED) {
            report(MigrationStep::LeftOut { key: key.to_string(), why });
        }
        let more = (self.unknown.len() + self.server_leases.len()).saturating_sub(MAX_REPORTED);
        if more > 0 {
            report(MigrationStep::LeftOut { key: format!("{more} more keys"), why: "see above" });
        }
    }
}

enum RawEntry {
    Embedded(ExpiringRecord),
    Etcd(EtcdValue),
}

impl RawEntry {
    fn key(&self) -> &Arc<str> {
        match self {
            RawEntry::Embedded(entry) => &entry.stored.key,
            RawEntry::Etcd(value) => &value.key,
        }
    }

    fn expires(&self) -> Option<Duration> {
        match self {
            RawEntry::Embedded(entry) => entry.expires,
            RawEntry::Etcd(_) => None,
        }
    }
}

fn parse(key: &Arc<str>, record: &Record) -> Result<Value, MigrateError> {
    let unreadable = |status: api::Status| MigrateError::Unreadable {
        key: key.to_string(),
        why: status.message().to_owned(),
    };
    encode::parse_body(key, &record.body).map_err(unreadable)
}

/// The path of a field of `before` that `after` lacks or has with another value. Empty values may be missing: protobuf cannot express
/// them.
pub(super) fn lost_field(before: &Value, after: &Value) -> Option<String> {
    if let (Some(before), Some(after)) = (before.as_map(), after.as_map()) {
        return before.iter().find_map(|(name, value)| match after.get(name.as_str()) {
            Some(after) => lost_field(value, after).map(|path| joined(name.as_str(), &path)),
            None if is_empty(value) => None,
            None => Some(name.as_str().to_owned()),
        });
    }
    if let (Some(before), Some(after)) = (before.as_list(), after.as_list()) {
        if before.len() != after.len() {
            return Some(String::new());
        }
        let mut pairs = before.iter().zip(after).enumerate();
        return pairs.find_map(|(index, (before, after))| {
            lost_field(before, after).map(|path| joined(&format!("[{index}]"), &path))
        });
    }
    (before != after && !(is_empty(before) && is_empty(after))).then(String::new)
}

fn joined(name: &str, path: &str) -> String {
    match path {
        "" => name.to_owned(),
        path if path.starts_with('[') => format!("{name}{path}"),
        path => format!("{name}.{path}"),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) | Value::Int(0) => true,
        Value::Map(map) => map.is_empty(),
        Value::List(list) => list.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}
