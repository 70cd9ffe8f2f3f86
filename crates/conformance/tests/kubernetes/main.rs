//! One etcd with Kubernetes: values that kube-apiserver or a newer version stored, and a real kube-apiserver or kube-controller-manager
//! beside this server.
//!
//! The tests with real programs need `PORTCULLIS_KUBERNETES`, a directory with kube-apiserver and kube-controller-manager 1.37.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod kube_apiserver;
mod kube_controller_manager;
mod newer_version;
mod recorded_values;

use std::collections::BTreeMap;
use std::time::Duration;

use conformance::{Client, EtcdProcess, accepts};
use serde_json::Value;

/// The time limit of a step; generous, because test machines are busy.
const PATIENCE: Duration = Duration::from_mins(1);

/// The flags of a server on this etcd that does not run the controllers of kube-controller-manager.
fn without_controllers(etcd: &EtcdProcess) -> [String; 2] {
    [format!("--etcd-servers={}", etcd.url), "--enable-controllers=false".to_owned()]
}

/// The paths of resources, by the `apiVersion` and kind of their objects.
struct ResourcePaths<'c> {
    client: &'c Client,
    /// Resource name and scope, by kind, of the versions that were asked for.
    versions: BTreeMap<String, BTreeMap<String, (String, bool)>>,
}

impl<'c> ResourcePaths<'c> {
    fn new(client: &'c Client) -> ResourcePaths<'c> {
        ResourcePaths { client, versions: BTreeMap::new() }
    }

    /// The path of an object, as discovery names its resource.
    async fn of(&mut self, object: &Value) -> String {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (version, kind) = (text("/apiVersion"), text("/kind"));
        let root = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
        if !self.versions.contains_key(version) {
            let resources = accepts(self.client.get(&root).await).unwrap();
            let row = |resource: &Value| {
                let name = resource["name"].as_str().unwrap();
                let found = (name.to_owned(), resource["namespaced"].as_bool().unwrap());
                (!name.contains('/')).then(|| (resource["kind"].as_str().unwrap().to_owned(), found))
            };
            let rows = resources["resources"].as_array().unwrap().iter().filter_map(row).collect();
            self.versions.insert(version.to_owned(), rows);
        }
        let (resource, is_namespaced) = &self.versions[version][kind];
        let name = text("/metadata/name");
        if *is_namespaced {
            format!("{root}/namespaces/{}/{resource}/{name}", text("/metadata/namespace"))
        } else {
            format!("{root}/{resource}/{name}")
        }
    }
}
