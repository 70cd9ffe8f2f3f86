//! ImagePolicyWebhook: one service is asked about the images of every pod. Off unless a flag names it.
//!
//! Kubernetes also writes into the pod that the service could not be asked (`alpha.image-policy.k8s.io/failed-open`), though validation
//! changes nothing; here the audit event alone says so.

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::Status;
use authz::webhook::{Failure, Sender, received};
use value::{Map, Str, TtlCache, Value, format_smolstr, write};

use crate::configuration::document::Document;
use crate::{Attributes, Cluster, Later, Notes, Operation, Seen, Stage};

const VERSION: &str = "imagepolicy.k8s.io/v1alpha1";
const KIND: &str = "ImageReview";
/// What the annotations of a pod have that the service is told.
const TOLD: &str = ".image-policy.k8s.io/";
/// The prefix of audit annotations.
const PREFIX: &str = "imagepolicywebhook.image-policy.k8s.io/";
/// How often the service is asked before it counts as failed; each wait is half as long again as the one before.
const TRIES: u32 = 5;
/// How many answers are kept.
const CAPACITY: usize = 1024;

/// How the plugin is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImagePolicy {
    /// The kubeconfig that says where the service is.
    pub kubeconfig: Str,
    /// How long an approval counts.
    pub allow_ttl: Duration,
    /// How long a refusal counts.
    pub deny_ttl: Duration,
    /// How long to wait before the second try.
    pub backoff: Duration,
    /// Whether pods pass when the service cannot be asked.
    pub default_allow: bool,
}

impl ImagePolicy {
    /// Reads the plugin's configuration, which has no version and no kind.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        const OWNER: &str = "imagePolicyWebhookConfig";
        let (root, mut fields) = Document::read(bytes)?.fields();
        let nothing = Map::new();
        let type_name = format!("imagepolicy.{OWNER}");
        let policy = fields.inside(&root, "AdmissionConfig", "imagePolicy", &type_name).unwrap_or(&nothing);
        let kubeconfig = fields.text(policy, OWNER, "imagePolicy", "kubeConfigFile");
        let [allow, deny, backoff] = ["allowTTL", "denyTTL", "retryBackoff"]
            .map(|name| fields.number(policy, OWNER, "imagePolicy", name, "time.Duration"));
        let default_allow = fields.flag(policy, OWNER, "imagePolicy", "defaultAllow");
        fields.only(
            policy,
            "imagePolicy",
            &["allowTTL", "defaultAllow", "denyTTL", "kubeConfigFile", "retryBackoff"],
        );
        // The file may be shared with the other plugin that once read it whole.
        fields.only(&root, "", &["apiVersion", "imagePolicy", "kind", "podNodeSelectorPluginConfig"]);
        fields.finish()?;
        let half_an_hour = Duration::from_mins(30);
        let second = Duration::from_secs(1);
        Ok(ImagePolicy {
            kubeconfig,
            backoff: within(
                backoff,
                Duration::from_millis(1),
                (Duration::from_nanos(1), Duration::from_mins(5)),
                Duration::from_millis(500),
            )?,
            allow_ttl: within(allow, second, (second, half_an_hour), Duration::from_mins(5))?,
            deny_ttl: within(deny, second, (second, half_an_hour), Duration::from_secs(30))?,
            default_allow,
        })
    }
}

