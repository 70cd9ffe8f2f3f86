//! Validation of workloads, pod groups and composite pod groups.

mod declared;

use std::collections::HashSet;

use api::field::FieldErrorKind;
use api::validation::fields::{At, Read, Report, supersede};
use api::validation::meta;
use api::{FieldErrors, names};
use value::Value;

use self::declared::{COMPOSITE_POD_GROUP_OBJECT, POD_GROUP_OBJECT, WORKLOAD_OBJECT};
use super::declared::{DeclaredContext, DeclaredType};
use super::{ValidationContext, ValidationRules, internal_json, no_rules};

pub(crate) const WORKLOAD: ValidationRules = ValidationRules {
    create: |object, context| {
        let mut errors = meta::create(object, true, names::name_is_dns_subdomain);
        workload(object.part("spec"), &mut errors);
        supersede(errors, declared(&WORKLOAD_OBJECT, object, None, context))
    },
    update: |new, old, context| {
        let mut errors = meta::update(new, old);
        workload(new.part("spec"), &mut errors);
        supersede(errors, declared(&WORKLOAD_OBJECT, new, Some(old), context))
    },
    update_status: no_rules,
};

pub(crate) const POD_GROUP: ValidationRules = ValidationRules {
    create: |object, context| {
        let mut errors = meta::create(object, true, names::name_is_dns_subdomain);
        let spec = object.part("spec");
        if spec.part("parentCompositePodGroupName").is_some() && spec.part("workloadRef").is_none() {
            let detail = "must be set when parentCompositePodGroupName is set";
            errors.required(&SPEC.field("workloadRef"), detail);
        }
        supersede(errors, declared(&POD_GROUP_OBJECT, object, None, context))
    },
    update: |new, old, context| {
        supersede(meta::update(new, old), declared(&POD_GROUP_OBJECT, new, Some(old), context))
    },
    update_status: |new, old, context| {
        let mut errors = meta::update(new, old);
        conditions(new, &mut errors);
        claim_statuses(new, &mut errors);
        supersede(errors, declared(&POD_GROUP_OBJECT, new, Some(old), context))
    },
};

pub(crate) const COMPOSITE_POD_GROUP: ValidationRules = ValidationRules {
    create: |object, context| {
        let errors = meta::create(object, true, names::name_is_dns_subdomain);
        supersede(errors, declared(&COMPOSITE_POD_GROUP_OBJECT, object, None, context))
    },
    update: |new, old, context| {
        supersede(meta::update(new, old), declared(&COMPOSITE_POD_GROUP_OBJECT, new, Some(old), context))
    },
    update_status: |new, old, context| {
        let mut errors = meta::update(new, old);
        conditions(new, &mut errors);
        supersede(errors, declared(&COMPOSITE_POD_GROUP_OBJECT, new, Some(old), context))
    },
};

const SPEC: At<'static> = At::new("spec");
const STATUS: At<'static> = At::new("status");
const TEMPLATES: &str = "podGroupTemplates";
const COMPOSITE_TEMPLATES: &str = "compositePodGroupTemplates";

/// Levels of composite templates that a workload may have.
const MAX_DEPTH: usize = 4;
/// Errors about nested templates. Each quotes its templates, so more could fill the memory.
const MAX_NESTED_ERRORS: usize = 64;

fn declared(of: &DeclaredType, new: &Value, old: Option<&Value>, context: &ValidationContext) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let declared = DeclaredContext { is_update: old.is_some(), features: context.features };
    declared.check(of, Some(new), old, &At::ROOT, &mut errors);
    errors
}

fn conditions(object: &Value, errors: &mut FieldErrors) {
    meta::conditions(object.part("status").items("conditions"), &STATUS.field("conditions"), errors);
}

/// A claim's status has the name of a claim of the group.
fn claim_statuses(group: &Value, errors: &mut FieldErrors) {
    let claims = group.part("spec").items("resourceClaims");
    let claims: HashSet<&str> = claims.iter().map(|claim| claim.text("name")).collect();
    let list = STATUS.field("resourceClaimStatuses");
    for (i, status) in group.part("status").items("resourceClaimStatuses").iter().enumerate() {
        let name = status.text("name");
        if !claims.contains(name) {
            let detail = "must match the name of an entry in `spec.resourceClaims`";
            errors.invalid(&list.index(i).field("name"), name, detail);
        }
    }
}

