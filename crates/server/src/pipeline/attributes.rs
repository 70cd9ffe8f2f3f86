//! The request attributes that authorizers decide by.

use authz::AuthorizationAttributes;
use requests::request_info::RequestInfo;

pub(super) fn attributes(info: &RequestInfo) -> AuthorizationAttributes {
    if !info.is_resource {
        return AuthorizationAttributes::path(info.verb.clone(), info.path.as_str());
    }
    AuthorizationAttributes {
        verb: info.verb.clone(),
        group: info.group.clone(),
        version: info.version.clone(),
        resource: info.resource.clone(),
        subresource: info.subresource.clone(),
        namespace: info.namespace.clone(),
        name: info.name.clone(),
        path: info.path.as_str().into(),
        is_resource: true,
        labels: label_requirements(&info.label_selector),
        fields: field_requirements(&info.field_selector),
    }
}

/// Converts a label selector for the authorizers. An unparsable one is rejected later; until then it
/// restricts nothing.
fn label_requirements(text: &str) -> authz::SelectorAttributes {
    use api::selector::LabelOperator;
    if text.is_empty() {
        return authz::SelectorAttributes::default();
    }
    match api::selector::LabelSelector::parse(text) {
        Err(error) => authz::SelectorAttributes { requirements: Vec::new(), error: Some(error.into()) },
        Ok(selector) => {
            let requirements = selector.requirements().iter().filter_map(|r| {
                let operator = match r.operator() {
                    LabelOperator::In | LabelOperator::Equals | LabelOperator::DoubleEquals => {
                        authz::SelectorOperator::In
                    }
                    LabelOperator::NotIn | LabelOperator::NotEquals => authz::SelectorOperator::NotIn,
                    LabelOperator::Exists => authz::SelectorOperator::Exists,
                    LabelOperator::DoesNotExist => authz::SelectorOperator::DoesNotExist,
                    _ => return None,
                };
                Some(authz::Requirement { key: r.key().into(), operator, values: r.values().to_vec() })
            });
            authz::SelectorAttributes { requirements: requirements.collect(), error: None }
        }
    }
}

/// Converts a field selector for the authorizers, like `label_requirements`.
fn field_requirements(text: &str) -> authz::SelectorAttributes {
    if text.is_empty() {
        return authz::SelectorAttributes::default();
    }
    match api::selector::FieldSelector::parse(text) {
        Err(error) => authz::SelectorAttributes { requirements: Vec::new(), error: Some(error.into()) },
        Ok(selector) => {
            let requirements = selector.requirements().iter().map(|r| authz::Requirement {
                key: r.field.clone(),
                operator: if r.equals { authz::SelectorOperator::In } else { authz::SelectorOperator::NotIn },
                values: vec![r.value.clone()],
            });
            authz::SelectorAttributes { requirements: requirements.collect(), error: None }
        }
    }
}
