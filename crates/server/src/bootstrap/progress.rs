//! How far bootstrap has come: which objects are not written yet, and why.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use api::Status;
use tokio::sync::watch;

/// The part of the health pages that an object of bootstrap belongs to, named as Kubernetes names its post-start hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Hook {
    /// The namespaces that are always there.
    SystemNamespaces,
    /// The `kubernetes` ServiceCIDR.
    ServiceCidr,
    /// Roles and role bindings.
    Roles,
    /// The system priority classes.
    PriorityClasses,
    /// The `kubernetes` Service and its endpoints.
    KubernetesService,
    /// The ConfigMap by which aggregated API servers recognise callers, and the service account that webhook tokens are for.
    ClusterAuthentication,
    /// The FlowSchemas and PriorityLevelConfigurations that every server has.
    PriorityAndFairness,
    /// The APIServices of what this server serves.
    ApiServices,
}

impl Hook {
    /// Every hook, in the order in which the health pages show them.
    pub(crate) const ALL: [Hook; 8] = [
        Hook::SystemNamespaces,
        Hook::ServiceCidr,
        Hook::Roles,
        Hook::PriorityClasses,
        Hook::KubernetesService,
        Hook::ClusterAuthentication,
        Hook::PriorityAndFairness,
        Hook::ApiServices,
    ];

    /// The name of its health check.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Hook::SystemNamespaces => "poststarthook/start-system-namespaces-controller",
            Hook::ServiceCidr => "poststarthook/start-kubernetes-service-cidr-controller",
            Hook::Roles => "poststarthook/rbac/bootstrap-roles",
            Hook::PriorityClasses => "poststarthook/scheduling/bootstrap-system-priority-classes",
            Hook::KubernetesService => "poststarthook/bootstrap-controller",
            Hook::ClusterAuthentication => "poststarthook/start-cluster-authentication-info-controller",
            Hook::PriorityAndFairness => "poststarthook/priority-and-fairness-config-producer",
            Hook::ApiServices => "autoregister-completion",
        }
    }
}

/// One object that is not written yet.
#[derive(Debug)]
struct Pending {
    hook: Hook,
    /// What the last attempt was answered; nothing before the first.
    refusal: Option<String>,
}

/// Which objects of bootstrap are not written yet, by path.
#[derive(Debug)]
pub(crate) struct Progress {
    inner: Mutex<Inner>,
    /// Counts the changes.
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Whether every object of bootstrap has been begun, so that nothing pending means that nothing is missing.
    complete: bool,
    pending: BTreeMap<String, Pending>,
}

impl Default for Progress {
    fn default() -> Self {
        Progress { inner: Mutex::default(), changed: watch::Sender::new(0) }
    }
}

impl Progress {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Inner)) {
        change(&mut self.lock());
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// An object has to be written.
    pub(crate) fn begin(&self, hook: Hook, path: &str) {
        self.change(|inner| drop(inner.pending.insert(path.to_owned(), Pending { hook, refusal: None })));
    }

    /// An attempt to write it was refused.
    pub(crate) fn refused(&self, path: &str, status: &Status) {
        self.change(|inner| {
            if let Some(pending) = inner.pending.get_mut(path) {
                pending.refusal = Some(status.message().to_owned());
            }
        });
    }

    /// It is written.
    pub(crate) fn done(&self, path: &str) {
        self.change(|inner| drop(inner.pending.remove(path)));
    }

    /// Every object has been begun.
    pub(crate) fn set_complete(&self) {
        self.change(|inner| inner.complete = true);
    }

    /// Whether every object is written.
    pub(crate) fn is_done(&self) -> bool {
        let inner = self.lock();
        inner.complete && inner.pending.is_empty()
    }

    /// Waits until every object is written.
    pub(crate) async fn done_all(&self) {
        let _ = self.changed.subscribe().wait_for(|_| self.is_done()).await;
    }

    /// Waits until each of the objects begun so far is written or was refused at least once.
    pub(crate) async fn attempted(&self) {
        let tried = |_: &u64| self.lock().pending.values().all(|pending| pending.refusal.is_some());
        let _ = self.changed.subscribe().wait_for(tried).await;
    }

    /// Waits until every object is written, or was refused at least once.
    pub(crate) async fn settled(&self) {
        let settled = |_: &u64| {
            let inner = self.lock();
            inner.complete && inner.pending.values().all(|pending| pending.refusal.is_some())
        };
        let _ = self.changed.subscribe().wait_for(settled).await;
    }

    /// Whether the objects of a hook are written; if not, the first that is not, and what the server was answered about it, which
    /// names the policy or the webhook that refused it.
    pub(crate) fn check(&self, hook: Hook) -> Result<(), String> {
        let inner = self.lock();
        let mut of_hook = inner.pending.iter().filter(|(_, pending)| pending.hook == hook);
        match of_hook.next() {
            None if inner.complete => Ok(()),
            None => Err("not finished".to_owned()),
            Some((path, Pending { refusal, .. })) => {
                let others = of_hook.count();
                let why = refusal.as_deref().unwrap_or("not finished");
                let more = if others == 0 { String::new() } else { format!(" (and {others} more)") };
                Err(format!("{path} is not written{more}: {why}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use api::Status;

    use super::{Hook, Progress};

    #[tokio::test]
    async fn a_check_fails_until_all_its_objects_are_written_and_says_which_is_not_and_why() {
        let progress = Progress::default();
        assert!(progress.check(Hook::Roles).is_err(), "nothing has been begun");
        progress.begin(Hook::Roles, "/clusterroles/a");
        progress.begin(Hook::Roles, "/clusterroles/b");
        progress.set_complete();
        assert_eq!(progress.check(Hook::SystemNamespaces), Ok(()));
        progress.refused("/clusterroles/a", &Status::bad_request("policy 'p' denied it"));
        progress.done("/clusterroles/b");
        progress.settled().await;
        assert_eq!(
            progress.check(Hook::Roles),
            Err("/clusterroles/a is not written: policy 'p' denied it".to_owned())
        );
        progress.done("/clusterroles/a");
        assert_eq!(progress.check(Hook::Roles), Ok(()));
        progress.done_all().await;
    }
}
