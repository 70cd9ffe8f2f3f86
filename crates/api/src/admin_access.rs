//! Admin access to devices (KEP-5018): the requests that ask for it, and the namespace labels that allow it.

use value::Value;

/// Namespace label that allows admin access, if its value is `true`.
pub const LABEL: &str = "resource.kubernetes.io/admin-access";
/// The name of this label in KEP-5018, which is accepted too.
pub const KEP_LABEL: &str = "kubernetes.io/dra-admin-access";

/// Index of the first request of a claim or template that asks for admin access.
pub fn first_asking(requests: &[Value]) -> Option<usize> {
    requests.iter().position(|request| request.at(&["exactly", "adminAccess"]) == Some(&Value::Bool(true)))
}

/// The label by which a namespace allows admin access; `None` if it does not.
pub fn allowed_by(namespace: &Value) -> Option<&'static str> {
    let is_set = |label: &&str| namespace.str_at(&["metadata", "labels", label]) == Some("true");
    [LABEL, KEP_LABEL].into_iter().find(is_set)
}

/// Kubernetes' message for admin access in a namespace without the label.
pub fn refusal() -> String {
    format!("admin access to devices requires the `{LABEL}: true` label on the containing namespace")
}
