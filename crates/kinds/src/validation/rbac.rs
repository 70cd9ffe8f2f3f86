//! Validation of roles and role bindings.

use api::FieldErrors;
use api::field::FieldErrorKind;
use api::groups;
use api::names;
use api::validation::fields::{At, IMMUTABLE, Read, Report, same, supersede};
use api::validation::meta;
use value::Value;

use super::{ValidationContext, ValidationRules, internal_json, no_rules, required_name};

pub(crate) const ROLE: ValidationRules = ValidationRules {
    create: |role, _| declared_rules(role, None, role_rules(role)),
    update: |new, old, _| {
        let mut errors = role_rules(new);
        errors.extend(meta::update(new, old));
        declared_rules(new, Some(old), errors)
    },
    update_status: no_rules,
};
pub(crate) const CLUSTER_ROLE: ValidationRules = ValidationRules {
    create: |role, _| declared_rules(role, None, cluster_role(role, false)),
    update: |new, old, _| {
        let selectors = old.part("aggregationRule").items("clusterRoleSelectors");
        let lenient = selectors.iter().any(|selector| {
            let mut errors = FieldErrors::new();
            meta::label_selector(Some(selector), false, &At::ROOT, &mut errors);
            !errors.is_empty()
        });
        let mut errors = cluster_role(new, lenient);
        errors.extend(meta::update(new, old));
        declared_rules(new, Some(old), errors)
    },
    update_status: no_rules,
};
pub(crate) const ROLE_BINDING: ValidationRules =
    ValidationRules { create: create_role_binding, update: update_role_binding, update_status: no_rules };
pub(crate) const CLUSTER_ROLE_BINDING: ValidationRules = ValidationRules {
    create: create_cluster_role_binding,
    update: update_cluster_role_binding,
    update_status: no_rules,
};

/// Role names only need to be valid path segments.
fn rbac_name(name: &str, _: bool) -> Vec<String> {
    names::is_path_segment_name(name)
}

fn role_rules(role: &Value) -> FieldErrors {
    let mut errors = meta::create(role, true, rbac_name);
    policy_rules(role, true, &mut errors);
    errors
}

fn cluster_role(role: &Value, lenient: bool) -> FieldErrors {
    let mut errors = meta::create(role, false, rbac_name);
    policy_rules(role, false, &mut errors);
    if let Some(aggregation) = role.part("aggregationRule") {
        let at = At::new("aggregationRule.clusterRoleSelectors");
        let selectors = aggregation.items("clusterRoleSelectors");
        if selectors.is_empty() {
            let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
            errors.required(&at, detail);
        }
        for (i, selector) in selectors.iter().enumerate() {
            let count = errors.len();
            meta::label_selector(Some(selector), lenient, &at.index(i), &mut errors);
            if errors.len() > count {
                errors.invalid(&at.index(i), Value::Null, "invalid label selector.");
            }
        }
    }
    errors
}

fn policy_rules(role: &Value, is_namespaced: bool, errors: &mut FieldErrors) {
    let list = At::new("rules");
    for (i, rule) in role.items("rules").iter().enumerate() {
        let at = list.index(i);
        if rule.items("verbs").is_empty() {
            errors.required(&at.field("verbs"), "verbs must contain at least one value");
        }
        let urls = rule.items("nonResourceURLs");
        if !urls.is_empty() {
            let shown = Value::List(urls.to_vec());
            let at = at.field("nonResourceURLs");
            if is_namespaced {
                errors.invalid(&at, shown.clone(), "namespaced rules cannot apply to non-resource URLs");
            }
            if ["apiGroups", "resources", "resourceNames"].iter().any(|field| !rule.items(field).is_empty()) {
                let detail = "rules cannot apply to both regular resources and non-resource URLs";
                errors.invalid(&at, shown, detail);
            }
            continue;
        }
        if rule.items("apiGroups").is_empty() {
            errors.required(&at.field("apiGroups"), "resource rules must supply at least one api group");
        }
        if rule.items("resources").is_empty() {
            errors.required(&at.field("resources"), "resource rules must supply at least one resource");
        }
    }
}

