//! `--feature-gates`: which are known, and what setting one here means.
//!
//! A gate can be set to what it is anyway. Setting one to anything else changes a behaviour, so unless this build implements
//! both sides that is an error, never silence.

const TABLE: &str = include_str!("../data/feature_gates.txt");

/// Static manifests of admission objects, and the names that are reserved for them.
pub(crate) const STATIC_MANIFESTS: &str = "ManifestBasedAdmissionControlConfig";

/// Gates of which both sides are implemented.
const IMPLEMENTED: &[&str] = &[STATIC_MANIFESTS];

/// What the gates are set to.
#[derive(Debug, Default)]
pub(crate) struct Gates {
    set: Vec<(String, bool)>,
}

impl Gates {
    /// Reads the values of `--feature-gates`: `A=true,B=false`, each perhaps with a component's name before a colon. Of two for one
    /// gate the last counts.
    pub(crate) fn read(values: &[String]) -> Result<Self, Vec<String>> {
        let mut errors = Vec::new();
        let mut set = Vec::new();
        for pair in values.iter().flat_map(|v| v.split(',')).map(str::trim).filter(|p| !p.is_empty()) {
            match read_one(pair) {
                Ok(gate) => set.push(gate),
                Err(error) => errors.push(error),
            }
        }
        if errors.is_empty() { Ok(Gates { set }) } else { Err(errors) }
    }

    /// Whether a gate is on.
    pub(crate) fn is_on(&self, name: &str) -> bool {
        let set = self.set.iter().rev().find(|(set, _)| set == name).map(|(_, on)| *on);
        set.unwrap_or_else(|| find(name).is_some_and(|(default, ..)| default))
    }
}

fn read_one(pair: &str) -> Result<(String, bool), String> {
    let pair = pair.split_once(':').map_or(pair, |(_, rest)| rest);
    let Some((name, value)) = pair.split_once('=') else {
        return Err(format!(
            "missing bool value for feature gate `{pair}`: write `{pair}=true` or `{pair}=false`"
        ));
    };
    let on = match value {
        "true" | "True" | "TRUE" | "1" | "t" | "T" => true,
        "false" | "False" | "FALSE" | "0" | "f" | "F" => false,
        _ => {
            return Err(format!(
                "invalid value of {name}={value}, err: strconv.ParseBool: parsing \"{value}\": invalid syntax"
            ));
        }
    };
    if matches!(name, "AllAlpha" | "AllBeta") {
        return if on == (name == "AllBeta") || !on && name == "AllAlpha" {
            Ok((name.to_owned(), on))
        } else {
            Err(format!("feature gate {name}={on} is not implemented: set the gates you need one by one"))
        };
    }
    let Some((default, stage, locked)) = find(name) else {
        return Err(format!("unrecognized feature gate: {name}"));
    };
    if on == default || IMPLEMENTED.contains(&name) {
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
    TABLE.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let mut words = line.split(' ');
        if words.next() != Some(name) {
            return None;
        }
        let default = words.next() == Some("on");
        let stage = words.next().unwrap_or_default();
        Some((default, stage, words.next() == Some("locked")))
    })
}

#[cfg(test)]
mod tests {
    use super::{Gates, STATIC_MANIFESTS};

    fn errors(text: &str) -> Vec<String> {
        Gates::read(&[text.to_owned()]).err().unwrap_or_default()
    }

    #[test]
    fn a_gate_can_be_set_to_what_it_is() {
        assert!(errors("DRAAdminAccess=true,APIServerWebhookAuthenticationToken=false").is_empty());
        assert!(errors("kube:DRAAdminAccess=true").is_empty());
    }

    #[test]
    fn a_gate_with_two_sides_can_be_set_to_either() {
        let off = Gates::read(&[format!("{STATIC_MANIFESTS}=false")]).unwrap();
        assert!(!off.is_on(STATIC_MANIFESTS));
        assert!(Gates::default().is_on(STATIC_MANIFESTS));
        assert!(!Gates::default().is_on("APIServerWebhookAuthenticationToken"));
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
        assert!(
            errors("APIServerWebhookAuthenticationToken=true").first().unwrap().contains("implements only")
        );
    }
}
