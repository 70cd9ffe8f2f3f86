//! The libraries of Kubernetes' base environment, and the versions that have them.

use super::{Builder, Version};
use crate::check::Validator;
use crate::lib;

/// Adds the libraries that `version` has.
pub(super) fn add(builder: &mut Builder, version: Version) {
    for gate in &KUBERNETES {
        if gate.introduced <= version && gate.removed.is_none_or(|removed| version < removed) {
            (gate.add)(builder);
        }
    }
}

/// A library, with the versions that have it.
struct LibraryGate {
    introduced: Version,
    removed: Option<Version>,
    add: fn(&mut Builder),
}

const fn gate(introduced: u32, removed: Option<u32>, add: fn(&mut Builder)) -> LibraryGate {
    let removed = match removed {
        Some(minor) => Some(Version::v1(minor)),
        None => None,
    };
    LibraryGate { introduced: Version::v1(introduced), removed, add }
}

/// The libraries of Kubernetes' base environment, in the order in which they are added.
const KUBERNETES: [LibraryGate; 20] = [
    gate(0, None, |b| b.validator(Validator::Homogeneous)),
    gate(0, None, lib::url::add),
    gate(0, None, lib::regex::add),
    gate(0, Some(37), lib::lists_kubernetes::add),
    gate(27, None, lib::authz::add),
    gate(28, None, |b| b.cross_type_comparisons = true),
    gate(28, None, lib::optional::add),
    gate(28, None, lib::quantity::add),
    gate(29, None, |b| {
        b.validator(Validator::Durations);
        b.validator(Validator::Timestamps);
        b.validator(Validator::Patterns);
    }),
    gate(0, Some(29), lib::strings::add_first_version),
    gate(29, None, lib::strings::add),
    gate(29, None, lib::sets::add),
    gate(30, None, lib::ip::add),
    gate(30, None, lib::cidr::add),
    gate(31, None, lib::named_format::add),
    gate(31, None, lib::authz::add_selectors),
    gate(32, None, lib::comprehensions::add),
    gate(33, None, lib::semver::add),
    gate(34, None, lib::lists::add),
    gate(37, None, |b| {
        lib::lists_kubernetes::add(b);
        lib::lists_kubernetes::add_includes(b);
    }),
];
