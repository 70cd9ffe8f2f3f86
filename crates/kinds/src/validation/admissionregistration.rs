//! Validation of webhook configurations, and of the resource rules that webhooks and policies share.

use std::collections::HashSet;

use api::FieldErrors;
use api::names;
use api::validation::fields::{At, Read, Report, same};
use api::validation::repeated::Repeated;
use api::validation::{meta, webhook_client};
use value::Value;

use super::admission_expression::{Expressions, StoredExpressions};
use super::{ValidationContext, ValidationRules, no_rules, optional_value};

pub(crate) const MUTATING_WEBHOOKS: ValidationRules = ValidationRules {
    create: |object, context| create(object, context, true),
    update: |new, old, _| {
        webhooks(new, true, &WebhookValidationOptions::of(new, old), &StoredExpressions::of_webhooks(old))
    },
    update_status: no_rules,
};
pub(crate) const VALIDATING_WEBHOOKS: ValidationRules = ValidationRules {
    create: |object, context| create(object, context, false),
    update: |new, old, _| {
        webhooks(new, false, &WebhookValidationOptions::of(new, old), &StoredExpressions::of_webhooks(old))
    },
    update_status: no_rules,
};

/// Suffix of names reserved for configuration from manifest files; the API rejects them.
pub const STATIC_SUFFIX: &str = ".static.k8s.io";

const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];
pub(super) const FAILURE_POLICIES: [&str; 2] = ["Fail", "Ignore"];
const MATCH_POLICIES: [&str; 2] = ["Equivalent", "Exact"];
pub(super) const REINVOCATION_POLICIES: [&str; 2] = ["IfNeeded", "Never"];
const MAX_CONDITIONS: usize = 64;

/// Relaxations for an update: values that the old configuration has although a new one may not have them.
#[expect(clippy::struct_excessive_bools, reason = "each is one thing an old object may keep")]
struct WebhookValidationOptions {
    skip_conditions: bool,
    any_side_effects: bool,
    any_review_version: bool,
    repeated_names: bool,
    lenient_selectors: bool,
}

impl WebhookValidationOptions {
    const STRICT: WebhookValidationOptions = WebhookValidationOptions {
        skip_conditions: false,
        any_side_effects: false,
        any_review_version: false,
        repeated_names: false,
        lenient_selectors: false,
    };

    fn of(new: &Value, old: &Value) -> Self {
        let (hooks, former) = (new.items("webhooks"), old.items("webhooks"));
        WebhookValidationOptions {
            skip_conditions: hooks.len() == former.len()
                && hooks
                    .iter()
                    .zip(former)
                    .all(|(hook, old)| same(hook.part("matchConditions"), old.part("matchConditions"))),
            any_side_effects: former
                .iter()
                .any(|hook| !matches!(hook.text("sideEffects"), "None" | "NoneOnDryRun")),
            any_review_version: former.iter().any(|hook| {
                let mut versions = hook.texts("admissionReviewVersions").peekable();
                versions.peek().is_some() && !versions.any(|version| REVIEW_VERSIONS.contains(&version))
            }),
            repeated_names: Repeated::earlier(former.iter().map(|hook| hook.text("name"))).any(),
            lenient_selectors: former.iter().any(|hook| {
                let mut errors = FieldErrors::new();
                for field in ["namespaceSelector", "objectSelector"] {
                    meta::label_selector(hook.part(field), false, &At::ROOT, &mut errors);
                }
                !errors.is_empty()
            }),
        }
    }
}

fn create(object: &Value, context: &ValidationContext, is_mutating: bool) -> FieldErrors {
    let mut errors =
        webhooks(object, is_mutating, &WebhookValidationOptions::STRICT, &StoredExpressions::default());
    static_name(object, context, &mut errors);
    errors
}

/// Rejects a name that only manifest files may use.
pub(super) fn static_name(object: &Value, context: &ValidationContext, errors: &mut FieldErrors) {
    let name = api::meta::name(object);
    if name.ends_with(STATIC_SUFFIX) && !context.static_names {
        let detail = format!(
            "names ending with \"{STATIC_SUFFIX}\" are reserved for static manifest-based configurations and cannot be managed via the API"
        );
        errors.invalid(&At::new("metadata.name"), name, detail);
    }
}

