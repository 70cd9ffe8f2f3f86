use std::fmt::Write;

use kinds::table::{GROUPS, KindBehavior, Resource, Served, SubresourceRow, Verb, VersionRow, verbs};

use super::{DiscoveryResource, hash, resources, storage_hash};

fn verbs_word(verbs: &[Verb]) -> String {
    if verbs == verbs::ALL {
        "all".to_owned()
    } else if verbs == verbs::GET_PATCH_UPDATE {
        "sub".to_owned()
    } else {
        verbs.iter().map(|verb| verb.as_str()).collect::<Vec<_>>().join(",")
    }
}

/// The rows of one version in the form of `data/discovery.txt`.
fn listing(rows: &[Resource], version: &str, out: &mut String) {
    for row in rows.iter().filter(|row| row.version(version).is_some()) {
        let scope = if row.is_namespaced() { "namespaced" } else { "cluster" };
        write!(out, "{} {} {} {scope} {}", row.plural, row.singular, row.kind, verbs_word(row.verbs))
            .unwrap();
        if !row.short_names.is_empty() {
            write!(out, " short={}", row.short_names.join(",")).unwrap();
        }
        if !row.categories.is_empty() {
            write!(out, " in={}", row.categories.join(",")).unwrap();
        }
        if let Some(hash) = storage_hash(row) {
            write!(out, " hash={hash}").unwrap();
        }
        out.push('\n');
        for sub in row.subresources {
            let kind = match sub.group_version {
                Some((group, version)) => format!("{group}/{version}/{}", sub.kind),
                None => sub.kind.to_owned(),
            };
            writeln!(out, "{}/{} - {kind} {scope} {}", row.plural, sub.name, verbs_word(sub.verbs)).unwrap();
        }
    }
}

#[test]
fn built_in_resources_are_those_that_kubernetes_lists() {
    let mut ours = String::new();
    for group in GROUPS {
        for version in group.versions {
            let prefix = if group.name.is_empty() { String::new() } else { format!("{}/", group.name) };
            writeln!(ours, "# {prefix}{version}").unwrap();
            listing(group.resources, version, &mut ours);
        }
    }
    let theirs = include_str!("../../data/discovery.txt");
    let theirs: Vec<&str> = theirs.lines().skip(2).collect();
    for (ours, theirs) in ours.lines().zip(&theirs) {
        assert_eq!(ours, *theirs);
    }
    assert_eq!(ours.lines().count(), theirs.len());
}

#[test]
fn a_new_kind_is_listed_by_its_row() {
    static WIDGET: Resource = Resource {
        group: "example.com",
        versions: &[VersionRow::new("v1")],
        kind: "Widget",
        plural: "widgets",
        singular: "widget",
        short_names: &["wd"],
        subresources: &[SubresourceRow::status("Widget")],
        ..Resource::namespaced(KindBehavior {
            defaults: None,
            rules: None,
            strategy: None,
            warnings: None,
            status_warnings: None,
            columns: None,
        })
    };
    let list =
        resources(&Served::default(), &[DiscoveryResource::of(&WIDGET, "v1")], "example.com", "v1").unwrap();
    let [widgets, status] = list.list_at(&["resources"]) else { panic!("{list:?}") };
    assert_eq!(widgets.str_at(&["kind"]), Some("Widget"));
    assert_eq!(widgets.list_at(&["shortNames"]), ["wd".into()]);
    assert_eq!(widgets.list_at(&["verbs"]).len(), verbs::ALL.len());
    assert_eq!(widgets.str_at(&["storageVersionHash"]), Some(hash("example.com", "v1", "Widget").as_str()));
    assert_eq!(status.str_at(&["name"]), Some("widgets/status"));
}
