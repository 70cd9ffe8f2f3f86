//! [`FieldManagement::track`] updates field ownership for all writes but apply; also holds the code shared with apply.

use std::collections::BTreeMap;

use value::{Str, Value};

use super::check::check;
use super::compare::{Comparison, compare};
use super::conflict::{ApplyError, Conflict};
use super::managed::{self, ManagedFieldsEntry, ManagedFieldsOperation, Manager, Managers};
use super::reset::Reset;
use super::set::FieldSet;
use super::shape::{OwnershipShape, Typed};
use crate::Schema;

/// Limit on the `Update` managers of an object; older ones are merged.
const MAX_UPDATERS: usize = 10;

/// The served versions of a kind. The fields of a manager are named in the version in which it wrote.
pub trait ServedVersions {
    /// The schema of a version; `None` if it is not served.
    fn schema(&self, api_version: &str) -> Option<&Schema>;

    /// Converts an object from the version in its `apiVersion` to another.
    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, Unconverted>;

    /// Whether fields that the request cannot set are also ignored in this version. True for built-in kinds; for custom resources
    /// Kubernetes ignores them only in the version of the request.
    fn resets(&self, _: &str) -> bool {
        true
    }
}

/// Why an object was not converted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unconverted {
    /// The version is not served. Managers that wrote in it own nothing.
    NoSuchVersion,
    /// Conversion failed with this message.
    Failed(String),
}

/// Field ownership in the context of one write: its API version, subresource and time.
#[derive(Clone, Copy)]
pub struct FieldManagement<'a> {
    pub api_version: &'a str,
    /// Describes objects in `api_version`.
    pub schema: &'a Schema,
    /// The subresource; empty for the object itself.
    pub subresource: &'a str,
    /// The fields that this write cannot set.
    pub reset: &'a Reset,
    pub versions: &'a dyn ServedVersions,
    /// The current time in seconds since the Unix epoch.
    pub now: i64,
}

