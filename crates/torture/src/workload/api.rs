//! Requests to one server, recorded with their answers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use conformance::{Client, Events, HttpResponse, Result};
use http::Method;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::Session;
use crate::history::{ClientOperation, ClientRequest, Outcome, ReadAt, SeenObject, WRITE_ANNOTATION};
use crate::keys;
use crate::server_process::client_of;

/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(6);
/// Pages that a list has at most.
const MAX_PAGES: usize = 50;

/// A client of one server. Every request is recorded.
#[derive(Debug)]
pub struct RecordingClient {
    pub(super) session: Arc<Session>,
    pub(super) index: usize,
    pub(super) server: usize,
    client: Client,
}

impl RecordingClient {
    pub fn new(session: &Arc<Session>, index: usize, server: usize) -> Result<RecordingClient> {
        let url = session.urls.get(server).map_or("", String::as_str);
        Ok(RecordingClient { session: Arc::clone(session), index, server, client: client_of(url)? })
    }

    /// Goes on at another server.
    pub(super) fn switch(&mut self, server: usize) {
        let url = self.session.urls.get(server).map(|url| client_of(url));
        if let Some(Ok(client)) = url {
            (self.client, self.server) = (client, server);
        }
    }

    pub async fn create(&self, resource: &str, namespace: &str, mut object: Value) -> Outcome {
        let write = self.session.next_write();
        mark(&mut object, write);
        let name = name_of(&object).to_owned();
        let request = ClientRequest::Create {
            key: keys::of(resource, namespace, &name),
            write,
            object: object.clone(),
        };
        let path = collection(resource, namespace);
        self.write(request, Method::POST, &path, "application/json", &object).await
    }

