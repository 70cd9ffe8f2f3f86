use std::sync::Arc;

use crd::{CrdSource, CustomResourceDefinition};
use kinds::table::Served;
use value::{Value, json};

use super::{CrdRevisions, CustomKinds};
use crate::{Catalog, ObjectReach, SchemaEpoch};

#[derive(Debug)]
struct NoSource;

impl CrdSource for NoSource {
    fn load(&self) -> Option<Value> {
        None
    }
}

/// An established CRD of the kind `Thing`.
fn set(custom: &mut CustomKinds, plural: &str, created: u64, changed: u64) {
    let text = format!(
        r#"{{"metadata":{{"name":"{plural}.example.com"}},"spec":{{"group":"example.com","scope":"Namespaced","names":{{"plural":"{plural}"}},"versions":[{{"name":"v1","served":true,"storage":true}}]}},"status":{{"acceptedNames":{{"plural":"{plural}","kind":"Thing","listKind":"ThingList"}},"conditions":[{{"type":"Established","status":"True"}},{{"type":"NamesAccepted","status":"True"}}]}}}}"#
    );
    let source: Arc<dyn CrdSource> = Arc::new(NoSource);
    let crd = CustomResourceDefinition::read(&json::parse(text.as_bytes()).unwrap(), &source, |_, _| None);
    custom.set(crd, CrdRevisions { created, changed }, SchemaEpoch::never());
}

/// The plural names that are served, and the CRDs that have lost their kind.
fn check(custom: &CustomKinds, served: &str, lost: &[&str]) {
    for plural in ["as", "bs"] {
        let kind = custom.kind("example.com", &"v1".into(), &plural.into());
        assert_eq!(kind.is_some(), plural == served, "{plural}");
        assert_eq!(custom.lost_kind(&format!("{plural}.example.com")), lost.contains(&plural), "{plural}");
    }
}

#[test]
fn only_objects_whose_versions_are_all_built_in_paths_are_hidden_and_those_of_an_absent_crd_are_not() {
    let catalog = Catalog::new(Served::default());
    let established = |group: &str, versions: &[&str], is_established: bool| {
        let versions = versions
            .iter()
            .map(|name| format!(r#"{{"name":"{name}","served":true,"storage":{}}}"#, *name == "v1"));
        let versions = versions.collect::<Vec<_>>().join(",");
        let condition = if is_established { "True" } else { "False" };
        let text = format!(
            r#"{{"metadata":{{"name":"deployments.{group}"}},"spec":{{"group":"{group}","scope":"Namespaced","names":{{"plural":"deployments"}},"versions":[{versions}]}},"status":{{"acceptedNames":{{"plural":"deployments","kind":"Thing","listKind":"ThingList"}},"conditions":[{{"type":"Established","status":"{condition}"}},{{"type":"NamesAccepted","status":"True"}}]}}}}"#
        );
        let source: Arc<dyn CrdSource> = Arc::new(NoSource);
        let crd =
            CustomResourceDefinition::read(&json::parse(text.as_bytes()).unwrap(), &source, |_, _| None);
        catalog.change_custom(|custom| {
            custom.set(crd, CrdRevisions { created: 1, changed: 1 }, SchemaEpoch::never());
            true
        });
        match catalog.reach(&format!("deployments.{group}")) {
            ObjectReach::Through(kind) => format!("through {}", kind.gvk.version),
            ObjectReach::Hidden => "hidden".to_owned(),
            ObjectReach::Unknown => "unknown".to_owned(),
        }
    };
    assert_eq!(established("example.com", &["v2", "v1"], true), "through v1");
    assert_eq!(established("apps", &["v1"], true), "hidden");
    assert_eq!(established("apps", &["v1", "v7"], true), "through v7");
    assert_eq!(established("example.com", &["v1"], false), "unknown");
    assert_eq!(established("apps", &["v1"], false), "unknown");
    assert!(matches!(catalog.reach("deployments.other.example.com"), ObjectReach::Unknown));
}

#[test]
fn resources_of_crds_that_are_not_established_or_unreadable_may_have_stored_objects() {
    let catalog = Catalog::new(Served::default());
    let custom = |catalog: &Catalog| -> Vec<String> {
        let stored = catalog.stored_in_any_version().into_iter();
        let custom = stored.filter(|(of, _)| of.group == "example.com");
        custom.map(|(of, version)| format!("{of} {version}")).collect()
    };
    assert_eq!(custom(&catalog), Vec::<String>::new());
    let text = r#"{"metadata":{"name":"hidden.example.com"},"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"hidden"},"versions":[{"name":"v3","served":true,"storage":true}]}}"#;
    let source: Arc<dyn CrdSource> = Arc::new(NoSource);
    let crd = CustomResourceDefinition::read(&json::parse(text.as_bytes()).unwrap(), &source, |_, _| None);
    assert!(!crd.established);
    catalog.change_custom(|custom| {
        custom.set(crd, CrdRevisions { created: 1, changed: 1 }, SchemaEpoch::never());
        custom.set_unreadable("broken.example.com");
        set(custom, "shown", 2, 2);
        true
    });
    assert_eq!(custom(&catalog), ["hidden.example.com v3", "shown.example.com v1", "broken.example.com "]);
}

#[test]
fn of_two_crds_that_claim_a_kind_every_server_serves_the_one_created_first() {
    let mut first = CustomKinds::default();
    set(&mut first, "as", 5, 8);
    check(&first, "as", &[]);
    set(&mut first, "bs", 6, 7);
    check(&first, "as", &["bs"]);
    let mut second = CustomKinds::default();
    set(&mut second, "bs", 6, 7);
    check(&second, "bs", &[]);
    set(&mut second, "as", 5, 8);
    check(&second, "as", &["bs"]);
    // An update does not change the owner.
    set(&mut second, "bs", 6, 9);
    set(&mut second, "as", 5, 10);
    check(&second, "as", &["bs"]);
}

#[test]
fn a_crd_gets_its_kind_when_the_older_claimant_is_deleted_and_not_when_it_is_unreadable() {
    let mut custom = CustomKinds::default();
    set(&mut custom, "as", 5, 8);
    set(&mut custom, "bs", 6, 7);
    custom.set_unreadable("as.example.com");
    check(&custom, "", &["bs"]);
    set(&mut custom, "as", 5, 9);
    check(&custom, "as", &["bs"]);
    custom.set_unreadable("as.example.com");
    custom.remove("as.example.com");
    check(&custom, "bs", &[]);
    set(&mut custom, "as", 8, 10);
    custom.remove("as.example.com");
    check(&custom, "bs", &[]);
}
