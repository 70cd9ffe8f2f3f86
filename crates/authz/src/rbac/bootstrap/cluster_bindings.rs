//! Default cluster role bindings, except those of the controllers.

use super::table::{Bind, group, service_account, user};

/// Each binding has the name of its role, as in Kubernetes.
pub(super) const BINDINGS: &[Bind] = &[
    Bind::same("cluster-admin", &[group(authn::names::MASTERS)]),
    Bind::same("system:basic-user", &[group("system:authenticated")]),
    Bind::same("system:cluster-trust-bundle-discovery", &[group("system:serviceaccounts")]),
    Bind::same("system:discovery", &[group("system:authenticated")]),
    Bind::same("system:kube-controller-manager", &[user("system:kube-controller-manager")]),
    Bind::same("system:kube-dns", &[service_account("kube-dns")]),
    Bind::same("system:kube-scheduler", &[user("system:kube-scheduler")]),
    Bind::same("system:monitoring", &[group("system:monitoring")]),
    // Nodes are authorized by the Node authorizer; the binding stays for clusters that add subjects to it.
    Bind::same("system:node", &[]),
    Bind::same("system:node-proxier", &[user("system:kube-proxy")]),
    Bind::same(
        "system:public-info-viewer",
        &[group("system:authenticated"), group("system:unauthenticated")],
    ),
    Bind::same("system:service-account-issuer-discovery", &[group("system:serviceaccounts")]),
    Bind::same("system:volume-scheduler", &[user("system:kube-scheduler")]),
];
