//! The core group (`/api/v1`).

use super::{Field, Fields, Resource, Storage, SubresourceRow, Version, verbs};

pub(super) const RESOURCES: &[Resource] = &[
    Resource {
        kind: "Binding",
        plural: "bindings",
        singular: "binding",
        verbs: verbs::CREATE,
        storage: Storage::Nowhere,
        ..NAMESPACED
    },
    Resource {
        kind: "ComponentStatus",
        plural: "componentstatuses",
        singular: "componentstatus",
        short_names: &["cs"],
        versions: &[Version::deprecated("v1", "v1 ComponentStatus is deprecated in v1.19+")],
        verbs: verbs::GET_LIST,
        storage: Storage::Nowhere,
        ..CLUSTER
    },
    Resource {
        kind: "ConfigMap",
        plural: "configmaps",
        singular: "configmap",
        short_names: &["cm"],
        ..NAMESPACED
    },
    Resource {
        kind: "Endpoints",
        plural: "endpoints",
        directory: Some("services/endpoints"),
        singular: "endpoints",
        short_names: &["ep"],
        versions: &[Version::deprecated(
            "v1",
            "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
        )],
        ..NAMESPACED
    },
    Resource {
        kind: "Event",
        plural: "events",
        singular: "event",
        short_names: &["ev"],
        fields: Fields::These(EVENT_FIELDS),
        ..NAMESPACED
    },
    Resource {
        kind: "LimitRange",
        plural: "limitranges",
        singular: "limitrange",
        short_names: &["limits"],
        ..NAMESPACED
    },
    Resource {
        kind: "Namespace",
        plural: "namespaces",
        singular: "namespace",
        short_names: &["ns"],
        verbs: verbs::ALL_BUT_DELETE_COLLECTION,
        subresources: &[
            SubresourceRow::new("finalize", "Namespace", verbs::UPDATE),
            SubresourceRow::status("Namespace"),
        ],
        fields: Fields::These(&[Field::NAME, Field::new("status.phase", &[&["status", "phase"]])]),
        ..CLUSTER
    },
    Resource {
        kind: "Node",
        plural: "nodes",
        directory: Some("minions"),
        singular: "node",
        short_names: &["no"],
        subresources: &[
            SubresourceRow::connect("proxy", "NodeProxyOptions", verbs::PROXY),
            SubresourceRow::status("Node"),
        ],
        fields: Fields::These(&[
            Field::NAME,
            Field { default: "false", ..Field::new("spec.unschedulable", &[&["spec", "unschedulable"]]) },
        ]),
        ..CLUSTER
    },
    Resource {
        kind: "PersistentVolumeClaim",
        plural: "persistentvolumeclaims",
        singular: "persistentvolumeclaim",
        short_names: &["pvc"],
        subresources: &[SubresourceRow::status("PersistentVolumeClaim")],
        returns_deleted: true,
        ..NAMESPACED
    },
    Resource {
        kind: "PersistentVolume",
        plural: "persistentvolumes",
        singular: "persistentvolume",
        short_names: &["pv"],
        subresources: &[SubresourceRow::status("PersistentVolume")],
        returns_deleted: true,
        ..CLUSTER
    },
    Resource {
        kind: "Pod",
        plural: "pods",
        singular: "pod",
        short_names: &["po"],
        categories: &["all"],
        subresources: POD_SUBRESOURCES,
        fields: Fields::These(POD_FIELDS),
        returns_deleted: true,
        ..NAMESPACED
    },
    Resource {
        kind: "PodTemplate",
        plural: "podtemplates",
        singular: "podtemplate",
        returns_deleted: true,
        ..NAMESPACED
    },
    Resource {
        kind: "ReplicationController",
        plural: "replicationcontrollers",
        directory: Some("controllers"),
        singular: "replicationcontroller",
        short_names: &["rc"],
        categories: &["all"],
        subresources: &[SubresourceRow::scale(), SubresourceRow::status("ReplicationController")],
        fields: Fields::These(&[
            Field::NAME,
            Field::NAMESPACE,
            Field { default: "0", ..Field::new("status.replicas", &[&["status", "replicas"]]) },
        ]),
        ..NAMESPACED
    },
    Resource {
        kind: "ResourceQuota",
        plural: "resourcequotas",
        singular: "resourcequota",
        short_names: &["quota"],
        subresources: &[SubresourceRow::status("ResourceQuota")],
        returns_deleted: true,
        ..NAMESPACED
    },
    Resource {
        kind: "Secret",
        plural: "secrets",
        singular: "secret",
        fields: Fields::These(&[Field::NAME, Field::NAMESPACE, Field::new("type", &[&["type"]])]),
        ..NAMESPACED
    },
    Resource {
        kind: "ServiceAccount",
        plural: "serviceaccounts",
        singular: "serviceaccount",
        short_names: &["sa"],
        subresources: &[SubresourceRow {
            group_version: Some(("authentication.k8s.io", "v1")),
            ..SubresourceRow::new("token", "TokenRequest", verbs::CREATE)
        }],
        returns_deleted: true,
        ..NAMESPACED
    },
    Resource {
        kind: "Service",
        plural: "services",
        directory: Some("services/specs"),
        singular: "service",
        short_names: &["svc"],
        categories: &["all"],
        subresources: &[
            SubresourceRow::connect("proxy", "ServiceProxyOptions", verbs::PROXY),
            SubresourceRow::status("Service"),
        ],
        fields: Fields::These(&[
            Field::NAME,
            Field::NAMESPACE,
            Field::new("spec.clusterIP", &[&["spec", "clusterIP"]]),
            Field::new("spec.type", &[&["spec", "type"]]),
        ]),
        returns_deleted: true,
        ..NAMESPACED
    },
];