/// The rules about the tree of templates.
fn workload(spec: Option<&Value>, errors: &mut FieldErrors) {
    let mut known: HashSet<&str> =
        spec.items(TEMPLATES).iter().map(|template| template.text("name")).collect();
    composite_names(spec, &SPEC, &mut known, errors);
    depth(spec, errors);
    priorities(spec, errors);
    for (i, template) in spec.items(COMPOSITE_TEMPLATES).iter().enumerate() {
        has_children(template, &SPEC.field(COMPOSITE_TEMPLATES).index(i), errors);
    }
}

/// Names are unique in the whole tree. Repetitions in one list are found by the declared rules.
fn composite_names<'a>(
    holder: Option<&'a Value>,
    at: &At<'_>,
    known: &mut HashSet<&'a str>,
    errors: &mut FieldErrors,
) {
    let templates = holder.items(COMPOSITE_TEMPLATES);
    let list = at.field(COMPOSITE_TEMPLATES);
    new_names(templates, &list, known, errors);
    for (i, template) in templates.iter().enumerate() {
        let at = list.index(i);
        new_names(template.items(TEMPLATES), &at.field(TEMPLATES), known, errors);
        composite_names(Some(template), &at, known, errors);
    }
}

fn new_names<'a>(
    templates: &'a [Value],
    list: &At<'_>,
    known: &mut HashSet<&'a str>,
    errors: &mut FieldErrors,
) {
    for (i, template) in templates.iter().enumerate() {
        let name = template.text("name");
        if known.contains(name) {
            errors.duplicate(&list.index(i).field("name"), name);
        }
    }
    known.extend(templates.iter().map(|template| template.text("name")));
}

fn depth(spec: Option<&Value>, errors: &mut FieldErrors) {
    fn reaches(template: &Value, depth: usize) -> bool {
        depth == MAX_DEPTH
            || template.items(COMPOSITE_TEMPLATES).iter().any(|child| reaches(child, depth + 1))
    }
    let list = SPEC.field(COMPOSITE_TEMPLATES);
    let deep =
        spec.items(COMPOSITE_TEMPLATES).iter().enumerate().filter(|(_, template)| reaches(template, 1));
    for (i, template) in deep.take(MAX_NESTED_ERRORS) {
        let shown = internal_json::compact(
            "[]scheduling.CompositePodGroupTemplate",
            template.part(COMPOSITE_TEMPLATES),
        );
        errors.invalid_json(
            &list.index(i),
            &shown,
            &format!("maximum template hierarchy depth is {MAX_DEPTH}"),
        );
    }
}

/// All templates have the same priority class and priority.
fn priorities(spec: Option<&Value>, errors: &mut FieldErrors) {
    fn all<'a>(template: &'a Value, found: &mut Vec<(&'a str, Option<i64>)>) {
        found.push(priority(template));
        for child in template.items(COMPOSITE_TEMPLATES) {
            all(child, found);
        }
        found.extend(template.items(TEMPLATES).iter().map(priority));
    }
    fn priority(template: &Value) -> (&str, Option<i64>) {
        (template.text("priorityClassName"), template.number_if_set("priority"))
    }
    let mut found: Vec<(&str, Option<i64>)> = spec.items(TEMPLATES).iter().map(priority).collect();
    let differs = |found: &[(&str, Option<i64>)]| found.iter().any(|other| Some(other) != found.first());
    let detail = if differs(&found) {
        "detected multiple priority configurations"
    } else {
        for template in spec.items(COMPOSITE_TEMPLATES) {
            all(template, &mut found);
        }
        if !differs(&found) {
            return;
        }
        "all priority and priorityClassName values must be identical, detected multiple values"
    };
    errors.report(FieldErrorKind::Invalid, &SPEC, Some(Value::Null), detail.to_owned());
}

fn has_children(template: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let children = template.items(COMPOSITE_TEMPLATES);
    if children.is_empty() && template.items(TEMPLATES).is_empty() {
        let detail = "must have at least one child PodGroupTemplate or CompositePodGroupTemplate";
        errors.invalid(at, template.text("name"), detail);
    }
    let list = at.field(COMPOSITE_TEMPLATES);
    for (i, child) in children.iter().enumerate() {
        has_children(child, &list.index(i), errors);
    }
}
