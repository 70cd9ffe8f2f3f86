//! `--feature-gates` and `--emulated-version`.
//!
//! A gate can always be set to its default. Setting it to another value is an error unless this build implements both values.

use api::features::{Feature, Features};
use server::config::FeatureGate;

const FEATURE_GATES: &str = include_str!("../data/feature_gates.txt");

/// Static admission manifests (KEP-5793) and the name suffix that is reserved for them.
pub(crate) const STATIC_MANIFESTS: &str = "ManifestBasedAdmissionControlConfig";

/// Admin access to devices (KEP-5018).
pub(crate) const ADMIN_ACCESS: &str = "DRAAdminAccess";

/// Gates that are locked in 1.37, with the last minor version in which they could be set. Both values are implemented.
const LOCKED_AFTER: &[(&str, u32)] = &[(ADMIN_ACCESS, 35)];

/// Tokens that authenticate the API server to admission webhooks (KEP-6060).
pub(crate) const WEBHOOK_TOKENS: &str = api::attestation::GATE;

/// The gate of `--authorization-config`, by its name in KEP-3221 and its former name in Kubernetes. If either is off, the flag is an error.
pub(crate) const AUTHORIZATION_CONFIG: [&str; 2] =
    ["AuthorizationConfigFromFile", "StructuredAuthorizationConfiguration"];

/// Gates that this build implements both enabled and disabled, besides those of [`Feature`].
const IMPLEMENTED: &[&str] =
    &[STATIC_MANIFESTS, WEBHOOK_TOKENS, AUTHORIZATION_CONFIG[0], AUTHORIZATION_CONFIG[1]];

/// Features that can be on only if others are, sorted by name.
const DEPENDENCIES: &[(Feature, &[Feature])] = &[
    (Feature::CompositePodGroup, &[Feature::GenericWorkload, Feature::TopologyAwareWorkloadScheduling]),
    (Feature::TopologyAwareWorkloadScheduling, &[Feature::GenericWorkload]),
];

fn is_implemented(gate: &str) -> bool {
    IMPLEMENTED.contains(&gate) || Feature::ALL.iter().any(|feature| feature.gate() == gate)
}

/// Each sets all gates of a stage that are not set individually.
const STAGES: [(&str, &str); 2] = [("AllAlpha", "ALPHA"), ("AllBeta", "BETA")];

/// `--emulated-version`, the minor version of Kubernetes that decides which gates are locked. Everything else is as in 1.37.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EmulatedVersion(u32);

impl Default for EmulatedVersion {
    fn default() -> Self {
        EmulatedVersion(37)
    }
}

impl EmulatedVersion {
    /// Parses `1.35`, `1.35.0` or `kube=1.35`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let version = text.strip_prefix("kube=").unwrap_or(text);
        let mut parts = version.split('.');
        let (major, minor) = (parts.next(), parts.next().and_then(|minor| minor.parse().ok()));
        match (major, minor, parts.next(), parts.next()) {
            (Some("1"), Some(minor @ 34..=37), None | Some("0"), None) => Ok(EmulatedVersion(minor)),
            (Some("1"), Some(minor), None | Some("0"), None) => {
                let out_of_range = format!("emulation version {version} is not between [1.34, 1.37.0]");
                if minor > 37 {
                    return Err(out_of_range);
                }
                // kube-apiserver then also reports its default --min-compatibility-version.
                Err(format!(
                    "[{out_of_range}, minCompatibilityVersion version 1.34 is not between [1.34, {version}]]"
                ))
            }
            _ => Err(format!("could not parse {} as version", api::field::quote(version))),
        }
    }

    pub(crate) fn minor(self) -> u32 {
        self.0
    }
}

/// The values of `--feature-gates`; the other gates have their defaults.
#[derive(Debug, Default)]
pub(crate) struct FeatureGates {
    set: Vec<(String, bool)>,
}

