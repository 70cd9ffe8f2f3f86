//! Decides for the repair loop which node ports are used, not allocated, used twice, or leaked.

use std::collections::{BTreeSet, HashMap, HashSet};

use api::validation::fields::Read as _;
use value::Value;

use super::Warning;
use crate::port_bitmap::{NodePortRange, PortBitmap};

/// Runs in which a port must be seen allocated but unused before it is freed. A port is allocated before its Service is written, and
/// released after it is deleted; both take much less time than there is between two runs.
const RUNS_BEFORE_FREE: u8 = 3;

/// Ports that were allocated but unused, with the number of runs that have seen it.
pub type LeakedPorts = HashMap<i64, u8>;

/// A port with a problem. The names are values of the metric label `type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortFinding {
    /// Used but not allocated (`repair`).
    NotAllocated,
    /// Used by two Services (`duplicate`).
    Duplicate,
    OutOfRange,
}

/// The outcome of one run.
#[derive(Debug)]
pub struct PortRepair<'a> {
    /// The ports that should be allocated.
    pub bitmap: PortBitmap,
    pub findings: Vec<(&'a Value, i64, PortFinding)>,
    /// For the next run, once `bitmap` is written.
    pub leaked: LeakedPorts,
    /// Ports that this run frees.
    pub freed: Vec<i64>,
}

impl PortFinding {
    /// The value of the metric label `type`.
    pub fn metric(self) -> &'static str {
        match self {
            PortFinding::NotAllocated => "repair",
            PortFinding::Duplicate => "duplicate",
            PortFinding::OutOfRange => "outOfRange",
        }
    }

    /// The warning about a Service with this port, in kube-apiserver's words.
    pub fn warning(self, port: i64, range: NodePortRange) -> Warning {
        let (reason, message) = match self {
            PortFinding::NotAllocated => {
                ("PortNotAllocated", format!("Port {port} is not allocated; repairing"))
            }
            PortFinding::Duplicate => (
                "PortAlreadyAllocated",
                format!("Port {port} was assigned to multiple services; please recreate service"),
            ),
            PortFinding::OutOfRange => (
                "PortOutOfRange",
                format!("Port {port} is not within the port range {range}; please recreate service"),
            ),
        };
        Warning { reason: reason.to_owned(), action: "PortAllocation", message }
    }
}

/// Compares the ports of all Services with the stored ones. `is_complete` is false if a Service cannot be decoded: its ports are unknown,
/// so no port counts as leaked.
pub fn examine<'a>(
    services: &'a [Value],
    is_complete: bool,
    stored: Option<&PortBitmap>,
    range: NodePortRange,
    leaked: &LeakedPorts,
) -> PortRepair<'a> {
    let mut bitmap = PortBitmap::empty(range);
    let mut findings = Vec::new();
    let mut unused: BTreeSet<i64> = stored.into_iter().flat_map(PortBitmap::allocated).collect();
    for service in services {
        for port in node_ports(service) {
            let finding = if !range.contains(port) {
                PortFinding::OutOfRange
            } else if !bitmap.set(port, true) {
                PortFinding::Duplicate
            } else if !unused.remove(&port) {
                PortFinding::NotAllocated
            } else {
                continue;
            };
            findings.push((service, port, finding));
        }
    }
    let mut repair = PortRepair { bitmap, findings, leaked: LeakedPorts::new(), freed: Vec::new() };
    for port in unused {
        let runs = leaked.get(&port).copied().unwrap_or(0).saturating_add(u8::from(is_complete));
        if runs >= RUNS_BEFORE_FREE {
            repair.freed.push(port);
        } else {
            repair.bitmap.set(port, true);
            repair.leaked.insert(port, runs);
        }
    }
    repair
}

