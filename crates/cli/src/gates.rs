//! `--feature-gates`: which are known, and what setting one here means.
//!
//! A gate can be set to what it is anyway. Setting one to anything else changes a behaviour, so unless this build implements
//! both sides that is an error, never silence.

use server::config::FeatureGate;

const TABLE: &str = include_str!("../data/feature_gates.txt");

/// Static manifests of admission objects, and the names that are reserved for them.
pub(crate) const STATIC_MANIFESTS: &str = "ManifestBasedAdmissionControlConfig";

/// Admin access to devices (KEP-5018).
pub(crate) const ADMIN_ACCESS: &str = "DRAAdminAccess";

/// Gates that are locked by now, and the last version in which they were not. Both sides are implemented.
const ONCE_FREE: &[(&str, u32)] = &[(ADMIN_ACCESS, 35)];

/// Tokens that tell webhooks who asks them.
pub(crate) const WEBHOOK_TOKENS: &str = api::attestation::GATE;

/// The gate of `--authorization-config`: as KEP-3221 names it, and as Kubernetes named it. Either turns the flag off.
pub(crate) const AUTHORIZATION_CONFIG: [&str; 2] =
    ["AuthorizationConfigFromFile", "StructuredAuthorizationConfiguration"];

/// Gates of which both sides are implemented.
const IMPLEMENTED: &[&str] =
    &[STATIC_MANIFESTS, WEBHOOK_TOKENS, AUTHORIZATION_CONFIG[0], AUTHORIZATION_CONFIG[1]];

/// What sets all gates of a stage that are not set by themselves.
const STAGES: [(&str, &str); 2] = [("AllAlpha", "ALPHA"), ("AllBeta", "BETA")];

/// `--emulated-version`: which version's gates there are. Everything else is as in 1.37.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Emulated(u32);

impl Default for Emulated {
    fn default() -> Self {
        Emulated(37)
    }
}

impl Emulated {
    /// Reads `1.35`, `1.35.0` or `kube=1.35`.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let version = text.strip_prefix("kube=").unwrap_or(text);
        let mut parts = version.split('.');
        let (major, minor) = (parts.next(), parts.next().and_then(|minor| minor.parse().ok()));
        match (major, minor, parts.next(), parts.next()) {
            (Some("1"), Some(minor @ 34..=37), None | Some("0"), None) => Ok(Emulated(minor)),
            (Some("1"), Some(minor), None | Some("0"), None) => {
                let wrong = format!("emulation version {version} is not between [1.34, 1.37.0]");
                if minor > 37 {
                    return Err(wrong);
                }
                // What it must be compatible with is not between, either.
                Err(format!(
                    "[{wrong}, minCompatibilityVersion version 1.34 is not between [1.34, {version}]]"
                ))
            }
            _ => Err(format!("could not parse {} as version", api::field::quote(version))),
        }
    }

    /// The second part of the version.
    pub(crate) fn minor(self) -> u32 {
        self.0
    }
}

/// What the gates are set to.
#[derive(Debug, Default)]
pub(crate) struct Gates {
    set: Vec<(String, bool)>,
}

impl Gates {
    /// Reads the values of `--feature-gates`: `A=true,B=false`, each perhaps with a component's name before a colon. Of two for one
    /// gate the last counts.
    pub(crate) fn read(values: &[String], emulated: Emulated) -> Result<Self, Vec<String>> {
        let mut errors = Vec::new();
        let mut set = Vec::new();
        for pair in values.iter().flat_map(|v| v.split(',')).map(str::trim).filter(|p| !p.is_empty()) {
            match read_one(pair, emulated) {
                Ok(gate) => set.push(gate),
                Err(error) => errors.push(error),
            }
        }
        let gates = Gates { set };
        for (all, stage) in STAGES {
            if let Some(on) = gates.said(all) {
                errors.extend(gates.cannot_follow(all, stage, on));
            }
        }
        if errors.is_empty() { Ok(gates) } else { Err(errors) }
    }

    fn said(&self, name: &str) -> Option<bool> {
        self.set.iter().rev().find(|(set, _)| set == name).map(|(_, on)| *on)
    }

    /// The gates of a stage that would have to be set to something that is not implemented, and are not set by themselves.
    fn cannot_follow(&self, all: &str, stage: &str, on: bool) -> Option<String> {
        let differ: Vec<&str> = rows()
            .filter(|(name, default, of, locked)| {
                *of == stage
                    && *default != on
                    && !locked
                    && !IMPLEMENTED.contains(name)
                    && self.said(name).is_none()
            })
            .map(|(name, ..)| name)
            .collect();
        (!differ.is_empty()).then(|| {
            format!(
                "feature gate {all} cannot be set to {on}: this build does not implement that for {}; set the gates you need one by one",
                differ.join(", ")
            )
        })
    }

    /// Sets one more gate.
    pub(crate) fn with(mut self, name: &str, on: bool) -> Self {
        self.set.push((name.to_owned(), on));
        self
    }

    /// Every gate with its stage and what it is set to, as the metric `kubernetes_feature_enabled` shows them.
    pub(crate) fn all(&self) -> Vec<FeatureGate> {
        let stages = STAGES.map(|(name, stage)| (name, stage, self.said(name).unwrap_or(false)));
        let gates = rows().map(|(name, _, stage, _)| (name, stage, self.is_on(name)));
        let all = stages.into_iter().chain(gates);
        all.map(|(name, stage, enabled)| {
            // The metric has no word for what is generally available.
            let stage = if stage == "GA" { "" } else { stage };
            FeatureGate { name, stage, enabled }
        })
        .collect()
    }

