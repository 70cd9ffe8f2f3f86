//! Default cluster role bindings, except those of the controllers.

use super::table::{BindingRow, group, service_account, user};

/// Each binding has the name of its role, as in Kubernetes.
pub(super) const BINDINGS: &[BindingRow] = &[
    BindingRow::same("cluster-admin", &[group(authn::names::MASTERS)]),
    BindingRow::same("system:basic-user", &[group("system:authenticated")]),
    BindingRow::same("system:cluster-trust-bundle-discovery", &[group("system:serviceaccounts")]),
    BindingRow::same("system:discovery", &[group("system:authenticated")]),
    BindingRow::same("system:kube-controller-manager", &[user("system:kube-controller-manager")]),
    BindingRow::same("system:kube-dns", &[service_account("kube-dns")]),
    BindingRow::same("system:kube-scheduler", &[user("system:kube-scheduler")]),
    BindingRow::same("system:monitoring", &[group("system:monitoring")]),
    // Nodes are authorized by the Node authorizer; the binding stays for clusters that add subjects to it.
    BindingRow::same("system:node", &[]),
    BindingRow::same("system:node-proxier", &[user("system:kube-proxy")]),
    BindingRow::same(
        "system:public-info-viewer",
        &[group("system:authenticated"), group("system:unauthenticated")],
    ),
    BindingRow::same("system:service-account-issuer-discovery", &[group("system:serviceaccounts")]),
    BindingRow::same("system:volume-scheduler", &[user("system:kube-scheduler")]),
];
