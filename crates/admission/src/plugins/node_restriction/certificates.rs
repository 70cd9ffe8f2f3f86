//! NodeRestriction for certificates: PodCertificateRequests for the node's pods, and CSRs for the node
//! itself.

use std::sync::Arc;

use api::{Status, field, meta, signers};
use authn::names;
use value::Value;

use super::NodeRequest;
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
        let pod_name = spec_text(request, "podName");
        let quoted_pod = field::quote(&format!("{}/{pod_name}", self.attributes.namespace));
        self.check_certificate_node(request, &quoted_pod)?;
        let pod = self.check_certificate_pod(request, &quoted_pod)?;
        self.check_certificate_account(request, &pod, &quoted_pod)?;
        self.check_certificate_signer(request, &pod, &quoted_pod).await
    }

    /// The request must name the node that makes it.
    fn check_certificate_node(&self, request: &Value, quoted_pod: &str) -> Result<(), Status> {
        let node_name = spec_text(request, "nodeName");
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
        if meta::uid(&node) != spec_text(request, "nodeUID") {
            let (named, actual) =
                (field::quote(spec_text(request, "nodeUID")), field::quote(meta::uid(&node)));
            return Err(Status::plain(format!(
                "PodCertificateRequest for pod {quoted_pod} names node UID {named}, inconsistent with the running node ({actual})"
            )));
        }
        Ok(())
    }

    /// The pod must exist, run on this node and not be a mirror pod.
    fn check_certificate_pod(&self, request: &Value, quoted_pod: &str) -> Result<Arc<Value>, Status> {
        let node_name = spec_text(request, "nodeName");
        let (namespace, name) = (&self.attributes.namespace, spec_text(request, "podName"));
        let pod = self.cluster.object("", "pods", namespace, name).ok_or_else(|| {
            let pod = field::quote(name);
            Status::plain(format!(
                "while retrieving pod {quoted_pod} named in the PodCertificateRequest: pod {pod} not found"
            ))
        })?;
        if meta::uid(&pod) != spec_text(request, "podUID") {
            let (named, actual) = (field::quote(spec_text(request, "podUID")), field::quote(meta::uid(&pod)));
            return Err(Status::plain(format!(
                "PodCertificateRequest for pod {quoted_pod} contains pod UID ({named}) which differs from running pod {actual}"
            )));
        }
        if !self.is_on_node(&pod) {
            let node = field::quote(node_name);
            let why =
                format!("pod {quoted_pod} is not running on node {node} named in the PodCertificateRequest");
            return Err(self.refuse(why));
        }
        if meta::is_mirror_pod(&pod) {
            return Err(self.refuse(format!("pod {quoted_pod} is a mirror pod")));
        }
        Ok(pod)
    }

    /// The pod must run as the service account that the request names.
    fn check_certificate_account(
        &self,
        request: &Value,
        pod: &Value,
        quoted_pod: &str,
    ) -> Result<(), Status> {
        let namespace = &self.attributes.namespace;
        let account = spec_text(request, "serviceAccountName");
        let runs_as = pod.str_at(&["spec", "serviceAccountName"]).unwrap_or_default();
        if account != runs_as {
            let (named, actual) = (field::quote(account), field::quote(runs_as));
            return Err(self.refuse(format!(
                "PodCertificateRequest for pod {quoted_pod} contains serviceAccountName ({named}) that differs from running pod ({actual})"
            )));
        }
        let found = self.cluster.object("", "serviceaccounts", namespace, account).ok_or_else(|| {
            let quoted_account = field::quote(&format!("{namespace}/{account}"));
            let name = field::quote(account);
            Status::plain(format!(
                "while retrieving service account {quoted_account} named in the PodCertificateRequest: serviceaccount {name} not found"
            ))
        })?;
        if meta::uid(&found) != spec_text(request, "serviceAccountUID") {
            let (named, actual) =
                (field::quote(spec_text(request, "serviceAccountUID")), field::quote(meta::uid(&found)));
            return Err(Status::plain(format!(
                "PodCertificateRequest for pod {quoted_pod} names service account UID {named}, which differs from the running service account ({actual})"
            )));
        }
        Ok(())
    }

    /// The pod must mount a certificate of this signer, or the node must be authorized to request it anyway.
    async fn check_certificate_signer(
        &self,
        request: &Value,
        pod: &Value,
        quoted_pod: &str,
    ) -> Result<(), Status> {
        let account = spec_text(request, "serviceAccountName");
        let signer = spec_text(request, "signerName");
        let mounts_certificate = pod.list_at(&["spec", "volumes"]).iter().any(|volume| {
            let sources = volume.list_at(&["projected", "sources"]).iter();
            sources.clone().any(|source| source.str_at(&["podCertificate", "signerName"]) == Some(signer))
        });
        if mounts_certificate {
            return Ok(());
        }
        // Resource names in rules cannot contain slashes.
        let munged = signer.replace('/', ":");
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
        if !matches!(signer, signers::KUBELET_SERVING | signers::KUBELET_CLIENT) {
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

fn spec_text<'a>(request: &'a Value, field: &str) -> &'a str {
    request.str_at(&["spec", field]).unwrap_or_default()
}
