//! Validation of admission policies and their bindings.

use api::FieldErrors;
use api::names;
use api::validation::fields::{At, Read, Report, same, supersede};
use api::validation::meta;
use api::validation::repeated::Repeated;
use value::Value;

use super::admission_expression::{Expressions, StoredExpressions};
use super::admissionregistration::{
    FAILURE_POLICIES, REINVOCATION_POLICIES, match_conditions, match_resources, static_name,
};
use super::{ValidationContext, ValidationRules, no_rules, optional_value, required_name};

pub(crate) const VALIDATING_POLICY: ValidationRules = ValidationRules {
    create: |policy, context| created(policy, context, validating_policy),
    update: |new, old, _| {
        validating_policy(new, keeps_conditions(new, old), &StoredExpressions::of_policy(old))
    },
    update_status: validating_policy_status,
};
pub(crate) const MUTATING_POLICY: ValidationRules = ValidationRules {
    create: |policy, context| created(policy, context, mutating_policy),
    update: |new, old, _| {
        mutating_policy(new, keeps_conditions(new, old), &StoredExpressions::of_policy(old))
    },
    update_status: no_rules,
};
pub(crate) const VALIDATING_BINDING: ValidationRules = ValidationRules {
    create: |binding, context| {
        let mut errors = validating_binding(binding);
        static_name(binding, context, &mut errors);
        // Objects from manifest files skip declarative validation.
        if context.is_manifest {
            return errors;
        }
        supersede(errors, declared_binding(binding, None))
    },
    update: |new, old, _| supersede(validating_binding(new), declared_binding(new, Some(old))),
    update_status: no_rules,
};
pub(crate) const MUTATING_BINDING: ValidationRules = ValidationRules {
    create: |binding, context| {
        let mut errors = mutating_binding(binding);
        static_name(binding, context, &mut errors);
        errors
    },
    update: |new, _, _| mutating_binding(new),
    update_status: no_rules,
};

const SPEC: At<'static> = At::new("spec");
const MAX_AUDIT_ANNOTATIONS: usize = 20;
const MAX_VALUE_EXPRESSION: usize = 5 * 1024;
const NOT_SPECIFIED: &str = "expression is not specified";

fn created(
    policy: &Value,
    context: &ValidationContext,
    rules: fn(&Value, bool, &StoredExpressions<'_>) -> FieldErrors,
) -> FieldErrors {
    let mut errors = rules(policy, false, &StoredExpressions::default());
    static_name(policy, context, &mut errors);
    errors
}

/// Returns true if the update leaves match conditions and parameters unchanged, so they are not validated again.
fn keeps_conditions(new: &Value, old: &Value) -> bool {
    ["paramKind", "matchConditions"]
        .iter()
        .all(|field| same(new.part("spec").part(field), old.part("spec").part(field)))
}

fn policy_rules(
    policy: &Value,
    skip_conditions: bool,
    is_mutating: bool,
    expressions: &Expressions<'_>,
) -> FieldErrors {
    let mut errors = meta::create(policy, false, names::name_is_dns_subdomain);
    let spec = policy.part("spec");
    if spec.part("failurePolicy").is_none() {
        errors.required(&SPEC.field("failurePolicy"), "");
    }
    if let Some(spec) = spec {
        optional_value(spec, "failurePolicy", &FAILURE_POLICIES, &SPEC, &mut errors);
    }
    if let Some(kind) = spec.part("paramKind") {
        param_kind(kind, &SPEC.field("paramKind"), &mut errors);
    }
    let at = SPEC.field("matchConstraints");
    let constraints = spec.part("matchConstraints");
    if constraints.is_none() {
        errors.required(&at, "");
    } else {
        match_resources(constraints, &at, &mut errors);
        if constraints.items("resourceRules").is_empty() {
            errors.required(&at.field("resourceRules"), "");
        }
        if is_mutating {
            mutable_operations(constraints, &at, &mut errors);
        }
    }
    if !skip_conditions {
        let at = SPEC.field("matchConditions");
        match_conditions(spec.items("matchConditions"), expressions, &at, &mut errors);
    }
    let list = SPEC.field("variables");
    for (i, variable) in spec.items("variables").iter().enumerate() {
        let here = list.index(i);
        let name = variable.text("name");
        if name.trim().is_empty() {
            errors.required(&here.field("name"), "name is not specified");
        } else if !is_cel_identifier(name) {
            errors.invalid(&here.field("name"), name, "must be a valid CEL identifier");
        }
        let expression = variable.text("expression");
        if expression.trim().is_empty() {
            errors.required(&here.field("expression"), NOT_SPECIFIED);
        } else {
            expressions.variable(name, expression, &here.field("expression"), &mut errors);
        }
    }
    errors
}

/// Rejects DELETE, because a deleted object cannot be mutated.
fn mutable_operations(resources: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    const OPERATIONS: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];
    let rules = resources.items("resourceRules").iter();
    for operation in rules.flat_map(|rule| rule.texts("operations")) {
        if !OPERATIONS.contains(&operation) {
            errors.not_supported(&at.field("resourceRules.operations"), operation, &OPERATIONS);
        }
    }
}

