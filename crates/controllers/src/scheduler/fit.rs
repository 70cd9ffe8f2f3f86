//! Filters the nodes that a pod fits on, by node properties and the pods on them, and sorts them by preference.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use api::meta;
use api::pod_resources::{self, Amounts};
use api::quantity::Quantity;
use api::selector::LabelSelector;
use dra::{CandidateNode, NodeSelector};
use value::{Budget, BudgetEnded, Meter, Str, Value};

/// Nodes and the resources that their pods use.
#[derive(Clone, Default)]
pub(crate) struct SchedulerSnapshot {
    pub(crate) nodes: BTreeMap<Str, Arc<Value>>,
    pods: HashMap<(Str, Str), Arc<PodOnNode>>,
    by_node: HashMap<Str, BTreeSet<(Str, Str)>>,
    /// Pods with required anti-affinity terms.
    with_anti_affinity: BTreeSet<(Str, Str)>,
}

/// The scheduling-relevant parts of a pod on a node.
struct PodOnNode {
    node: Str,
    requests: Amounts,
    ports: BTreeSet<PodHostPort>,
    anti_affinity: Vec<Value>,
}

/// A host port: address, protocol, number.
type PodHostPort = (Str, Str, i64);

/// A reason that rejects a node; displayed with kube-scheduler's wording.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NodeRejection {
    Insufficient(Str),
    TooManyPods,
    Unschedulable,
    Taint,
    Affinity,
    AntiAffinity,
    Ports,
    NoDevices,
    OutOfReach,
    Devices(String),
}

impl fmt::Display for NodeRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeRejection::Insufficient(resource) => write!(f, "Insufficient {resource}"),
            NodeRejection::TooManyPods => f.write_str("Too many pods"),
            NodeRejection::Unschedulable => f.write_str("node(s) were unschedulable"),
            NodeRejection::Taint => f.write_str("node(s) had untolerated taint(s)"),
            NodeRejection::Affinity => f.write_str("node(s) didn't match Pod's node affinity/selector"),
            NodeRejection::AntiAffinity => {
                f.write_str("node(s) didn't satisfy existing pods anti-affinity rules")
            }
            NodeRejection::Ports => f.write_str("node(s) didn't have free ports for the requested pod ports"),
            NodeRejection::NoDevices => f.write_str("cannot allocate all claims"),
            NodeRejection::OutOfReach => f.write_str("resourceclaim not available on the node"),
            NodeRejection::Devices(error) => f.write_str(error),
        }
    }
}

/// Number of nodes that were rejected for each reason.
pub(crate) type Reasons = BTreeMap<NodeRejection, usize>;

/// Formats the reasons like kube-scheduler's `FitError`.
pub(crate) fn unschedulable_message(nodes: usize, reasons: &Reasons) -> String {
    if nodes == 0 {
        return "no nodes available to schedule pods".to_owned();
    }
    let mut all: Vec<String> = reasons.iter().map(|(why, count)| format!("{count} {why}")).collect();
    all.sort();
    format!("0/{nodes} nodes are available: {}.", all.join(", "))
}

impl SchedulerSnapshot {
    pub(crate) fn forget_pods(&mut self) {
        self.pods.clear();
        self.by_node.clear();
        self.with_anti_affinity.clear();
    }

    pub(crate) fn forget_pod(&mut self, at: &(Str, Str)) {
        if let Some(placed) = self.pods.remove(at)
            && let Some(pods) = self.by_node.get_mut(&placed.node)
        {
            pods.remove(at);
            self.with_anti_affinity.remove(at);
            if pods.is_empty() {
                self.by_node.remove(&placed.node);
            }
        }
    }

    pub(crate) fn remember_pod(&mut self, at: (Str, Str), pod: &Value) {
        let node = Str::from(pod.str_at(&["spec", "nodeName"]).unwrap_or_default());
        if node.is_empty() {
            return;
        }
        let anti = ["spec", "affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution"];
        let anti_affinity = pod.list_at(&anti).to_vec();
        if !anti_affinity.is_empty() {
            self.with_anti_affinity.insert(at.clone());
        }
        self.by_node.entry(node.clone()).or_default().insert(at.clone());
        let placed = PodOnNode { node, requests: requests(pod), ports: ports(pod), anti_affinity };
        self.pods.insert(at, Arc::new(placed));
    }

    /// Topology domains (node label and value) that the anti-affinity of existing pods forbids for a pod.
    fn forbidden_domains(&self, pod: &Value, meter: &Meter<'_>) -> BTreeSet<(Str, Str)> {
        let mut domains = BTreeSet::new();
        for at in &self.with_anti_affinity {
            let Some(placed) = self.pods.get(at) else { continue };
            let Some(node) = self.nodes.get(&placed.node) else { continue };
            if !meter.step(placed.anti_affinity.len()) {
                break;
            }
            for term in placed.anti_affinity.iter().filter(|term| may_be_about(term, &at.0, pod)) {
                let label = term.str_at(&["topologyKey"]).unwrap_or_default();
                if let Some(value) = node.str_at(&["metadata", "labels", label]) {
                    domains.insert((label.into(), value.into()));
                }
            }
        }
        domains
    }

