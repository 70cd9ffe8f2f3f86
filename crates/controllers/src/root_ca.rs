//! Publishes the ConfigMap `kube-root-ca.crt` in each active namespace, with which pods verify the server's certificate.

use std::sync::Arc;
use std::time::Duration;

use api::Status;
use tokio::sync::watch;
use value::{Str, Value};

use crate::api::{Api, ObjectChange, ResourceKind, WatchSource, object};
use crate::drive::{self, Controller, ReconcileOutcome};

pub(crate) const NAME: &str = "root-ca-cert-publisher";

const CONFIG_MAP: &str = "kube-root-ca.crt";
const KEY: &str = "ca.crt";
const DESCRIPTION: &str = "kubernetes.io/description";
const DESCRIPTION_TEXT: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.";

struct RootCa<A> {
    api: Arc<A>,
    pem: String,
    namespaces: Arc<ResourceKind>,
    config_maps: Arc<ResourceKind>,
}

pub(crate) async fn run<A: Api>(api: Arc<A>, pem: String, stop: watch::Receiver<bool>) {
    let (Some(namespaces), Some(config_maps)) = (api.kind("v1", "Namespace"), api.kind("v1", "ConfigMap"))
    else {
        return;
    };
    let sources = vec![
        WatchSource::Kind(Arc::clone(&namespaces)),
        WatchSource::Named(Arc::clone(&config_maps), CONFIG_MAP.into()),
    ];
    let controller = RootCa { api: Arc::clone(&api), pem, namespaces, config_maps };
    drive::run(controller, api, sources, stop).await;
}

impl<A: Api> Controller for RootCa<A> {
    /// The name of a namespace.
    type Key = Str;
    const NAME: &'static str = NAME;
    const WORKERS: usize = 5;

    fn observe(&self, change: &ObjectChange) -> Vec<(Str, Duration)> {
        let object_ref = &change.object_ref;
        match (object_ref.kind == self.namespaces, change.deleted) {
            (true, true) => Vec::new(),
            (true, false) => vec![(object_ref.name.clone(), Duration::ZERO)],
            (false, _) => vec![(object_ref.namespace.clone(), Duration::ZERO)],
        }
    }

    async fn reconcile(&self, namespace: Str) -> Result<ReconcileOutcome<Str>, Status> {
        let there = self.api.get(&self.namespaces.object_ref("", &namespace))?;
        let object_ref = self.config_maps.object_ref(&namespace, CONFIG_MAP);
        let stored = self.api.get(&object_ref)?;
        match needed_write(there.as_ref(), stored, &self.pem, &self.config_maps, &namespace) {
            ConfigMapWrite::Nothing => {}
            ConfigMapWrite::Create(object) => {
                self.api.create_if_absent(&self.config_maps, &namespace, &object).await?;
            }
            ConfigMapWrite::Update(object) => drop(self.api.update(&object_ref, "", &object).await?),
        }
        Ok(ReconcileOutcome::Done)
    }
}

#[derive(Debug, PartialEq)]
enum ConfigMapWrite {
    Nothing,
    Create(Value),
    Update(Value),
}

/// Decides the write that publishes the certificate in the namespace. An update preserves the rest of the object.
fn needed_write(
    namespace: Option<&Value>,
    stored: Option<Value>,
    pem: &str,
    kind: &ResourceKind,
    namespace_name: &str,
) -> ConfigMapWrite {
    if namespace.and_then(|n| n.str_at(&["status", "phase"])) != Some("Active") {
        return ConfigMapWrite::Nothing;
    }
    let data = Value::map([(KEY, pem)]);
    let Some(mut object) = stored else {
        let mut object = object(kind, namespace_name, CONFIG_MAP);
        object.set_at(&["metadata", "annotations", DESCRIPTION], DESCRIPTION_TEXT);
        object.set_at(&["data"], data);
        return ConfigMapWrite::Create(object);
    };
    let described =
        object.str_at(&["metadata", "annotations", DESCRIPTION]).is_some_and(|text| !text.is_empty());
    if described && object.at(&["data"]) == Some(&data) {
        return ConfigMapWrite::Nothing;
    }
    object.set_at(&["metadata", "annotations", DESCRIPTION], DESCRIPTION_TEXT);
    object.set_at(&["data"], data);
    ConfigMapWrite::Update(object)
}

#[cfg(test)]
mod tests;
