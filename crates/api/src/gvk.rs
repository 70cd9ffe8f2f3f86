//! Groups, versions, kinds and resources, printed as Kubernetes prints them.

use std::cmp::Ordering;
use std::fmt;

use value::Str;

/// An API group and version: `v1`, `apps/v1`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersion {
    /// API group; empty for the core group.
    pub group: Str,
    pub version: Str,
}

impl GroupVersion {
    pub fn new(group: impl Into<Str>, version: impl Into<Str>) -> Self {
        GroupVersion { group: group.into(), version: version.into() }
    }

    /// Splits an `apiVersion` at its first slash into group and version. The group of `v1` is empty.
    pub fn split(api_version: &str) -> (&str, &str) {
        api_version.split_once('/').unwrap_or(("", api_version))
    }

    /// Parses `v1` or `group/version`. More than one slash is an error, with Kubernetes' message.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            None => Ok(GroupVersion::new("", text)),
            Some((_, rest)) if rest.contains('/') => Err(format!("unexpected GroupVersion string: {text}")),
            Some((group, version)) => Ok(GroupVersion::new(group, version)),
        }
    }

    pub fn kind(&self, kind: impl Into<Str>) -> GroupVersionKind {
        GroupVersionKind { group: self.group.clone(), version: self.version.clone(), kind: kind.into() }
    }
}

impl fmt::Display for GroupVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.version)
        } else {
            write!(f, "{}/{}", self.group, self.version)
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersionKind {
    /// API group; empty for the core group.
    pub group: Str,
    pub version: Str,
    pub kind: Str,
}

impl GroupVersionKind {
    pub fn new(group: impl Into<Str>, version: impl Into<Str>, kind: impl Into<Str>) -> Self {
        GroupVersionKind { group: group.into(), version: version.into(), kind: kind.into() }
    }

    pub fn group_version(&self) -> GroupVersion {
        GroupVersion { group: self.group.clone(), version: self.version.clone() }
    }

    pub fn group_kind(&self) -> GroupKind {
        GroupKind { group: self.group.clone(), kind: self.kind.clone() }
    }

    /// The value of an object's `apiVersion` field.
    pub fn api_version(&self) -> String {
        self.group_version().to_string()
    }
}

/// Prints as Go does: `apps/v1, Kind=Deployment`.
impl fmt::Display for GroupVersionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

/// A kind in an API group, printed as `Deployment.apps` (core kinds without a group).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupKind {
    /// API group; empty for the core group.
    pub group: Str,
    pub kind: Str,
}

impl GroupKind {
    pub fn new(group: impl Into<Str>, kind: impl Into<Str>) -> Self {
        GroupKind { group: group.into(), kind: kind.into() }
    }
}

impl fmt::Display for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.kind)
        } else {
            write!(f, "{}.{}", self.kind, self.group)
        }
    }
}

/// A resource in an API group, printed as `deployments.apps` (core resources without a group).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupResource {
    /// API group; empty for the core group.
    pub group: Str,
    /// Plural name, such as `deployments`.
    pub resource: Str,
}

impl GroupResource {
    pub fn new(group: impl Into<Str>, resource: impl Into<Str>) -> Self {
        GroupResource { group: group.into(), resource: resource.into() }
    }
}

impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.resource)
        } else {
            write!(f, "{}.{}", self.resource, self.group)
        }
    }
}

/// Orders versions as Kubernetes prefers them: stable before beta before alpha, then the higher number, then anything else by name.
pub fn compare_versions(a: &str, b: &str) -> Ordering {
    match (rank(a), rank(b)) {
        (Some(a), Some(b)) => b.cmp(&a),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// `v1beta2` → (1 for beta, 1, 2); nothing for what is not such a version. Stable ranks 2, alpha 0.
fn rank(version: &str) -> Option<(u8, u32, u32)> {
    let rest = version.strip_prefix('v')?;
    let (stability, major, minor) = match rest.split_once("beta").map(|split| (1, split)) {
        Some((stability, (major, minor))) => (stability, major, minor),
        None => match rest.split_once("alpha") {
            Some((major, minor)) => (0, major, minor),
            None => (2, rest, "0"),
        },
    };
    Some((stability, major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::compare_versions;

    #[test]
    fn versions_are_ordered_by_stability_then_number() {
        let mut versions =
            vec!["v1alpha1", "foo1", "v1", "v2beta1", "v10", "v2", "v1beta2", "bar", "v3alpha1"];
        versions.sort_by(|a, b| compare_versions(a, b));
        assert_eq!(
            versions,
            ["v10", "v2", "v1", "v2beta1", "v1beta2", "v3alpha1", "v1alpha1", "bar", "foo1"]
        );
    }
}