impl FieldManagement<'_> {
    /// The managed fields of `new` after a write that replaced `live`. Both are in the version of the request, with all fields that are
    /// always written. If the object is new, `live` is an object without content and uid.
    ///
    /// If the objects cannot be compared, the managed fields stay unchanged.
    pub fn track(&self, live: &Value, new: &Value, manager: &str) -> Option<Value> {
        let mut managers = self.sent_or_stored(live, new);
        // An object without managers stays so until its first apply.
        if managers.is_empty() && !api::meta::uid(live).is_empty() {
            return None;
        }
        match self.update(live, new, &mut managers, manager) {
            Ok(()) => managers.encode(),
            Err(_) => Some(managed::list(live))
                .filter(|list| !list.is_empty())
                .map(|list| Value::List(list.to_vec())),
        }
    }

    /// The managers that a write starts from. Clients may write managed fields, except through a subresource. Clients that are not
    /// aware of managed fields omit them or send undecodable ones, which leaves the stored managers unchanged.
    fn sent_or_stored(&self, live: &Value, new: &Value) -> Managers {
        let stored = || Managers::decode(managed::list(live)).unwrap_or_default();
        if !self.subresource.is_empty() {
            return stored();
        }
        let sent = managed::list(new);
        if is_reset(sent) {
            return Managers::default();
        }
        match Managers::decode(sent) {
            Ok(managers) if !managers.is_empty() => managers,
            _ => stored(),
        }
    }

    /// Records that `manager` changed `live` into `new`.
    pub(super) fn update(
        &self,
        live: &Value,
        new: &Value,
        managers: &mut Managers,
        manager: &str,
    ) -> Result<(), ApplyError> {
        self.reconcile(live, managers)?;
        let found = self.share_out(live, new, managers, None, true)?;
        let mut fields = found.modified;
        fields.unite(found.added);
        strip(&mut fields);
        if !fields.is_empty() {
            let manager = self.manager(manager, ManagedFieldsOperation::Update);
            if let Some(previous) = managers.take(&manager) {
                fields.unite(previous.fields);
            }
            managers.put(ManagedFieldsEntry { manager, time: Some(self.now), fields });
        }
        managers.cap_updaters(MAX_UPDATERS);
        Ok(())
    }

    pub(super) fn manager(&self, name: &str, operation: ManagedFieldsOperation) -> Manager {
        Manager {
            name: if name.is_empty() { Str::new_static("unknown") } else { name.into() },
            operation,
            api_version: self.api_version.into(),
            subresource: self.subresource.into(),
        }
    }

    pub(super) fn schema_of(&self, api_version: &str) -> Option<&Schema> {
        if api_version == self.api_version { Some(self.schema) } else { self.versions.schema(api_version) }
    }

    /// Converts an object to a version and validates it against the schema of that version.
    pub(super) fn view(&self, object: &Value, api_version: &str) -> Result<(Value, &Schema), Unconverted> {
        let schema = self.schema_of(api_version);
        if let Some(schema) = schema
            && object.str_at(&["apiVersion"]) == Some(api_version)
        {
            return Ok((object.clone(), schema));
        }
        let converted = self.versions.convert(object, api_version)?;
        let schema = schema.ok_or(Unconverted::NoSuchVersion)?;
        check(&converted, schema, false).map_err(|errors| Unconverted::Failed(errors.to_string()))?;
        Ok((converted, schema))
    }

    /// Adapts field sets to parts of the schema that have become atomic and drops managers of versions no longer served. Fails if the
    /// object cannot be converted to the version of a manager.
    pub(super) fn reconcile(&self, live: &Value, managers: &mut Managers) -> Result<(), ApplyError> {
        let mut is_there: BTreeMap<Str, bool> = BTreeMap::from([(self.api_version.into(), true)]);
        for entry in managers.iter() {
            let version = &entry.manager.api_version;
            if is_there.contains_key(version) {
                continue;
            }
            let there = match self.view(live, version) {
                Ok(_) => true,
                Err(Unconverted::NoSuchVersion) => false,
                Err(Unconverted::Failed(why)) => return Err(ApplyError::Failed(why)),
            };
            is_there.insert(version.clone(), there);
        }
        managers.retain(|entry| {
            let version = &entry.manager.api_version;
            let schema = self.schema_of(version).filter(|_| is_there.get(version) == Some(&true));
            if let Some(schema) = schema {
                join_atomics(&mut entry.fields, Typed::root(schema));
            }
            schema.is_some()
        });
        Ok(())
    }

    /// Takes the fields that `new` changes away from the managers that own them, except `own`. Without `force`, that is a conflict.
    /// Returns the changes in the version of the request.
    pub(super) fn share_out(
        &self,
        live: &Value,
        new: &Value,
        managers: &mut Managers,
        own: Option<&Manager>,
        force: bool,
    ) -> Result<Comparison, ApplyError> {
        let first = self.compared(live, new, self.schema, self.api_version)?;
        let changed = first.set();
        let mut others: Vec<(Str, Comparison, FieldSet)> = Vec::new();
        let mut conflicts: Vec<(Manager, FieldSet)> = Vec::new();
        let mut failed = None;
        managers.retain(|entry| {
            if own.is_some_and(|own| *own == entry.manager) {
                return !entry.fields.is_empty();
            }
            let version = &entry.manager.api_version;
            let (removed, changed) = if version == self.api_version {
                (&first.removed, &changed)
            } else {
                let known = others.iter().position(|(known, ..)| known == version);
                let at = match known {
                    Some(at) => at,
                    None => match self.compared_in(live, new, version) {
                        Ok(Some(found)) => {
                            let set = found.set();
                            others.push((version.clone(), found, set));
                            others.len() - 1
                        }
                        Ok(None) => return false,
                        Err(refusal) => {
                            failed = Some(refusal);
                            return true;
                        }
                    },
                };
                match others.get(at) {
                    Some((_, found, set)) => (&found.removed, set),
                    None => return true,
                }
            };
            let conflict = entry.fields.intersection(changed);
            if !conflict.is_empty() {
                entry.fields.subtract(&conflict);
                conflicts.push((entry.manager.clone(), conflict));
            }
            entry.fields.subtract(removed);
            !entry.fields.is_empty()
        });
        if let Some(refusal) = failed {
            return Err(refusal);
        }
        if !force && !conflicts.is_empty() {
            return Err(ApplyError::Conflicts(Conflict::all(conflicts)));
        }
        Ok(first)
    }

    fn compared(
        &self,
        live: &Value,
        new: &Value,
        schema: &Schema,
        version: &str,
    ) -> Result<Comparison, ApplyError> {
        let mut found = compare(live, new, schema)
            .map_err(|why| ApplyError::Failed(format!("failed to compare objects: {why}")))?;
        if version == self.api_version || self.versions.resets(version) {
            for set in [&mut found.removed, &mut found.modified, &mut found.added] {
                self.reset.filter(set);
            }
        }
        Ok(found)
    }

    fn compared_in(
        &self,
        live: &Value,
        new: &Value,
        version: &str,
    ) -> Result<Option<Comparison>, ApplyError> {
        let shown = |object: &Value, which: &str| match self.view(object, version) {
            Ok(shown) => Ok(Some(shown)),
            Err(Unconverted::NoSuchVersion) => Ok(None),
            Err(Unconverted::Failed(why)) => {
                Err(ApplyError::Failed(format!("failed to convert {which} object: {why}")))
            }
        };
        let (Some((live, schema)), Some((new, _))) = (shown(live, "old")?, shown(new, "new")?) else {
            return Ok(None);
        };
        self.compared(&live, &new, schema, version).map(Some)
    }
}

