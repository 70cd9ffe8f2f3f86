//! Rows of the core group (`/api/v1`).

use super::{
    KindBehavior, KindStorage, Resource, SelectableField, SelectableFields, SubresourceRow, VersionRow, verbs,
};
use crate::strategy::table as strategy;
use crate::{defaults, print, validation, warnings};

pub(super) const RESOURCES: &[Resource] = &[
    Resource {
        kind: "Binding",
        plural: "bindings",
        singular: "binding",
        verbs: verbs::CREATE,
        storage: KindStorage::Nowhere,
        ..Resource::namespaced(KindBehavior {
            defaults: None,
            rules: Some(validation::pod::BINDING),
            strategy: None,
            warnings: None,
            status_warnings: None,
            columns: None,
        })
    },
    Resource {
        kind: "ComponentStatus",
        plural: "componentstatuses",
        singular: "componentstatus",
        short_names: &["cs"],
        versions: &[VersionRow::deprecated("v1", "v1 ComponentStatus is deprecated in v1.19+")],
        verbs: verbs::GET_LIST,
        storage: KindStorage::Nowhere,
        ..Resource::cluster(KindBehavior {
            defaults: None,
            rules: None,
            strategy: None,
            warnings: None,
            status_warnings: None,
            columns: Some(print::core::COMPONENT_STATUS),
        })
    },
    Resource {
        kind: "ConfigMap",
        plural: "configmaps",
        singular: "configmap",
        short_names: &["cm"],
        ..Resource::namespaced(KindBehavior {
            defaults: None,
            rules: Some(validation::core::CONFIG_MAP),
            strategy: Some(strategy::CONFIG_MAP),
            warnings: None,
            status_warnings: None,
            columns: Some(print::core::CONFIG_MAP),
        })
    },
    Resource {
        kind: "Endpoints",
        plural: "endpoints",
        directory: Some("services/endpoints"),
        singular: "endpoints",
        short_names: &["ep"],
        versions: &[VersionRow::deprecated(
            "v1",
            "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
        )],
        ..Resource::namespaced(KindBehavior {
            defaults: Some(defaults::core::endpoints),
            rules: Some(validation::core::ENDPOINTS),
            strategy: Some(strategy::ENDPOINTS),
            warnings: Some(warnings::endpoints),
            status_warnings: None,
            columns: Some(print::core::ENDPOINTS),
        })
    },
    Resource {
        kind: "Event",
        plural: "events",
        singular: "event",
        short_names: &["ev"],
        fields: SelectableFields::These(EVENT_FIELDS),
        ..Resource::namespaced(KindBehavior {
            defaults: None,
            rules: Some(validation::event::CORE_EVENT),
            strategy: Some(strategy::EVENT),
            warnings: None,
            status_warnings: None,
            columns: Some(print::core::EVENT),
        })
    },
    Resource {
        kind: "LimitRange",
        plural: "limitranges",
        singular: "limitrange",
        short_names: &["limits"],
        ..Resource::namespaced(KindBehavior {
            defaults: Some(defaults::core::limit_range),
            rules: Some(validation::quota::LIMIT_RANGE),
            strategy: Some(strategy::LIMIT_RANGE),
            warnings: None,
            status_warnings: None,
            columns: None,
        })
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
        fields: SelectableFields::These(&[
            SelectableField::NAME,
            SelectableField::new("status.phase", &[&["status", "phase"]]),
        ]),
        ..Resource::cluster(KindBehavior {
            defaults: Some(defaults::core::namespace),
            rules: Some(validation::core::NAMESPACE),
            strategy: Some(strategy::NAMESPACE),
            warnings: None,
            status_warnings: None,
            columns: Some(print::core::NAMESPACE),
        })
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
        fields: SelectableFields::These(&[
            SelectableField::NAME,
            SelectableField {
                default: "false",
                ..SelectableField::new("spec.unschedulable", &[&["spec", "unschedulable"]])
            },
        ]),
        ..Resource::cluster(KindBehavior {
            defaults: Some(defaults::core::node),
            rules: Some(validation::node::NODE),
            strategy: Some(strategy::NODE),
            warnings: Some(warnings::node),
            status_warnings: None,
            columns: Some(print::core::NODE),
        })
    },
    Resource {
        kind: "PersistentVolumeClaim",
        plural: "persistentvolumeclaims",
        singular: "persistentvolumeclaim",
        short_names: &["pvc"],
        subresources: &[SubresourceRow::status("PersistentVolumeClaim")],
        returns_deleted: true,
        ..Resource::namespaced(KindBehavior {
            defaults: Some(defaults::core::persistent_volume_claim),
            rules: Some(validation::persistent_volume_claim::PERSISTENT_VOLUME_CLAIM),
            strategy: Some(strategy::PERSISTENT_VOLUME_CLAIM),
            warnings: Some(warnings::persistent_volume_claim),
            status_warnings: None,
            columns: Some(print::core::PERSISTENT_VOLUME_CLAIM),
        })
    },
    Resource {
        kind: "PersistentVolume",
        plural: "persistentvolumes",
        singular: "persistentvolume",
        short_names: &["pv"],
        subresources: &[SubresourceRow::status("PersistentVolume")],
        returns_deleted: true,
        ..Resource::cluster(KindBehavior {
            defaults: Some(defaults::core::persistent_volume),
            rules: Some(validation::persistent_volume::PERSISTENT_VOLUME),
            strategy: Some(strategy::PERSISTENT_VOLUME),
            warnings: Some(warnings::persistent_volume),
            status_warnings: None,
            columns: Some(print::core::PERSISTENT_VOLUME),
        })
    },
    Resource {
        kind: "Pod",
        plural: "pods",
        singular: "pod",
        short_names: &["po"],
        categories: &["all"],
        subresources: POD_SUBRESOURCES,
        fields: SelectableFields::These(POD_FIELDS),
        returns_deleted: true,
        ..Resource::namespaced(KindBehavior {
            defaults: Some(defaults::pod::pod),
            rules: Some(validation::pod::POD),
            strategy: Some(strategy::POD),
            warnings: Some(warnings::pod),
            status_warnings: Some(warnings::pod_status),
            columns: Some(print::core::POD),
        })
    },
    Resource {
        kind: "PodTemplate",
        plural: "podtemplates",
        singular: "podtemplate",
        returns_deleted: true,
        ..Resource::namespaced(KindBehavior {
            defaults: Some(defaults::pod::pod_template),
            rules: Some(validation::template::POD_TEMPLATE),
            strategy: Some(strategy::POD_TEMPLATE),
            warnings: Some(warnings::pod_template),
            status_warnings: None,
            columns: Some(print::core::POD_TEMPLATE),
        })
    },
    Resource {
        kind: "ReplicationController",
        plural: "replicationcontrollers",
        directory: Some("controllers"),
        singular: "replicationcontroller",
        short_names: &["rc"],
        categories: &["all"],
        subresources: &[SubresourceRow::scale(), SubresourceRow::status("ReplicationController")],
        fields: SelectableFields::These(&[
            SelectableField::NAME,
            SelectableField::NAMESPACE,
            SelectableField {
                default: "0",
                ..SelectableField::new("status.replicas", &[&["status", "replicas"]])
            },
        ]),
        ..Resource::namespaced(KindBehavior {
            defaults: Some(defaults::apps::replication_controller),
            rules: Some(validation::apps::REPLICATION_CONTROLLER),
            strategy: Some(strategy::REPLICATION_CONTROLLER),
            warnings: Some(warnings::replication_controller),
            status_warnings: None,
            columns: Some(print::core::REPLICATION_CONTROLLER),
        })
    },
    Resource {
        kind: "ResourceQuota",
        plural: "resourcequotas",
        singular: "resourcequota",
        short_names: &["quota"],
        subresources: &[SubresourceRow::status("ResourceQuota")],
        returns_deleted: true,
        ..Resource::namespaced(KindBehavior {
            defaults: Some(defaults::core::resource_quota),
            rules: Some(validation::quota::RESOURCE_QUOTA),
            strategy: Some(strategy::RESOURCE_QUOTA),
            warnings: Some(warnings::resource_quota),
            status_warnings: None,
            columns: Some(print::core::RESOURCE_QUOTA),
        })
    },
    Resource {
        kind: "Secret",
        plural: "secrets",
        singular: "secret",
        fields: SelectableFields::These(&[
            SelectableField::NAME,
            SelectableField::NAMESPACE,
            SelectableField::new("type", &[&["type"]]),
        ]),
        ..Resource::namespaced(KindBehavior {
            defaults: Some(defaults::core::secret),
            rules: Some(validation::core::SECRET),
            strategy: Some(strategy::SECRET),
            warnings: Some(warnings::secret),
            status_warnings: None,
            columns: Some(print::core::SECRET),
        })
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
        ..Resource::namespaced(KindBehavior {
            defaults: None,
            rules: Some(validation::core::SERVICE_ACCOUNT),
            strategy: Some(strategy::SERVICE_ACCOUNT),
            warnings: Some(warnings::service_account),
            status_warnings: None,
            columns: Some(print::core::SERVICE_ACCOUNT),
        })
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
        fields: SelectableFields::These(&[
            SelectableField::NAME,
            SelectableField::NAMESPACE,
            SelectableField::new("spec.clusterIP", &[&["spec", "clusterIP"]]),
            SelectableField::new("spec.type", &[&["spec", "type"]]),
        ]),
        returns_deleted: true,
        ..Resource::namespaced(KindBehavior {
            defaults: Some(defaults::core::service),
            rules: Some(validation::service::SERVICE),
            strategy: Some(strategy::SERVICE),
            warnings: Some(warnings::service),
            status_warnings: Some(warnings::load_balancer_status),
            columns: Some(print::core::SERVICE),
        })
    },
];

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