const NAMESPACED: Resource = Resource::NAMESPACED;
const CLUSTER: Resource = Resource::CLUSTER;

const POD_SUBRESOURCES: &[SubresourceRow] = &[
    SubresourceRow::connect("attach", "PodAttachOptions", verbs::CREATE_GET),
    SubresourceRow::new("binding", "Binding", verbs::CREATE),
    SubresourceRow::new("ephemeralcontainers", "Pod", verbs::GET_PATCH_UPDATE),
    SubresourceRow {
        group_version: Some(("policy", "v1")),
        ..SubresourceRow::new("eviction", "Eviction", verbs::CREATE)
    },
    SubresourceRow::connect("exec", "PodExecOptions", verbs::CREATE_GET),
    SubresourceRow::new("log", "Pod", verbs::GET),
    SubresourceRow::connect("portforward", "PodPortForwardOptions", verbs::CREATE_GET),
    SubresourceRow::connect("proxy", "PodProxyOptions", verbs::PROXY),
    SubresourceRow::new("resize", "Pod", verbs::GET_PATCH_UPDATE),
    SubresourceRow::status("Pod"),
];

const POD_FIELDS: &[Field] = &[
    Field::NAME,
    Field::NAMESPACE,
    Field::new("spec.nodeName", &[&["spec", "nodeName"]]),
    Field::new("spec.restartPolicy", &[&["spec", "restartPolicy"]]),
    Field::new("spec.schedulerName", &[&["spec", "schedulerName"]]),
    Field::new("spec.serviceAccountName", &[&["spec", "serviceAccountName"]]),
    Field { default: "false", ..Field::new("spec.hostNetwork", &[&["spec", "hostNetwork"]]) },
    Field::new("status.phase", &[&["status", "phase"]]),
    Field::new("status.podIP", &[&["status", "podIPs", "ip"]]),
    // Accepted, but no pod has a value for it.
    Field::new("status.podIPs", &[]),
    Field::new("status.nominatedNodeName", &[&["status", "nominatedNodeName"]]),
    // The name of spec.nodeName in the first clients.
    Field::new("spec.host", &[&["spec", "nodeName"]]),
];

const EVENT_FIELDS: &[Field] = &[
    Field::NAME,
    Field::NAMESPACE,
    Field::new("involvedObject.kind", &[&["involvedObject", "kind"]]),
    Field::new("involvedObject.namespace", &[&["involvedObject", "namespace"]]),
    Field::new("involvedObject.name", &[&["involvedObject", "name"]]),
    Field::new("involvedObject.uid", &[&["involvedObject", "uid"]]),
    Field::new("involvedObject.apiVersion", &[&["involvedObject", "apiVersion"]]),
    Field::new("involvedObject.resourceVersion", &[&["involvedObject", "resourceVersion"]]),
    Field::new("involvedObject.fieldPath", &[&["involvedObject", "fieldPath"]]),
    Field::new("reason", &[&["reason"]]),
    Field::new("reportingComponent", &[&["reportingComponent"]]),
    Field::new("source", &[&["source", "component"], &["reportingComponent"]]),
    Field::new("type", &[&["type"]]),
];
