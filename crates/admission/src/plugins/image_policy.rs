//! ImagePolicyWebhook: asks a remote service about the images of every pod. Off by default.
//!
//! kube-apiserver also records in the pod itself that the service could not be asked
//! (`alpha.image-policy.k8s.io/failed-open`), although it does so during validation. Here only the audit
//! event says so.

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::Status;
use authz::webhook::{ReviewTransport, decode_object, send_with_retries};
use value::{Map, Str, TtlCache, Value, format_smolstr, write};

use crate::configuration::document::ConfigDocument;
use crate::{
    AdmissionAttributes, AdmissionFuture, AdmissionNotes, AsyncPlugin, ClusterView, VersionedObject,
};

const VERSION: &str = "imagepolicy.k8s.io/v1alpha1";
const KIND: &str = "ImageReview";
/// Annotations of the pod whose key contains this are sent to the service.
const FORWARDED_ANNOTATIONS: &str = ".image-policy.k8s.io/";
/// The prefix of audit annotations.
const PREFIX: &str = "imagepolicywebhook.image-policy.k8s.io/";
/// The maximum number of cached responses.
const CAPACITY: usize = 1024;

/// The configuration of ImagePolicyWebhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImagePolicy {
    /// The kubeconfig with the address and credentials of the service.
    pub kubeconfig: Str,
    /// How long an approval is cached.
    pub allow_ttl: Duration,
    /// How long a denial is cached.
    pub deny_ttl: Duration,
    /// The delay before the first retry.
    pub backoff: Duration,
    /// Whether pods are admitted if the service cannot be asked.
    pub default_allow: bool,
}

impl ImagePolicy {
    /// Parses the configuration, which has no apiVersion and kind.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        const OWNER: &str = "imagePolicyWebhookConfig";
        let (root, mut fields) = ConfigDocument::read(bytes)?.fields();
        let absent = Map::new();
        let type_name = format!("imagepolicy.{OWNER}");
        let policy = fields.object(&root, "AdmissionConfig", "imagePolicy", &type_name).unwrap_or(&absent);
        let kubeconfig = fields.text(policy, OWNER, "imagePolicy", "kubeConfigFile");
        let [allow, deny, backoff] = ["allowTTL", "denyTTL", "retryBackoff"]
            .map(|name| fields.number(policy, OWNER, "imagePolicy", name, "time.Duration"));
        let default_allow = fields.flag(policy, OWNER, "imagePolicy", "defaultAllow");
        fields.reject_unknown(
            policy,
            "imagePolicy",
            &["allowTTL", "defaultAllow", "denyTTL", "kubeConfigFile", "retryBackoff"],
        );
        // The file can be shared with PodNodeSelector, which also reads it as a whole.
        fields.reject_unknown(
            &root,
            "",
            &["apiVersion", "imagePolicy", "kind", "podNodeSelectorPluginConfig"],
        );
        fields.finish()?;
        let half_an_hour = Duration::from_mins(30);
        let second = Duration::from_secs(1);
        Ok(ImagePolicy {
            kubeconfig,
            backoff: duration_or_default(
                backoff,
                Duration::from_millis(1),
                (Duration::from_nanos(1), Duration::from_mins(5)),
                Duration::from_millis(500),
            )?,
            allow_ttl: duration_or_default(allow, second, (second, half_an_hour), Duration::from_mins(5))?,
            deny_ttl: duration_or_default(deny, second, (second, half_an_hour), Duration::from_secs(30))?,
            default_allow,
        })
    }
}

/// Converts a number in units of `scale`: 0 means the default, -1 means zero.
fn duration_or_default(
    number: i64,
    scale: Duration,
    (least, most): (Duration, Duration),
    default: Duration,
) -> Result<Duration, String> {
    match number {
        -1 => return Ok(Duration::ZERO),
        0 => return Ok(default),
        _ => {}
    }
    let nanos = i128::from(number).saturating_mul(i128::try_from(scale.as_nanos()).unwrap_or(i128::MAX));
    let found = u64::try_from(nanos).ok().map(Duration::from_nanos);
    found.filter(|found| (least..=most).contains(found)).ok_or_else(|| {
        let shown = |nanos: i128| {
            api::time::format_duration(i64::try_from(nanos).unwrap_or(if nanos < 0 {
                i64::MIN
            } else {
                i64::MAX
            }))
        };
        let of = |duration: Duration| shown(i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX));
        format!("valid value is between {} and {}, got {}", of(least), of(most), shown(nanos))
    })
}

pub struct ImagePolicyWebhook {
    policy: ImagePolicy,
    sender: Arc<dyn ReviewTransport>,
    answers: TtlCache<Arc<str>, ImageReviewStatus, Instant>,
}

#[derive(Clone, Debug, Default)]
struct ImageReviewStatus {
    allowed: bool,
    reason: Str,
    annotations: Vec<(Str, Str)>,
}

impl ImagePolicyWebhook {
    pub fn new(policy: ImagePolicy, sender: Arc<dyn ReviewTransport>) -> Self {
        ImagePolicyWebhook { policy, sender, answers: TtlCache::new(CAPACITY) }
    }

    async fn review(
        &self,
        attributes: &AdmissionAttributes<'_>,
        pod: &Value,
        notes: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        let spec = spec(attributes, pod);
        let key = write::to_string(&spec);
        let status = match self.answers.get(key.as_str(), self.sender.now()) {
            Some(status) => status,
            None => match self.send_review(spec).await {
                Ok(status) => {
                    self.cache(key, &status);
                    status
                }
                Err(why) => {
                    if self.policy.default_allow {
                        notes.annotate(format_smolstr!("{PREFIX}failed-open"), "true");
                        return Ok(());
                    }
                    return Err(attributes.refuse(Some(pod), why));
                }
            },
        };
        for (key, value) in &status.annotations {
            notes.annotate(format_smolstr!("{PREFIX}{key}"), value.as_str());
        }
        if status.allowed {
            return Ok(());
        }
        Err(attributes.refuse(
            Some(pod),
            if status.reason.is_empty() {
                "one or more images rejected by webhook backend".to_owned()
            } else {
                format!("image policy webhook backend denied one or more images: {}", status.reason)
            },
        ))
    }