fn param_kind(kind: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let version_at = at.field("apiVersion");
    let text = kind.text("apiVersion");
    if text.is_empty() {
        errors.required(&version_at, "");
    } else if text.matches('/').count() > 1 {
        errors.invalid(&version_at, text, format!("unexpected GroupVersion string: {text}"));
    } else {
        let (group, version) =
            if text == "/" { ("", "") } else { text.split_once('/').unwrap_or(("", text)) };
        if !group.is_empty() {
            let wrong = names::is_dns1123_subdomain(group);
            if !wrong.is_empty() {
                errors.invalid(&version_at, group, wrong.join(","));
            }
        }
        if version.is_empty() {
            errors.invalid(&version_at, text, "version must be specified");
        } else {
            let wrong = names::is_dns1035_label(version);
            if !wrong.is_empty() {
                errors.invalid(&version_at, version, wrong.join(","));
            }
        }
    }
    let name = kind.text("kind");
    if name.is_empty() {
        errors.required(&at.field("kind"), "");
    } else {
        let wrong = names::is_dns1035_label(&name.to_lowercase());
        if !wrong.is_empty() {
            let detail = format!("may have mixed case, but should otherwise match: {}", wrong.join(","));
            errors.invalid(&at.field("kind"), name, detail);
        }
    }
}

/// Returns true if the name is a valid CEL identifier.
fn is_cel_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c == '_' || c.is_ascii_alphabetic())
        && chars.all(|c| c == '_' || c.is_ascii_alphanumeric())
        && !cel::is_reserved(name)
}

