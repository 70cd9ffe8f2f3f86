//! Validation of affinity, tolerations, topology spread constraints, and readiness and scheduling gates.

use std::collections::{HashMap, HashSet};

use api::validation::fields::{At, Read, Report};
use api::validation::meta;
use api::validation::repeated::Repeated;
use api::{FieldErrors, names};
use value::Value;

use super::options::PodValidationOptions;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

pub(in crate::validation) fn affinity(
    spec: &Value,
    options: &PodValidationOptions,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    let Some(affinity) = spec.part("affinity") else { return };
    let at = at.field("affinity");
    if let Some(node) = affinity.part("nodeAffinity") {
        node_affinity(node, options, &at.field("nodeAffinity"), errors);
    }
    for field in ["podAffinity", "podAntiAffinity"] {
        let Some(pods) = affinity.part(field) else { continue };
        let at = at.field(field);
        let list = at.field(REQUIRED);
        for (i, term) in pods.items(REQUIRED).iter().enumerate() {
            pod_affinity_term(Some(term), options, &list.index(i), errors);
        }
        let list = at.field(PREFERRED);
        for (i, term) in pods.items(PREFERRED).iter().enumerate() {
            let at = list.index(i);
            weight(term, &at, errors);
            pod_affinity_term(term.part("podAffinityTerm"), options, &at.field("podAffinityTerm"), errors);
        }
    }
}

fn weight(term: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let weight = term.number("weight");
    if !(1..=100).contains(&weight) {
        errors.invalid(&at.field("weight"), weight, "must be in the range 1-100");
    }
}

fn node_affinity(affinity: &Value, options: &PodValidationOptions, at: &At<'_>, errors: &mut FieldErrors) {
    if let Some(required) = affinity.part(REQUIRED) {
        node_selector(required, options.invalid_node_affinity_values, &at.field(REQUIRED), errors);
    }
    let list = at.field(PREFERRED);
    for (i, term) in affinity.items(PREFERRED).iter().enumerate() {
        let at = list.index(i);
        weight(term, &at, errors);
        // Invalid values are harmless in a preference.
        node_selector_term(term.part("preference"), true, &at.field("preference"), errors);
    }
}

/// Validates a node selector. `lenient` allows invalid label values, for objects that already have them.
pub(crate) fn node_selector(selector: &Value, lenient: bool, at: &At<'_>, errors: &mut FieldErrors) {
    let list = at.field("nodeSelectorTerms");
    let terms = selector.items("nodeSelectorTerms");
    if terms.is_empty() {
        errors.required(&list, "must have at least one node selector term");
    }
    for (i, term) in terms.iter().enumerate() {
        node_selector_term(Some(term), lenient, &list.index(i), errors);
    }
}

fn node_selector_term(term: Option<&Value>, lenient: bool, at: &At<'_>, errors: &mut FieldErrors) {
    let list = at.field("matchExpressions");
    for (i, requirement) in term.items("matchExpressions").iter().enumerate() {
        node_requirement(requirement, lenient, &list.index(i), errors);
    }
    let list = at.field("matchFields");
    for (i, requirement) in term.items("matchFields").iter().enumerate() {
        node_field_requirement(requirement, &list.index(i), errors);
    }
}

fn node_requirement(requirement: &Value, lenient: bool, at: &At<'_>, errors: &mut FieldErrors) {
    let values_at = at.field("values");
    match requirement.text("operator") {
        "Gt" | "Lt" => {
            if requirement.items("values").len() != 1 {
                let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
                errors.required(&values_at, detail);
            }
        }
        _ => meta::selector_operator(requirement, at, errors),
    }
    meta::label_name(requirement.text("key"), &at.field("key"), errors);
    if !lenient {
        for (i, value) in requirement.texts("values").enumerate() {
            errors.invalid_each(&values_at.index(i), value, names::is_valid_label_value(value));
        }
    }
}

fn node_field_requirement(requirement: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let values_at = at.field("values");
    match requirement.text("operator") {
        "In" | "NotIn" => {
            if requirement.items("values").len() != 1 {
                let detail =
                    "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                errors.required(&values_at, detail);
            }
        }
        other => errors.invalid(&at.field("operator"), other, meta::UNKNOWN_OPERATOR),
    }
    let key = requirement.text("key");
    if key != "metadata.name" {
        errors.invalid(&at.field("key"), key, "not a valid field selector key");
        return;
    }
    for (i, value) in requirement.texts("values").enumerate() {
        errors.invalid_each(&values_at.index(i), value, names::name_is_dns_subdomain(value, false));
    }
}

