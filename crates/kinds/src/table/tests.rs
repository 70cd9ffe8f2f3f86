use api::GroupVersion;

use super::{
    GROUPS, KindStorage, Resource, SUBRESOURCE_KINDS, SelectableFields, Verb, all, find, find_kind,
    overlapping,
};

/// Lists the versions, lists and subresources of rows that have no schema, such as `apps/v1 Deployment`.
pub(super) fn without_schema<'a>(rows: impl Iterator<Item = &'a Resource>) -> Vec<String> {
    let mut without = Vec::new();
    for row in rows {
        for version in row.versions {
            let kind = format!("{} {}", GroupVersion::new(row.group, version.name), row.kind);
            if row.schema(version.name).is_none_or(|schema| schema.struct_name() != row.kind) {
                without.push(kind.clone());
            }
            let list = || schema::of(row.group, version.name, &format!("{}List", row.kind));
            if row.allows(Verb::List) && list().is_none() {
                without.push(format!("{kind}List"));
            }
        }
        for sub in row.subresources.iter().filter(|sub| !sub.connect) {
            let (group, version) = sub.group_version.unwrap_or((row.group, "v1"));
            let found = schema::of(group, version, sub.kind)
                .or_else(|| schema::of(group, row.versions[0].name, sub.kind));
            if found.is_none() {
                without.push(format!("{}/{}", row.plural, sub.name));
            }
        }
    }
    without
}

#[test]
fn every_row_has_a_schema_in_every_version_and_its_list_too() {
    assert_eq!(without_schema(all()), [""; 0]);
}

#[test]
fn rows_belong_to_their_group_and_are_sorted() {
    for group in GROUPS {
        assert!(group.resources.iter().all(|row| row.group == group.name), "{}", group.name);
        assert!(group.resources.is_sorted_by(|a, b| a.plural < b.plural), "{}", group.name);
        for row in group.resources {
            assert!(row.subresources.is_sorted_by(|a, b| a.name < b.name), "{}", row.plural);
            assert!(row.verbs.is_sorted(), "{}", row.plural);
            assert!(
                row.versions.iter().all(|version| group.versions.contains(&version.name)),
                "{}",
                row.plural
            );
            let has_status_field = row.schema(row.versions[0].name).unwrap().field("status").is_some();
            assert!(has_status_field || !row.has_status(), "{}", row.plural);
        }
    }
}

#[test]
fn selectable_fields_lead_to_fields_of_the_schema() {
    for row in all() {
        let SelectableFields::These(fields) = row.fields else { continue };
        for field in fields {
            for path in field.paths {
                let mut schema = row.schema(row.versions[0].name).unwrap();
                for step in *path {
                    schema = schema.element().unwrap_or(schema);
                    schema = schema.field(step).unwrap_or_else(|| panic!("{} {}", row.kind, field.label));
                }
            }
        }
    }
}

#[test]
fn rows_are_found_by_plural_and_by_kind() {
    assert_eq!(find("", "v1", "pods").unwrap().kind, "Pod");
    assert_eq!(find_kind("apps", "v1", "Deployment").unwrap().plural, "deployments");
    assert_eq!(
        find("autoscaling", "v1", "horizontalpodautoscalers").unwrap().storage,
        KindStorage::Own("v2")
    );
    assert!(find("", "v2", "pods").is_none());
    assert!(find("resource.k8s.io", "v1beta1", "devicetaintrules").is_none());
    assert!(find("example.com", "v1", "pods").is_none());
}