    /// PUT of an object that was changed, with the `resourceVersion` that it was read at.
    pub async fn update(&self, resource: &str, namespace: &str, base: u64, mut object: Value) -> Outcome {
        let write = self.session.next_write();
        mark(&mut object, write);
        let name = name_of(&object).to_owned();
        let mut body = object.clone();
        if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("resourceVersion".to_owned(), json!(base.to_string()));
        }
        let request =
            ClientRequest::Update { key: keys::of(resource, namespace, &name), write, base, object };
        let path = format!("{}/{name}", collection(resource, namespace));
        self.write(request, Method::PUT, &path, "application/json", &body).await
    }

    pub async fn patch(&self, resource: &str, namespace: &str, name: &str, mut patch: Value) -> Outcome {
        let write = self.session.next_write();
        mark(&mut patch, write);
        let request =
            ClientRequest::Patch { key: keys::of(resource, namespace, name), write, patch: patch.clone() };
        let path = format!("{}/{name}", collection(resource, namespace));
        self.write(request, Method::PATCH, &path, "application/merge-patch+json", &patch).await
    }

    pub async fn delete(&self, resource: &str, namespace: &str, name: &str, base: Option<u64>) -> Outcome {
        let start = self.session.clock.now();
        let mut options = json!({"gracePeriodSeconds": 0});
        if let (Some(base), Some(fields)) = (base, options.as_object_mut()) {
            fields.insert("preconditions".to_owned(), json!({"resourceVersion": base.to_string()}));
        }
        let path = format!("{}/{name}", collection(resource, namespace));
        let outcome = match self.send(Method::DELETE, &path, "application/json", Some(&options)).await {
            Ok(answer) if answer.code == 200 => {
                let body = answer.json();
                let uid = body.pointer("/details/uid").or_else(|| body.pointer("/metadata/uid"));
                match uid.and_then(Value::as_str) {
                    Some(uid) => Outcome::Deleted { uid: uid.to_owned() },
                    None => Outcome::Unknown(format!("an answer without a UID: {}", answer.text())),
                }
            }
            other => failed(other),
        };
        self.record(start, ClientRequest::Delete { key: keys::of(resource, namespace, name), base }, outcome)
    }

    pub async fn get(&self, resource: &str, namespace: &str, name: &str, at: ReadAt) -> Outcome {
        let start = self.session.clock.now();
        let path = format!("{}/{name}{}", collection(resource, namespace), query(at, "?"));
        let outcome = match self.send(Method::GET, &path, "", None).await {
            Ok(answer) if answer.code == 200 => match SeenObject::parse(&answer.json()) {
                Some(seen) => Outcome::Object(Some(seen)),
                None => Outcome::Unknown("an answer without a resourceVersion".to_owned()),
            },
            Ok(answer) if answer.code == 404 => Outcome::Object(None),
            other => failed(other),
        };
        self.record(start, ClientRequest::Get { key: keys::of(resource, namespace, name), at }, outcome)
    }

    /// A list in pages of `limit` objects; 0 for one page. Each page is read from another server.
    pub async fn list(&self, resource: &str, namespace: &str, at: ReadAt, limit: usize) -> Outcome {
        let start = self.session.clock.now();
        let outcome = self.pages(resource, namespace, at, limit).await;
        self.record(
            start,
            ClientRequest::List { prefix: keys::prefix(resource, namespace), at, limit },
            outcome,
        )
    }

    async fn pages(&self, resource: &str, namespace: &str, at: ReadAt, limit: usize) -> Outcome {
        let mut items = Vec::new();
        let mut revision = None;
        let mut next = String::new();
        for page in 0..MAX_PAGES {
            let mut path = format!("{}?limit={limit}", collection(resource, namespace));
            if next.is_empty() {
                path.push_str(&query(at, "&"));
            } else {
                path.extend(["&continue=", &next]);
            }
            let answer = match self.page(page, &path).await {
                Ok(answer) if answer.code == 200 => answer.json(),
                other => return failed(other),
            };
            let at = answer.pointer("/metadata/resourceVersion").and_then(Value::as_str);
            let at: Option<u64> = at.and_then(|text| text.parse().ok());
            let objects = answer.get("items").and_then(Value::as_array);
            let (Some(at), Some(objects)) = (at, objects) else {
                return Outcome::Unknown("an answer that is no list".to_owned());
            };
            // A page of another revision makes the list differ from every state.
            revision = revision.or(Some(at)).map(|first| first.max(at));
            for object in objects {
                let Some(seen) = SeenObject::parse(object) else {
                    return Outcome::Unknown("an item without a resourceVersion".to_owned());
                };
                items.push((keys::of(resource, namespace, name_of(object)), seen));
            }
            answer
                .pointer("/metadata/continue")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .clone_into(&mut next);
            if next.is_empty() {
                return Outcome::Listed { revision: revision.unwrap_or(at), items };
            }
        }
        Outcome::Unknown("more pages than expected".to_owned())
    }

    /// Reads the page with this number: the first one from this client's server, the others from the servers after it in turn.
    async fn page(&self, number: usize, path: &str) -> std::result::Result<HttpResponse, String> {
        let urls = &self.session.urls;
        let server = (self.server + number) % urls.len().max(1);
        let Some(url) = urls.get(server).filter(|_| server != self.server) else {
            return self.send(Method::GET, path, "", None).await;
        };
        let client = client_of(url).map_err(|problem| problem.to_string())?;
        in_time(client.get(path)).await
    }

    /// Opens a watch of a collection.
    pub(super) async fn watch(
        &self,
        resource: &str,
        namespace: &str,
        options: &str,
    ) -> std::result::Result<Events, String> {
        let path = format!("{}?watch=1&allowWatchBookmarks=true&{options}", collection(resource, namespace));
        match timeout(PATIENCE, self.client.events(&path, &[])).await {
            Ok(Ok(events)) if events.code == 200 => Ok(events),
            Ok(Ok(events)) => Err(format!("status {}", events.code)),
            Ok(Err(problem)) => Err(problem.to_string()),
            Err(_) => Err(format!("no answer in {PATIENCE:?}")),
        }
    }

    async fn write(
        &self,
        request: ClientRequest,
        method: Method,
        path: &str,
        content_type: &str,
        body: &Value,
    ) -> Outcome {
        let start = self.session.clock.now();
        let outcome = match self.send(method, path, content_type, Some(body)).await {
            Ok(answer) if answer.code == 200 || answer.code == 201 => {
                match SeenObject::parse(&answer.json()) {
                    Some(seen) => Outcome::Stored(seen),
                    None => Outcome::Unknown(format!("an answer without a revision: {}", answer.text())),
                }
            }
            other => failed(other),
        };
        self.record(start, request, outcome)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Option<&Value>,
    ) -> std::result::Result<HttpResponse, String> {
        let headers = [("content-type", content_type)];
        let headers = if content_type.is_empty() { &[][..] } else { &headers[..] };
        let body = body.map(ToString::to_string).unwrap_or_default();
        in_time(self.client.send(method, path, headers, Bytes::from(body))).await
    }

    fn record(&self, start: u64, request: ClientRequest, outcome: Outcome) -> Outcome {
        let end = self.session.clock.now();
        let (client, server) = (self.index, self.server);
        self.session.record(ClientOperation {
            client,
            server,
            start,
            end,
            request,
            outcome: outcome.clone(),
        });
        outcome
    }
}

/// The answer, or why there is none in time.
async fn in_time(
    answer: impl Future<Output = Result<HttpResponse>>,
) -> std::result::Result<HttpResponse, String> {
    match timeout(PATIENCE, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(problem)) => Err(problem.to_string()),
        Err(_) => Err(format!("no answer in {PATIENCE:?}")),
    }
}

/// The outcome of a request that did not succeed. Only answers that say that the server refused it are definite.
fn failed(answer: std::result::Result<HttpResponse, String>) -> Outcome {
    match answer {
        Ok(answer) if (400..500).contains(&answer.code) => {
            let status = answer.json();
            let field = |name: &str| status.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
            Outcome::Refused { code: answer.code, reason: field("reason"), message: field("message") }
        }
        Ok(answer) => Outcome::Unknown(format!("{}: {}", answer.code, answer.text())),
        Err(problem) => Outcome::Unknown(problem),
    }
}

/// Sets the annotation with the number of the write.
fn mark(object: &mut Value, write: u64) {
    let patch = json!({"metadata": {"annotations": {WRITE_ANNOTATION: write.to_string()}}});
    crate::history::merge(object, &patch);
}

fn name_of(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

fn collection(resource: &str, namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/{resource}")
}

fn query(at: ReadAt, separator: &str) -> String {
    match at {
        ReadAt::Latest => String::new(),
        ReadAt::Any => format!("{separator}resourceVersion=0"),
        ReadAt::NotOlderThan(revision) => {
            format!("{separator}resourceVersion={revision}")
        }
    }
}
