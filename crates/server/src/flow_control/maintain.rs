//! Creates and maintains the bootstrap FlowSchemas and PriorityLevelConfigurations.

use std::sync::Arc;
use std::time::Duration;

use api::Status;
use api::groups::FLOW_CONTROL;
use authn::InternalIdentity;
use catalog::Catalog;
use flowcontrol::bootstrap::{self, FlowControlKind, Maintained, MaintenanceWrite};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::warn;
use value::{Backoff, Map, Value};

use crate::bootstrap::{PostStartHook, Progress};
use crate::client::LoopbackClient;
use crate::state::State;

/// Field manager of these writes.
const FIELD_MANAGER: &str = "api-priority-and-fairness-config-producer-v1";
/// Interval between checks of all objects.
const PERIOD: Duration = Duration::from_mins(1);
/// First delay after a failed write; doubles up to [`PERIOD`].
const RETRY: Duration = Duration::from_secs(1);

/// True if the flow control API is served, so that the objects can be written.
pub(crate) fn is_served(catalog: &Catalog) -> bool {
    catalog.find(&FLOW_CONTROL.into(), &"v1".into(), &FlowControlKind::FlowSchema.plural().into()).is_some()
}

/// Registers the objects as part of bootstrap: the server is not ready before they are written.
pub(crate) fn begin(progress: &Progress) {
    for object in bootstrap::objects() {
        progress.begin(PostStartHook::PriorityAndFairness, &path_of(&object));
    }
}

fn path_of(object: &Maintained) -> String {
    format!("{}/{}", collection(object.kind), object.name())
}

/// Writes all missing or outdated objects concurrently. Returns the paths that could not be written, with the
/// error.
async fn ensure(state: &Arc<State>) -> Vec<(String, Status)> {
    let client = LoopbackClient::new(Arc::clone(state), InternalIdentity::ApiServer);
    let mut writes = JoinSet::new();
    for object in bootstrap::objects() {
        let client = client.clone();
        let state = Arc::clone(state);
        writes.spawn(async move {
            let path = path_of(&object);
            let written = reconcile_object(&client, &object, &path).await;
            match &written {
                Ok(()) => state.bootstrap.done(&path),
                Err(status) => state.bootstrap.refused(&path, status),
            }
            written.map_err(|status| (path, status))
        });
    }
    writes.join_all().await.into_iter().filter_map(Result::err).collect()
}

/// Checks the objects every minute until the server stops. Failed writes are retried with backoff.
pub(crate) async fn maintain(state: Arc<State>, mut stop: watch::Receiver<bool>) {
    let client = LoopbackClient::new(Arc::clone(&state), InternalIdentity::ApiServer);
    let (mut pause, mut backoff) = (Duration::ZERO, Backoff::new(RETRY, PERIOD));
    loop {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
        let mut failed = ensure(&state).await;
        for kind in FlowControlKind::ALL {
            if let Err(failure) = remove_obsolete(&client, kind).await {
                failed.push(failure);
            }
        }
        for (what, status) in &failed {
            warn!(
                object = what,
                error = status.message(),
                "cannot update an API Priority and Fairness object; retrying"
            );
        }
        if failed.is_empty() {
            pause = PERIOD;
            backoff.reset();
        } else {
            pause = backoff.fail();
        }
    }
}

fn collection(kind: FlowControlKind) -> String {
    format!("/apis/{FLOW_CONTROL}/v1/{}", kind.plural())
}

async fn reconcile_object(client: &LoopbackClient, object: &Maintained, path: &str) -> Result<(), Status> {
    let stored = client.get_if_exists(path).await?;
    let written = match object.revise(stored.as_ref()) {
        MaintenanceWrite::Keep => return Ok(()),
        MaintenanceWrite::Create(object_to_create) => {
            let target = format!("{}?fieldManager={FIELD_MANAGER}", collection(object.kind));
            client.create(&target, &object_to_create).await
        }
        MaintenanceWrite::Update(revised) => {
            client.update(&format!("{path}?fieldManager={FIELD_MANAGER}"), &revised).await
        }
    };
    match written {
        // Another writer was faster; the next check looks at the result.
        Err(status) if status.code() == 409 => Ok(()),
        other => other.map(drop),
    }
}

/// Deletes objects that only earlier versions maintained.
async fn remove_obsolete(client: &LoopbackClient, kind: FlowControlKind) -> Result<(), (String, Status)> {
    let collection = collection(kind);
    let list = client.get(&collection).await.map_err(|status| (collection.clone(), status))?;
    for object in list.list_at(&["items"]).iter().filter(|object| bootstrap::is_obsolete(kind, object)) {
        let path = format!("{collection}/{}", api::meta::name(object));
        match client.delete(&path, &Value::Map(Map::new())).await {
            Err(status) if status.code() != 404 => return Err((path, status)),
            _ => {}
        }
    }
    Ok(())
}
