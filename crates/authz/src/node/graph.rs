//! [`NodeGraph`]: which node needs which object.
//!
//! A pod bound to a node needs itself, its service account, and the secrets, config maps and claims that it
//! refers to. A claim's volume and the secrets of that volume are needed wherever the claim is. Volume
//! attachments, resource slices and pod certificate requests name their node directly.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{PoisonError, RwLock};

use api::meta;
use value::{Str, Value};

use crate::node::references;

/// The kinds of objects that a node may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeObject {
    ConfigMap,
    Secret,
    Pod,
    /// A PersistentVolumeClaim of a pod.
    Claim,
    /// A PersistentVolume bound to a claim.
    Volume,
    ResourceClaim,
    ServiceAccount,
    /// A VolumeAttachment for the node.
    Attachment,
    /// A ResourceSlice of the node.
    Slice,
    PodCertificateRequest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GraphKind {
    /// Names a node and refers to objects.
    Pod,
    /// Refers to a claim and to secrets.
    PersistentVolume,
    VolumeAttachment,
    /// May name no node.
    ResourceSlice,
    PodCertificateRequest,
}

impl GraphKind {
    pub fn parse(kind: &str) -> Option<Self> {
        match kind {
            "Pod" => Some(GraphKind::Pod),
            "PersistentVolume" => Some(GraphKind::PersistentVolume),
            "VolumeAttachment" => Some(GraphKind::VolumeAttachment),
            "ResourceSlice" => Some(GraphKind::ResourceSlice),
            "PodCertificateRequest" => Some(GraphKind::PodCertificateRequest),
            _ => None,
        }
    }
}

/// Shared: requests read it while the write path updates it.
#[derive(Default)]
pub struct NodeGraph {
    state: RwLock<GraphState>,
}

/// Kind, namespace and name; the namespace is empty for cluster-scoped objects.
type ObjectKey = (NodeObject, Str, Str);

#[derive(Default)]
struct GraphState {
    /// Nothing is added any more, since [`NodeGraph::close`].
    is_closed: bool,
    /// For each object the nodes that need it, with the number of sources.
    needed: HashMap<ObjectKey, HashMap<Str, usize>>,
    /// For each object that names a node, the node and the objects that it added to `needed`.
    sources: HashMap<(GraphKind, Str, Str), (Str, Vec<ObjectKey>)>,
    /// Volumes that are bound to a claim.
    volumes: HashMap<Str, GraphVolume>,
    /// The volumes that refer to a secret, by its namespace and name.
    volumes_of_secret: HashMap<(Str, Str), BTreeSet<Str>>,
}

struct GraphVolume {
    claim: (Str, Str),
    secrets: Vec<(Str, Str)>,
}

impl NodeGraph {
    /// Removes everything and ignores later changes, because the graph may no longer agree with the stored objects: no node may read what
    /// only the graph permits.
    pub fn close(&self) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        *state = GraphState { is_closed: true, ..GraphState::default() };
    }

    /// Applies a change. `old` is `None` for a creation, `new` for a deletion.
    pub fn apply(&self, kind: GraphKind, old: Option<&Value>, new: Option<&Value>) {
        let Some(object) = new.or(old) else { return };
        let (namespace, name) = (Str::from(meta::namespace(object)), Str::from(meta::name(object)));
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if state.is_closed {
            return;
        }
        if kind == GraphKind::PersistentVolume {
            state.set_volume(name, new);
            return;
        }
        let node = new.and_then(|new| new.str_at(&["spec", "nodeName"])).unwrap_or_default();
        let source = (kind, namespace.clone(), name.clone());
        state.remove_source(&source);
        let Some(new) = new.filter(|_| !node.is_empty()) else { return };
        let mut keys = Vec::new();
        let mut add = |object: NodeObject, name: Str| keys.push((object, namespace.clone(), name));
        match kind {
            GraphKind::Pod => {
                add(NodeObject::Pod, name);
                references::of_pod(new, &mut add);
            }
            GraphKind::VolumeAttachment => add(NodeObject::Attachment, name),
            GraphKind::ResourceSlice => add(NodeObject::Slice, name),
            GraphKind::PodCertificateRequest => add(NodeObject::PodCertificateRequest, name),
            GraphKind::PersistentVolume => {}
        }
        state.add_source(source, node.into(), keys);
    }

    pub fn needs(&self, node: &str, object: NodeObject, namespace: &str, name: &str) -> bool {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let (namespace, name) = (Str::from(namespace), Str::from(name));
        match object {
            NodeObject::Volume => state.needs_volume(node, &name),
            NodeObject::Secret => {
                let volumes = state.volumes_of_secret.get(&(namespace.clone(), name.clone()));
                state.needs(node, &(object, namespace, name))
                    || volumes.into_iter().flatten().any(|volume| state.needs_volume(node, volume))
            }
            _ => state.needs(node, &(object, namespace, name)),
        }
    }
}