fn pod_affinity_term(
    term: Option<&Value>,
    options: &PodValidationOptions,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    for field in ["labelSelector", "namespaceSelector"] {
        let lenient = options.invalid_selector_values;
        meta::label_selector(term.part(field), lenient, &at.field(field), errors);
    }
    for name in term.texts("namespaces") {
        errors.invalid_each(&at.field("namespace"), name, names::name_is_dns_label(name, false));
    }
    if let Some(term) = term {
        match_label_keys(term, at, errors);
    }
    let key = term.text("topologyKey");
    if key.is_empty() {
        errors.required(&at.field("topologyKey"), "can not be empty");
    }
    meta::label_name(key, &at.field("topologyKey"), errors);
}

/// Validates `matchLabelKeys` and `mismatchLabelKeys` of an affinity term or a spread constraint.
pub(in crate::validation) fn match_label_keys(holder: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let selector = holder.part("labelSelector");
    for field in ["matchLabelKeys", "mismatchLabelKeys"] {
        if holder.items(field).is_empty() {
            continue;
        }
        let at = at.field(field);
        if selector.is_none() {
            errors.forbidden(&at, "must not be specified when labelSelector is not set");
            continue;
        }
        for (i, key) in holder.texts(field).enumerate() {
            meta::label_name(key, &at.index(i), errors);
        }
    }
    // The server added an expression for each key to the selector; a second one with that key comes from the user.
    let mut seen: HashSet<&str> = selector.entries("matchLabels").map(|(key, _)| key).collect();
    let last: HashMap<&str, usize> =
        holder.texts("matchLabelKeys").enumerate().map(|(i, key)| (key, i)).collect();
    for expression in selector.items("matchExpressions") {
        let key = expression.text("key");
        let is_new = seen.insert(key);
        if let Some(i) = last.get(key).filter(|_| !is_new) {
            errors.invalid(&at.index(*i), key, "exists in both matchLabelKeys and labelSelector");
        }
    }
    let list = at.field("matchLabelKeys");
    let mismatched: HashSet<&str> = holder.texts("mismatchLabelKeys").collect();
    for (i, key) in holder.texts("matchLabelKeys").enumerate() {
        if mismatched.contains(key) {
            let detail = "exists in both matchLabelKeys and mismatchLabelKeys";
            errors.invalid(&list.index(i), key, detail);
        }
    }
}

pub(in crate::validation) fn tolerations(
    spec: &Value,
    options: &PodValidationOptions,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    toleration_list(spec.items("tolerations"), options, &at.field("tolerations"), errors);
}

pub(in crate::validation) fn toleration_list(
    list: &[Value],
    options: &PodValidationOptions,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    for (i, toleration) in list.iter().enumerate() {
        let at = at.index(i);
        let (key, operator) = (toleration.text("key"), toleration.text("operator"));
        let (value, effect) = (toleration.text("value"), toleration.text("effect"));
        if !key.is_empty() {
            meta::label_name(key, &at.field("key"), errors);
        } else if operator != "Exists" {
            let detail =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.invalid(&at.field("operator"), operator, detail);
        }
        if toleration.part("tolerationSeconds").is_some() && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.invalid(&at.field("effect"), effect, detail);
        }
        toleration_value(operator, value, options, &at, errors);
        if !effect.is_empty() && !EFFECTS.contains(&effect) {
            errors.not_supported(&at.field("effect"), effect, &EFFECTS);
        }
    }
}

fn toleration_value(
    operator: &str,
    value: &str,
    options: &PodValidationOptions,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    let operator_at = at.field("operator");
    match operator {
        "Equal" | "" => {
            let wrong = names::is_valid_label_value(value);
            if !wrong.is_empty() {
                errors.invalid(&operator_at, value, wrong.join(";"));
            }
        }
        "Exists" => {
            if !value.is_empty() {
                errors.invalid(&operator_at, value, "value must be empty when `operator` is 'Exists'");
            }
        }
        "Lt" | "Gt" if options.comparing_tolerations => {
            errors.invalid_each(&at.field("value"), value, names::is_decimal_integer(value));
            if value.parse::<i64>().is_err() {
                let quoted = api::field::quote(value);
                let too_large = !value.is_empty()
                    && value.trim_start_matches(['-', '+']).bytes().all(|b| b.is_ascii_digit());
                let why = if too_large { "value out of range" } else { "invalid syntax" };
                let detail = format!("strconv.ParseInt: parsing {quoted}: {why}");
                errors.invalid(&at.field("value"), value, detail);
            }
        }
        "Lt" | "Gt" => errors.not_supported(&operator_at, operator, &["Equal", "Exists", "Lt", "Gt"]),
        other => errors.not_supported(&operator_at, other, &["Equal", "Exists"]),
    }
}

