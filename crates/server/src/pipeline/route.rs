//! The route stage: determines the resource and the verb of a request.

use std::sync::Arc;

use api::Status;
use authn::AuthenticationMethod;
use catalog::unreadable::Concern;
use catalog::{Catalog, SchemaWriter, ServedResource};
use http::{Method, Response};
use kinds::table::Verb;
use requests::request_info::RequestInfo;

use crate::body::Body;
use crate::call::Call;
use crate::respond;
use crate::state::State;

pub(super) struct RoutedResource {
    pub(super) kind: Arc<ServedResource>,
    pub(super) verb: Verb,
}

/// Looks up the resource of a request. For a write, the guard pins its schema until it is dropped.
pub(super) fn find_resource(
    catalog: &Catalog,
    call: &Call,
) -> (Option<Arc<ServedResource>>, Option<SchemaWriter>) {
    let find = |catalog: &Catalog| {
        let RequestInfo { group, version, resource, .. } = &call.info;
        // Controllers delete the objects of a CRD also in versions that are not served.
        if *call.caller().via() == AuthenticationMethod::Internal {
            catalog.find_in_any_version(group, version, resource)
        } else {
            catalog.find(group, version, resource)
        }
    };
    if call.info.is_read_only() { (find(catalog), None) } else { catalog.find_to_write(find) }
}

/// The error is the complete response.
pub(super) fn route_resource(
    state: &State,
    call: &mut Call,
    found: Option<Arc<ServedResource>>,
) -> Result<RoutedResource, Box<Response<Body>>> {
    let routed = match found {
        None => {
            // While a CRD cannot be decoded, its resource is unknown rather than absent.
            let crd = format!("{}.{}", call.info.resource, call.info.group);
            let unreadable = &state.storage.unreadable;
            if let Err(status) = unreadable.check_named(&Concern::CustomResourceDefinition, &crd) {
                Err(Some(status))
            } else if state.apis.catalog.served().has_group(&call.info.group) {
                Err(Some(Status::no_such_resource()))
            } else {
                Err(None)
            }
        }
        Some(kind) if kind.row().is_none() => route_custom(call, kind),
        Some(kind) => route(call, kind).map_err(Some),
    };
    routed.map_err(|refused| {
        Box::new(match refused {
            None => respond::page_not_found(),
            Some(status) => respond::response_of(call, None, Err(status)),
        })
    })
}

/// Routes a request for a built-in resource. Accepts only paths that kube-apiserver's router accepts: a path
/// that is routed in another way than it was authorized would bypass authorization.
fn route(call: &Call, kind: Arc<ServedResource>) -> Result<RoutedResource, Status> {
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
    // Create-only resources such as reviews have no named objects.
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
            return Ok(RoutedResource { kind, verb: Verb::Get });
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
        // Kubernetes has removed this proxy path.
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
    // The router treats a watch as a list; the handler rejects it if it is not supported.
    let routed = if verb == Verb::Watch { Verb::List } else { verb };
    if !verbs.contains(&verb) && !verbs.contains(&routed) {
        return Err(Status::method_not_allowed());
    }
    Ok(RoutedResource { kind, verb })
}

/// Routes a request for a custom resource, for which kube-apiserver has another router. `Err(None)` means an
/// unknown path.
fn route_custom(call: &Call, kind: Arc<ServedResource>) -> Result<RoutedResource, Option<Status>> {
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
    Ok(RoutedResource { kind, verb })
}
