//! NodeRestriction for the node's own objects: Node, Lease, CSINode and ResourceSlices.

use api::{Status, field, meta};
use value::Value;

use super::{LEASES, NodeRequest};
use crate::Operation;

impl NodeRequest<'_, '_> {
    pub(super) fn check_node(&self) -> Result<(), Status> {
        let node_text = self.node_text();
        if self.attributes.name != self.name {
            let other = field::quote(&self.attributes.name);
            return Err(self.refuse(format!("{node_text} is not allowed to modify node {other}")));
        }
        let Some(new) = self.object else { return Ok(()) };
        let source = new.at(&["spec", "configSource"]);
        match self.attributes.operation {
            Operation::Create => {
                if source.is_some() {
                    let why =
                        format!("{node_text} is not allowed to create pods with a non-nil configSource");
                    return Err(self.refuse(why));
                }
                let labels = forbidden_labels(new, None);
                if !labels.is_empty() {
                    let why = format!("{node_text} is not allowed to set the following labels: {labels}");
                    return Err(self.refuse(why));
                }
                Ok(())
            }
            Operation::Update => {
                let old = self.old()?;
                if source.is_some() && source != old.at(&["spec", "configSource"]) {
                    let why = format!(
                        "{node_text} is not allowed to update configSource to a new non-nil configSource"
                    );
                    return Err(self.refuse(why));
                }
                for (path, what) in
                    [(["spec", "taints"], "taints"), (["metadata", "ownerReferences"], "ownerReferences")]
                {
                    if new.list_at(&path) != old.list_at(&path) {
                        return Err(self.refuse(format!("{node_text} is not allowed to modify {what}")));
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

    pub(super) fn check_lease(&self) -> Result<(), Status> {
        if self.attributes.namespace != LEASES {
            let namespace = field::quote(LEASES);
            return Err(self.refuse(format!("can only access leases in the {namespace} system namespace")));
        }
        if self.object_name() == self.name {
            return Ok(());
        }
        Err(self.refuse("can only access node lease with the same name as the requesting node"))
    }

    pub(super) fn check_csi_node(&self) -> Result<(), Status> {
        if self.object_name() != self.name {
            return Err(self.refuse("can only access CSINode with the same name as the requesting node"));
        }
        if self.attributes.subresource == "status" {
            return Err(self.refuse("CSIVolumeHealth feature gate is disabled"));
        }
        Ok(())
    }

    pub(super) fn check_slice(&self) -> Result<(), Status> {
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
}

/// Changed labels that a node may not set on itself, because they attract pods.
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
