//! Default roles and role bindings in the system namespaces.

use super::table::{BindingRow, CORE, EVENTS, READ, Role, on, role, service_account, user};

const LEASES: &str = "create get list update watch";

/// Pairs of namespace and role.
pub(super) const ROLES: &[(&str, Role)] = &[
    ("kube-public", role("system:controller:bootstrap-signer", &[
        on(READ, CORE, "configmaps"),
        on("update", CORE, "configmaps").only("cluster-info"),
        EVENTS,
    ])),
    ("kube-system", role("extension-apiserver-authentication-reader", &[
        on(READ, CORE, "configmaps").only("extension-apiserver-authentication"),
    ])),
    ("kube-system", role("system::leader-locking-kube-controller-manager", &[
        on(LEASES, "coordination.k8s.io", "leases"),
        on(LEASES, "coordination.k8s.io", "leasecandidates"),
    ])),
    ("kube-system", role("system::leader-locking-kube-scheduler", &[
        on(LEASES, "coordination.k8s.io", "leases"),
        on(LEASES, "coordination.k8s.io", "leasecandidates"),
    ])),
    ("kube-system", role("system:controller:bootstrap-signer", &[on(READ, CORE, "secrets")])),
    ("kube-system", role("system:controller:cloud-provider", &[on("create get list watch", CORE, "configmaps")])),
    ("kube-system", role("system:controller:token-cleaner", &[
        on("delete get list watch", CORE, "secrets"),
        EVENTS,
    ])),
];

/// Pairs of namespace and role binding.
pub(super) const BINDINGS: &[(&str, BindingRow)] = &[
    ("kube-public", BindingRow::same("system:controller:bootstrap-signer", &[service_account("bootstrap-signer")])),
    ("kube-system", BindingRow {
        name: "system::extension-apiserver-authentication-reader",
        role: "extension-apiserver-authentication-reader",
        subjects: &[user("system:kube-controller-manager"), user("system:kube-scheduler")],
    }),
    ("kube-system", BindingRow::same("system::leader-locking-kube-controller-manager", &[
        user("system:kube-controller-manager"),
        service_account("kube-controller-manager"),
        service_account("leader-election-controller"),
    ])),
    ("kube-system", BindingRow::same("system::leader-locking-kube-scheduler", &[
        user("system:kube-scheduler"),
        service_account("kube-scheduler"),
    ])),
    ("kube-system", BindingRow::same("system:controller:bootstrap-signer", &[service_account("bootstrap-signer")])),
    ("kube-system", BindingRow::same("system:controller:cloud-provider", &[service_account("cloud-provider")])),
    ("kube-system", BindingRow::same("system:controller:token-cleaner", &[service_account("token-cleaner")])),
];