impl FeatureGates {
    /// Parses `A=true,B=false`; a gate may have a component prefix, as in `kube:A=true`. If a gate is repeated, the last value counts.
    ///
    /// # Errors
    ///
    /// Every invalid entry, with Kubernetes' message where it has one.
    pub(crate) fn parse(values: &[String], emulated: EmulatedVersion) -> Result<Self, Vec<String>> {
        let mut errors = Vec::new();
        let mut set = Vec::new();
        for pair in values.iter().flat_map(|v| v.split(',')).map(str::trim).filter(|p| !p.is_empty()) {
            match parse_gate(pair, emulated) {
                Ok(gate) => set.push(gate),
                Err(error) => errors.push(error),
            }
        }
        let gates = FeatureGates { set };
        for (all, stage) in STAGES {
            if let Some(on) = gates.explicit(all) {
                errors.extend(gates.unsupported_stage(all, stage, on));
            }
        }
        if errors.is_empty() {
            errors.extend(gates.unmet_dependencies());
        }
        if errors.is_empty() { Ok(gates) } else { Err(errors) }
    }

    /// The features of [`Feature`] that are on.
    pub(crate) fn features(&self) -> Features {
        let on = Feature::ALL.into_iter().filter(|feature| self.is_on(feature.gate()));
        on.fold(Features::default(), Features::with)
    }

    /// Errors about features that are on although one is off that they depend on.
    fn unmet_dependencies(&self) -> impl Iterator<Item = String> {
        let features = self.features();
        DEPENDENCIES.iter().filter(move |(feature, _)| features.has(*feature)).filter_map(
            move |(feature, on)| {
                let off: Vec<&str> =
                    on.iter().filter(|needed| !features.has(**needed)).map(|needed| needed.gate()).collect();
                let (gate, off) = (feature.gate(), (!off.is_empty()).then(|| off.join(" "))?);
                Some(format!("{gate} is enabled, but depends on features that are disabled: [{off}]"))
            },
        )
    }

    /// The value on the command line; `None` if the gate is not set there.
    fn explicit(&self, name: &str) -> Option<bool> {
        self.set.iter().rev().find(|(set, _)| set == name).map(|(_, on)| *on)
    }

    /// An error that names the gates of a stage for which this build does not implement `on` and that are not set individually.
    fn unsupported_stage(&self, all: &str, stage: &str, on: bool) -> Option<String> {
        let differ: Vec<&str> = rows()
            .filter(|(name, default, of, locked)| {
                *of == stage
                    && *default != on
                    && !locked
                    && !is_implemented(name)
                    && self.explicit(name).is_none()
            })
            .map(|(name, ..)| name)
            .collect();
        (!differ.is_empty()).then(|| {
            format!(
                "feature gate {all} cannot be set to {on}: this build does not implement {on} for {}; set the gates that you need individually",
                differ.join(", ")
            )
        })
    }

    pub(crate) fn with(mut self, name: &str, on: bool) -> Self {
        self.set.push((name.to_owned(), on));
        self
    }

    /// Every gate with its stage and value, for the metric `kubernetes_feature_enabled`.
    pub(crate) fn all(&self) -> Vec<FeatureGate> {
        let stages = STAGES.map(|(name, stage)| (name, stage, self.explicit(name).unwrap_or(false)));
        let gates = rows().map(|(name, _, stage, _)| (name, stage, self.is_on(name)));
        let all = stages.into_iter().chain(gates);
        all.map(|(name, stage, enabled)| {
            // The metric has an empty stage for generally available gates.
            let stage = if stage == "GA" { "" } else { stage };
            FeatureGate { name, stage, enabled }
        })
        .collect()
    }

    pub(crate) fn is_on(&self, name: &str) -> bool {
        self.explicit(name).unwrap_or_else(|| {
            let Some((default, stage, locked)) = find(name) else { return false };
            let all = STAGES.iter().find(|(_, of)| *of == stage && !locked);
            all.and_then(|(all, _)| self.explicit(all)).unwrap_or(default)
        })
    }
}

