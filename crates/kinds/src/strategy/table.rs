//! The table: every kind that is stored, grouped by API group.

use api::validation::fields::{Read, same};
use value::Value;

use super::gates::Gate;
use super::{
    Context, Generation, MetadataOnStatus, Propagation, Status, Strategy, certificates, keep, pod, resource,
    storage,
};

const SPEC: &[&[&str]] = &[&["spec"]];

/// Every kind that is stored.
#[rustfmt::skip]
pub(super) const TABLE: &[Strategy] = &[
    // core
    row("", "ConfigMap").unconditional(),
    row("", "Endpoints").unconditional().creates(),
    row("", "Event").unconditional().creates().collects(Propagation::Unsupported),
    row("", "LimitRange").unconditional().creates(),
    row("", "Namespace").unconditional().status().on_create(create_namespace).on_update(update_namespace),
    row("", "Node").unconditional().status_kept_on_update().gates(NODE_GATES)
        .on_create(create_node).on_update(update_node).on_status(update_node_status),
    row("", "PersistentVolume").unconditional().status()
        .on_create(storage::create_volume).on_status(storage::update_volume_status),
    row("", "PersistentVolumeClaim").unconditional().status().gates(CLAIM_GATES)
        .on_create(storage::create_claim).on_update(storage::update_claim),
    row("", "Pod").unconditional().status().generation(SPEC).gates(pod::GATES)
        .on_create(pod::create).on_update(pod::update).on_status(pod::update_status),
    row("", "PodTemplate").unconditional().generation(&[&["template"]]).gates(pod::TEMPLATE_GATES),
    row("", "ReplicationController").unconditional().status().generation(SPEC)
        .gates(pod::WORKLOAD_GATES).collects(Propagation::Orphan),
    row("", "ResourceQuota").unconditional().status(),
    row("", "Secret").unconditional().on_update(update_secret),
    row("", "Service").unconditional().creates().status().on_update(super::service::drop_type_dependent_fields),
    row("", "ServiceAccount").unconditional().on_create(create_service_account).on_update(update_service_account),
    // admissionregistration.k8s.io
    row("admissionregistration.k8s.io", "MutatingAdmissionPolicy").generation(SPEC),
    row("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding").generation(SPEC),
    row("admissionregistration.k8s.io", "MutatingWebhookConfiguration").generation(&[&["webhooks"]]),
    row("admissionregistration.k8s.io", "ValidatingAdmissionPolicy").generation(SPEC).status().metadata(MetadataOnStatus::Kept),
    row("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding").generation(SPEC),
    row("admissionregistration.k8s.io", "ValidatingWebhookConfiguration").generation(&[&["webhooks"]]),
    // apiextensions.k8s.io
    row("apiextensions.k8s.io", "CustomResourceDefinition").generation(SPEC)
        .status()
        .on_create(create_definition).on_update(update_definition),
    // apiregistration.k8s.io
    row("apiregistration.k8s.io", "APIService").status().metadata(MetadataOnStatus::ApiServiceKept)
        .on_create(create_api_service),
    // apps
    row("apps", "ControllerRevision").unconditional(),
    row("apps", "DaemonSet").unconditional().generation(SPEC).gates(pod::WORKLOAD_GATES)
        .status()
        .on_create(create_daemon_set).on_update(update_daemon_set).on_status(keep_template_generation),
    row("apps", "Deployment").unconditional().generation(&[&["spec"], &["metadata", "annotations"]])
        .gates(pod::WORKLOAD_GATES).status().metadata(MetadataOnStatus::LabelsKept),
    row("apps", "ReplicaSet").unconditional().generation(SPEC).gates(pod::WORKLOAD_GATES).status(),
    row("apps", "StatefulSet").unconditional().generation(SPEC).gates(pod::WORKLOAD_GATES)
        .status(),
    // autoscaling
    row("autoscaling", "HorizontalPodAutoscaler").unconditional().generation(SPEC)
        .status(),
    // batch
    row("batch", "CronJob").unconditional().generation(SPEC).gates(pod::CRON_JOB_GATES).status(),
    row("batch", "Job").unconditional().generation(SPEC).gates(pod::JOB_GATES).status()
        .collects(Propagation::Orphan).on_create(|job, _| crate::defaults::batch::prepare_job(job)),
    // certificates.k8s.io
    row("certificates.k8s.io", "CertificateSigningRequest").unconditional().status()
        .on_create(certificates::create).on_update(certificates::update).on_status(certificates::update_status),
    row("certificates.k8s.io", "ClusterTrustBundle"),
    row("certificates.k8s.io", "PodCertificateRequest").status().metadata(MetadataOnStatus::Kept),
    // coordination.k8s.io
    row("coordination.k8s.io", "Lease").creates().gates(LEASE_GATES),
    row("coordination.k8s.io", "LeaseCandidate").creates(),
    // discovery.k8s.io
    row("discovery.k8s.io", "EndpointSlice").unconditional().generation_of_all().counts_dropped()
        .on_create(|slice, _| drop_topology(slice)).on_update(|slice, _, _| drop_topology(slice)),
    // events.k8s.io
    row("events.k8s.io", "Event").unconditional().creates().collects(Propagation::Unsupported),
    // flowcontrol.apiserver.k8s.io
    row("flowcontrol.apiserver.k8s.io", "FlowSchema").unconditional().generation(SPEC).status()
        .metadata(MetadataOnStatus::AllKept),
    row("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration").unconditional().generation(SPEC).status()
        .metadata(MetadataOnStatus::AllKept),
    // networking.k8s.io
    row("networking.k8s.io", "IPAddress").unconditional(),
    row("networking.k8s.io", "Ingress").unconditional().generation(SPEC).status(),
    row("networking.k8s.io", "IngressClass").unconditional().generation(SPEC),
    row("networking.k8s.io", "NetworkPolicy").unconditional().generation(SPEC),
    row("networking.k8s.io", "ServiceCIDR").unconditional().status().metadata(MetadataOnStatus::Kept),
    // node.k8s.io
    row("node.k8s.io", "RuntimeClass").creates(),
    // policy
    row("policy", "PodDisruptionBudget").generation(SPEC)
        .status(),
    // rbac.authorization.k8s.io
    row("rbac.authorization.k8s.io", "ClusterRole").unconditional().creates(),
    row("rbac.authorization.k8s.io", "ClusterRoleBinding").unconditional().creates(),
    row("rbac.authorization.k8s.io", "Role").unconditional().creates(),
    row("rbac.authorization.k8s.io", "RoleBinding").unconditional().creates(),
    // resource.k8s.io
    row("resource.k8s.io", "DeviceClass").unconditional().generation(SPEC),
    row("resource.k8s.io", "DeviceTaintRule").generation(SPEC).status().metadata(MetadataOnStatus::Kept)
        .on_create(resource::create_taint_rule).on_update(resource::update_taint_rule),
    row("resource.k8s.io", "ResourceClaim").unconditional().status().metadata(MetadataOnStatus::Kept)
        .gates(resource::CLAIM_GATES).on_status(resource::update_claim_status),
    row("resource.k8s.io", "ResourceClaimTemplate").unconditional().gates(resource::TEMPLATE_GATES),
    row("resource.k8s.io", "ResourceSlice").unconditional().generation(SPEC).counts_dropped().gates(resource::SLICE_GATES)
        .on_create(resource::create_slice).on_update(resource::update_slice),
    // scheduling.k8s.io
    row("scheduling.k8s.io", "PriorityClass").unconditional().generation_on_create(),
    // storage.k8s.io
    row("storage.k8s.io", "CSIDriver").generation_on_update(SPEC),
    row("storage.k8s.io", "CSINode").status().metadata(MetadataOnStatus::Kept).gates(&[&[&["status", "storageHealth"]]]),
    row("storage.k8s.io", "CSIStorageCapacity"),
    row("storage.k8s.io", "StorageClass").unconditional(),
    row("storage.k8s.io", "VolumeAttachment").status().metadata(MetadataOnStatus::Kept),
    row("storage.k8s.io", "VolumeAttributesClass").unconditional(),
    // storagemigration.k8s.io
    row("storagemigration.k8s.io", "StorageVersionMigration").status().metadata(MetadataOnStatus::Kept),
];

