//! Which resources are served in which versions: the stable versions by default, changed by `--runtime-config`.

use std::collections::{BTreeMap, BTreeSet};

use api::features::Features;

use super::{GROUPS, Resource};

/// Keys that set all versions of a stage, or all versions. They apply in this order, whatever the order on the command line.
const STAGES: [(&str, Option<VersionStage>); 4] = [
    ("api/all", None),
    ("api/ga", Some(VersionStage::Stable)),
    ("api/beta", Some(VersionStage::Beta)),
    ("api/alpha", Some(VersionStage::Alpha)),
];

/// Versions that Kubernetes 1.37 accepts but never serves, because they are removed. Enabling or disabling them has no effect.
const NEVER_SERVED: &[(&str, &[&str])] = &[
    ("admission.k8s.io", &["v1", "v1beta1"]),
    ("apiextensions.k8s.io", &["v1beta1"]),
    ("apiregistration.k8s.io", &["v1beta1"]),
    ("apps", &["v1beta2", "v1beta1"]),
    ("authentication.k8s.io", &["v1beta1", "v1alpha1"]),
    ("authorization.k8s.io", &["v1beta1"]),
    ("batch", &["v1beta1"]),
    ("certificates.k8s.io", &["v1alpha1"]),
    ("discovery.k8s.io", &["v1beta1"]),
    ("events.k8s.io", &["v1beta1"]),
    ("extensions", &["v1beta1"]),
    ("flowcontrol.apiserver.k8s.io", &["v1beta3", "v1beta2", "v1beta1"]),
    ("imagepolicy.k8s.io", &["v1alpha1"]),
    ("networking.k8s.io", &["v1beta1"]),
    ("node.k8s.io", &["v1beta1"]),
    ("policy", &["v1beta1"]),
    ("rbac.authorization.k8s.io", &["v1beta1", "v1alpha1"]),
    ("storage.k8s.io", &["v1beta1", "v1alpha1"]),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VersionStage {
    Alpha,
    Beta,
    Stable,
}

impl VersionStage {
    fn of(version: &str) -> Self {
        if version.contains("alpha") {
            VersionStage::Alpha
        } else if version.contains("beta") {
            VersionStage::Beta
        } else {
            VersionStage::Stable
        }
    }
}

/// The plural names of the served resources by group and version. A version without any is not listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served(BTreeMap<(&'static str, &'static str), BTreeSet<&'static str>>);

impl Default for Served {
    /// Serves the stable versions and no others.
    fn default() -> Self {
        RuntimeConfig::default().served(Features::default())
    }
}

impl Served {
    /// Applies `--runtime-config`, with the default features.
    ///
    /// # Errors
    ///
    /// The versions and resources that [`RuntimeConfig::parse`] leaves served.
    pub fn parse(config: &str) -> Result<Served, String> {
        Ok(RuntimeConfig::parse(config)?.served(Features::default()))
    }

    /// Returns true if at least one resource of the version is served.
    pub fn is_served(&self, group: &str, version: &str) -> bool {
        self.0.contains_key(&(group, version))
    }

    pub fn is_resource_served(&self, row: &Resource, version: &str) -> bool {
        self.0.get(&(row.group, version)).is_some_and(|plurals| plurals.contains(row.plural))
    }

    /// Returns true if at least one version of a built-in group is served.
    pub fn has_group(&self, name: &str) -> bool {
        self.0.keys().any(|(group, _)| *group == name)
    }

    /// Served versions of a row, the preferred one first.
    pub fn versions<'a>(&'a self, row: &'a Resource) -> impl Iterator<Item = &'static str> + use<'a> {
        let versions = row.versions.iter().map(|version| version.name);
        versions.filter(move |version| self.is_resource_served(row, version))
    }
}

/// `--runtime-config`: which versions and resources are enabled and disabled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeConfig {
    /// The values as given, by key.
    given: BTreeMap<String, String>,
    versions: BTreeMap<(String, String), bool>,
    /// By group, version and plural name.
    resources: BTreeMap<(String, String, String), bool>,
}

