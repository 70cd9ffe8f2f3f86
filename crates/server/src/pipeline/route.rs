//! The route stage: what a path names, from the catalog.

use std::sync::Arc;

use api::Status;
use http::Method;
use kinds::table::Verb;

use crate::call::Call;
use crate::catalog::ServedResource;

/// What a request is about, from the catalog.
pub(super) struct Target {
    pub(super) kind: Arc<ServedResource>,
    pub(super) verb: Verb,
}

/// Finds what a path names. What is not a path of Kubernetes' own router is not one here: a path that is understood in another
/// way than it was authorized would be a way in.
pub(super) fn route(call: &Call, kind: Arc<ServedResource>) -> Result<Target, Status> {
    let info = &call.info;
    let named = info.path_name().is_some();
    if info.in_namespace && !kind.namespaced {
        return Err(Status::no_such_resource());
    }
    if !info.in_namespace && kind.namespaced && (named || matches!(info.verb.as_str(), "create")) {
        return Err(if named { Status::no_such_resource() } else { Status::method_not_allowed() });
    }
    if named && info.in_namespace && info.namespace.is_empty() {
        return Err(Status::bad_request("Namespace parameter required."));
    }
    // Of what is answered and forgotten there is nothing with a name.
    let about_one = [Verb::Get, Verb::Update, Verb::Patch, Verb::Delete];
    if named && info.subresource.is_empty() && !about_one.iter().any(|verb| kind.verbs.contains(verb)) {
        return Err(Status::no_such_resource());
    }
    let verbs = if info.subresource.is_empty() {
        kind.verbs
    } else {
        let subresource = kind.subresource(&info.subresource).ok_or_else(Status::no_such_resource)?;
        if info.parts.len() > 3 && subresource.name != "proxy" {
            return Err(Status::no_such_resource());
        }
        if subresource.name == "proxy" && matches!(info.method, Method::HEAD | Method::OPTIONS) {
            return Ok(Target { kind, verb: Verb::Get });
        }
        subresource.verbs
    };
    let verb = match info.verb.as_str() {
        "get" => Verb::Get,
        "list" => Verb::List,
        "watch" => Verb::Watch,
        "create" => Verb::Create,
        "update" => Verb::Update,
        "patch" => Verb::Patch,
        "delete" => Verb::Delete,
        "deletecollection" => Verb::DeleteCollection,
        // A way to proxy that Kubernetes no longer has.
        "proxy" => return Err(Status::no_such_resource()),
        _ => return Err(Status::method_not_allowed()),
    };
    let needs_name = matches!(verb, Verb::Get | Verb::Update | Verb::Patch | Verb::Delete);
    if needs_name && !named
        || info.method == Method::HEAD
        || verb == Verb::Watch && info.method != Method::GET
        || verb == Verb::Create && named && info.subresource.is_empty()
        || verb == Verb::DeleteCollection && kind.namespaced && !info.in_namespace
        || verb == Verb::Watch && !info.subresource.is_empty()
    {
        return Err(Status::method_not_allowed());
    }
    // A watch is a list to the router; the handler says that there is none.
    let routed = if verb == Verb::Watch { Verb::List } else { verb };
    if !verbs.contains(&verb) && !verbs.contains(&routed) {
        return Err(Status::method_not_allowed());
    }
    Ok(Target { kind, verb })
}

/// As [`route`], for a custom resource: another router, which leaves what it does not know to nobody (`Err(None)`).
pub(super) fn route_custom(call: &Call, kind: Arc<ServedResource>) -> Result<Target, Option<Status>> {
    let info = &call.info;
    let across = matches!(info.verb.as_str(), "list" | "watch");
    if info.in_namespace && !kind.namespaced
        || !info.in_namespace && kind.namespaced && (!across || info.path_name().is_some())
    {
        return Err(None);
    }
    let unsupported = || Some(Status::method_not_supported(&kind.resource, &info.verb));
    let whole = info.subresource.is_empty();
    if !whole && kind.subresource(&info.subresource).is_none() {
        return Err(Some(Status::not_found(&kind.resource, &info.name)));
    }
    let verb = match info.verb.as_str() {
        "get" => Verb::Get,
        "update" => Verb::Update,
        "patch" => Verb::Patch,
        "list" if whole => Verb::List,
        "watch" if whole => Verb::Watch,
        "create" if whole => Verb::Create,
        "delete" if whole => Verb::Delete,
        "deletecollection" if whole => Verb::DeleteCollection,
        _ => return Err(unsupported()),
    };
    let named = info.path_name().is_some();
    if matches!(verb, Verb::Update | Verb::Patch) && !named {
        return Err(Some(Status::bad_request("name must be provided")));
    }
    if matches!(verb, Verb::Get | Verb::Delete) && !named || info.method == Method::HEAD {
        return Err(unsupported());
    }
    Ok(Target { kind, verb })
}
