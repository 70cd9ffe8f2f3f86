use std::sync::Arc;
use std::time::Duration;

use admission::manifests::{LoadedManifests, ManifestSet};
use kinds::strategy::service::Family;

use super::{Health, PostStartHook};
use crate::config::StorageConfig;
use crate::manifests::DirectoryStatuses;
use crate::metrics::EtcdMetrics;
use requests::request_info::Query;
use runtime::MetricRegistry;

async fn health() -> Health {
    health_of(DirectoryStatuses::default()).await
}

async fn health_of(manifests: DirectoryStatuses) -> Health {
    let config = StorageConfig { quota: None, ..StorageConfig::default() };
    let etcd = Arc::new(EtcdMetrics::new(&MetricRegistry::new()).unwrap());
    let storage = config.build(Family::V4, Duration::ZERO, &etcd).await.unwrap();
    Health::new(&storage, &Arc::new(manifests), &Arc::default()).unwrap()
}

#[tokio::test]
async fn readiness_waits_for_every_manifest_directory_and_each_has_a_check() {
    let directories =
        [(ManifestSet::ValidatingPolicies, "/p".into()), (ManifestSet::MutatingWebhooks, "/w".into())];
    let health = health_of(DirectoryStatuses::of(&directories)).await;
    health.bootstrap.set_complete();
    let page = |path: &str| health.page(path, &Query::default(), false);
    let (policies, webhooks) = (
        "/readyz/manifest-admission-config/ValidatingAdmissionPolicy",
        "/readyz/manifest-admission-config/MutatingAdmissionWebhook",
    );
    assert_eq!(page("/readyz").unwrap().0, 500);
    assert_eq!(page(policies).unwrap().0, 500);
    health.manifests.loaded(ManifestSet::ValidatingPolicies, &LoadedManifests::default());
    assert_eq!(page(policies), Some((200, "ok".to_owned())));
    assert_eq!(page("/readyz").unwrap().0, 500, "the other directory is not in force yet");
    health.manifests.loaded(ManifestSet::MutatingWebhooks, &LoadedManifests::default());
    assert_eq!(page(webhooks).unwrap().0, 200);
    assert_eq!(page("/readyz").unwrap().0, 200);
    health.manifests.failed(ManifestSet::ValidatingPolicies, "bad");
    assert_eq!(page("/readyz").unwrap().0, 200, "the last good set is in force");
    health.manifests.unfollowed();
    assert_eq!(page(policies).unwrap().0, 500, "changes would not be seen");
    assert_eq!(page("/livez").unwrap().0, 200);
    assert_eq!(page("/livez/manifest-admission-config/ValidatingAdmissionPolicy"), None);
    assert_eq!(
        page("/readyz/manifest-admission-config/MutatingAdmissionPolicy"),
        None,
        "it has no directory"
    );
}

#[tokio::test]
async fn readiness_waits_for_bootstrap_and_ends_with_shutdown() {
    let health = health().await;
    let ready = |q: &str| health.page("/readyz", &Query::parse(q), false).unwrap();
    assert_eq!(ready("").0, 500);
    assert!(ready("").1.contains("[-]poststarthook/rbac/bootstrap-roles failed: reason withheld"));
    health.bootstrap.begin(PostStartHook::ApiServices, "/apiservices");
    health.bootstrap.set_complete();
    health.bootstrap.refused("/apiservices", &api::Status::bad_request("v1.: policy 'p' denied it"));
    assert!(ready("").1.contains("[-]autoregister-completion failed: reason withheld"));
    let verbose = Query::parse("verbose");
    let report = health.page("/readyz", &verbose, true).unwrap().1;
    assert!(report.contains(
        "[-]autoregister-completion failed: /apiservices is not written: v1.: policy 'p' denied it\n"
    ));
    let withheld = health.page("/readyz", &verbose, false).unwrap().1;
    assert!(!withheld.contains("policy"), "{withheld}");
    let one = |path: &str| health.page(path, &Query::default(), false).unwrap().0;
    assert_eq!(one("/readyz/autoregister-completion"), 500);
    assert_eq!(one("/livez/autoregister-completion"), 200, "starting anew would not help");
    assert_eq!(one("/healthz/autoregister-completion"), 500);
    assert_eq!(one("/livez"), 200);
    health.bootstrap.done("/apiservices");
    assert_eq!(ready(""), (200, "ok".to_owned()));
    assert!(ready("verbose").1.ends_with("readyz check passed\n"));
    health.set_stopping();
    assert_eq!(ready("").0, 500);
    assert_eq!(ready("exclude=shutdown").0, 200);
    assert_eq!(health.page("/livez", &Query::default(), false).unwrap().0, 200);
}

#[tokio::test]
async fn health_check_results_are_counted_by_page_and_status() {
    let health = health().await;
    health.page("/healthz", &Query::default(), false);
    health.page("/livez", &Query::default(), false);
    health.bootstrap.set_complete();
    health.page("/livez", &Query::parse("exclude=log"), false);
    health.page("/livez/ping", &Query::default(), false);
    let results = String::from_utf8(health.results()).unwrap();
    for line in [
        "# HELP kubernetes_healthcheck [STABLE] This metric records the result of a single healthcheck.",
        r#"kubernetes_healthcheck{name="autoregister-completion",type="livez"} 1"#,
        r#"kubernetes_healthchecks_total{name="autoregister-completion",status="error",type="healthz"} 1"#,
        r#"kubernetes_healthchecks_total{name="autoregister-completion",status="success",type="livez"} 2"#,
        r#"kubernetes_healthchecks_total{name="log",status="success",type="livez"} 1"#,
        r#"kubernetes_healthchecks_total{name="ping",status="success",type="livez"} 2"#,
    ] {
        assert!(results.contains(line), "{line} in {results}");
    }
    let paths = health.paths();
    assert!(paths.contains(&"/livez/ping".to_owned()) && paths.contains(&"/readyz/shutdown".to_owned()));
    assert!(!paths.contains(&"/livez/shutdown".to_owned()));
}

#[tokio::test]
async fn each_health_check_has_a_page_and_unknown_checks_have_none() {
    let health = health().await;
    assert_eq!(health.page("/healthz/ping", &Query::default(), false), Some((200, "ok".to_owned())));
    assert_eq!(health.page("/livez/shutdown", &Query::default(), false), None);
    assert_eq!(health.page("/healthz/nope", &Query::default(), false), None);
    assert!(
        health
            .page("/livez", &Query::parse("verbose&exclude=nope"), false)
            .unwrap()
            .1
            .contains(r#"no matches for "nope""#)
            || health.page("/livez", &Query::parse("verbose&exclude=nope"), false).unwrap().0 == 500
    );
}
