//! The account that tokens for webhooks are for, and what it may: there from the start, and back when somebody deletes it.

use std::sync::Arc;
use std::time::Duration;

use api::attestation::{ACCOUNT_NAME, ACCOUNT_NAMESPACE};
use api::{Status, meta};
use authn::InternalIdentity;
use authz::rbac::bootstrap;
use storage::Store;
use tokio::sync::{Notify, watch};
use tracing::warn;
use value::Value;

use super::WebhookTokens;
use crate::bootstrap::rbac_collection;
use crate::client::Client;
use crate::config::ConfigError;
use crate::follow::follow;
use crate::state::State;

/// How long it takes until the next attempt after one that failed.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The account.
pub(crate) fn account() -> (String, Value) {
    let mut account = Value::map([("apiVersion", "v1"), ("kind", "ServiceAccount")]);
    meta::set(&mut account, "name", ACCOUNT_NAME);
    meta::set(&mut account, "namespace", ACCOUNT_NAMESPACE);
    (format!("/api/v1/namespaces/{ACCOUNT_NAMESPACE}/serviceaccounts"), account)
}

/// All that must be there, with where to create it.
fn objects() -> Vec<(String, Value)> {
    let roles = bootstrap::webhook_tokens().into_iter().map(|object| (rbac_collection(&object), object));
    std::iter::once(account()).chain(roles).collect()
}

/// Hears of what is deleted.
pub(crate) struct Watched {
    deleted: Arc<Notify>,
}

/// Follows what must be there, and forgets tokens of an account that is no longer the same one.
pub(crate) fn watch(store: &Store, tokens: &Arc<WebhookTokens>) -> Result<Watched, ConfigError> {
    let deleted = Arc::new(Notify::new());
    let account = format!("/registry/core/serviceaccounts/{ACCOUNT_NAMESPACE}/{ACCOUNT_NAME}");
    let rbac = bootstrap::webhook_tokens().into_iter().map(|object| {
        let plural = if object.str_at(&["kind"]) == Some("ClusterRole") {
            "clusterroles"
        } else {
            "clusterrolebindings"
        };
        format!("/registry/rbac.authorization.k8s.io/{plural}/{}", meta::name(&object))
    });
    for key in std::iter::once(account).chain(rbac) {
        let (deleted, tokens) = (Arc::clone(&deleted), Arc::clone(tokens));
        follow(store, &key, move |old, new| {
            let is_account =
                new.or(old).and_then(|object| object.str_at(&["kind"])) == Some("ServiceAccount");
            if is_account && is_another(old, new) {
                tokens.account_changed();
            } else {
                // What was refused may be granted now.
                tokens.ask_again();
            }
            if new.is_none() {
                deleted.notify_one();
            }
        })?;
    }
    Ok(Watched { deleted })
}

/// Whether an account is no longer the one that it was. One that was not there before is nobody else's: tokens that name it are good,
/// even if they are faster than the news of it.
fn is_another(old: Option<&Value>, new: Option<&Value>) -> bool {
    old.is_some_and(|old| Some(meta::uid(old)) != new.map(meta::uid))
}

impl Watched {
    /// Brings back what is deleted, until the server stops.
    pub(crate) async fn keep(self, state: Arc<State>, mut stop: watch::Receiver<bool>) {
        let client = Client::new(state, InternalIdentity::ApiServer);
        let mut pause = PAUSE;
        loop {
            tokio::select! {
                () = self.deleted.notified() => {}
                _ = stop.wait_for(|stop| *stop) => return,
            }
            while let Err((what, status)) = restore(&client).await {
                warn!(
                    what,
                    why = status.message(),
                    "what tokens for webhooks need was deleted and could not be brought back yet"
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
}

/// Creates what is missing. What somebody changed stays as they want it.
async fn restore(client: &Client) -> Result<(), (String, Status)> {
    for (collection, object) in objects() {
        let path = format!("{collection}/{}", meta::name(&object));
        let created = match client.get(&path).await {
            Err(status) if status.code() == 404 => client.create(&collection, &object).await.map(drop),
            Err(status) => Err(status),
            Ok(_) => Ok(()),
        };
        match created {
            // Another server on the same store may have been first: that is as good.
            Err(status) if status.code() != 409 => return Err((path, status)),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{account, is_another};

    #[test]
    fn an_account_that_comes_is_no_other_and_one_that_goes_is() {
        let made = |uid: &str| {
            let (_, mut account) = account();
            api::meta::set(&mut account, "uid", uid);
            account
        };
        let (one, two) = (made("1"), made("2"));
        assert!(!is_another(None, Some(&one)));
        assert!(!is_another(Some(&one), Some(&one)));
        assert!(is_another(Some(&one), Some(&two)));
        assert!(is_another(Some(&one), None));
    }
}
