//! Conversion of custom resources by a webhook: one `ConversionReview` for all objects that need it.
//!
//! The webhook cannot change the identity of an object: name, namespace and uid must stay the same, and of the converted metadata only
//! labels and annotations are used.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use admission::webhook::{WebhookReply, status_of_reply};
use api::field::quote;
use api::{Status, meta};
use catalog::keys;
use crd::CustomResourceDefinition;
use outbound::{
    Endpoint, LongRetry, OutboundRequest, OutboundTarget, Reach, ServerTrust, WEBHOOK_AGENT, call_webhook,
};
use runtime::truncate_remote::{MAX_OBJECTS, truncate_remote};
use transport::objects::{COPIES, ObjectCharge};
use value::go::base64::STD;
use value::{Map, Str, Value, go, json, write};

use crate::metrics::ConversionResult;
use crate::state::State;

/// Limit for one conversion, the default timeout of Kubernetes' webhook client.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// Webhook clients by CRD name, each with the configuration it was built from.
#[derive(Default)]
pub struct ConversionWebhookClients {
    known: Mutex<HashMap<Str, (Value, OutboundTarget)>>,
}

impl ConversionWebhookClients {
    /// Drops the client of a CRD's webhook.
    pub fn forget(&self, crd: &str) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(crd);
    }

    fn get(&self, crd: &CustomResourceDefinition, config: &Value) -> Option<OutboundTarget> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&crd.name).filter(|(made_of, _)| made_of == config).map(|(_, target)| target.clone())
    }

    fn insert(&self, crd: &CustomResourceDefinition, config: Value, target: &OutboundTarget) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(crd.name.clone(), (config, target.clone()));
    }
}

/// Calls the webhook of a CRD to convert objects to `version`, and records metrics. `webhook` is `spec.conversion.webhook`.
pub(super) async fn call(
    state: &State,
    crd: &CustomResourceDefinition,
    webhook: &Value,
    objects: &[Value],
    version: &str,
) -> Result<Vec<Value>, Status> {
    let first = objects.first().map(meta::gvk).unwrap_or_default();
    let about = format!("{}, Kind={}", first.group_version(), first.kind);
    let start = std::time::Instant::now();
    let outcome = convert_by_webhook(state, crd, webhook, objects, version).await;
    let review =
        outcome.as_ref().map_or_else(ConversionFailure::review, |_| Some(ConversionResult::Converted));
    let to = version.rsplit('/').next().unwrap_or_default();
    state.metrics.custom.converted(&crd.name, &first.version, to, review, start.elapsed());
    outcome.map_err(|failure| failure.status(&about))
}