/// Alpha fields of a node: which pods may be preempted in place.
const NODE_GATES: &[Gate] = &[&[&["spec", "podPreemptionPolicy"]]];
const CLAIM_GATES: &[Gate] = &[&[&["status", "healthStatus"]]];
/// Coordinated leader election is off.
const LEASE_GATES: &[Gate] = &[&[&["spec", "strategy"]], &[&["spec", "preferredHolder"]]];

const fn row(group: &'static str, kind: &'static str) -> Strategy {
    Strategy {
        group,
        kind,
        status: Status::AsSent,
        generation: Generation::Unset,
        counts_dropped: false,
        metadata: MetadataOnStatus::AsSent,
        gates: &[],
        create: |_, _| {},
        update: |_, _, _| {},
        update_status: |_, _, _| {},
        create_on_update: false,
        unconditional_update: false,
        propagation: Propagation::Background,
    }
}

impl Strategy {
    const fn unconditional(mut self) -> Self {
        self.unconditional_update = true;
        self
    }

    const fn creates(mut self) -> Self {
        self.create_on_update = true;
        self
    }

    const fn status(mut self) -> Self {
        self.status = Status::Reset;
        self
    }

    const fn status_kept_on_update(mut self) -> Self {
        self.status = Status::KeptOnUpdate;
        self
    }

