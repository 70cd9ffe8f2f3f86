//! Recreates objects the server cannot do without when they are deleted.

use std::sync::Arc;
use std::time::Duration;

use api::{Status, meta};
use authn::InternalIdentity;
use catalog::keys;
use catalog::unreadable::Unreadable;
use runtime::RetryPause;
use storage::Store;
use tokio::sync::{Notify, watch};
use tracing::warn;
use value::Value;

use crate::client::LoopbackClient;
use crate::informer::{UnreadableConcern, start_informer};
use crate::state::State;

/// The pause after a failed attempt.
const RETRY: RetryPause = RetryPause::new(Duration::from_secs(1), Duration::from_secs(30));

/// The path of the collection to create an object in, and the object.
pub(crate) type ObjectAt = (String, Value);

/// Objects whose deletion is watched.
pub(crate) struct RestoreDeleted {
    objects: Vec<ObjectAt>,
    deleted: Arc<Notify>,
}

impl RestoreDeleted {
    /// Starts to watch the objects. `on_change` is also called with the collection of every changed object, and its old and new state.
    pub(crate) fn watch(
        store: &Store,
        unreadable: &Arc<Unreadable>,
        objects: Vec<ObjectAt>,
        on_change: impl Fn(&str, Option<&Value>, Option<&Value>) + Clone + Send + 'static,
    ) -> Self {
        let deleted = Arc::new(Notify::new());
        for (collection, object) in &objects {
            let (deleted, on_change) = (Arc::clone(&deleted), on_change.clone());
            let Some(key) = key(collection, meta::name(object)) else { continue };
            let collection = collection.clone();
            start_informer(store, &key, UnreadableConcern::without_concern(unreadable), move |old, new| {
                on_change(&collection, old, new);
                if new.is_none() {
                    deleted.notify_one();
                }
            });
        }
        RestoreDeleted { objects, deleted }
    }

    /// Recreates deleted objects until the server stops.
    pub(crate) async fn run(self: Arc<Self>, state: Arc<State>, mut stop: watch::Receiver<bool>) {
        let client = LoopbackClient::new(state, InternalIdentity::ApiServer);
        loop {
            tokio::select! {
                () = self.deleted.notified() => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
            let mut pause = RETRY;
            while let Err((object, status)) = self.restore(&client).await {
                warn!(
                    object,
                    error = status.message(),
                    "cannot recreate a deleted object that the server needs; retrying. A policy or webhook may deny the write"
                );
                if !pause.wait(&mut stop).await {
                    return;
                }
            }
        }
    }

    /// Creates the objects that are missing; modified ones are left alone. A failure does not prevent the creation of others.
    async fn restore(&self, client: &LoopbackClient) -> Result<(), (String, Status)> {
        let mut outcome = Ok(());
        for (collection, object) in &self.objects {
            let path = format!("{collection}/{}", meta::name(object));
            let created = match client.get(&path).await {
                Err(status) if status.code() == 404 => create(client, collection, &path, object).await,
                Err(status) => Err(status),
                Ok(_) => Ok(()),
            };
            match created {
                // 409: another server on the same store has created it first.
                Err(status) if status.code() != 409 => outcome = Err((path, status)),
                _ => {}
            }
        }
        outcome
    }
}

/// Creates an object, and writes its status, if any, through the `status` subresource.
async fn create(client: &LoopbackClient, collection: &str, path: &str, object: &Value) -> Result<(), Status> {
    client.create(collection, object).await?;
    if object.get("status").is_some() {
        client.apply_status(path, object).await?;
    }
    Ok(())
}

/// The storage key of an object in a collection such as `/api/v1/namespaces/default/services`; `None` unless it is a built-in resource.
fn key(collection: &str, name: &str) -> Option<String> {
    let parts: Vec<&str> = collection.split('/').filter(|part| !part.is_empty()).collect();
    let (group, rest) = match parts.as_slice() {
        ["api", _, rest @ ..] => ("", rest),
        ["apis", group, _, rest @ ..] => (*group, rest),
        _ => return None,
    };
    match rest {
        ["namespaces", namespace, plural] => {
            keys::built_in(group, plural).map(|prefix| keys::namespaced(prefix, namespace, name))
        }
        [plural] => keys::built_in(group, plural).map(|prefix| format!("{prefix}{name}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
