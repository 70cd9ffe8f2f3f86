//! NodeRestriction: a node may write only what is its own: its node object, the pods on it and what those need.

mod certificates;
mod nodes;
mod pods;
mod tokens;

use api::{GroupResource, Status, field, meta};
use authn::names;
use value::Value;

use crate::{Attributes, Cluster, Later, Operation, Pass, Stage};

const MIRROR: &str = "kubernetes.io/config.mirror";
const LEASES: &str = "kube-node-lease";

/// See the module. Off unless a flag names it.
#[derive(Debug)]
pub struct NodeRestriction;

impl Stage for NodeRestriction {
    fn mutate<'a>(
        &'a self,
        pass: &'a mut Pass<'_, '_>,
        object: Option<&'a mut Value>,
    ) -> Later<'a, Result<(), Status>> {
        let attributes = pass.attributes;
        let user = attributes.user;
        let node = user.name.strip_prefix(names::NODE_PREFIX).filter(|_| user.is_in(names::NODES));
        let Some(name) = node.filter(|_| attributes.operation != Operation::Connect) else {
            return Box::pin(std::future::ready(Ok(())));
        };
        let object: Option<&'a Value> = object.map(|object| &*object);
        let request = Request { name, attributes, object, cluster: pass.cluster };
        Box::pin(async move { request.check().await })
    }
}

/// A node's request.
struct Request<'a, 'r> {
    name: &'a str,
    attributes: &'a Attributes<'r>,
    object: Option<&'a Value>,
    cluster: &'a dyn Cluster,
}

impl Request<'_, '_> {
    fn refuse(&self, why: impl std::fmt::Display) -> Status {
        self.attributes.refuse(self.object, why)
    }

    /// `node "n"`.
    fn me(&self) -> String {
        format!("node {}", field::quote(self.name))
    }

    fn unexpected(&self) -> Status {
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
            ("certificates.k8s.io", "podcertificaterequests", _) => self.check_pod_certificate().await,
            ("coordination.k8s.io", "leases", _) => self.check_lease(),
            ("storage.k8s.io", "csinodes", _) => self.check_csi_node(),
            ("resource.k8s.io", "resourceslices", _) => self.check_slice(),
            ("certificates.k8s.io", "certificatesigningrequests", _) => self.check_signing_request(),
            _ => Ok(()),
        }
    }

    // What is missing is called by its kind, as Kubernetes' caches do.
    fn pod(&self, name: &str) -> Result<std::sync::Arc<Value>, Status> {
        let pod = self.cluster.object("", "pods", &self.attributes.namespace, name);
        pod.ok_or_else(|| Status::not_found(&GroupResource::new("", "pod"), name))
    }

    fn node(&self, name: &str) -> Result<std::sync::Arc<Value>, Status> {
        let node = self.cluster.object("", "nodes", "", name);
        node.ok_or_else(|| Status::not_found(&GroupResource::new("", "node"), name))
    }

    fn is_mine(&self, pod: &Value) -> bool {
        pod.str_at(&["spec", "nodeName"]) == Some(self.name)
    }

    fn old(&self) -> Result<&Value, Status> {
        self.attributes.old_object.stored().ok_or_else(|| self.unexpected())
    }

    fn check_claim_status(&self) -> Result<(), Status> {
        let (Operation::Update, Some(new)) = (self.attributes.operation, self.object) else {
            return Err(self.unexpected());
        };
        let bare = |claim: &Value| {
            let mut claim = claim.clone();
            for way in [
                ["metadata", "resourceVersion"],
                ["metadata", "managedFields"],
                ["status", "capacity"],
                ["status", "conditions"],
                ["status", "allocatedResourceStatuses"],
                ["status", "allocatedResources"],
            ] {
                claim.remove_at(&way);
            }
            if is_empty(claim.get("status")) {
                claim.remove_at(&["status"]);
            }
            claim
        };
        if bare(new) == bare(self.old()?) {
            return Ok(());
        }
        let me = self.me();
        Err(self.refuse(format!(
            "{me} is not allowed to update fields other than status.quantity and status.conditions"
        )))
    }

    /// Whether the node may do this; the error is the chain's, if that is why it may not.
    async fn may(&self, verb: &'static str, resource: &str, name: &str) -> Result<bool, String> {
        let asked = &self.attributes;
        let question = authz::Attributes {
            version: asked.version.clone(),
            namespace: asked.namespace.clone(),
            name: name.into(),
            ..authz::Attributes::resource(verb, asked.resource.group.clone(), resource)
        };
        let answer = self.cluster.authorize(asked.user, &question).await;
        match answer.error {
            _ if answer.decision == authz::Decision::Allow => Ok(true),
            Some(error) => Err(error),
            None => Ok(false),
        }
    }

    /// The name of the object that is written; a new one says it itself.
    fn written(&self) -> &str {
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
