//! Validation of a job's `podFailurePolicy` and `successPolicy`.

use api::validation::fields::{At, Read, Report};
use api::validation::repeated::Repeated;
use api::{FieldErrors, field::FieldErrorKind, names};
use value::Value;

use crate::validation::job_status;

const MAX_FAILURE_RULES: usize = 20;
const MAX_EXIT_CODES: usize = 255;
const MAX_CONDITION_PATTERNS: usize = 20;
const MAX_SUCCESS_RULES: usize = 20;
const MAX_SUCCEEDED_INDEXES: usize = 64 << 10;

pub(super) fn failure_policy(policy: &Value, spec: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    let list = at.field("rules");
    let rules = policy.items("rules");
    if rules.len() > MAX_FAILURE_RULES {
        errors.too_many(&list, rules.len(), MAX_FAILURE_RULES);
    }
    for (i, rule) in rules.iter().enumerate() {
        failure_rule(rule, spec, &list.index(i), errors);
    }
}

fn failure_rule(rule: &Value, spec: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
    let action_at = at.field("action");
    match rule.text("action") {
        "" => errors.required(&action_at, valid_values(&ACTIONS)),
        "FailIndex" if spec.part("backoffLimitPerIndex").is_none() => {
            errors.invalid(&action_at, "FailIndex", "requires the backoffLimitPerIndex to be set");
        }
        action if !ACTIONS.contains(&action) => errors.not_supported(&action_at, action, &ACTIONS),
        _ => {}
    }
    let codes = rule.part("onExitCodes");
    if let Some(codes) = codes {
        exit_codes(codes, spec, &at.field("onExitCodes"), errors);
    }
    let conditions = rule.items("onPodConditions");
    if !conditions.is_empty() {
        condition_patterns(conditions, &at.field("onPodConditions"), errors);
    }
    let detail = match (codes.is_some(), conditions.is_empty()) {
        (true, false) => "specifying both OnExitCodes and OnPodConditions is not supported",
        (false, true) => "specifying one of OnExitCodes and OnPodConditions is required",
        _ => return,
    };
    errors.report(FieldErrorKind::Invalid, at, None, detail.to_owned());
}

/// Formats `valid values: ["A" "B"]`, as Go prints a list of quoted strings.
fn valid_values(known: &[&str]) -> String {
    let quoted: Vec<String> = known.iter().map(|name| api::field::quote(name)).collect();
    format!("valid values: [{}]", quoted.join(" "))
}

fn condition_patterns(patterns: &[Value], at: &At<'_>, errors: &mut FieldErrors) {
    const STATUSES: [&str; 3] = ["False", "True", "Unknown"];
    if patterns.len() > MAX_CONDITION_PATTERNS {
        errors.too_many(at, patterns.len(), MAX_CONDITION_PATTERNS);
    }
    for (i, pattern) in patterns.iter().enumerate() {
        let at = at.index(i);
        let kind = pattern.text("type");
        errors.invalid_each(&at.field("type"), kind, names::is_qualified_name(kind));
        let status_at = at.field("status");
        match pattern.text("status") {
            "" => errors.required(&status_at, valid_values(&STATUSES)),
            status if !STATUSES.contains(&status) => errors.not_supported(&status_at, status, &STATUSES),
            _ => {}
        }
    }
}

fn exit_codes(codes: &Value, spec: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    const OPERATORS: [&str; 2] = ["In", "NotIn"];
    let operator_at = at.field("operator");
    let operator = codes.text("operator");
    match operator {
        "" => errors.required(&operator_at, valid_values(&OPERATORS)),
        operator if !OPERATORS.contains(&operator) => {
            errors.not_supported(&operator_at, operator, &OPERATORS);
        }
        _ => {}
    }
    if let Some(name) = codes.text_if_set("containerName") {
        let pod = spec.part("template").part("spec");
        let exists = ["containers", "initContainers"]
            .iter()
            .flat_map(|list| pod.items(list))
            .any(|container| container.text("name") == name);
        if !exists {
            let detail = "must be one of the container or initContainer names in the pod template";
            errors.invalid(&at.field("containerName"), name, detail);
        }
    }
    let list = at.field("values");
    let values: Vec<i64> = codes.items("values").iter().filter_map(Value::as_int).collect();
    let all = || codes.part("values").cloned().unwrap_or_default();
    if values.is_empty() {
        errors.invalid(&list, all(), "at least one value is required");
    } else if values.len() > MAX_EXIT_CODES {
        errors.too_many(&list, values.len(), MAX_EXIT_CODES);
    }
    let repeated = Repeated::earlier(&values);
    for (i, code) in values.iter().enumerate() {
        let at = list.index(i);
        if operator == "In" && *code == 0 {
            errors.invalid(&at, *code, "must not be 0 for the In operator");
        }
        if repeated.at(i) {
            errors.duplicate(&at, *code);
        }
    }
    if !values.is_sorted() {
        errors.invalid(&list, all(), "must be ordered");
    }
}

pub(super) fn success_policy(policy: &Value, spec: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    let list = at.field("rules");
    let rules = policy.items("rules");
    if rules.is_empty() {
        errors.required(&list, "at least one rules must be specified when the successPolicy is specified");
    }
    if rules.len() > MAX_SUCCESS_RULES {
        errors.too_many(&list, rules.len(), MAX_SUCCESS_RULES);
    }
    let completions = spec.number("completions");
    for (i, rule) in rules.iter().enumerate() {
        let at = list.index(i);
        let (indexes, count) = (rule.text_if_set("succeededIndexes"), rule.number_if_set("succeededCount"));
        if indexes.is_none() && count.is_none() {
            errors.required(&at, "at least one of succeededCount or succeededIndexes must be specified");
        }
        let mut total = 0;
        if let Some(indexes) = indexes {
            let at = at.field("succeededIndexes");
            if indexes.len() > MAX_SUCCEEDED_INDEXES {
                errors.too_long(&at, MAX_SUCCEEDED_INDEXES);
            }
            match job_status::indexes(indexes, completions) {
                Ok(number) => total = number,
                Err(why) => errors.invalid(&at, indexes, format!("error parsing succeededIndexes: {why}")),
            }
        }
        let Some(count) = count else { continue };
        let at = at.field("succeededCount");
        errors.not_negative(&at, count);
        if count > completions {
            let detail =
                format!("must be less than or equal to {completions} (the number of specified completions)");
            errors.invalid(&at, count, detail);
        }
        if indexes.is_some() && count > total {
            let detail = format!(
                "must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
            );
            errors.invalid(&at, count, detail);
        }
    }
}