    /// Whether a gate is on.
    pub(crate) fn is_on(&self, name: &str) -> bool {
        self.said(name).unwrap_or_else(|| {
            let Some((default, stage, locked)) = find(name) else { return false };
            let all = STAGES.iter().find(|(_, of)| *of == stage && !locked);
            all.and_then(|(all, _)| self.said(all)).unwrap_or(default)
        })
    }
}

fn read_one(pair: &str, emulated: Emulated) -> Result<(String, bool), String> {
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
    let free = ONCE_FREE.iter().any(|(once, last)| *once == name && emulated.minor() <= *last);
    if on == default || free || IMPLEMENTED.contains(&name) {
        return Ok((name.to_owned(), on));
    }
    if locked {
        return Err(format!("cannot set feature gate {name} to {on}, feature is locked to {default}"));
    }
    Err(format!(
        "feature gate {name} ({stage}) cannot be set to {on}: this build implements only {name}={default}; leave it out"
    ))
}

fn find(name: &str) -> Option<(bool, &'static str, bool)> {
    rows().find(|row| row.0 == name).map(|(_, default, stage, locked)| (default, stage, locked))
}

/// Name, default, stage and whether it is locked.
fn rows() -> impl Iterator<Item = (&'static str, bool, &'static str, bool)> {
    TABLE.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut words = line.split(' ');
        let name = words.next().filter(|name| !name.is_empty())?;
        let default = words.next() == Some("on");
        Some((name, default, words.next().unwrap_or_default(), words.next() == Some("locked")))
    })
}

#[cfg(test)]
mod tests {
    use super::{ADMIN_ACCESS, AUTHORIZATION_CONFIG, Emulated, Gates, STATIC_MANIFESTS, WEBHOOK_TOKENS};

    fn errors(text: &str) -> Vec<String> {
        Gates::read(&[text.to_owned()], Emulated::default()).err().unwrap_or_default()
    }

    #[test]
    fn a_gate_can_be_set_to_what_it_is() {
        assert!(errors("DRAAdminAccess=true,APIServerWebhookAuthenticationToken=false").is_empty());
        assert!(errors("kube:DRAAdminAccess=true").is_empty());
    }

    #[test]
    fn a_gate_with_two_sides_can_be_set_to_either() {
        for gate in AUTHORIZATION_CONFIG {
            assert!(Gates::default().is_on(gate));
            let off = Gates::read(&[format!("{gate}=false")], Emulated::default()).unwrap();
            assert!(!off.is_on(gate));
        }
        let off = Gates::read(&[format!("{STATIC_MANIFESTS}=false")], Emulated::default()).unwrap();
        assert!(!off.is_on(STATIC_MANIFESTS));
        assert!(Gates::default().is_on(STATIC_MANIFESTS));
        assert!(!Gates::default().is_on(WEBHOOK_TOKENS));
        let on = Gates::read(&[format!("{WEBHOOK_TOKENS}=true")], Emulated::default()).unwrap();
        assert!(on.is_on(WEBHOOK_TOKENS));
    }

    #[test]
    fn a_gate_that_is_locked_by_now_is_free_in_the_versions_before() {
        let off = ["DRAAdminAccess=false".to_owned()];
        for (version, free) in
            [("1.34", true), ("kube=1.35", true), ("1.35.0", true), ("1.36", false), ("1.37", false)]
        {
            let gates = Gates::read(&off, Emulated::read(version).unwrap());
            assert_eq!(gates.is_ok(), free, "{version}");
            assert!(gates.is_err() || !gates.unwrap().is_on(ADMIN_ACCESS), "{version}");
        }
        assert!(Gates::read(&[], Emulated::read("1.35").unwrap()).unwrap().is_on(ADMIN_ACCESS));
        assert_eq!(
            Emulated::read("1.33").unwrap_err(),
            "[emulation version 1.33 is not between [1.34, 1.37.0], minCompatibilityVersion version 1.34 is not between [1.34, 1.33]]"
        );
        for wrong in ["", "1", "2.35", "1.35.1", "v1.35", "1.x"] {
            assert!(Emulated::read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn anything_else_is_refused_in_words_that_say_why() {
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
    fn all_gates_of_a_stage_are_set_or_those_that_cannot_be_are_named() {
        assert!(errors("AllAlpha=false").is_empty());
        let refused = errors("AllBeta=true");
        assert!(refused.first().unwrap().contains("GenericWorkload"), "{refused:?}");
        assert!(!refused.first().unwrap().contains("DRAConsumableCapacity"), "{refused:?}");
        let refused = errors("AllBeta=false");
        assert!(refused.first().unwrap().contains("DRAConsumableCapacity"), "{refused:?}");
        let refused = errors("AllAlpha=true");
        assert!(refused.first().unwrap().contains("APIServingWithRoutine"), "{refused:?}");
        // Those of which both sides are implemented, and those that are set by themselves, are not in the way.
        assert!(!errors("AllBeta=false").first().unwrap().contains(STATIC_MANIFESTS));
        let spared = errors("AllBeta=false,DRAConsumableCapacity=true");
        assert!(!spared.first().unwrap().contains("DRAConsumableCapacity"), "{spared:?}");
    }
}
