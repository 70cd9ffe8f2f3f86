//! The bootstrap objects: the mandatory ones, which cannot be changed, and the suggested ones, which operators may take over.

use authn::names;
use value::Value;

use crate::objects::{CATCH_ALL, EXEMPT};

/// Annotation that says whether the server resets an object's spec to its suggestion.
pub const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";

/// The two kinds of the API group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowControlKind {
    /// The kind `PriorityLevelConfiguration` of a level.
    PriorityLevel,
    FlowSchema,
}

impl FlowControlKind {
    /// Both kinds, levels first because schemas refer to them.
    pub const ALL: [FlowControlKind; 2] = [FlowControlKind::PriorityLevel, FlowControlKind::FlowSchema];

    pub fn plural(self) -> &'static str {
        match self {
            FlowControlKind::PriorityLevel => "prioritylevelconfigurations",
            FlowControlKind::FlowSchema => "flowschemas",
        }
    }

    fn name(self) -> &'static str {
        match self {
            FlowControlKind::PriorityLevel => "PriorityLevelConfiguration",
            FlowControlKind::FlowSchema => "FlowSchema",
        }
    }
}

/// An object that the server maintains.
#[derive(Clone, Debug)]
pub struct Maintained {
    pub kind: FlowControlKind,
    /// Mandatory objects are always reset, suggested ones only if their annotation allows it.
    pub is_mandatory: bool,
    /// The object with its wanted spec.
    pub object: Value,
}

/// The write that a maintained object needs.
#[derive(Clone, Debug, PartialEq)]
pub enum MaintenanceWrite {
    /// The object is up to date.
    Keep,
    /// The object does not exist.
    Create(Value),
    /// The object differs from its wanted state.
    Update(Value),
}

impl Maintained {
    pub fn name(&self) -> &str {
        api::meta::name(&self.object)
    }

    /// Compares with the stored object. The spec of a suggested object is left alone if its annotation is false; without a readable
    /// annotation, a spec that was never changed is updated, and the annotation is set to the decision.
    pub fn revise(&self, stored: Option<&Value>) -> MaintenanceWrite {
        let Some(stored) = stored else { return MaintenanceWrite::Create(self.object.clone()) };
        let annotated = auto_update(stored);
        let wanted = self.is_mandatory
            || annotated.unwrap_or_else(|| stored.int_at(&["metadata", "generation"]) == Some(1));
        let mut revised = stored.clone();
        if wanted && !self.is_equal_spec(stored) {
            revised.set_at(&["spec"], self.object.get("spec").cloned().unwrap_or_default());
        }
        if annotated != Some(wanted) {
            let word = if wanted { "true" } else { "false" };
            revised.set_at(&["metadata", "annotations", AUTO_UPDATE], word);
        }
        if revised == *stored { MaintenanceWrite::Keep } else { MaintenanceWrite::Update(revised) }
    }

    /// Compares a stored spec with the wanted one. Operators may choose the shares and the lendable percentage of the exempt level.
    fn is_equal_spec(&self, stored: &Value) -> bool {
        let mut wanted = self.object.get("spec").cloned().unwrap_or_default();
        if self.kind == FlowControlKind::PriorityLevel && self.name() == EXEMPT {
            let Some(exempt) = stored.at(&["spec", "exempt"]) else { return false };
            for field in ["nominalConcurrencyShares", "lendablePercent"] {
                match exempt.get(field) {
                    Some(chosen) => wanted.set_at(&["exempt", field], chosen.clone()),
                    None => drop(wanted.remove_at(&["exempt", field])),
                }
            }
        }
        stored.get("spec") == Some(&wanted)
    }
}

/// Reports whether a stored object was maintained by a former version of the server but not by this one.
pub fn is_obsolete(kind: FlowControlKind, stored: &Value) -> bool {
    let name = api::meta::name(stored);
    let is_known = objects().iter().any(|known| known.kind == kind && known.name() == name);
    !is_known && auto_update(stored) == Some(true)
}