fn validating_policy(policy: &Value, skip_conditions: bool, known: &StoredExpressions<'_>) -> FieldErrors {
    let expressions = Expressions::of_policy(policy, false, known);
    let mut errors = policy_rules(policy, skip_conditions, false, &expressions);
    let spec = policy.part("spec");
    let (validations, annotations) = (spec.items("validations"), spec.items("auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        let detail = "validations or auditAnnotations must contain at least one item";
        errors.required(&SPEC.field("validations"), detail);
        errors.required(&SPEC.field("auditAnnotations"), detail);
        return errors;
    }
    let list = SPEC.field("validations");
    for (i, validation) in validations.iter().enumerate() {
        validation_rules(validation, &expressions, &list.index(i), &mut errors);
    }
    let list = SPEC.field("auditAnnotations");
    if annotations.len() > MAX_AUDIT_ANNOTATIONS {
        let shown = super::internal_json::compact("[]AuditAnnotation", spec.part("auditAnnotations"));
        let detail = format!("{shown}: must not have more than {MAX_AUDIT_ANNOTATIONS} auditAnnotations");
        errors.report(api::field::FieldErrorKind::Invalid, &list, None, detail);
    }
    let policy_name = api::meta::name(policy);
    let repeated = Repeated::of_field(annotations, "key");
    for (i, annotation) in annotations.iter().enumerate() {
        let at = list.index(i);
        let key = annotation.text("key");
        if policy_name.is_empty() {
            errors.invalid(&at.field("key"), key, "requires metadata.name be non-empty");
        } else {
            let full = format!("{policy_name}/{key}");
            errors.invalid_each(&at.field("key"), &full, names::is_qualified_name(&full));
        }
        let expression = annotation.text("valueExpression").trim();
        if expression.is_empty() {
            errors.required(&at.field("valueExpression"), "valueExpression is not specified");
        } else if expression.len() > MAX_VALUE_EXPRESSION {
            let detail = format!("must not exceed {MAX_VALUE_EXPRESSION} bytes in length");
            errors.required(&at.field("valueExpression"), detail);
        } else {
            let written = annotation.text("valueExpression");
            expressions.annotation(written, &at.field("valueExpression"), &mut errors);
        }
        if repeated.at(i) {
            errors.duplicate(&at.field("key"), key);
        }
    }
    errors
}

fn validation_rules(
    validation: &Value,
    expressions: &Expressions<'_>,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
    let expression = validation.text("expression");
    if expression.trim().is_empty() {
        errors.required(&at.field("expression"), NOT_SPECIFIED);
    } else {
        expressions.validation(expression, &at.field("expression"), errors);
    }
    for field in ["messageExpression", "message"] {
        let text = validation.text(field);
        if !text.is_empty() && text.trim().is_empty() {
            errors.invalid(&at.field(field), text, "must be non-empty if specified");
        } else if field == "messageExpression" && !text.is_empty() {
            expressions.message(text, &at.field(field), errors);
        } else if field == "message" && text.trim().contains(['\n', '\r']) {
            errors.invalid(&at.field(field), text, "must not contain line breaks");
        }
    }
    optional_value(validation, "reason", &REASONS, at, errors);
}

fn validating_policy_status(new: &Value, _: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let status = new.part("status");
    let list = At::new("status.typeChecking.expressionWarnings");
    for (i, warning) in status.part("typeChecking").items("expressionWarnings").iter().enumerate() {
        let at = list.index(i);
        if warning.text("warning").is_empty() {
            errors.required(&at.field("warning"), "");
        }
        if warning.text("fieldRef").trim().is_empty() {
            errors.required(&at.field("fieldRef"), "");
        }
    }
    meta::conditions(status.items("conditions"), &At::new("status.conditions"), &mut errors);
    errors
}

fn mutating_policy(policy: &Value, skip_conditions: bool, known: &StoredExpressions<'_>) -> FieldErrors {
    let expressions = Expressions::of_policy(policy, true, known);
    let mut errors = policy_rules(policy, skip_conditions, true, &expressions);
    let spec = policy.part("spec");
    let mutations = spec.items("mutations");
    let list = SPEC.field("mutations");
    if mutations.is_empty() {
        errors.required(&list, "mutations must contain at least one item");
    }
    for (i, mutation) in mutations.iter().enumerate() {
        mutation_rules(mutation, &expressions, &list.index(i), &mut errors);
    }
    let policy = spec.text("reinvocationPolicy");
    let at = SPEC.field("reinvocationPolicy");
    if policy.is_empty() {
        errors.required(&at, "");
    } else if !REINVOCATION_POLICIES.contains(&policy) {
        errors.not_supported(&at, policy, &REINVOCATION_POLICIES);
    }
    errors
}

fn mutation_rules(mutation: &Value, expressions: &Expressions<'_>, at: &At<'_>, errors: &mut FieldErrors) {
    let kind = mutation.text("patchType");
    let (wanted, other) = match kind {
        "" => {
            errors.required(&at.field("patchType"), "");
            return;
        }
        "JSONPatch" => ("jsonPatch", "applyConfiguration"),
        "ApplyConfiguration" => ("applyConfiguration", "jsonPatch"),
        unknown => {
            errors.not_supported(&at.field("patchType"), unknown, &["ApplyConfiguration", "JSONPatch"]);
            return;
        }
    };
    match mutation.part(wanted) {
        None => {
            errors.required(&at.field(wanted), format!("must be specified when patchType is {kind}"));
        }
        Some(patch) => {
            let wanted_at = at.field(wanted);
            let expression = patch.text("expression");
            if expression.trim().is_empty() {
                errors.required(&wanted_at.field("expression"), "");
            } else {
                expressions.mutation(kind, expression, &wanted_at.field("expression"), errors);
            }
        }
    }
    if mutation.part(other).is_some() {
        let detail = format!("must not be specified when patchType is {kind}");
        errors.invalid(&at.field(other), format!("{{{other}}}"), detail);
    }
}

fn binding_rules(binding: &Value) -> FieldErrors {
    let mut errors = meta::create(binding, false, names::name_is_dns_subdomain);
    let spec = binding.part("spec");
    required_name(spec, "policyName", names::is_dns1123_subdomain, &SPEC, &mut errors);
    if let Some(reference) = spec.part("paramRef") {
        param_ref(reference, &SPEC.field("paramRef"), &mut errors);
    }
    match_resources(spec.part("matchResources"), &SPEC.field("matchResources"), &mut errors);
    errors
}

fn mutating_binding(binding: &Value) -> FieldErrors {
    let mut errors = binding_rules(binding);
    let resources = binding.part("spec").part("matchResources");
    mutable_operations(resources, &SPEC.field("matchResources"), &mut errors);
    errors
}

fn param_ref(reference: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    const EXCLUSIVE: &str = "name and selector are mutually exclusive";
    let name = reference.text("name");
    let selector = reference.part("selector");
    if !name.is_empty() {
        errors.invalid_each(&at.field("name"), name, names::is_path_segment_name(name));
        if selector.is_some() {
            errors.forbidden(&at.field("name"), EXCLUSIVE);
        }
    }
    if selector.is_some() {
        meta::label_selector(selector, false, &at.field("selector"), errors);
        if !name.is_empty() {
            errors.forbidden(&at.field("selector"), EXCLUSIVE);
        }
    }
    if name.is_empty() && selector.is_none() {
        errors.required(at, "one of name or selector must be specified");
    }
    let action = reference.text("parameterNotFoundAction");
    if action.is_empty() {
        errors.required(&at.field("parameterNotFoundAction"), "");
    } else if !matches!(action, "Deny" | "Allow") {
        errors.not_supported(&at.field("parameterNotFoundAction"), action, &["Deny", "Allow"]);
    }
}

fn validating_binding(binding: &Value) -> FieldErrors {
    const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];
    let mut errors = binding_rules(binding);
    let at = SPEC.field("validationActions");
    let actions: Vec<&str> = binding.part("spec").texts("validationActions").collect();
    let repeated = Repeated::earlier(&actions);
    for (i, action) in actions.iter().enumerate() {
        if !ACTIONS.contains(action) {
            errors.not_supported(&at.index(i), *action, &ACTIONS);
        }
        if repeated.at(i) {
            errors.duplicate(&at.index(i), *action);
        }
    }
    if actions.contains(&"Deny") && actions.contains(&"Warn") {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the \
                      API response and headers serves no purpose)";
        errors.invalid(&at, Value::list(actions.iter().copied()), detail);
    }
    if actions.is_empty() {
        errors.required(&at, "at least one validation action is required");
    }
    errors
}

