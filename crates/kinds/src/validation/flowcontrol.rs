//! Validation of FlowSchema and PriorityLevelConfiguration.

use api::FieldErrors;
use api::field::FieldErrorKind;
use api::labels::PRESERVE_ZERO_SHARES;
use api::validation::fields::{At, Read, Report, same, supersede};
use api::validation::meta;
use api::validation::repeated::Repeated;
use api::{identities, names};
use value::Value;

use super::{ValidationContext, ValidationRules, internal_json};

pub(crate) const FLOW_SCHEMA: ValidationRules = ValidationRules {
    create: flow_schema,
    update: |new, _, context| flow_schema(new, context),
    update_status: |new, _, _| {
        let mut errors = FieldErrors::new();
        conditions(new, &mut errors);
        errors
    },
};
pub(crate) const PRIORITY_LEVEL: ValidationRules = ValidationRules {
    create: |level, _| supersede(priority_level(level), declared(level, None)),
    update: |new, old, _| supersede(priority_level(new), declared(new, Some(old))),
    update_status: |new, _, _| {
        let mut errors = FieldErrors::new();
        conditions(new, &mut errors);
        errors
    },
};

const SPEC: At<'static> = At::new("spec");
const MAX_PRECEDENCE: i64 = 10_000;
const MAX_QUEUES: i64 = 10_000_000;
const MAX_HASH_BITS: u32 = 60;
const VERBS: [&str; 9] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

fn flow_schema(schema: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::create(schema, false, names::name_is_dns_subdomain);
    let spec = schema.part("spec");
    let name = api::meta::name(schema);
    let precedence = spec.number("matchingPrecedence");
    let at = SPEC.field("matchingPrecedence");
    if precedence <= 0 {
        errors.invalid(&at, precedence, "must be a positive value");
    }
    if precedence > MAX_PRECEDENCE {
        errors.invalid(&at, precedence, format!("must not be greater than {MAX_PRECEDENCE}"));
    }
    if precedence == 1 && name != "exempt" {
        errors.invalid(&at, precedence, "only the schema named 'exempt' may have matchingPrecedence 1");
    }
    if let Some(method) = spec.part("distinguisherMethod")
        && !matches!(method.text("type"), "ByNamespace" | "ByUser")
    {
        let shown = internal_json::compact("FlowDistinguisherMethod", Some(method));
        let detail = format!("{shown}: supported values: \"ByNamespace\", \"ByUser\"");
        errors.report(FieldErrorKind::NotSupported, &SPEC.field("distinguisherMethod.type"), None, detail);
    }
    let level = spec.part("priorityLevelConfiguration").text("name");
    let at = SPEC.field("priorityLevelConfiguration.name");
    if level.is_empty() {
        errors.required(&at, "must reference a priority level");
    } else {
        errors.invalid_each(&at, level, names::is_dns1123_subdomain(level));
    }
    let list = SPEC.field("rules");
    for (i, rule) in spec.items("rules").iter().enumerate() {
        policy_rule(rule, &list.index(i), &mut errors);
    }
    if let Some(fixed) = mandatory_schema(name)
        && !same(spec, Some(&fixed))
    {
        let shown = internal_json::compact("FlowSchemaSpec", spec);
        let detail = format!("{shown}: spec of '{name}' must equal the fixed value");
        errors.report(FieldErrorKind::Invalid, &SPEC, None, detail);
    }
    conditions(schema, &mut errors);
    errors
}

/// Returns the spec of one of the two mandatory flow schemas, which cannot be changed.
fn mandatory_schema(name: &str) -> Option<Value> {
    let group =
        |name: &str| Value::map([("group", Value::map([("name", name)])), ("kind", Value::from("Group"))]);
    let stars = || Value::list(["*"]);
    let rule = |subjects: Vec<Value>| {
        let resource = Value::map([
            ("apiGroups", stars()),
            ("clusterScope", true.into()),
            ("namespaces", stars()),
            ("resources", stars()),
            ("verbs", stars()),
        ]);
        let other = Value::map([("nonResourceURLs", stars()), ("verbs", stars())]);
        Value::map([
            ("nonResourceRules", Value::list([other])),
            ("resourceRules", Value::list([resource])),
            ("subjects", Value::List(subjects)),
        ])
    };
    let spec = |level: &str, precedence: i64, rule: Value| {
        vec![
            ("matchingPrecedence", Value::Int(precedence)),
            ("priorityLevelConfiguration", Value::map([("name", level)])),
            ("rules", Value::list([rule])),
        ]
    };
    match name {
        "exempt" => Some(Value::map(spec("exempt", 1, rule(vec![group(identities::MASTERS)])))),
        "catch-all" => {
            let subjects = vec![group(identities::UNAUTHENTICATED), group(identities::AUTHENTICATED)];
            let mut fields = spec("catch-all", MAX_PRECEDENCE, rule(subjects));
            fields.push(("distinguisherMethod", Value::map([("type", "ByUser")])));
            Some(Value::map(fields))
        }
        _ => None,
    }
}

