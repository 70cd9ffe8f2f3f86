//! Tracks which bootstrap objects are not written yet, and why.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use api::Status;
use tokio::sync::watch;

/// The health check a bootstrap object belongs to, named after the post-start hook of kube-apiserver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PostStartHook {
    /// The namespaces that every cluster has.
    SystemNamespaces,
    ServiceCidr,
    Roles,
    PriorityClasses,
    /// The `kubernetes` Service and its endpoints.
    KubernetesService,
    /// The addresses and ports of stored Services are allocated.
    ServiceIpRepair,
    /// The ConfigMap with which aggregated API servers authenticate callers, and the service account for webhook tokens.
    ClusterAuthentication,
    /// The built-in FlowSchemas and PriorityLevelConfigurations.
    PriorityAndFairness,
    /// The APIServices of groups that this server serves.
    ApiServices,
}

impl PostStartHook {
    /// All hooks, in the order of the health pages.
    pub(crate) const ALL: [PostStartHook; 9] = [
        PostStartHook::SystemNamespaces,
        PostStartHook::ServiceCidr,
        PostStartHook::Roles,
        PostStartHook::PriorityClasses,
        PostStartHook::KubernetesService,
        PostStartHook::ServiceIpRepair,
        PostStartHook::ClusterAuthentication,
        PostStartHook::PriorityAndFairness,
        PostStartHook::ApiServices,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            PostStartHook::SystemNamespaces => "poststarthook/start-system-namespaces-controller",
            PostStartHook::ServiceCidr => "poststarthook/start-kubernetes-service-cidr-controller",
            PostStartHook::Roles => "poststarthook/rbac/bootstrap-roles",
            PostStartHook::PriorityClasses => "poststarthook/scheduling/bootstrap-system-priority-classes",
            PostStartHook::KubernetesService => "poststarthook/bootstrap-controller",
            PostStartHook::ServiceIpRepair => "poststarthook/start-service-ip-repair-controllers",
            PostStartHook::ClusterAuthentication => {
                "poststarthook/start-cluster-authentication-info-controller"
            }
            PostStartHook::PriorityAndFairness => "poststarthook/priority-and-fairness-config-producer",
            PostStartHook::ApiServices => "autoregister-completion",
        }
    }
}

/// One object that is not written yet.
#[derive(Debug)]
struct PendingBootstrapObject {
    hook: PostStartHook,
    /// The error of the last attempt; `None` before the first attempt has ended.
    refusal: Option<String>,
}

/// The bootstrap objects that are not written yet, by path.
#[derive(Debug)]
pub(crate) struct Progress {
    inner: Mutex<BootstrapState>,
    /// Incremented after every change.
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct BootstrapState {
    /// Every bootstrap object has been registered, so that an empty `pending` means none is missing.
    complete: bool,
    pending: BTreeMap<String, PendingBootstrapObject>,
}

impl Default for Progress {
    fn default() -> Self {
        Progress { inner: Mutex::default(), changed: watch::Sender::new(0) }
    }
}

impl Progress {
    fn lock(&self) -> MutexGuard<'_, BootstrapState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut BootstrapState)) {
        change(&mut self.lock());
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Registers an object that must be written.
    pub(crate) fn begin(&self, hook: PostStartHook, path: &str) {
        self.change(|inner| {
            drop(inner.pending.insert(path.to_owned(), PendingBootstrapObject { hook, refusal: None }));
        });
    }

    /// Records the error of a failed attempt.
    pub(crate) fn refused(&self, path: &str, status: &Status) {
        self.change(|inner| {
            if let Some(pending) = inner.pending.get_mut(path) {
                pending.refusal = Some(status.message().to_owned());
            }
        });
    }

    /// Removes an object that was written.
    pub(crate) fn done(&self, path: &str) {
        self.change(|inner| drop(inner.pending.remove(path)));
    }

    /// Declares that every bootstrap object has been registered.
    pub(crate) fn set_complete(&self) {
        self.change(|inner| inner.complete = true);
    }

    /// Whether every bootstrap object is written.
    pub(crate) fn is_done(&self) -> bool {
        let inner = self.lock();
        inner.complete && inner.pending.is_empty()
    }

    /// Waits until every bootstrap object is written.
    pub(crate) async fn done_all(&self) {
        let _ = self.changed.subscribe().wait_for(|_| self.is_done()).await;
    }

    /// Waits until each object registered so far is written or has failed at least once.
    pub(crate) async fn attempted(&self) {
        let tried = |_: &u64| self.lock().pending.values().all(|pending| pending.refusal.is_some());
        let _ = self.changed.subscribe().wait_for(tried).await;
    }

    /// Waits until every bootstrap object is written or has failed at least once.
    pub(crate) async fn settled(&self) {
        let settled = |_: &u64| {
            let inner = self.lock();
            inner.complete && inner.pending.values().all(|pending| pending.refusal.is_some())
        };
        let _ = self.changed.subscribe().wait_for(settled).await;
    }

    /// Succeeds if all objects of a hook are written. The error contains the first missing object and the error of its last attempt,
    /// which names the policy or webhook that denied it.
    pub(crate) fn check(&self, hook: PostStartHook) -> Result<(), String> {
        let inner = self.lock();
        let mut of_hook = inner.pending.iter().filter(|(_, pending)| pending.hook == hook);
        match of_hook.next() {
            None if inner.complete => Ok(()),
            None => Err("not finished".to_owned()),
            Some((path, PendingBootstrapObject { refusal, .. })) => {
                let others = of_hook.count();
                let why = refusal.as_deref().unwrap_or("not finished");
                let more = if others == 0 { String::new() } else { format!(" (and {others} more)") };
                Err(format!("{path} is not written{more}: {why}"))
            }
        }
    }
}

#[cfg(test)]
mod tests;
