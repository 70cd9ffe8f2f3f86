//! NodeRestriction: a node may write only what is its own: its node object, the pods on it and what those need.

use api::{GroupResource, Status, field, meta};
use authn::names;
use value::Value;

use super::pod_secrets;
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

    fn pod(&self, name: &str) -> Result<std::sync::Arc<Value>, Status> {
        let pod = self.cluster.object("", "pods", &self.attributes.namespace, name);
        pod.ok_or_else(|| Status::not_found(&GroupResource::new("", "pods"), name))
    }

    fn node(&self, name: &str) -> Result<std::sync::Arc<Value>, Status> {
        let node = self.cluster.object("", "nodes", "", name);
        node.ok_or_else(|| Status::not_found(&GroupResource::new("", "nodes"), name))
    }

    fn is_mine(&self, pod: &Value) -> bool {
        pod.str_at(&["spec", "nodeName"]) == Some(self.name)
    }

    fn check_pod(&self) -> Result<(), Status> {
        let me = self.me();
        match (self.attributes.operation, self.object) {
            (Operation::Create, Some(pod)) => self.check_mirror(pod),
            (Operation::Delete, _) => {
                if self.is_mine(&*self.pod(&self.attributes.name)?) {
                    return Ok(());
                }
                Err(self.refuse(format!("{me} can only delete pods with spec.nodeName set to itself")))
            }
            (operation, _) => Err(self.refuse(format!(
                "unexpected operation {}, {me} can only create and delete mirror pods",
                field::quote(operation.as_str())
            ))),
        }
    }

    /// Nodes create nothing but the mirrors of pods that they run by themselves.
    fn check_mirror(&self, pod: &Value) -> Result<(), Status> {
        let me = self.me();
        if pod.at(&["metadata", "annotations", MIRROR]).is_none() {
            let annotation = field::quote(MIRROR);
            let why = format!("pod does not have {annotation} annotation, {me} can only create mirror pods");
            return Err(self.refuse(why));
        }
        if !self.is_mine(pod) {
            return Err(self.refuse(format!("{me} can only create pods with spec.nodeName set to itself")));
        }
        let owners: Vec<meta::OwnerReference> = meta::owner_references(pod).collect();
        let to_itself = format!("{me} can only create pods with an owner reference set to itself");
        let owner = match owners.as_slice() {
            [] => return Err(self.refuse(to_itself)),
            [owner] => owner,
            _ => {
                let why = format!("{me} can only create pods with a single owner reference set to itself");
                return Err(self.refuse(why));
            }
        };
        if owner.api_version != "v1" || owner.kind != "Node" || owner.name != self.name {
            return Err(self.refuse(to_itself));
        }
        if !owner.controller {
            let why = format!("{me} can only create pods with a controller owner reference set to itself");
            return Err(self.refuse(why));
        }
        if owner.block_owner_deletion {
            return Err(self.refuse(format!("{me} must not set blockOwnerDeletion on an owner reference")));
        }
        let node = self.node(self.name)?;
        let uid = meta::uid(&node);
        if owner.uid != uid {
            let why = format!("node {} UID mismatch: expected {} got {uid}", self.name, owner.uid);
            return Err(self.refuse(why));
        }
        match referenced(pod) {
            Ok(None) => Ok(()),
            Ok(Some(what)) => Err(self.refuse(format!("{me} can not create pods that reference {what}"))),
            Err(why) => Err(self.refuse(format!("error checking mirror pod for API references: {why}"))),
        }
    }

    fn old(&self) -> Result<&Value, Status> {
        self.attributes.old_object.stored().ok_or_else(|| self.unexpected())
    }

    fn check_pod_status(&self) -> Result<(), Status> {
        let (Operation::Update, Some(new)) = (self.attributes.operation, self.object) else {
            return Err(self.unexpected());
        };
        let (old, me) = (self.old()?, self.me());
        if !self.is_mine(old) {
            let why = format!("{me} can only update pod status for pods with spec.nodeName set to itself");
            return Err(self.refuse(why));
        }
        let same =
            |way: &[&str]| is_empty(old.at(way)) && is_empty(new.at(way)) || old.at(way) == new.at(way);
        for (way, what) in [
            (&["metadata", "labels"][..], "update labels through pod status"),
            (&["status", "resourceClaimStatuses"], "update resource claim statues"),
            (&["status", "extendedResourceClaimStatus"], "update extended resource claim status"),
            (
                &["status", "nodeAllocatableResourceClaimStatuses"],
                "update node allocatable resource claim statuses",
            ),
        ] {
            if !same(way) {
                return Err(self.refuse(format!("{me} cannot {what}")));
            }
        }
        Ok(())
    }

    fn check_eviction(&self) -> Result<(), Status> {
        if self.attributes.operation != Operation::Create {
            let operation = self.attributes.operation.as_str();
            return Err(self.refuse(format!("unexpected operation {operation}")));
        }
        let name = match (self.attributes.name.as_str(), self.object.map(meta::name)) {
            ("", None | Some("")) => {
                return Err(self.refuse("could not determine pod from request data"));
            }
            ("", Some(name)) | (name, _) => name,
        };
        if self.is_mine(&*self.pod(name)?) {
            return Ok(());
        }
        let why = format!("node {} can only evict pods with spec.nodeName set to itself", self.name);
        Err(self.refuse(why))
    }

    fn check_node(&self) -> Result<(), Status> {
        let me = self.me();
        if self.attributes.name != self.name {
            let other = field::quote(&self.attributes.name);
            return Err(self.refuse(format!("{me} is not allowed to modify node {other}")));
        }
        let Some(new) = self.object else { return Ok(()) };
        let source = new.at(&["spec", "configSource"]);
        match self.attributes.operation {
            Operation::Create => {
                if source.is_some() {
                    let why = format!("{me} is not allowed to create pods with a non-nil configSource");
                    return Err(self.refuse(why));
                }
                let labels = forbidden_labels(new, None);
                if !labels.is_empty() {
                    let why = format!("{me} is not allowed to set the following labels: {labels}");
                    return Err(self.refuse(why));
                }
                Ok(())
            }
            Operation::Update => {
                let old = self.old()?;
                if source.is_some() && source != old.at(&["spec", "configSource"]) {
                    let why =
                        format!("{me} is not allowed to update configSource to a new non-nil configSource");
                    return Err(self.refuse(why));
                }
                for (way, what) in
                    [(["spec", "taints"], "taints"), (["metadata", "ownerReferences"], "ownerReferences")]
                {
                    if new.list_at(&way) != old.list_at(&way) {
                        return Err(self.refuse(format!("{me} is not allowed to modify {what}")));
                    }
                }
                let labels = forbidden_labels(new, Some(old));
                if !labels.is_empty() {
                    return Err(self.refuse(format!("is not allowed to modify labels: {labels}")));
                }
                Ok(())
            }
            _ => Ok(()),
        }
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

    /// A node asks for tokens of the pods on it, for the audiences that they name.
    async fn check_token(&self) -> Result<(), Status> {
        let (Operation::Create, Some(request)) = (self.attributes.operation, self.object) else {
            return Ok(());
        };
        let text = |field| request.str_at(&["spec", "boundObjectRef", field]).unwrap_or_default();
        if text("apiVersion") != "v1" || text("kind") != "Pod" || text("name").is_empty() {
            return Err(self.refuse("node requested token not bound to a pod"));
        }
        let uid = text("uid");
        if uid.is_empty() {
            return Err(self.refuse("node requested token with a pod binding without a uid"));
        }
        let pod = self.pod(text("name"))?;
        if meta::uid(&pod) != uid {
            return Err(self.refuse(format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
            )));
        }
        if !self.is_mine(&pod) {
            return Err(self.refuse("node requested token bound to a pod scheduled on a different node"));
        }
        let audience = match request.list_at(&["spec", "audiences"]) {
            [] => "",
            [one] => one.as_str().unwrap_or_default(),
            _ => return Err(self.refuse("node may only request 0 or 1 audiences")),
        };
        let quoted = field::quote(audience);
        match self.names_audience(&pod, audience) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(why) => return Err(self.refuse(format!("error validating audience {quoted}: {why}"))),
        }
        let account = self.attributes.name.as_str();
        if self.may("request-serviceaccounts-token-audience", audience, account).await {
            return Ok(());
        }
        let user = &self.attributes.user.name;
        Err(self.refuse(format!("{user} is not authorized to request tokens for audience {quoted}")))
    }

    /// Whether a volume of the pod needs tokens for the audience: its own, or those of its driver.
    fn names_audience(&self, pod: &Value, audience: &str) -> Result<bool, String> {
        let mut errors = Vec::new();
        for volume in pod.list_at(&["spec", "volumes"]) {
            let projected = volume.list_at(&["projected", "sources"]).iter();
            let mut tokens = projected.filter_map(|source| source.get("serviceAccountToken"));
            if tokens.any(|token| token.str_at(&["audience"]).unwrap_or_default() == audience) {
                return Ok(true);
            }
            let driver = match self.driver(pod, volume) {
                Ok(None) => continue,
                Ok(Some(driver)) => driver,
                Err(why) => {
                    errors.push(why);
                    continue;
                }
            };
            match self.cluster.object("storage.k8s.io", "csidrivers", "", &driver) {
                None => errors.push(missing("csidriver.storage.k8s.io", &driver)),
                Some(driver) => {
                    let mut requests = driver.list_at(&["spec", "tokenRequests"]).iter();
                    if requests.any(|request| request.str_at(&["audience"]).unwrap_or_default() == audience) {
                        return Ok(true);
                    }
                }
            }
        }
        if errors.is_empty() { Ok(false) } else { Err(field::aggregate(errors)) }
    }

    fn driver(&self, pod: &Value, volume: &Value) -> Result<Option<String>, String> {
        let name = volume.str_at(&["name"]).unwrap_or_default();
        let claim = if volume.at(&["ephemeral", "volumeClaimTemplate"]).is_some() {
            format!("{}-{name}", meta::name(pod))
        } else if let Some(claim) = volume.str_at(&["persistentVolumeClaim", "claimName"]) {
            claim.to_owned()
        } else {
            return Ok(driver_of(volume));
        };
        let found = self.cluster.object("", "persistentvolumeclaims", &self.attributes.namespace, &claim);
        let Some(found) = found else { return Err(missing("persistentvolumeclaim", &claim)) };
        let volume = found.str_at(&["spec", "volumeName"]).unwrap_or_default();
        match self.cluster.object("", "persistentvolumes", "", volume) {
            Some(volume) => Ok(volume.get("spec").and_then(driver_of)),
            None => Err(missing("persistentvolume", volume)),
        }
    }

    async fn may(&self, verb: &'static str, resource: &str, name: &str) -> bool {
        let asked = &self.attributes;
        let question = authz::Attributes {
            version: asked.version.clone(),
            namespace: asked.namespace.clone(),
            name: name.into(),
            ..authz::Attributes::resource(verb, asked.resource.group.clone(), resource)
        };
        self.cluster.authorize(asked.user, &question).await.decision == authz::Decision::Allow
    }

    async fn check_pod_certificate(&self) -> Result<(), Status> {
        let operation = self.attributes.operation;
        let Some(request) = self.object.filter(|_| operation == Operation::Create) else {
            return Err(self.refuse(format!("unexpected operation {}", operation.as_str())));
        };
        if !self.attributes.subresource.is_empty() {
            let subresource = &self.attributes.subresource;
            return Err(self.refuse(format!("unexpected subresource {subresource}")));
        }
        let text = |field| request.str_at(&["spec", field]).unwrap_or_default();
        let (namespace, node_name) = (&self.attributes.namespace, text("nodeName"));
        let place = field::quote(&format!("{namespace}/{}", text("podName")));
        if node_name != self.name {
            return Err(self.refuse(format!(
                "PodCertificateRequest.Spec.NodeName={}, which is not the requesting {}",
                field::quote(node_name),
                self.me()
            )));
        }
        // What may only be late is a failure, not a refusal: it may be tried again.
        let node = self.cluster.object("", "nodes", "", node_name).ok_or_else(|| {
            let name = field::quote(node_name);
            Status::plain(format!(
                "while retrieving node {name} named in the PodCertificateRequest: node {name} not found"
            ))
        })?;
        if meta::uid(&node) != text("nodeUID") {
            let (asked, has) = (field::quote(text("nodeUID")), field::quote(meta::uid(&node)));
            return Err(Status::plain(format!(
                "PodCertificateRequest for pod {place} names node UID {asked}, inconsistent with the running node ({has})"
            )));
        }
        let pod = self.cluster.object("", "pods", namespace, text("podName")).ok_or_else(|| {
            let pod = field::quote(text("podName"));
            Status::plain(format!(
                "while retrieving pod {place} named in the PodCertificateRequest: pod {pod} not found"
            ))
        })?;
        if meta::uid(&pod) != text("podUID") {
            let (asked, has) = (field::quote(text("podUID")), field::quote(meta::uid(&pod)));
            return Err(Status::plain(format!(
                "PodCertificateRequest for pod {place} contains pod UID ({asked}) which differs from running pod {has}"
            )));
        }
        if !self.is_mine(&pod) {
            let node = field::quote(node_name);
            let why = format!("pod {place} is not running on node {node} named in the PodCertificateRequest");
            return Err(self.refuse(why));
        }
        if pod.at(&["metadata", "annotations", MIRROR]).is_some() {
            return Err(self.refuse(format!("pod {place} is a mirror pod")));
        }
        let account = text("serviceAccountName");
        let runs_as = pod.str_at(&["spec", "serviceAccountName"]).unwrap_or_default();
        if account != runs_as {
            let (asked, has) = (field::quote(account), field::quote(runs_as));
            return Err(self.refuse(format!(
                "PodCertificateRequest for pod {place} contains serviceAccountName ({asked}) that differs from running pod ({has})"
            )));
        }
        let found = self.cluster.object("", "serviceaccounts", namespace, account).ok_or_else(|| {
            let (place, name) = (field::quote(&format!("{namespace}/{account}")), field::quote(account));
            Status::plain(format!(
                "while retrieving service account {place} named in the PodCertificateRequest: serviceaccount {name} not found"
            ))
        })?;
        if meta::uid(&found) != text("serviceAccountUID") {
            let (asked, has) = (field::quote(text("serviceAccountUID")), field::quote(meta::uid(&found)));
            return Err(Status::plain(format!(
                "PodCertificateRequest for pod {place} names service account UID {asked}, which differs from the running service account ({has})"
            )));
        }
        let signer = text("signerName");
        let wants = pod.list_at(&["spec", "volumes"]).iter().any(|volume| {
            let sources = volume.list_at(&["projected", "sources"]).iter();
            sources.clone().any(|source| source.str_at(&["podCertificate", "signerName"]) == Some(signer))
        });
        // Resources of rules have no slashes.
        let munged = signer.replace('/', ":");
        if wants || self.may("request-serviceaccounts-podcertificate-signer", &munged, account).await {
            return Ok(());
        }
        let signer = field::quote(signer);
        let why = format!("pod {place} does not mount a podCertificate projected volume for signer {signer}");
        Err(self.refuse(why))
    }

    /// The name of the object that is written; a new one says it itself.
    fn written(&self) -> &str {
        match (self.attributes.operation, self.object) {
            (Operation::Create, Some(object)) => meta::name(object),
            _ => &self.attributes.name,
        }
    }

    fn check_lease(&self) -> Result<(), Status> {
        if self.attributes.namespace != LEASES {
            let namespace = field::quote(LEASES);
            return Err(self.refuse(format!("can only access leases in the {namespace} system namespace")));
        }
        if self.written() == self.name {
            return Ok(());
        }
        Err(self.refuse("can only access node lease with the same name as the requesting node"))
    }

    fn check_csi_node(&self) -> Result<(), Status> {
        if self.written() != self.name {
            return Err(self.refuse("can only access CSINode with the same name as the requesting node"));
        }
        if self.attributes.subresource == "status" {
            return Err(self.refuse("CSIVolumeHealth feature gate is disabled"));
        }
        Ok(())
    }

    fn check_slice(&self) -> Result<(), Status> {
        let mine = |slice: Option<&Value>| {
            slice.and_then(|slice| slice.str_at(&["spec", "nodeName"])) == Some(self.name)
        };
        let (own, word) = match self.attributes.operation {
            Operation::Create => (mine(self.object), "create"),
            Operation::Delete => (mine(self.attributes.old_object.stored()), "delete"),
            _ => return Ok(()),
        };
        if own {
            return Ok(());
        }
        let why = format!("can only {word} ResourceSlice with the same NodeName as the requesting node");
        Err(self.refuse(why))
    }

    fn check_signing_request(&self) -> Result<(), Status> {
        let Some(request) = self.object.filter(|_| self.attributes.operation == Operation::Create) else {
            return Ok(());
        };
        let signer = request.str_at(&["spec", "signerName"]).unwrap_or_default();
        if !matches!(signer, "kubernetes.io/kubelet-serving" | "kubernetes.io/kube-apiserver-client-kubelet")
        {
            return Ok(());
        }
        let pem = request.str_at(&["spec", "request"]).unwrap_or_default();
        let name = resources::validation::certificates::signing_request_common_name(pem)
            .map_err(|why| self.refuse(format!("unable to parse csr: {why}")))?;
        let own = format!("{}{}", names::NODE_PREFIX, self.name);
        if name == own {
            return Ok(());
        }
        Err(self.refuse(format!("can only create a node CSR with CN={own}")))
    }
}

