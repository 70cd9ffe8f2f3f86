//! `log`, `exec`, `attach`, `portforward`, `proxy`: authorized and admitted, then refused, because no node is reachable.

use admission::Operation;
use api::{FieldError, FieldErrors, GroupKind, GroupResource, GroupVersionKind, Status, meta};
use resources::table::Subresource;
use value::{Path, Value};

use crate::body::Body;
use crate::call::{Answer, Call};
use crate::catalog::Kind;
use crate::encode;
use crate::state::State;
use crate::write::Posted;

/// Answers as Kubernetes does when the node that should take the connection cannot.
pub async fn handle(
    state: &State,
    call: &mut Call,
    kind: &Kind,
    subresource: &Subresource,
) -> Result<Answer, Status> {
    if call.query.get("dryRun").is_some() {
        return Err(Status::bad_request("dryRun is not supported"));
    }
    let name = call.info.name.clone();
    let options = connect_options(call, subresource);
    if subresource.connect {
        let posted = Posted {
            state,
            kind,
            subresource: subresource.name,
            posted: GroupVersionKind::new("", "v1", subresource.kind),
            name: &name,
            operation: Operation::Connect,
            options: &Value::Null,
            dry_run: false,
        };
        posted.admit(call, options).await?;
    }
    // A proxied name may say scheme and port: `https:NAME:PORT`.
    let bare = match name.split(':').collect::<Vec<_>>().as_slice() {
        [_, name, _] | [name, _] if subresource.name == "proxy" => (*name).to_owned(),
        _ => name.to_string(),
    };
    let entry = state
        .store
        .get(&kind.key(&call.info.namespace, &bare))
        .ok_or_else(|| Status::not_found(&kind.resource, &bare))?;
    let object = encode::tree(&entry)?;
    match kind.stored.kind.as_str() {
        "Pod" => pod(state, call, &object, subresource.name),
        "Service" => {
            let message = format!("no endpoints available for service {}", api::field::quote(&bare));
            Err(Status::unavailable(message))
        }
        _ => Err(Status::internal(format!(
            "error trying to reach service: no route to node {}",
            api::field::quote(&bare)
        ))),
    }
}

fn connect_options(call: &Call, subresource: &Subresource) -> Value {
    let mut options = Value::map([("kind", subresource.kind), ("apiVersion", "v1")]);
    for key in ["container", "path", "command"] {
        if let Some(value) = call.query.get(key) {
            options.set_at(&[key], value);
        }
    }
    options
}

fn pod(state: &State, call: &Call, pod: &Value, subresource: &str) -> Result<Answer, Status> {
    if subresource == "log" {
        let errors = log_option_errors(call);
        if !errors.is_empty() {
            return Err(Status::invalid(&GroupKind::new("", "PodLogOptions"), meta::name(pod), &errors));
        }
    }
    let name = meta::name(pod);
    let containers: Vec<&str> = ["initContainers", "containers", "ephemeralContainers"]
        .iter()
        .flat_map(|list| pod.list_at(&["spec", list]))
        .filter_map(|c| c.str_at(&["name"]))
        .collect();
    if matches!(subresource, "log" | "exec" | "attach") {
        let asked = call.query.get("container").unwrap_or_default();
        let main: Vec<&str> =
            pod.list_at(&["spec", "containers"]).iter().filter_map(|c| c.str_at(&["name"])).collect();
        match asked {
            "" if main.len() > 1 => {
                let init: Vec<&str> = pod
                    .list_at(&["spec", "initContainers"])
                    .iter()
                    .filter_map(|c| c.str_at(&["name"]))
                    .collect();
                let mut message = format!(
                    "a container name must be specified for pod {name}, choose one of: [{}]",
                    main.join(" ")
                );
                if !init.is_empty() {
                    message.push_str(" or one of the init containers: [");
                    message.push_str(&init.join(" "));
                    message.push(']');
                }
                return Err(Status::bad_request(message));
            }
            "" => {}
            asked if !containers.contains(&asked) => {
                return Err(Status::bad_request(format!("container {asked} is not valid for pod {name}")));
            }
            _ => {}
        }
    }
    let node = pod.str_at(&["spec", "nodeName"]).unwrap_or_default();
    if node.is_empty() && subresource == "log" {
        return Ok(Answer::Raw(204, "", Body::empty()));
    }
    if node.is_empty() {
        return Err(Status::bad_request(format!("pod {name} does not have a host assigned")));
    }
    if state.store.get(&format!("/registry/core/nodes/{node}")).is_none() {
        return Err(Status::not_found(&GroupResource::new("", "nodes"), node));
    }
    Err(Status::internal("no preferred addresses found; known addresses: []"))
}

/// What is wrong with the options of `log`.
fn log_option_errors(call: &Call) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let number = |key: &str| call.query.get(key).and_then(|v| v.parse::<i64>().ok());
    if let Some(lines) = number("tailLines").filter(|n| *n < 0) {
        let path = Path::root().field("tailLines");
        errors.push(FieldError::invalid(&path, lines, "must be greater than or equal to 0"));
    }
    if let Some(bytes) = number("limitBytes").filter(|n| *n < 1) {
        let path = Path::root().field("limitBytes");
        errors.push(FieldError::invalid(&path, bytes, "must be greater than 0"));
    }
    if let Some(seconds) = number("sinceSeconds").filter(|n| *n < 1) {
        let path = Path::root().field("sinceSeconds");
        errors.push(FieldError::invalid(&path, seconds, "must be greater than 0"));
    }
    errors
}
