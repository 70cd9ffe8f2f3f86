//! The Node authorizer: a kubelet may read objects that its pods refer to, and modify its own objects.
//!
//! A node is a user `system:node:NAME` in the group `system:nodes`. [`NodeGraph`] tracks which node needs which
//! object. What depends on the content of a write is checked by the admission plugin NodeRestriction.

mod graph;
mod references;

pub use graph::{GraphKind, NodeGraph, NodeObject};

use authn::{User, names};
use value::Str;

use crate::attributes::{AuthorizationAttributes, SelectorOperator};
use crate::decision::{AuthorizerDecision, DecisionReason};
use crate::rbac::{PolicyRule, SubjectRules, bootstrap};

#[derive(Debug, Default)]
pub struct NodeAuthorizer {
    graph: NodeGraph,
    /// The rules for resources that are not restricted per node.
    rules: Vec<PolicyRule>,
}

impl NodeAuthorizer {
    /// Starts with an empty graph.
    pub fn new() -> Self {
        NodeAuthorizer { graph: NodeGraph::default(), rules: bootstrap::node_rules() }
    }

    /// The graph, which the caller keeps up to date.
    pub fn graph(&self) -> &NodeGraph {
        &self.graph
    }

    /// Has no opinion about users that are not nodes.
    pub fn decide(&self, user: &User, attributes: &AuthorizationAttributes) -> AuthorizerDecision {
        let Some(node) = node_name(user) else { return no_opinion() };
        if node.is_empty() {
            return AuthorizerDecision::no_opinion(format!(
                "unknown node for user {}",
                api::field::quote(&user.name)
            ));
        }
        match self.decide_for_node(node, attributes) {
            Ok(()) => AuthorizerDecision::allow(DecisionReason::None),
            Err(why) => AuthorizerDecision {
                reason: why.map_or(DecisionReason::None, DecisionReason::Text),
                ..AuthorizerDecision::no_opinion("")
            },
        }
    }

    /// Empty and marked incomplete for nodes, whose permissions depend on the graph.
    pub fn rules_for(&self, user: &User) -> SubjectRules {
        match node_name(user) {
            None => SubjectRules::default(),
            Some(_) => SubjectRules {
                rules: Vec::new(),
                incomplete: true,
                error: Some("node authorizer does not support user rule resolution".to_owned()),
            },
        }
    }

    fn decide_for_node(&self, node: &str, attributes: &AuthorizationAttributes) -> NodeDecision {
        let AuthorizationAttributes { verb, group, resource, subresource, is_resource, .. } = attributes;
        let verb = verb.as_str();
        if *is_resource {
            match (group.as_str(), resource.as_str()) {
                ("", "secrets") => return self.read(node, NodeObject::Secret, attributes),
                ("", "configmaps") => return self.read(node, NodeObject::ConfigMap, attributes),
                ("", "persistentvolumeclaims") if subresource == "status" => {
                    return if matches!(verb, "update" | "patch") {
                        self.related(node, NodeObject::Claim, attributes)
                    } else {
                        denied("can only get/update/patch this type")
                    };
                }
                ("", "persistentvolumeclaims") => return self.get(node, NodeObject::Claim, attributes),
                ("", "persistentvolumes") => return self.get(node, NodeObject::Volume, attributes),
                ("resource.k8s.io", "resourceclaims") => {
                    return self.get(node, NodeObject::ResourceClaim, attributes);
                }
                ("storage.k8s.io", "volumeattachments") => {
                    return self.get(node, NodeObject::Attachment, attributes);
                }
                ("", "serviceaccounts") => return self.service_account(node, attributes),
                ("coordination.k8s.io", "leases") => return lease(node, attributes),
                ("storage.k8s.io", "csinodes") => return csi_node(node, attributes),
                ("resource.k8s.io", "resourceslices") => return self.slice(node, attributes),
                ("", "nodes") => return own_node(node, attributes),
                ("", "pods") => return self.pod(node, attributes),
                (api::groups::CERTIFICATES, "podcertificaterequests") => {
                    return self.pod_certificate(node, attributes);
                }
                _ => {}
            }
        }
        if self.rules.iter().any(|rule| rule.allows(attributes)) { Ok(()) } else { Err(None) }
    }

    /// Checks a get, list or watch of an object that a pod of the node refers to.
    fn read(&self, node: &str, object: NodeObject, attributes: &AuthorizationAttributes) -> NodeDecision {
        if !matches!(attributes.verb.as_str(), "get" | "list" | "watch") {
            return denied("can only read resources of this type");
        }
        if !attributes.subresource.is_empty() {
            return denied("cannot read subresource");
        }
        if attributes.namespace.is_empty() {
            return denied("can only read namespaced object of this type");
        }
        self.related(node, object, attributes)
    }

    /// Checks a get of an object that a pod of the node refers to.
    fn get(&self, node: &str, object: NodeObject, attributes: &AuthorizationAttributes) -> NodeDecision {
        if attributes.verb != "get" {
            return denied("can only get individual resources of this type");
        }
        if !attributes.subresource.is_empty() {
            return denied("cannot get subresource");
        }
        self.related(node, object, attributes)
    }

    fn related(&self, node: &str, object: NodeObject, attributes: &AuthorizationAttributes) -> NodeDecision {
        if attributes.name.is_empty() {
            return denied("No Object name found");
        }
        if self.graph.needs(node, object, &attributes.namespace, &attributes.name) {
            return Ok(());
        }
        denied(format!("no relationship found between node '{node}' and this object"))
    }

