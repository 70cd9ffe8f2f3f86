//! NodeRestriction for certificates: PodCertificateRequests for the node's pods, and CSRs for the node
//! itself.

use api::{Status, field, meta};
use authn::names;

use super::{MIRROR, NodeRequest};
use crate::Operation;

impl NodeRequest<'_, '_> {
    pub(super) async fn check_pod_certificate(&self) -> Result<(), Status> {
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
        let quoted_pod = field::quote(&format!("{namespace}/{}", text("podName")));
        if node_name != self.name {
            return Err(self.refuse(format!(
                "PodCertificateRequest.Spec.NodeName={}, which is not the requesting {}",
                field::quote(node_name),
                self.node_text()
            )));
        }
        // The node may just not be in the cache yet: a plain error lets the kubelet retry.
        let node = self.cluster.object("", "nodes", "", node_name).ok_or_else(|| {
            let name = field::quote(node_name);
            Status::plain(format!(
                "while retrieving node {name} named in the PodCertificateRequest: node {name} not found"
            ))
        })?;
        if meta::uid(&node) != text("nodeUID") {
            let (context, has) = (field::quote(text("nodeUID")), field::quote(meta::uid(&node)));
            return Err(Status::plain(format!(
                "PodCertificateRequest for pod {quoted_pod} names node UID {context}, inconsistent with the running node ({has})"
            )));
        }
        let pod = self.cluster.object("", "pods", namespace, text("podName")).ok_or_else(|| {
            let pod = field::quote(text("podName"));
            Status::plain(format!(
                "while retrieving pod {quoted_pod} named in the PodCertificateRequest: pod {pod} not found"
            ))
        })?;
        if meta::uid(&pod) != text("podUID") {
            let (context, has) = (field::quote(text("podUID")), field::quote(meta::uid(&pod)));
            return Err(Status::plain(format!(
                "PodCertificateRequest for pod {quoted_pod} contains pod UID ({context}) which differs from running pod {has}"
            )));
        }
        if !self.is_on_node(&pod) {
            let node = field::quote(node_name);
            let why =
                format!("pod {quoted_pod} is not running on node {node} named in the PodCertificateRequest");
            return Err(self.refuse(why));
        }
        if pod.at(&["metadata", "annotations", MIRROR]).is_some() {
            return Err(self.refuse(format!("pod {quoted_pod} is a mirror pod")));
        }
        let account = text("serviceAccountName");
        let runs_as = pod.str_at(&["spec", "serviceAccountName"]).unwrap_or_default();
        if account != runs_as {
            let (context, has) = (field::quote(account), field::quote(runs_as));
            return Err(self.refuse(format!(
                "PodCertificateRequest for pod {quoted_pod} contains serviceAccountName ({context}) that differs from running pod ({has})"
            )));
        }
        let found = self.cluster.object("", "serviceaccounts", namespace, account).ok_or_else(|| {
            let (quoted_pod, name) = (field::quote(&format!("{namespace}/{account}")), field::quote(account));
            Status::plain(format!(
                "while retrieving service account {quoted_pod} named in the PodCertificateRequest: serviceaccount {name} not found"
            ))
        })?;
        if meta::uid(&found) != text("serviceAccountUID") {
            let (context, has) = (field::quote(text("serviceAccountUID")), field::quote(meta::uid(&found)));
            return Err(Status::plain(format!(
                "PodCertificateRequest for pod {quoted_pod} names service account UID {context}, which differs from the running service account ({has})"
            )));
        }
        let signer = text("signerName");
        let wants = pod.list_at(&["spec", "volumes"]).iter().any(|volume| {
            let sources = volume.list_at(&["projected", "sources"]).iter();
            sources.clone().any(|source| source.str_at(&["podCertificate", "signerName"]) == Some(signer))
        });
        // Resource names in rules cannot contain slashes.
        let munged = signer.replace('/', ":");
        if wants {
            return Ok(());
        }
        let signer = field::quote(signer);
        match self.is_allowed("request-serviceaccounts-podcertificate-signer", &munged, account).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.refuse(format!(
                "pod {quoted_pod} does not mount a podCertificate projected volume for signer {signer}"
            ))),
            Err(error) => Err(self.refuse(format!(
                "error authorizing {} to request podcertificaterequests for signer {signer}: {error}",
                self.attributes.user.name
            ))),
        }
    }

    pub(super) fn check_signing_request(&self) -> Result<(), Status> {
        let Some(request) = self.object.filter(|_| self.attributes.operation == Operation::Create) else {
            return Ok(());
        };
        let signer = request.str_at(&["spec", "signerName"]).unwrap_or_default();
        if !matches!(signer, "kubernetes.io/kubelet-serving" | "kubernetes.io/kube-apiserver-client-kubelet")
        {
            return Ok(());
        }
        let pem = request.str_at(&["spec", "request"]).unwrap_or_default();
        let parsed = kinds::validation::certificates::certificate_request(pem)
            .map_err(|why| self.refuse(format!("unable to parse csr: {why}")))?;
        let own = format!("{}{}", names::NODE_PREFIX, self.name);
        if parsed.subject.common_name == own {
            return Ok(());
        }
        Err(self.refuse(format!("can only create a node CSR with CN={own}")))
    }
}