    const fn generation(mut self, watched: &'static [&'static [&'static str]]) -> Self {
        self.generation = Generation::Watches(watched);
        self
    }

    const fn generation_of_all(mut self) -> Self {
        self.generation = Generation::WatchesAll;
        self
    }

    const fn generation_on_create(mut self) -> Self {
        self.generation = Generation::OnCreate;
        self
    }

    const fn generation_on_update(mut self, watched: &'static [&'static [&'static str]]) -> Self {
        self.generation = Generation::WatchesUpdates(watched);
        self
    }

    const fn counts_dropped(mut self) -> Self {
        self.counts_dropped = true;
        self
    }

    const fn metadata(mut self, metadata: MetadataOnStatus) -> Self {
        self.metadata = metadata;
        self
    }

    const fn gates(mut self, gates: &'static [Gate]) -> Self {
        self.gates = gates;
        self
    }

    const fn collects(mut self, propagation: Propagation) -> Self {
        self.propagation = propagation;
        self
    }

    const fn on_create(mut self, step: fn(&mut Value, &Context)) -> Self {
        self.create = step;
        self
    }

    const fn on_update(mut self, step: fn(&mut Value, &Value, &Context)) -> Self {
        self.update = step;
        self
    }

    const fn on_status(mut self, step: fn(&mut Value, &Value, &Context)) -> Self {
        self.update_status = step;
        self
    }
}

/// What an endpoint's topology was before `discovery.k8s.io/v1`, which never stores it.
fn drop_topology(slice: &mut Value) {
    let Some(Value::List(endpoints)) = slice.get_mut("endpoints") else { return };
    for endpoint in endpoints {
        endpoint.remove_at(&["deprecatedTopology"]);
    }
}

fn create_namespace(namespace: &mut Value, _: &Context) {
    namespace.set_at(&["status", "phase"], "Active");
    let mut finalizers = namespace.list_at(&["spec", "finalizers"]).to_vec();
    if !finalizers.iter().any(|finalizer| finalizer.as_str() == Some("kubernetes")) {
        finalizers.push("kubernetes".into());
        namespace.set_at(&["spec", "finalizers"], finalizers);
    }
}

fn update_namespace(new: &mut Value, old: &Value, _: &Context) {
    keep(new, old, &["spec", "finalizers"]);
}

fn create_node(node: &mut Value, _: &Context) {
    node.remove_at(&["spec", "configSource"]);
    node.remove_at(&["status", "config"]);
}

fn update_node(new: &mut Value, old: &Value, _: &Context) {
    if old.at(&["spec", "configSource"]).is_none() {
        new.remove_at(&["spec", "configSource"]);
    }
}

fn update_node_status(new: &mut Value, old: &Value, _: &Context) {
    if old.at(&["status", "config"]).is_none() {
        new.remove_at(&["status", "config"]);
    }
}

fn update_secret(new: &mut Value, old: &Value, _: &Context) {
    if new.text("type").is_empty() {
        keep(new, old, &["type"]);
    }
}

fn create_service_account(account: &mut Value, _: &Context) {
    let Some(Value::List(secrets)) = account.get_mut("secrets") else { return };
    for secret in secrets {
        *secret = match secret.part("name") {
            Some(name) => Value::map([("name", name.clone())]),
            None => Value::Map(value::Map::new()),
        };
    }
}

fn update_service_account(account: &mut Value, _: &Value, context: &Context) {
    create_service_account(account, context);
}

fn create_definition(definition: &mut Value, _: &Context) {
    record_stored_version(definition);
}

fn update_definition(new: &mut Value, _: &Value, _: &Context) {
    record_stored_version(new);
}

fn record_stored_version(definition: &mut Value) {
    let stored = definition.list_at(&["spec", "versions"]).iter().find(|version| version.flag("storage"));
    let Some(name) = stored.map(|version| Value::from(version.text("name"))) else { return };
    let mut versions = definition.list_at(&["status", "storedVersions"]).to_vec();
    if !versions.contains(&name) {
        versions.push(name);
        definition.set_at(&["status", "storedVersions"], versions);
    }
}

fn create_api_service(service: &mut Value, context: &Context) {
    if service.at(&["spec", "service"]).is_some_and(|reference| !reference.is_null()) {
        return;
    }
    let condition = Value::map([
        ("lastTransitionTime", context.time()),
        ("message", "Local APIServices are always available".into()),
        ("reason", "Local".into()),
        ("status", "True".into()),
        ("type", "Available".into()),
    ]);
    service.set_at(&["status", "conditions"], vec![condition]);
}

/// Where a DaemonSet keeps how often its template changed, since the field for it is gone.
const TEMPLATE_GENERATION: &[&str] = &["metadata", "annotations", "deprecated.daemonset.template.generation"];

fn template_generation(set: &Value) -> i64 {
    set.str_at(TEMPLATE_GENERATION).and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn create_daemon_set(set: &mut Value, _: &Context) {
    let generation = template_generation(set).max(1);
    set.set_at(TEMPLATE_GENERATION, generation.to_string());
}

/// A daemon set shows a generation of its template even where it was sent without one.
pub(super) fn show_template_generation(set: &mut Value) {
    if set.at(TEMPLATE_GENERATION).is_none() {
        set.set_at(TEMPLATE_GENERATION, template_generation(set).to_string());
    }
}

/// It is no annotation in Kubernetes, so an update of the status cannot lose it.
fn keep_template_generation(new: &mut Value, old: &Value, _: &Context) {
    new.set_at(TEMPLATE_GENERATION, template_generation(old).to_string());
}

fn update_daemon_set(new: &mut Value, old: &Value, _: &Context) {
    let generation = template_generation(old);
    let changed = !same(new.at(&["spec", "template"]), old.at(&["spec", "template"]));
    let generation = if changed { generation.saturating_add(1) } else { generation };
    new.set_at(TEMPLATE_GENERATION, generation.to_string());
}
