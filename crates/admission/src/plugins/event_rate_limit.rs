//! EventRateLimit: limits the rate of events for the whole server, by namespace, by user, and by source and
//! object. Off by default.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::field::aggregate;
use api::{FieldError, Status};
use value::{LruCache, Path, Str, TokenBucket, Value};

use crate::configuration::document::ConfigDocument;
use crate::{AdmissionAttributes, AdmissionNotes, ClusterView, Plugin};

const GROUP: &str = "eventratelimit.admission.k8s.io";
/// The location of Go's scheme for this kind, which is part of its error messages.
const SCHEME: &str = "k8s.io/kubernetes/plugin/pkg/admission/eventratelimit/config.go:31";
/// The default of `cacheSize`.
const DEFAULT_SIZE: usize = 4096;
/// The limit types, in the order in which messages list them.
const TYPES: &[&str] = &["Namespace", "Server", "SourceAndObject", "User"];

/// Monotonic time since an arbitrary but fixed point.
pub type MonotonicClock = Arc<dyn Fn() -> Duration + Send + Sync>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventLimit {
    /// One of `Server`, `Namespace`, `User` and `SourceAndObject`.
    pub kind: Str,
    /// Permitted events per second.
    pub qps: i32,
    pub burst: i32,
    /// How many keys (namespaces, users or objects) are tracked.
    pub size: usize,
}

/// Parses the plugin's configuration. The error is kube-apiserver's.
pub fn limits(bytes: &[u8]) -> Result<Vec<EventLimit>, String> {
    const OWNER: &str = "Configuration";
    const LIMIT: &str = "Limit";
    let document = ConfigDocument::read(bytes)?;
    document.expect_kind(GROUP, &["v1alpha1"], OWNER, SCHEME)?;
    let (root, mut fields) = document.fields();
    let mut read = Vec::new();
    for (index, limit) in fields.list(&root, OWNER, "limits", "[]v1alpha1.Limit").iter().enumerate() {
        let Value::Map(map) = limit else {
            fields.type_mismatch(limit, OWNER, "", "limits", "v1alpha1.Limit");
            continue;
        };
        let kind = fields.text(map, LIMIT, "limits", "type");
        let [qps, burst, size] =
            ["qps", "burst", "cacheSize"].map(|name| fields.number(map, LIMIT, "limits", name, "int32"));
        fields.reject_unknown(map, &format!("limits[{index}]"), &["burst", "cacheSize", "qps", "type"]);
        read.push((kind, qps, burst, size));
    }
    fields.reject_unknown(&root, "", &["apiVersion", "kind", "limits"]);
    fields.finish()?;
    validate_limits(&read)
}

/// The result without a configuration: an error, because the plugin needs at least one limit.
pub fn limits_without_configuration() -> Result<Vec<EventLimit>, String> {
    validate_limits(&[])
}

fn validate_limits(read: &[(Str, i64, i64, i64)]) -> Result<Vec<EventLimit>, String> {
    let updated = Path::root().field("limits");
    let mut errors = Vec::new();
    if read.is_empty() {
        errors.push(FieldError::invalid(&updated, Value::Null, "must not be empty"));
    }
    let mut limits = Vec::new();
    for (index, (kind, qps, burst, size)) in read.iter().enumerate() {
        let updated = updated.index(index);
        if !TYPES.contains(&kind.as_str()) {
            errors.push(FieldError::not_supported(&updated.field("type"), kind.clone(), TYPES));
        }
        for (field, number) in [("burst", burst), ("qps", qps)] {
            if *number <= 0 {
                errors.push(FieldError::invalid(&updated.field(field), *number, "must be positive"));
            }
        }
        if kind != "Server" && *size < 0 {
            errors.push(FieldError::invalid(&updated.field("cacheSize"), *size, "must not be negative"));
        }
        limits.push(EventLimit {
            kind: kind.clone(),
            qps: i32::try_from(*qps).unwrap_or(i32::MAX),
            burst: i32::try_from(*burst).unwrap_or(i32::MAX),
            size: usize::try_from(*size).ok().filter(|size| *size > 0).unwrap_or(DEFAULT_SIZE),
        });
    }
    if errors.is_empty() { Ok(limits) } else { Err(aggregate(&errors)) }
}

/// The token buckets of one limit by key. The least recently used is evicted first.
type TokenBuckets = LruCache<Str, TokenBucket>;

pub struct EventRateLimit {
    limits: Vec<(EventLimit, Mutex<TokenBuckets>)>,
    clock: MonotonicClock,
}

impl EventRateLimit {
    pub fn new(limits: &[EventLimit], clock: MonotonicClock) -> Self {
        let buckets = |limit: &EventLimit| Mutex::new(LruCache::of_entries(limit.size));
        let limits = limits.iter().map(|limit| (limit.clone(), buckets(limit))).collect();
        EventRateLimit { limits, clock }
    }
}

/// Takes a token from the bucket of a key. Returns false if the bucket is empty.
fn take(buckets: &mut TokenBuckets, key: Str, limit: &EventLimit, now: Duration) -> bool {
    if let Some(bucket) = buckets.get(&key) {
        return bucket.take(now);
    }
    let burst = u32::try_from(limit.burst).unwrap_or_default();
    let mut bucket = TokenBucket::new(f64::from(limit.qps), burst, now);
    let is_taken = bucket.take(now);
    buckets.insert(key, bucket);
    is_taken
}

/// The key of the bucket that an event counts against.
fn key(kind: &str, attributes: &AdmissionAttributes<'_>, event: Option<&Value>) -> Str {
    match kind {
        "Namespace" => attributes.namespace.clone(),
        "User" => attributes.user.name.clone(),
        "SourceAndObject" => {
            let text = |keys: &[&str]| event.and_then(|event| event.str_at(keys)).unwrap_or_default();
            let source = ["component", "host"].map(|field| text(&["source", field]));
            let object = ["kind", "namespace", "name", "uid", "apiVersion"];
            let object = object.map(|field| text(&["involvedObject", field]));
            [source.concat(), object.concat()].concat().into()
        }
        _ => Str::default(),
    }
}

impl Plugin for EventRateLimit {
    fn validate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        event: Option<&Value>,
        _: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        if !attributes.operation.is_write() || attributes.dry_run || !attributes.is_kind("", "Event") {
            return Ok(());
        }
        let now = (self.clock)();
        let mut reached = Vec::new();
        for (limit, buckets) in &self.limits {
            let key = key(&limit.kind, attributes, event);
            let mut buckets = buckets.lock().unwrap_or_else(PoisonError::into_inner);
            if !take(&mut buckets, key.clone(), limit, now) {
                reached.push(format!("limit reached on type {} for key {key}", limit.kind));
            }
        }
        if reached.is_empty() {
            return Ok(());
        }
        let status = Status::plain(format!("Too many requests: {}", aggregate(reached)));
        Err(status.with_code(429).with_reason("TooManyRequests"))
    }
}

impl std::fmt::Debug for EventRateLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.limits.iter().map(|(limit, _)| limit)).finish()
    }
}

#[cfg(test)]
mod tests;