fn declared_binding(new: &Value, old: Option<&Value>) -> FieldErrors {
    let mut declared = FieldErrors::new();
    let unchanged =
        |field: &str| old.is_some_and(|old| same(old.part("spec").part(field), new.part("spec").part(field)));
    if new.part("spec").text("policyName").is_empty() && !unchanged("policyName") {
        declared.required(&SPEC.field("policyName"), "");
    }
    if new.part("spec").items("validationActions").is_empty() && !unchanged("validationActions") {
        declared.required(&SPEC.field("validationActions"), "");
    }
    declared
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bindings_from_manifest_files_skip_declarative_validation() {
        let binding = Value::map([("kind", "ValidatingAdmissionPolicyBinding")]);
        let required = |context: &ValidationContext| {
            let errors = (VALIDATING_BINDING.create)(&binding, context);
            errors.iter().filter(|error| error.body().contains("Required value")).count()
        };
        let api = ValidationContext { static_names: true, ..ValidationContext::default() };
        assert_eq!(
            required(&api),
            required(&ValidationContext::default()),
            "reserved names change nothing in the API"
        );
        let manifest = ValidationContext { is_manifest: true, ..api };
        let declared = declared_binding(&binding, None);
        assert!(!declared.is_empty());
        assert_eq!(
            (VALIDATING_BINDING.create)(&binding, &manifest).len(),
            validating_binding(&binding).len()
        );
    }
}
