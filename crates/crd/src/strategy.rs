//! Prepares and validates writes of custom resources.

use api::field::{FieldErrorKind, quote};
use api::validation::fields::{At, Report};
use api::validation::meta;
use api::{FieldErrors, names};
use value::{Budget, Map, Value};

use super::compiled::{CompiledVersion, ValidationFindings};
use super::stopwatch::Stopwatch;
use super::{lists, metadata, scale, validate};

/// Error for objects so invalid that their rules cannot run.
const NOT_CHECKED: &str = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";

/// Resources that validating one object may use.
#[derive(Clone, Copy)]
pub struct ValidationBounds<'a> {
    /// Receives the durations of CEL rules.
    pub watch: Option<&'a dyn Stopwatch>,
    /// Remaining steps. An object whose validation exceeds them is invalid.
    pub budget: &'a Budget,
}

impl ValidationBounds<'static> {
    /// No stopwatch and an unlimited budget.
    pub const NONE: ValidationBounds<'static> = ValidationBounds { watch: None, budget: &Budget::UNLIMITED };
}

impl CompiledVersion {
    /// Prepares a new object: drops the status if there is a `status` subresource and sets the generation to 1.
    pub fn prepare_create(&self, object: &mut Value) {
        if self.has_status {
            object.remove_at(&["status"]);
        }
        api::meta::set(object, "generation", 1);
    }

    /// Prepares an update: restores the old status if there is a `status` subresource and increments the generation if anything but
    /// metadata changed.
    pub fn prepare_update(&self, new: &mut Value, old: &Value) {
        if self.has_status {
            match old.get("status") {
                Some(status) => new.set_at(&["status"], status.clone()),
                None => drop(new.remove_at(&["status"])),
            }
        }
        if differs(new, old) {
            let generation = old.int_at(&["metadata", "generation"]).unwrap_or(0);
            api::meta::set(new, "generation", generation.saturating_add(1));
        }
    }

    /// Prepares a write to the `status` subresource: restores everything except status, managed fields and resource version.
    pub fn prepare_status(&self, new: &mut Value, old: &Value) {
        let status = new.get("status").cloned();
        let managed = new.at(&["metadata", "managedFields"]).cloned();
        let version = new.at(&["metadata", "resourceVersion"]).cloned();
        *new = old.clone();
        for (field, value) in [("managedFields", managed), ("resourceVersion", version)] {
            match value {
                Some(value) => api::meta::set(new, field, value),
                None => drop(new.remove_at(&["metadata", field])),
            }
        }
        match status {
            Some(status) => new.set_at(&["status"], status),
            None => drop(new.remove_at(&["status"])),
        }
    }

    pub fn validate_create(&self, object: &Value, bounds: ValidationBounds<'_>) -> ValidationFindings {
        self.findings(object, |found| {
            let subdomain: meta::NameRule = names::name_is_dns_subdomain;
            found.errors.extend(meta::create(object, self.namespaced, subdomain));
            validate::schema_errors(object, None, &self.node, "", bounds.budget, &mut found.errors);
            self.scale_errors(object, true, &mut found.errors);
            metadata::check(object, &self.node, &At::ROOT, &mut found.errors);
            lists::check(object, &self.node, &At::ROOT, &mut found.errors);
            self.run_rules(object, None, bounds, found);
            finalizer_warnings(object, None, &mut found.warnings_if_valid);
        })
    }

    pub fn validate_update(
        &self,
        new: &Value,
        old: &Value,
        bounds: ValidationBounds<'_>,
    ) -> ValidationFindings {
        self.findings(new, |found| {
            found.errors.extend(meta::update(new, old));
            validate::schema_errors(new, Some(old), &self.node, "", bounds.budget, &mut found.errors);
            self.scale_errors(new, true, &mut found.errors);
            metadata::check(new, &self.node, &At::ROOT, &mut found.errors);
            self.list_errors(new, old, &mut found.errors);
            self.run_rules(new, Some(old), bounds, found);
            finalizer_warnings(new, Some(old), &mut found.warnings_if_valid);
        })
    }

    /// Validates a write to the `status` subresource.
    pub fn validate_status(
        &self,
        new: &Value,
        old: &Value,
        bounds: ValidationBounds<'_>,
    ) -> ValidationFindings {
        self.findings(new, |found| {
            found.errors.extend(meta::update(new, old));
            if let (Some(status), Some(node)) = (new.get("status"), self.node.property("status")) {
                let before = old.get("status");
                validate::schema_errors(status, before, node, "status", bounds.budget, &mut found.errors);
            }
            self.scale_errors(new, false, &mut found.errors);
            self.list_errors(new, old, &mut found.errors);
            self.run_rules(new, Some(old), bounds, found);
        })
    }

