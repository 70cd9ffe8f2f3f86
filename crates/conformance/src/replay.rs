//! Sends the requests of a script to a server and collects the normalized answers.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Method};
use serde_json::Value;

use crate::client::{Client, HttpResponse};
use crate::normalize::{self, normalize};
use crate::script::{Observed, Script, Step};
use crate::{Problem, Result};

/// Other headers differ from run to run or between servers, and are not compared.
const COMPARED_HEADERS: [&str; 6] =
    ["content-type", "warning", "retry-after", "content-encoding", "allow", "accept-patch"];

/// The longest wait for the next event of a watch.
const EVENT_TIMEOUT: Duration = Duration::from_secs(15);

/// How long a step with `until` is repeated.
const UNTIL_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
struct Variables {
    values: BTreeMap<String, Value>,
    /// Texts that are replaced by their variable in names and answers, with the name of that variable; longest first.
    replaced: Vec<(String, String)>,
}

impl Variables {
    fn set(&mut self, name: &str, value: Value) {
        if let Some(text) = value.as_str()
            && text.len() >= 8
            && !text.chars().all(|c| c.is_ascii_digit())
            && !text.starts_with("ey")
            && !text.starts_with("10.0.0.")
        {
            self.replaced.retain(|(_, own)| own != name);
            self.replaced.push((text.to_owned(), name.to_owned()));
            self.replaced.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        }
        self.values.insert(name.to_owned(), value);
    }

    fn in_text(&self, text: &str) -> String {
        let mut out = text.to_owned();
        for (name, value) in &self.values {
            let marker = format!("{{{name}}}");
            if out.contains(&marker) {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                out = out.replace(&marker, &value);
            }
        }
        out
    }

    fn in_tree(&self, tree: &Value) -> Value {
        match tree {
            Value::String(text) => {
                let whole = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
                match whole.and_then(|name| self.values.get(name)) {
                    // A string that is nothing but a variable becomes a value of its type, in which variables are filled in too.
                    Some(value @ (Value::Object(_) | Value::Array(_))) => self.in_tree(value),
                    Some(value) => value.clone(),
                    None => Value::String(self.in_text(text)),
                }
            }
            Value::Array(list) => list.iter().map(|value| self.in_tree(value)).collect(),
            Value::Object(object) => {
                object.iter().map(|(key, value)| (self.in_text(key), self.in_tree(value))).collect()
            }
            other => other.clone(),
        }
    }
}

/// Runs every step of every round and returns the answers in order. `unique` keeps the names of objects apart from those of other
/// runs on the same server.
pub async fn replay(client: &Client, script: &Script, unique: &str) -> Result<Vec<Observed>> {
    let no_variables = BTreeMap::new();
    let rounds: Vec<_> =
        if script.rounds.is_empty() { vec![&no_variables] } else { script.rounds.iter().collect() };
    let mut observed = Vec::new();
    for (number, round) in rounds.into_iter().enumerate() {
        let mut variables = Variables::default();
        let id = format!("r{unique}{number:x}");
        variables.set("ns", Value::from(format!("conf-{id}")));
        variables.set("id", Value::from(id));
        for (name, value) in round {
            variables.values.insert(name.clone(), variables.in_tree(value));
        }
        let mentions = |text: &str| text.contains("{ns}");
        let in_a_variable = round.values().any(|value| value.as_str().is_some_and(mentions));
        if in_a_variable || script.steps.iter().any(|step| mentions(&step.request)) {
            let name = variables.in_text("{ns}");
            let namespace = serde_json::json!({"metadata": {"name": name}});
            let made = client.post("/api/v1/namespaces", &namespace).await?;
            if made.code != 201 {
                return Err(Problem::new(format!(
                    "cannot create a namespace: {} {}",
                    made.code,
                    made.text()
                )));
            }
        }
        for step in &script.steps {
            let title = normalize::text(&variables.in_text(&step.name), &variables.replaced);
            let answer = run_step(client, step, &mut variables)
                .await
                .map_err(|problem| Problem::at(&format!("{}, {title}", script.name), problem))?;
            observed.push(Observed { step: title, ..answer });
        }
    }
    Ok(observed)
}

