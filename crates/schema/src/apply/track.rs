//! Who owns what after a write: [`FieldManagement::track`] for all writes but apply, and what it has in common with apply.

use std::collections::BTreeMap;

use value::{Str, Value};

use super::check::check;
use super::compare::{Comparison, compare};
use super::conflict::{Conflict, Refusal};
use super::managed::{self, Managed, Manager, Managers, Operation};
use super::reset::Reset;
use super::set::FieldSet;
use super::shape::{Shape, Typed};
use crate::Schema;

/// How many updaters an object remembers one by one.
const MAX_UPDATERS: usize = 10;

/// The versions that a kind is served in: fields are named in the version that a manager wrote in.
pub trait Versions {
    /// The schema of a version; none for one that is not served (any more).
    fn schema(&self, api_version: &str) -> Option<&Schema>;

    /// An object, which says its own version, in another one.
    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, Unconverted>;

    /// Whether what cannot be written through the door is left out in this version, too: it is for built-in kinds; for custom ones
    /// Kubernetes knows that only of the version of the request.
    fn resets(&self, _: &str) -> bool {
        true
    }
}

/// Why an object is not in another version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unconverted {
    /// There is none (any more) of that name: who wrote in it owns nothing.
    NoSuchVersion,
    /// It cannot be brought there, in the words of who tried.
    Failed(String),
}

/// The way a write goes in: in which version, through which subresource.
#[derive(Clone, Copy)]
pub struct FieldManagement<'a> {
    /// The version of the request.
    pub api_version: &'a str,
    /// The schema of that version.
    pub schema: &'a Schema,
    /// The subresource; empty for the object itself.
    pub subresource: &'a str,
    /// The fields that cannot be written here.
    pub reset: &'a Reset,
    /// The other versions.
    pub versions: &'a dyn Versions,
    /// Seconds since the epoch.
    pub now: i64,
}