    /// The nodes that a pod fits on, least utilized first, and the reasons against the others. Takes a step for each host port, forbidden
    /// domain and anti-affinity term that the pod is compared with.
    pub(crate) fn fitting(&self, pod: &Value, attempt: &Budget) -> Result<(Vec<Str>, Reasons), BudgetEnded> {
        let meter = Meter::new(attempt);
        let pod_requests = requests(pod);
        let pod_ports = HostPorts::of(pod);
        let selector = NodeConstraints::of(pod);
        let tolerations = pod.list_at(&["spec", "tolerations"]);
        let forbidden = self.forbidden_domains(pod, &meter);
        let mut reasons = Reasons::new();
        let mut fitting: Vec<(f64, &Str)> = Vec::new();
        for (name, node) in &self.nodes {
            if !meter.step(forbidden.len() + 1) {
                break;
            }
            let mut why = Vec::new();
            if let Err(reason) = accepts(node, tolerations) {
                why.push(reason);
            } else if !selector.matches(node) {
                why.push(NodeRejection::Affinity);
            } else if forbidden
                .iter()
                .any(|(label, value)| node.str_at(&["metadata", "labels", label]) == Some(value.as_str()))
            {
                why.push(NodeRejection::AntiAffinity);
            } else if !pod_ports.is_empty()
                && self.ports_on(name).any(|used| !meter.step(1) || pod_ports.collide_with(used))
            {
                why.push(NodeRejection::Ports);
            } else {
                why = self.insufficient_resources(name, node, &pod_requests);
            }
            if why.is_empty() {
                fitting.push((self.utilization(name, node, &pod_requests), name));
            }
            for reason in why {
                *reasons.entry(reason).or_insert(0) += 1;
            }
        }
        meter.finish()?;
        fitting.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(b.1)));
        Ok((fitting.into_iter().map(|(_, name)| name.clone()).collect(), reasons))
    }

    fn on(&self, node: &Str) -> impl Iterator<Item = &PodOnNode> {
        self.by_node
            .get(node)
            .into_iter()
            .flatten()
            .filter_map(|at| self.pods.get(at).map(|placed| &**placed))
    }

    fn ports_on<'a>(&'a self, node: &Str) -> impl Iterator<Item = &'a PodHostPort> + use<'a> {
        self.by_node
            .get(node)
            .into_iter()
            .flatten()
            .filter_map(|at| self.pods.get(at))
            .flat_map(|placed| &placed.ports)
    }

    fn used(&self, node: &Str) -> Amounts {
        let mut used = Amounts::new();
        for placed in self.on(node) {
            pod_resources::add(&mut used, &placed.requests);
        }
        used
    }

    /// Resources of which a node has too little for the pod.
    fn insufficient_resources(&self, name: &Str, node: &Value, pod_requests: &Amounts) -> Vec<NodeRejection> {
        let has = pod_resources::amounts(node.at(&["status", "allocatable"]));
        let used = self.used(name);
        let nothing = Quantity::ZERO;
        let mut why = Vec::new();
        let pods = self.by_node.get(name).map_or(0, BTreeSet::len);
        let room = has.get("pods").map_or(0, Quantity::value);
        if i64::try_from(pods).is_ok_and(|pods| pods >= room) {
            why.push(NodeRejection::TooManyPods);
        }
        for (resource, requested) in pod_requests {
            if requested.is_zero() {
                continue;
            }
            let used = used.get(resource).unwrap_or(&nothing);
            if used.add(requested) > *has.get(resource).unwrap_or(&nothing) {
                why.push(NodeRejection::Insufficient(resource.clone()));
            }
        }
        why
    }

    /// Utilization of a node with the pod on it: the larger fraction of CPU and memory.
    fn utilization(&self, name: &Str, node: &Value, pod_requests: &Amounts) -> f64 {
        let has = pod_resources::amounts(node.at(&["status", "allocatable"]));
        let mut used = self.used(name);
        pod_resources::add(&mut used, pod_requests);
        let part = |resource: &str| match (used.get(resource), has.get(resource)) {
            (Some(used), Some(has)) if !has.is_zero() => used.as_approximate_f64() / has.as_approximate_f64(),
            _ => 0.0,
        };
        part("cpu").max(part("memory"))
    }
}

/// Approximate bytes of a pod that are compared with every node.
pub(crate) fn terms_size(pod: &Value) -> usize {
    let parts = ["tolerations", "nodeSelector", "affinity"].map(|field| pod.at(&["spec", field]));
    parts.into_iter().flatten().map(|part| part.size_up_to(usize::MAX)).sum()
}

/// Resource requests of a pod, including pod-level resources and overhead.
fn requests(pod: &Value) -> Amounts {
    let mut total = pod_resources::of_containers(pod, "requests");
    pod_resources::of_pod_itself(pod, "requests", &mut total, pod_resources::is_pod_level);
    pod_resources::add(&mut total, &pod_resources::amounts(pod.at(&["spec", "overhead"])));
    total
}

