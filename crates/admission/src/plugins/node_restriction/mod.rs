//! NodeRestriction: a kubelet may write only its own node object, the pods bound to the node, and related
//! objects. Off by default.

mod certificates;
mod nodes;
mod pods;
mod tokens;

use api::{GroupResource, Status, field, groups, meta, namespaces};
use authn::names;
use value::Value;

use crate::{AdmissionAttributes, AdmissionFuture, AsyncPlugin, ClusterView, MutatingRequest, Operation};

const LEASES: &str = namespaces::NODE_LEASE;

#[derive(Debug)]
pub struct NodeRestriction;

impl AsyncPlugin for NodeRestriction {
    fn mutate<'a>(
        &'a self,
        pass: &'a mut MutatingRequest<'_, '_>,
        object: Option<&'a mut Value>,
    ) -> AdmissionFuture<'a, Result<(), Status>> {
        let attributes = pass.attributes;
        let user = attributes.user;
        let node = user.name.strip_prefix(names::NODE_PREFIX).filter(|_| user.is_in(names::NODES));
        let Some(name) = node.filter(|_| attributes.operation != Operation::Connect) else {
            return Box::pin(std::future::ready(Ok(())));
        };
        let object: Option<&'a Value> = object.map(|object| &*object);
        let request = NodeRequest { name, attributes, object, cluster: pass.cluster };
        Box::pin(async move { request.check().await })
    }
}

struct NodeRequest<'a, 'r> {
    name: &'a str,
    attributes: &'a AdmissionAttributes<'r>,
    object: Option<&'a Value>,
    cluster: &'a dyn ClusterView,
}

impl NodeRequest<'_, '_> {
    fn refuse(&self, why: impl std::fmt::Display) -> Status {
        self.attributes.refuse(self.object, why)
    }

    /// `node "n"`, for messages.
    fn node_text(&self) -> String {
        format!("node {}", field::quote(self.name))
    }

    fn status_of_reply(&self) -> Status {
        self.refuse(format!("unexpected operation {}", field::quote(self.attributes.operation.as_str())))
    }

    async fn check(&self) -> Result<(), Status> {
        if self.name.is_empty() {
            let user = field::quote(&self.attributes.user.name);
            return Err(self.refuse(format!("could not determine node from user {user}")));
        }
        let resource = &self.attributes.resource;
        match (resource.group.as_str(), resource.resource.as_str(), self.attributes.subresource.as_str()) {
            ("", "pods", "") => self.check_pod(),
            ("", "pods", "status") => self.check_pod_status(),
            ("", "pods", "eviction") => self.check_eviction(),
            ("", "pods", other) => Err(self.refuse(format!(
                "unexpected pod subresource {}, only 'status' and 'eviction' are allowed",
                field::quote(other)
            ))),
            ("", "nodes", _) => self.check_node(),
            ("", "persistentvolumeclaims", "status") => self.check_claim_status(),
            ("", "persistentvolumeclaims", _) => Err(self.refuse("may only update PVC status")),
            ("", "serviceaccounts", "token") => self.check_token().await,
            (groups::CERTIFICATES, "podcertificaterequests", _) => self.check_pod_certificate().await,
            ("coordination.k8s.io", "leases", _) => self.check_lease(),
            ("storage.k8s.io", "csinodes", _) => self.check_csi_node(),
            ("resource.k8s.io", "resourceslices", _) => self.check_slice(),
            (groups::CERTIFICATES, "certificatesigningrequests", _) => self.check_signing_request(),
            _ => Ok(()),
        }
    }

    // Not-found errors name the kind, not the resource, as kube-apiserver's caches do.
    fn pod(&self, name: &str) -> Result<std::sync::Arc<Value>, Status> {
        let pod = self.cluster.object("", "pods", &self.attributes.namespace, name);
        pod.ok_or_else(|| Status::not_found(&GroupResource::new("", "pod"), name))
    }

    fn node(&self, name: &str) -> Result<std::sync::Arc<Value>, Status> {
        let node = self.cluster.object("", "nodes", "", name);
        node.ok_or_else(|| Status::not_found(&GroupResource::new("", "node"), name))
    }

    fn is_on_node(&self, pod: &Value) -> bool {
        pod.str_at(&["spec", "nodeName"]) == Some(self.name)
    }

    fn old(&self) -> Result<&Value, Status> {
        self.attributes.old_object.stored().ok_or_else(|| self.status_of_reply())
    }

    fn check_claim_status(&self) -> Result<(), Status> {
        let (Operation::Update, Some(new)) = (self.attributes.operation, self.object) else {
            return Err(self.status_of_reply());
        };
        let bare = |claim: &Value| {
            let mut claim = claim.clone();
            for path in [
                ["metadata", "resourceVersion"],
                ["metadata", "managedFields"],
                ["status", "capacity"],
                ["status", "conditions"],
                ["status", "allocatedResourceStatuses"],
                ["status", "allocatedResources"],
            ] {
                claim.remove_at(&path);
            }
            if is_empty(claim.get("status")) {
                claim.remove_at(&["status"]);
            }
            claim
        };
        if bare(new) == bare(self.old()?) {
            return Ok(());
        }
        let node_text = self.node_text();
        Err(self.refuse(format!(
            "{node_text} is not allowed to update fields other than status.quantity and status.conditions"
        )))
    }

    /// Asks the authorizer whether the node has a permission. The error is the authorizer's.
    async fn is_allowed(&self, verb: &'static str, resource: &str, name: &str) -> Result<bool, String> {
        let attributes = &self.attributes;
        let check = authz::AuthorizationAttributes {
            version: attributes.version.clone(),
            namespace: attributes.namespace.clone(),
            name: name.into(),
            ..authz::AuthorizationAttributes::resource(verb, attributes.resource.group.clone(), resource)
        };
        let answer = self.cluster.authorize(attributes.user, &check).await;
        match answer.error {
            _ if answer.decision == authz::Decision::Allow => Ok(true),
            Some(error) => Err(error),
            None => Ok(false),
        }
    }

    /// The name of the object; in a creation, its `metadata.name`.
    fn object_name(&self) -> &str {
        match (self.attributes.operation, self.object) {
            (Operation::Create, Some(object)) => meta::name(object),
            _ => &self.attributes.name,
        }
    }
}

fn is_empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::List(list)) => list.is_empty(),
        Some(Value::Map(map)) => map.is_empty(),
        Some(_) => false,
    }
}