async fn convert_by_webhook(
    state: &State,
    crd: &CustomResourceDefinition,
    webhook: &Value,
    objects: &[Value],
    version: &str,
) -> Result<Vec<Value>, ConversionFailure> {
    let target = target(state, crd, webhook).map_err(ConversionFailure::Call)?;
    let reviews = webhook.list_at(&["conversionReviewVersions"]).iter().filter_map(Value::as_str);
    let Some(review) = reviews.into_iter().find(|version| matches!(*version, "v1" | "v1beta1")) else {
        return Err(ConversionFailure::NoReview);
    };
    let mut charge = ObjectCharge::default();
    let memory = objects.iter().map(Value::memory).sum::<usize>();
    charge.grow_to(memory).map_err(ConversionFailure::TooMuch)?;
    let uid = runtime::random::uid();
    let api_version = format!("apiextensions.k8s.io/{review}");
    // The resource version belongs to the stored object, whatever its version: the webhook neither sees nor changes it.
    let mut sent = objects.to_vec();
    for object in &mut sent {
        object.remove_at(&["metadata", "resourceVersion"]);
    }
    let request = Value::map([
        ("uid", Value::from(uid.as_str())),
        ("desiredAPIVersion", Value::from(version)),
        ("objects", Value::List(sent)),
    ]);
    let body = Value::map([
        ("kind", Value::from("ConversionReview")),
        ("apiVersion", Value::from(api_version.as_str())),
        ("request", request),
    ]);
    let mut request = OutboundRequest {
        max_answer: MAX_OBJECTS,
        ..OutboundRequest::post_json(write::to_vec(&body), TIMEOUT)
    };
    request.headers.insert(http::header::USER_AGENT, http::HeaderValue::from_static(WEBHOOK_AGENT));
    request.path = format!("{}?timeout={}s", target.url().path(), TIMEOUT.as_secs()).parse().ok();
    // A wait that does not fit into the time limit would only delay the same failure.
    let answer = call_webhook(&target, request, LongRetry::ReturnResponse).await.map_err(|failure| {
        state.metrics.custom.webhook_failed(&failure);
        ConversionFailure::Call(failure.message)
    })?;
    if !(200..300).contains(&answer.status) {
        let reply = WebhookReply {
            status: answer.status,
            content_type: answer.content_type().to_owned(),
            body: answer.body.to_vec(),
        };
        return Err(ConversionFailure::Call(status_of_reply(&reply).message().to_owned()));
    }
    if answer.body.is_empty() {
        return Err(ConversionFailure::Call(format!(
            "0-length response with status code: {} and content type: {}",
            answer.status,
            answer.content_type()
        )));
    }
    // The answer may be large even if the objects sent are small.
    heavy_lane::enter_lane(answer.body.len()).await;
    let received = json::max_memory(&answer.body) / COPIES;
    charge.grow_to(memory.saturating_add(received)).map_err(ConversionFailure::TooMuch)?;
    let body = answer.body;
    let answer = read(&body).map_err(ConversionFailure::Call)?;
    drop(body);
    let converted = converted(&answer, review, &api_version, &uid).map_err(ConversionFailure::Answer)?;
    if converted.len() != objects.len() {
        return Err(ConversionFailure::Count { returned: converted.len(), expected: objects.len() });
    }
    objects.iter().zip(converted).map(|(original, converted)| restore(original, converted, version)).collect()
}

/// Parses a response, which may be JSON or YAML.
fn read(body: &[u8]) -> Result<Value, String> {
    let answer = match json::parse_wrapped(body) {
        Ok(answer) => answer,
        Err(error) => value::yaml::body(body).map(|read| read.value).map_err(|_| error.to_string())?,
    };
    if matches!(answer, Value::Map(_)) {
        return Ok(answer);
    }
    Err(format!(
        r#"couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type struct {{ APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }}"#,
        answer.json_type()
    ))
}

/// The converted objects of a response, after checking that it answers this request.
fn converted<'a>(
    answer: &'a Value,
    review: &str,
    api_version: &str,
    uid: &str,
) -> Result<&'a [Value], String> {
    if review == "v1" {
        let found = meta::gvk(answer);
        let is_review = found.kind == "ConversionReview" && found.group == "apiextensions.k8s.io";
        match found.version.as_str() {
            "v1" if is_review => {}
            "v1beta1" if is_review => {
                return Err(
                    "converting (v1beta1.ConversionReview) to (v1.ConversionReview): unknown conversion"
                        .to_owned(),
                );
            }
            "" if found.kind.is_empty() => {
                return Err(format!(
                    "expected webhook response of {api_version}, Kind=ConversionReview, got {}/{}, Kind={}",
                    found.group, found.version, found.kind
                ));
            }
            _ => {
                return Err(format!(
                    "no kind {} is registered for version {} in scheme \"k8s.io/apiserver/pkg/util/webhook/client.go:74\"",
                    quote(&found.kind),
                    quote(&found.group_version().to_string())
                ));
            }
        }
    }
    let Some(response) = answer.get("response").filter(|response| !response.is_null()) else {
        return Err("no response provided".to_owned());
    };
    if !matches!(response, Value::Map(_)) {
        return Err(format!(
            "json: cannot unmarshal {} into Go struct field ConversionReview.response of type {review}.ConversionResponse",
            response.json_type()
        ));
    }
    let answered = response.str_at(&["uid"]).unwrap_or_default();
    if review == "v1" && answered != uid {
        return Err(format!("expected response.uid={}, got {}", quote(uid), quote(answered)));
    }
    let status = response.str_at(&["result", "status"]).unwrap_or_default();
    if status != "Success" {
        return Err(match response.str_at(&["result", "message"]) {
            Some(message) if !message.is_empty() => message.to_owned(),
            _ => format!("response.result.status was '{status}', not 'Success'"),
        });
    }
    Ok(response.list_at(&["convertedObjects"]))
}

