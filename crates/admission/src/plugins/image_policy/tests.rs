use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use api::{GroupResource, GroupVersionKind};
use authn::User;
use authz::webhook::{AuthorizationFuture, SendError, WebhookResponse};
use value::{json, yaml};

use super::*;
use crate::fake_cluster::FakeCluster;

/// Responds with a fixed result and records the reviews.
struct Scripted {
    answer: Result<WebhookResponse, SendError>,
    context: Mutex<Vec<Value>>,
    pauses: AtomicUsize,
    start: Instant,
    /// The current time, in seconds since `start`.
    now: AtomicUsize,
}

impl Scripted {
    fn new(answer: Result<WebhookResponse, SendError>) -> Arc<Self> {
        let (pauses, now) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Scripted { answer, context: Mutex::default(), pauses, start: Instant::now(), now })
    }

    fn saying(status: &str) -> Arc<Self> {
        let body = format!(r#"{{"apiVersion":"{VERSION}","kind":"ImageReview","status":{status}}}"#);
        Self::new(Ok(WebhookResponse { status: 200, body: body.into_bytes(), ..WebhookResponse::default() }))
    }

    fn times_asked(&self) -> usize {
        self.context.lock().unwrap().len()
    }
}

impl ReviewTransport for Scripted {
    fn send<'a>(&'a self, review: &'a [u8]) -> AuthorizationFuture<'a, Result<WebhookResponse, SendError>> {
        self.context.lock().unwrap().push(json::parse(review).unwrap());
        Box::pin(std::future::ready(self.answer.clone()))
    }

    fn pause(&self, _: Duration) -> AuthorizationFuture<'_, ()> {
        self.pauses.fetch_add(1, Ordering::Relaxed);
        Box::pin(std::future::ready(()))
    }

    fn now(&self) -> Instant {
        self.start + Duration::from_secs(self.now.load(Ordering::Relaxed) as u64)
    }
}

const POD: &str = "{metadata: {name: p, annotations: {a: b, x.image-policy.k8s.io/ticket: '7'}}, spec: {containers: [{image: a:1}], initContainers: [{image: i:1}], ephemeralContainers: [{image: e:1}]}}";

fn configured(rest: &str) -> ImagePolicy {
    ImagePolicy::parse(format!("imagePolicy: {{kubeConfigFile: /k, {rest}}}").as_bytes()).unwrap()
}

fn ask(
    plugin: &ImagePolicyWebhook,
    resource: &str,
    subresource: &str,
    notes: &mut AdmissionNotes,
) -> Result<(), String> {
    let (user, options) = (User::named("ann"), Value::Null);
    let kind = GroupVersionKind::new("", "v1", "Pod");
    let attributes = AdmissionAttributes {
        user: &user,
        operation: crate::Operation::Create,
        kind: kind.clone(),
        stored_kind: kind,
        resource: GroupResource::new("", resource),
        version: "v1".into(),
        subresource: subresource.into(),
        namespace: "team".into(),
        name: "p".into(),
        old_object: VersionedObject::absent(),
        options: &options,
        dry_run: false,
        now: 0,
        deadline: None,
        budget: value::Budget::UNLIMITED,
        snapshot: crate::AdmissionSnapshot::default(),
    };
    let pod = yaml::read(POD.as_bytes()).unwrap().value;
    let (seen, cluster) = (VersionedObject::new(Some(&pod)), FakeCluster::default());
    let mut outcome = plugin.validate(&attributes, &seen, &cluster, notes);
    match outcome.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome.map_err(|status| format!("{} {}", status.code(), status.message())),
        Poll::Pending => panic!("it waits"),
    }
}

