//! Nodes: each may read what its own pods refer to, and change what is its own.
//!
//! A node is a user `system:node:NAME` in the group `system:nodes`. [`Graph`] follows the stored objects and knows which node
//! needs which object. What the graph cannot decide, such as which pod a node creates, admission does (NodeRestriction).

mod graph;
mod references;

pub use graph::{Graph, Kind, Object};

use authn::{User, names};
use value::Str;

use crate::attributes::{Attributes, Operator};
use crate::decision::{Answer, Reason};
use crate::rbac::{Rule, Rules, bootstrap};

/// The Node authorizer.
#[derive(Debug, Default)]
pub struct NodeAuthorizer {
    graph: Graph,
    /// What every node may do to resources that are not divided among them.
    rules: Vec<Rule>,
}

impl NodeAuthorizer {
    /// An authorizer that knows no object yet.
    pub fn new() -> Self {
        NodeAuthorizer { graph: Graph::default(), rules: bootstrap::node_rules() }
    }

    /// Which node needs what; to be kept up to date.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Whether a node is allowed something. About others it has no opinion.
    pub fn decide(&self, user: &User, attributes: &Attributes) -> Answer {
        let Some(node) = node_name(user) else { return nothing() };
        if node.is_empty() {
            return Answer::no_opinion(format!("unknown node for user {}", api::field::quote(&user.name)));
        }
        match self.judge(node, attributes) {
            Ok(()) => Answer::allow(Reason::None),
            Err(why) => Answer { reason: why.map_or(Reason::None, Reason::Text), ..Answer::no_opinion("") },
        }
    }

    /// What a node may do cannot be listed.
    pub fn rules_for(&self, user: &User) -> Rules {
        match node_name(user) {
            None => Rules::default(),
            Some(_) => Rules {
                rules: Vec::new(),
                incomplete: true,
                error: Some("node authorizer does not support user rule resolution".to_owned()),
            },
        }
    }

    fn judge(&self, node: &str, attributes: &Attributes) -> Judgement {
        let Attributes { verb, group, resource, subresource, is_resource, .. } = attributes;
        let verb = verb.as_str();
        if *is_resource {
            match (group.as_str(), resource.as_str()) {
                ("", "secrets") => return self.read(node, Object::Secret, attributes),
                ("", "configmaps") => return self.read(node, Object::ConfigMap, attributes),
                ("", "persistentvolumeclaims") if subresource == "status" => {
                    return if matches!(verb, "update" | "patch") {
                        self.related(node, Object::Claim, attributes)
                    } else {
                        no("can only get/update/patch this type")
                    };
                }
                ("", "persistentvolumeclaims") => return self.get(node, Object::Claim, attributes),
                ("", "persistentvolumes") => return self.get(node, Object::Volume, attributes),
                ("resource.k8s.io", "resourceclaims") => {
                    return self.get(node, Object::ResourceClaim, attributes);
                }
                ("storage.k8s.io", "volumeattachments") => {
                    return self.get(node, Object::Attachment, attributes);
                }
                ("", "serviceaccounts") => return self.service_account(node, attributes),
                ("coordination.k8s.io", "leases") => return lease(node, attributes),
                ("storage.k8s.io", "csinodes") => return csi_node(node, attributes),
                ("resource.k8s.io", "resourceslices") => return self.slice(node, attributes),
                ("", "nodes") => return own_node(node, attributes),
                ("", "pods") => return self.pod(node, attributes),
                ("certificates.k8s.io", "podcertificaterequests") => {
                    return self.pod_certificate(node, attributes);
                }
                _ => {}
            }
        }
        if self.rules.iter().any(|rule| rule.allows(attributes)) { Ok(()) } else { Err(None) }
    }

    /// Reading an object that a pod of the node refers to.
    fn read(&self, node: &str, object: Object, attributes: &Attributes) -> Judgement {
        if !matches!(attributes.verb.as_str(), "get" | "list" | "watch") {
            return no("can only read resources of this type");
        }
        if !attributes.subresource.is_empty() {
            return no("cannot read subresource");
        }
        if attributes.namespace.is_empty() {
            return no("can only read namespaced object of this type");
        }
        self.related(node, object, attributes)
    }

    /// Getting an object that a pod of the node refers to.
    fn get(&self, node: &str, object: Object, attributes: &Attributes) -> Judgement {
        if attributes.verb != "get" {
            return no("can only get individual resources of this type");
        }
        if !attributes.subresource.is_empty() {
            return no("cannot get subresource");
        }
        self.related(node, object, attributes)
    }

    fn related(&self, node: &str, object: Object, attributes: &Attributes) -> Judgement {
        if attributes.name.is_empty() {
            return no("No Object name found");
        }
        if self.graph.needs(node, object, &attributes.namespace, &attributes.name) {
            return Ok(());
        }
        no(format!("no relationship found between node '{node}' and this object"))
    }

