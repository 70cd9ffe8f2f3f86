//! PodNodeSelector and PodTolerationRestriction: restrict the nodes of a namespace's pods. Off by default.

use std::collections::BTreeMap;

use api::validation::fields::At;
use api::{Status, meta};
use value::{Str, Value, json};

use super::resource_quota::is_best_effort;
use super::{namespace, tolerations};
use crate::configuration::document::ConfigDocument;
use crate::{AdmissionAttributes, AdmissionNotes, ClusterView, Operation, Plugin};

const SELECTOR: &str = "scheduler.alpha.kubernetes.io/node-selector";
const DEFAULT_TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/defaultTolerations";
const ALLOWED_TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";
const CLUSTER_DEFAULT: &str = "clusterDefaultNodeSelector";
const MEMORY_PRESSURE: &str = "node.kubernetes.io/memory-pressure";

/// Merges the node selector of the namespace into its pods.
#[derive(Debug, Default)]
pub struct PodNodeSelector {
    /// The `podNodeSelectorPluginConfig`: the cluster default and the selector of each namespace.
    pub selectors: BTreeMap<String, String>,
}

/// Merges the tolerations of the namespace into its pods and rejects tolerations that it does not allow.
#[derive(Clone, Debug, Default)]
pub struct PodTolerationRestriction {
    /// The configuration's `default`, for namespaces without the annotation.
    pub default: Vec<Value>,
    /// The configuration's `whitelist`, for namespaces without the annotation.
    pub allowed: Vec<Value>,
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
        for (key, value) in self.selector_of(&*namespace(attributes, cluster)?)? {
            pod.set_at(&["spec", "nodeSelector", &key], value);
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
        match pod.filter(|_| attributes.creates("", "pods")) {
            Some(pod) => self.check(attributes, pod, cluster),
            None => Ok(()),
        }
    }
}

/// The tolerations in an annotation of the namespace; `None` without the annotation.
fn annotated_tolerations(namespace: &Value, key: &str) -> Result<Option<Vec<Value>>, Status> {
    match namespace.str_at(&["metadata", "annotations", key]) {
        None => Ok(None),
        Some("") => Ok(Some(Vec::new())),
        Some(text) => match json::parse(text.as_bytes()) {
            Ok(Value::List(list)) => Ok(Some(list)),
            Ok(_) => Err(Status::plain(format!("the annotation {key} is not a list of tolerations"))),
            Err(error) => Err(Status::plain(error.to_string())),
        },
    }
}

impl PodTolerationRestriction {
    /// Parses the plugin's configuration. The error is kube-apiserver's.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        const GROUP: &str = "podtolerationrestriction.admission.k8s.io";
        const SCHEME: &str = "k8s.io/kubernetes/plugin/pkg/admission/podtolerationrestriction/config.go:32";
        const OWNER: &str = "Configuration";
        const TOLERATION: &str = "Toleration";
        let document = ConfigDocument::read(bytes)?;
        document.expect_kind(GROUP, &["v1alpha1"], OWNER, SCHEME)?;
        let (root, mut fields) = document.fields();
        let mut lists = [Vec::new(), Vec::new()];
        for (list, name) in lists.iter_mut().zip(["default", "whitelist"]) {
            for (index, toleration) in fields.list(&root, OWNER, name, "[]v1.Toleration").iter().enumerate() {
                let Value::Map(map) = toleration else {
                    fields.type_mismatch(toleration, OWNER, "", name, "v1.Toleration");
                    continue;
                };
                for field in ["key", "operator", "value", "effect"] {
                    fields.text(map, TOLERATION, name, field);
                }
                fields.number(map, TOLERATION, name, "tolerationSeconds", "int64");
                let known = ["effect", "key", "operator", "tolerationSeconds", "value"];
                fields.reject_unknown(map, &format!("{name}[{index}]"), &known);
                list.push(toleration.clone());
            }
        }
        fields.reject_unknown(&root, "", &["apiVersion", "default", "kind", "whitelist"]);
        fields.finish()?;
        let mut errors = Vec::new();
        for (list, name) in lists.iter().zip(["default", "whitelist"]) {
            let root = At::ROOT.field("podtolerationrestriction");
            errors.extend(kinds::validation::tolerations(list, &root.field(name)));
        }
        if !errors.is_empty() {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            return Err(format!("invalid config: [{}]", errors.join(" ")));
        }
        let [default, allowed] = lists;
        Ok(PodTolerationRestriction { default, allowed })
    }

    fn check(
        &self,
        attributes: &AdmissionAttributes<'_>,
        pod: &Value,
        cluster: &dyn ClusterView,
    ) -> Result<(), Status> {
        let own = pod.list_at(&["spec", "tolerations"]);
        if own.is_empty() {
            return Ok(());
        }
        let (allowed, scope) =
            match annotated_tolerations(&*namespace(attributes, cluster)?, ALLOWED_TOLERATIONS)? {
                Some(allowed) => (allowed, "namespace"),
                None => (self.allowed.clone(), "cluster"),
            };
        if tolerations::all_allowed(own, &allowed) {
            return Ok(());
        }
        // kube-apiserver returns this as a plain error, not as a 403.
        Err(Status::plain(format!(
            "pod tolerations (possibly merged with namespace default tolerations) conflict with its {scope} whitelist"
        )))
    }
}

impl Plugin for PodTolerationRestriction {
    fn mutate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        pod: &mut Value,
        cluster: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        if !attributes.writes("", "pods") {
            return Ok(());
        }
        let mut more = Vec::new();
        if attributes.operation == Operation::Create {
            let own = annotated_tolerations(&*namespace(attributes, cluster)?, DEFAULT_TOLERATIONS)?;
            more = own.unwrap_or_else(|| self.default.clone());
        }
        if !is_best_effort(pod) {
            more.push(Value::map([
                ("effect", "NoSchedule"),
                ("key", MEMORY_PRESSURE),
                ("operator", "Exists"),
            ]));
        }
        if !more.is_empty() {
            let merged = tolerations::merge(pod.list_at(&["spec", "tolerations"]), &more);
            pod.set_at(&["spec", "tolerations"], merged);
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
        match pod.filter(|_| attributes.writes("", "pods")) {
            Some(pod) => self.check(attributes, pod, cluster),
            None => Ok(()),
        }
    }
}