fn webhooks(
    object: &Value,
    is_mutating: bool,
    options: &WebhookValidationOptions,
    known: &StoredExpressions<'_>,
) -> FieldErrors {
    let mut errors = meta::create(object, false, names::name_is_dns_subdomain);
    let list = At::new("webhooks");
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, hook) in object.items("webhooks").iter().enumerate() {
        let at = list.index(i);
        webhook(hook, is_mutating, options, &at, &mut errors);
        if !options.skip_conditions {
            let expressions = Expressions::of_webhook(known);
            match_conditions(
                hook.items("matchConditions"),
                &expressions,
                &at.field("matchConditions"),
                &mut errors,
            );
        }
        review_versions(hook, options, &at.field("admissionReviewVersions"), &mut errors);
        let name = hook.text("name");
        if !options.repeated_names && !name.is_empty() && !seen.insert(name) {
            errors.duplicate(&at.field("name"), name);
        }
    }
    errors
}

fn webhook(
    hook: &Value,
    is_mutating: bool,
    options: &WebhookValidationOptions,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    let count = errors.len();
    errors.extend(names::is_fully_qualified_name(&value::Path::root(), hook.text("name")));
    for error in errors.iter_mut().skip(count) {
        error.field = at.field("name").to_string();
    }
    let rules = at.field("rules");
    for (i, rule) in hook.items("rules").iter().enumerate() {
        rule_with_operations(rule, &rules.index(i), errors);
    }
    optional_value(hook, "failurePolicy", &FAILURE_POLICIES, at, errors);
    optional_value(hook, "matchPolicy", &MATCH_POLICIES, at, errors);
    let effects: &[&str] = if options.any_side_effects {
        &["None", "NoneOnDryRun", "Some", "Unknown"]
    } else {
        &["None", "NoneOnDryRun"]
    };
    if hook.part("sideEffects").is_none() {
        errors.required(&at.field("sideEffects"), format!("must specify one of {}", effects.join(", ")));
    }
    optional_value(hook, "sideEffects", effects, at, errors);
    if let Some(seconds) = hook.number_if_set("timeoutSeconds")
        && !(1..=30).contains(&seconds)
    {
        let detail = "the timeout value must be between 1 and 30 seconds";
        errors.invalid(&at.field("timeoutSeconds"), seconds, detail);
    }
    for field in ["namespaceSelector", "objectSelector"] {
        meta::label_selector(hook.part(field), options.lenient_selectors, &at.field(field), errors);
    }
    if is_mutating {
        optional_value(hook, "reinvocationPolicy", &REINVOCATION_POLICIES, at, errors);
    }
    webhook_client::client_config(hook.part("clientConfig"), &at.field("clientConfig"), errors);
}

fn review_versions(hook: &Value, options: &WebhookValidationOptions, at: &At<'_>, errors: &mut FieldErrors) {
    let versions: Vec<&str> = hook.texts("admissionReviewVersions").collect();
    let accepted = REVIEW_VERSIONS.join(", ");
    if versions.is_empty() {
        errors.required(at, format!("must specify one of {accepted}"));
        return;
    }
    let repeated = Repeated::earlier(&versions);
    for (i, version) in versions.iter().enumerate() {
        if repeated.at(i) {
            errors.invalid(&at.index(i), *version, "duplicate version");
            continue;
        }
        errors.invalid_each(&at.index(i), version, names::is_dns1035_label(version));
    }
    if !options.any_review_version && !versions.iter().any(|version| REVIEW_VERSIONS.contains(version)) {
        let detail = format!("must include at least one of {accepted}");
        errors.invalid(at, Value::list(versions), detail);
    }
}

pub(super) fn match_conditions(
    conditions: &[Value],
    expressions: &Expressions<'_>,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    if conditions.len() > MAX_CONDITIONS {
        errors.too_many(at, conditions.len(), MAX_CONDITIONS);
    }
    let repeated = Repeated::of_field(conditions, "name");
    for (i, condition) in conditions.iter().enumerate() {
        let here = at.index(i);
        let expression = condition.text("expression").trim();
        if expression.is_empty() {
            errors.required(&here.field("expression"), "");
        } else {
            expressions.condition(expression, &here.field("expression"), errors);
        }
        let name = condition.text("name");
        if name.is_empty() {
            errors.required(&here.field("name"), "");
        } else {
            errors.invalid_each(&here.field("name"), name, names::is_qualified_name(name));
            if repeated.at(i) {
                errors.duplicate(&here.field("name"), name);
            }
        }
    }
}

