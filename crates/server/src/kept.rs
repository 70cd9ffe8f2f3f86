//! Objects that the server cannot be without: they come back when somebody deletes them.

use std::sync::Arc;
use std::time::Duration;

use api::{Status, meta};
use authn::InternalIdentity;
use storage::Store;
use tokio::sync::{Notify, watch};
use tracing::warn;
use value::Value;

use crate::client::Client;
use crate::follow::{Notes, follow};
use crate::state::State;
use crate::unreadable::Unreadable;

/// How long it takes until the next attempt after one that failed.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// An object, and the path at which it is created.
pub(crate) type Placed = (String, Value);

/// Objects whose deletion is heard of.
pub(crate) struct Kept {
    objects: Vec<Placed>,
    deleted: Arc<Notify>,
}

impl Kept {
    /// Follows the objects; `heard` hears of every change too.
    pub(crate) fn watch(
        store: &Store,
        unreadable: &Arc<Unreadable>,
        objects: Vec<Placed>,
        heard: impl Fn(Option<&Value>, Option<&Value>) + Clone + Send + 'static,
    ) -> Self {
        let deleted = Arc::new(Notify::new());
        for (collection, object) in &objects {
            let (deleted, heard) = (Arc::clone(&deleted), heard.clone());
            let key = key(collection, meta::name(object));
            follow(store, &key, Notes::hints(unreadable), move |old, new| {
                heard(old, new);
                if new.is_none() {
                    deleted.notify_one();
                }
            });
        }
        Kept { objects, deleted }
    }

    /// Brings back what is deleted, until the server stops.
    pub(crate) async fn keep(self, state: Arc<State>, mut stop: watch::Receiver<bool>) {
        let client = Client::new(state, InternalIdentity::ApiServer);
        let mut pause = PAUSE;
        loop {
            tokio::select! {
                () = self.deleted.notified() => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
            while let Err((what, status)) = self.restore(&client).await {
                warn!(
                    what,
                    why = status.message(),
                    "what the server needs was deleted and could not be brought back yet"
                );
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    _ = stop.wait_for(|stop| *stop) => return,
                }
                pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
            }
            pause = PAUSE;
        }
    }

    /// Creates what is missing. What somebody changed stays as they want it. One that is refused does not hold up the others.
    async fn restore(&self, client: &Client) -> Result<(), (String, Status)> {
        let mut outcome = Ok(());
        for (collection, object) in &self.objects {
            let path = format!("{collection}/{}", meta::name(object));
            let created = match client.get(&path).await {
                Err(status) if status.code() == 404 => create(client, collection, &path, object).await,
                Err(status) => Err(status),
                Ok(_) => Ok(()),
            };
            match created {
                // Another server on the same store may have been first: that is as good.
                Err(status) if status.code() != 409 => outcome = Err((path, status)),
                _ => {}
            }
        }
        outcome
    }
}

/// Creates an object; a status that it carries comes through its own door.
async fn create(client: &Client, collection: &str, path: &str, object: &Value) -> Result<(), Status> {
    client.create(collection, object).await?;
    if object.get("status").is_some() {
        client.apply_status(path, object).await?;
    }
    Ok(())
}

/// Where an object of a collection is stored.
fn key(collection: &str, name: &str) -> String {
    let parts: Vec<&str> = collection.split('/').filter(|part| !part.is_empty()).collect();
    let (group, rest) = match parts.as_slice() {
        ["api", _, rest @ ..] => ("core", rest),
        ["apis", group, _, rest @ ..] => (*group, rest),
        _ => ("", parts.as_slice()),
    };
    match rest {
        ["namespaces", namespace, plural] => format!("/registry/{group}/{plural}/{namespace}/{name}"),
        _ => format!("/registry/{group}/{}/{name}", rest.join("/")),
    }
}

#[cfg(test)]
mod tests {
    use super::key;

    #[test]
    fn objects_are_stored_by_group_resource_namespace_and_name() {
        assert_eq!(key("/api/v1/namespaces", "default"), "/registry/core/namespaces/default");
        assert_eq!(
            key("/api/v1/namespaces/default/services", "kubernetes"),
            "/registry/core/services/default/kubernetes"
        );
        assert_eq!(
            key("/apis/rbac.authorization.k8s.io/v1/clusterroles", "view"),
            "/registry/rbac.authorization.k8s.io/clusterroles/view"
        );
    }
}
