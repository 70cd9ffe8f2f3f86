//! `log`, `exec`, `attach`, `portforward` and `proxy`: requests are authorized, admitted and resolved to an address from stored objects,
//! and then refused, because this server cannot reach nodes.

mod location;
mod options;

use admission::Operation;
use api::{GroupKind, GroupVersionKind, Status};
use authz::Decision;
use catalog::ServedResource;
use kinds::table::SubresourceRow;
use location::ConnectTarget;
use value::Value;

use crate::body::Body;
use crate::call::{Call, HandlerResponse};
use crate::consistent_reads;
use crate::state::State;
use crate::write::Posted;

/// Answers as kube-apiserver does when it cannot connect to the node.
pub async fn handle(
    state: &State,
    call: &mut Call,
    kind: &ServedResource,
    subresource: &SubresourceRow,
) -> Result<HandlerResponse, Status> {
    if subresource.connect && call.query.get("dryRun").is_some_and(|dry_run| !dry_run.is_empty()) {
        return Err(Status::bad_request("dryRun is not supported"));
    }
    let name = call.info.name.clone();
    let options_kind = if subresource.name == "log" { "PodLogOptions" } else { subresource.kind };
    let mut options = options::read(call, options_kind).map_err(Status::bad_request)?;
    if subresource.connect {
        let posted = Posted {
            state,
            kind,
            subresource: subresource.name,
            posted: GroupVersionKind::new("", "v1", subresource.kind),
            name: &name,
            operation: Operation::Connect,
            options: Value::Null,
            dry_run: false,
        };
        // Use the options as admitted, which admission may have changed.
        options = posted.admit(call, options).await?;
    }
    let namespace = call.info.namespace.clone();
    // kube-apiserver reads these objects from etcd.
    consistent_reads::require_current(&state.storage.store).await?;
    let located = match (kind.stored.kind.as_str(), subresource.name) {
        ("Service", _) => location::service(&state.storage.store, &namespace, &name)?,
        ("Node", _) => location::node(&state.storage.store, &name)?,
        ("Pod", "proxy") => location::pod(&state.storage.store, &namespace, &name)?,
        ("Pod", stream) => {
            let errors = options::log_errors(&options);
            if !errors.is_empty() {
                return Err(Status::invalid(&GroupKind::new("", "PodLogOptions"), &name, &errors));
            }
            if stream != "log" {
                may_create(state, call).await?;
            }
            location::container(&state.storage.store, &namespace, &name, stream, &options)?
        }
        _ => return Err(Status::no_such_resource()),
    };
    match located {
        ConnectTarget::Nowhere => Ok(HandlerResponse::Raw(204, "", Body::empty())),
        ConnectTarget::Kubelet { host, path } if subresource.name == "log" => {
            Err(Status::plain(format!("Get \"https://{host}{path}\": {}", unreachable(&host))))
        }
        ConnectTarget::Kubelet { host, .. } if call.headers.contains_key(http::header::UPGRADE) => {
            Err(Status::internal(format!("error dialing backend: {}", unreachable(&host))))
        }
        ConnectTarget::Kubelet { .. } => Err(Status::bad_request("Upgrade request required")),
        ConnectTarget::Backend { host } => {
            Err(Status::unavailable(format!("error trying to reach service: {}", unreachable(&host))))
        }
    }
}

/// The dial error for every node and backend: this server has no route to them.
fn unreachable(host: &str) -> String {
    format!("dial tcp {host}: connect: no route to host")
}

/// Requires the `create` permission for streams. An upgraded GET could otherwise take over a stream with only the `get` permission.
async fn may_create(state: &State, call: &Call) -> Result<(), Status> {
    if call.info.verb == "create" {
        return Ok(());
    }
    let mut asked = call.permit().attributes().clone();
    asked.verb = "create".into();
    let answer = state.authorization.chain_for(call.caller()).decide(call.user(), &asked).await;
    if answer.decision == Decision::Allow {
        return Ok(());
    }
    let resource = api::GroupResource::new(call.info.group.clone(), call.info.resource.clone());
    Err(Status::forbidden(&resource, &call.info.name, answer.why()))
}
