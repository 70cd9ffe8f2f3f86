//! Runs every page `spec/webhook_*.md` as a test. The code blocks of a page are:
//!
//! - `webhooks`: webhook configurations to register. One with the name of an earlier one replaces it; one without webhooks
//!   removes it.
//! - `answers`: the responses of the webhooks, by name.
//! - `request`: a request, and `result`: whether it is admitted, which webhooks were called, warnings and annotations.

#![expect(clippy::unwrap_used, clippy::panic, reason = "this is a test")]

mod cluster;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use admission::webhook::{
    MutatingWebhooks, OutgoingReview, Transport, TransportError, ValidatingWebhooks, WebhookEndpoint,
    WebhookReply, WebhookSet,
};
use admission::{
    AdmissionAttributes, AdmissionFuture, AdmissionNotes, AdmissionSnapshot, AuditLevel, ChainConfig,
    NoMetrics, Operation, PluginChain, VersionedObject,
};
use api::attestation::WebhookConfigurationKind;
use api::{GroupResource, Status};
use authn::User;
use base64::Engine as _;
use pages::{Page, pages};
use value::{Str, Value, json, write, yaml};

use cluster::{FakeCluster, wait};

pages!(
    check, "webhook_":
    webhook_answers,
    webhook_failures,
    webhook_mutation,
    webhook_reinvocation,
    webhook_review,
    webhook_selection,
);

/// Namespaces `team` (`env: prod`) and `lab` (`env: test`); `admin` may do everything. Only late requests have a deadline here.
fn fake_cluster() -> FakeCluster {
    let namespaces = [("team", "prod"), ("lab", "test")].map(|(name, env)| {
        read(&format!(
            "{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}, labels: {{env: {env}}}}}}}"
        ))
    });
    FakeCluster { may: |user, _| user.name == "admin", patience: 0, ..namespaces.into_iter().collect() }
}

/// Responds for the webhooks as the page defines, and records the reviews.
#[derive(Default)]
struct Scripted {
    answers: Mutex<BTreeMap<String, Value>>,
    calls: Mutex<Vec<(String, Value, String)>>,
}

impl Transport for Scripted {
    fn send<'a>(
        &'a self,
        outgoing: OutgoingReview<'a>,
    ) -> AdmissionFuture<'a, Result<WebhookReply, TransportError>> {
        let name = match &outgoing.target.endpoint {
            WebhookEndpoint::Url(url) => url.rsplit('/').next().unwrap().to_owned(),
            WebhookEndpoint::Service { name, .. } => name.to_string(),
            WebhookEndpoint::Unset => panic!("a webhook without an address"),
        };
        let review = json::parse(&outgoing.body).unwrap();
        let seconds = outgoing.timeout.map(|timeout| format!("{}s", timeout.as_secs())).unwrap_or_default();
        let answer = self.answers.lock().unwrap().get(&name).cloned().unwrap_or_default();
        let reply = answer_to(&review, &answer);
        self.calls.lock().unwrap().push((name, review, seconds));
        Box::pin(std::future::ready(reply))
    }

    fn new_uid(&self) -> Str {
        Str::new_static("uid-1")
    }
}

fn answer_to(review: &Value, answer: &Value) -> Result<WebhookReply, TransportError> {
    let text = |field: &str| answer.str_at(&[field]);
    if let Some(why) = text("unreachable") {
        return Err(TransportError::Failed(why.to_owned()));
    }
    if let Some(why) = text("unusable") {
        return Err(TransportError::Unusable(why.to_owned()));
    }
    let status = u16::try_from(answer.int_at(&["http"]).unwrap_or(200)).unwrap();
    let content_type = text("contentType").unwrap_or("application/json").to_owned();
    if let Some(body) = text("body") {
        return Ok(WebhookReply { status, content_type, body: body.as_bytes().to_vec() });
    }
    let mut response = Value::map([("uid", "uid-1")]);
    response.set_at(&["allowed"], true);
    let keep = ["http", "contentType", "patch", "rawPatch", "append", "apiVersion", "kind"];
    for (key, value) in answer.as_map().into_iter().flat_map(value::Map::iter) {
        if !keep.contains(&key.as_str()) {
            response.set_at(&[key], value.clone());
        }
    }
    let encode = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
    let append = text("append").map(|letter| {
        let before = review.str_at(&["request", "object", "data", "order"]).unwrap_or_default();
        let path = if before.is_empty() { "/data" } else { "/data/order" };
        let value = if before.is_empty() {
            Value::map([("order", letter)])
        } else {
            Value::from(format!("{before}{letter}"))
        };
        write::to_vec(&Value::list([Value::map([
            ("op", Value::from("add")),
            ("path", path.into()),
            ("value", value),
        ])]))
    });
    let patch = append
        .or_else(|| answer.get("patch").map(write::to_vec))
        .or_else(|| text("rawPatch").map(|raw| raw.as_bytes().to_vec()));
    if let Some(patch) = patch {
        response.set_at(&["patch"], encode(&patch));
        if response.get("patchType").is_none() {
            response.set_at(&["patchType"], "JSONPatch");
        } else if response.get("patchType").is_some_and(Value::is_null) {
            response.remove_at(&["patchType"]);
        }
    }
    let mut out = Value::map([(
        "apiVersion",
        text("apiVersion").map_or_else(|| review.str_at(&["apiVersion"]).unwrap().to_owned(), str::to_owned),
    )]);
    out.set_at(&["kind"], text("kind").unwrap_or("AdmissionReview"));
    out.set_at(&["response"], response);
    Ok(WebhookReply { status, content_type, body: write::to_vec(&out) })
}

