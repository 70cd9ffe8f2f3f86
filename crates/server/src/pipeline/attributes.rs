//! The request attributes that authorizers decide by.

use authz::{AuthorizationAttributes, SelectorAttributes};
use requests::request_info::RequestInfo;

/// An unparsable selector is rejected later; until then it restricts nothing.
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
        labels: SelectorAttributes::of_parsed_labels(info.label_selector.parsed()),
        fields: SelectorAttributes::of_parsed_fields(info.field_selector.parsed()),
    }
}