const POD_FIELDS: &[SelectableField] = &[
    SelectableField::NAME,
    SelectableField::NAMESPACE,
    SelectableField::new("spec.nodeName", &[&["spec", "nodeName"]]),
    SelectableField::new("spec.restartPolicy", &[&["spec", "restartPolicy"]]),
    SelectableField::new("spec.schedulerName", &[&["spec", "schedulerName"]]),
    SelectableField::new("spec.serviceAccountName", &[&["spec", "serviceAccountName"]]),
    SelectableField {
        default: "false",
        ..SelectableField::new("spec.hostNetwork", &[&["spec", "hostNetwork"]])
    },
    SelectableField::new("status.phase", &[&["status", "phase"]]),
    SelectableField::new("status.podIP", &[&["status", "podIPs", "ip"]]),
    // kube-apiserver accepts this selector, but no pod has a value for it.
    SelectableField::new("status.podIPs", &[]),
    SelectableField::new("status.nominatedNodeName", &[&["status", "nominatedNodeName"]]),
    // Old alias of `spec.nodeName`.
    SelectableField::new("spec.host", &[&["spec", "nodeName"]]),
];

const EVENT_FIELDS: &[SelectableField] = &[
    SelectableField::NAME,
    SelectableField::NAMESPACE,
    SelectableField::new("involvedObject.kind", &[&["involvedObject", "kind"]]),
    SelectableField::new("involvedObject.namespace", &[&["involvedObject", "namespace"]]),
    SelectableField::new("involvedObject.name", &[&["involvedObject", "name"]]),
    SelectableField::new("involvedObject.uid", &[&["involvedObject", "uid"]]),
    SelectableField::new("involvedObject.apiVersion", &[&["involvedObject", "apiVersion"]]),
    SelectableField::new("involvedObject.resourceVersion", &[&["involvedObject", "resourceVersion"]]),
    SelectableField::new("involvedObject.fieldPath", &[&["involvedObject", "fieldPath"]]),
    SelectableField::new("reason", &[&["reason"]]),
    SelectableField::new("reportingComponent", &[&["reportingComponent"]]),
    SelectableField::new("source", &[&["source", "component"], &["reportingComponent"]]),
    SelectableField::new("type", &[&["type"]]),
];