fn policy_rule(rule: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let subjects = at.field("subjects");
    if rule.items("subjects").is_empty() {
        errors.required(&subjects, "subjects must contain at least one value");
    }
    for (i, subject) in rule.items("subjects").iter().enumerate() {
        subject_rules(subject, &subjects.index(i), errors);
    }
    let (resources, others) = (rule.items("resourceRules"), rule.items("nonResourceRules"));
    if resources.is_empty() && others.is_empty() {
        errors.required(at, "at least one of resourceRules and nonResourceRules has to be non-empty");
    }
    let list = at.field("resourceRules");
    for (i, rule) in resources.iter().enumerate() {
        resource_rule(rule, &list.index(i), errors);
    }
    let list = at.field("nonResourceRules");
    for (i, rule) in others.iter().enumerate() {
        non_resource_rule(rule, &list.index(i), errors);
    }
}

fn subject_rules(subject: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    const PARTS: [(&str, &str); 3] =
        [("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")];
    let kind = subject.text("kind");
    let Some((_, field)) = PARTS.iter().find(|(known, _)| *known == kind) else {
        errors.not_supported(&at.field("kind"), kind, &["Group", "ServiceAccount", "User"]);
        return;
    };
    let here = at.field(field);
    match subject.part(field) {
        None => errors.required(&here, format!("{field} is required when subject kind is '{kind}'")),
        Some(part) => {
            let name = part.text("name");
            if name.is_empty() {
                errors.required(&here.field("name"), "");
            } else if kind == "ServiceAccount" && name != "*" {
                errors.invalid_each(&here.field("name"), name, names::is_dns1123_subdomain(name));
            }
            if kind == "ServiceAccount" {
                let namespace = part.text("namespace");
                if namespace.is_empty() {
                    errors.required(&here.field("namespace"), "must specify namespace for service account");
                } else {
                    errors.invalid_each(
                        &here.field("namespace"),
                        namespace,
                        names::is_dns1123_label(namespace),
                    );
                }
            }
        }
    }
    // Order of checking: service account, then user, then group.
    for (other_kind, other) in PARTS.iter().filter(|(other, _)| *other != kind) {
        if subject.part(other).is_some() {
            let detail = format!("{other} is forbidden when subject kind is not '{other_kind}'");
            errors.forbidden(&at.field(other), detail);
        }
    }
}

fn verbs(rule: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let verbs: Vec<&str> = rule.texts("verbs").collect();
    let at = at.field("verbs");
    let shown = || Value::list(verbs.iter().copied());
    if verbs.is_empty() {
        errors.required(&at, "verbs must contain at least one value");
    } else if verbs.contains(&"*") {
        if verbs.len() > 1 {
            errors.invalid(&at, shown(), "if '*' is present, must not specify other verbs");
        }
    } else if !verbs.iter().all(|verb| VERBS.contains(verb)) {
        errors.not_supported(&at, shown(), &VERBS);
    }
}

fn resource_rule(rule: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    verbs(rule, at, errors);
    for (field, one, many) in
        [("apiGroups", "api group", "api groups"), ("resources", "resource", "resources")]
    {
        let values: Vec<&str> = rule.texts(field).collect();
        let here = at.field(field);
        if values.is_empty() {
            errors.required(&here, format!("resource rules must supply at least one {one}"));
        } else if values.len() > 1 && values.contains(&"*") {
            let detail = format!("if '*' is present, must not specify other {many}");
            errors.invalid(&here, Value::list(values), detail);
        }
    }
    let namespaces: Vec<&str> = rule.texts("namespaces").collect();
    let at = at.field("namespaces");
    if namespaces.is_empty() && !rule.flag("clusterScope") {
        let detail = "resource rules that are not cluster scoped must supply at least one namespace";
        errors.required(&at, detail);
    } else if namespaces.contains(&"*") {
        if namespaces.len() > 1 {
            let detail = "if '*' is present, must not specify other namespaces";
            errors.invalid(&at, Value::list(namespaces), detail);
        }
    } else {
        for (i, namespace) in namespaces.iter().enumerate() {
            for error in names::is_dns1123_label(namespace) {
                let detail = format!("each member of this list must be '*' or a DNS-1123 label; {error}");
                errors.invalid(&at.index(i), *namespace, detail);
            }
        }
    }
}