/// Declarative validation: every rule needs verbs. Unchanged rules are not checked again.
fn declared_rules(new: &Value, old: Option<&Value>, errors: FieldErrors) -> FieldErrors {
    let mut declared = FieldErrors::new();
    if old.is_none_or(|old| !same(old.part("rules"), new.part("rules"))) {
        let list = At::new("rules");
        for (i, rule) in new.items("rules").iter().enumerate() {
            if rule.items("verbs").is_empty() {
                let at = list.index(i);
                declared.required(&at.field("verbs"), "");
            }
        }
    }
    supersede(errors, declared)
}

fn create_role_binding(binding: &Value, _: &ValidationContext) -> FieldErrors {
    declared_binding(binding, None, binding_rules(binding, true))
}

fn update_role_binding(new: &Value, old: &Value, _: &ValidationContext) -> FieldErrors {
    changed_binding(new, old, true)
}

fn create_cluster_role_binding(binding: &Value, _: &ValidationContext) -> FieldErrors {
    declared_binding(binding, None, binding_rules(binding, false))
}

fn update_cluster_role_binding(new: &Value, old: &Value, _: &ValidationContext) -> FieldErrors {
    changed_binding(new, old, false)
}

fn changed_binding(new: &Value, old: &Value, is_namespaced: bool) -> FieldErrors {
    let mut errors = binding_rules(new, is_namespaced);
    errors.extend(meta::update(new, old));
    if !same(new.part("roleRef"), old.part("roleRef")) {
        let shown = internal_json::compact("RoleRef", new.part("roleRef"));
        errors.report(FieldErrorKind::Invalid, &At::new("roleRef"), None, format!("{shown}: {IMMUTABLE}"));
    }
    declared_binding(new, Some(old), errors)
}

fn binding_rules(binding: &Value, is_namespaced: bool) -> FieldErrors {
    let mut errors = meta::create(binding, is_namespaced, rbac_name);
    let reference = binding.part("roleRef");
    let at = At::new("roleRef");
    if reference.text("apiGroup") != groups::RBAC {
        errors.not_supported(&at.field("apiGroup"), reference.text("apiGroup"), &[groups::RBAC]);
    }
    let kinds: &[&str] = if is_namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !kinds.contains(&reference.text("kind")) {
        errors.not_supported(&at.field("kind"), reference.text("kind"), kinds);
    }
    required_name(reference, "name", names::is_path_segment_name, &at, &mut errors);
    let list = At::new("subjects");
    for (i, subject) in binding.items("subjects").iter().enumerate() {
        subject_rules(subject, is_namespaced, &list.index(i), &mut errors);
    }
    errors
}

fn subject_rules(subject: &Value, is_namespaced: bool, at: &At<'_>, errors: &mut FieldErrors) {
    let (name, group) = (subject.text("name"), subject.text("apiGroup"));
    if name.is_empty() {
        errors.required(&at.field("name"), "");
    }
    match subject.text("kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                errors.invalid_each(&at.field("name"), name, names::is_dns1123_subdomain(name));
            }
            if !group.is_empty() {
                errors.not_supported(&at.field("apiGroup"), group, &[""]);
            }
            if !is_namespaced && subject.text("namespace").is_empty() {
                errors.required(&at.field("namespace"), "");
            }
        }
        "User" | "Group" => {
            if group != groups::RBAC {
                errors.not_supported(&at.field("apiGroup"), group, &[groups::RBAC]);
            }
        }
        other => errors.not_supported(&at.field("kind"), other, &["ServiceAccount", "User", "Group"]),
    }
}

/// Declarative validation: subjects and the role need names.
fn declared_binding(new: &Value, old: Option<&Value>, errors: FieldErrors) -> FieldErrors {
    let mut declared = FieldErrors::new();
    let list = At::new("subjects");
    let unchanged = old.is_some_and(|old| same(old.part("subjects"), new.part("subjects")));
    for (i, subject) in new.items("subjects").iter().enumerate() {
        if subject.text("name").is_empty() && !unchanged {
            let at = list.index(i);
            declared.required(&at.field("name"), "");
        }
    }
    // A changed reference is already rejected as a whole.
    if old.is_none() && new.part("roleRef").text("name").is_empty() {
        declared.required(&At::new("roleRef.name"), "");
    }
    supersede(errors, declared)
}
