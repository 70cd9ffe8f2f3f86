//! The recorded requests of the clients with their answers, and the changes that etcd stored.
//!
//! Times are microseconds since the start of the run. Objects are [`comparable`]: as etcd stores them and as the API returns them, they
//! are equal if they have the same content.

use serde::Serialize;
use serde_json::{Map, Value};

/// The annotation with the number of the write that an object was last changed by. Every write has a number of its own.
pub const WRITE_ANNOTATION: &str = "torture.test/write";

/// Keys whose last part begins so belong to the workload: only its operations change them.
pub const OWNED_PREFIX: &str = "t-";

/// Everything that was recorded in one run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RunHistory {
    /// All changes of all keys, in the order of their revisions, from the first revision on.
    pub changes: Vec<EtcdChange>,
    pub operations: Vec<ClientOperation>,
    pub streams: Vec<WatchStream>,
    pub limits: Limits,
}

/// The limits that no state in etcd may exceed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Limits {
    /// Numbers of live keys below a prefix (`hard` of a ResourceQuota).
    pub quotas: Vec<QuotaLimit>,
    /// A key in `data` that the static policy forbids.
    pub forbidden_data: Option<String>,
    /// Keys below these prefixes must expire: they need a lease.
    pub leased_prefixes: Vec<String>,
    /// Keys that have to be gone at a time.
    pub expirations: Vec<Expiration>,
}

/// At most `hard` keys below `prefix` may exist from revision `since` on.
#[derive(Clone, Debug, Serialize)]
pub struct QuotaLimit {
    pub prefix: String,
    pub hard: usize,
    pub since: u64,
}

/// The key, which a server refreshed that has ended, must not exist at this time.
#[derive(Clone, Debug, Serialize)]
pub struct Expiration {
    pub key: String,
    pub gone_by: u64,
}

/// A change of a key, as etcd reported it.
#[derive(Clone, Debug, Serialize)]
pub struct EtcdChange {
    pub revision: u64,
    pub key: String,
    /// The object; `None` for a deletion. Values that cannot be decoded are null.
    pub object: Option<Value>,
    /// The lease that the key was written with; 0 for none.
    pub lease: i64,
    /// When it was recorded.
    pub at: u64,
}

/// An object with its `resourceVersion`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SeenObject {
    pub revision: u64,
    pub object: Value,
}

/// One request of a client and its answer.
#[derive(Clone, Debug, Serialize)]
pub struct ClientOperation {
    pub client: usize,
    pub server: usize,
    pub start: u64,
    pub end: u64,
    pub request: ClientRequest,
    pub outcome: Outcome,
}

#[derive(Clone, Debug, Serialize)]
pub enum ClientRequest {
    Create {
        key: String,
        write: u64,
        object: Value,
    },
    /// PUT with the `resourceVersion` `base`.
    Update {
        key: String,
        write: u64,
        base: u64,
        object: Value,
    },
    /// A JSON merge patch without a `resourceVersion`.
    Patch {
        key: String,
        write: u64,
        patch: Value,
    },
    /// DELETE, with the precondition `base` if there is one.
    Delete {
        key: String,
        base: Option<u64>,
    },
    Get {
        key: String,
        at: ReadAt,
    },
    List {
        prefix: String,
        at: ReadAt,
        /// The `limit` of each page; 0 for one page.
        limit: usize,
    },
}

/// The state that a read asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ReadAt {
    /// Without a `resourceVersion`: with all acknowledged writes.
    Latest,
    /// With `resourceVersion=0`: any state that existed.
    Any,
    /// `resourceVersion=X`: this one or a newer one.
    NotOlderThan(u64),
}