/// Fields that are never owned: those that identify the object and those set by the server.
const STRIPPED: &[&str] = &[
    "apiVersion",
    "kind",
    "metadata",
    "metadata.name",
    "metadata.namespace",
    "metadata.creationTimestamp",
    "metadata.selfLink",
    "metadata.uid",
    "metadata.clusterName",
    "metadata.generation",
    "metadata.managedFields",
    "metadata.resourceVersion",
];

/// Removes the fields that are never owned.
pub(super) fn strip(fields: &mut FieldSet) {
    static STRIPPED_SET: std::sync::LazyLock<FieldSet> = std::sync::LazyLock::new(|| FieldSet::of(STRIPPED));
    fields.subtract(&STRIPPED_SET);
}

/// Whether a client asks to reset managed fields by sending a list with one empty entry.
fn is_reset(sent: &[Value]) -> bool {
    matches!(sent, [Value::Map(only)] if only.is_empty())
}

/// Marks an empty list of managed fields as a reset by adding one empty entry. Decoding drops empty lists but not such a list, so this
/// must run before decoding.
pub fn mark_reset(object: &mut Value) {
    if let Some(Value::List(list)) = object.at_mut(&["metadata", "managedFields"])
        && list.is_empty()
    {
        list.push(Value::Map(value::Map::new()));
    }
}

/// Replaces paths below a list or map by its own path where the schema has become atomic.
fn join_atomics(set: &mut FieldSet, typed: Typed<'_>) {
    // Untyped JSON has no types that could change.
    if typed.is_any() && !typed.is_atomic_map() {
        return;
    }
    set.retain(|entry| {
        if entry.below.is_empty() {
            return true;
        }
        let child = match &entry.element {
            super::element::Element::Field(name) => typed.field(name).map(|(child, _)| child),
            _ => typed.items(),
        };
        let Some(child) = child else { return true };
        if matches!(child.shape(None), OwnershipShape::Atomic) {
            entry.owned = true;
            entry.below = FieldSet::EMPTY;
        } else {
            join_atomics(&mut entry.below, child);
        }
        true
    });
}
