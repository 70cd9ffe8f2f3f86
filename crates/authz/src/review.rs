//! The access review APIs: decodes their `spec` and builds their `status`.

use authn::User;
use value::{Map, Str, Value};

use crate::attributes::{AuthorizationAttributes, Requirement, SelectorAttributes, SelectorOperator};
use crate::decision::{AuthorizerDecision, Decision};
use crate::rbac::SubjectRules;

/// The user of a SubjectAccessReview's `spec`.
pub fn subject(spec: &Value) -> User {
    let text = |field: &str| Str::from(spec.str_at(&[field]).unwrap_or_default());
    let extra = spec.at(&["extra"]).and_then(Value::as_map);
    User {
        name: text("user"),
        uid: text("uid"),
        groups: strings(spec.list_at(&["groups"])),
        extra: extra
            .into_iter()
            .flat_map(Map::iter)
            .map(|(key, values)| (key.clone(), strings(values.as_list().unwrap_or_default())))
            .collect(),
    }
}

/// The attributes of an access review's `spec`.
pub fn attributes(spec: &Value) -> AuthorizationAttributes {
    let Some(resource) = spec.at(&["resourceAttributes"]).filter(|r| !r.is_null()) else {
        let text =
            |field: &str| Str::from(spec.str_at(&["nonResourceAttributes", field]).unwrap_or_default());
        return AuthorizationAttributes::path(text("verb"), text("path"));
    };
    let text = |field: &str| Str::from(resource.str_at(&[field]).unwrap_or_default());
    let version = text("version");
    AuthorizationAttributes {
        verb: text("verb"),
        group: text("group"),
        // A review without a version is about all versions.
        version: if version.is_empty() { Str::new_static("*") } else { version },
        resource: text("resource"),
        subresource: text("subresource"),
        namespace: text("namespace"),
        name: text("name"),
        path: Str::default(),
        is_resource: true,
        fields: resource.at(&["fieldSelector"]).map(fields).unwrap_or_default(),
        labels: resource.at(&["labelSelector"]).map(labels).unwrap_or_default(),
    }
}

/// The `status` of an access review.
pub fn status(answer: &AuthorizerDecision, attributes: &AuthorizationAttributes) -> Value {
    let mut out = Map::new();
    out.insert("allowed", answer.decision == Decision::Allow);
    if answer.decision == Decision::Deny {
        out.insert("denied", true);
    }
    let mut errors: Vec<String> = answer.error.clone().into_iter().collect();
    for (field, selector) in [("fieldSelector", &attributes.fields), ("labelSelector", &attributes.labels)] {
        if selector.error.is_some() {
            let partially = if selector.requirements.is_empty() { "" } else { "partially " };
            errors.push(format!("spec.resourceAttributes.{field} {partially}ignored due to parse error"));
        }
    }
    if !errors.is_empty() {
        out.insert("evaluationError", errors.join("; "));
    }
    if !answer.reason.is_empty() {
        out.insert("reason", answer.reason.to_string());
    }
    Value::Map(out)
}

/// The `status` of a SelfSubjectRulesReview. A rule for both resources and paths appears in both lists.
pub fn rules_status(rules: &SubjectRules) -> Value {
    let list = |list: &[Str]| Value::List(list.iter().cloned().map(Value::String).collect());
    let (mut resources, mut paths) = (Vec::new(), Vec::new());
    for rule in &rules.rules {
        if !rule.resources.is_empty() {
            let mut out = Map::new();
            for (field, part) in [
                ("apiGroups", &rule.groups),
                ("resourceNames", &rule.resource_names),
                ("resources", &rule.resources),
            ] {
                if !part.is_empty() {
                    out.insert(field, list(part));
                }
            }
            out.insert("verbs", list(&rule.verbs));
            resources.push(Value::Map(out));
        }
        if !rule.urls.is_empty() {
            paths.push(Value::map([("nonResourceURLs", list(&rule.urls)), ("verbs", list(&rule.verbs))]));
        }
    }
    let mut out = Map::new();
    if let Some(error) = &rules.error {
        out.insert("evaluationError", error.as_str());
    }
    out.insert("incomplete", rules.incomplete);
    out.insert("nonResourceRules", paths);
    out.insert("resourceRules", resources);
    Value::Map(out)
}

fn strings(list: &[Value]) -> Vec<Str> {
    list.iter().filter_map(Value::as_str).map(Str::from).collect()
}

/// Requirements with an unknown operator are dropped and reported: that only widens the request.
fn requirements(
    selector: &Value,
    mut convert: impl FnMut(Requirement) -> Result<Requirement, Str>,
) -> SelectorAttributes {
    let mut out = SelectorAttributes::default();
    for item in selector.list_at(&["requirements"]) {
        let text = |field: &str| Str::from(item.str_at(&[field]).unwrap_or_default());
        let operator = match text("operator").as_str() {
            "In" => SelectorOperator::In,
            "NotIn" => SelectorOperator::NotIn,
            "Exists" => SelectorOperator::Exists,
            "DoesNotExist" => SelectorOperator::DoesNotExist,
            other => {
                out.error = Some(value::format_smolstr!("{other:?} is not a valid selector operator"));
                continue;
            }
        };
        match convert(Requirement {
            key: text("key"),
            operator,
            values: strings(item.list_at(&["values"])).into(),
        }) {
            Ok(requirement) => out.requirements.push(requirement),
            Err(error) => out.error = Some(error),
        }
    }
    out
}

fn fields(selector: &Value) -> SelectorAttributes {
    match selector.str_at(&["rawSelector"]) {
        Some(raw) if !raw.is_empty() => SelectorAttributes::of_fields(raw),
        _ => requirements(selector, |requirement| match (requirement.operator, requirement.values.len()) {
            (SelectorOperator::In | SelectorOperator::NotIn, 1) => Ok(requirement),
            _ => Err(Str::new_static("fieldSelectors support one value")),
        }),
    }
}

fn labels(selector: &Value) -> SelectorAttributes {
    match selector.str_at(&["rawSelector"]) {
        Some(raw) if !raw.is_empty() => SelectorAttributes::of_labels(raw),
        _ => requirements(selector, |requirement| {
            let operator = match requirement.operator {
                SelectorOperator::In => api::selector::LabelOperator::In,
                SelectorOperator::NotIn => api::selector::LabelOperator::NotIn,
                SelectorOperator::Exists => api::selector::LabelOperator::Exists,
                SelectorOperator::DoesNotExist => api::selector::LabelOperator::DoesNotExist,
            };
            api::selector::LabelRequirement::new(
                requirement.key.clone(),
                operator,
                requirement.values.to_vec(),
            )
            .map(|_| requirement)
            .map_err(|errors| api::field::aggregate(&errors).into())
        }),
    }
}