pub(in crate::validation) fn topology_spread(
    spec: &Value,
    options: &PodValidationOptions,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    const ACTIONS: [&str; 2] = ["DoNotSchedule", "ScheduleAnyway"];
    const POLICIES: [&str; 2] = ["Honor", "Ignore"];
    const NOT_POSITIVE: &str = "must be greater than zero";
    let list = at.field("topologySpreadConstraints");
    let constraints = spec.items("topologySpreadConstraints");
    let pair = |constraint: &'_ Value| {
        ["topologyKey", "whenUnsatisfiable"].map(|field| constraint.text(field).to_owned())
    };
    let repeated = Repeated::later(constraints.iter().map(pair));
    for (i, constraint) in constraints.iter().enumerate() {
        let at = list.index(i);
        let skew = constraint.number("maxSkew");
        if skew <= 0 {
            errors.invalid(&at.field("maxSkew"), skew, NOT_POSITIVE);
        }
        let (key, action) = (constraint.text("topologyKey"), constraint.text("whenUnsatisfiable"));
        if key.is_empty() {
            errors.required(&at.field("topologyKey"), "can not be empty");
        }
        if !ACTIONS.contains(&action) {
            errors.not_supported(&at.field("whenUnsatisfiable"), action, &ACTIONS);
        }
        if repeated.at(i) {
            let pair_at = at.field("{topologyKey, whenUnsatisfiable}");
            errors.duplicate(&pair_at, format!("{{{key}, {action}}}"));
        }
        if let Some(domains) = constraint.number_if_set("minDomains") {
            let at = at.field("minDomains");
            if domains <= 0 {
                errors.invalid(&at, domains, NOT_POSITIVE);
            }
            if action != "DoNotSchedule" {
                let detail =
                    format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
                errors.invalid(&at, domains, detail);
            }
        }
        for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            if let Some(policy) = constraint.text_if_set(field).filter(|policy| !POLICIES.contains(policy)) {
                errors.not_supported(&at.field(field), policy, &POLICIES);
            }
        }
        if options.invalid_spread_keys {
            spread_keys_before_merging(constraint, &at.field("matchLabelKeys"), errors);
        } else {
            match_label_keys(constraint, &at, errors);
        }
        if !options.invalid_spread_selectors {
            meta::label_selector(constraint.part("labelSelector"), false, &at.field("labelSelector"), errors);
        }
    }
}

/// Validates `matchLabelKeys` of constraints stored before the server merged the keys into the selector.
fn spread_keys_before_merging(constraint: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    if constraint.items("matchLabelKeys").is_empty() {
        return;
    }
    let selector = constraint.part("labelSelector");
    if selector.is_none() {
        errors.forbidden(at, "must not be specified when labelSelector is not set");
    }
    let labels = selector.entries("matchLabels").map(|(key, _)| key);
    let expressions = selector.items("matchExpressions").iter().map(|expression| expression.text("key"));
    let selected: HashSet<&str> = labels.chain(expressions).collect();
    for (i, key) in constraint.texts("matchLabelKeys").enumerate() {
        let at = at.index(i);
        meta::label_name(key, &at, errors);
        if selected.contains(key) {
            errors.invalid(&at, key, "exists in both matchLabelKeys and labelSelector");
        }
    }
}

/// Validates `readinessGates` and `schedulingGates` of a pod.
pub(in crate::validation) fn gates(spec: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let list = at.field("readinessGates");
    for (i, gate) in spec.items("readinessGates").iter().enumerate() {
        let condition = gate.text("conditionType");
        let at = list.index(i);
        errors.invalid_each(&at.field("conditionType"), condition, names::is_qualified_name(condition));
    }
    let list = at.field("schedulingGates");
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, gate) in spec.items("schedulingGates").iter().enumerate() {
        let name = gate.text("name");
        let at = list.index(i);
        errors.invalid_each(&at, name, names::is_qualified_name(name));
        if !seen.insert(name) {
            errors.duplicate(&at, name);
        }
    }
}
