//! EventRateLimit: how many events may be written, in all, by namespace, by user, and by source and object. Off unless a flag names it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::field::aggregate;
use api::{FieldError, Status};
use value::{Path, Str, Value};

use crate::configuration::document::Document;
use crate::{Attributes, Cluster, Notes, Operation, Plugin};

const GROUP: &str = "eventratelimit.admission.k8s.io";
/// Where Go's scheme of this kind is declared; part of its message.
const SCHEME: &str = "k8s.io/kubernetes/plugin/pkg/admission/eventratelimit/config.go:31";
/// How many buckets are kept unless the configuration says otherwise.
const DEFAULT_SIZE: usize = 4096;
/// The kinds of limits, as the configuration and messages spell them.
const TYPES: &[&str] = &["Namespace", "Server", "SourceAndObject", "User"];

/// The time since a moment that stays the same.
pub type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// One limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// `Server`, `Namespace`, `User` or `SourceAndObject`.
    pub kind: Str,
    /// How many events a second.
    pub qps: i32,
    /// How many at once.
    pub burst: i32,
    /// How many namespaces, users or objects are told apart.
    pub size: usize,
}

/// Reads the plugin's configuration. The error is the one that Kubernetes gives at the start.
pub fn limits(bytes: &[u8]) -> Result<Vec<Limit>, String> {
    const OWNER: &str = "Configuration";
    const LIMIT: &str = "Limit";
    let document = Document::read(bytes)?;
    document.is(GROUP, &["v1alpha1"], OWNER, SCHEME)?;
    let (root, mut fields) = document.fields();
    let mut read = Vec::new();
    for (index, limit) in fields.list(&root, OWNER, "limits", "[]v1alpha1.Limit").iter().enumerate() {
        let Value::Map(map) = limit else {
            fields.wrong(limit, OWNER, "", "limits", "v1alpha1.Limit");
            continue;
        };
        let kind = fields.text(map, LIMIT, "limits", "type");
        let [qps, burst, size] =
            ["qps", "burst", "cacheSize"].map(|name| fields.number(map, LIMIT, "limits", name, "int32"));
        fields.only(map, &format!("limits[{index}]"), &["burst", "cacheSize", "qps", "type"]);
        read.push((kind, qps, burst, size));
    }
    fields.only(&root, "", &["apiVersion", "kind", "limits"]);
    fields.finish()?;
    checked(&read)
}

/// Without a configuration there are no limits, and a plugin without limits is a mistake.
pub fn no_limits() -> Result<Vec<Limit>, String> {
    checked(&[])
}

fn checked(read: &[(Str, i64, i64, i64)]) -> Result<Vec<Limit>, String> {
    let at = Path::root().field("limits");
    let mut errors = Vec::new();
    if read.is_empty() {
        errors.push(FieldError::invalid(&at, Value::Null, "must not be empty"));
    }
    let mut limits = Vec::new();
    for (index, (kind, qps, burst, size)) in read.iter().enumerate() {
        let at = at.index(index);
        if !TYPES.contains(&kind.as_str()) {
            errors.push(FieldError::not_supported(&at.field("type"), kind.clone(), TYPES));
        }
        for (field, number) in [("burst", burst), ("qps", qps)] {
            if *number <= 0 {
                errors.push(FieldError::invalid(&at.field(field), *number, "must be positive"));
            }
        }
        if kind != "Server" && *size < 0 {
            errors.push(FieldError::invalid(&at.field("cacheSize"), *size, "must not be negative"));
        }
        limits.push(Limit {
            kind: kind.clone(),
            qps: i32::try_from(*qps).unwrap_or(i32::MAX),
            burst: i32::try_from(*burst).unwrap_or(i32::MAX),
            size: usize::try_from(*size).ok().filter(|size| *size > 0).unwrap_or(DEFAULT_SIZE),
        });
    }
    if errors.is_empty() { Ok(limits) } else { Err(aggregate(&errors)) }
}

/// See the module.
pub struct EventRateLimit {
    limits: Vec<(Limit, Mutex<Buckets>)>,
    clock: Clock,
}

impl EventRateLimit {
    /// With these limits.
    pub fn new(limits: &[Limit], clock: Clock) -> Self {
        let limits = limits.iter().map(|limit| (limit.clone(), Mutex::default())).collect();
        EventRateLimit { limits, clock }
    }
}

/// What is left for whom, the least recently used forgotten first.
#[derive(Default)]
struct Buckets {
    by_key: HashMap<Str, Bucket>,
    by_use: BTreeMap<u64, Str>,
    uses: u64,
}

struct Bucket {
    left: f64,
    at: Duration,
    used: u64,
}

impl Buckets {
    /// Takes one, if there is one.
    fn take(&mut self, key: Str, limit: &Limit, now: Duration) -> bool {
        self.uses += 1;
        let most = f64::from(limit.burst);
        let known = self.by_key.contains_key(&key);
        if !known
            && self.by_key.len() >= limit.size
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.by_key.remove(&oldest);
        }
        let bucket =
            self.by_key.entry(key.clone()).or_insert(Bucket { left: most, at: now, used: self.uses });
        if known {
            self.by_use.remove(&bucket.used);
            let since = now.saturating_sub(bucket.at).as_secs_f64();
            bucket.left = (bucket.left + since * f64::from(limit.qps)).min(most);
        }
        (bucket.at, bucket.used) = (now, self.uses);
        self.by_use.insert(self.uses, key);
        let there_is = bucket.left >= 1.0;
        if there_is {
            bucket.left -= 1.0;
        }
        there_is
    }
}

/// Whose bucket an event is taken from.
fn key(kind: &str, attributes: &Attributes<'_>, event: Option<&Value>) -> Str {
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
        attributes: &Attributes<'_>,
        event: Option<&Value>,
        _: &dyn Cluster,
        _: &mut Notes,
    ) -> Result<(), Status> {
        let written = matches!(attributes.operation, Operation::Create | Operation::Update);
        if !written || attributes.dry_run || !attributes.is_kind("", "Event") {
            return Ok(());
        }
        let now = (self.clock)();
        let mut reached = Vec::new();
        for (limit, buckets) in &self.limits {
            let key = key(&limit.kind, attributes, event);
            let mut buckets = buckets.lock().unwrap_or_else(PoisonError::into_inner);
            if !buckets.take(key.clone(), limit, now) {
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
