//! Default cluster role bindings, except those of the controllers.

use authn::names;

use super::table::{BindingRow, group, service_account, user};

/// Each binding has the name of its role, as in Kubernetes.
pub(super) const BINDINGS: &[BindingRow] = &[
    BindingRow::same("cluster-admin", &[group(names::MASTERS)]),
    BindingRow::same("system:basic-user", &[group(names::AUTHENTICATED)]),
    BindingRow::same("system:cluster-trust-bundle-discovery", &[group(names::SERVICE_ACCOUNTS)]),
    BindingRow::same("system:discovery", &[group(names::AUTHENTICATED)]),
    BindingRow::same("system:kube-controller-manager", &[user(names::CONTROLLER_MANAGER)]),
    BindingRow::same("system:kube-dns", &[service_account("kube-dns")]),
    BindingRow::same("system:kube-scheduler", &[user(names::SCHEDULER)]),
    BindingRow::same("system:monitoring", &[group("system:monitoring")]),
    // Nodes are authorized by the Node authorizer; the binding stays for clusters that add subjects to it.
    BindingRow::same("system:node", &[]),
    BindingRow::same("system:node-proxier", &[user("system:kube-proxy")]),
    BindingRow::same(
        "system:public-info-viewer",
        &[group(names::AUTHENTICATED), group(names::UNAUTHENTICATED)],
    ),
    BindingRow::same("system:service-account-issuer-discovery", &[group(names::SERVICE_ACCOUNTS)]),
    BindingRow::same("system:volume-scheduler", &[user(names::SCHEDULER)]),
];