impl FieldManagement<'_> {
    /// The managed fields of `new` after a write that made it of `live`. Both are in the version of the request, with all the
    /// fields that are always written; where nothing was there before, `live` is an object without content and uid.
    ///
    /// What cannot be compared leaves the managed fields as they were.
    pub fn track(&self, live: &Value, new: &Value, manager: &str) -> Option<Value> {
        let mut managers = self.sent_or_stored(live, new);
        // An object whose fields nobody owns stays so until something is applied to it.
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

    /// The managers that a write starts from. Clients may write managed fields themselves, but not through a subresource; those
    /// who do not know of them leave them out or send back what they cannot read, and change nothing by that.
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

    /// Notes that `manager` made `new` of `live`.
    pub(super) fn update(
        &self,
        live: &Value,
        new: &Value,
        managers: &mut Managers,
        manager: &str,
    ) -> Result<(), Refusal> {
        self.reconcile(live, managers)?;
        let found = self.share_out(live, new, managers, None, true)?;
        let mut fields = found.modified;
        fields.unite(found.added);
        strip(&mut fields);
        if !fields.is_empty() {
            let manager = self.manager(manager, Operation::Update);
            if let Some(previous) = managers.take(&manager) {
                fields.unite(previous.fields);
            }
            managers.put(Managed { manager, time: Some(self.now), fields });
        }
        managers.cap_updaters(MAX_UPDATERS);
        Ok(())
    }

    pub(super) fn manager(&self, name: &str, operation: Operation) -> Manager {
        Manager {
            name: if name.is_empty() { Str::new_static("unknown") } else { name.into() },
            operation,
            api_version: self.api_version.into(),
            subresource: self.subresource.into(),
        }
    }

    /// The schema of a version.
    pub(super) fn schema_of(&self, api_version: &str) -> Option<&Schema> {
        if api_version == self.api_version { Some(self.schema) } else { self.versions.schema(api_version) }
    }

    /// An object in a version, with the schema of that, which it must fit.
    pub(super) fn view(&self, object: &Value, api_version: &str) -> Result<(Value, &Schema), Unconverted> {
        let schema = self.schema_of(api_version);
        if let Some(schema) = schema
            && object.str_at(&["apiVersion"]) == Some(api_version)
        {
            return Ok((object.clone(), schema));
        }
        let converted = self.versions.convert(object, api_version)?;
        let schema = schema.ok_or(Unconverted::NoSuchVersion)?;
        check(&converted, schema, false).map_err(|misfits| Unconverted::Failed(misfits.to_string()))?;
        Ok((converted, schema))
    }

    /// Brings field sets in line with a schema that has become atomic where it was not, and forgets versions that are no longer
    /// there. Every manager's version must be able to show the object.
    pub(super) fn reconcile(&self, live: &Value, managers: &mut Managers) -> Result<(), Refusal> {
        let mut is_there: BTreeMap<Str, bool> = BTreeMap::from([(self.api_version.into(), true)]);
        for entry in managers.iter() {
            let version = &entry.manager.api_version;
            if is_there.contains_key(version) {
                continue;
            }
            let there = match self.view(live, version) {
                Ok(_) => true,
                Err(Unconverted::NoSuchVersion) => false,
                Err(Unconverted::Failed(why)) => return Err(Refusal::Failed(why)),
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

    /// What `new` changes is taken from the managers that owned it, but for `own`; without force that is a conflict. Returns what
    /// was changed, in the version of the request.
    pub(super) fn share_out(
        &self,
        live: &Value,
        new: &Value,
        managers: &mut Managers,
        own: Option<&Manager>,
        force: bool,
    ) -> Result<Comparison, Refusal> {
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
            return Err(Refusal::Conflicts(Conflict::all(conflicts)));
        }
        Ok(first)
    }

    fn compared(
        &self,
        live: &Value,
        new: &Value,
        schema: &Schema,
        version: &str,
    ) -> Result<Comparison, Refusal> {
        let mut found = compare(live, new, schema)
            .map_err(|why| Refusal::Failed(format!("failed to compare objects: {why}")))?;
        if version == self.api_version || self.versions.resets(version) {
            for set in [&mut found.removed, &mut found.modified, &mut found.added] {
                self.reset.filter(set);
            }
        }
        Ok(found)
    }

    fn compared_in(&self, live: &Value, new: &Value, version: &str) -> Result<Option<Comparison>, Refusal> {
        let shown = |object: &Value, which: &str| match self.view(object, version) {
            Ok(shown) => Ok(Some(shown)),
            Err(Unconverted::NoSuchVersion) => Ok(None),
            Err(Unconverted::Failed(why)) => {
                Err(Refusal::Failed(format!("failed to convert {which} object: {why}")))
            }
        };
        let (Some((live, schema)), Some((new, _))) = (shown(live, "old")?, shown(new, "new")?) else {
            return Ok(None);
        };
        self.compared(&live, &new, schema, version).map(Some)
    }
}

/// Nobody owns what an object is called, and what the server says of it.
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

/// Takes away what nobody owns.
pub(super) fn strip(fields: &mut FieldSet) {
    static STRIPPED_SET: std::sync::LazyLock<FieldSet> = std::sync::LazyLock::new(|| FieldSet::of(STRIPPED));
    fields.subtract(&STRIPPED_SET);
}

/// Whether a client asks for the managed fields to be forgotten: with one empty entry.
fn is_reset(sent: &[Value]) -> bool {
    matches!(sent, [Value::Map(only)] if only.is_empty())
}

/// An empty list of managed fields asks for them to be forgotten, as a list of one empty entry does. Decoding drops the one and
/// keeps the other, so this must come before it.
pub fn mark_reset(object: &mut Value) {
    if let Some(Value::List(list)) = object.at_mut(&["metadata", "managedFields"])
        && list.is_empty()
    {
        list.push(Value::Map(value::Map::new()));
    }
}

/// A field set written when a list or map had an owner for each part, along a schema that has one for the whole.
fn join_atomics(set: &mut FieldSet, typed: Typed<'_>) {
    // Any JSON has no types to change.
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
        if matches!(child.shape(None), Shape::Atomic) {
            entry.owned = true;
            entry.below = FieldSet::EMPTY;
        } else {
            join_atomics(&mut entry.below, child);
        }
        true
    });
}
