//! Validation of NetworkPolicy: its rules, peers, ports and IP blocks.

use std::collections::HashSet;

use api::validation::fields::{At, Read, Report, same, supersede};
use api::validation::meta;
use api::{FieldErrors, names};
use value::Value;

use super::addresses::{legacy_cidr, network};
use super::ports::port_number;
use super::{ValidationContext, ValidationRules, no_rules, optional_value};

pub(crate) const NETWORK_POLICY: ValidationRules =
    ValidationRules { create, update, update_status: no_rules };

const SPEC: At<'static> = At::new("spec");

fn create(policy: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::create(policy, true, names::name_is_dns_subdomain);
    policy_spec(policy, false, &HashSet::new(), &mut errors);
    supersede(errors, declared_blocks(policy, None))
}

fn update(new: &Value, old: &Value, _: &ValidationContext) -> FieldErrors {
    let mut wrong = FieldErrors::new();
    meta::label_selector(old.part("spec").part("podSelector"), false, &At::ROOT, &mut wrong);
    let mut cidrs: HashSet<&str> = HashSet::new();
    for (direction, peers) in DIRECTIONS {
        for rule in old.part("spec").items(direction) {
            for block in rule.items(peers).iter().filter_map(|peer| peer.part("ipBlock")) {
                cidrs.insert(block.text("cidr"));
                cidrs.extend(block.texts("except"));
            }
        }
    }
    let mut errors = meta::update(new, old);
    policy_spec(new, !wrong.is_empty(), &cidrs, &mut errors);
    supersede(errors, declared_blocks(new, Some(old)))
}

const DIRECTIONS: [(&str, &str); 2] = [("ingress", "from"), ("egress", "to")];

fn policy_spec(policy: &Value, lenient: bool, old_cidrs: &HashSet<&str>, errors: &mut FieldErrors) {
    let spec = policy.part("spec");
    meta::label_selector(spec.part("podSelector"), lenient, &SPEC.field("podSelector"), errors);
    for (direction, peers) in DIRECTIONS {
        let list = SPEC.field(direction);
        for (i, rule) in spec.items(direction).iter().enumerate() {
            let at = list.index(i);
            let ports = at.field("ports");
            for (j, port) in rule.items("ports").iter().enumerate() {
                policy_port(port, &ports.index(j), errors);
            }
            let list = at.field(peers);
            for (j, peer) in rule.items(peers).iter().enumerate() {
                policy_peer(peer, lenient, old_cidrs, &list.index(j), errors);
            }
        }
    }
    let at = SPEC.field("policyTypes");
    let types = spec.items("policyTypes");
    if types.len() > 2 {
        errors.invalid(&at, Value::List(types.to_vec()), "may not specify more than two policyTypes");
        return;
    }
    for (i, kind) in spec.texts("policyTypes").enumerate() {
        if !matches!(kind, "Ingress" | "Egress") {
            errors.not_supported(&at.index(i), kind, &["Ingress", "Egress"]);
        }
    }
}

fn policy_port(port: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let protocols = ["TCP", "UDP", "SCTP"];
    optional_value(port, "protocol", &protocols, at, errors);
    let (port_at, end_at) = (at.field("port"), at.field("endPort"));
    let end = port.number_if_set("endPort");
    match port.part("port") {
        Some(Value::String(name)) => {
            if let Some(end) = end {
                errors.invalid(&end_at, end, "may not be specified when `port` is non-numeric");
            }
            errors.invalid_each(&port_at, name, names::is_valid_port_name(name));
        }
        Some(number) => {
            let number = number.as_int().unwrap_or_default();
            port_number(number, &port_at, errors);
            if let Some(end) = end {
                if end < number {
                    errors.invalid(&end_at, end, "must be greater than or equal to `port`");
                }
                port_number(end, &end_at, errors);
            }
        }
        None => {
            if let Some(end) = end {
                errors.invalid(&end_at, end, "may not be specified when `port` is not specified");
            }
        }
    }
}

fn policy_peer(
    peer: &Value,
    lenient: bool,
    old_cidrs: &HashSet<&str>,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    let mut count = 0;
    for field in ["podSelector", "namespaceSelector"] {
        if let Some(selector) = peer.part(field) {
            count += 1;
            meta::label_selector(Some(selector), lenient, &at.field(field), errors);
        }
    }
    let block = peer.part("ipBlock");
    if let Some(block) = block {
        count += 1;
        ip_block(block, old_cidrs, &at.field("ipBlock"), errors);
    }
    if count == 0 {
        errors.required(at, "must specify a peer");
    } else if count > 1 && block.is_some() {
        errors.forbidden(at, "may not specify both ipBlock and another peer");
    }
}

fn ip_block(block: &Value, old_cidrs: &HashSet<&str>, at: &At<'_>, errors: &mut FieldErrors) {
    let cidr = block.text("cidr");
    if cidr.is_empty() {
        errors.required(&at.field("cidr"), "");
        return;
    }
    legacy_cidr(cidr, old_cidrs, &at.field("cidr"), errors);
    let Some(block_network) = network(cidr) else { return };
    let list = at.field("except");
    for (i, except) in block.texts("except").enumerate() {
        legacy_cidr(except, old_cidrs, &list.index(i), errors);
        let Some(inner) = network(except) else { continue };
        if !(block_network.contains(&inner.network()) && block_network.prefix_len() < inner.prefix_len()) {
            errors.invalid(&list.index(i), except, "must be a strict subset of `cidr`");
        }
    }
}

fn declared_blocks(new: &Value, old: Option<&Value>) -> FieldErrors {
    let mut declared = FieldErrors::new();
    if old.is_some_and(|old| same(old.part("spec"), new.part("spec"))) {
        return declared;
    }
    for (direction, peers) in DIRECTIONS {
        let list = SPEC.field(direction);
        for (i, rule) in new.part("spec").items(direction).iter().enumerate() {
            let at = list.index(i);
            let list = at.field(peers);
            for (j, peer) in rule.items(peers).iter().enumerate() {
                if peer.part("ipBlock").is_some_and(|block| block.text("cidr").is_empty()) {
                    declared.required(&list.index(j).field("ipBlock.cidr"), "");
                }
            }
        }
    }
    declared
}