/// The node ports of a Service. A port that it uses with several protocols is returned once.
pub fn node_ports(service: &Value) -> Vec<i64> {
    let spec = service.part("spec");
    let mut seen: HashSet<(i64, &str)> = HashSet::new();
    let mut known: HashSet<i64> = HashSet::new();
    let mut ports: Vec<i64> = Vec::new();
    let health_check = ("TCP", spec.number("healthCheckNodePort"));
    let listed = spec.items("ports").iter().map(|port| (port.text("protocol"), port.number("nodePort")));
    for (protocol, port) in listed.chain([health_check]).filter(|(_, port)| *port != 0) {
        let is_repeated = !seen.insert((port, protocol));
        if known.insert(port) || is_repeated {
            ports.push(port);
        }
    }
    ports
}

#[cfg(test)]
mod tests {
    use value::{Value, json};

    use super::{LeakedPorts, PortFinding, examine};
    use crate::port_bitmap::{NodePortRange, PortBitmap};

    fn range() -> NodePortRange {
        NodePortRange::new(30000, 30019).unwrap()
    }

    fn service(ports: &str) -> Value {
        json::parse(format!(r#"{{"spec":{{"ports":[{ports}]}}}}"#).as_bytes()).unwrap()
    }

    fn stored(ports: &[i64]) -> PortBitmap {
        let mut bitmap = PortBitmap::empty(range());
        for port in ports {
            bitmap.set(*port, true);
        }
        bitmap
    }

    #[test]
    fn ports_of_services_are_allocated_and_problems_are_reported() {
        let services = [
            service(r#"{"protocol":"TCP","nodePort":30001},{"protocol":"UDP","nodePort":30001}"#),
            service(r#"{"protocol":"TCP","nodePort":30002}"#),
            service(r#"{"protocol":"TCP","nodePort":30001},{"protocol":"TCP","nodePort":7}"#),
        ];
        let repair = examine(&services, true, Some(&stored(&[30001])), range(), &LeakedPorts::new());
        assert_eq!(repair.bitmap, stored(&[30001, 30002]));
        let found: Vec<_> = repair.findings.iter().map(|(_, port, finding)| (*port, *finding)).collect();
        assert_eq!(
            found,
            [
                (30002, PortFinding::NotAllocated),
                (30001, PortFinding::Duplicate),
                (7, PortFinding::OutOfRange)
            ]
        );
    }

    #[test]
    fn the_port_of_a_health_check_is_allocated() {
        let text = r#"{"spec":{"ports":[{"protocol":"UDP","nodePort":30003}],"healthCheckNodePort":30004}}"#;
        let services = [json::parse(text.as_bytes()).unwrap()];
        let repair = examine(&services, true, None, range(), &LeakedPorts::new());
        assert_eq!(repair.bitmap, stored(&[30003, 30004]));
    }

    #[test]
    fn an_unused_port_is_freed_in_the_third_run() {
        let before = stored(&[30005]);
        let mut leaked = LeakedPorts::new();
        for run in 1..=2 {
            let repair = examine(&[], true, Some(&before), range(), &leaked);
            assert_eq!(repair.bitmap, before, "run {run}");
            leaked = repair.leaked;
        }
        let used = [service(r#"{"protocol":"TCP","nodePort":30005}"#)];
        assert!(examine(&used, true, Some(&before), range(), &leaked).leaked.is_empty(), "used again");
        let repair = examine(&[], true, Some(&before), range(), &leaked);
        assert_eq!((repair.bitmap, repair.freed), (stored(&[]), vec![30005]));
    }

    #[test]
    fn no_port_is_freed_while_a_service_cannot_be_decoded() {
        let before = stored(&[30005]);
        let mut leaked = LeakedPorts::from([(30005, 2)]);
        for _ in 0..5 {
            let repair = examine(&[], false, Some(&before), range(), &leaked);
            assert_eq!(repair.bitmap, before);
            leaked = repair.leaked;
        }
    }

    #[test]
    fn ports_outside_of_a_changed_range_are_dropped() {
        let mut wide = PortBitmap::empty(NodePortRange::new(30000, 30100).unwrap());
        wide.set(30001, true);
        wide.set(30100, true);
        let repair = examine(&[], true, Some(&wide), range(), &LeakedPorts::new());
        assert_eq!(repair.bitmap, stored(&[30001]));
    }
}
