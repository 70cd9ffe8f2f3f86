//! Types of the variables `request` and `namespaceObject`.

use cel::{Type, TypeProvider};

/// Type of the variable `request`.
pub(super) const REQUEST: &str = "kubernetes.AdmissionRequest";
/// Type of the variable `namespaceObject`.
pub(super) const NAMESPACE: &str = "kubernetes.Namespace";

const KIND: &str = "kubernetes.GroupVersionKind";
const RESOURCE: &str = "kubernetes.GroupVersionResource";
const USER: &str = "kubernetes.UserInfo";
const METADATA: &str = "kubernetes.NamespaceMetadata";
const SPEC: &str = "kubernetes.NamespaceSpec";
const STATUS: &str = "kubernetes.NamespaceStatus";
const CONDITION: &str = "kubernetes.NamespaceCondition";

/// Declares both types and those of their fields.
#[derive(Debug)]
pub(super) struct AdmissionTypes;

impl TypeProvider for AdmissionTypes {
    fn find_type(&self, name: &str) -> Option<Type> {
        [REQUEST, NAMESPACE, KIND, RESOURCE, USER, METADATA, SPEC, STATUS, CONDITION]
            .contains(&name)
            .then(|| Type::Struct(name.into()))
    }

    fn find_field(&self, type_name: &str, field: &str) -> Option<Type> {
        let object = |name: &str| Type::Struct(name.into());
        let strings = || Type::list(Type::String);
        Some(match (type_name, field) {
            (REQUEST, "kind" | "requestKind") => object(KIND),
            (REQUEST, "resource" | "requestResource") => object(RESOURCE),
            (REQUEST, "userInfo") => object(USER),
            (REQUEST, "dryRun") => Type::Bool,
            (REQUEST, "options") => Type::Dyn,
            (REQUEST, "subResource" | "requestSubResource" | "name" | "namespace" | "operation")
            | (KIND, "group" | "version" | "kind")
            | (RESOURCE, "group" | "version" | "resource")
            | (USER, "username" | "uid")
            | (METADATA, "name" | "generateName" | "namespace" | "UID" | "resourceVersion")
            | (STATUS, "phase")
            | (CONDITION, "status" | "type" | "message" | "reason") => Type::String,
            (USER, "groups") | (METADATA | SPEC, "finalizers") => strings(),
            (USER, "extra") => Type::map(Type::String, strings()),
            (NAMESPACE, "metadata") => object(METADATA),
            (NAMESPACE, "spec") => object(SPEC),
            (NAMESPACE, "status") => object(STATUS),
            (METADATA, "labels" | "annotations") => Type::map(Type::String, Type::String),
            (METADATA, "creationTimestamp" | "deletionTimestamp") | (CONDITION, "lastTransitionTime") => {
                Type::Timestamp
            }
            (METADATA, "deletionGracePeriodSeconds" | "generation") => Type::Int,
            (STATUS, "conditions") => Type::list(object(CONDITION)),
            _ => return None,
        })
    }
}