    fn service_account(&self, node: &str, attributes: &AuthorizationAttributes) -> NodeDecision {
        if attributes.verb == "get" && attributes.subresource.is_empty() {
            return self.read(node, NodeObject::ServiceAccount, attributes);
        }
        if attributes.verb != "create" || attributes.name.is_empty() {
            return denied("can only create tokens for individual service accounts");
        }
        if attributes.subresource != "token" {
            return denied("can only create token subresource of serviceaccount");
        }
        self.related(node, NodeObject::ServiceAccount, attributes)
    }

    fn slice(&self, node: &str, attributes: &AuthorizationAttributes) -> NodeDecision {
        if !attributes.subresource.is_empty() {
            return denied("cannot authorize ResourceSlice subresources");
        }
        match attributes.verb.as_str() {
            "create" => Ok(()),
            "get" | "update" | "patch" | "delete" => self.related(node, NodeObject::Slice, attributes),
            "watch" | "list" | "deletecollection" if selects(attributes, "spec.nodeName", node) => Ok(()),
            "watch" | "list" | "deletecollection" => {
                denied("can only list/watch/deletecollection resourceslices with nodeName field selector")
            }
            _ => denied(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection",
            ),
        }
    }

    fn pod_certificate(&self, node: &str, attributes: &AuthorizationAttributes) -> NodeDecision {
        if !attributes.subresource.is_empty() {
            return denied("nodes may not access the status subresource of PodCertificateRequests");
        }
        match attributes.verb.as_str() {
            "create" => Ok(()),
            "get" => self.related(node, NodeObject::PodCertificateRequest, attributes),
            "list" | "watch" if selects(attributes, "spec.nodeName", node) => Ok(()),
            "list" | "watch" => {
                denied("can only list/watch podcertificaterequests with nodeName field selector")
            }
            verb => denied(format!("nodes may not {verb} podcertificaterequests")),
        }
    }

    fn pod(&self, node: &str, attributes: &AuthorizationAttributes) -> NodeDecision {
        match (attributes.subresource.as_str(), attributes.verb.as_str()) {
            ("", "get") => self.get(node, NodeObject::Pod, attributes),
            ("", "list" | "watch") if selects(attributes, "spec.nodeName", node) => Ok(()),
            ("", "list" | "watch") if !attributes.name.is_empty() => {
                self.related(node, NodeObject::Pod, attributes)
            }
            ("", "list" | "watch") => denied("can only list/watch pods with spec.nodeName field selector"),
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => Ok(()),
            _ => Err(None),
        }
    }
}

/// The error is an optional reason.
type NodeDecision = Result<(), Option<Str>>;

fn denied(why: impl Into<Str>) -> NodeDecision {
    Err(Some(why.into()))
}

fn no_opinion() -> AuthorizerDecision {
    AuthorizerDecision { reason: DecisionReason::None, ..AuthorizerDecision::no_opinion("") }
}

/// The node's name; `None` if the user is not a node.
pub fn node_name(user: &User) -> Option<&str> {
    user.name.strip_prefix(names::NODE_PREFIX).filter(|_| user.is_in(names::NODES))
}

/// Whether the field selector restricts `field` to exactly `value`.
fn selects(attributes: &AuthorizationAttributes, field: &str, value: &str) -> bool {
    attributes.fields.requirements.iter().any(|requirement| {
        requirement.key == field
            && requirement.operator == SelectorOperator::In
            && matches!(&*requirement.values, [only] if only == value)
    })
}

/// A node's heartbeat is the lease with its name. In a create request the name is not known yet.
fn lease(node: &str, attributes: &AuthorizationAttributes) -> NodeDecision {
    const NAMESPACE: &str = api::namespaces::NODE_LEASE;
    let verb = attributes.verb.as_str();
    if !matches!(verb, "get" | "create" | "update" | "patch" | "delete") {
        return denied("can only get, create, update, patch, or delete a node lease");
    }
    if attributes.namespace != NAMESPACE {
        return denied(format!("can only access leases in the \"{NAMESPACE}\" system namespace"));
    }
    if verb != "create" && attributes.name != node {
        return denied("can only access node lease with the same name as the requesting node");
    }
    Ok(())
}

fn csi_node(node: &str, attributes: &AuthorizationAttributes) -> NodeDecision {
    let verb = attributes.verb.as_str();
    match attributes.subresource.as_str() {
        "" if matches!(verb, "get" | "create" | "update" | "patch" | "delete") => {}
        "" => return denied("can only get, create, update, patch, or delete a CSINode"),
        "status" => return denied("CSINode status access requires CSIVolumeHealth feature"),
        _ => return denied("cannot authorize CSINode subresources"),
    }
    if verb != "create" && attributes.name != node {
        return denied("can only access CSINode with the same name as the requesting node");
    }
    Ok(())
}

/// A node may read its own Node object even before it exists. NodeRestriction checks which node object it
/// writes.
fn own_node(node: &str, attributes: &AuthorizationAttributes) -> NodeDecision {
    match (attributes.subresource.as_str(), attributes.verb.as_str()) {
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
        ("", "get" | "list" | "watch") => match attributes.name.as_str() {
            name if name == node => Ok(()),
            "" => denied(format!("node '{node}' cannot read all nodes, only its own Node object")),
            name => denied(format!("node '{node}' cannot read '{name}', only its own Node object")),
        },
        _ => Err(None),
    }
}
