//! Discovery priorities of groups and versions: those of the local APIServices.

/// Priority of the group among groups (`groupPriorityMinimum`), then of the version within it (`versionPriority`). Higher comes first.
pub type ApiServicePriority = (i64, i64);

/// Priority of every group and version that a CRD serves.
pub const CUSTOM: ApiServicePriority = (1000, 100);

/// Priority of `apiregistration.k8s.io` itself, above everything that can be registered.
pub const REGISTRATION: ApiServicePriority = (20_001, 0);

/// Returns the priority of a built-in group and version; `None` for `apiregistration.k8s.io`, which has no APIService.
pub fn priority(group: &str, version: &str) -> Option<ApiServicePriority> {
    let group = super::group(group)?;
    let (among_groups, among_versions) = group.priorities?;
    let (_, priority) = group.versions.iter().zip(among_versions).find(|(name, _)| **name == version)?;
    Some((among_groups, *priority))
}
