//! [`Graph`]: which node needs which object.
//!
//! A pod that runs on a node needs itself, its service account, and the secrets, config maps and claims it refers to; a claim's
//! volume and that volume's secrets are needed by whoever needs the claim. Volume attachments, resource slices and pod
//! certificate requests name their node themselves.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{PoisonError, RwLock};

use api::meta;
use value::{Str, Value};

use crate::node::references;

/// The kinds of objects a node may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Object {
    /// A ConfigMap.
    ConfigMap,
    /// A Secret.
    Secret,
    /// A Pod.
    Pod,
    /// A PersistentVolumeClaim.
    Claim,
    /// A PersistentVolume.
    Volume,
    /// A ResourceClaim.
    ResourceClaim,
    /// A ServiceAccount.
    ServiceAccount,
    /// A VolumeAttachment.
    Attachment,
    /// A ResourceSlice.
    Slice,
    /// A PodCertificateRequest.
    PodCertificateRequest,
}

/// The kinds of objects the graph follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Names a node and refers to what it needs there.
    Pod,
    /// Refers to a claim and to secrets.
    PersistentVolume,
    /// Names a node.
    VolumeAttachment,
    /// Names a node, or none.
    ResourceSlice,
    /// Names a node.
    PodCertificateRequest,
}

impl Kind {
    /// The kind by its name.
    pub fn parse(kind: &str) -> Option<Self> {
        match kind {
            "Pod" => Some(Kind::Pod),
            "PersistentVolume" => Some(Kind::PersistentVolume),
            "VolumeAttachment" => Some(Kind::VolumeAttachment),
            "ResourceSlice" => Some(Kind::ResourceSlice),
            "PodCertificateRequest" => Some(Kind::PodCertificateRequest),
            _ => None,
        }
    }
}

/// What nodes need. Shared: requests read it while the write path updates it.
#[derive(Default)]
pub struct Graph {
    state: RwLock<State>,
}

/// An object by kind, namespace and name.
type Key = (Object, Str, Str);

#[derive(Default)]
struct State {
    /// Who needs an object, and by how many of its pods.
    needed: HashMap<Key, HashMap<Str, usize>>,
    /// What each object that names a node has put into `needed`.
    sources: HashMap<(Kind, Str, Str), (Str, Vec<Key>)>,
    /// Volumes that are bound.
    volumes: HashMap<Str, Volume>,
    /// The volumes that refer to a secret, by its namespace and name.
    volumes_of_secret: HashMap<(Str, Str), BTreeSet<Str>>,
}

struct Volume {
    claim: (Str, Str),
    secrets: Vec<(Str, Str)>,
}

impl Graph {
    /// Follows a change: created (`old` is none), updated, or deleted (`new` is none).
    pub fn apply(&self, kind: Kind, old: Option<&Value>, new: Option<&Value>) {
        let Some(object) = new.or(old) else { return };
        let (namespace, name) = (Str::from(meta::namespace(object)), Str::from(meta::name(object)));
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if kind == Kind::PersistentVolume {
            state.set_volume(name, new);
            return;
        }
        let node = new.and_then(|new| new.str_at(&["spec", "nodeName"])).unwrap_or_default();
        let source = (kind, namespace.clone(), name.clone());
        state.forget(&source);
        let Some(new) = new.filter(|_| !node.is_empty()) else { return };
        let mut keys = Vec::new();
        let mut add = |object: Object, name: Str| keys.push((object, namespace.clone(), name));
        match kind {
            Kind::Pod => {
                add(Object::Pod, name);
                references::of_pod(new, &mut add);
            }
            Kind::VolumeAttachment => add(Object::Attachment, name),
            Kind::ResourceSlice => add(Object::Slice, name),
            Kind::PodCertificateRequest => add(Object::PodCertificateRequest, name),
            Kind::PersistentVolume => {}
        }
        state.remember(source, node.into(), keys);
    }

    /// Whether a node needs an object.
    pub fn needs(&self, node: &str, object: Object, namespace: &str, name: &str) -> bool {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let (namespace, name) = (Str::from(namespace), Str::from(name));
        match object {
            Object::Volume => state.needs_volume(node, &name),
            Object::Secret => {
                let volumes = state.volumes_of_secret.get(&(namespace.clone(), name.clone()));
                state.needs(node, &(object, namespace, name))
                    || volumes.into_iter().flatten().any(|volume| state.needs_volume(node, volume))
            }
            _ => state.needs(node, &(object, namespace, name)),
        }
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        write!(f, "Graph({} objects)", state.needed.len())
    }
}

impl State {
    fn needs(&self, node: &str, key: &Key) -> bool {
        self.needed.get(key).is_some_and(|nodes| nodes.contains_key(node))
    }

    fn needs_volume(&self, node: &str, volume: &Str) -> bool {
        self.volumes.get(volume).is_some_and(|volume| {
            let (namespace, name) = volume.claim.clone();
            self.needs(node, &(Object::Claim, namespace, name))
        })
    }

    fn remember(&mut self, source: (Kind, Str, Str), node: Str, keys: Vec<Key>) {
        for key in &keys {
            *self.needed.entry(key.clone()).or_default().entry(node.clone()).or_default() += 1;
        }
        self.sources.insert(source, (node, keys));
    }

    fn forget(&mut self, source: &(Kind, Str, Str)) {
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
        self.volumes.insert(name, Volume { claim, secrets });
    }
}
