//! Discovery priorities of groups and versions: those of the local APIServices.

/// Priority of the group among groups (`groupPriorityMinimum`), then of the version within it (`versionPriority`). Higher comes first.
pub type ApiServicePriority = (i64, i64);

/// Priority of every group and version that a CRD serves.
pub const CUSTOM: ApiServicePriority = (1000, 100);

/// Priority of `apiregistration.k8s.io` itself, above everything that can be registered.
pub const REGISTRATION: ApiServicePriority = (20_001, 0);

/// Versions of a group with their priorities.
type VersionPriorities = &'static [(&'static str, i64)];

/// Kubernetes' own numbers: group, versions with their priorities, priority of the group.
const PRIORITIES: &[(&str, VersionPriorities, i64)] = &[
    ("", &[("v1", 1)], 18_000),
    ("apps", &[("v1", 15)], 17_800),
    ("events.k8s.io", &[("v1", 15)], 17_750),
    ("authentication.k8s.io", &[("v1", 15)], 17_700),
    ("authorization.k8s.io", &[("v1", 15)], 17_600),
    ("autoscaling", &[("v2", 30), ("v1", 15)], 17_500),
    ("batch", &[("v1", 15)], 17_400),
    ("certificates.k8s.io", &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)], 17_300),
    ("networking.k8s.io", &[("v1", 15), ("v1beta1", 9)], 17_200),
    ("policy", &[("v1", 15)], 17_100),
    ("rbac.authorization.k8s.io", &[("v1", 15)], 17_000),
    ("storage.k8s.io", &[("v1", 15), ("v1beta1", 9), ("v1alpha1", 1)], 16_800),
    ("admissionregistration.k8s.io", &[("v1", 15), ("v1beta1", 12), ("v1alpha1", 9)], 16_700),
    ("apiextensions.k8s.io", &[("v1", 15)], 16_700),
    ("scheduling.k8s.io", &[("v1", 15), ("v1beta1", 9), ("v1alpha3", 3)], 16_600),
    ("coordination.k8s.io", &[("v1", 15), ("v1beta1", 13), ("v1alpha2", 12)], 16_500),
    ("node.k8s.io", &[("v1", 15)], 16_300),
    ("discovery.k8s.io", &[("v1", 15)], 16_200),
    ("resource.k8s.io", &[("v1", 21), ("v1beta2", 15), ("v1beta1", 9), ("v1alpha3", 1)], 16_200),
    ("flowcontrol.apiserver.k8s.io", &[("v1", 21)], 16_100),
    ("internal.apiserver.k8s.io", &[("v1alpha1", 9)], 16_000),
    ("storagemigration.k8s.io", &[("v1", 15), ("v1beta1", 9)], 15_800),
];

/// Returns the priority of a built-in group and version; `None` for `apiregistration.k8s.io`, which has no APIService.
pub fn priority(group: &str, version: &str) -> Option<ApiServicePriority> {
    let (_, versions, among_groups) = PRIORITIES.iter().find(|(name, ..)| *name == group)?;
    let (_, among_versions) = versions.iter().find(|(name, _)| *name == version)?;
    Some((*among_groups, *among_versions))
}
