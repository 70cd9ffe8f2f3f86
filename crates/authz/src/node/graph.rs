//! [`NodeGraph`]: which node needs which object.
//!
//! A pod bound to a node needs itself, its service account, and the secrets, config maps and claims that it
//! refers to. A claim's volume and the secrets of that volume are needed wherever the claim is. Volume
//! attachments, resource slices and pod certificate requests name their node directly.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use api::meta;
use value::{Str, Value};

use crate::node::references;

/// The kinds of objects that a node may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
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

/// Shared: requests read it while the write path updates it. Async workers read it, so objects are read, and their keys collected, before a
/// lock is taken.
#[derive(Default)]
pub struct NodeGraph {
    /// Nothing is added any more, since [`NodeGraph::close`]. Set before the tables are locked to be cleared, and read while one is locked.
    is_closed: AtomicBool,
    /// For each object that names a node, what it added to `needed`. Locked during a whole change, so that changes do not interleave.
    sources: Mutex<HashMap<SourceKey, NodeNeeds>>,
    /// For each object the nodes that need it, with the number of sources. In several tables, so that a request waits for one key of
    /// a change with many keys, not for all.
    needed: [RwLock<NeededObjects>; TABLES],
    /// Always empty: its hasher, whose keys clients cannot predict, chooses the table of a key.
    chooser: HashMap<ObjectKey, bool>,
    volumes: RwLock<GraphVolumes>,
}

const TABLES: usize = 32;

/// Kind, namespace and name; the namespace is empty for cluster-scoped objects.
type ObjectKey = (NodeObject, Str, Str);

type SourceKey = (GraphKind, Str, Str);

type NeededObjects = HashMap<ObjectKey, HashMap<Str, usize>>;

/// A node and the objects that it needs because of one source.
#[derive(PartialEq)]
struct NodeNeeds {
    node: Str,
    /// Sorted and without repetitions.
    keys: Vec<ObjectKey>,
}

#[derive(Default)]
struct GraphVolumes {
    /// Volumes that are bound to a claim.
    by_name: HashMap<Str, GraphVolume>,
    /// The volumes that refer to a secret, by its namespace and name.
    of_secret: HashMap<(Str, Str), BTreeSet<Str>>,
}

struct GraphVolume {
    claim: (Str, Str),
    secrets: Vec<(Str, Str)>,
}

impl NodeGraph {
    /// Removes everything and ignores later changes, because the graph may no longer agree with the stored objects: no node may read what
    /// only the graph permits.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        sources.clear();
        for table in &self.needed {
            table.write().unwrap_or_else(PoisonError::into_inner).clear();
        }
        *self.volumes.write().unwrap_or_else(PoisonError::into_inner) = GraphVolumes::default();
    }

    /// Applies a change. `old` is `None` for a creation, `new` for a deletion.
    pub fn apply(&self, kind: GraphKind, old: Option<&Value>, new: Option<&Value>) {
        let Some(object) = new.or(old) else { return };
        let name = Str::from(meta::name(object));
        if kind == GraphKind::PersistentVolume {
            let volume = new.and_then(GraphVolume::of);
            let mut volumes = self.volumes.write().unwrap_or_else(PoisonError::into_inner);
            if !self.is_closed.load(Ordering::SeqCst) {
                volumes.set(name, volume);
            }
            return;
        }
        let source = (kind, Str::from(meta::namespace(object)), name);
        let needs = new.and_then(|new| NodeNeeds::of(&source, new));
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_closed.load(Ordering::SeqCst) || sources.get(&source) == needs.as_ref() {
            return;
        }
        // New keys come first, so that an object that both states of the source refer to stays readable.
        if let Some(NodeNeeds { node, keys }) = &needs {
            for key in keys {
                let mut needed = self.table(key).write().unwrap_or_else(PoisonError::into_inner);
                *needed.entry(key.clone()).or_default().entry(node.clone()).or_default() += 1;
            }
        }
        let former = match needs {
            Some(needs) => sources.insert(source, needs),
            None => sources.remove(&source),
        };
        if let Some(NodeNeeds { node, keys }) = former {
            for key in &keys {
                let mut needed = self.table(key).write().unwrap_or_else(PoisonError::into_inner);
                remove_need(&mut needed, key, &node);
            }
        }
    }

    pub fn needs(&self, node: &str, object: NodeObject, namespace: &str, name: &str) -> bool {
        let (namespace, name) = (Str::from(namespace), Str::from(name));
        let volumes = || self.volumes.read().unwrap_or_else(PoisonError::into_inner);
        let needs_claim = |volume: &GraphVolume| {
            let (namespace, name) = volume.claim.clone();
            self.has(node, &(NodeObject::Claim, namespace, name))
        };
        match object {
            NodeObject::Volume => volumes().by_name.get(&name).is_some_and(needs_claim),
            NodeObject::Secret if !self.has(node, &(object, namespace.clone(), name.clone())) => {
                let volumes = volumes();
                let referring = volumes.of_secret.get(&(namespace, name)).into_iter().flatten();
                referring.filter_map(|volume| volumes.by_name.get(volume)).any(needs_claim)
            }
            NodeObject::Secret => true,
            _ => self.has(node, &(object, namespace, name)),
        }
    }

    fn has(&self, node: &str, key: &ObjectKey) -> bool {
        let needed = self.table(key).read().unwrap_or_else(PoisonError::into_inner);
        needed.get(key).is_some_and(|nodes| nodes.contains_key(node))
    }

    fn table(&self, key: &ObjectKey) -> &RwLock<NeededObjects> {
        #[expect(clippy::cast_possible_truncation, clippy::indexing_slicing, reason = "below `TABLES`")]
        &self.needed[self.chooser.hasher().hash_one(key) as usize % TABLES]
    }
}