fn non_resource_rule(rule: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    verbs(rule, at, errors);
    let urls: Vec<&str> = rule.texts("nonResourceURLs").collect();
    let at = at.field("nonResourceURLs");
    if urls.is_empty() {
        errors.required(&at, "nonResourceURLs must contain at least one value");
    } else if urls.contains(&"*") {
        if urls.len() > 1 {
            let detail = "if '*' is present, must not specify other non-resource URLs";
            errors.invalid(&at, Value::list(urls), detail);
        }
    } else {
        for (i, url) in urls.iter().enumerate() {
            if let Some(wrong) = wrong_path(url) {
                errors.invalid(&at.index(i), *url, wrong);
            }
        }
    }
}

fn wrong_path(path: &str) -> Option<&'static str> {
    let stars = path.matches('*').count();
    Some(match path {
        "" => "must not be empty",
        "/" => return None,
        path if !path.starts_with('/') => "must start with slash",
        path if path.contains(' ') => "must not contain white-space",
        path if path.contains("//") => "must not contain double slash",
        path if stars > 1 || (stars == 1 && !path.ends_with("/*")) => "wildcard can only do suffix matching",
        _ => return None,
    })
}

fn conditions(object: &Value, errors: &mut FieldErrors) {
    let conditions = object.part("status").items("conditions");
    let list = At::new("status.conditions");
    let repeated = Repeated::of_field(conditions, "type");
    for (i, condition) in conditions.iter().enumerate() {
        let at = list.index(i);
        let kind = condition.text("type");
        if repeated.at(i) {
            errors.duplicate(&at.field("type"), kind);
        }
        if kind.is_empty() {
            errors.required(&at.field("type"), "");
        }
    }
}

fn priority_level(level: &Value) -> FieldErrors {
    let mut errors = meta::create(level, false, names::name_is_dns_subdomain);
    if level.part("metadata").part("annotations").part(PRESERVE_ZERO_SHARES).is_some() {
        let detail = format!("annotation '{PRESERVE_ZERO_SHARES}' is forbidden");
        errors.forbidden(&At::new("metadata.annotations"), detail);
    }
    let spec = level.part("spec");
    let name = api::meta::name(level);
    let kind = spec.text("type");
    if (name == "exempt") != (kind == "Exempt") {
        errors.invalid(&SPEC.field("type"), kind, "must be 'Exempt' if and only if `name` is 'exempt'");
    }
    let (limited, exempt) = (spec.part("limited"), spec.part("exempt"));
    match kind {
        "Exempt" => {
            if limited.is_some() {
                errors.forbidden(&SPEC.field("limited"), "must be nil if the type is not Limited");
            }
            if let Some(exempt) = exempt {
                let at = SPEC.field("exempt");
                non_negative(
                    exempt,
                    "nominalConcurrencyShares",
                    "must be a non-negative integer",
                    &at,
                    &mut errors,
                );
                lendable(exempt, &at, &mut errors);
            }
        }
        "Limited" => {
            if exempt.is_some() {
                errors.forbidden(&SPEC.field("exempt"), "must be nil if the type is Limited");
            }
            match limited {
                None => errors.required(&SPEC.field("limited"), "must not be empty when type is Limited"),
                Some(limited) => limited_rules(limited, &SPEC.field("limited"), &mut errors),
            }
        }
        "" => errors.required(&SPEC.field("type"), ""),
        other => errors.not_supported(&SPEC.field("type"), other, &["Exempt", "Limited"]),
    }
    mandatory_level(name, spec, &mut errors);
    conditions(level, &mut errors);
    errors
}

/// Rejects changes of the two mandatory priority levels.
fn mandatory_level(name: &str, spec: Option<&Value>, errors: &mut FieldErrors) {
    let except = match name {
        "exempt" if spec.text("type") != "Exempt" || spec.part("limited").is_some() => {
            " except the 'spec.exempt' field"
        }
        "catch-all" => {
            let limited = Value::map([
                ("lendablePercent", Value::Int(0)),
                ("limitResponse", Value::map([("type", "Reject")])),
                ("nominalConcurrencyShares", Value::Int(5)),
            ]);
            let fixed = Value::map([("limited", limited), ("type", "Limited".into())]);
            if same(spec, Some(&fixed)) {
                return;
            }
            ""
        }
        _ => return,
    };
    let shown = internal_json::compact("PriorityLevelConfigurationSpec", spec);
    let detail = format!("{shown}: spec of '{name}'{except} must equal the fixed value");
    errors.report(FieldErrorKind::Invalid, &SPEC, None, detail);
}

