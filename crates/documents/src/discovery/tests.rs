use api::features::Features;
use kinds::table::{RuntimeConfig, Served, verbs};
use value::Value;

use super::{
    DiscoveryResource, Registration, RemoteVersion, aggregated_core, aggregated_groups, aggregated_versions,
    built_in, core_versions, group, hash, legacy_version, of_custom_version, registered_group,
    registered_groups, resources, stale_version,
};

fn custom<'a>(group: &'a str, version: &'a str, plural: &'a str) -> DiscoveryResource<'a> {
    DiscoveryResource {
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
    let list = registered_groups(&built_in(&Served::default()));
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
    assert_eq!(versions(&Served::parse("api/beta=true").unwrap()), ["v1", "v1beta2", "v1beta1"]);
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
    let mut registered = built_in(&served);
    registered.extend(rows.iter().map(|row| of_custom_version(row.group, row.version)));
    let list = registered_groups(&registered);
    let names = group_names(&list);
    assert_eq!(names[names.len() - 2..], ["a.example.com", "b.example.com"]);
    let preferred = registered_group(&registered, "b.example.com").unwrap();
    assert_eq!(preferred.str_at(&["preferredVersion", "version"]), Some("v1"));
    assert!(registered_group(&registered, "c.example.com").is_none());
    let document = group(&served, &rows, "b.example.com").unwrap();
    assert_eq!(document.str_at(&["preferredVersion", "version"]), Some("v1"));
    let list = resources(&served, &rows, "a.example.com", "v1").unwrap();
    assert_eq!(list.list_at(&["resources"])[0].str_at(&["name"]), Some("things"));
}

#[test]
fn aggregated_discovery_lists_all_groups_versions_and_resources() {
    let served = Served::default();
    let core = aggregated_core(&served);
    let groups = core.list_at(&["items"]);
    assert_eq!(groups.len(), 1);
    let resources = groups[0].list_at(&["versions"])[0].list_at(&["resources"]);
    let pods = resources.iter().find(|r| r.str_at(&["resource"]) == Some("pods")).unwrap();
    assert_eq!(pods.str_at(&["scope"]), Some("Namespaced"));
    let eviction = &pods.list_at(&["subresources"])[3];
    assert_eq!(eviction.str_at(&["responseKind", "group"]), Some("policy"));
    let named = aggregated_groups(&served, &[], &[]);
    assert_eq!(named.list_at(&["items"]).len(), 21);
    assert_eq!(named.list_at(&["items"])[0].str_at(&["metadata", "name"]), Some("apiregistration.k8s.io"));
}

#[test]
fn core_discovery_contains_the_server_address() {
    let document = core_versions("10.0.0.1:6443");
    let address = &document.list_at(&["serverAddressByClientCIDRs"])[0];
    assert_eq!(address.str_at(&["serverAddress"]), Some("10.0.0.1:6443"));
}

#[test]
fn every_served_version_of_the_table_has_a_priority_in_the_order_of_the_table() {
    let served = RuntimeConfig::parse("api/all=true").unwrap().served(Features::ALL);
    let names: Vec<String> = built_in(&served).iter().map(Registration::name).collect();
    let mut wanted = Vec::new();
    for group in kinds::table::GROUPS.iter().filter(|group| group.name != "apiregistration.k8s.io") {
        wanted.extend(group.versions.iter().map(|version| format!("{version}.{}", group.name)));
    }
    assert_eq!(names, wanted);
    let list = registered_groups(&built_in(&served));
    let listed: Vec<&str> = group_names(&list);
    let table: Vec<&str> =
        kinds::table::GROUPS.iter().map(|group| group.name).filter(|name| !name.is_empty()).collect();
    assert_eq!(listed, table);
}

fn json(text: &str) -> Value {
    value::json::parse(text.as_bytes()).unwrap()
}

fn remote(group: &str, version: &str, priorities: (i64, i64), entry: Value) -> RemoteVersion {
    let mut registration = of_custom_version(group, version);
    (registration.group_priority, registration.version_priority) = priorities;
    RemoteVersion { registration, entry: entry.into() }
}

