//! Admin access to devices (KEP-5018): who asks for it, and the labels of namespaces that allow it.

use value::Value;

/// The label that allows it, with the value `true`.
pub const LABEL: &str = "resource.kubernetes.io/admin-access";
/// The name of this label in KEP-5018, which allows it as well.
pub const KEP_LABEL: &str = "kubernetes.io/dra-admin-access";

/// The first of the requests of a claim or template that asks for admin access.
pub fn first_asking(requests: &[Value]) -> Option<usize> {
    requests.iter().position(|request| request.at(&["exactly", "adminAccess"]) == Some(&Value::Bool(true)))
}

/// The label by which a namespace allows it.
pub fn allowed_by(namespace: &Value) -> Option<&'static str> {
    let is_set = |label: &&str| namespace.str_at(&["metadata", "labels", label]) == Some("true");
    [LABEL, KEP_LABEL].into_iter().find(is_set)
}

/// Why it is refused in a namespace with neither label, in the words of Kubernetes.
pub fn refusal() -> String {
    format!("admin access to devices requires the `{LABEL}: true` label on the containing namespace")
}