#[derive(Debug, PartialEq)]
enum ConversionFailure {
    /// The CRD lists no `ConversionReview` version that this server supports.
    NoReview,
    /// The client has too many large objects in memory.
    TooMuch(Status),
    /// The call failed, returned an error status, or its body is not an object.
    Call(String),
    /// The response does not match the request, or reports a failure.
    Answer(String),
    /// The number of returned objects differs.
    Count { returned: usize, expected: usize },
    /// A returned value is not an object with a kind.
    NoObject(String),
    /// A returned object has the wrong version, kind, identity or metadata.
    Object(String),
}

impl ConversionFailure {
    /// Label of the failure in metrics; `None` if no call was made.
    fn review(&self) -> Option<ConversionResult> {
        match self {
            ConversionFailure::NoReview | ConversionFailure::TooMuch(_) => None,
            ConversionFailure::Call(_) => Some(ConversionResult::NotAsked),
            ConversionFailure::Answer(_) => Some(ConversionResult::Malformed),
            ConversionFailure::Count { .. } => Some(ConversionResult::Partial),
            ConversionFailure::NoObject(_) | ConversionFailure::Object(_) => {
                Some(ConversionResult::InvalidObject)
            }
        }
    }

    /// The error for the client. All text from the webhook passes through here and is truncated.
    fn status(&self, about: &str) -> Status {
        Status::plain(match self {
            ConversionFailure::TooMuch(status) => return status.clone(),
            ConversionFailure::NoReview => "no supported conversion review versions".to_owned(),
            ConversionFailure::Call(why) | ConversionFailure::Answer(why) => {
                format!("conversion webhook for {about} failed: {}", truncate_remote(why))
            }
            ConversionFailure::Count { returned, expected } => {
                format!("conversion webhook for {about} returned {returned} objects, expected {expected}")
            }
            ConversionFailure::NoObject(why) => truncate_remote(why).into_owned(),
            ConversionFailure::Object(why) => {
                format!("conversion webhook for {about} returned invalid {}", truncate_remote(why))
            }
        })
    }
}

/// The converted object with the metadata of the original, except labels and annotations.
fn restore(original: &Value, converted: &Value, version: &str) -> Result<Value, ConversionFailure> {
    match converted {
        Value::Map(map) if map.get("kind").and_then(Value::as_str).unwrap_or_default().is_empty() => {
            let text = write::to_string(converted);
            return Err(ConversionFailure::NoObject(format!("Object 'Kind' is missing in '{text}'")));
        }
        Value::Map(_) => {}
        Value::Null => return Err(ConversionFailure::NoObject("unexpected end of JSON input".to_owned())),
        other => {
            return Err(ConversionFailure::NoObject(format!(
                "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                other.json_type()
            )));
        }
    }
    restored(original, converted, version).map_err(ConversionFailure::Object)
}

