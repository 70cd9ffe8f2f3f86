//! Validation of Lease and LeaseCandidate.

use std::cmp::Ordering;

use api::FieldErrors;
use api::names;
use api::validation::fields::{At, IMMUTABLE, Read, Report};
use api::validation::meta;
use cel::Semver;
use value::Value;

use super::{ValidationRules, no_rules};

pub(crate) const LEASE: ValidationRules = ValidationRules {
    create: |lease, _| {
        let mut errors = meta::create(lease, true, names::name_is_dns_subdomain);
        lease_spec(lease, &mut errors);
        errors
    },
    update: |new, old, _| {
        let mut errors = meta::update(new, old);
        lease_spec(new, &mut errors);
        errors
    },
    update_status: no_rules,
};
pub(crate) const LEASE_CANDIDATE: ValidationRules = ValidationRules {
    create: |candidate, _| {
        let mut errors = meta::create(candidate, true, |name, _| names::is_config_map_key(name));
        candidate_spec(candidate, &mut errors);
        errors
    },
    update: |new, old, _| {
        let mut errors = meta::update(new, old);
        candidate_spec(new, &mut errors);
        let name = new.part("spec").text("leaseName");
        if name != old.part("spec").text("leaseName") {
            errors.invalid(&At::new("spec.leaseName"), name, IMMUTABLE);
        }
        errors
    },
    update_status: no_rules,
};

const OLDEST_EMULATION_VERSION: &str = "OldestEmulationVersion";

fn lease_spec(lease: &Value, errors: &mut FieldErrors) {
    let spec = lease.part("spec");
    let at = At::new("spec");
    if let Some(seconds) = spec.number_if_set("leaseDurationSeconds")
        && seconds <= 0
    {
        errors.invalid(&at.field("leaseDurationSeconds"), seconds, "must be greater than 0");
    }
    if let Some(count) = spec.number_if_set("leaseTransitions") {
        errors.not_negative(&at.field("leaseTransitions"), count);
    }
    let strategy = spec.text_if_set("strategy");
    if let Some(strategy) = strategy {
        election_strategy(strategy, errors);
    }
    if !spec.text("preferredHolder").is_empty() && strategy.unwrap_or_default().is_empty() {
        errors.forbidden(&at.field("preferredHolder"), "may only be specified if `strategy` is defined");
    }
}

/// kube-apiserver repeats the last segment of the path.
fn election_strategy(strategy: &str, errors: &mut FieldErrors) {
    let at = At::new("spec.strategy.strategy");
    if strategy.contains('/') {
        errors.invalid_each(&at, strategy, names::is_qualified_name(strategy));
    } else if strategy != OLDEST_EMULATION_VERSION {
        errors.not_supported(&at, strategy, &[OLDEST_EMULATION_VERSION]);
    }
}

fn candidate_spec(candidate: &Value, errors: &mut FieldErrors) {
    let spec = candidate.part("spec");
    let at = At::new("spec");
    if spec.text("leaseName").is_empty() {
        errors.required(&at.field("leaseName"), "");
    }
    // A version that is missing or invalid is compared as 0.0.0.
    let (emulated, binary) = (spec.text("emulationVersion"), spec.text("binaryVersion"));
    let mut parsed = |field: &str, text: &str| {
        let version = Semver::parse(text);
        if version.is_err() && !text.is_empty() {
            errors.invalid(&at.field(field), text, "must be a valid semantic version");
        }
        version.ok()
    };
    let emulated_version = parsed("emulationVersion", emulated);
    let binary_version = parsed("binaryVersion", binary);
    if binary.is_empty() {
        errors.required(&at.field("binaryVersion"), "");
    } else if !emulated.is_empty() && compare(binary_version.as_ref(), emulated_version.as_ref()).is_lt() {
        let detail = "must be greater than or equal to `emulationVersion`";
        errors.invalid(&at.field("binaryVersion"), binary, detail);
    }
    let strategy = spec.text("strategy");
    if strategy.is_empty() {
        errors.required(&at.field("strategy"), "");
        return;
    }
    if strategy == OLDEST_EMULATION_VERSION && compare(emulated_version.as_ref(), None).is_eq() {
        let detail = "must be specified when `strategy` is 'OldestEmulationVersion'";
        errors.required(&at.field("emulationVersion"), detail);
    }
    election_strategy(strategy, errors);
}

/// Compares versions, of which an absent one is 0.0.0.
fn compare(a: Option<&Semver>, b: Option<&Semver>) -> Ordering {
    let zero = Semver::default();
    a.unwrap_or(&zero).compare(b.unwrap_or(&zero))
}