fn missing(what: &str, name: &str) -> String {
    format!("{what} {} not found", field::quote(name))
}

fn is_empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::List(list)) => list.is_empty(),
        Some(Value::Map(map)) => map.is_empty(),
        Some(_) => false,
    }
}

/// The driver of a volume's source; those that were built in once are drivers now.
fn driver_of(source: &Value) -> Option<String> {
    const MOVED: &[(&str, &str)] = &[
        ("awsElasticBlockStore", "ebs.csi.aws.com"),
        ("azureDisk", "disk.csi.azure.com"),
        ("azureFile", "file.csi.azure.com"),
        ("cinder", "cinder.csi.openstack.org"),
        ("gcePersistentDisk", "pd.csi.storage.gke.io"),
        ("portworxVolume", "pxd.portworx.com"),
        ("vsphereVolume", "csi.vsphere.vmware.com"),
    ];
    let own = source.str_at(&["csi", "driver"]);
    let driver = own
        .or_else(|| MOVED.iter().find(|(field, _)| source.get(field).is_some()).map(|(_, driver)| *driver));
    driver.map(str::to_owned)
}

/// What else of the API a pod needs, in the words of the refusal.
fn referenced(pod: &Value) -> Result<Option<&'static str>, String> {
    const HARMLESS: &[&str] = &[
        "awsElasticBlockStore",
        "azureDisk",
        "cephfs",
        "cinder",
        "downwardAPI",
        "emptyDir",
        "fc",
        "flexVolume",
        "flocker",
        "gcePersistentDisk",
        "gitRepo",
        "hostPath",
        "image",
        "iscsi",
        "nfs",
        "photonPersistentDisk",
        "portworxVolume",
        "quobyte",
        "rbd",
        "scaleIO",
        "storageos",
        "vsphereVolume",
    ];
    const REFERRING: &[(&str, &str)] = &[
        ("configMap", "configmaps (via configmap volumes)"),
        ("secret", "secrets (via secret volumes)"),
        ("csi", "csidrivers (via CSI volumes)"),
        ("glusterfs", "endpoints (via glusterFS volumes)"),
        ("persistentVolumeClaim", "persistentvolumeclaims"),
        ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
        ("azureFile", "secrets (via azureFile volumes)"),
    ];
    const PROJECTED: &[(&str, &str)] = &[
        ("configMap", "configmaps (via projected volumes)"),
        ("secret", "secrets (via projected volumes)"),
        ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
        ("clusterTrustBundle", "clustertrustbundles"),
        ("podCertificate", "podcertificates"),
    ];
    if pod.str_at(&["spec", "serviceAccountName"]).is_some_and(|name| !name.is_empty()) {
        return Ok(Some("serviceaccounts"));
    }
    if pod_secrets::any(pod) {
        return Ok(Some("secrets"));
    }
    if pod_secrets::any_config_map(pod) {
        return Ok(Some("configmaps"));
    }
    if !pod.list_at(&["spec", "resourceClaims"]).is_empty() {
        return Ok(Some("resourceclaims"));
    }
    let find = |holder: &Value, table: &[(&str, &'static str)]| {
        table.iter().find(|(field, _)| holder.get(field).is_some()).map(|(_, what)| *what)
    };
    for volume in pod.list_at(&["spec", "volumes"]) {
        let name = field::quote(volume.str_at(&["name"]).unwrap_or_default());
        if HARMLESS.iter().any(|field| volume.get(field).is_some()) {
            continue;
        }
        if let Some(what) = find(volume, REFERRING) {
            return Ok(Some(what));
        }
        if volume.get("projected").is_none() {
            return Err(format!("unknown volume type for volume  {name}"));
        }
        for source in volume.list_at(&["projected", "sources"]) {
            if let Some(what) = find(source, PROJECTED) {
                return Ok(Some(what));
            }
            if source.get("downwardAPI").is_none() {
                return Err(format!("unknown source for projected volume {name}"));
            }
        }
    }
    Ok(None)
}

/// Labels that differ and that a node may not set itself, because they steer pods to it.
fn forbidden_labels(new: &Value, old: Option<&Value>) -> String {
    const OWN: &[&str] = &[
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
    ];
    let label = |object: Option<&Value>, key: &str| {
        object.and_then(|object| object.str_at(&["metadata", "labels", key])).map(str::to_owned)
    };
    let keys = meta::labels(new).chain(old.into_iter().flat_map(meta::labels)).map(|(key, _)| key);
    let mut forbidden: Vec<&str> = keys
        .filter(|key| label(Some(new), key) != label(old, key))
        .filter(|key| {
            let prefix = key.split_once('/').map_or("", |(prefix, _)| prefix);
            let within = |domain: &str| prefix == domain || prefix.ends_with(&format!(".{domain}"));
            let own = OWN.contains(key) || within("kubelet.kubernetes.io") || within("node.kubernetes.io");
            within("node-restriction.kubernetes.io")
                || ((within("kubernetes.io") || within("k8s.io")) && !own)
        })
        .collect();
    forbidden.sort_unstable();
    forbidden.dedup();
    forbidden.join(", ")
}
