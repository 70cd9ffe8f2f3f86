//! Default roles and role bindings in the system namespaces.

use api::namespaces;
use authn::names;

use super::table::{BindingRow, CORE, EVENTS, READ, Role, on, role, service_account, user};

const LEASES: &str = "create get list update watch";

/// Pairs of namespace and role.
pub(super) const ROLES: &[(&str, Role)] = &[
    (namespaces::PUBLIC, role("system:controller:bootstrap-signer", &[
        on(READ, CORE, "configmaps"),
        on("update", CORE, "configmaps").only("cluster-info"),
        EVENTS,
    ])),
    (namespaces::SYSTEM, role("extension-apiserver-authentication-reader", &[
        on(READ, CORE, "configmaps").only("extension-apiserver-authentication"),
    ])),
    (namespaces::SYSTEM, role("system::leader-locking-kube-controller-manager", &[
        on(LEASES, "coordination.k8s.io", "leases"),
        on(LEASES, "coordination.k8s.io", "leasecandidates"),
    ])),
    (namespaces::SYSTEM, role("system::leader-locking-kube-scheduler", &[
        on(LEASES, "coordination.k8s.io", "leases"),
        on(LEASES, "coordination.k8s.io", "leasecandidates"),
    ])),
    (namespaces::SYSTEM, role("system:controller:bootstrap-signer", &[on(READ, CORE, "secrets")])),
    (namespaces::SYSTEM, role("system:controller:cloud-provider", &[on("create get list watch", CORE, "configmaps")])),
    (namespaces::SYSTEM, role("system:controller:token-cleaner", &[
        on("delete get list watch", CORE, "secrets"),
        EVENTS,
    ])),
];

/// Pairs of namespace and role binding.
pub(super) const BINDINGS: &[(&str, BindingRow)] = &[
    (namespaces::PUBLIC, BindingRow::same("system:controller:bootstrap-signer", &[service_account("bootstrap-signer")])),
    (namespaces::SYSTEM, BindingRow {
        name: "system::extension-apiserver-authentication-reader",
        role: "extension-apiserver-authentication-reader",
        subjects: &[user(names::CONTROLLER_MANAGER), user(names::SCHEDULER)],
    }),
    (namespaces::SYSTEM, BindingRow::same("system::leader-locking-kube-controller-manager", &[
        user(names::CONTROLLER_MANAGER),
        service_account("kube-controller-manager"),
        service_account("leader-election-controller"),
    ])),
    (namespaces::SYSTEM, BindingRow::same("system::leader-locking-kube-scheduler", &[
        user(names::SCHEDULER),
        service_account("kube-scheduler"),
    ])),
    (namespaces::SYSTEM, BindingRow::same("system:controller:bootstrap-signer", &[service_account("bootstrap-signer")])),
    (namespaces::SYSTEM, BindingRow::same("system:controller:cloud-provider", &[service_account("cloud-provider")])),
    (namespaces::SYSTEM, BindingRow::same("system:controller:token-cleaner", &[service_account("token-cleaner")])),
];
