//! The in-process client: bootstrap and controllers send requests through the pipeline like external clients.

use std::sync::Arc;

use api::{Status, StatusDetails, StatusReason};
use authn::{Caller, InternalIdentity};
use bytes::Bytes;
use heavy_lane::{Effort, LaneAccount};
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method};
use http_body_util::{BodyExt as _, Limited};
use runtime::truncate_remote::{MAX_OBJECTS, truncate_remote};
use value::{Value, json, write};

use crate::call::RequestBody;
use crate::pipeline::{self, InternalRequest};
use crate::respond;
use crate::state::State;

/// Sends requests from inside this process under an internal identity.
#[derive(Clone)]
pub struct LoopbackClient {
    state: Arc<State>,
    caller: Caller,
    agent: HeaderValue,
    elsewhere: bool,
    /// Account whose turns in the heavy lane large requests use; without one, they do not wait for turns.
    account: Option<LaneAccount>,
}

impl std::fmt::Debug for LoopbackClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoopbackClient").field("caller", &self.caller).finish_non_exhaustive()
    }
}

impl LoopbackClient {
    pub fn new(state: Arc<State>, identity: InternalIdentity<'_>) -> Self {
        let component = match identity {
            InternalIdentity::ApiServer => "kube-apiserver",
            InternalIdentity::ServiceAccount { .. } => "kube-controller-manager",
            InternalIdentity::Scheduler => "kube-scheduler",
        };
        let agent = HeaderValue::try_from(runtime::version::user_agent(component));
        let agent = agent.unwrap_or(HeaderValue::from_static("portcullis"));
        LoopbackClient { state, caller: Caller::internal(identity), agent, elsewhere: false, account: None }
    }

    /// Returns a client for aggregated API servers: a request goes to the one that serves its path, never to
    /// this server.
    #[must_use]
    pub fn elsewhere(&self) -> Self {
        LoopbackClient { elsewhere: true, ..self.clone() }
    }

    /// Returns a client whose large requests use the turns of this account in the heavy lane.
    #[must_use]
    pub fn with_account(self, account: LaneAccount) -> Self {
        LoopbackClient { account: Some(account), ..self }
    }

    /// Sends a request; errors are the `Status` that an external client would see.
    pub async fn request(
        &self,
        method: Method,
        target: &str,
        content_type: &'static str,
        body: Option<&Value>,
    ) -> Result<Value, Status> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        headers.insert(USER_AGENT, self.agent.clone());
        let body = body.map(|b| Bytes::from(write::to_vec(b))).unwrap_or_default();
        let body = if self.elsewhere { RequestBody::Elsewhere(body) } else { RequestBody::Here(body) };
        let (state, caller) = (Arc::clone(&self.state), self.caller.clone());
        if !self.elsewhere {
            // Work on large objects by controllers must not delay clients either.
            let (effort, target) = (Effort::default(), target.to_owned());
            if let Some(account) = &self.account {
                effort.set_account(account.clone());
            }
            let (serving, of_work) = (Arc::clone(&state), effort.clone());
            let work = Box::pin(async move {
                let target = target.as_str();
                let request = InternalRequest { caller, method, target, headers, body, effort: of_work };
                pipeline::internal(&serving, request).await
            });
            let response =
                state.serving.heavy.drive(&effort, None, work).await.unwrap_or_else(respond::panicked);
            let code = response.status().as_u16();
            return read(code, &response.into_body().into_bytes().unwrap_or_default());
        }
        let exchange = async {
            let effort = Effort::default();
            let request = InternalRequest { caller, method, target, headers, body, effort };
            let response = pipeline::internal(&state, request).await;
            let code = response.status().as_u16();
            let whole = Limited::new(response.into_body(), MAX_OBJECTS).collect().await;
            read(code, &whole.map_err(|error| Status::internal(error.to_string()))?.to_bytes())
        };
        // Limits the wait for another server whatever the path is.
        let late = |_| {
            Err(Status::timeout(
                "the server of the requested resource did not respond within the request timeout",
                0,
            ))
        };
        tokio::time::timeout(self.state.serving.request_timeout, exchange).await.unwrap_or_else(late)
    }

    pub async fn get(&self, path: &str) -> Result<Value, Status> {
        self.request(Method::GET, path, JSON, None).await
    }

    /// Like [`LoopbackClient::get`], but `None` if the object does not exist. One that cannot be read may still exist, and is an error.
    pub async fn get_if_exists(&self, path: &str) -> Result<Option<Value>, Status> {
        match self.get(path).await {
            Ok(object) => Ok(Some(object)),
            Err(status) if status.code() == 404 => Ok(None),
            Err(status) => Err(status),
        }
    }

    pub async fn create(&self, path: &str, object: &Value) -> Result<Value, Status> {
        self.request(Method::POST, path, JSON, Some(object)).await
    }

    pub async fn update(&self, path: &str, object: &Value) -> Result<Value, Status> {
        self.request(Method::PUT, path, JSON, Some(object)).await
    }

    /// Sends a JSON merge patch.
    pub async fn merge_patch(&self, path: &str, patch: &Value) -> Result<Value, Status> {
        self.request(Method::PATCH, path, "application/merge-patch+json", Some(patch)).await
    }

    /// Applies the status of `object` as field manager `kubernetes-service-cidr-controller`.
    pub async fn apply_status(&self, path: &str, object: &Value) -> Result<Value, Status> {
        let mut configuration = object.clone();
        configuration.remove_at(&["spec"]);
        let target = format!("{path}/status?fieldManager=kubernetes-service-cidr-controller&force=true");
        self.request(Method::PATCH, &target, "application/apply-patch+yaml", Some(&configuration)).await
    }

    pub async fn delete(&self, path: &str, options: &Value) -> Result<Value, Status> {
        self.request(Method::DELETE, path, JSON, Some(options)).await
    }
}

const JSON: &str = "application/json";

/// Decodes a response. An undecodable body is an error even with a 2xx status, because its meaning is
/// unknown.
fn read(code: u16, body: &[u8]) -> Result<Value, Status> {
    match (code, json::parse_wrapped(body)) {
        (200..300, Ok(value)) => Ok(value),
        // Some successful responses have no body.
        (200..300, Err(_)) if body.is_empty() => Ok(Value::Null),
        (200..300, Err(error)) => Err(Status::internal(format!("cannot parse the response: {error}"))),
        (400.., value) => Err(refusal(code, &value.unwrap_or_default())),
        _ => Err(Status::internal(format!("the response has the unexpected status code {code}"))),
    }
}

fn refusal(code: u16, body: &Value) -> Status {
    let message = truncate_remote(body.str_at(&["message"]).unwrap_or("the request was refused"));
    let reason = truncate_remote(body.str_at(&["reason"]).unwrap_or_default());
    let retry_after_seconds = body.int_at(&["details", "retryAfterSeconds"]).unwrap_or_default();
    let details = StatusDetails {
        retry_after_seconds: u32::try_from(retry_after_seconds).unwrap_or_default(),
        name: truncate_remote(body.str_at(&["details", "name"]).unwrap_or_default()).into_owned(),
        ..StatusDetails::default()
    };
    Status::failure(code, StatusReason::Unknown, message).with_reason(reason).with_details(details)
}

#[cfg(test)]
mod tests;
