//! The loop that keeps the ServiceCIDR `kubernetes`, which has the ranges of `--service-cluster-ip-range`.
//!
//! As in Kubernetes, every server runs it: it creates the object, upgrades it from one family to two, and sets its condition `Ready`. If
//! other servers have other flags, it only reports that.

use std::sync::Arc;
use std::time::Duration;

use api::validation::fields::Read as _;
use api::{Status, meta};
use authn::InternalIdentity;
use catalog::encode;
use catalog::keys;
use service_addresses::DEFAULT_CIDR;
use service_addresses::repair::Warning;
use tokio::time::MissedTickBehavior;
use tracing::warn;
use value::Value;

use super::events;
use crate::bootstrap;
use crate::client::LoopbackClient;
use crate::state::State;

const INTERVAL: Duration = Duration::from_secs(10);

const CONTROLLER: &str = "kubernetes-service-cidr-controller";

/// The action that the default ServiceCIDR needs.
#[derive(Clone, Debug, PartialEq, Eq)]
enum CidrAction {
    Nothing,
    Create,
    /// The stored object has the first of two ranges: add the second.
    AddSecondRange,
    /// Report once that the stored ranges are not those of the flag.
    ReportMismatch(Warning),
    /// Report once that another component has set `Ready` to false.
    ReportNotReady(Warning),
    SetReady,
}

/// Runs until the server stops.
pub(crate) async fn keep_default_cidr(state: Arc<State>) {
    let client = LoopbackClient::new(Arc::clone(&state), InternalIdentity::ApiServer);
    let mut stop = state.stopping();
    tokio::select! {
        () = state.bootstrap.settled() => {}
        _ = stop.wait_for(|stop| *stop) => return,
    }
    let mut timer = tokio::time::interval(INTERVAL);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // Each problem is reported once.
    let (mut mismatch, mut not_ready) = (false, false);
    loop {
        tokio::select! {
            _ = timer.tick() => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
        let ranges = state.addresses.ranges();
        let entry = state.storage.store.get(&keys::cluster_scoped(keys::SERVICE_CIDRS, DEFAULT_CIDR));
        let Ok(stored) = entry.map(|entry| encode::tree(&entry)).transpose() else { continue };
        let action = decide(stored.as_ref(), &ranges);
        let reported = match &action {
            CidrAction::ReportMismatch(_) => &mut mismatch,
            CidrAction::ReportNotReady(_) => &mut not_ready,
            _ => &mut false,
        };
        if !std::mem::replace(reported, true) {
            act(&state, &client, stored.as_ref(), action).await;
        }
    }
}

fn decide(stored: Option<&Value>, ranges: &[String]) -> CidrAction {
    let Some(stored) = stored else { return CidrAction::Create };
    let stored_ranges: Vec<&str> = stored.part("spec").texts("cidrs").collect();
    if let ([first, _], [only]) = (ranges, stored_ranges.as_slice())
        && first == only
    {
        return CidrAction::AddSecondRange;
    }
    if meta::is_deleting(stored) {
        return CidrAction::Nothing;
    }
    let warning = |reason: &str, message| Warning { reason: reason.to_owned(), action: "", message };
    if stored_ranges != ranges {
        let message = format!(
            "The default ServiceCIDR [{}] does not match the controller flag configurations [{}]",
            stored_ranges.join(" "),
            ranges.join(" ")
        );
        return CidrAction::ReportMismatch(warning("KubernetesDefaultServiceCIDRInconsistent", message));
    }
    let conditions = stored.list_at(&["status", "conditions"]);
    match conditions.iter().find(|condition| condition.text("type") == "Ready") {
        Some(ready) if ready.text("status") == "True" => CidrAction::Nothing,
        Some(ready) if ready.text("status") == "False" => {
            let message = format!("Configuration matches, but {}", ready.text("message"));
            CidrAction::ReportNotReady(warning(ready.text("reason"), message))
        }
        _ => CidrAction::SetReady,
    }
}

async fn act(state: &State, client: &LoopbackClient, stored: Option<&Value>, action: CidrAction) {
    let (collection, object) = bootstrap::default_service_cidr(state);
    let path = format!("{collection}/{DEFAULT_CIDR}");
    let (done, message): (Result<Value, Status>, String) = match action {
        CidrAction::Nothing => return,
        CidrAction::ReportMismatch(warning) | CidrAction::ReportNotReady(warning) => {
            warn!(
                reason = warning.message,
                "the default ServiceCIDR differs from --service-cluster-ip-range or is not ready; this server changes neither: set the flag alike on all servers, or correct the object"
            );
            if let Some(stored) = stored {
                events::warn(client, stored, &warning, CONTROLLER, state.now()).await;
            }
            return;
        }
        CidrAction::Create => {
            let mut created = object.clone();
            created.remove_at(&["status"]);
            let done = match client.create(&collection, &created).await {
                Err(status) if status.reason() != "AlreadyExists" => Err(status),
                _ => client.apply_status(&path, &object).await,
            };
            (done, "The default ServiceCIDR can not be created".to_owned())
        }
        CidrAction::AddSecondRange => {
            let mut updated = stored.cloned().unwrap_or_default();
            let ranges = state.addresses.ranges();
            let message = format!(
                "The default ServiceCIDR can not be upgraded from {} to dual stack [{}]",
                ranges.first().map(String::as_str).unwrap_or_default(),
                ranges.join(" ")
            );
            updated.set_at(&["spec", "cidrs"], Value::list(ranges));
            (client.update(&path, &updated).await, message)
        }
        CidrAction::SetReady => {
            let message = "The default ServiceCIDR Status can not be set to Ready=True".to_owned();
            (client.apply_status(&path, &object).await, message)
        }
    };
    if let Err(status) = done {
        warn!(
            error = status.message(),
            reason = message,
            "cannot write the default ServiceCIDR; retrying in 10 seconds"
        );
        if let Some(stored) = stored {
            let reason = "KubernetesDefaultServiceCIDRError".to_owned();
            let message =
                if message.ends_with(']') { format!("{message} : {}", status.message()) } else { message };
            let warning = Warning { reason, action: "", message };
            events::warn(client, stored, &warning, CONTROLLER, state.now()).await;
        }
    }
}

#[cfg(test)]
mod tests;
