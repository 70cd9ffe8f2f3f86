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
use tokio::time::MissedTickBehavior;
use tracing::warn;
use value::Value;

use super::cidrs::DEFAULT_NAME;
use super::events::{self, Warning};
use crate::bootstrap;
use crate::client::Client;
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
    let client = Client::new(Arc::clone(&state), InternalIdentity::ApiServer);
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
        let entry = state.storage.store.get(&format!("{}{DEFAULT_NAME}", keys::SERVICE_CIDRS));
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

async fn act(state: &State, client: &Client, stored: Option<&Value>, action: CidrAction) {
    let (collection, object) = bootstrap::default_service_cidr(state);
    let path = format!("{collection}/{DEFAULT_NAME}");
    let (done, message): (Result<Value, Status>, String) = match action {
        CidrAction::Nothing => return,
        CidrAction::ReportMismatch(warning) | CidrAction::ReportNotReady(warning) => {
            warn!(
                reason = warning.message,
                "the default ServiceCIDR differs from the configured service IP ranges or is not ready"
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
        warn!(error = status.message(), reason = message, "cannot write the default ServiceCIDR");
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
mod tests {
    use value::{Value, json};

    use super::{CidrAction, decide};

    fn stored(cidrs: &str, conditions: &str) -> Value {
        let text = format!(
            r#"{{"metadata":{{"name":"kubernetes"}},"spec":{{"cidrs":{cidrs}}},"status":{{"conditions":{conditions}}}}}"#
        );
        json::parse(text.as_bytes()).unwrap()
    }

    const READY: &str = r#"[{"type":"Ready","status":"True"}]"#;

    #[test]
    fn the_default_service_cidr_follows_the_flag_only_from_one_family_to_two() {
        let one = ["10.0.0.0/24".to_owned()];
        let two = ["10.0.0.0/24".to_owned(), "fd00::/108".to_owned()];
        assert_eq!(decide(None, &one), CidrAction::Create);
        assert_eq!(decide(Some(&stored(r#"["10.0.0.0/24"]"#, READY)), &one), CidrAction::Nothing);
        assert_eq!(decide(Some(&stored(r#"["10.0.0.0/24"]"#, READY)), &two), CidrAction::AddSecondRange);
        let CidrAction::ReportMismatch(warning) = decide(Some(&stored(r#"["10.9.0.0/24"]"#, READY)), &two)
        else {
            panic!("other ranges are reported")
        };
        assert_eq!(
            warning.message,
            "The default ServiceCIDR [10.9.0.0/24] does not match the controller flag configurations [10.0.0.0/24 fd00::/108]"
        );
        let both = stored(r#"["10.0.0.0/24","fd00::/108"]"#, READY);
        assert!(matches!(decide(Some(&both), &one), CidrAction::ReportMismatch(_)), "no way back");
    }

    #[test]
    fn the_condition_is_set_unless_another_component_has_set_it() {
        let ranges = ["10.0.0.0/24".to_owned()];
        let with = |conditions: &str| decide(Some(&stored(r#"["10.0.0.0/24"]"#, conditions)), &ranges);
        assert_eq!(with("[]"), CidrAction::SetReady);
        assert_eq!(with(r#"[{"type":"Ready","status":"Unknown"}]"#), CidrAction::SetReady);
        let CidrAction::ReportNotReady(warning) =
            with(r#"[{"type":"Ready","status":"False","reason":"Why","message":"it is closed"}]"#)
        else {
            panic!("it is reported")
        };
        assert_eq!(
            (warning.reason.as_str(), warning.message.as_str()),
            ("Why", "Configuration matches, but it is closed")
        );
        let mut deleting = stored(r#"["10.0.0.0/24"]"#, "[]");
        deleting.set_at(&["metadata", "deletionTimestamp"], "2026-01-01T00:00:00Z");
        assert_eq!(decide(Some(&deleting), &ranges), CidrAction::Nothing);
    }
}
