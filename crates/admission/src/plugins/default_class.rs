//! Finds the default class of a resource, for the plugins that set it on new objects.

use std::cmp::Reverse;
use std::sync::Arc;

use api::meta;
use value::Value;

use crate::{AdmissionAttributes, ClusterView};

/// How objects of a resource name their class, and which class is the default.
pub(super) struct ClassReference {
    /// The group and resource of the objects.
    pub(super) objects: (&'static str, &'static str),
    /// The field of `spec` that names the class.
    pub(super) field: &'static str,
    /// The annotation that named it before the field existed.
    pub(super) annotation: &'static str,
    /// The group and resource of the classes.
    pub(super) classes: (&'static str, &'static str),
    /// The annotations of which a default class has one.
    pub(super) marks: &'static [&'static str],
}

impl ClassReference {
    /// Sets the default class on a new object that names none.
    pub(super) fn set_default(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &mut Value,
        cluster: &dyn ClusterView,
    ) {
        if !attributes.creates(self.objects.0, self.objects.1) {
            return;
        }
        let named = object.at(&["spec", self.field]).is_some()
            || object.at(&["metadata", "annotations", self.annotation]).is_some();
        if !named && let Some(class) = default(cluster.list(self.classes.0, self.classes.1, ""), self.marks) {
            object.set_at(&["spec", self.field], meta::name(&class));
        }
    }
}

/// The class with one of the default annotations; of several the newest, then the first by name.
fn default(classes: Vec<Arc<Value>>, marks: &[&str]) -> Option<Arc<Value>> {
    let marked = |class: &Arc<Value>| {
        meta::annotations(class).any(|(key, value)| value == "true" && marks.contains(&key))
    };
    // `min_by_key` returns the first of equals, and the list is sorted by name.
    classes
        .into_iter()
        .filter(marked)
        .min_by_key(|class| Reverse(meta::text(class, "creationTimestamp").to_owned()))
}
