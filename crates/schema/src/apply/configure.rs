//! Server-side apply: merges a configuration into an object and updates its field managers.

use value::{Map, Str, Value, json};

use super::check::check;
use super::compare::compare;
use super::conflict::{ApplyError, Conflict};
use super::element::same;
use super::extract::{fields, remove};
use super::managed::{self, ManagedFieldsEntry, ManagedFieldsOperation, Manager, Managers};
use super::merge::merge;
use super::set::FieldSet;
use super::shape::Typed;
use super::track::{FieldManagement, Unconverted, strip};
use crate::Schema;

#[derive(Clone, Debug, PartialEq)]
pub struct ApplyResult {
    /// The object in the version of the request, with its managed fields. It is merged but not decoded: removed parts may have become
    /// `null`, and defaults are not filled in.
    pub object: Value,
}

/// Field manager that owns the fields set before the first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Field manager of `kubectl apply --server-side`. It alone also owns the fields that it applied client-side before.
const KUBECTL: &str = "kubectl";

/// Annotation in which client-side `kubectl apply` stores the last applied configuration.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Limit on the total size of all annotations, in bytes.
const MAX_ANNOTATIONS: usize = 256 * 1024;

impl FieldManagement<'_> {
    /// Applies a configuration. `live` is the object in the version of the request with all fields that are always written. If there is
    /// no object yet, `live` is an object without content and uid, like `empty`.
    pub fn apply(
        &self,
        live: &Value,
        empty: &Value,
        config: &Value,
        manager: &str,
        force: bool,
    ) -> Result<ApplyResult, ApplyError> {
        let mut managers = Managers::decode(managed::list(live))
            .map_err(|why| ApplyError::Failed(format!("failed to decode managed fields: {why}")))?;
        self.check_kind(live, config)?;
        let mut bare = live.clone();
        bare.remove_at(&["metadata", "managedFields"]);
        if managers.is_empty() {
            self.update(empty, &bare, &mut managers, BEFORE_FIRST_APPLY).map_err(
                |refusal| match refusal {
                    ApplyError::Failed(why) => {
                        ApplyError::Failed(format!("failed to create manager for existing fields: {why}"))
                    }
                    other => other,
                },
            )?;
        }
        if config.at(&["metadata", "managedFields"]).is_some_and(|list| !list.is_null()) {
            return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
        }
        check(config, self.schema, false).map_err(|errors| {
            ApplyError::Failed(format!(
                "failed to create typed patch object ({}): {errors}",
                described(config)
            ))
        })?;
        let is_kubectl = manager == KUBECTL;
        // Only the second attempt needs the managers as they were.
        let before = (is_kubectl && !force).then(|| managers.clone());
        let mut object = match self.configure(&bare, config, &mut managers, manager, force) {
            Err(ApplyError::Conflicts(conflicts)) => {
                let Some(again) = before else { return Err(ApplyError::Conflicts(conflicts)) };
                let allowed =
                    self.last_applied(&bare).ok_or_else(|| ApplyError::Conflicts(conflicts.clone()))?;
                let left: Vec<Conflict> =
                    conflicts.into_iter().filter(|conflict| !allowed.has(&conflict.path.0)).collect();
                if !left.is_empty() {
                    return Err(ApplyError::Conflicts(left));
                }
                managers = again;
                self.configure(&bare, config, &mut managers, manager, true)?
            }
            other => other?,
        };
        if is_kubectl {
            keep_last_applied(&mut object, config);
        }
        managed::set(&mut object, &managers);
        Ok(ApplyResult { object })
    }

    fn check_kind(&self, live: &Value, config: &Value) -> Result<(), ApplyError> {
        let (wanted, sent) = (live.str_at(&["kind"]), config.str_at(&["kind"]));
        if wanted != sent || config.str_at(&["apiVersion"]) != Some(self.api_version) {
            return Err(ApplyError::BadRequest(format!("invalid object type: {}", gvk_text(config))));
        }
        Ok(())
    }

    fn configure(
        &self,
        live: &Value,
        config: &Value,
        managers: &mut Managers,
        manager: &str,
        force: bool,
    ) -> Result<Value, ApplyError> {
        self.reconcile(live, managers)?;
        let manager = self.manager(manager, ManagedFieldsOperation::Apply);
        let merged = merge(live, config, self.schema)
            .map_err(|why| ApplyError::Failed(format!("failed to merge config: {why}")))?;
        let last = managers.take(&manager);
        let mut set = fields(config, self.schema);
        self.reset.filter(&mut set);
        let time = last.as_ref().and_then(|last| last.time);
        managers.put(ManagedFieldsEntry { manager: manager.clone(), time, fields: set });
        let new = match last {
            Some(last) => self
                .prune(merged, managers, &manager, &last)
                .map_err(|why| ApplyError::Failed(format!("failed to prune fields: {why}")))?,
            None => merged,
        };
        self.share_out(live, &new, managers, Some(&manager), force)?;
        if let Some(mut own) = managers.take(&manager) {
            strip(&mut own.fields);
            if !own.fields.is_empty() {
                if !same(live, &new) {
                    own.time = Some(self.now);
                }
                managers.put(own);
            }
        }
        Ok(new)
    }

    /// Removes the fields that the manager applied last time, does not apply now, and no other manager owns.
    fn prune(
        &self,
        merged: Value,
        managers: &Managers,
        manager: &Manager,
        last: &ManagedFieldsEntry,
    ) -> Result<Value, String> {
        let applied = managers.get(manager).map(|own| &own.fields);
        // Common case: the configuration has all fields of the last one.
        if last.fields.is_empty()
            || last.manager.api_version == self.api_version
                && managers.iter().all(|entry| entry.manager.api_version == self.api_version)
                && applied.is_some_and(|applied| last.fields.is_within(applied))
        {
            return Ok(merged);
        }
        let version = &last.manager.api_version;
        let (view, schema) = match self.view(&merged, version) {
            Ok(shown) => shown,
            Err(Unconverted::NoSuchVersion) => return Ok(merged),
            Err(Unconverted::Failed(why)) => {
                return Err(format!("failed to convert merged object to last applied version: {why}"));
            }
        };
        let last_fields = last.fields.with_struct_fields(Some(Typed::root(schema)));
        let mut pruned = view.clone();
        remove(&mut pruned, &last_fields, Typed::root(schema));
        // Restores fields that other managers own, in any version.
        let mut owned: Vec<(&Str, Vec<FieldSet>)> = vec![(version, Vec::new())];
        for entry in managers.iter() {
            let version = &entry.manager.api_version;
            match owned.iter_mut().find(|(known, _)| *known == version) {
                Some((_, sets)) => sets.push(entry.fields.clone()),
                None => owned.push((version, vec![entry.fields.clone()])),
            }
        }
        let mut base = view.clone();
        for (version, owned) in owned {
            let owned = FieldSet::of_sets(owned);
            let shown = |object: &Value, which: &str| match self.view(object, version) {
                Ok(shown) => Ok(Some(shown)),
                Err(Unconverted::NoSuchVersion) => Ok(None),
                Err(Unconverted::Failed(why)) => Err(format!(
                    "failed add back owned items: failed to convert {which} object at version {version}: {why}"
                )),
            };
            let (Some((whole, schema)), Some((less, _))) =
                (shown(&base, "merged")?, shown(&pruned, "pruned")?)
            else {
                continue;
            };
            let mut gone = named(&whole, schema);
            gone.subtract(&named(&less, schema));
            gone.subtract(&owned.with_struct_fields(Some(Typed::root(schema))));
            pruned = whole.clone();
            remove(&mut pruned, &gone, Typed::root(schema));
            base = whole;
        }
        // Restores fields without an owner, except those that this manager applied.
        let less = match self.view(&pruned, version) {
            Ok((less, _)) => less,
            Err(Unconverted::NoSuchVersion) => return Ok(merged),
            Err(Unconverted::Failed(why)) => {
                return Err(format!(
                    "failed add back dangling items: failed to convert pruned object to last applied version: {why}"
                ));
            }
        };
        let mut gone = named(&view, schema);
        gone.subtract(&named(&less, schema));
        let gone = gone.intersection(&last_fields);
        let mut out = view;
        remove(&mut out, &gone, Typed::root(schema));
        match self.view(&out, self.api_version) {
            Ok((out, _)) => Ok(out),
            Err(Unconverted::NoSuchVersion) => Ok(merged),
            Err(Unconverted::Failed(why)) => Err(why),
        }
    }

    /// The fields of the last client-side apply that still have their applied values.
    fn last_applied(&self, live: &Value) -> Option<FieldSet> {
        let text = live.str_at(&["metadata", "annotations", LAST_APPLIED]).filter(|text| !text.is_empty())?;
        let last = json::parse(text.as_bytes()).ok()?;
        if last.str_at(&["apiVersion"]) != Some(self.api_version) || check(&last, self.schema, false).is_err()
        {
            return None;
        }
        let found = compare(&last, live, self.schema).ok()?;
        let mut set = fields(&last, self.schema);
        for changed in [&found.modified, &found.added, &found.removed] {
            set.subtract(changed);
        }
        Some(set)
    }
}

