//! The health endpoints `/healthz`, `/livez` and `/readyz`, with a path for each check.

mod store_probe;

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use catalog::unreadable::Unreadable;
use prometheus::{Encoder, IntCounterVec, IntGaugeVec, TextEncoder};
use requests::request_info::Query;
use runtime::MetricRegistry;
use storage::Store;

use crate::bootstrap::{PostStartHook, Progress};
use crate::manifests::DirectoryStatuses;
use crate::state::Storage;
use store_probe::ClusterProbes;

/// The state that health checks examine.
#[derive(Debug)]
pub struct Health {
    store: Store,
    /// Status of the static manifest directories.
    manifests: Arc<DirectoryStatuses>,
    /// Bootstrap objects that are not written yet.
    bootstrap: Arc<Progress>,
    /// Stored objects that cannot be decoded.
    unreadable: Arc<Unreadable>,
    /// The clusters of the store: the checks `etcd` and `etcd-readiness`, then those of `--etcd-servers-overrides`.
    clusters: Vec<ClusterProbes>,
    /// Set when shutdown begins.
    stopping: AtomicBool,
    results: Results,
}

/// Results of the checks for `/metrics/slis`.
#[derive(Debug)]
struct Results {
    registry: MetricRegistry,
    last: IntGaugeVec,
    total: IntCounterVec,
}

impl Results {
    fn new() -> Result<Self, prometheus::Error> {
        let registry = MetricRegistry::new();
        let last = registry.gauge_vec(
            "kubernetes_healthcheck",
            "[STABLE] This metric records the result of a single healthcheck.",
            &["name", "type"],
        )?;
        let total = registry.counter_vec(
            "kubernetes_healthchecks_total",
            "[STABLE] This metric records the results of all healthcheck.",
            &["name", "status", "type"],
        )?;
        Ok(Results { registry, last, total })
    }

    fn note(&self, page: &str, name: &str, good: bool) {
        self.last.with_label_values(&[name, page]).set(i64::from(good));
        let status = if good { "success" } else { "error" };
        self.total.with_label_values(&[name, status, page]).inc();
    }
}

/// A response: `(HTTP status code, text)`.
pub type HealthPage = (u16, String);

/// Endpoints, each with its own path.
const PAGES: [&str; 3] = ["healthz", "livez", "readyz"];

/// True for the path of a health endpoint or of one of its checks.
pub(crate) fn is_page(path: &str) -> bool {
    path.strip_prefix('/').is_some_and(|path| PAGES.contains(&path.split('/').next().unwrap_or_default()))
}

/// `(name, also part of livez and healthz)`.
const CHECKS: &[(&str, bool)] = &[
    ("ping", true),
    ("log", true),
    ("etcd", true),
    ("etcd-readiness", false),
    ("storage-quota", false),
    ("informer-sync", false),
    (PostStartHook::SystemNamespaces.name(), true),
    (PostStartHook::ServiceCidr.name(), true),
    (PostStartHook::ClusterAuthentication.name(), true),
    (PostStartHook::ServiceIpRepair.name(), true),
    ("poststarthook/start-kube-apiserver-identity-lease-controller", true),
    ("poststarthook/start-kube-apiserver-identity-lease-garbage-collector", true),
    (PostStartHook::Roles.name(), true),
    (PostStartHook::PriorityClasses.name(), true),
    (PostStartHook::KubernetesService.name(), true),
    ("poststarthook/priority-and-fairness-config-consumer", true),
    (PostStartHook::PriorityAndFairness.name(), true),
    ("poststarthook/priority-and-fairness-filter", true),
    ("poststarthook/aggregator-reload-proxy-client-cert", true),
    ("poststarthook/start-kube-aggregator-informers", true),
    ("poststarthook/apiservice-status-local-available-controller", true),
    ("poststarthook/apiservice-status-remote-available-controller", true),
    ("poststarthook/apiservice-registration-controller", true),
    ("poststarthook/apiservice-discovery-controller", true),
    ("poststarthook/kube-apiserver-autoregistration", true),
    (PostStartHook::ApiServices.name(), true),
    ("poststarthook/apiservice-openapi-controller", true),
    ("poststarthook/apiservice-openapiv3-controller", true),
    ("shutdown", false),
];

/// Prefix of the checks for static manifest directories; the plugin name follows. They affect only readiness: a
/// server is not ready before its policies are in effect, but restarting it would not help.
const MANIFESTS: &str = "manifest-admission-config/";

impl Health {
    pub(crate) fn new(
        storage: &Storage,
        manifests: &Arc<DirectoryStatuses>,
        bootstrap: &Arc<Progress>,
    ) -> Result<Self, prometheus::Error> {
        Ok(Health {
            store: storage.store.clone(),
            manifests: Arc::clone(manifests),
            bootstrap: Arc::clone(bootstrap),
            unreadable: Arc::clone(&storage.unreadable),
            clusters: ClusterProbes::of(storage),
            stopping: AtomicBool::new(false),
            results: Results::new()?,
        })
    }

    pub fn registry(&self) -> &MetricRegistry {
        &self.results.registry
    }

    /// Renders all results so far in the Prometheus text format.
    pub fn results(&self) -> Vec<u8> {
        let mut page = Vec::new();
        // Writing to memory does not fail.
        let _ = TextEncoder::new().encode(&self.results.registry.gather(), &mut page);
        page
    }

