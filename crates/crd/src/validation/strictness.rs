//! Decides which validation rules apply to a CRD. An update is exempt from rules that the old CRD already violated.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use api::FieldErrors;
use api::validation::fields::{At, Read, same};
use api::validation::repeated::first_by;
use value::{Budget, Value};

use super::CrdValidationContext;
use super::{extensions, structural};
use crate::Stopwatch;

/// The rules that apply to a CRD.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "rules that do not depend on each other")]
pub(super) struct Strictness {
    /// `conversionReviewVersions` must include a version that Kubernetes supports.
    pub(super) review_versions: bool,
    /// Names and scope are immutable.
    pub(super) names: bool,
    /// Every version must have a schema.
    pub(super) schemas: bool,
    /// Types must be OpenAPI types.
    pub(super) types: bool,
    /// Schemas must be structural.
    pub(super) structural: bool,
    /// Defaults must not have unknown fields.
    pub(super) pruned_defaults: bool,
    /// The items of sets must be atomic.
    pub(super) atomic_sets: bool,
    /// The keys of keyed lists must be required or have defaults.
    pub(super) list_keys: bool,
    /// The `caBundle` of the webhook must be loadable.
    pub(super) ca_bundle: bool,
    /// The versions that may retain more selectable fields than allowed. The empty name means the fields common to all versions.
    pub(super) many_selectable: HashSet<String>,
    /// The versions with an unchanged schema, for which rule costs are not checked again.
    pub(super) unchanged: HashSet<String>,
    pub(super) stopwatch: Option<Arc<dyn Stopwatch>>,
    /// The remaining steps of the request.
    pub(super) budget: Budget,
}

impl Strictness {
    /// The rules for a new CRD. The `caBundle` is checked only once the CRD is established.
    pub(super) fn for_create(context: &CrdValidationContext) -> Self {
        Strictness {
            review_versions: true,
            names: false,
            schemas: true,
            types: true,
            structural: true,
            pruned_defaults: true,
            atomic_sets: true,
            list_keys: true,
            ca_bundle: false,
            many_selectable: HashSet::new(),
            unchanged: HashSet::new(),
            stopwatch: context.stopwatch.clone(),
            budget: context.budget.clone(),
        }
    }

    /// The rules that the old CRD fulfilled. Both specs are in the internal form.
    pub(super) fn for_update(
        new: &Value,
        old: &Value,
        established: bool,
        context: &CrdValidationContext,
    ) -> Self {
        let conversion = old.part("conversion").part("webhook");
        let reviews: Vec<&str> = conversion.texts("conversionReviewVersions").collect();
        let any = |pred: &dyn Fn(&Value) -> bool| schemas(old).any(|schema| has(schema, pred));
        let bundle = conversion.part("clientConfig").text("caBundle");
        Strictness {
            review_versions: reviews.is_empty() || reviews.iter().any(|v| matches!(*v, "v1" | "v1beta1")),
            names: established,
            schemas: old.part("validation").part("openAPIV3Schema").is_some()
                || old.items("versions").iter().all(|v| v.part("schema").part("openAPIV3Schema").is_some()),
            types: !any(&|schema| {
                let kind = schema.text("type");
                !matches!(kind, "" | "array" | "boolean" | "integer" | "number" | "object" | "string")
            }),
            structural: schemas(old).all(|schema| {
                structural::unreadable(schema).is_none()
                    && structural::violations(schema, &At::ROOT).is_empty()
            }),
            pruned_defaults: true,
            atomic_sets: !any(&is_set_of_parts),
            list_keys: !any(&|schema| {
                let mut errors = FieldErrors::new();
                extensions::list_keys(schema, &At::ROOT, &mut errors);
                !errors.is_empty()
            }),
            ca_bundle: established
                && (bundle.is_empty() || super::conversion::unreadable_bundle(bundle).is_none()),
            many_selectable: many_selectable(new, old),
            unchanged: unchanged(new, old),
            stopwatch: context.stopwatch.clone(),
            budget: context.budget.clone(),
        }
    }
}

fn schemas(spec: &Value) -> impl Iterator<Item = &Value> {
    let own = spec.part("validation").part("openAPIV3Schema");
    own.into_iter()
        .chain(spec.items("versions").iter().filter_map(|v| v.part("schema").part("openAPIV3Schema")))
}

/// Whether a schema or one below it matches `pred`.
pub(super) fn has(schema: &Value, pred: &dyn Fn(&Value) -> bool) -> bool {
    if pred(schema) {
        return true;
    }
    let below = |value: &Value| match value {
        Value::Map(_) => has(value, pred),
        Value::List(items) => items.iter().any(|item| has(item, pred)),
        _ => false,
    };
    ["items", "allOf", "anyOf", "oneOf", "not", "additionalProperties", "additionalItems"]
        .iter()
        .any(|field| schema.part(field).is_some_and(below))
        || ["properties", "patternProperties", "definitions", "dependencies"]
            .iter()
            .any(|field| schema.entries(field).any(|(_, inner)| inner.as_map().is_some() && has(inner, pred)))
}

/// Whether a schema of a spec, or one below it, matches `pred`.
pub(super) fn any(spec: &Value, pred: &dyn Fn(&Value) -> bool) -> bool {
    schemas(spec).any(|schema| has(schema, pred))
}

fn is_set_of_parts(schema: &Value) -> bool {
    let items = schema.part("items");
    schema.text("x-kubernetes-list-type") == "set"
        && match items.text("type") {
            "array" => !matches!(items.text_if_set("x-kubernetes-list-type"), None | Some("atomic")),
            "object" => items.text_if_set("x-kubernetes-map-type") != Some("atomic"),
            _ => false,
        }
}

fn many_selectable(new: &Value, old: &Value) -> HashSet<String> {
    let many =
        |spec: Option<&Value>| spec.items("selectableFields").len() > super::version_features::MAX_SELECTABLE;
    let mut allowed = HashSet::new();
    if many(Some(old)) && same(new.part("selectableFields"), old.part("selectableFields")) {
        allowed.insert(String::new());
    }
    let former = first_by(old.items("versions"), "name");
    for version in new.items("versions") {
        let before = former.get(version.text("name")).copied();
        if many(before) && same(version.part("selectableFields"), before.part("selectableFields")) {
            allowed.insert(version.text("name").to_owned());
        }
    }
    allowed
}

fn unchanged(new: &Value, old: &Value) -> HashSet<String> {
    let (versions, former) =
        (first_by(new.items("versions"), "name"), first_by(old.items("versions"), "name"));
    let schema_of = |spec: &Value, versions: &HashMap<&str, &Value>, name: &str| {
        let version = versions.get(name)?;
        Some(version.part("schema").or_else(|| spec.part("validation")).cloned())
    };
    let names = new.items("versions").iter().map(|version| version.text("name"));
    names
        .filter(|name| {
            let before = schema_of(old, &former, name);
            before.is_some_and(|before| {
                same(schema_of(new, &versions, name).flatten().as_ref(), before.as_ref())
            })
        })
        .map(str::to_owned)
        .collect()
}