impl fmt::Debug for NodeGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        write!(f, "Graph({} objects)", state.needed.len())
    }
}

impl GraphState {
    fn needs(&self, node: &str, key: &ObjectKey) -> bool {
        self.needed.get(key).is_some_and(|nodes| nodes.contains_key(node))
    }

    fn needs_volume(&self, node: &str, volume: &Str) -> bool {
        self.volumes.get(volume).is_some_and(|volume| {
            let (namespace, name) = volume.claim.clone();
            self.needs(node, &(NodeObject::Claim, namespace, name))
        })
    }

    fn add_source(&mut self, source: (GraphKind, Str, Str), node: Str, keys: Vec<ObjectKey>) {
        for key in &keys {
            *self.needed.entry(key.clone()).or_default().entry(node.clone()).or_default() += 1;
        }
        self.sources.insert(source, (node, keys));
    }

    fn remove_source(&mut self, source: &(GraphKind, Str, Str)) {
        let Some((node, keys)) = self.sources.remove(source) else { return };
        for key in keys {
            let Some(nodes) = self.needed.get_mut(&key) else { continue };
            if let Some(count) = nodes.get_mut(&node) {
                *count -= 1;
                if *count == 0 {
                    nodes.remove(&node);
                }
            }
            if nodes.is_empty() {
                self.needed.remove(&key);
            }
        }
    }

    fn set_volume(&mut self, name: Str, volume: Option<&Value>) {
        if let Some(old) = self.volumes.remove(&name) {
            for secret in old.secrets {
                if let Some(volumes) = self.volumes_of_secret.get_mut(&secret) {
                    volumes.remove(&name);
                    if volumes.is_empty() {
                        self.volumes_of_secret.remove(&secret);
                    }
                }
            }
        }
        let Some(claim) = volume.and_then(|v| v.at(&["spec", "claimRef"])).filter(|c| !c.is_null()) else {
            return;
        };
        let text = |field: &str| Str::from(claim.str_at(&[field]).unwrap_or_default());
        let claim = (text("namespace"), text("name"));
        let secrets =
            volume.map(|volume| references::secrets_of_volume(volume, &claim.0)).unwrap_or_default();
        for secret in &secrets {
            self.volumes_of_secret.entry(secret.clone()).or_default().insert(name.clone());
        }
        self.volumes.insert(name, GraphVolume { claim, secrets });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_graph_has_nothing_and_ignores_later_changes() {
        let graph = NodeGraph::default();
        let mut pod = Value::map([("spec", Value::map([("nodeName", "n")]))]);
        pod.set_at(&["metadata", "name"], "p");
        graph.apply(GraphKind::Pod, None, Some(&pod));
        let is_empty = || graph.state.read().unwrap().needed.is_empty();
        assert!(!is_empty());
        graph.close();
        assert!(is_empty());
        graph.apply(GraphKind::Pod, None, Some(&pod));
        assert!(is_empty());
    }
}