    fn service_account(&self, node: &str, attributes: &Attributes) -> Judgement {
        if attributes.verb == "get" && attributes.subresource.is_empty() {
            return self.read(node, Object::ServiceAccount, attributes);
        }
        if attributes.verb != "create" || attributes.name.is_empty() {
            return no("can only create tokens for individual service accounts");
        }
        if attributes.subresource != "token" {
            return no("can only create token subresource of serviceaccount");
        }
        self.related(node, Object::ServiceAccount, attributes)
    }

    fn slice(&self, node: &str, attributes: &Attributes) -> Judgement {
        if !attributes.subresource.is_empty() {
            return no("cannot authorize ResourceSlice subresources");
        }
        match attributes.verb.as_str() {
            "create" => Ok(()),
            "get" | "update" | "patch" | "delete" => self.related(node, Object::Slice, attributes),
            "watch" | "list" | "deletecollection" if selects(attributes, "spec.nodeName", node) => Ok(()),
            "watch" | "list" | "deletecollection" => {
                no("can only list/watch/deletecollection resourceslices with nodeName field selector")
            }
            _ => no(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection",
            ),
        }
    }

    fn pod_certificate(&self, node: &str, attributes: &Attributes) -> Judgement {
        if !attributes.subresource.is_empty() {
            return no("nodes may not access the status subresource of PodCertificateRequests");
        }
        match attributes.verb.as_str() {
            "create" => Ok(()),
            "get" => self.related(node, Object::PodCertificateRequest, attributes),
            "list" | "watch" if selects(attributes, "spec.nodeName", node) => Ok(()),
            "list" | "watch" => no("can only list/watch podcertificaterequests with nodeName field selector"),
            verb => no(format!("nodes may not {verb} podcertificaterequests")),
        }
    }

    fn pod(&self, node: &str, attributes: &Attributes) -> Judgement {
        match (attributes.subresource.as_str(), attributes.verb.as_str()) {
            ("", "get") => self.get(node, Object::Pod, attributes),
            ("", "list" | "watch") if selects(attributes, "spec.nodeName", node) => Ok(()),
            ("", "list" | "watch") if !attributes.name.is_empty() => {
                self.related(node, Object::Pod, attributes)
            }
            ("", "list" | "watch") => no("can only list/watch pods with spec.nodeName field selector"),
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => Ok(()),
            _ => Err(None),
        }
    }
}

/// Allowed, or not and perhaps why.
type Judgement = Result<(), Option<Str>>;

fn no(why: impl Into<Str>) -> Judgement {
    Err(Some(why.into()))
}

fn nothing() -> Answer {
    Answer { reason: Reason::None, ..Answer::no_opinion("") }
}

/// The node's name, if the user is a node.
pub fn node_name(user: &User) -> Option<&str> {
    user.name.strip_prefix(names::NODE_PREFIX).filter(|_| user.is_in(names::NODES))
}

/// Whether a request's field selector pins a field to a value.
fn selects(attributes: &Attributes, field: &str, value: &str) -> bool {
    attributes.fields.requirements.iter().any(|requirement| {
        requirement.key == field
            && requirement.operator == Operator::In
            && matches!(requirement.values.as_slice(), [only] if only == value)
    })
}

/// A node's heartbeat is the lease of its name. On creation the name is not known yet.
fn lease(node: &str, attributes: &Attributes) -> Judgement {
    const NAMESPACE: &str = "kube-node-lease";
    let verb = attributes.verb.as_str();
    if !matches!(verb, "get" | "create" | "update" | "patch" | "delete") {
        return no("can only get, create, update, patch, or delete a node lease");
    }
    if attributes.namespace != NAMESPACE {
        return no(format!("can only access leases in the \"{NAMESPACE}\" system namespace"));
    }
    if verb != "create" && attributes.name != node {
        return no("can only access node lease with the same name as the requesting node");
    }
    Ok(())
}

fn csi_node(node: &str, attributes: &Attributes) -> Judgement {
    let verb = attributes.verb.as_str();
    match attributes.subresource.as_str() {
        "" if matches!(verb, "get" | "create" | "update" | "patch" | "delete") => {}
        "" => return no("can only get, create, update, patch, or delete a CSINode"),
        "status" => return no("CSINode status access requires CSIVolumeHealth feature"),
        _ => return no("cannot authorize CSINode subresources"),
    }
    if verb != "create" && attributes.name != node {
        return no("can only access CSINode with the same name as the requesting node");
    }
    Ok(())
}

/// A node may read its own Node object, also before it exists; admission sees to whose it writes.
fn own_node(node: &str, attributes: &Attributes) -> Judgement {
    match (attributes.subresource.as_str(), attributes.verb.as_str()) {
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Ok(()),
        ("", "get" | "list" | "watch") => match attributes.name.as_str() {
            name if name == node => Ok(()),
            "" => no(format!("node '{node}' cannot read all nodes, only its own Node object")),
            name => no(format!("node '{node}' cannot read '{name}', only its own Node object")),
        },
        _ => Err(None),
    }
}
