//! The in-process client: how bootstrap and the controllers read and write, through the pipeline like everybody else.

use std::sync::Arc;

use api::{Status, StatusDetails, StatusReason};
use authn::{Caller, InternalIdentity};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method};
use http_body_util::{BodyExt as _, Limited};
use value::{Value, json, write};

use crate::call::Unread;
use crate::heavy::Effort;
use crate::pipeline::{self, InternalRequest};
use crate::respond;
use crate::state::State;
use crate::truncate_remote::{MAX_OBJECTS, truncate_remote};

/// A part of this process that makes requests under an identity of its own.
#[derive(Clone)]
pub struct Client {
    state: Arc<State>,
    caller: Caller,
    agent: HeaderValue,
    elsewhere: bool,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("caller", &self.caller).finish_non_exhaustive()
    }
}

impl Client {
    /// A client under this identity.
    pub fn new(state: Arc<State>, identity: InternalIdentity<'_>) -> Self {
        let component = match identity {
            InternalIdentity::ApiServer => "kube-apiserver",
            InternalIdentity::ServiceAccount { .. } => "kube-controller-manager",
            InternalIdentity::Scheduler => "kube-scheduler",
        };
        let agent = HeaderValue::try_from(crate::version::user_agent(component));
        let agent = agent.unwrap_or(HeaderValue::from_static("portcullis"));
        Client { state, caller: Caller::internal(identity), agent, elsewhere: false }
    }

    /// The same, for what other servers serve: a request goes to the one that serves its path, and never to this one.
    #[must_use]
    pub fn elsewhere(&self) -> Self {
        Client { elsewhere: true, ..self.clone() }
    }

    /// Makes a request; a refusal comes back as the `Status` that a client outside would see.
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
        let body = if self.elsewhere { Unread::Elsewhere(body) } else { Unread::Here(body) };
        let (state, caller) = (Arc::clone(&self.state), self.caller.clone());
        if !self.elsewhere {
            // A controller's work on a large object must not hold up clients either.
            let (effort, target) = (Effort::default(), target.to_owned());
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
        // Whatever its path looks like, another server is not waited for without end.
        let late = |_| Err(Status::timeout("the server that serves it did not answer in time", 0));
        tokio::time::timeout(self.state.serving.request_timeout, exchange).await.unwrap_or_else(late)
    }

    /// GET.
    pub async fn get(&self, path: &str) -> Result<Value, Status> {
        self.request(Method::GET, path, JSON, None).await
    }

    /// POST.
    pub async fn create(&self, path: &str, object: &Value) -> Result<Value, Status> {
        self.request(Method::POST, path, JSON, Some(object)).await
    }

    /// PUT.
    pub async fn update(&self, path: &str, object: &Value) -> Result<Value, Status> {
        self.request(Method::PUT, path, JSON, Some(object)).await
    }

    /// PATCH with a JSON merge patch.
    pub async fn merge_patch(&self, path: &str, patch: &Value) -> Result<Value, Status> {
        self.request(Method::PATCH, path, "application/merge-patch+json", Some(patch)).await
    }

    /// Applies the status of `object`, as the part of the server that looks after the ranges of services does.
    pub async fn apply_status(&self, path: &str, object: &Value) -> Result<Value, Status> {
        let mut configuration = object.clone();
        configuration.remove_at(&["spec"]);
        let target = format!("{path}/status?fieldManager=kubernetes-service-cidr-controller&force=true");
        self.request(Method::PATCH, &target, "application/apply-patch+yaml", Some(&configuration)).await
    }

    /// DELETE.
    pub async fn delete(&self, path: &str, options: &Value) -> Result<Value, Status> {
        self.request(Method::DELETE, path, JSON, Some(options)).await
    }
}

const JSON: &str = "application/json";

/// What an answer says. One that cannot be read is no success: it could stand for anything.
fn read(code: u16, body: &[u8]) -> Result<Value, Status> {
    match (code, json::parse_wrapped(body)) {
        (200..300, Ok(value)) => Ok(value),
        // Some have nothing to say about what is done.
        (200..300, Err(_)) if body.is_empty() => Ok(Value::Null),
        (200..300, Err(error)) => Err(Status::internal(format!("the answer cannot be read: {error}"))),
        (400.., value) => Err(refusal(code, &value.unwrap_or_default())),
        _ => Err(Status::internal(format!("the answer has the unexpected code {code}"))),
    }
}

fn refusal(code: u16, body: &Value) -> Status {
    let message = truncate_remote(body.str_at(&["message"]).unwrap_or("the request was refused"));
    let reason = truncate_remote(body.str_at(&["reason"]).unwrap_or_default());
    let details = StatusDetails {
        name: truncate_remote(body.str_at(&["details", "name"]).unwrap_or_default()).into_owned(),
        ..StatusDetails::default()
    };
    Status::failure(code, StatusReason::Unknown, message).with_reason(reason).with_details(details)
}

#[cfg(test)]
mod tests;
