use value::Value;

use super::{
    Entry, aggregated_core, aggregated_groups, compare_versions, core_versions, group, groups, hash,
    resources,
};
use crate::table::{Served, verbs};

fn custom<'a>(group: &'a str, version: &'a str, plural: &'a str) -> Entry<'a> {
    Entry {
        group,
        version,
        kind: "Thing",
        plural,
        singular: "thing",
        short_names: vec!["th"],
        categories: Vec::new(),
        namespaced: true,
        verbs: verbs::ALL,
        subresources: Vec::new(),
        storage_hash: Some(hash(group, version, "Thing")),
        custom: true,
    }
}

fn group_names(list: &Value) -> Vec<&str> {
    list.list_at(&["groups"]).iter().filter_map(|group| group.str_at(&["name"])).collect()
}

#[test]
fn groups_are_listed_in_kubernetes_order_without_the_core_group() {
    let list = groups(&Served::default(), &[]);
    let names = group_names(&list);
    assert_eq!(names.len(), 21);
    assert_eq!(names[..3], ["apiregistration.k8s.io", "apps", "events.k8s.io"]);
    assert_eq!(
        list.list_at(&["groups"])[5].str_at(&["preferredVersion", "groupVersion"]),
        Some("autoscaling/v2")
    );
}

#[test]
fn a_group_lists_its_served_versions_only() {
    let versions = |served: &Served| {
        let document = group(served, &[], "resource.k8s.io").unwrap();
        let versions = document.list_at(&["versions"]);
        versions.iter().filter_map(|v| v.str_at(&["version"]).map(str::to_owned)).collect::<Vec<_>>()
    };
    assert_eq!(versions(&Served::default()), ["v1"]);
    assert_eq!(versions(&Served::parse("api/beta").unwrap()), ["v1", "v1beta2", "v1beta1"]);
    assert!(group(&Served::default(), &[], "example.com").is_none());
    assert!(group(&Served::parse("apps/v1=false").unwrap(), &[], "apps").is_none());
}

#[test]
fn resources_carry_verbs_names_and_subresources() {
    let served = Served::default();
    let list = resources(&served, &[], "", "v1").unwrap();
    assert_eq!(list.str_at(&["groupVersion"]), Some("v1"));
    let pods: Vec<&Value> =
        list.list_at(&["resources"]).iter().filter(|r| r.str_at(&["kind"]) == Some("Pod")).collect();
    assert_eq!(pods[0].str_at(&["storageVersionHash"]), Some("xPOwRZ+Yhw8="));
    assert_eq!(pods[1].str_at(&["name"]), Some("pods/ephemeralcontainers"));
    assert_eq!(pods[1].str_at(&["singularName"]), Some(""));
    assert!(resources(&served, &[], "", "v2").is_none());
    assert!(resources(&served, &[], "resource.k8s.io", "v1beta1").is_none());
}

#[test]
fn custom_resources_come_after_the_built_in_groups() {
    let served = Served::default();
    let rows = [
        custom("b.example.com", "v1beta1", "things"),
        custom("b.example.com", "v1", "things"),
        custom("a.example.com", "v1", "things"),
    ];
    let list = groups(&served, &rows);
    let names = group_names(&list);
    assert_eq!(names[names.len() - 2..], ["a.example.com", "b.example.com"]);
    let document = group(&served, &rows, "b.example.com").unwrap();
    assert_eq!(document.str_at(&["preferredVersion", "version"]), Some("v1"));
    let list = resources(&served, &rows, "a.example.com", "v1").unwrap();
    assert_eq!(list.list_at(&["resources"])[0].str_at(&["name"]), Some("things"));
}

#[test]
fn the_aggregated_form_holds_everything_at_once() {
    let served = Served::default();
    let core = aggregated_core(&served);
    let groups = core.list_at(&["items"]);
    assert_eq!(groups.len(), 1);
    let resources = groups[0].list_at(&["versions"])[0].list_at(&["resources"]);
    let pods = resources.iter().find(|r| r.str_at(&["resource"]) == Some("pods")).unwrap();
    assert_eq!(pods.str_at(&["scope"]), Some("Namespaced"));
    let eviction = &pods.list_at(&["subresources"])[3];
    assert_eq!(eviction.str_at(&["responseKind", "group"]), Some("policy"));
    let named = aggregated_groups(&served, &[]);
    assert_eq!(named.list_at(&["items"]).len(), 21);
    assert_eq!(named.list_at(&["items"])[0].str_at(&["metadata", "name"]), Some("apiregistration.k8s.io"));
}

#[test]
fn the_core_group_names_the_server() {
    let document = core_versions("10.0.0.1:6443");
    let address = &document.list_at(&["serverAddressByClientCIDRs"])[0];
    assert_eq!(address.str_at(&["serverAddress"]), Some("10.0.0.1:6443"));
}

#[test]
fn versions_are_ordered_by_stability_then_number() {
    let mut versions = vec!["v1alpha1", "foo1", "v1", "v2beta1", "v10", "v2", "v1beta2", "bar", "v3alpha1"];
    versions.sort_by(|a, b| compare_versions(a, b));
    assert_eq!(versions, ["v10", "v2", "v1", "v2beta1", "v1beta2", "v3alpha1", "v1alpha1", "bar", "foo1"]);
}