    fn cache(&self, key: String, status: &ImageReviewStatus) {
        let ttl = if status.allowed { self.policy.allow_ttl } else { self.policy.deny_ttl };
        let now = self.sender.now();
        if let Some(until) = now.checked_add(ttl) {
            self.answers.insert(key.into(), status.clone(), now..until);
        }
    }

    async fn send_review(&self, spec: Value) -> Result<ImageReviewStatus, String> {
        let review = Value::map([
            ("apiVersion", Value::from(VERSION)),
            ("kind", Value::from(KIND)),
            ("metadata", Value::Map(Map::new())),
            ("spec", spec),
            ("status", Value::map([("allowed", false)])),
        ]);
        let body = write::to_vec(&review);
        let decode = |sent, _| decode_object(sent);
        let object = send_with_retries(&*self.sender, &body, self.policy.backoff, decode)
            .await
            .map_err(|failure| failure.message)?;
        read(&object)
    }
}

/// The `spec` of the `ImageReview` of a pod.
fn spec(attributes: &AdmissionAttributes<'_>, pod: &Value) -> Value {
    let lists: &[&str] = if attributes.subresource.is_empty() {
        &["containers", "initContainers"]
    } else {
        &["ephemeralContainers"]
    };
    let containers: Vec<Value> = lists
        .iter()
        .flat_map(|list| pod.list_at(&["spec", list]))
        .map(|container| {
            let image = container.str_at(&["image"]).filter(|image| !image.is_empty());
            Value::Map(
                image.map(|image| (Str::new_static("image"), Value::from(image))).into_iter().collect(),
            )
        })
        .collect();
    let annotations = pod.at(&["metadata", "annotations"]).and_then(Value::as_map);
    let annotations: Map = annotations
        .into_iter()
        .flat_map(Map::iter)
        .filter(|(key, _)| key.contains(FORWARDED_ANNOTATIONS))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let mut spec = Map::new();
    if !annotations.is_empty() {
        spec.insert("annotations", Value::Map(annotations));
    }
    if !containers.is_empty() {
        spec.insert("containers", Value::List(containers));
    }
    spec.insert("namespace", attributes.namespace.as_str());
    Value::Map(spec)
}

/// Decodes the `status` of a returned `ImageReview`.
fn read(review: &Value) -> Result<ImageReviewStatus, String> {
    const OWNER: &str = "ImageReviewStatus";
    let text = |field: &str, default: &'static str| {
        review.str_at(&[field]).filter(|text| !text.is_empty()).unwrap_or(default).to_owned()
    };
    let (version, kind) = (text("apiVersion", VERSION), text("kind", KIND));
    if (version.as_str(), kind.as_str()) != (VERSION, KIND) {
        return Err(format!(
            "no kind {} is registered for version {} in scheme \"k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30\"",
            api::field::quote(&kind),
            api::field::quote(&version)
        ));
    }
    let type_mismatch = |value: &Value, owner: &str, path: &str, wanted: &str| {
        let found = value.json_type();
        format!("json: cannot unmarshal {found} into Go struct field {owner}.{path} of type {wanted}")
    };
    let status = match review.get("status") {
        None | Some(Value::Null) => return Ok(ImageReviewStatus::default()),
        Some(Value::Map(status)) => status,
        Some(other) => return Err(type_mismatch(other, KIND, "status", "v1alpha1.ImageReviewStatus")),
    };
    let allowed = match status.get("allowed") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(allowed)) => *allowed,
        Some(other) => return Err(type_mismatch(other, OWNER, "status.allowed", "bool")),
    };
    let reason = match status.get("reason") {
        None | Some(Value::Null) => Str::default(),
        Some(Value::String(reason)) => reason.clone(),
        Some(other) => return Err(type_mismatch(other, OWNER, "status.reason", "string")),
    };
    let mut annotations = Vec::new();
    match status.get("auditAnnotations") {
        None | Some(Value::Null) => {}
        Some(Value::Map(map)) => {
            for (key, value) in map.iter() {
                let Value::String(value) = value else {
                    return Err(type_mismatch(value, OWNER, "status.auditAnnotations", "string"));
                };
                annotations.push((key.clone(), value.clone()));
            }
        }
        Some(other) => {
            return Err(type_mismatch(other, OWNER, "status.auditAnnotations", "map[string]string"));
        }
    }
    Ok(ImageReviewStatus { allowed, reason, annotations })
}

impl AsyncPlugin for ImagePolicyWebhook {
    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'_>,
        object: &'a VersionedObject<'_>,
        _: &'a dyn ClusterView,
        notes: &'a mut AdmissionNotes,
    ) -> AdmissionFuture<'a, Result<(), Status>> {
        let about = attributes.operation.is_write()
            && matches!(attributes.subresource.as_str(), "" | "ephemeralcontainers")
            && attributes.resource.group.is_empty()
            && attributes.resource.resource == "pods";
        match object.stored().filter(|_| about) {
            None => Box::pin(std::future::ready(Ok(()))),
            Some(pod) => Box::pin(self.review(attributes, pod, notes)),
        }
    }
}

impl std::fmt::Debug for ImagePolicyWebhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ImagePolicyWebhook").field(&self.policy).finish()
    }
}

#[cfg(test)]
mod tests;
