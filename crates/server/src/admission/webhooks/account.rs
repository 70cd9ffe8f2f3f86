//! The service account of webhook tokens, with its roles: created at start, and restored when they are deleted.

use std::sync::Arc;

use api::attestation::{ACCOUNT_NAME, ACCOUNT_NAMESPACE};
use api::meta;
use authz::rbac::bootstrap;
use catalog::unreadable::Unreadable;
use storage::Store;
use value::Value;

use super::WebhookTokenSource;
use crate::bootstrap::rbac_collection;
use crate::restore_deleted::{ObjectAt, RestoreDeleted};

/// The path of the collection, and the service account.
pub(crate) fn account() -> ObjectAt {
    let mut account = Value::map([("apiVersion", "v1"), ("kind", "ServiceAccount")]);
    meta::set(&mut account, "name", ACCOUNT_NAME);
    meta::set(&mut account, "namespace", ACCOUNT_NAMESPACE);
    (collection(), account)
}

fn collection() -> String {
    format!("/api/v1/namespaces/{ACCOUNT_NAMESPACE}/serviceaccounts")
}

/// Watches the service account and its roles, to restore them when they are deleted. Tokens are dropped when the account is deleted or
/// replaced.
pub(crate) fn watch(
    store: &Store,
    unreadable: &Arc<Unreadable>,
    tokens: &Arc<WebhookTokenSource>,
) -> RestoreDeleted {
    let roles = bootstrap::webhook_tokens().into_iter().map(|object| (rbac_collection(&object), object));
    let objects = std::iter::once(account()).chain(roles).collect();
    let tokens = Arc::clone(tokens);
    RestoreDeleted::watch(store, unreadable, objects, move |changed, old, new| {
        if invalidates_tokens(changed, old, new) {
            tokens.account_changed();
        } else {
            // A token request that was refused may be allowed now.
            tokens.ask_again();
        }
    })
}

/// Whether a change of an object in the collection `changed` invalidates tokens. The kind of the object follows from the collection,
/// never from its content.
fn invalidates_tokens(changed: &str, old: Option<&Value>, new: Option<&Value>) -> bool {
    changed == collection() && is_another(old, new)
}

/// Whether an account was deleted or replaced. A new account is neither: tokens that name it are valid, even if they were issued before
/// this event arrived.
fn is_another(old: Option<&Value>, new: Option<&Value>) -> bool {
    old.is_some_and(|old| Some(meta::uid(old)) != new.map(meta::uid))
}

#[cfg(test)]
mod tests;