fn parse_gate(pair: &str, emulated: EmulatedVersion) -> Result<(String, bool), String> {
    let pair = pair.split_once(':').map_or(pair, |(_, rest)| rest);
    let Some((name, value)) = pair.split_once('=') else {
        return Err(format!("missing bool value for {pair}"));
    };
    let (name, value) = (name.trim(), value.trim());
    let on = match value {
        "true" | "True" | "TRUE" | "1" | "t" | "T" => true,
        "false" | "False" | "FALSE" | "0" | "f" | "F" => false,
        _ => {
            return Err(format!(
                "invalid value of {name}={value}, err: strconv.ParseBool: parsing \"{value}\": invalid syntax"
            ));
        }
    };
    if STAGES.iter().any(|(all, _)| *all == name) {
        return Ok((name.to_owned(), on));
    }
    let Some((default, stage, locked)) = find(name) else {
        return Err(format!("unrecognized feature gate: {name}"));
    };
    let settable = LOCKED_AFTER.iter().any(|(gate, last)| *gate == name && emulated.minor() <= *last);
    if on == default || settable || is_implemented(name) {
        return Ok((name.to_owned(), on));
    }
    if locked {
        return Err(format!("cannot set feature gate {name} to {on}, feature is locked to {default}"));
    }
    Err(format!(
        "feature gate {name} ({stage}) cannot be set to {on}: this build implements only {name}={default}; remove the setting"
    ))
}

fn find(name: &str) -> Option<(bool, &'static str, bool)> {
    rows().find(|row| row.0 == name).map(|(_, default, stage, locked)| (default, stage, locked))
}

/// Name, default, stage, and whether the gate is locked to its default.
fn rows() -> impl Iterator<Item = (&'static str, bool, &'static str, bool)> {
    FEATURE_GATES.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut words = line.split(' ');
        let name = words.next().filter(|name| !name.is_empty())?;
        let default = words.next() == Some("on");
        Some((name, default, words.next().unwrap_or_default(), words.next() == Some("locked")))
    })
}

#[cfg(test)]
mod tests {
    use api::features::{Feature, Features};

    use super::{
        ADMIN_ACCESS, AUTHORIZATION_CONFIG, EmulatedVersion, FeatureGates, STATIC_MANIFESTS, WEBHOOK_TOKENS,
    };

    fn errors(text: &str) -> Vec<String> {
        FeatureGates::parse(&[text.to_owned()], EmulatedVersion::default()).err().unwrap_or_default()
    }

    #[test]
    fn a_gate_can_be_set_to_its_default() {
        assert!(errors("DRAAdminAccess=true,APIServerWebhookAuthenticationToken=false").is_empty());
        assert!(errors("kube:DRAAdminAccess=true").is_empty());
    }

    #[test]
    fn a_gate_that_is_implemented_both_ways_can_be_set_to_either() {
        for gate in AUTHORIZATION_CONFIG {
            assert!(FeatureGates::default().is_on(gate));
            let off = FeatureGates::parse(&[format!("{gate}=false")], EmulatedVersion::default()).unwrap();
            assert!(!off.is_on(gate));
        }
        let off =
            FeatureGates::parse(&[format!("{STATIC_MANIFESTS}=false")], EmulatedVersion::default()).unwrap();
        assert!(!off.is_on(STATIC_MANIFESTS));
        assert!(FeatureGates::default().is_on(STATIC_MANIFESTS));
        assert!(!FeatureGates::default().is_on(WEBHOOK_TOKENS));
        let on =
            FeatureGates::parse(&[format!("{WEBHOOK_TOKENS}=true")], EmulatedVersion::default()).unwrap();
        assert!(on.is_on(WEBHOOK_TOKENS));
    }