#[derive(Clone, Debug, Serialize)]
pub enum Outcome {
    /// A write was acknowledged with this object.
    Stored(SeenObject),
    /// A deletion of the object with this UID was acknowledged.
    Deleted { uid: String },
    /// A GET returned this object, or 404.
    Object(Option<SeenObject>),
    /// A LIST returned these objects, by key; all pages together.
    Listed { revision: u64, items: Vec<(String, SeenObject)> },
    /// The server refused the request: it has no effect.
    Refused { code: u16, reason: String, message: String },
    /// No answer, or one that does not say whether the request had an effect.
    Unknown(String),
}

/// One watch request and everything that it returned.
#[derive(Clone, Debug, Serialize)]
pub struct WatchStream {
    pub client: usize,
    pub server: usize,
    pub start: u64,
    pub end: u64,
    pub prefix: String,
    pub from: WatchBegin,
    pub messages: Vec<WatchMessage>,
    /// How it ended, for reports.
    pub ending: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum WatchBegin {
    /// After this revision, which a list or another watch had reached.
    After { revision: u64, is_resumed: bool },
    /// With the objects of the newest state (`sendInitialEvents=true`).
    InitialEvents,
}

#[derive(Clone, Debug, Serialize)]
pub enum WatchMessage {
    Event { at: u64, kind: String, key: String, seen: SeenObject },
    Bookmark { revision: u64, is_initial_end: bool },
}

impl ClientRequest {
    /// The number of a write that stores an object.
    pub fn write(&self) -> Option<u64> {
        match self {
            ClientRequest::Create { write, .. }
            | ClientRequest::Update { write, .. }
            | ClientRequest::Patch { write, .. } => Some(*write),
            ClientRequest::Delete { .. } | ClientRequest::Get { .. } | ClientRequest::List { .. } => None,
        }
    }

    /// The key, or the prefix of a list.
    pub fn key(&self) -> &str {
        match self {
            ClientRequest::Create { key, .. }
            | ClientRequest::Update { key, .. }
            | ClientRequest::Patch { key, .. }
            | ClientRequest::Delete { key, .. }
            | ClientRequest::Get { key, .. } => key,
            ClientRequest::List { prefix, .. } => prefix,
        }
    }

    /// The verb, with the kind of state that a read asks for.
    pub fn verb(&self) -> &'static str {
        match self {
            ClientRequest::Create { .. } => "create",
            ClientRequest::Update { .. } => "update",
            ClientRequest::Patch { .. } => "patch",
            ClientRequest::Delete { .. } => "delete",
            ClientRequest::Get { at: ReadAt::Latest, .. } => "get",
            ClientRequest::Get { .. } => "get at a resourceVersion",
            ClientRequest::List { at: ReadAt::Latest, limit: 0, .. } => "list",
            ClientRequest::List { at: ReadAt::Latest, .. } => "list in pages",
            ClientRequest::List { .. } => "list at a resourceVersion",
        }
    }
}

impl SeenObject {
    /// Takes the revision out of an object that the API returned; `None` if it has none.
    pub fn parse(object: &Value) -> Option<SeenObject> {
        let revision = object.pointer("/metadata/resourceVersion")?.as_str()?.parse().ok()?;
        Some(SeenObject { revision, object: comparable(object.clone()) })
    }
}

/// The object without what differs between a stored object and an answer: the type, and the revision, which the API adds.
pub fn comparable(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
        // The largest part of an object, and of no interest here.
        metadata.remove("managedFields");
    }
    object
}

/// The number of the write that stored an object.
pub fn write_of(object: &Value) -> Option<u64> {
    object.get("metadata")?.get("annotations")?.get(WRITE_ANNOTATION)?.as_str()?.parse().ok()
}

pub fn uid_of(object: &Value) -> &str {
    object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default()
}

/// True if only operations of the workload change this key.
pub fn is_owned(key: &str) -> bool {
    key.rsplit('/').next().is_some_and(|name| name.starts_with(OWNED_PREFIX))
}

/// Applies a JSON merge patch (RFC 7386).
pub fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(fields) = target.as_object_mut() else { return };
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}
