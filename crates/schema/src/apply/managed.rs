//! `metadata.managedFields`: the field managers of an object and the fields they own.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};

use api::time::Timestamp;
use value::{Str, Value};

use super::fields_v1;
use super::set::FieldSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ManagedFieldsOperation {
    /// Server-side apply: the manager owns the fields of its configuration.
    Apply,
    /// Any other write: the manager owns the fields it changed.
    Update,
}

impl ManagedFieldsOperation {
    fn as_str(self) -> &'static str {
        match self {
            ManagedFieldsOperation::Apply => "Apply",
            ManagedFieldsOperation::Update => "Update",
        }
    }
}

pub(super) type ManagerKey = (bool, Str, Str, Str);

/// Identity of a field manager. The API version is part of the identity for `Update` but not for `Apply`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manager {
    pub name: Str,
    pub operation: ManagedFieldsOperation,
    /// The API version in which its fields are named.
    pub api_version: Str,
    /// The subresource it wrote to; empty for the object itself.
    pub subresource: Str,
}

impl Manager {
    fn is(&self, other: &Manager) -> bool {
        self.operation == other.operation
            && self.name == other.name
            && self.subresource == other.subresource
            && (self.operation == ManagedFieldsOperation::Apply || self.api_version == other.api_version)
    }

    /// Equal for equal identities. An object has as many managers as a client sends, so those of two objects are matched by key.
    pub(super) fn key(&self) -> ManagerKey {
        let is_apply = self.operation == ManagedFieldsOperation::Apply;
        let version = if is_apply { Str::default() } else { self.api_version.clone() };
        (is_apply, self.name.clone(), self.subresource.clone(), version)
    }

