//! DefaultIngressClass: sets the default ingress class on Ingresses that name none.

use api::Status;
use value::Value;

use super::default_class::ClassReference;
use crate::{AdmissionAttributes, AdmissionNotes, ClusterView, Plugin};

#[derive(Debug)]
pub struct DefaultIngressClass;

const INGRESS_CLASS: ClassReference = ClassReference {
    objects: ("networking.k8s.io", "ingresses"),
    field: "ingressClassName",
    annotation: "kubernetes.io/ingress.class",
    classes: ("networking.k8s.io", "ingressclasses"),
    marks: &["ingressclass.kubernetes.io/is-default-class"],
};

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