async fn run_step(client: &Client, step: &Step, variables: &mut Variables) -> Result<Observed> {
    let client = match step.token.as_deref() {
        None => client.clone(),
        Some("none") => client.as_token(None),
        Some(token) => client.as_token(Some(token)),
    };
    let (method, path) = step.method_and_path();
    let path = variables.in_text(path);
    let accept = step.accept.as_deref().map(|accept| long_name(accept).to_owned());
    let media_type = step.media_type.as_deref().map(|own| long_name(own).to_owned());
    let body: Bytes = match (&step.body, &step.text) {
        (Some(body), _) => variables.in_tree(body).to_string().into(),
        (None, Some(text)) => variables.in_text(text).into(),
        (None, None) => Bytes::new(),
    };
    let mut headers: Vec<(&str, &str)> = Vec::new();
    headers.extend(accept.as_deref().map(|accept| ("accept", accept)));
    match media_type.as_deref() {
        Some("none") => {}
        Some(media_type) => headers.push(("content-type", media_type)),
        None if body.is_empty() => {}
        None => headers.push(("content-type", "application/json")),
    }
    headers.extend(step.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())));

    let deadline = Instant::now() + UNTIL_TIMEOUT;
    loop {
        let (answer, mut tree) = if method == "WATCH" {
            watch(&client, &path, &headers, step.events).await?
        } else {
            let method = Method::from_bytes(method.as_bytes()).map_err(|e| Problem::at(method, e))?;
            let answer = client.send(method, &path, &headers, body.clone()).await?;
            let tree = tree(&answer);
            (answer, tree)
        };
        if step.until.is_some_and(|code| code != answer.code) && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        }
        for (name, pointer) in &step.save {
            let found = if pointer == "/" { Some(&tree) } else { tree.pointer(pointer) };
            variables.set(name, found.cloned().unwrap_or(Value::from("missing")));
        }
        normalize(&mut tree, &variables.replaced);
        return Ok(Observed {
            step: String::new(),
            code: answer.code,
            headers: headers_of(&answer.headers, variables),
            body: compared_part(tree, step, variables),
        });
    }
}

/// Reads `count` events of a watch, or all until it ends. An error response is returned like the answer of any request.
async fn watch(
    client: &Client,
    path: &str,
    headers: &[(&str, &str)],
    count: Option<usize>,
) -> Result<(HttpResponse, Value)> {
    let mut events = client.events(path, headers).await?;
    let mut answer =
        HttpResponse { code: events.code.as_u16(), headers: events.headers.clone(), body: Bytes::new() };
    if answer.code != 200 {
        answer.body = events.rest().await?;
        let refusal = tree(&answer);
        return Ok((answer, refusal));
    }
    let mut seen = Vec::new();
    while count.is_none_or(|count| seen.len() < count) {
        match events.within(EVENT_TIMEOUT).await {
            Ok(Some(event)) => seen.push(event),
            Ok(None) => break,
            Err(problem) => {
                seen.push(Value::from(problem.to_string()));
                break;
            }
        }
    }
    Ok((answer, Value::Array(seen)))
}

/// The body as a JSON value: JSON and YAML are parsed, everything else becomes a string.
fn tree(answer: &HttpResponse) -> Value {
    let mut plain = Vec::new();
    let bytes = if answer.header("content-encoding") == "gzip" {
        match flate2::read::GzDecoder::new(&answer.body[..]).read_to_end(&mut plain) {
            Ok(_) => plain.as_slice(),
            Err(_) => return Value::from("not gzip"),
        }
    } else {
        &answer.body
    };
    let text = || String::from_utf8_lossy(bytes).into_owned();
    match answer.header("content-type") {
        own if own.contains("json") => serde_json::from_slice(bytes).unwrap_or_else(|_| Value::from(text())),
        own if own.contains("yaml") => {
            serde_saphyr::from_str(&text()).unwrap_or_else(|_| Value::from(text()))
        }
        _ if bytes.is_empty() => Value::Null,
        // Some documents are JSON under another media type.
        _ if bytes.starts_with(b"{") => serde_json::from_slice(bytes).unwrap_or_else(|_| Value::from(text())),
        _ => Value::from(text()),
    }
}

fn headers_of(headers: &HeaderMap, variables: &Variables) -> BTreeMap<String, Vec<String>> {
    let mut chosen = BTreeMap::new();
    for name in COMPARED_HEADERS {
        let values: Vec<String> = headers
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .map(|value| normalize::text(value, &variables.replaced))
            .collect();
        if !values.is_empty() {
            chosen.insert(name.to_owned(), values);
        }
    }
    chosen
}

/// The part of the body that the step compares.
fn compared_part(mut tree: Value, step: &Step, variables: &Variables) -> Value {
    if !step.only.is_empty() {
        let parts = step.only.iter().map(|pointer| {
            (pointer.clone(), tree.pointer(pointer).cloned().unwrap_or(Value::from("<absent>")))
        });
        return Value::Object(parts.collect());
    }
    for pointer in &step.ignore {
        let pointer = variables.in_text(pointer);
        let Some((parent, key)) = pointer.rsplit_once('/') else { continue };
        match tree.pointer_mut(parent) {
            Some(Value::Object(object)) => {
                object.remove(key);
            }
            Some(Value::Array(list)) => {
                if let Some(at) = key.parse().ok().filter(|at: &usize| *at < list.len()) {
                    list.remove(at);
                }
            }
            _ => {}
        }
    }
    tree
}

/// Expands the short names that scripts use for media types.
fn long_name(short: &str) -> &str {
    match short {
        "json" => "application/json",
        "yaml" => "application/yaml",
        "protobuf" => "application/vnd.kubernetes.protobuf",
        "json-patch" => "application/json-patch+json",
        "merge" => "application/merge-patch+json",
        "strategic" => "application/strategic-merge-patch+json",
        "apply" => "application/apply-patch+yaml",
        "table" => "application/json;as=Table;g=meta.k8s.io;v=v1",
        "metadata" => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        "metadata-list" => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        other => other,
    }
}
