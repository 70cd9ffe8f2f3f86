//! Creates the `default` service account in each active namespace, and recreates it when it is deleted.

use std::sync::Arc;
use std::time::Duration;

use api::Status;
use tokio::sync::watch;
use value::{Str, Value};

use crate::api::{Api, ObjectChange, ResourceKind, WatchSource, object};
use crate::drive::{self, Controller, ReconcileOutcome};

pub(crate) const NAME: &str = "service-account-controller";

/// The service account of pods that name none.
const ACCOUNT: &str = "default";

struct ServiceAccounts<A> {
    api: Arc<A>,
    namespaces: Arc<ResourceKind>,
    accounts: Arc<ResourceKind>,
}

pub(crate) async fn run<A: Api>(api: Arc<A>, stop: watch::Receiver<bool>) {
    let (Some(namespaces), Some(accounts)) = (api.kind("v1", "Namespace"), api.kind("v1", "ServiceAccount"))
    else {
        return;
    };
    let sources = vec![
        WatchSource::Kind(Arc::clone(&namespaces)),
        WatchSource::Named(Arc::clone(&accounts), ACCOUNT.into()),
    ];
    let controller = ServiceAccounts { api: Arc::clone(&api), namespaces, accounts };
    drive::run(controller, api, sources, stop).await;
}

impl<A: Api> Controller for ServiceAccounts<A> {
    /// The name of a namespace.
    type Key = Str;
    const NAME: &'static str = NAME;
    const WORKERS: usize = 5;

    fn observe(&self, change: &ObjectChange) -> Vec<(Str, Duration)> {
        match (change.object_ref.kind == self.namespaces, change.deleted) {
            (true, false) => vec![(change.object_ref.name.clone(), Duration::ZERO)],
            (false, true) => vec![(change.object_ref.namespace.clone(), Duration::ZERO)],
            _ => Vec::new(),
        }
    }

    async fn reconcile(&self, namespace: Str) -> Result<ReconcileOutcome<Str>, Status> {
        let there = self.api.get(&self.namespaces.object_ref("", &namespace))?;
        let account = self.api.metadata(&self.accounts.object_ref(&namespace, ACCOUNT))?;
        if let Some(account) = missing(there.as_ref(), account.as_ref(), &self.accounts, &namespace) {
            self.api.create_if_absent(&self.accounts, &namespace, &account).await?;
        }
        Ok(ReconcileOutcome::Done)
    }
}

/// The account to create if the namespace is active and has none.
fn missing(
    namespace: Option<&Value>,
    account: Option<&Value>,
    kind: &ResourceKind,
    name: &str,
) -> Option<Value> {
    let active = namespace?.str_at(&["status", "phase"]) == Some("Active");
    (active && account.is_none()).then(|| object(kind, name, ACCOUNT))
}

#[cfg(test)]
mod tests;