/// The value of the annotation, parsed like Go's `strconv.ParseBool`.
fn auto_update(stored: &Value) -> Option<bool> {
    match stored.str_at(&["metadata", "annotations", AUTO_UPDATE])? {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Every maintained object, in the order they are written: suggested before mandatory, levels before schemas.
pub fn objects() -> Vec<Maintained> {
    let mut all = Vec::new();
    let mut add = |kind, is_mandatory, objects: Vec<Value>| {
        all.extend(objects.into_iter().map(|object| Maintained { kind, is_mandatory, object }));
    };
    add(FlowControlKind::PriorityLevel, false, suggested_levels());
    add(FlowControlKind::FlowSchema, false, suggested_schemas());
    add(FlowControlKind::PriorityLevel, true, vec![catch_all_level(), exempt_level()]);
    add(FlowControlKind::FlowSchema, true, vec![exempt_schema(), catch_all_schema()]);
    all
}

/// The mandatory level of requests that are never limited.
pub fn exempt_level() -> Value {
    let exempt = Value::map([("lendablePercent", 0_i64), ("nominalConcurrencyShares", 0)]);
    object(
        FlowControlKind::PriorityLevel,
        EXEMPT,
        Value::map([("exempt", exempt), ("type", "Exempt".into())]),
    )
}

/// The mandatory level of requests that match no other schema.
pub fn catch_all_level() -> Value {
    limited(CATCH_ALL, 5, 0, Value::map([("type", "Reject")]))
}

/// The mandatory schema of the cluster's administrators.
pub fn exempt_schema() -> Value {
    schema(EXEMPT, EXEMPT, 1, "", every_request_of(groups(&[names::MASTERS])))
}

/// The mandatory schema that matches all users.
pub fn catch_all_schema() -> Value {
    schema(CATCH_ALL, CATCH_ALL, 10_000, "ByUser", every_request_of(all_users()))
}

/// Name, shares, lendable percent, queues and hand size.
const LEVELS: [(&str, i64, i64, i64, i64); 6] = [
    ("system", 30, 33, 64, 6),
    ("node-high", 40, 25, 64, 6),
    ("leader-election", 10, 0, 16, 4),
    ("workload-high", 40, 50, 128, 6),
    ("workload-low", 100, 90, 128, 6),
    ("global-default", 20, 50, 128, 6),
];

fn suggested_levels() -> Vec<Value> {
    LEVELS
        .iter()
        .map(|(name, shares, lendable, queues, hand)| {
            let queuing = Value::map([("handSize", *hand), ("queueLengthLimit", 50), ("queues", *queues)]);
            let response = Value::map([("queuing", queuing), ("type", "Queue".into())]);
            limited(name, *shares, *lendable, response)
        })
        .collect()
}

fn suggested_schemas() -> Vec<Value> {
    let (user, namespace) = ("ByUser", "ByNamespace");
    let leases = |verbs: &[&str]| resource_rule(verbs, "coordination.k8s.io", &["leases"], false);
    let mut electing = users(&[names::CONTROLLER_MANAGER, names::SCHEDULER]);
    electing.extend(kube_system_accounts());
    let nodes = resource_rule(&["*"], "", &["nodes", "nodes/status"], true);
    let node_status = rule(groups(&[names::NODES]), vec![nodes, leases(&["*"])], Vec::new());
    let elections = rule(electing, vec![leases(&["get", "create", "update"])], Vec::new());
    let probes = Value::map([
        ("nonResourceURLs", Value::list(["/healthz", "/readyz", "/livez"])),
        ("verbs", Value::list(["get"])),
    ]);
    let probes = rule(all_users(), Vec::new(), vec![probes]);
    let controller_manager = every_request_of(users(&[names::CONTROLLER_MANAGER]));
    let scheduler = every_request_of(users(&[names::SCHEDULER]));
    let system_accounts = every_request_of(kube_system_accounts());
    let accounts = every_request_of(groups(&[names::SERVICE_ACCOUNTS]));
    vec![
        schema("system-nodes", "system", 500, user, every_request_of(groups(&[names::NODES]))),
        schema("system-node-high", "node-high", 400, user, node_status),
        schema("probes", EXEMPT, 2, "", probes),
        schema("system-leader-election", "leader-election", 100, user, elections),
        schema("kube-controller-manager", "workload-high", 800, namespace, controller_manager),
        schema("kube-scheduler", "workload-high", 800, namespace, scheduler),
        schema("kube-system-service-accounts", "workload-high", 900, namespace, system_accounts),
        schema("service-accounts", "workload-low", 9000, user, accounts),
        schema("global-default", "global-default", 9900, user, every_request_of(all_users())),
    ]
}

fn object(kind: FlowControlKind, name: &str, spec: Value) -> Value {
    let annotations = Value::map([(AUTO_UPDATE, "true")]);
    let metadata = Value::map([("annotations", annotations), ("name", name.into())]);
    Value::map([
        ("apiVersion", format!("{}/v1", api::groups::FLOW_CONTROL).into()),
        ("kind", kind.name().into()),
        ("metadata", metadata),
        ("spec", spec),
    ])
}

fn limited(name: &str, shares: i64, lendable: i64, response: Value) -> Value {
    let limited = Value::map([
        ("lendablePercent", lendable.into()),
        ("limitResponse", response),
        ("nominalConcurrencyShares", shares.into()),
    ]);
    object(
        FlowControlKind::PriorityLevel,
        name,
        Value::map([("limited", limited), ("type", "Limited".into())]),
    )
}

/// A FlowSchema with one rule; an empty `method` means that all its requests are one flow.
fn schema(name: &str, level: &str, precedence: i64, method: &str, rule: Value) -> Value {
    let mut spec = Value::map([
        ("matchingPrecedence", precedence.into()),
        ("priorityLevelConfiguration", Value::map([("name", level)])),
        ("rules", Value::list([rule])),
    ]);
    if !method.is_empty() {
        spec.set_at(&["distinguisherMethod", "type"], method);
    }
    object(FlowControlKind::FlowSchema, name, spec)
}

fn rule(subjects: Vec<Value>, resource_rules: Vec<Value>, non_resource_rules: Vec<Value>) -> Value {
    let mut rule = Value::map([("subjects", Value::List(subjects))]);
    if !resource_rules.is_empty() {
        rule.set_at(&["resourceRules"], Value::List(resource_rules));
    }
    if !non_resource_rules.is_empty() {
        rule.set_at(&["nonResourceRules"], Value::List(non_resource_rules));
    }
    rule
}

/// A rule that matches all requests of these subjects.
fn every_request_of(subjects: Vec<Value>) -> Value {
    rule(subjects, vec![every_resource()], vec![every_path()])
}

fn all_users() -> Vec<Value> {
    groups(&[names::UNAUTHENTICATED, names::AUTHENTICATED])
}

fn subject(kind: &str, field: &str, of: Value) -> Value {
    Value::map([(field, of), ("kind", kind.into())])
}

fn groups(of: &[&str]) -> Vec<Value> {
    of.iter().map(|name| subject("Group", "group", Value::map([("name", *name)]))).collect()
}

fn users(of: &[&str]) -> Vec<Value> {
    of.iter().map(|name| subject("User", "user", Value::map([("name", *name)]))).collect()
}

fn kube_system_accounts() -> Vec<Value> {
    let account = Value::map([("name", "*"), ("namespace", api::namespaces::SYSTEM)]);
    vec![subject("ServiceAccount", "serviceAccount", account)]
}

fn resource_rule(verbs: &[&str], group: &str, resources: &[&str], cluster_scope: bool) -> Value {
    let mut rule = Value::map([
        ("apiGroups", Value::list([group])),
        ("namespaces", Value::list(["*"])),
        ("resources", Value::list(resources.iter().copied())),
        ("verbs", Value::list(verbs.iter().copied())),
    ]);
    if cluster_scope {
        rule.set_at(&["clusterScope"], true);
    }
    rule
}

fn every_resource() -> Value {
    resource_rule(&["*"], "*", &["*"], true)
}

fn every_path() -> Value {
    Value::map([("nonResourceURLs", Value::list(["*"])), ("verbs", Value::list(["*"]))])
}

#[cfg(test)]
mod tests;