fn read(text: &str) -> Value {
    yaml::read(text.as_bytes()).unwrap().value
}

/// The state that the blocks of a page have set up so far.
struct World {
    mutating: Arc<WebhookSet>,
    validating: Arc<WebhookSet>,
    transport: Arc<Scripted>,
    cluster: FakeCluster,
    chain: PluginChain,
}

impl World {
    fn new() -> Self {
        let set = |kind| Arc::new(WebhookSet::new(kind));
        let mutating = set(WebhookConfigurationKind::Mutating);
        let validating = set(WebhookConfigurationKind::Validating);
        let transport = Arc::new(Scripted::default());
        let metrics = Arc::new(NoMetrics);
        let stages = ChainConfig {
            mutating_webhooks: Some(Arc::new(MutatingWebhooks::new(
                Arc::clone(&mutating),
                Arc::clone(&transport) as _,
                Arc::clone(&metrics) as _,
            ))),
            validating_webhooks: Some(Arc::new(ValidatingWebhooks::new(
                Arc::clone(&validating),
                Arc::clone(&transport) as _,
                metrics,
            ))),
            ..ChainConfig::default()
        };
        let off: Vec<String> = PluginChain::new(&[], &[], &stages)
            .unwrap()
            .plugins()
            .filter(|name| !name.ends_with("AdmissionWebhook"))
            .map(str::to_owned)
            .collect();
        let chain = PluginChain::new(&[], &off, &stages).unwrap();
        World { mutating, validating, transport, cluster: fake_cluster(), chain }
    }

    fn register(&self, text: &str) {
        for document in yaml::documents(text.as_bytes()).unwrap() {
            let mut configuration = document.value;
            let set = match configuration.str_at(&["kind"]) {
                Some("MutatingWebhookConfiguration") => &self.mutating,
                Some("ValidatingWebhookConfiguration") => &self.validating,
                other => panic!("no configuration of webhooks: {other:?}"),
            };
            for hook in configuration.at_mut(&["webhooks"]).and_then(Value::as_list_mut).into_iter().flatten()
            {
                defaults(hook);
            }
            let gone = configuration.list_at(&["webhooks"]).is_empty();
            set.apply(Some(&configuration), (!gone).then_some(&configuration));
        }
    }