#[test]
fn unknown_field_selectors_are_refused_in_kubernetes_words() {
    let pods = find("", "v1", "pods").unwrap();
    assert_eq!(pods.field("v1", "spec.nodeName").unwrap().paths, [["spec", "nodeName"]]);
    assert_eq!(pods.field("v1", "spec.x").unwrap_err(), "field label not supported: spec.x");
    let maps = find("", "v1", "configmaps").unwrap();
    assert_eq!(
        maps.field("v1", "data").unwrap_err(),
        r#""data" is not a known field selector: only "metadata.name", "metadata.namespace""#
    );
    let jobs = find("batch", "v1", "jobs").unwrap();
    assert_eq!(jobs.field("v1", "x").unwrap_err(), r#"field label "x" not supported for Job"#);
    let slices = find("resource.k8s.io", "v1", "resourceslices").unwrap();
    assert_eq!(
        slices.field("v1beta2", "x").unwrap_err(),
        "field label not supported for resource.k8s.io/v1beta2, Kind=ResourceSlice: x"
    );
}

#[test]
fn a_deleted_taint_rule_is_answered_with_itself_before_v1_only() {
    let rules = find("resource.k8s.io", "v1", "devicetaintrules").unwrap();
    assert!(!rules.returns_deleted_in("v1") && rules.returns_deleted_in("v1beta2"));
    let claims = find("resource.k8s.io", "v1", "resourceclaims").unwrap();
    assert!(claims.returns_deleted_in("v1") && claims.returns_deleted_in("v1beta1"));
}

/// Compares with the directories in Kubernetes' own test of storage paths.
#[test]
fn storage_directories_match_kubernetes() {
    let unusual: Vec<_> = all()
        .filter(|row| row.directory().is_some_and(|directory| directory != row.plural))
        .map(|row| (row.group, row.plural, row.directory().unwrap()))
        .collect();
    assert_eq!(
        unusual,
        [
            ("", "endpoints", "services/endpoints"),
            ("", "nodes", "minions"),
            ("", "replicationcontrollers", "controllers"),
            ("", "services", "services/specs"),
            ("apiregistration.k8s.io", "apiservices", "apiregistration.k8s.io/apiservices"),
            ("networking.k8s.io", "ingresses", "ingress"),
            (
                "apiextensions.k8s.io",
                "customresourcedefinitions",
                "apiextensions.k8s.io/customresourcedefinitions"
            ),
        ]
    );
    assert!(all().filter(|row| row.storage == KindStorage::Nowhere).all(|row| row.directory().is_none()));
}

#[test]
fn only_two_built_in_directories_can_be_reached_by_a_crd() {
    let groups = GROUPS.iter().map(|group| group.name).filter(|name| !name.is_empty());
    let groups: Vec<&str> =
        groups.chain(all().map(|row| row.plural)).chain(["services", "minions"]).collect();
    let plurals: Vec<&str> = all().map(|row| row.plural).chain(["specs", "things"]).collect();
    let mut found = Vec::new();
    for group in groups.iter().filter(|group| group.contains('.')) {
        found.extend(
            plurals.iter().filter(|plural| overlapping(group, plural).is_some()).map(|p| (*group, *p)),
        );
    }
    found.sort_unstable();
    found.dedup();
    assert_eq!(
        found,
        [("apiextensions.k8s.io", "customresourcedefinitions"), ("apiregistration.k8s.io", "apiservices")]
    );
    // Validation rejects these groups anyway because they have no dot; they must overlap nevertheless.
    for (group, plural) in [("services", "specs"), ("pods", "x"), ("events", "events"), ("minions", "a")] {
        assert!(overlapping(group, plural).is_some(), "{group} {plural}");
    }
    assert!(overlapping("services", "other").is_none());
    assert!(overlapping("networking.k8s.io", "networkpolicies").is_none());
}

#[test]
fn a_group_has_each_kind_once() {
    for group in GROUPS {
        let kinds: std::collections::HashSet<&str> = group.resources.iter().map(|row| row.kind).collect();
        assert_eq!(kinds.len(), group.resources.len(), "{}", group.name);
    }
}

#[test]
fn every_kind_that_only_subresources_take_is_listed() {
    let mut taken = std::collections::BTreeSet::new();
    for row in all() {
        for sub in row.subresources.iter().filter(|sub| !sub.connect) {
            let (group, _) = sub.group_version.unwrap_or((row.group, ""));
            if !all().any(|row| row.group == group && row.kind == sub.kind) {
                taken.insert((group, sub.kind));
            }
        }
    }
    let listed: Vec<_> = SUBRESOURCE_KINDS.iter().map(|(group, kind, _)| (*group, *kind)).collect();
    assert_eq!(taken.into_iter().collect::<Vec<_>>(), listed);
}

#[test]
fn every_stored_kind_has_validation_rules() {
    let without: Vec<&str> = all()
        .filter(|row| row.behavior.rules.is_none() && row.behavior.strategy.is_some())
        .map(|row| row.kind)
        .collect();
    assert_eq!(without, [""; 0]);
}

#[test]
fn the_storage_version_of_a_kind_needs_no_conversion() {
    let converted: Vec<(&str, &str)> = all()
        .flat_map(|row| row.versions.iter().map(move |version| (row, version)))
        .filter(|(_, version)| version.conversion.is_some())
        .map(|(row, version)| {
            assert_ne!(row.storage, KindStorage::Own(version.name));
            (row.kind, version.name)
        })
        .collect();
    assert_eq!(
        converted,
        [
            ("Event", "v1"),
            ("HorizontalPodAutoscaler", "v1"),
            ("PodCertificateRequest", "v1"),
            ("MutatingAdmissionPolicyBinding", "v1alpha1"),
            ("ResourceClaim", "v1beta1"),
            ("ResourceClaimTemplate", "v1beta1"),
            ("ResourceSlice", "v1beta1"),
        ]
    );
}

/// Encodes an empty object of a kind as protobuf: `runtime.Unknown` with a `TypeMeta`.
fn empty_message(api_version: &str, kind: &str) -> Vec<u8> {
    let field = |number: u8, bytes: &[u8]| {
        let length = u8::try_from(bytes.len()).ok().filter(|length| *length < 128).unwrap();
        [&[number << 3 | 2, length], bytes].concat()
    };
    let type_meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), field(1, &type_meta), field(2, b"")].concat()
}

/// Lists the versions of rows that cannot be read from protobuf, such as `apps/v1 Deployment`.
pub(super) fn without_protobuf<'a>(rows: impl Iterator<Item = &'a Resource>) -> Vec<String> {
    let mut without = Vec::new();
    for row in rows {
        for version in row.versions {
            let api_version = GroupVersion::new(row.group, version.name).to_string();
            let object = schema::protobuf::read(&empty_message(&api_version, row.kind));
            if object.ok().and_then(|object| object.str_at(&["kind"]).map(str::to_owned)).as_deref()
                != Some(row.kind)
            {
                without.push(format!("{api_version} {}", row.kind));
            }
        }
    }
    without
}

#[test]
fn every_row_can_be_read_from_protobuf_in_every_version() {
    assert_eq!(without_protobuf(all()), [""; 0]);
}