#[test]
fn the_review_has_images_annotations_and_the_namespace() {
    let service = Scripted::saying(r#"{"allowed":true,"auditAnnotations":{"ticket":"seen"}}"#);
    let plugin = ImagePolicyWebhook::new(configured(""), Arc::clone(&service) as _);
    let mut notes = AdmissionNotes::default();
    assert_eq!(ask(&plugin, "pods", "", &mut notes), Ok(()));
    assert_eq!(ask(&plugin, "pods", "ephemeralcontainers", &mut notes), Ok(()));
    assert_eq!(ask(&plugin, "pods", "status", &mut notes), Ok(()));
    assert_eq!(ask(&plugin, "configmaps", "", &mut notes), Ok(()));
    let context = service.context.lock().unwrap();
    let specs: Vec<String> =
        context.iter().map(|review| write::to_string(review.get("spec").unwrap())).collect();
    assert_eq!(
        specs,
        [
            r#"{"annotations":{"x.image-policy.k8s.io/ticket":"7"},"containers":[{"image":"a:1"},{"image":"i:1"}],"namespace":"team"}"#,
            r#"{"annotations":{"x.image-policy.k8s.io/ticket":"7"},"containers":[{"image":"e:1"}],"namespace":"team"}"#,
        ]
    );
    assert_eq!(notes.annotations[0].key, "imagepolicywebhook.image-policy.k8s.io/ticket");
}

#[test]
fn a_denial_is_reported_and_cached() {
    let service = Scripted::saying(r#"{"allowed":false,"reason":"not signed"}"#);
    let plugin = ImagePolicyWebhook::new(configured("denyTTL: 10"), Arc::clone(&service) as _);
    let refused = Err(
        "403 pods \"p\" is forbidden: image policy webhook backend denied one or more images: not signed"
            .to_owned(),
    );
    assert_eq!(ask(&plugin, "pods", "", &mut AdmissionNotes::default()), refused);
    assert_eq!(ask(&plugin, "pods", "", &mut AdmissionNotes::default()), refused);
    assert_eq!(service.times_asked(), 1);
    service.now.store(11, Ordering::Relaxed);
    assert_eq!(ask(&plugin, "pods", "", &mut AdmissionNotes::default()), refused);
    assert_eq!(service.times_asked(), 2);

    let silent = Scripted::saying(r#"{"allowed":false}"#);
    let plugin = ImagePolicyWebhook::new(configured("denyTTL: -1"), Arc::clone(&silent) as _);
    for _ in 0..2 {
        assert_eq!(
            ask(&plugin, "pods", "", &mut AdmissionNotes::default()),
            Err("403 pods \"p\" is forbidden: one or more images rejected by webhook backend".to_owned())
        );
    }
    assert_eq!(silent.times_asked(), 2);
}

#[test]
fn failing_image_policy_webhook_denies_unless_default_allow_is_set() {
    let broken = || Scripted::new(Ok(WebhookResponse { status: 500, ..WebhookResponse::default() }));
    let service = broken();
    let plugin = ImagePolicyWebhook::new(configured(""), Arc::clone(&service) as _);
    let why = ask(&plugin, "pods", "", &mut AdmissionNotes::default()).unwrap_err();
    assert!(why.starts_with("403 pods \"p\" is forbidden: an error on the server"), "{why}");
    assert_eq!((service.times_asked(), service.pauses.load(Ordering::Relaxed)), (5, 4));

    let plugin = ImagePolicyWebhook::new(configured("defaultAllow: true"), broken() as _);
    let mut notes = AdmissionNotes::default();
    assert_eq!(ask(&plugin, "pods", "", &mut notes), Ok(()));
    assert_eq!(notes.annotations[0].key, "imagepolicywebhook.image-policy.k8s.io/failed-open");

    for status in ["[]", r#"{"allowed":"yes"}"#] {
        let plugin = ImagePolicyWebhook::new(configured(""), Scripted::saying(status) as _);
        let why = ask(&plugin, "pods", "", &mut AdmissionNotes::default()).unwrap_err();
        assert!(why.contains("json: cannot unmarshal"), "{why}");
    }
}

#[test]
fn the_configuration_is_read_strictly() {
    let defaults = configured("");
    assert_eq!(defaults.allow_ttl, Duration::from_mins(5));
    assert_eq!(defaults.deny_ttl, Duration::from_secs(30));
    assert_eq!(defaults.backoff, Duration::from_millis(500));
    assert!(!defaults.default_allow);
    let refused = |rest: &str| {
        ImagePolicy::parse(format!("imagePolicy: {{kubeConfigFile: /k, {rest}}}").as_bytes()).unwrap_err()
    };
    assert_eq!(refused("allowTTL: 1801"), "valid value is between 1s and 30m0s, got 30m1s");
    assert_eq!(
        refused("defaultAlow: false"),
        "strict decoding error: unknown field \"imagePolicy.defaultAlow\""
    );
    assert_eq!(
        refused("defaultAllow: 1"),
        "json: cannot unmarshal number into Go struct field imagePolicyWebhookConfig.imagePolicy.defaultAllow of type bool"
    );
}
