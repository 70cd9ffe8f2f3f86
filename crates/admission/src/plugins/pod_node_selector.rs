//! PodNodeSelector: restricts the nodes of the pods of a namespace. Off by default.

use std::collections::BTreeMap;

use api::{Status, meta};
use value::{Str, Value};

use super::namespace;
use crate::configuration::document::ConfigDocument;
use crate::{AdmissionAttributes, AdmissionNotes, ClusterView, Plugin};

const SELECTOR: &str = "scheduler.alpha.kubernetes.io/node-selector";
const CLUSTER_DEFAULT: &str = "clusterDefaultNodeSelector";

/// Merges the node selector of the namespace into its pods.
#[derive(Debug, Default)]
pub struct PodNodeSelector {
    /// The `podNodeSelectorPluginConfig`: the cluster default and the selector of each namespace.
    pub selectors: BTreeMap<String, String>,
}

/// Parses a node selector such as `a=b,c=d`.
fn labels(selector: &str) -> Result<BTreeMap<String, String>, Status> {
    let parts = selector.split(',').filter(|_| !selector.is_empty());
    parts
        .map(|part| {
            let invalid = || Status::plain(format!("invalid selector: {selector}"));
            let (key, value) = part.split_once('=').filter(|(_, v)| !v.contains('=')).ok_or_else(invalid)?;
            let (key, value) = (key.trim(), value.trim());
            let type_mismatch = api::names::is_qualified_name(key)
                .into_iter()
                .chain(api::names::is_valid_label_value(value))
                .next();
            match type_mismatch {
                Some(why) => Err(Status::plain(why)),
                None => Ok((key.to_owned(), value.to_owned())),
            }
        })
        .collect()
}

impl PodNodeSelector {
    /// Parses `podNodeSelectorPluginConfig`, which has no apiVersion and kind. A file that cannot be read is
    /// an error here; kube-apiserver starts without it.
    pub fn parse(bytes: &[u8]) -> Result<BTreeMap<String, String>, String> {
        const OWNER: &str = "pluginConfig";
        const FIELD: &str = "podNodeSelectorPluginConfig";
        let (root, mut fields) = ConfigDocument::read(bytes)?.fields();
        // Go matches field names without regard to case.
        let known = |key: &&Str| key.eq_ignore_ascii_case(FIELD);
        let key = root.keys().find(known).cloned().unwrap_or_else(|| Str::new_static(FIELD));
        let mut selectors = BTreeMap::new();
        if let Some(given) = fields.object(&root, OWNER, &key, "map[string]string") {
            for name in given.keys() {
                let selector = fields.text(given, OWNER, &key, name);
                labels(&selector).map_err(|status| format!("{key}.{name}: {}", status.message()))?;
                selectors.insert(name.to_string(), selector.to_string());
            }
        }
        // The file can be shared with ImagePolicyWebhook, which also reads it as a whole.
        fields.reject_unknown(&root, "", &["apiVersion", "imagePolicy", "kind", &key]);
        fields.finish()?;
        Ok(selectors)
    }

    fn selector_of(&self, namespace: &Value) -> Result<BTreeMap<String, String>, Status> {
        match namespace.str_at(&["metadata", "annotations", SELECTOR]) {
            Some(selector) => labels(selector),
            None => labels(self.selectors.get(CLUSTER_DEFAULT).map_or("", String::as_str)),
        }
    }

    fn check(
        &self,
        attributes: &AdmissionAttributes<'_>,
        pod: &Value,
        cluster: &dyn ClusterView,
    ) -> Result<(), Status> {
        let own = self.selector_of(&*namespace(attributes, cluster)?)?;
        let refuse = |why: &str| Err(Status::forbidden(&attributes.resource, meta::name(pod), why));
        let chosen = |key: &str| pod.str_at(&["spec", "nodeSelector", key]);
        if own.iter().any(|(key, value)| chosen(key).is_some_and(|chosen| chosen != value)) {
            return refuse("pod node label selector conflicts with its namespace node label selector");
        }
        let allowed = labels(self.selectors.get(attributes.namespace.as_str()).map_or("", String::as_str))?;
        let all = pod.at(&["spec", "nodeSelector"]).and_then(Value::as_map);
        let mut all = all.into_iter().flat_map(value::Map::iter);
        let within = allowed.is_empty()
            || all.all(|(key, value)| allowed.get(key.as_str()).map(String::as_str) == value.as_str());
        if !within {
            return refuse("pod node label selector labels conflict with its namespace whitelist");
        }
        Ok(())
    }
}

impl Plugin for PodNodeSelector {
    fn mutate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        pod: &mut Value,
        cluster: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        if !attributes.creates("", "pods") {
            return Ok(());
        }
        self.check(attributes, pod, cluster)?;
        let added = self.selector_of(&*namespace(attributes, cluster)?)?;
        if !added.is_empty() {
            let added = added.into_iter().map(|(key, value)| (key.into(), value.into()));
            pod.make_map_at(&["spec", "nodeSelector"]).extend(added);
        }
        self.check(attributes, pod, cluster)
    }

    fn validate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        pod: Option<&Value>,
        cluster: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        let pod = pod.filter(|_| attributes.creates("", "pods"));
        pod.map_or(Ok(()), |pod| self.check(attributes, pod, cluster))
    }
}