fn ports(pod: &Value) -> BTreeSet<PodHostPort> {
    let sidecars =
        pod.list_at(&["spec", "initContainers"]).iter().filter(|one| pod_resources::is_sidecar(one));
    let containers = pod.list_at(&["spec", "containers"]).iter().chain(sidecars);
    let text = |port: &Value, field: &str, or: &str| {
        Str::from(port.str_at(&[field]).filter(|t| !t.is_empty()).unwrap_or(or))
    };
    containers
        .flat_map(|container| container.list_at(&["ports"]))
        .filter_map(|port| {
            let number = port.int_at(&["hostPort"]).filter(|number| *number > 0)?;
            Some((text(port, "hostIP", "0.0.0.0"), text(port, "protocol", "TCP"), number))
        })
        .collect()
}

/// The host ports of a pod, so that a port of another pod is found without searching them all.
struct HostPorts(HashMap<(Str, i64), HostAddresses>);

/// The addresses at which a pod uses one port of a protocol.
#[derive(Default)]
struct HostAddresses {
    has_wildcard: bool,
    addresses: HashSet<Str>,
}

impl HostPorts {
    fn of(pod: &Value) -> Self {
        let mut used: HashMap<(Str, i64), HostAddresses> = HashMap::new();
        for (address, protocol, number) in ports(pod) {
            let entry = used.entry((protocol, number)).or_default();
            entry.has_wildcard |= is_wildcard(&address);
            entry.addresses.insert(address);
        }
        HostPorts(used)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Two equal ports of a protocol collide if their addresses are equal or one is a wildcard.
    fn collide_with(&self, (address, protocol, number): &PodHostPort) -> bool {
        self.0
            .get(&(protocol.clone(), *number))
            .is_some_and(|own| own.has_wildcard || is_wildcard(address) || own.addresses.contains(address))
    }
}

fn is_wildcard(address: &str) -> bool {
    address == "0.0.0.0" || address == "::"
}

/// Checks a node's taints and its `unschedulable` field against tolerations.
fn accepts(node: &Value, tolerations: &[Value]) -> Result<(), NodeRejection> {
    let tolerated = |taint: &Value| tolerations.iter().any(|toleration| tolerates(toleration, taint));
    if node.at(&["spec", "unschedulable"]) == Some(&Value::Bool(true)) {
        let taint = Value::map([("key", "node.kubernetes.io/unschedulable"), ("effect", "NoSchedule")]);
        if !tolerated(&taint) {
            return Err(NodeRejection::Unschedulable);
        }
    }
    let repels = |taint: &&Value| taint.str_at(&["effect"]) != Some("PreferNoSchedule");
    if node.list_at(&["spec", "taints"]).iter().filter(repels).any(|taint| !tolerated(taint)) {
        return Err(NodeRejection::Taint);
    }
    Ok(())
}

/// Reports whether a toleration matches a taint. An unknown operator matches no taint.
fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let text = |of: &'_ Value, field: &str| of.str_at(&[field]).unwrap_or_default().to_owned();
    let (key, effect) = (text(toleration, "key"), text(toleration, "effect"));
    let covers = |given: &str, field: &str| given.is_empty() || given == text(taint, field);
    let matches = match text(toleration, "operator").as_str() {
        "Exists" => true,
        "" | "Equal" => text(toleration, "value") == text(taint, "value"),
        _ => false,
    };
    matches && covers(&effect, "effect") && covers(&key, "key")
}

/// The node selector and required node affinity of a pod.
struct NodeConstraints<'a> {
    labels: Option<&'a value::Map>,
    /// `None` if there is no required affinity; an unreadable one matches no node.
    affinity: Option<Result<NodeSelector, dra::NodeSelectorError>>,
}

impl<'a> NodeConstraints<'a> {
    fn of(pod: &'a Value) -> Self {
        let required = ["spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"];
        NodeConstraints {
            labels: pod.at(&["spec", "nodeSelector"]).and_then(Value::as_map),
            affinity: pod.at(&required).filter(|required| !required.is_null()).map(NodeSelector::read),
        }
    }

    fn matches(&self, node: &Value) -> bool {
        let labeled = self.labels.is_none_or(|labels| {
            labels.iter().all(|(key, value)| node.str_at(&["metadata", "labels", key]) == value.as_str())
        });
        labeled
            && match &self.affinity {
                None => true,
                Some(Ok(selector)) => selector.matches(&CandidateNode::of(node)),
                Some(Err(_)) => false,
            }
    }
}

/// Reports whether an anti-affinity term of a pod in `namespace` may select this pod. Returns true when that is undecidable here.
fn may_be_about(term: &Value, namespace: &str, pod: &Value) -> bool {
    let selects_namespaces =
        !term.list_at(&["namespaces"]).is_empty() || term.at(&["namespaceSelector"]).is_some();
    if !selects_namespaces && meta::namespace(pod) != namespace {
        return false;
    }
    let selector = LabelSelector::from_label_selector(term.at(&["labelSelector"]));
    selector.map_or(true, |selector| selector.matches_object(pod))
}