impl fmt::Debug for NodeGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tables = self.needed.iter();
        let objects: usize =
            tables.map(|table| table.read().unwrap_or_else(PoisonError::into_inner).len()).sum();
        write!(f, "Graph({objects} objects)")
    }
}

fn remove_need(needed: &mut NeededObjects, key: &ObjectKey, node: &Str) {
    let Some(nodes) = needed.get_mut(key) else { return };
    if let Some(count) = nodes.get_mut(node) {
        *count -= 1;
        if *count == 0 {
            nodes.remove(node);
        }
    }
    if nodes.is_empty() {
        needed.remove(key);
    }
}

impl GraphVolumes {
    fn set(&mut self, name: Str, volume: Option<GraphVolume>) {
        if let Some(old) = self.by_name.remove(&name) {
            for secret in old.secrets {
                if let Some(volumes) = self.of_secret.get_mut(&secret) {
                    volumes.remove(&name);
                    if volumes.is_empty() {
                        self.of_secret.remove(&secret);
                    }
                }
            }
        }
        let Some(volume) = volume else { return };
        for secret in &volume.secrets {
            self.of_secret.entry(secret.clone()).or_default().insert(name.clone());
        }
        self.by_name.insert(name, volume);
    }
}

impl NodeNeeds {
    /// `None` if the object names no node.
    fn of((kind, namespace, name): &SourceKey, object: &Value) -> Option<Self> {
        let node = object.str_at(&["spec", "nodeName"]).filter(|node| !node.is_empty())?;
        let mut keys = Vec::new();
        let mut add = |object: NodeObject, name: Str| keys.push((object, namespace.clone(), name));
        match kind {
            GraphKind::Pod => {
                add(NodeObject::Pod, name.clone());
                references::of_pod(object, &mut add);
            }
            GraphKind::VolumeAttachment => add(NodeObject::Attachment, name.clone()),
            GraphKind::ResourceSlice => add(NodeObject::Slice, name.clone()),
            GraphKind::PodCertificateRequest => add(NodeObject::PodCertificateRequest, name.clone()),
            GraphKind::PersistentVolume => {}
        }
        keys.sort_unstable();
        keys.dedup();
        Some(NodeNeeds { node: node.into(), keys })
    }
}

impl GraphVolume {
    /// `None` if the volume is not bound to a claim.
    fn of(volume: &Value) -> Option<Self> {
        let claim = volume.at(&["spec", "claimRef"]).filter(|claim| !claim.is_null())?;
        let text = |field: &str| Str::from(claim.str_at(&[field]).unwrap_or_default());
        let claim = (text("namespace"), text("name"));
        let secrets = references::secrets_of_volume(volume, &claim.0);
        Some(GraphVolume { claim, secrets })
    }
}

#[cfg(test)]
mod tests;