    /// The text by which Kubernetes sorts managers.
    pub(super) fn identifier(&self) -> Vec<u8> {
        let mut out = b"{".to_vec();
        let mut field = |name: &str, value: &str| {
            if !value.is_empty() {
                out.extend_from_slice(if out.len() > 1 { b"," } else { b"" });
                value::write::string(&mut out, name);
                out.push(b':');
                value::write::string(&mut out, value);
            }
        };
        field("manager", &self.name);
        field("operation", self.operation.as_str());
        if self.operation == ManagedFieldsOperation::Update {
            field("apiVersion", &self.api_version);
        }
        field("subresource", &self.subresource);
        out.push(b'}');
        out
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedFieldsEntry {
    pub manager: Manager,
    /// Time of its last change, in seconds since the Unix epoch.
    pub time: Option<i64>,
    pub fields: FieldSet,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Managers {
    entries: Vec<ManagedFieldsEntry>,
}

impl Managers {
    /// Decodes `metadata.managedFields`. The error is Kubernetes' message.
    pub fn decode(list: &[Value]) -> Result<Self, String> {
        let mut entries: Vec<ManagedFieldsEntry> = Vec::with_capacity(list.len());
        let mut positions: HashMap<Vec<u8>, usize> = HashMap::with_capacity(list.len());
        for (at, entry) in list.iter().enumerate() {
            let text = |field: &str| entry.str_at(&[field]).unwrap_or_default();
            let operation = match text("operation") {
                "Apply" => ManagedFieldsOperation::Apply,
                "Update" => ManagedFieldsOperation::Update,
                _ => return Err("operation must be `Apply` or `Update`".to_owned()),
            };
            if text("apiVersion").is_empty() {
                return Err("apiVersion must not be empty".to_owned());
            }
            match text("fieldsType") {
                "FieldsV1" => {}
                "" => return Err(format!("missing fieldsType in managed fields entry {at}")),
                other => {
                    let quoted = api::field::quote(other);
                    return Err(format!("invalid fieldsType {quoted} in managed fields entry {at}"));
                }
            }
            let fields = match entry.get("fieldsV1") {
                None => FieldSet::EMPTY,
                Some(fields) => fields_v1::decode(fields).map_err(|why| {
                    format!("error decoding versioned set from managed fields entry {at}: error decoding set: {why}")
                })?,
            };
            let manager = Manager {
                name: text("manager").into(),
                operation,
                api_version: text("apiVersion").into(),
                subresource: text("subresource").into(),
            };
            let time = Timestamp::parse(text("time")).ok().map(|time| time.micros().div_euclid(1_000_000));
            // If several entries have the same identity, the last one wins.
            let position = *positions.entry(manager.identifier()).or_insert(entries.len());
            let entry = ManagedFieldsEntry { manager, time, fields };
            match entries.get_mut(position) {
                Some(there) => *there = entry,
                None => entries.push(entry),
            }
        }
        Ok(Managers { entries })
    }

    /// Encodes `metadata.managedFields`, sorted; `None` if there are no managers.
    pub fn encode(&self) -> Option<Value> {
        if self.entries.is_empty() {
            return None;
        }
        let mut sorted: Vec<&ManagedFieldsEntry> = self.entries.iter().collect();
        sorted.sort_by(|a, b| order(a, b));
        Some(Value::List(sorted.into_iter().map(entry).collect()))
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All managers, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &ManagedFieldsEntry> {
        self.entries.iter()
    }

    pub fn get(&self, manager: &Manager) -> Option<&ManagedFieldsEntry> {
        self.entries.iter().find(|entry| entry.manager.is(manager))
    }

    /// Each manager must have one entry.
    pub(super) fn of_distinct(entries: impl Iterator<Item = ManagedFieldsEntry>) -> Self {
        Managers { entries: entries.collect() }
    }

    /// Adds an entry or replaces the one of the same manager.
    pub(super) fn put(&mut self, entry: ManagedFieldsEntry) {
        match self.entries.iter_mut().find(|there| there.manager.is(&entry.manager)) {
            Some(there) => *there = entry,
            None => self.entries.push(entry),
        }
    }

    pub(super) fn take(&mut self, manager: &Manager) -> Option<ManagedFieldsEntry> {
        let at = self.entries.iter().position(|entry| entry.manager.is(manager))?;
        Some(self.entries.swap_remove(at))
    }

    /// Retains the managers for which `keep` returns true; it may modify them.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&mut ManagedFieldsEntry) -> bool) {
        self.entries.retain_mut(|entry| keep(entry));
    }

    /// Adds an entry even if the manager already has one.
    pub(super) fn push(&mut self, entry: ManagedFieldsEntry) {
        self.entries.push(entry);
    }

    /// Merges the oldest `Update` managers until at most `most` are left, into one entry per API version.
    pub(super) fn cap_updaters(&mut self, most: usize) {
        let updaters =
            self.entries.iter().filter(|entry| entry.manager.operation == ManagedFieldsOperation::Update);
        let mut excess = updaters.count().saturating_sub(most);
        if excess == 0 {
            return;
        }
        let mut slots: Vec<Option<ManagedFieldsEntry>> = self.entries.drain(..).map(Some).collect();
        let mut oldest: Vec<(i64, Vec<u8>, usize)> = Vec::with_capacity(excess + most);
        let mut of_version: BTreeMap<Str, MergedUpdaters> = BTreeMap::new();
        for (at, slot) in slots.iter().enumerate() {
            let Some(ManagedFieldsEntry { manager, time, .. }) = slot else { continue };
            if manager.operation == ManagedFieldsOperation::Update {
                oldest.push((time.unwrap_or(0), manager.identifier(), at));
                if manager.name == JOINT && manager.subresource.is_empty() {
                    of_version.entry(manager.api_version.clone()).or_default().position = Some(at);
                }
            }
        }
        oldest.sort();
        for (_, _, at) in oldest {
            if excess == 0 {
                break;
            }
            let Some(slot) = slots.get_mut(at) else { continue };
            let Some(version) = slot.as_ref().map(|entry| entry.manager.api_version.clone()) else {
                continue;
            };
            let joint = of_version.entry(version).or_default();
            let Some(first) = joint.first else {
                joint.first = Some(at);
                continue;
            };
            let Some(taken) = slot.take() else { continue };
            if joint.position.is_none_or(|position| position == at) {
                joint.position = Some(first);
            }
            joint.time = taken.time;
            joint.sets.push(taken.fields);
            excess -= 1;
        }
        for (version, joint) in of_version {
            let slot = joint
                .position
                .filter(|_| !joint.sets.is_empty())
                .and_then(|position| slots.get_mut(position));
            let Some(Some(entry)) = slot else { continue };
            entry.manager = Manager {
                name: Str::new_static(JOINT),
                operation: ManagedFieldsOperation::Update,
                api_version: version,
                subresource: Str::new_static(""),
            };
            entry.time = joint.time;
            let own = std::mem::take(&mut entry.fields);
            entry.fields = FieldSet::of_sets(std::iter::once(own).chain(joint.sets));
        }
        self.entries = slots.into_iter().flatten().collect();
    }
}

/// Name of the manager into which old `Update` managers are merged.
const JOINT: &str = "ancient-changes";

/// How the oldest `Update` managers of one API version are merged.
#[derive(Default)]
struct MergedUpdaters {
    /// The oldest one, which stays unchanged if it is the only one.
    first: Option<usize>,
    /// Index of the merged entry.
    position: Option<usize>,
    sets: Vec<FieldSet>,
    /// The latest time of the merged managers.
    time: Option<i64>,
}

fn order(a: &ManagedFieldsEntry, b: &ManagedFieldsEntry) -> Ordering {
    a.manager
        .operation
        .cmp(&b.manager.operation)
        .then_with(|| a.time.unwrap_or(0).cmp(&b.time.unwrap_or(0)))
        .then_with(|| a.manager.name.cmp(&b.manager.name))
        .then_with(|| a.manager.api_version.cmp(&b.manager.api_version))
        .then_with(|| a.manager.subresource.cmp(&b.manager.subresource))
}

fn entry(managed: &ManagedFieldsEntry) -> Value {
    let manager = &managed.manager;
    let mut out = value::Map::with_capacity(7);
    out.insert(Str::new_static("apiVersion"), manager.api_version.clone());
    out.insert(Str::new_static("fieldsType"), Str::new_static("FieldsV1"));
    out.insert(Str::new_static("fieldsV1"), fields_v1::encode(&managed.fields));
    if !manager.name.is_empty() {
        out.insert(Str::new_static("manager"), manager.name.clone());
    }
    out.insert(Str::new_static("operation"), Str::new_static(manager.operation.as_str()));
    if !manager.subresource.is_empty() {
        out.insert(Str::new_static("subresource"), manager.subresource.clone());
    }
    if let Some(seconds) = managed.time {
        out.insert(Str::new_static("time"), Timestamp::from_seconds(seconds).time());
    }
    Value::Map(out)
}

/// The managed fields of an object, without decoding them.
pub fn list(object: &Value) -> &[Value] {
    object.list_at(&["metadata", "managedFields"])
}

pub(super) fn set(object: &mut Value, managers: &Managers) {
    match managers.encode() {
        Some(list) => object.set_at(&["metadata", "managedFields"], list),
        None => drop(object.remove_at(&["metadata", "managedFields"])),
    }
}

/// Whether two lists of managed fields differ only in their times.
pub fn same_but_for_times(a: &[Value], b: &[Value]) -> bool {
    let differs = |a: &Value, b: &Value| match (a, b) {
        (Value::Map(a), Value::Map(b)) => {
            let without = |map: &'_ value::Map| map.len() - usize::from(map.contains_key("time"));
            without(a) != without(b)
                || a.iter().any(|(key, value)| key != "time" && b.get(key) != Some(value))
        }
        _ => a != b,
    };
    a.len() == b.len() && !a.iter().zip(b).any(|(a, b)| differs(a, b))
}