impl RuntimeConfig {
    /// Parses comma-separated pairs: `GROUP/VERSION=true`, `GROUP/VERSION/RESOURCE=true`, and the keys of [`STAGES`]. The group of core
    /// resources is empty (`/v1`). If a key is repeated, the last value counts.
    ///
    /// # Errors
    ///
    /// The first error, with Kubernetes' message.
    pub fn parse(config: &str) -> Result<Self, String> {
        let mut parsed = RuntimeConfig::default();
        for pair in config.split(',').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            parsed.given.insert(key.trim().to_owned(), value.trim().to_owned());
        }
        if parsed.given.len() == 1 && parsed.value("api/all") == Some("false") {
            return Err("invalid runtime-config with only api/all=false".to_owned());
        }
        parsed.check_groups()?;
        for (stage, _) in STAGES {
            if let Some(value) = parsed.value(stage).filter(|value| !matches!(*value, "true" | "false")) {
                return Err(format!("invalid value {stage}={value}"));
            }
        }
        parsed.read_explicit()?;
        Ok(parsed)
    }

    fn value(&self, key: &str) -> Option<&str> {
        self.given.get(key).map(String::as_str)
    }

    /// The pairs for single versions and resources: group, version, resource, and the pair itself.
    fn explicit(&self) -> impl Iterator<Item = (Option<VersionKey<'_>>, &str, &str)> {
        let single = self.given.iter().filter(|(key, _)| STAGES.iter().all(|(stage, _)| stage != key));
        single.map(|(key, value)| (VersionKey::parse(key), key.as_str(), value.as_str()))
    }

    fn check_groups(&self) -> Result<(), String> {
        let mut unknown = BTreeSet::new();
        for (parsed, key, _) in self.explicit() {
            let found = parsed.ok_or_else(|| format!("runtime-config invalid key {key}"))?;
            if !is_group_registered(found.group) {
                unknown.insert(found.group_version());
            }
        }
        if unknown.is_empty() {
            return Ok(());
        }
        Err(format!("unknown api groups {}", unknown.into_iter().collect::<Vec<_>>().join(",")))
    }

    fn read_explicit(&mut self) -> Result<(), String> {
        let (mut versions, mut resources) = (BTreeMap::new(), BTreeMap::new());
        for (parsed, key, value) in self.explicit() {
            let found = parsed.ok_or_else(|| format!("runtime-config invalid key {key}"))?;
            if !is_version_registered(found.group, found.version) {
                return Err(format!("group version {} that has not been registered", found.group_version()));
            }
            let on = parse_bool(value).ok_or_else(|| {
                let quoted = api::field::quote(value);
                format!("invalid value of {key}: {value}, err: strconv.ParseBool: parsing {quoted}: invalid syntax")
            })?;
            let (group, version) = (found.group.to_owned(), found.version.to_owned());
            match found.resource {
                None => {
                    versions.insert((group, version), on);
                }
                Some(plural) if plural.to_lowercase() != plural => {
                    return Err(format!(
                        "invalid key {key}: group/version/resource and resource is always lowercase plural, not {}",
                        api::field::quote(plural)
                    ));
                }
                Some(plural) => {
                    resources.insert((group, version, plural.to_owned()), on);
                }
            }
        }
        (self.versions, self.resources) = (versions, resources);
        Ok(())
    }

    /// Returns Kubernetes' error if the configuration disables the API that API Priority and Fairness needs.
    pub fn conflict_with_priority_and_fairness(&self) -> Option<String> {
        // The first key that is set decides.
        for key in ["flowcontrol.apiserver.k8s.io/v1", "api/ga", "api/all"] {
            match self.value(key) {
                Some("false") => {
                    return Some(format!(
                        "--runtime-config={key}=false conflicts with --enable-priority-and-fairness=true"
                    ));
                }
                Some("true") => return None,
                _ => {}
            }
        }
        None
    }

    /// Resources that are served with these features. A resource whose feature is off is not, even if it is enabled.
    pub fn served(&self, features: Features) -> Served {
        let mut served: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        let rows = GROUPS.iter().flat_map(|group| group.resources);
        for row in rows.filter(|row| row.feature.is_none_or(|feature| features.has(feature))) {
            for version in row.versions.iter().map(|version| version.name) {
                if self.enables(row, version) {
                    served.entry((row.group, version)).or_default().insert(row.plural);
                }
            }
        }
        Served(served)
    }

    fn enables(&self, row: &Resource, version: &str) -> bool {
        let key = (row.group.to_owned(), version.to_owned(), row.plural.to_owned());
        if let Some(on) = self.resources.get(&key) {
            return *on;
        }
        let (group, version, _) = key;
        let stage = VersionStage::of(&version);
        if let Some(on) = self.versions.get(&(group, version)) {
            return *on;
        }
        let mut keys = STAGES.iter().rev().filter(|(_, of)| of.is_none_or(|of| of == stage));
        let set = keys.find_map(|(key, _)| self.value(key));
        set.map_or(stage == VersionStage::Stable, |value| value == "true")
    }
}

/// The parts of a key that names a version or a resource.
#[derive(Clone, Copy)]
struct VersionKey<'a> {
    group: &'a str,
    version: &'a str,
    resource: Option<&'a str>,
}

impl<'a> VersionKey<'a> {
    fn parse(key: &'a str) -> Option<Self> {
        let mut parts = key.split('/');
        let (group, version, resource) = (parts.next()?, parts.next()?, parts.next());
        parts.next().is_none().then_some(VersionKey { group, version, resource })
    }

    /// As Kubernetes prints it: without the slash for the core group.
    fn group_version(self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

fn is_group_registered(group: &str) -> bool {
    super::group(group).is_some() || NEVER_SERVED.iter().any(|(name, _)| *name == group)
}

fn is_version_registered(group: &str, version: &str) -> bool {
    super::group(group).is_some_and(|row| row.versions.contains(&version))
        || NEVER_SERVED.iter().any(|(name, versions)| *name == group && versions.contains(&version))
}

/// Parses a boolean as Go does; an empty value means true.
fn parse_bool(value: &str) -> Option<bool> {
    match value {
        "" | "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