    /// Paths of all endpoints and of each of their checks.
    pub fn paths(&self) -> Vec<String> {
        let pages = PAGES;
        let of = |page: &str| {
            let checks = self.checks(page).into_iter().map(|check| format!("/{page}/{check}"));
            std::iter::once(format!("/{page}")).chain(checks).collect::<Vec<_>>()
        };
        pages.into_iter().flat_map(of).collect()
    }

    /// True if any endpoint has this check; the empty name is the endpoint itself.
    pub fn is_check(&self, name: &str) -> bool {
        name.is_empty() || self.checks("readyz").iter().any(|check| check == name)
    }

    /// The checks of an endpoint, in output order.
    fn checks(&self, page: &str) -> Vec<String> {
        let ready = page == "readyz";
        let mut checks: Vec<String> =
            CHECKS.iter().filter(|(_, live)| ready || *live).map(|(name, _)| (*name).to_owned()).collect();
        let after_etcd = checks.iter().position(|name| name == "storage-quota" || name.contains('/'));
        let after_etcd = after_etcd.unwrap_or(checks.len());
        let overrides = self.clusters.iter().skip(1);
        let overrides = overrides.flat_map(|cluster| cluster.names().take(if ready { 2 } else { 1 }));
        checks.splice(after_etcd..after_etcd, overrides.map(str::to_owned));
        if ready {
            // The `shutdown` check stays last.
            let last = checks.len().saturating_sub(1);
            let directories =
                self.manifests.plugins().into_iter().map(|plugin| format!("{MANIFESTS}{plugin}"));
            checks.splice(last..last, directories);
        }
        checks
    }

    /// Makes `/readyz` fail, so that load balancers stop sending clients.
    pub fn set_stopping(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Reads etcd for the checks of this path, before [`Health::page`] reports the results.
    pub async fn probe_store(&self, path: &str) {
        let path = path.trim_start_matches('/');
        let (page, check) = path.split_once('/').unwrap_or((path, ""));
        for cluster in &self.clusters {
            cluster.run(page, check).await;
        }
    }

    fn check(&self, name: &str) -> Result<(), String> {
        match name {
            "storage-quota" if self.store.space().alarm => Err("the store is full".to_owned()),
            // The effect of roles, policies, webhooks, quotas and CRDs is known only if all of them can be decoded.
            "informer-sync" => self.unreadable.check_decisive(),
            "shutdown" if self.stopping.load(Ordering::Acquire) => Err("process is shutting down".to_owned()),
            _ if name.starts_with("etcd") => {
                self.clusters.iter().find_map(|cluster| cluster.result(name)).unwrap_or(Ok(()))
            }
            _ => match (name.strip_prefix(MANIFESTS), hook(name)) {
                (Some(plugin), _) => self.manifests.check(plugin),
                (None, Some(hook)) => self.bootstrap.check(hook),
                (None, None) => Ok(()),
            },
        }
    }

    /// Runs a check for an endpoint. Bootstrap refused by a policy does not fail `livez`, since a restart
    /// would not help.
    fn check_on(&self, page: &str, name: &str) -> Result<(), String> {
        if page == "livez" && hook(name).is_some() { Ok(()) } else { self.check(name) }
    }

    /// Renders `/healthz`, `/livez`, `/readyz` or a single check below them; `None` if there is no such
    /// check. The reason of a failure appears only with `?verbose` and if the client may see it (`reasons`).
    pub fn page(&self, path: &str, query: &Query, reasons: bool) -> Option<HealthPage> {
        let reasons = reasons && query.get("verbose").is_some();
        let shown = |why: String| if reasons { why } else { "reason withheld".to_owned() };
        let path = path.strip_prefix('/')?;
        let (page, one) = path.split_once('/').map_or((path, None), |(page, one)| (page, Some(one)));
        let checks = self.checks(page);
        if let Some(one) = one {
            let name = checks.iter().find(|name| *name == one)?;
            return Some(match self.check_on(page, name) {
                Ok(()) => (200, "ok".to_owned()),
                Err(why) => (500, format!("internal server error: {name} failed: {}\n", shown(why))),
            });
        }
        let excluded: Vec<&str> = query.all("exclude").collect();
        let mut text = String::new();
        let mut failed = Vec::new();
        for name in &checks {
            if excluded.contains(&name.as_str()) {
                let _ = writeln!(text, "[+]{name} excluded: ok");
                continue;
            }
            let result = self.check_on(page, name);
            self.results.note(page, name, result.is_ok());
            match result {
                Ok(()) => {
                    let _ = writeln!(text, "[+]{name} ok");
                }
                Err(why) => {
                    let _ = writeln!(text, "[-]{name} failed: {}", shown(why));
                    failed.push(name);
                }
            }
        }
        let unknown: Vec<String> = excluded
            .iter()
            .filter(|excluded| !self.is_check(excluded))
            .map(|e| api::field::quote(e))
            .collect();
        if !unknown.is_empty() {
            let _ = writeln!(
                text,
                "warn: some health checks cannot be excluded: no matches for {}",
                unknown.join(", ")
            );
        }
        if !failed.is_empty() {
            let _ = writeln!(text, "{page} check failed");
            return Some((500, text));
        }
        if query.get("verbose").is_none() {
            return Some((200, "ok".to_owned()));
        }
        let _ = writeln!(text, "{page} check passed");
        Some((200, text))
    }
}

/// The bootstrap hook that a check reports.
fn hook(check: &str) -> Option<PostStartHook> {
    PostStartHook::ALL.into_iter().find(|hook| hook.name() == check)
}

#[cfg(test)]
mod tests;
