//! DefaultStorageClass and DefaultIngressClass: set the default class on objects that name none.

use std::cmp::Reverse;
use std::sync::Arc;

use api::{Status, meta};
use value::Value;

use crate::{AdmissionAttributes, AdmissionNotes, ClusterView, Operation, Plugin};

/// The annotation that named a claim's class before the field existed.
pub(crate) const CLAIM_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const INGRESS_CLASS: &str = "kubernetes.io/ingress.class";

/// Sets the storage class of claims.
#[derive(Debug)]
pub struct DefaultStorageClass;

/// Sets the class of ingresses.
#[derive(Debug)]
pub struct DefaultIngressClass;

impl Plugin for DefaultStorageClass {
    fn mutate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &mut Value,
        cluster: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        let new = attributes.operation == Operation::Create;
        if !new || !attributes.is_resource("", "persistentvolumeclaims") {
            return Ok(());
        }
        let named = object.at(&["spec", "storageClassName"]).is_some()
            || object.at(&["metadata", "annotations", CLAIM_CLASS]).is_some();
        let marks = [
            "storageclass.kubernetes.io/is-default-class",
            "storageclass.beta.kubernetes.io/is-default-class",
        ];
        if !named && let Some(class) = default(cluster.list("storage.k8s.io", "storageclasses", ""), &marks) {
            object.set_at(&["spec", "storageClassName"], meta::name(&class));
        }
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
        let new = attributes.operation == Operation::Create;
        if !new || !attributes.is_resource("networking.k8s.io", "ingresses") {
            return Ok(());
        }
        let named = object.at(&["spec", "ingressClassName"]).is_some()
            || object.at(&["metadata", "annotations", INGRESS_CLASS]).is_some();
        let marks = ["ingressclass.kubernetes.io/is-default-class"];
        if !named
            && let Some(class) = default(cluster.list("networking.k8s.io", "ingressclasses", ""), &marks)
        {
            object.set_at(&["spec", "ingressClassName"], meta::name(&class));
        }
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