fn restored(original: &Value, converted: &Value, version: &str) -> Result<Value, String> {
    let (was, is) = (meta::gvk(original), meta::gvk(converted));
    let received = is.group_version().to_string();
    if received != version {
        return Err(format!(
            "object at index 0: invalid groupVersion (expected {version}, received {received})"
        ));
    }
    if was.kind != is.kind {
        return Err(format!("object at index 0: invalid kind (expected {}, received {})", was.kind, is.kind));
    }
    let same = [
        ("name", meta::name(original), meta::name(converted)),
        ("namespace", meta::namespace(original), meta::namespace(converted)),
        ("UID", meta::uid(original), meta::uid(converted)),
    ];
    for (what, was, is) in same {
        if was != is {
            return Err(format!("object: must have the same {what}: {was} != {is}"));
        }
    }
    let metadata = match converted.get("metadata") {
        None => return Err("metadata: missing metadata in converted object".to_owned()),
        Some(Value::Map(metadata)) => metadata,
        Some(other) => {
            return Err(format!(
                "metadata: invalid metadata of type {} in converted object",
                go::type_name(other)
            ));
        }
    };
    let mut merged: Map = original.get("metadata").and_then(Value::as_map).cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        match metadata.get(field) {
            None | Some(Value::Null) => drop(merged.remove(field)),
            Some(Value::Map(entries)) => {
                let wrong = entries.iter().find(|(_, value)| !matches!(value, Value::String(_)));
                if let Some((key, value)) = wrong {
                    return Err(format!(
                        "metadata: metadata.{field}[{key}] must be a string, but is {} in converted object",
                        go::type_name(value)
                    ));
                }
                if merged.get(field).and_then(Value::as_map) != Some(entries) {
                    let errors = api::validation::meta::converted(field, entries);
                    if !errors.is_empty() {
                        return Err(format!("metadata: {}", api::field::aggregate(errors)));
                    }
                }
                merged.insert(field, Value::Map(entries.clone()));
            }
            Some(other) => {
                let kind = go::type_name(other);
                return Err(format!("metadata: invalid metadata.{field} of type {kind} in converted object"));
            }
        }
    }
    let mut result = converted.clone();
    result.set_at(&["metadata"], Value::Map(merged));
    Ok(result)
}

/// The client for a CRD's webhook, cached until its configuration or address changes.
fn target(state: &State, crd: &CustomResourceDefinition, webhook: &Value) -> Result<OutboundTarget, String> {
    let config = webhook.get("clientConfig").cloned().unwrap_or_default();
    let trust = match config.str_at(&["caBundle"]).map(|text| STD.decode(text)) {
        Some(Ok(pem)) if !pem.trim_ascii().is_empty() => ServerTrust::Authorities(pem),
        Some(Err(error)) => return Err(error.to_string()),
        _ => ServerTrust::System,
    };
    let (url, dial) = match config.str_at(&["url"]) {
        Some(url) => (url.to_owned(), None),
        None => {
            let text = |field| config.str_at(&["service", field]).unwrap_or_default();
            let port = config.int_at(&["service", "port"]).unwrap_or(443);
            let host = format!("{}.{}.svc", text("name"), text("namespace"));
            let path = text("path").trim_start_matches('/');
            let dial = service_address(state, text("namespace"), text("name"), port)?;
            (format!("https://{host}:{port}/{path}"), Some(dial))
        }
    };
    // The address of a service may change while the configuration does not.
    let key = Value::map([("config", config), ("dial", Value::from(dial.clone().unwrap_or_default()))]);
    if let Some(target) = state.apis.conversions.get(crd, &key) {
        return Ok(target);
    }
    let url = url.parse().map_err(|error| format!("{}: {error}", quote(&url)))?;
    let reach = if dial.is_some() { Reach::Cluster } else { Reach::Configured };
    let endpoint = Endpoint { dial, reach, trust, ..Endpoint::new(url) };
    let target = OutboundTarget::new(endpoint).map_err(|error| error.to_string())?;
    state.apis.conversions.insert(crd, key, &target);
    Ok(target)
}

/// Address of a service for a server outside of the cluster network: its cluster IP, or its external name.
fn service_address(state: &State, namespace: &str, name: &str, port: i64) -> Result<String, String> {
    let missing = || format!("service {} not found", quote(name));
    let entry =
        state.storage.store.get(&keys::namespaced(keys::SERVICES, namespace, name)).ok_or_else(missing)?;
    let service = catalog::encode::tree(&entry).map_err(|status| status.message().to_owned())?;
    let spec = |field| service.str_at(&["spec", field]).unwrap_or_default();
    let host = match spec("type") {
        "ExternalName" => spec("externalName"),
        _ => spec("clusterIP"),
    };
    let listed = service.list_at(&["spec", "ports"]).iter().any(|p| p.int_at(&["port"]) == Some(port));
    if spec("type") != "ExternalName" && !listed {
        return Err(format!("no service port {port} found for service {}", quote(name)));
    }
    if host.is_empty() || host == "None" {
        return Err(format!("no endpoints available for service {}", quote(name)));
    }
    Ok(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
}

#[cfg(test)]
mod tests;
