//! Writes the status of ValidatingAdmissionPolicies: the observed generation, and the type errors of expressions for the kinds that the
//! policy matches. In Kubernetes kube-controller-manager does this; here the server does, as the same service account.

use std::sync::Arc;
use std::time::Duration;

use admission::policy::type_check;
use authn::InternalIdentity;
use catalog::encode;
use catalog::keys;
use storage::{ListWatch, ListWatchUpdate, StoredEntry};
use tokio::sync::watch;
use tracing::debug;
use value::{Map, Value};

use crate::client::LoopbackClient;
use crate::state::State;

/// API path of the policies.
const PATH: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
/// Attempts to write a status, and the pause between them.
const RETRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(100);

/// Runs the controller until `stop` becomes true.
pub(crate) async fn run_until(state: Arc<State>, mut stop: watch::Receiver<bool>) {
    let name = "validatingadmissionpolicy-status-controller";
    let identity = InternalIdentity::ServiceAccount { namespace: api::namespaces::SYSTEM, name };
    let client = LoopbackClient::new(Arc::clone(&state), identity);
    tokio::select! {
        _ = stop.wait_for(|stop| *stop) => {}
        () = run(&state, &client) => {}
    }
}

async fn run(state: &Arc<State>, client: &LoopbackClient) {
    let (page, mut events) = ListWatch::start(&state.storage.store, keys::VALIDATING_POLICIES);
    let mut changed: Vec<Arc<StoredEntry>> = page.entries.iter().cloned().collect();
    loop {
        for entry in &changed {
            reconcile(state, client, entry).await;
        }
        changed = match events.next().await {
            Some(ListWatchUpdate::Event(event)) if event.kind == storage::ChangeKind::Deleted => Vec::new(),
            Some(ListWatchUpdate::Event(event)) => vec![Arc::clone(&event.entry)],
            Some(ListWatchUpdate::Relisted(page)) => page.entries.iter().cloned().collect(),
            None => return,
        };
    }
}

/// The result of type-checking one generation of a policy.
struct TypeCheck {
    name: String,
    generation: i64,
    warnings: Vec<Value>,
}

/// Type-checks a policy. Returns `None` if its status is up to date with the generation.
fn check(state: &State, entry: &StoredEntry) -> Option<TypeCheck> {
    let policy = encode::tree(entry).ok()?;
    let generation = policy.int_at(&["metadata", "generation"])?;
    let is_new = generation > policy.int_at(&["status", "observedGeneration"]).unwrap_or(0);
    is_new.then(|| TypeCheck {
        name: api::meta::name(&policy).to_owned(),
        generation,
        warnings: type_check(&policy, state),
    })
}

/// Writes the status of a policy unless it is up to date with the generation. Conflicts, 429 and 5xx are retried.
async fn reconcile(state: &Arc<State>, client: &LoopbackClient, entry: &Arc<StoredEntry>) {
    let (checker, checked_entry) = (Arc::clone(state), Arc::clone(entry));
    // A large policy takes too long for a worker thread.
    let checked = tokio::task::spawn_blocking(move || check(&checker, &checked_entry)).await;
    let Ok(Some(TypeCheck { name, generation, warnings })) = checked else { return };
    let mut checked = Map::new();
    if !warnings.is_empty() {
        checked.insert("expressionWarnings", Value::List(warnings));
    }
    let status =
        Value::map([("observedGeneration", Value::from(generation)), ("typeChecking", Value::Map(checked))]);
    let patch = Value::map([("status", status)]);
    for _ in 0..RETRIES {
        match client.merge_patch(&format!("{PATH}/{name}/status"), &patch).await {
            Err(refusal) if matches!(refusal.code(), 409 | 429 | 500..) => {
                debug!(name, error = %refusal, "cannot write the status of a policy; retrying");
                tokio::time::sleep(PAUSE).await;
            }
            _ => return,
        }
    }
}