    fn ask(&self, request: &str) -> String {
        self.transport.calls.lock().unwrap().clear();
        let request = read(request);
        let text = |keys: &[&str]| request.str_at(keys).unwrap_or_default();
        let (object, old) = (request.get("object").cloned(), request.get("oldObject").cloned());
        let kind = object.as_ref().or(old.as_ref()).map(api::meta::gvk).unwrap();
        let (resource, subresource) =
            text(&["resource"]).split_once('/').unwrap_or((text(&["resource"]), ""));
        let user = User::named(if text(&["user"]).is_empty() { "admin" } else { text(&["user"]) });
        let options = request.get("options").cloned().unwrap_or_default();
        let attributes = AdmissionAttributes {
            user: &user,
            operation: match text(&["operation"]) {
                "CREATE" => Operation::Create,
                "UPDATE" => Operation::Update,
                "DELETE" => Operation::Delete,
                "CONNECT" => Operation::Connect,
                other => panic!("no operation: {other}"),
            },
            kind: kind.clone(),
            stored_kind: kind.clone(),
            resource: GroupResource::new(kind.group.clone(), resource),
            version: kind.version.clone(),
            subresource: subresource.into(),
            namespace: text(&["namespace"]).into(),
            name: text(&["name"]).into(),
            old_object: VersionedObject::new(old.as_ref()),
            options: &options,
            dry_run: request.bool_at(&["dryRun"]).unwrap_or_default(),
            now: 0,
            deadline: request.bool_at(&["late"]).unwrap_or_default().then(Instant::now),
            budget: value::Budget::UNLIMITED,
            snapshot: AdmissionSnapshot::default(),
        };
        let mut changed = object.clone();
        let mut notes = AdmissionNotes::default();
        let outcome = wait(async {
            self.chain.mutate(&attributes, changed.as_mut(), &self.cluster, &mut notes).await?;
            self.chain.validate(&attributes, changed.as_ref(), &self.cluster, &mut notes).await
        });
        self.report(&request, &outcome, object.as_ref(), changed.as_ref(), &notes)
    }

    fn report(
        &self,
        request: &Value,
        outcome: &Result<(), Status>,
        object: Option<&Value>,
        changed: Option<&Value>,
        notes: &AdmissionNotes,
    ) -> String {
        let mut out = match outcome {
            Ok(()) => "passes\n".to_owned(),
            Err(status) => {
                let reason = if status.reason().is_empty() { "no reason" } else { status.reason() };
                format!("refused: {} {reason}: {}\n", status.code(), status.message())
            }
        };
        let calls = self.transport.calls.lock().unwrap();
        let names: Vec<&str> = calls.iter().map(|(name, ..)| name.as_str()).collect();
        writeln!(out, "called: {}", if names.is_empty() { "none".to_owned() } else { names.join(", ") })
            .unwrap();
        for shown in request.list_at(&["show"]) {
            let keys: Vec<&str> = shown.as_str().unwrap().split('.').collect();
            for (name, review, timeout) in &*calls {
                let value = if keys == ["timeout"] {
                    timeout.clone()
                } else {
                    review.at(&keys).map_or("absent".to_owned(), write::to_string)
                };
                writeln!(out, "{name} {}: {value}", keys.join(".")).unwrap();
            }
        }
        if outcome.is_ok() && changed != object {
            let shown = changed.and_then(|object| object.get("data")).cloned().unwrap_or_default();
            writeln!(out, "data: {}", write::to_string(&shown)).unwrap();
        }
        for warning in &notes.warnings {
            writeln!(out, "warning: {warning}").unwrap();
        }
        for annotation in &notes.annotations {
            let level = if annotation.level == AuditLevel::Request { " (from level Request)" } else { "" };
            writeln!(out, "audit: {}{level} = {}", annotation.key, annotation.value).unwrap();
        }
        out
    }
}

/// Sets the API's defaults, and test defaults for required fields.
fn defaults(hook: &mut Value) {
    let name = hook.str_at(&["name"]).unwrap().to_owned();
    let short = name.split('.').next().unwrap();
    let rule = "[{apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*/*']}]";
    for (field, value) in [
        ("clientConfig", read(&format!("url: https://webhooks.example/{short}"))),
        ("rules", read(rule)),
        ("failurePolicy", "Fail".into()),
        ("matchPolicy", "Equivalent".into()),
        ("sideEffects", "None".into()),
        ("timeoutSeconds", 10.into()),
        ("namespaceSelector", Value::Map(value::Map::new())),
        ("objectSelector", Value::Map(value::Map::new())),
        ("admissionReviewVersions", Value::list(["v1"])),
        ("reinvocationPolicy", "Never".into()),
    ] {
        if hook.get(field).is_none() {
            hook.set_at(&[field], value);
        }
    }
}

fn check(page: &Page) {
    let world = World::new();
    let mut request = String::new();
    page.check(|info, body| {
        match info {
            "webhooks" => world.register(body),
            "answers" => {
                let answers = read(body);
                let answers = answers.as_map().unwrap().iter();
                let mut known = world.transport.answers.lock().unwrap();
                known.extend(answers.map(|(name, answer)| (name.to_string(), answer.clone())));
            }
            "request" => body.clone_into(&mut request),
            "result" => return Some(format!("{}\n", world.ask(&request).trim())),
            other => panic!("unknown block {other:?}"),
        }
        None
    });
}
