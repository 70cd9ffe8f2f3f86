//! PodTolerationRestriction: sets and restricts the tolerations of the pods of a namespace. Off by default.

use api::Status;
use api::validation::fields::At;
use value::{Value, json};

use super::resource_quota::is_best_effort;
use super::{namespace, tolerations};
use crate::configuration::document::ConfigDocument;
use crate::{AdmissionAttributes, AdmissionNotes, ClusterView, Operation, Plugin};

const DEFAULT_TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/defaultTolerations";
const ALLOWED_TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";
const MEMORY_PRESSURE: &str = "node.kubernetes.io/memory-pressure";

/// Merges the tolerations of the namespace into its pods and rejects tolerations that it does not allow.
#[derive(Clone, Debug, Default)]
pub struct PodTolerationRestriction {
    /// The configuration's `default`, for namespaces without the annotation.
    pub default: Vec<Value>,
    /// The configuration's `whitelist`, for namespaces without the annotation.
    pub allowed: Vec<Value>,
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
        let pod = pod.filter(|_| attributes.writes("", "pods"));
        pod.map_or(Ok(()), |pod| self.check(attributes, pod, cluster))
    }
}