fn non_negative(holder: &Value, field: &str, words: &str, at: &At<'_>, errors: &mut FieldErrors) {
    if let Some(number) = holder.number_if_set(field)
        && number < 0
    {
        errors.invalid(&at.field(field), number, words);
    }
}

fn lendable(holder: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    if let Some(percent) = holder.number_if_set("lendablePercent")
        && !(0..=100).contains(&percent)
    {
        errors.invalid(&at.field("lendablePercent"), percent, "must be between 0 and 100, inclusive");
    }
}

fn limited_rules(limited: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    non_negative(limited, "nominalConcurrencyShares", "must be a non-negative integer", at, errors);
    let response = limited.part("limitResponse");
    let here = at.field("limitResponse");
    let queuing = response.part("queuing");
    match response.text("type") {
        "Reject" => {
            if queuing.is_some() {
                let detail = "must be nil if limited.limitResponse.type is not Limited";
                errors.forbidden(&here.field("queuing"), detail);
            }
        }
        "Queue" => match queuing {
            None => {
                let detail = "must not be empty if limited.limitResponse.type is Limited";
                errors.required(&here.field("queuing"), detail);
            }
            Some(queuing) => queuing_rules(queuing, &here.field("queuing"), errors),
        },
        "" => errors.required(&here.field("type"), ""),
        other => errors.not_supported(&here.field("type"), other, &["Queue", "Reject"]),
    }
    lendable(limited, at, errors);
    let words = "if specified, must be a non-negative integer";
    non_negative(limited, "borrowingLimitPercent", words, at, errors);
}

fn queuing_rules(queuing: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let (limit, queues, hand) =
        (queuing.number("queueLengthLimit"), queuing.number("queues"), queuing.number("handSize"));
    if limit <= 0 {
        errors.invalid(&at.field("queueLengthLimit"), limit, "must be positive");
    }
    if queues <= 0 {
        errors.invalid(&at.field("queues"), queues, "must be positive");
    } else if queues > MAX_QUEUES {
        errors.invalid(&at.field("queues"), queues, format!("must not be greater than {MAX_QUEUES}"));
    }
    let at = at.field("handSize");
    if hand <= 0 {
        errors.invalid(&at, hand, "must be positive");
    } else if hand > queues {
        errors.invalid(&at, hand, format!("should not be greater than queues ({queues})"));
    } else if entropy_bits(queues, hand) > MAX_HASH_BITS {
        let detail = format!(
            "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {MAX_HASH_BITS}"
        );
        errors.invalid(&at, hand, detail);
    }
}

/// Number of hash bits needed to deal hands of this size from a deck of this size.
fn entropy_bits(deck: i64, hand: i64) -> u32 {
    // Above the limit the exact number does not matter, so stop multiplying there.
    let mut hands: u128 = 1;
    for i in 0..hand {
        hands = hands.saturating_mul(u128::try_from(deck - i).unwrap_or(1));
        if hands > 1 << 64 {
            return 64;
        }
    }
    128 - (hands - 1).leading_zeros()
}

fn declared(new: &Value, old: Option<&Value>) -> FieldErrors {
    let mut declared = FieldErrors::new();
    let spec = new.part("spec");
    if old.is_some_and(|old| same(old.part("spec"), spec)) {
        return declared;
    }
    let kind = spec.text("type");
    let (limited, exempt) = (spec.part("limited"), spec.part("exempt"));
    if exempt.is_some() && kind != "Exempt" {
        declared.forbidden(&SPEC.field("exempt"), "");
    }
    if kind == "Limited" && limited.is_none() {
        declared.required(&SPEC.field("limited"), "");
    } else if kind != "Limited" && limited.is_some() {
        declared.forbidden(&SPEC.field("limited"), "");
    }
    if kind.is_empty() {
        declared.required(&SPEC.field("type"), "");
    }
    if let Some(limited) = limited {
        let at = SPEC.field("limited.limitResponse");
        let response = limited.part("limitResponse");
        match (response.text("type"), response.part("queuing")) {
            ("Queue", None) => declared.required(&at.field("queuing"), ""),
            ("Queue", Some(_)) | (_, None) => {}
            (_, Some(_)) => declared.forbidden(&at.field("queuing"), ""),
        }
        if response.text("type").is_empty() {
            declared.required(&at.field("type"), "");
        }
    }
    declared
}