    #[test]
    fn a_feature_is_an_error_while_one_is_off_that_it_depends_on() {
        for (gates, expected) in [
            ("GenericWorkload=true", ""),
            ("EvictionRequestAPI=true", ""),
            ("GenericWorkload=true,TopologyAwareWorkloadScheduling=true,CompositePodGroup=true", ""),
            (
                "TopologyAwareWorkloadScheduling=true",
                "TopologyAwareWorkloadScheduling is enabled, but depends on features that are disabled: [GenericWorkload]",
            ),
            (
                "GenericWorkload=true,CompositePodGroup=true",
                "CompositePodGroup is enabled, but depends on features that are disabled: [TopologyAwareWorkloadScheduling]",
            ),
            (
                "CompositePodGroup=true",
                "CompositePodGroup is enabled, but depends on features that are disabled: [GenericWorkload TopologyAwareWorkloadScheduling]",
            ),
        ] {
            assert_eq!(errors(gates).join("; "), expected, "{gates}");
        }
        let gates = ["GenericWorkload=true,EvictionRequestAPI=true".to_owned()];
        let gates = FeatureGates::parse(&gates, EmulatedVersion::default()).unwrap();
        let on = Features::default().with(Feature::GenericWorkload).with(Feature::EvictionRequestApi);
        assert_eq!(gates.features(), on);
        assert_eq!(FeatureGates::default().features(), Features::default());
    }

    #[test]
    fn a_locked_gate_can_be_set_when_an_earlier_version_is_emulated() {
        let off = ["DRAAdminAccess=false".to_owned()];
        for (version, free) in
            [("1.34", true), ("kube=1.35", true), ("1.35.0", true), ("1.36", false), ("1.37", false)]
        {
            let gates = FeatureGates::parse(&off, EmulatedVersion::parse(version).unwrap());
            assert_eq!(gates.is_ok(), free, "{version}");
            assert!(gates.is_err() || !gates.unwrap().is_on(ADMIN_ACCESS), "{version}");
        }
        assert!(
            FeatureGates::parse(&[], EmulatedVersion::parse("1.35").unwrap()).unwrap().is_on(ADMIN_ACCESS)
        );
        assert_eq!(
            EmulatedVersion::parse("1.33").unwrap_err(),
            "[emulation version 1.33 is not between [1.34, 1.37.0], minCompatibilityVersion version 1.34 is not between [1.34, 1.33]]"
        );
        for wrong in ["", "1", "2.35", "1.35.1", "v1.35", "1.x"] {
            assert!(EmulatedVersion::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn unknown_locked_and_malformed_gates_are_errors() {
        assert_eq!(errors("Nope=true"), ["unrecognized feature gate: Nope"]);
        assert_eq!(
            errors("DRAAdminAccess=false"),
            ["cannot set feature gate DRAAdminAccess to false, feature is locked to true"]
        );
        assert!(errors("DRAAdminAccess").first().unwrap().contains("missing bool value"));
        assert!(errors("DRAAdminAccess=x").first().unwrap().contains("invalid syntax"));
        assert!(errors("APIServingWithRoutine=true").first().unwrap().contains("implements only"));
    }

    #[test]
    fn a_stage_gate_is_an_error_that_names_the_gates_it_cannot_set() {
        assert!(errors("AllAlpha=false").is_empty());
        let refused = errors("AllBeta=true");
        assert!(refused.first().unwrap().contains("DRAWorkloadResourceClaims"), "{refused:?}");
        assert!(!refused.first().unwrap().contains("GenericWorkload"), "{refused:?}");
        assert!(!refused.first().unwrap().contains("DRAConsumableCapacity"), "{refused:?}");
        let refused = errors("AllBeta=false");
        assert!(refused.first().unwrap().contains("DRAConsumableCapacity"), "{refused:?}");
        let refused = errors("AllAlpha=true");
        assert!(refused.first().unwrap().contains("APIServingWithRoutine"), "{refused:?}");
        // Gates that are implemented both ways, and gates that are set individually, are not named.
        assert!(!errors("AllBeta=false").first().unwrap().contains(STATIC_MANIFESTS));
        let spared = errors("AllBeta=false,DRAConsumableCapacity=true");
        assert!(!spared.first().unwrap().contains("DRAConsumableCapacity"), "{spared:?}");
    }
}
