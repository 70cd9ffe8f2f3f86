//! CRDs with many versions are read in linear time.

use std::sync::Arc;

use value::{Value, steps};

use super::{Whole, overlapping};
use crate::{CrdSource, CustomResourceDefinition};

/// A CRD with `count` served versions `v1`, `v2` and so on, of which the older half is deprecated.
fn many_versions(count: usize) -> (Value, Arc<dyn CrdSource>) {
    let version = |i: usize| {
        Value::map([
            ("name", Value::from(format!("v{}", i + 1))),
            ("served", true.into()),
            ("storage", (i + 1 == count).into()),
            ("deprecated", (2 * i < count).into()),
        ])
    };
    let mut crd = Value::Map(value::Map::new());
    crd.set_at(&["metadata", "name"], "things.example.com");
    crd.set_at(&["metadata", "uid"], "u");
    crd.set_at(&["spec", "group"], "example.com");
    crd.set_at(&["spec", "names", "kind"], "Thing");
    crd.set_at(&["spec", "versions"], Value::list((0..count).map(version)));
    let source: Arc<dyn CrdSource> = Arc::new(Whole(crd.clone()));
    (crd, source)
}

/// The steps of reading a CRD, and of reading it again after a change of its status.
fn steps_of_reading(count: usize) -> u64 {
    let (crd, source) = many_versions(count);
    let former = CustomResourceDefinition::read(&crd, &source, overlapping);
    former.compile(None);
    steps::of(|| {
        let read = CustomResourceDefinition::read(&crd, &source, overlapping);
        read.reuse(&former);
        assert!(read.versions.iter().all(|version| version.is_compiled()));
        let warning = read.versions.first().and_then(|version| version.deprecation.clone());
        let expected = format!("example.com/v1 Thing is deprecated; use example.com/v{count} Thing");
        assert_eq!(warning, Some(expected));
    })
}

#[test]
fn ten_times_as_many_versions_take_at_most_fifteen_times_as_many_steps() {
    let (short, long) = (steps_of_reading(300), steps_of_reading(3000));
    assert!(long <= 15 * short, "{short} steps, then {long}");
}

#[test]
fn deprecated_version_recommends_only_a_version_of_higher_priority() {
    let version = |name: &str, served: bool, deprecated: bool| {
        Value::map([
            ("name", Value::from(name)),
            ("served", served.into()),
            ("deprecated", deprecated.into()),
        ])
    };
    let (mut crd, source) = many_versions(0);
    crd.set_at(
        &["spec", "versions"],
        Value::List(vec![
            version("v1beta1", true, true),
            version("v3", true, true),
            version("v2", true, false),
            version("v1", true, false),
            version("v4", false, false),
        ]),
    );
    let read = CustomResourceDefinition::read(&crd, &source, overlapping);
    let warnings: Vec<Option<&str>> =
        read.versions.iter().map(|version| version.deprecation.as_deref()).collect();
    let expected = [
        Some("example.com/v1beta1 Thing is deprecated; use example.com/v2 Thing"),
        Some("example.com/v3 Thing is deprecated"),
        None,
        None,
        None,
    ];
    assert_eq!(warnings, expected);
}
