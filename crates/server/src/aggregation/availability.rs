//! Checks whether aggregated API servers are reachable, and writes the `Available` condition of their APIServices.
//!
//! A check runs when the APIService, its Service or its EndpointSlices change, every 30 seconds otherwise, and with
//! exponential backoff while it fails.

use std::sync::Arc;
use std::time::Duration;

use api::Status;
use api::field::quote;
use api::labels::SERVICE_NAME;
use authn::{InternalIdentity, User};
use catalog::encode;
use catalog::keys;
use crd::names;
use http::Uri;
use storage::Store;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tracing::{debug, info};
use value::{Backoff, Str, Value};

use super::service::AVAILABLE;
use super::{ApiService, CORE, PATH, Remote, forward};
use crate::admission::webhooks::resolve;
use crate::client::LoopbackClient;
use crate::state::State;

/// Interval between checks after a successful one.
const RESYNC: Duration = Duration::from_secs(30);
/// Backoff after a failed check: doubles from `FIRST_RETRY` up to `LAST_RETRY`.
const FIRST_RETRY: Duration = Duration::from_millis(5);
const LAST_RETRY: Duration = RESYNC;
/// Parallel requests per check. One successful response is enough.
const ATTEMPTS: usize = 5;
/// Time limit of each request until its response headers arrive.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Status, reason and message of the `Available` condition.
#[derive(Debug, PartialEq)]
pub(super) struct AvailableCondition {
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl AvailableCondition {
    fn not(reason: &'static str, message: String) -> Self {
        AvailableCondition { status: "False", reason, message }
    }
}

/// Updates the `Available` condition of a remote APIService until the APIService is deleted or becomes local.
pub(super) async fn monitor(state: Arc<State>, name: Str, moved: Arc<Notify>) {
    let client = LoopbackClient::new(Arc::clone(&state), InternalIdentity::ApiServer);
    let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
    loop {
        let Some(service) = state.apis.aggregation.registry.services.load().all.get(&name).cloned() else {
            return;
        };
        let Some(remote) = &service.remote else { return };
        let condition = check_availability(&state, &service, remote).await;
        let written = write_condition(&state, &client, &name, &condition).await;
        if let Err(status) = &written {
            debug!(api_service = %name, error = %status, "cannot write the status of an APIService; retrying");
        }
        let wait = if written.is_err() || condition.reason == "FailedDiscoveryCheck" {
            backoff.fail()
        } else {
            backoff.reset();
            RESYNC
        };
        tokio::select! {
            () = moved.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Marks a local APIService as available.
pub(super) async fn local(state: Arc<State>, name: Str) {
    let client = LoopbackClient::new(Arc::clone(&state), InternalIdentity::ApiServer);
    let condition = AvailableCondition {
        status: "True",
        reason: "Local",
        message: "Local APIServices are always available".to_owned(),
    };
    if let Err(status) = write_condition(&state, &client, &name, &condition).await {
        debug!(api_service = %name, error = %status, "cannot write the status of a local APIService");
    }
}

/// Reports that the Service of an APIService is ignored.
pub(super) async fn ignored(state: Arc<State>, name: Str) {
    let client = LoopbackClient::new(Arc::clone(&state), InternalIdentity::ApiServer);
    let why = "this server serves the group version itself; spec.service is ignored and must be removed";
    let condition = AvailableCondition::not("ServiceIgnored", why.to_owned());
    if let Err(status) = write_condition(&state, &client, &name, &condition).await {
        debug!(api_service = %name, error = %status, "cannot write the status of an APIService whose Service is ignored");
    }
}

/// Writes the condition to the APIService's status if it changed.
async fn write_condition(
    state: &State,
    client: &LoopbackClient,
    name: &str,
    condition: &AvailableCondition,
) -> Result<(), Status> {
    let Some(entry) = state.storage.store.get(&keys::cluster_scoped(keys::API_SERVICES, name)) else {
        return Ok(());
    };
    let mut object = encode::tree(&entry)?;
    let is_remote = object.at(&["spec", "service"]).is_some_and(|reference| !reference.is_null());
    if is_remote == (condition.reason == "Local") {
        // The APIService switched between local and remote since the check, so the result no longer applies.
        return Ok(());
    }
    let metrics = &state.apis.aggregation.registry.metrics;
    let available = condition.status == "True";
    metrics.is(name, available);
    let mut status = object.get("status").cloned().unwrap_or_default();
    let before = status.clone();
    let now = api::time::Timestamp::from_seconds(state.now()).time();
    names::set(&mut status, AVAILABLE, (condition.status, condition.reason, &condition.message), &now);
    if status == before {
        return Ok(());
    }
    let was_available = before
        .list_at(&["conditions"])
        .iter()
        .any(|c| c.str_at(&["type"]) == Some(AVAILABLE) && c.str_at(&["status"]) == Some("True"));
    object.set_at(&["status"], status);
    client.update(&format!("{PATH}/{name}/status"), &object).await?;
    info!(
        api_service = name,
        available = condition.status,
        reason = condition.reason,
        message = condition.message,
        "the availability of an APIService changed"
    );
    if was_available && !available {
        metrics.became_unavailable(name, condition.reason);
    }
    Ok(())
}

/// Checks the Service, its port and its EndpointSlices, then sends discovery requests. The first failure is the result.
async fn check_availability(state: &State, service: &ApiService, remote: &Remote) -> AvailableCondition {
    let (name, namespace) = (&remote.service, quote(&remote.namespace));
    let key = keys::namespaced(keys::SERVICES, &remote.namespace, name);
    let Some(stored) = state.storage.store.get(&key).and_then(|entry| encode::tree(&entry).ok()) else {
        return AvailableCondition::not(
            "ServiceNotFound",
            format!("service/{name} in {namespace} is not present"),
        );
    };
    if stored.str_at(&["spec", "type"]).unwrap_or("ClusterIP") == "ClusterIP" {
        let ports = stored.list_at(&["spec", "ports"]);
        let port = ports.iter().find(|port| port.int_at(&["port"]) == Some(i64::from(remote.port)));
        let Some(port) = port else {
            let message = format!("service/{name} in {namespace} is not listening on port {}", remote.port);
            return AvailableCondition::not("ServicePortError", message);
        };
        let port_name = port.str_at(&["name"]).unwrap_or_default();
        let slices = slices(&state.storage.store, remote);
        if slices.is_empty() {
            let message = format!("cannot find endpointslices for service/{name} in {namespace}");
            return AvailableCondition::not("EndpointsNotFound", message);
        }
        if !slices.iter().any(|slice| has_ready_endpoint(slice, port_name)) {
            let message = format!(
                "endpointslices for service/{name} in {namespace} have no addresses with port name {}",
                quote(port_name)
            );
            return AvailableCondition::not("MissingEndpoints", message);
        }
    }
    match probe(state, service, remote).await {
        Ok(()) => {
            AvailableCondition { status: "True", reason: "Passed", message: "all checks passed".to_owned() }
        }
        Err(why) => AvailableCondition::not("FailedDiscoveryCheck", why),
    }
}

fn slices(store: &Store, remote: &Remote) -> Vec<Value> {
    let scope = keys::in_namespace(keys::ENDPOINT_SLICES, &remote.namespace);
    let entries = store.snapshot(&scope).entries;
    let trees = entries.iter().filter_map(|entry| encode::tree(entry).ok());
    trees
        .filter(|slice| slice.str_at(&["metadata", "labels", SERVICE_NAME]) == Some(remote.service.as_str()))
        .filter(resolve::has_ip_addresses)
        .collect()
}

fn has_ready_endpoint(slice: &Value, port_name: &str) -> bool {
    let ready = |endpoint: &Value| endpoint.bool_at(&["conditions", "ready"]) != Some(false);
    let serves = |port: &Value| port.str_at(&["name"]) == Some(port_name) && port.int_at(&["port"]).is_some();
    slice.list_at(&["endpoints"]).iter().any(ready) && slice.list_at(&["ports"]).iter().any(serves)
}

/// Resolves the Service to the `HOST:PORT` of one of its endpoints.
pub(super) fn locate(store: &Store, remote: &Remote) -> Result<String, String> {
    resolve::endpoint(store, &remote.namespace, &remote.service, remote.port)
}

/// Sends [`ATTEMPTS`] discovery requests in parallel. Succeeds on the first 2xx response; otherwise returns the last error.
async fn probe(state: &State, service: &ApiService, remote: &Remote) -> Result<(), String> {
    let transport = (*remote.transport).as_ref().map_err(Clone::clone)?;
    let path = if service.name == CORE {
        "/api/v1".to_owned()
    } else {
        format!("/apis/{}/{}", service.registration.group, service.registration.version)
    };
    // It is in `system:masters`, so the server's own authorization cannot fail the check.
    let user = User::named(authn::names::AGGREGATOR).in_groups([authn::names::MASTERS]);
    let mut attempts: JoinSet<Result<(), String>> = JoinSet::new();
    for _ in 0..ATTEMPTS {
        let (transport, path, user) = (transport.clone(), path.clone(), user.clone());
        let host = locate(&state.storage.store, remote);
        let (registry, name) = (Arc::clone(&state.apis.aggregation.registry), service.name.clone());
        attempts.spawn(async move {
            let url = format!("https://{}{path}", host?);
            let failing = |why: String| format!("failing or missing response from {url}: {why}");
            let uri: Uri = url.parse().map_err(|error| failing(format!("{error}")))?;
            let request = forward::own_request(&registry, &name, uri, &user).map_err(failing)?;
            let asked = tokio::time::timeout(TIMEOUT, transport.send(request)).await;
            match asked {
                Err(_) => Err(failing(format!(
                    "Get {}: context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
                    quote(&url)
                ))),
                Ok(Err(failure)) => Err(failing(format!("Get {}: {failure}", quote(&url)))),
                Ok(Ok(response)) if response.status().is_success() => Ok(()),
                Ok(Ok(response)) => {
                    Err(failing(format!("bad status from {url}: {}", response.status().as_u16())))
                }
            }
        });
    }
    let mut last = Err("no availability check was started".to_owned());
    while let Some(done) = attempts.join_next().await {
        last = done.unwrap_or_else(|error| Err(error.to_string()));
        if last.is_ok() {
            break;
        }
    }
    last
}