/// Validates a rule that selects requests by operation and resource.
pub(super) fn rule_with_operations(rule: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
    let operations: Vec<&str> = rule.texts("operations").collect();
    let here = at.field("operations");
    if operations.is_empty() {
        errors.required(&here, "");
    }
    if operations.len() > 1 && operations.contains(&"*") {
        let shown = Value::list(operations.iter().copied());
        errors.invalid(&here, shown, "if '*' is present, must not specify other operations");
    }
    for (i, operation) in operations.iter().enumerate() {
        if !OPERATIONS.contains(operation) {
            errors.not_supported(&here.index(i), *operation, &OPERATIONS);
        }
    }
    for (field, what) in [("apiGroups", "API groups"), ("apiVersions", "API versions")] {
        let here = at.field(field);
        let values: Vec<&str> = rule.texts(field).collect();
        if values.is_empty() {
            errors.required(&here, "");
        }
        if values.len() > 1 && values.contains(&"*") {
            let detail = format!("if '*' is present, must not specify other {what}");
            errors.invalid(&here, Value::list(values.iter().copied()), detail);
        }
        if field == "apiVersions" {
            for (i, _) in values.iter().enumerate().filter(|(_, version)| version.is_empty()) {
                errors.required(&here.index(i), "");
            }
        }
    }
    resources(rule, &at.field("resources"), errors);
    optional_value(rule, "scope", &["*", "Cluster", "Namespaced"], at, errors);
}

fn resources(rule: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let resources: Vec<&str> = rule.texts("resources").collect();
    if resources.is_empty() {
        errors.required(at, "");
    }
    let mut whole_resources: HashSet<&str> = HashSet::new();
    let mut whole_subresources: HashSet<&str> = HashSet::new();
    let (mut has_all, mut has_star, mut has_plain) = (false, false, false);
    for (i, resource) in resources.iter().enumerate() {
        let here = at.index(i);
        if resource.is_empty() {
            errors.required(&here, "");
            continue;
        }
        has_all |= *resource == "*/*";
        has_star |= *resource == "*";
        let Some((name, sub)) = resource.split_once('/') else {
            // As in kube-apiserver, only the last name without a subresource counts.
            has_plain = *resource != "*";
            continue;
        };
        if whole_resources.contains(name) {
            let detail = format!("if '{name}/*' is present, must not specify {resource}");
            errors.invalid(&here, *resource, detail);
        }
        if whole_subresources.contains(sub) {
            let detail = format!("if '*/{sub}' is present, must not specify {resource}");
            errors.invalid(&here, *resource, detail);
        }
        if sub == "*" {
            whole_resources.insert(name);
        }
        if name == "*" {
            whole_subresources.insert(sub);
        }
    }
    let shown = || Value::list(resources.iter().copied());
    if resources.len() > 1 && has_all {
        errors.invalid(at, shown(), "if '*/*' is present, must not specify other resources");
    }
    if has_star && has_plain {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.invalid(at, shown(), detail);
    }
}

/// Validates the match constraints of a policy or binding.
pub(super) fn match_resources(resources: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    let Some(holder) = resources else { return };
    if holder.part("matchPolicy").is_none() {
        errors.required(&at.field("matchPolicy"), "");
    }
    optional_value(holder, "matchPolicy", &MATCH_POLICIES, at, errors);
    for field in ["namespaceSelector", "objectSelector"] {
        match holder.part(field) {
            None => errors.required(&at.field(field), ""),
            selector => meta::label_selector(selector, false, &at.field(field), errors),
        }
    }
    for field in ["resourceRules", "excludeResourceRules"] {
        let list = at.field(field);
        for (i, rule) in holder.items(field).iter().enumerate() {
            let here = list.index(i);
            let names_at = here.field("resourceNames");
            let mut seen: HashSet<&str> = HashSet::new();
            for (j, name) in rule.texts("resourceNames").enumerate() {
                errors.invalid_each(&names_at.index(j), name, names::is_path_segment_name(name));
                if !seen.insert(name) {
                    errors.duplicate(&names_at.index(j), name);
                }
            }
            rule_with_operations(rule, &here, errors);
        }
    }
}