    /// The findings of `check`, which runs only if the object has the version's `apiVersion` and `kind`.
    fn findings(&self, object: &Value, check: impl FnOnce(&mut ValidationFindings)) -> ValidationFindings {
        let mut found = ValidationFindings::default();
        if self.type_errors(object, &mut found.errors) {
            return found;
        }
        check(&mut found);
        found.named()
    }

    fn list_errors(&self, new: &Value, old: &Value, errors: &mut FieldErrors) {
        let mut now = FieldErrors::new();
        lists::check(new, &self.node, &At::ROOT, &mut now);
        if now.is_empty() {
            return;
        }
        let mut before = FieldErrors::new();
        lists::check(old, &self.node, &At::ROOT, &mut before);
        if before.is_empty() {
            errors.append(&mut now);
        }
    }

    fn type_errors(&self, object: &Value, errors: &mut FieldErrors) -> bool {
        let (kind, version) = (&self.gvk.kind, self.gvk.api_version());
        let sent = object.str_at(&["kind"]).unwrap_or_default();
        if sent != kind {
            errors.invalid(&At::new("kind"), sent, format!("must be {kind}"));
        }
        let sent = object.str_at(&["apiVersion"]).unwrap_or_default();
        if sent != version {
            errors.invalid(&At::new("apiVersion"), sent, format!("must be {version}"));
        }
        !errors.is_empty()
    }

    fn scale_errors(&self, object: &Value, spec: bool, errors: &mut FieldErrors) {
        let Some(paths) = &self.scale else { return };
        let mut replicas = |path: &str| {
            let at = At::new(path);
            match scale::number_at(object, path) {
                Err(error) => errors.invalid(&at, 0, error),
                Ok(Some(number)) if number < 0 => {
                    errors.invalid(&at, number, "should be a non-negative integer");
                }
                Ok(Some(number)) if number > i64::from(i32::MAX) => {
                    errors.invalid(&at, number, format!("should be less than or equal to {}", i32::MAX));
                }
                Ok(_) => {}
            }
        };
        if spec {
            replicas(&paths.spec_replicas);
        }
        replicas(&paths.status_replicas);
        if let Some(path) = &paths.label_selector
            && let Err(error) = scale::text_at(object, path)
        {
            errors.invalid(&At::new(path), "", error);
        }
    }

    fn run_rules(
        &self,
        new: &Value,
        old: Option<&Value>,
        bounds: ValidationBounds<'_>,
        found: &mut ValidationFindings,
    ) {
        let Some(rules) = self.rules(bounds.watch) else { return };
        if bounds.budget.check().is_err() {
            return;
        }
        let blocking = found.errors.iter().any(|error| {
            matches!(
                error.kind,
                FieldErrorKind::NotSupported
                    | FieldErrorKind::Required
                    | FieldErrorKind::TooLong
                    | FieldErrorKind::TooMany
                    | FieldErrorKind::TypeInvalid
            )
        });
        if blocking {
            found.errors.invalid(&At::ROOT, Value::Null, NOT_CHECKED);
            return;
        }
        rules.run(&self.node, new, old, bounds, found);
    }
}

impl ValidationFindings {
    /// Reports errors about the whole object under the field name `<nil>`, as Kubernetes does.
    fn named(mut self) -> Self {
        for error in self.errors.iter_mut().filter(|error| error.field.is_empty()) {
            error.field.push_str("<nil>");
        }
        self
    }
}

fn differs(new: &Value, old: &Value) -> bool {
    let empty = Map::new();
    let (new, old) = (new.as_map().unwrap_or(&empty), old.as_map().unwrap_or(&empty));
    let count = |map: &Map| map.keys().filter(|key| *key != "metadata").count();
    count(new) != count(old)
        || new.iter().any(|(key, value)| key != "metadata" && old.get(key) != Some(value))
}

/// Warns about finalizers added by this write whose names are not domain-qualified or are invalid.
fn finalizer_warnings(new: &Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    let mut added: Vec<&str> = api::meta::finalizers(new)
        .filter(|name| !old.is_some_and(|old| api::meta::finalizers(old).any(|other| other == *name)))
        .collect();
    added.sort_unstable();
    added.dedup();
    for name in added {
        let quoted = quote(name);
        for wrong in names::is_qualified_name(name) {
            warnings.push(format!("metadata.finalizers: {quoted}: {wrong}"));
        }
        if !name.contains('/') && !api::finalizers::STANDARD.contains(&name) {
            let path = if name.contains('.') { " including a path (/)" } else { "" };
            warnings.push(format!(
                "metadata.finalizers: {quoted}: prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other finalizer writers"
            ));
        }
    }
}