#[test]
fn an_aggregated_version_is_ordered_by_priority_and_replaces_a_local_one() {
    let served = Served::default();
    let rows = [custom("a.example.com", "v1", "things"), custom("a.example.com", "v2", "things")];
    let elsewhere = [
        remote("a.example.com", "v1", (1000, 200), stale_version("v1")),
        remote("first.example.com", "v1", (19_000, 1), stale_version("v1")),
    ];
    let list = aggregated_groups(&served, &rows, &elsewhere);
    let names: Vec<&str> =
        list.list_at(&["items"]).iter().filter_map(|item| item.str_at(&["metadata", "name"])).collect();
    assert_eq!(names[..3], ["apiregistration.k8s.io", "first.example.com", "apps"]);
    assert_eq!(names.last(), Some(&"a.example.com"));
    let versions = list.list_at(&["items"]).last().unwrap().list_at(&["versions"]);
    assert_eq!(versions[0], json(r#"{"version":"v1","freshness":"Stale"}"#));
    assert_eq!(versions[1].str_at(&["freshness"]), Some("Current"));
    // An additional remote group does not change the entries of the others.
    let alone = aggregated_groups(&served, &rows, &[]);
    let same =
        aggregated_groups(&served, &rows, &[remote("z.example.com", "v1", (1, 1), stale_version("v1"))]);
    assert_eq!(alone.list_at(&["items"]), &same.list_at(&["items"])[..alone.list_at(&["items"]).len()]);
}

#[test]
fn unknown_fields_of_remote_discovery_documents_are_dropped() {
    let list = json(
        r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[{"metadata":{"name":"g"},"versions":[{"version":"v1","freshness":"Stale","evil":1,"resources":[
            {"resource":"fischers","scope":"Namespaced","verbs":["get"],"shortNames":["f"],"evil":{"a":1},
             "subresources":[{"subresource":"status","verbs":["get"]}]}]}]}]}"#,
    );
    let wanted = json(
        r#"{"version":"v1","freshness":"Current","resources":[
            {"resource":"fischers","scope":"Namespaced","singularResource":"","verbs":["get"],"shortNames":["f"],
             "responseKind":{"group":"","version":"","kind":""},
             "subresources":[{"subresource":"status","verbs":["get"],"responseKind":{"group":"","version":"","kind":""}}]}]}"#,
    );
    assert_eq!(aggregated_versions(&list, "g", "v1").unwrap(), wanted);
    let nothing = json(r#"{"version":"v2","freshness":"Current"}"#);
    assert_eq!(aggregated_versions(&list, "g", "v2").unwrap(), nothing);
}

#[test]
fn malformed_remote_discovery_documents_are_rejected() {
    let aggregated = |more: &str| {
        let text =
            format!(r#"{{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2"{more}}}"#);
        aggregated_versions(&json(&text), "g", "v1")
    };
    let versions = |text: &str| format!(r#","items":[{{"metadata":{{"name":"g"}},"versions":{text}}}]"#);
    let resources = |text: &str| versions(&format!(r#"[{{"version":"v1","resources":{text}}}]"#));
    for fine in ["", r#","items":null"#, &versions("[]"), &resources(r#"[{"resource":"a","verbs":["get"]}]"#)]
    {
        assert!(aggregated(fine).is_ok(), "{fine}");
    }
    for wrong in [
        r#","items":{}"#,
        &versions("7"),
        &resources(r#""none""#),
        &resources(r#"[{"resource":7}]"#),
        &resources(r#"[{"resource":"a","scope":true}]"#),
        &resources(r#"[{"resource":"a","verbs":"get"}]"#),
        &resources(r#"[{"resource":"a","verbs":["get",7]}]"#),
    ] {
        assert!(aggregated(wrong).is_err(), "{wrong}");
    }
    for wrong in [
        "7",
        "{}",
        r#"{"kind":"APIGroupDiscoveryList","apiVersion":"v1"}"#,
        r#"{"kind":"Status","apiVersion":"v1"}"#,
    ] {
        assert!(aggregated_versions(&json(wrong), "g", "v1").is_err(), "{wrong}");
        assert!(legacy_version(&json(wrong), "v1").is_err(), "{wrong}");
    }
    let legacy = |resources: &str| {
        let text = format!(r#"{{"kind":"APIResourceList","apiVersion":"v1","resources":{resources}}}"#);
        legacy_version(&json(&text), "v1")
    };
    for fine in ["null", "[]", r#"[{"name":"a","namespaced":true,"verbs":["get"]}]"#] {
        assert!(legacy(fine).is_ok(), "{fine}");
    }
    for wrong in
        ["{}", r#"[{"name":7}]"#, r#"[{"name":"a","namespaced":"yes"}]"#, r#"[{"name":"a","verbs":7}]"#]
    {
        assert!(legacy(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_legacy_api_resource_list_is_converted_to_aggregated_discovery() {
    let list = json(
        r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"g/v1","resources":[
            {"name":"fischers","singularName":"fischer","namespaced":true,"kind":"Fischer","verbs":["get","list"]},
            {"name":"fischers/status","singularName":"","namespaced":true,"kind":"Fischer","verbs":["get"]},
            {"name":"orphans/x","singularName":"","namespaced":false,"kind":"","verbs":["create"]}]}"#,
    );
    let wanted = json(
        r#"{"version":"v1","freshness":"Current","resources":[
            {"resource":"fischers","scope":"Namespaced","singularResource":"fischer","verbs":["get","list"],
             "responseKind":{"group":"","version":"","kind":"Fischer"},
             "subresources":[{"subresource":"status","verbs":["get"],"responseKind":{"group":"","version":"","kind":"Fischer"}}]},
            {"resource":"orphans","scope":"Cluster","singularResource":"","verbs":[],
             "responseKind":{"group":"","version":"","kind":""},
             "subresources":[{"subresource":"x","verbs":["create"],"responseKind":{"group":"","version":"","kind":""}}]}]}"#,
    );
    assert_eq!(legacy_version(&list, "v1").unwrap(), wanted);
    let contradiction = json(
        r#"{"kind":"APIResourceList","apiVersion":"v1","resources":[{"name":"a","namespaced":true},{"name":"a/b","namespaced":false}]}"#,
    );
    assert!(legacy_version(&contradiction, "v1").unwrap_err().contains("scope do not match"));
}