/// A number of `scale`: 0 is the default, -1 is nothing at all.
fn within(
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

/// See the module.
pub struct ImagePolicyWebhook {
    policy: ImagePolicy,
    sender: Arc<dyn Sender>,
    answers: TtlCache<Arc<str>, Answer, Instant>,
}

/// What the service says.
#[derive(Clone, Debug, Default)]
struct Answer {
    allowed: bool,
    reason: Str,
    annotations: Vec<(Str, Str)>,
}

impl ImagePolicyWebhook {
    /// Asks through `sender`.
    pub fn new(policy: ImagePolicy, sender: Arc<dyn Sender>) -> Self {
        ImagePolicyWebhook { policy, sender, answers: TtlCache::new(CAPACITY) }
    }

    async fn review(
        &self,
        attributes: &Attributes<'_>,
        pod: &Value,
        notes: &mut Notes,
    ) -> Result<(), Status> {
        let spec = spec(attributes, pod);
        let key = write::to_string(&spec);
        let answer = match self.answers.get(key.as_str(), self.sender.now()) {
            Some(answer) => answer,
            None => match self.ask(spec).await {
                Ok(answer) => {
                    self.cache(key, &answer);
                    answer
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
        for (key, value) in &answer.annotations {
            notes.annotate(format_smolstr!("{PREFIX}{key}"), value.as_str());
        }
        if answer.allowed {
            return Ok(());
        }
        Err(attributes.refuse(
            Some(pod),
            if answer.reason.is_empty() {
                "one or more images rejected by webhook backend".to_owned()
            } else {
                format!("image policy webhook backend denied one or more images: {}", answer.reason)
            },
        ))
    }

    fn cache(&self, key: String, answer: &Answer) {
        let ttl = if answer.allowed { self.policy.allow_ttl } else { self.policy.deny_ttl };
        let now = self.sender.now();
        if let Some(until) = now.checked_add(ttl) {
            self.answers.insert(key.into(), answer.clone(), now..until);
        }
    }

    async fn ask(&self, spec: Value) -> Result<Answer, String> {
        let review = Value::map([
            ("apiVersion", Value::from(VERSION)),
            ("kind", Value::from(KIND)),
            ("metadata", Value::Map(Map::new())),
            ("spec", spec),
            ("status", Value::map([("allowed", false)])),
        ]);
        let body = write::to_vec(&review);
        let mut pause = self.policy.backoff;
        let mut tries = 1;
        loop {
            let outcome = received(self.sender.send(&body).await);
            match outcome {
                Ok(object) => return read(&object),
                Err(Failure { may_pass, .. }) if may_pass && tries < TRIES => {
                    self.sender.pause(pause).await;
                    pause = pause * 3 / 2;
                    tries += 1;
                }
                Err(failure) => return Err(failure.message),
            }
        }
    }
}

/// What the service is told of a pod.
fn spec(attributes: &Attributes<'_>, pod: &Value) -> Value {
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
        .filter(|(key, _)| key.contains(TOLD))
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

/// An answer, if it is one.
fn read(review: &Value) -> Result<Answer, String> {
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
    let wrong = |value: &Value, owner: &str, path: &str, wanted: &str| {
        let found = value.json_type();
        format!("json: cannot unmarshal {found} into Go struct field {owner}.{path} of type {wanted}")
    };
    let status = match review.get("status") {
        None | Some(Value::Null) => return Ok(Answer::default()),
        Some(Value::Map(status)) => status,
        Some(other) => return Err(wrong(other, KIND, "status", "v1alpha1.ImageReviewStatus")),
    };
    let allowed = match status.get("allowed") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(allowed)) => *allowed,
        Some(other) => return Err(wrong(other, OWNER, "status.allowed", "bool")),
    };
    let reason = match status.get("reason") {
        None | Some(Value::Null) => Str::default(),
        Some(Value::String(reason)) => reason.clone(),
        Some(other) => return Err(wrong(other, OWNER, "status.reason", "string")),
    };
    let mut annotations = Vec::new();
    match status.get("auditAnnotations") {
        None | Some(Value::Null) => {}
        Some(Value::Map(map)) => {
            for (key, value) in map.iter() {
                let Value::String(value) = value else {
                    return Err(wrong(value, OWNER, "status.auditAnnotations", "string"));
                };
                annotations.push((key.clone(), value.clone()));
            }
        }
        Some(other) => return Err(wrong(other, OWNER, "status.auditAnnotations", "map[string]string")),
    }
    Ok(Answer { allowed, reason, annotations })
}

impl Stage for ImagePolicyWebhook {
    fn validate<'a>(
        &'a self,
        attributes: &'a Attributes<'_>,
        object: &'a Seen<'_>,
        _: &'a dyn Cluster,
        notes: &'a mut Notes,
    ) -> Later<'a, Result<(), Status>> {
        let written = matches!(attributes.operation, Operation::Create | Operation::Update);
        let about = matches!(attributes.subresource.as_str(), "" | "ephemeralcontainers")
            && attributes.resource.group.is_empty()
            && attributes.resource.resource == "pods";
        match object.stored().filter(|_| written && about) {
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
