//! Row of the `events.k8s.io` group: the events of the core group with other field names.

use super::{Field, Fields, KindBehavior, Resource, Storage, Version};
use crate::strategy::table as strategy;
use crate::{convert, print, validation};

pub(super) const RESOURCES: &[Resource] = &[Resource {
    group: "events.k8s.io",
    kind: "Event",
    plural: "events",
    singular: "event",
    short_names: &["ev"],
    versions: &[Version::new("v1").converted(convert::events::to_core, convert::events::from_core)],
    storage: Storage::With("", "v1"),
    fields: Fields::These(&[
        Field::NAME,
        Field::NAMESPACE,
        Field::new("reason", &[&["reason"]]),
        Field::new("regarding.kind", &[&["regarding", "kind"]]),
        Field::new("regarding.namespace", &[&["regarding", "namespace"]]),
        Field::new("regarding.name", &[&["regarding", "name"]]),
        Field::new("regarding.uid", &[&["regarding", "uid"]]),
        Field::new("regarding.apiVersion", &[&["regarding", "apiVersion"]]),
        Field::new("regarding.resourceVersion", &[&["regarding", "resourceVersion"]]),
        Field::new("regarding.fieldPath", &[&["regarding", "fieldPath"]]),
        Field::new("reportingController", &[&["reportingController"]]),
        Field::new("type", &[&["type"]]),
    ]),
    ..Resource::namespaced(KindBehavior {
        defaults: None,
        rules: Some(validation::event::EVENT),
        strategy: Some(strategy::EVENT),
        warnings: None,
        status_warnings: None,
        columns: Some(print::events::EVENT),
    })
}];
