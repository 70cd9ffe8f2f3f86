//! Rules that every state in etcd has to satisfy.

use std::collections::BTreeMap;

use serde_json::Value;

use super::writes::at_revision;
use super::{Context, Rule, RuleViolation};
use crate::history::EtcdChange;
use crate::keys::{CONFIG_MAPS, SERVICES};

pub(super) fn check(context: &Context<'_>, violations: &mut Vec<RuleViolation>) {
    let changes = &context.history.changes;
    check_services(changes, violations);
    check_quotas(context, violations);
    check_policy(context, violations);
    check_leases(context, violations);
}

/// Replays the Services; each address and port has one holder at a time.
fn check_services(changes: &[EtcdChange], violations: &mut Vec<RuleViolation>) {
    let mut holdings: BTreeMap<&str, (Vec<String>, Vec<u64>)> = BTreeMap::new();
    for change in changes.iter().filter(|change| change.key.starts_with(SERVICES)) {
        let Some(service) = &change.object else {
            holdings.remove(change.key.as_str());
            continue;
        };
        let (ips, ports) = (cluster_ips(service), node_ports(service));
        for (other, (other_ips, other_ports)) in &holdings {
            if *other == change.key {
                continue;
            }
            if let Some(ip) = ips.iter().find(|ip| other_ips.contains(ip)) {
                let message = format!("{} and {other} have the cluster IP {ip}", change.key);
                violations.push(at_revision(Rule::UniqueClusterIp, message, change.revision));
            }
            if let Some(port) = ports.iter().find(|port| other_ports.contains(port)) {
                let message = format!("{} and {other} have the node port {port}", change.key);
                violations.push(at_revision(Rule::UniqueNodePort, message, change.revision));
            }
        }
        holdings.insert(&change.key, (ips, ports));
    }
}

fn cluster_ips(service: &Value) -> Vec<String> {
    let ips = service.pointer("/spec/clusterIPs").and_then(Value::as_array).into_iter().flatten();
    ips.filter_map(Value::as_str).filter(|ip| *ip != "None" && !ip.is_empty()).map(str::to_owned).collect()
}

fn node_ports(service: &Value) -> Vec<u64> {
    let ports = service.pointer("/spec/ports").and_then(Value::as_array).into_iter().flatten();
    let node_ports = ports.filter_map(|port| port.get("nodePort")?.as_u64());
    let health = service.pointer("/spec/healthCheckNodePort").and_then(Value::as_u64);
    node_ports.chain(health).filter(|port| *port != 0).collect()
}

fn check_quotas(context: &Context<'_>, violations: &mut Vec<RuleViolation>) {
    for quota in &context.history.limits.quotas {
        let mut live = 0_usize;
        let changes = context.history.changes.iter().filter(|change| change.key.starts_with(&quota.prefix));
        for change in changes {
            let existed = context.timeline.state(&change.key, change.revision - 1).object.is_some();
            match (existed, &change.object) {
                (false, Some(_)) => live += 1,
                (true, None) => live = live.saturating_sub(1),
                _ => continue,
            }
            if live > quota.hard && change.object.is_some() && change.revision >= quota.since {
                let message = format!(
                    "{live} keys below {} with the creation of {}, but the quota is {}",
                    quota.prefix, change.key, quota.hard
                );
                violations.push(at_revision(Rule::Quota, message, change.revision));
            }
        }
    }
}

fn check_policy(context: &Context<'_>, violations: &mut Vec<RuleViolation>) {
    let Some(forbidden) = &context.history.limits.forbidden_data else { return };
    for change in context.history.changes.iter().filter(|change| change.key.starts_with(CONFIG_MAPS)) {
        let data = change.object.as_ref().and_then(|object| object.get("data"));
        if data.is_some_and(|data| data.get(forbidden).is_some()) {
            let message = format!("{} has `{forbidden}`, which the static policy denies", change.key);
            violations.push(at_revision(Rule::StaticPolicy, message, change.revision));
        }
    }
}

fn check_leases(context: &Context<'_>, violations: &mut Vec<RuleViolation>) {
    let limits = &context.history.limits;
    for change in &context.history.changes {
        let must_expire = limits.leased_prefixes.iter().any(|prefix| change.key.starts_with(prefix));
        if must_expire && change.object.is_some() && change.lease == 0 {
            let message = format!("{} was written without a lease", change.key);
            violations.push(at_revision(Rule::Lease, message, change.revision));
        }
    }
    for expiration in &limits.expirations {
        let before = |change: &&&EtcdChange| change.at <= expiration.gone_by;
        let last = context.timeline.changes(&expiration.key).iter().rev().find(before);
        if let Some(change) = last.filter(|change| change.object.is_some()) {
            let message =
                format!("{} exists at {} µs, although its server ended", expiration.key, expiration.gone_by);
            violations.push(at_revision(Rule::Lease, message, change.revision));
        }
    }
}
