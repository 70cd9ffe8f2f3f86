use std::sync::Arc;

use catalog::{Catalog, ServedResource};
use kinds::table::Served;

use super::AdmittedPost;

fn resource(group: &str, plural: &str) -> Arc<ServedResource> {
    Catalog::new(Served::default()).find(&group.into(), &"v1".into(), &plural.into()).unwrap()
}

fn admitted(is_eviction: bool, dry_run: bool) -> AdmittedPost {
    AdmittedPost { namespace: "apps".into(), pod: "web".into(), is_eviction, dry_run }
}

#[test]
fn a_binding_permits_writes_of_its_pod_only() {
    let (pods, budgets) = (resource("", "pods"), resource("policy", "poddisruptionbudgets"));
    let binding = admitted(false, false);
    let permits =
        |kind: &ServedResource, namespace, name| binding.permits(kind, &kind.key(namespace, name), false);
    assert!(permits(&pods, "apps", "web"));
    assert!(!permits(&pods, "apps", "web-2"));
    assert!(!permits(&pods, "other", "web"));
    assert!(!permits(&budgets, "apps", "web"));
    assert!(!permits(&resource("", "configmaps"), "apps", "web"));
}

#[test]
fn an_eviction_also_permits_writes_of_budgets_in_the_namespace_of_the_pod() {
    let (pods, budgets) = (resource("", "pods"), resource("policy", "poddisruptionbudgets"));
    let eviction = admitted(true, false);
    let permits =
        |kind: &ServedResource, namespace, name| eviction.permits(kind, &kind.key(namespace, name), false);
    assert!(permits(&pods, "apps", "web"));
    assert!(permits(&budgets, "apps", "any"));
    assert!(!permits(&budgets, "other", "any"));
    assert!(!permits(&pods, "apps", "web-2"));
}

#[test]
fn a_dry_run_permits_only_dry_runs() {
    let pods = resource("", "pods");
    let key = pods.key("apps", "web");
    assert!(!admitted(true, true).permits(&pods, &key, false));
    assert!(admitted(true, true).permits(&pods, &key, true));
    assert!(admitted(true, false).permits(&pods, &key, true));
}
