//! Validation of IPAddress and ServiceCIDR.

use api::field::FieldErrorKind;
use api::validation::fields::{At, IMMUTABLE, Read, Report, same, supersede};
use api::validation::meta;
use api::{FieldErrors, names};
use value::Value;

use super::addresses::network;
use super::{ValidationContext, ValidationRules, internal_json, no_rules, required_name};

pub(crate) const IP_ADDRESS: ValidationRules =
    ValidationRules { create: ip_address, update: ip_address_update, update_status: no_rules };
pub(crate) const SERVICE_CIDR: ValidationRules = ValidationRules {
    create: service_cidr,
    update: service_cidr_update,
    update_status: |new, old, _| meta::update(new, old),
};

const SPEC: At<'static> = At::new("spec");

const CIDRS: At<'static> = At::new("spec.cidrs");

/// The name of an IPAddress is the address.
fn ip_name(name: &str, _: bool) -> Vec<String> {
    names::is_valid_ip(name)
}

fn ip_address(address: &Value, _: &ValidationContext) -> FieldErrors {
    supersede(ip_address_rules(address), declared_parent(address, None))
}

fn ip_address_update(new: &Value, old: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = ip_address_rules(new);
    errors.extend(meta::update(new, old));
    supersede(errors, declared_parent(new, Some(old)))
}

fn ip_address_rules(address: &Value) -> FieldErrors {
    let mut errors = meta::create(address, false, ip_name);
    let at = SPEC.field("parentRef");
    let Some(parent) = address.part("spec").part("parentRef") else {
        errors.required(&at, "");
        return errors;
    };
    let group = parent.text("group");
    if !group.is_empty() {
        errors.invalid_each(&at.field("group"), group, names::is_dns1123_subdomain(group));
    }
    for field in ["resource", "name"] {
        required_name(parent, field, names::is_path_segment_name, &at, &mut errors);
    }
    let namespace = parent.text("namespace");
    if !namespace.is_empty() {
        errors.invalid_each(&at.field("namespace"), namespace, names::is_path_segment_name(namespace));
    }
    errors
}

fn declared_parent(new: &Value, old: Option<&Value>) -> FieldErrors {
    let mut declared = FieldErrors::new();
    let at = SPEC.field("parentRef");
    let parent = new.part("spec").part("parentRef");
    if let Some(old) = old {
        if !same(parent, old.part("spec").part("parentRef")) {
            if parent.is_none() {
                declared.required(&at, "");
            }
            declared.invalid(&at, Value::Null, IMMUTABLE);
        }
        return declared;
    }
    if parent.is_none() {
        declared.required(&at, "");
        return declared;
    }
    for field in ["resource", "name"] {
        if parent.text(field).is_empty() {
            declared.required(&at.field(field), "");
        }
    }
    declared
}

fn service_cidr(cidr: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::create(cidr, false, names::name_is_dns_subdomain);
    cidr_list(cidr, &mut errors);
    errors
}

fn cidr_list(object: &Value, errors: &mut FieldErrors) {
    let spec = object.part("spec");
    let cidrs: Vec<&str> = spec.texts("cidrs").collect();
    if cidrs.is_empty() {
        errors.required(&CIDRS, "at least one CIDR required");
        return;
    }
    if cidrs.len() > 2 {
        let shown = internal_json::compact("ServiceCIDRSpec", spec);
        let detail = format!("{shown}: may only hold up to 2 values");
        errors.report(FieldErrorKind::Invalid, &CIDRS, None, detail);
        return;
    }
    for (i, cidr) in cidrs.iter().enumerate() {
        errors.invalid_each(&CIDRS.index(i), cidr, names::is_valid_cidr(cidr));
    }
    if let [first, second] = cidrs.as_slice() {
        let family = |cidr: &str| network(cidr).map(|network| network.addr().is_ipv6());
        if family(first).is_some() && family(first) == family(second) {
            let detail =
                "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
            errors.invalid(&CIDRS, Value::list(cidrs.iter().copied()), detail);
        }
    }
}

fn service_cidr_update(new: &Value, old: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::update(new, old);
    let (now, before) = (new.list_at(&["spec", "cidrs"]), old.list_at(&["spec", "cidrs"]));
    if now.len() == before.len() {
        for (i, (now, before)) in now.iter().zip(before).enumerate() {
            if now != before {
                errors.invalid(&CIDRS.index(i), now.clone(), IMMUTABLE);
            }
        }
    } else if let ([old_first], [first, _]) = (before, now) {
        if old_first != first {
            errors.invalid(&CIDRS.index(0), first.clone(), IMMUTABLE);
        }
        cidr_list(new, &mut errors);
    } else {
        let shown = new.at(&["spec", "cidrs"]).cloned().unwrap_or_default();
        errors.invalid(&CIDRS, shown, IMMUTABLE);
    }
    errors
}