fn named(object: &Value, schema: &Schema) -> FieldSet {
    fields(object, schema).with_struct_fields(Some(Typed::root(schema)))
}

/// Updates the last-applied annotation of an object that has one, so that client-side apply continues to work.
fn keep_last_applied(object: &mut Value, config: &Value) {
    let has = object.str_at(&["metadata", "annotations", LAST_APPLIED]).is_some_and(|text| !text.is_empty());
    if !has {
        return;
    }
    let mut config = config.clone();
    if let Some(Value::Map(annotations)) = config.at_mut(&["metadata", "annotations"]) {
        annotations.remove(LAST_APPLIED);
        if annotations.is_empty() {
            config.remove_at(&["metadata", "annotations"]);
        }
    }
    let text = format!("{}\n", value::write::to_string(&config));
    let Some(annotations) = object.at_mut(&["metadata", "annotations"]).and_then(Value::as_map_mut) else {
        return;
    };
    let size = |map: &Map| -> usize {
        map.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum()
    };
    annotations.insert(LAST_APPLIED, text);
    if size(annotations) > MAX_ANNOTATIONS {
        annotations.remove(LAST_APPLIED);
    }
}

/// Formats as `NAMESPACE/NAME; GROUP/VERSION, ValueType=KIND`.
fn described(object: &Value) -> String {
    format!("{}/{}; {}", api::meta::namespace(object), api::meta::name(object), gvk_text(object))
}

/// Formats as `apps/v1, ValueType=Deployment` or `/v1, ValueType=Pod`.
fn gvk_text(object: &Value) -> String {
    let api_version = object.str_at(&["apiVersion"]).unwrap_or_default();
    let slash = if api_version.contains('/') { "" } else { "/" };
    format!("{slash}{api_version}, Kind={}", object.str_at(&["kind"]).unwrap_or_default())
}
