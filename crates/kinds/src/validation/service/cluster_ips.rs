//! Validation of a service's cluster IPs, IP families and their policy.

use std::collections::HashSet;
use std::net::IpAddr;

use api::validation::fields::{At, Read, Report};
use api::validation::repeated::Repeated;
use api::{FieldErrors, names};
use value::Value;

use super::{is_headless, kind_of};
use crate::validation::addresses::legacy_ip;

pub(super) const CLUSTER_IPS: At<'static> = At::new("spec.clusterIPs");
pub(super) const IP_FAMILIES: At<'static> = At::new("spec.ipFamilies");
pub(super) const IP_FAMILY_POLICY: At<'static> = At::new("spec.ipFamilyPolicy");
const POLICIES: [&str; 3] = ["PreferDualStack", "RequireDualStack", "SingleStack"];

/// Validates cluster IPs, IP families and their policy. Also runs before addresses are allocated.
pub(crate) fn cluster_ip_errors(service: &Value, old: Option<&Value>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    if kind_of(service) == "ExternalName" {
        return errors;
    }
    let spec = service.part("spec");
    let ips: Vec<&str> = spec.texts("clusterIPs").collect();
    let shown = || Value::list(ips.iter().copied());
    let first = spec.text("clusterIP");
    if first.is_empty() {
        if !ips.is_empty() {
            errors.invalid(&CLUSTER_IPS, shown(), "must be empty when `clusterIP` is not specified");
        }
    } else if ips.is_empty() {
        errors.required(&CLUSTER_IPS, "");
    } else if ips.first() != Some(&first) {
        errors.invalid(&CLUSTER_IPS, shown(), "first value must match `clusterIP`");
    }
    let families: Vec<&str> = spec.texts("ipFamilies").collect();
    let repeated = Repeated::earlier(&families);
    for (i, family) in families.iter().enumerate() {
        let at = IP_FAMILIES.index(i);
        if !matches!(*family, "IPv4" | "IPv6") {
            errors.not_supported(&at, *family, &["IPv4", "IPv6"]);
        }
        if repeated.at(i) {
            errors.duplicate(&at, *family);
        }
    }
    if let Some(policy) = spec.text_if_set("ipFamilyPolicy")
        && !POLICIES.contains(&policy)
    {
        errors.not_supported(&IP_FAMILY_POLICY, policy, &POLICIES);
    }
    let before: HashSet<&str> =
        old.map(|old| old.part("spec").texts("clusterIPs").collect()).unwrap_or_default();
    let mut malformed = false;
    for (i, ip) in ips.iter().enumerate() {
        if i == 0 && *ip == "None" {
            if ips.len() > 1 {
                malformed = true;
                errors.invalid(&CLUSTER_IPS, shown(), "'None' must be the first and only value");
            }
            continue;
        }
        let count = errors.len();
        legacy_ip(ip, &before, &CLUSTER_IPS.index(i), &mut errors);
        malformed |= errors.len() != count;
    }
    if ips.len() > 2 {
        errors.invalid(&CLUSTER_IPS, shown(), "may only hold up to 2 values");
    }
    if malformed {
        return errors;
    }
    let is_v6 =
        |ip: &str| names::parse_ip_sloppy(ip).is_some_and(|ip| matches!(ip.to_canonical(), IpAddr::V6(_)));
    if ips.len() > 1 {
        let sixes = ips.iter().filter(|ip| is_v6(ip)).count();
        if sixes == 0 || sixes == ips.len() {
            errors.invalid(&CLUSTER_IPS, shown(), "may specify no more than one IP for each IP family");
        }
    }
    if !is_headless(service) {
        for (i, (ip, family)) in ips.iter().zip(&families).enumerate() {
            let wrong = match *family {
                "IPv4" => is_v6(ip),
                "IPv6" => !is_v6(ip),
                _ => false,
            };
            if wrong {
                let detail = format!("expected an {family} value as indicated by `ipFamilies[{i}]`");
                errors.invalid(&CLUSTER_IPS.index(i), *ip, detail);
            }
        }
    }
    errors
}

pub(super) fn cluster_ips_stay(new: &Value, old: &Value, errors: &mut FieldErrors) {
    if kind_of(new) == "ExternalName"
        || kind_of(old) == "ExternalName"
        || (is_headless(new) && is_headless(old))
    {
        return;
    }
    let (now, before) = (new.list_at(&["spec", "clusterIPs"]), old.list_at(&["spec", "clusterIPs"]));
    let words = "may not change once set";
    let first_changed = !now.is_empty() && !before.is_empty() && now.first() != before.first();
    if now.len() == before.len() {
        for (i, (now_ip, ip)) in now.iter().zip(before).enumerate() {
            if now_ip != ip {
                errors.invalid(&CLUSTER_IPS.index(i), Value::List(now.to_vec()), words);
            }
        }
    } else if before.len() > now.len() {
        if now.is_empty() {
            errors.invalid(&CLUSTER_IPS.index(0), shown_list(now), "primary clusterIP can not be unset");
        }
        if first_changed {
            errors.invalid(&CLUSTER_IPS.index(0), Value::List(now.to_vec()), words);
        }
        if now.len() == 1 {
            single_stack_to_release(new, "clusterIP", errors);
        }
    } else if first_changed {
        errors.invalid(&CLUSTER_IPS.index(0), Value::List(now.to_vec()), words);
    }
}

/// kube-apiserver prints an absent list as `null`.
fn shown_list(list: &[Value]) -> Value {
    if list.is_empty() { Value::Null } else { Value::List(list.to_vec()) }
}

fn single_stack_to_release(service: &Value, what: &str, errors: &mut FieldErrors) {
    let policy = service.part("spec").text_if_set("ipFamilyPolicy");
    if policy != Some("SingleStack") {
        let detail = format!("must be set to 'SingleStack' when releasing the secondary {what}");
        errors.invalid(&IP_FAMILY_POLICY, policy.map_or(Value::Null, Value::from), detail);
    }
}

pub(super) fn families_stay(new: &Value, old: &Value, errors: &mut FieldErrors) {
    if kind_of(new) == "ExternalName"
        || kind_of(old) == "ExternalName"
        || is_headless(new)
        || is_headless(old)
    {
        return;
    }
    let (now, before) = (new.list_at(&["spec", "ipFamilies"]), old.list_at(&["spec", "ipFamilies"]));
    let ips = new.list_at(&["spec", "clusterIPs"]);
    let at = IP_FAMILIES.index(0);
    let words = "may not change once set";
    let first_changed = !now.is_empty() && !before.is_empty() && now.first() != before.first();
    if now.len() == before.len() {
        for (now_family, family) in now.iter().zip(before) {
            if now_family != family {
                errors.invalid(&at, Value::List(now.to_vec()), words);
            }
        }
    } else if before.len() > now.len() {
        if ips.is_empty() {
            errors.invalid(&at, shown_list(now), "primary ipFamily can not be unset");
        }
        if first_changed {
            errors.invalid(&at, shown_list(ips), words);
        }
        if now.len() == 1 {
            single_stack_to_release(new, "ipFamily", errors);
        }
    } else if first_changed {
        errors.invalid(&at, shown_list(ips), words);
    }
}
