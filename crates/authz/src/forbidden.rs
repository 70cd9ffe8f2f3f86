//! The message of a 403.

use api::field::quote;
use api::{GroupResource, Status};

use crate::attributes::AuthorizationAttributes;

/// The 403 response. `reason` may be empty.
pub fn forbidden(user: &str, attributes: &AuthorizationAttributes, reason: &str) -> Status {
    let AuthorizationAttributes {
        verb,
        group,
        resource,
        subresource,
        namespace,
        name,
        path,
        is_resource,
        ..
    } = attributes;
    let user = quote(user);
    let what = if *is_resource {
        let full =
            if subresource.is_empty() { resource.to_string() } else { format!("{resource}/{subresource}") };
        let scope = if namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace {}", quote(namespace))
        };
        format!("User {user} cannot {verb} resource {} in API group {} {scope}", quote(&full), quote(group))
    } else {
        format!("User {user} cannot {verb} path {}", quote(path))
    };
    let what = without_markup(&what);
    let why = if reason.is_empty() { what } else { format!("{what}: {reason}") };
    Status::forbidden(&GroupResource::new(group.clone(), resource.clone()), name, why)
}

/// Escapes HTML, so that a browser does not render tags that the client sent.
pub(crate) fn without_markup(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
