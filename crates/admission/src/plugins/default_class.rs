//! DefaultStorageClass and DefaultIngressClass: set the default class on objects that name none.

use std::cmp::Reverse;
use std::sync::Arc;

use api::{Status, meta};
use value::Value;

use crate::{AdmissionAttributes, AdmissionNotes, ClusterView, Plugin};

/// Sets the storage class of claims.
#[derive(Debug)]
pub struct DefaultStorageClass;

/// Sets the class of ingresses.
#[derive(Debug)]
pub struct DefaultIngressClass;

/// How objects of a resource name their class, and which class is the default.
struct ClassReference {
    /// The group and resource of the objects.
    objects: (&'static str, &'static str),
    /// The field of `spec` that names the class.
    field: &'static str,
    /// The annotation that named it before the field existed.
    annotation: &'static str,
    /// The group and resource of the classes.
    classes: (&'static str, &'static str),
    /// The annotations of which a default class has one.
    marks: &'static [&'static str],
}

const STORAGE_CLASS: ClassReference = ClassReference {
    objects: ("", "persistentvolumeclaims"),
    field: "storageClassName",
    annotation: meta::STORAGE_CLASS,
    classes: ("storage.k8s.io", "storageclasses"),
    marks: &[
        "storageclass.kubernetes.io/is-default-class",
        "storageclass.beta.kubernetes.io/is-default-class",
    ],
};

const INGRESS_CLASS: ClassReference = ClassReference {
    objects: ("networking.k8s.io", "ingresses"),
    field: "ingressClassName",
    annotation: "kubernetes.io/ingress.class",
    classes: ("networking.k8s.io", "ingressclasses"),
    marks: &["ingressclass.kubernetes.io/is-default-class"],
};

impl ClassReference {
    /// Sets the default class on a new object that names none.
    fn set_default(
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

impl Plugin for DefaultStorageClass {
    fn mutate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &mut Value,
        cluster: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        STORAGE_CLASS.set_default(attributes, object, cluster);
        Ok(())
    }
}

impl Plugin for DefaultIngressClass {
    fn mutate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &mut Value,
        cluster: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        INGRESS_CLASS.set_default(attributes, object, cluster);
        Ok(())
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
