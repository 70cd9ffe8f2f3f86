//! Row of the `events.k8s.io` group: the events of the core group with other field names.

use super::{KindBehavior, KindStorage, Resource, SelectableField, SelectableFields, VersionRow};
use crate::strategy::table as strategy;
use crate::{convert, print, validation};

pub(super) const RESOURCES: &[Resource] = &[Resource {
    group: "events.k8s.io",
    kind: "Event",
    plural: "events",
    singular: "event",
    short_names: &["ev"],
    versions: &[VersionRow::new("v1").converted(convert::events::to_core, convert::events::from_core)],
    storage: KindStorage::With("", "v1"),
    fields: SelectableFields::These(&[
        SelectableField::NAME,
        SelectableField::NAMESPACE,
        SelectableField::new("reason", &[&["reason"]]),
        SelectableField::new("regarding.kind", &[&["regarding", "kind"]]),
        SelectableField::new("regarding.namespace", &[&["regarding", "namespace"]]),
        SelectableField::new("regarding.name", &[&["regarding", "name"]]),
        SelectableField::new("regarding.uid", &[&["regarding", "uid"]]),
        SelectableField::new("regarding.apiVersion", &[&["regarding", "apiVersion"]]),
        SelectableField::new("regarding.resourceVersion", &[&["regarding", "resourceVersion"]]),
        SelectableField::new("regarding.fieldPath", &[&["regarding", "fieldPath"]]),
        SelectableField::new("reportingController", &[&["reportingController"]]),
        SelectableField::new("type", &[&["type"]]),
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
