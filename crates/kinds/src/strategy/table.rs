//! Strategies of the stored kinds, sorted by API group. The kinds' rows name them.

use api::validation::fields::{Read, same};
use value::Value;

use super::gates::{FeatureFields, Gate};
use super::reset::OwnReset;
use super::{
    Generation, MetadataOnStatus, Propagation, StatusHandling, Strategy, StrategyContext, certificates, keep,
    pod, resource, scheduling, storage,
};

const SPEC: &[&[&str]] = &[&["spec"]];

pub(crate) const CONFIG_MAP: Strategy = Strategy::NEW.unconditional();
pub(crate) const ENDPOINTS: Strategy = Strategy::NEW.unconditional().creates();
pub(crate) const EVENT: Strategy = Strategy::NEW.unconditional().creates().collects(Propagation::Unsupported);
pub(crate) const LIMIT_RANGE: Strategy = Strategy::NEW.unconditional().creates();
pub(crate) const NAMESPACE: Strategy = Strategy::NEW
    .unconditional()
    .status()
    .on_create(create_namespace)
    .on_update(update_namespace)
    .canonical(label_namespace);
pub(crate) const NODE: Strategy = Strategy::NEW
    .unconditional()
    .status_preserved_on_update()
    .gates(NODE_GATES)
    .on_create(create_node)
    .on_update(update_node)
    .on_status(update_node_status);
pub(crate) const PERSISTENT_VOLUME: Strategy = Strategy::NEW
    .unconditional()
    .status()
    .on_create(storage::create_volume)
    .on_status(storage::update_volume_status);
pub(crate) const PERSISTENT_VOLUME_CLAIM: Strategy = Strategy::NEW
    .unconditional()
    .status()
    .gates(CLAIM_GATES)
    .on_create(storage::create_claim)
    .on_update(storage::update_claim);
pub(crate) const POD: Strategy = Strategy::NEW
    .unconditional()
    .status()
    .generation(SPEC)
    .gates(pod::GATES)
    .features(pod::FEATURES)
    .on_create(pod::create)
    .on_update(pod::update)
    .on_status(pod::update_status)
    .graceful(pod::grace_period)
    .resets(OwnReset::Pod);
pub(crate) const POD_TEMPLATE: Strategy = Strategy::NEW
    .unconditional()
    .generation(&[&["template"]])
    .gates(pod::TEMPLATE_GATES)
    .features(pod::TEMPLATE_FEATURES);
pub(crate) const REPLICATION_CONTROLLER: Strategy = Strategy::NEW
    .unconditional()
    .status()
    .generation(SPEC)
    .gates(pod::WORKLOAD_GATES)
    .features(pod::WORKLOAD_FEATURES)
    .collects(Propagation::Orphan);
pub(crate) const RESOURCE_QUOTA: Strategy = Strategy::NEW.unconditional().status();
pub(crate) const SECRET: Strategy = Strategy::NEW.unconditional().on_update(update_secret);
pub(crate) const SERVICE: Strategy =
    Strategy::NEW.unconditional().creates().status().on_update(super::service::drop_type_dependent_fields);
pub(crate) const SERVICE_ACCOUNT: Strategy =
    Strategy::NEW.unconditional().on_create(create_service_account).on_update(update_service_account);
pub(crate) const MUTATING_ADMISSION_POLICY: Strategy = Strategy::NEW.generation(SPEC);
pub(crate) const MUTATING_ADMISSION_POLICY_BINDING: Strategy = Strategy::NEW.generation(SPEC);
pub(crate) const MUTATING_WEBHOOK_CONFIGURATION: Strategy = Strategy::NEW.generation(&[&["webhooks"]]);
pub(crate) const VALIDATING_ADMISSION_POLICY: Strategy =
    Strategy::NEW.generation(SPEC).status().metadata(MetadataOnStatus::Unchanged);
pub(crate) const VALIDATING_ADMISSION_POLICY_BINDING: Strategy = Strategy::NEW.generation(SPEC);
pub(crate) const VALIDATING_WEBHOOK_CONFIGURATION: Strategy = Strategy::NEW.generation(&[&["webhooks"]]);
pub(crate) const CUSTOM_RESOURCE_DEFINITION: Strategy =
    Strategy::NEW.generation(SPEC).status().on_create(create_crd).on_update(update_crd);
pub(crate) const API_SERVICE: Strategy =
    Strategy::NEW.status().metadata(MetadataOnStatus::ApiServiceUnchanged).on_create(create_api_service);
pub(crate) const CONTROLLER_REVISION: Strategy = Strategy::NEW.unconditional();
pub(crate) const DAEMON_SET: Strategy = Strategy::NEW
    .unconditional()
    .generation(SPEC)
    .gates(pod::WORKLOAD_GATES)
    .features(pod::WORKLOAD_FEATURES)
    .status()
    .on_create(create_daemon_set)
    .on_update(update_daemon_set)
    .on_status(keep_template_generation)
    .shows(show_template_generation);
pub(crate) const DEPLOYMENT: Strategy = Strategy::NEW
    .unconditional()
    .generation(&[&["spec"], &["metadata", "annotations"]])
    .gates(pod::WORKLOAD_GATES)
    .features(pod::WORKLOAD_FEATURES)
    .status()
    .metadata(MetadataOnStatus::LabelsUnchanged);
pub(crate) const REPLICA_SET: Strategy = Strategy::NEW
    .unconditional()
    .generation(SPEC)
    .gates(pod::WORKLOAD_GATES)
    .features(pod::WORKLOAD_FEATURES)
    .status();
pub(crate) const STATEFUL_SET: Strategy = Strategy::NEW
    .unconditional()
    .generation(SPEC)
    .gates(pod::WORKLOAD_GATES)
    .features(pod::WORKLOAD_FEATURES)
    .status();
pub(crate) const HORIZONTAL_POD_AUTOSCALER: Strategy =
    Strategy::NEW.unconditional().generation(SPEC).status();
pub(crate) const CRON_JOB: Strategy = Strategy::NEW
    .unconditional()
    .generation(SPEC)
    .gates(pod::CRON_JOB_GATES)
    .features(pod::CRON_JOB_FEATURES)
    .status();
pub(crate) const JOB: Strategy = Strategy::NEW
    .unconditional()
    .generation(SPEC)
    .gates(pod::JOB_GATES)
    .features(pod::WORKLOAD_FEATURES)
    .status()
    .collects(Propagation::Orphan)
    .on_create(|job, _| crate::defaults::batch::prepare_job(job));
pub(crate) const CERTIFICATE_SIGNING_REQUEST: Strategy = Strategy::NEW
    .unconditional()
    .status()
    .on_create(certificates::create)
    .on_update(certificates::update)
    .on_status(certificates::update_status)
    .resets(OwnReset::SigningRequest);
pub(crate) const CLUSTER_TRUST_BUNDLE: Strategy = Strategy::NEW;
pub(crate) const POD_CERTIFICATE_REQUEST: Strategy =
    Strategy::NEW.status().metadata(MetadataOnStatus::Unchanged);
pub(crate) const LEASE_CANDIDATE: Strategy = Strategy::NEW.creates();
pub(crate) const LEASE: Strategy = Strategy::NEW.creates().gates(LEASE_GATES);
pub(crate) const ENDPOINT_SLICE: Strategy = Strategy::NEW
    .unconditional()
    .generation_of_all()
    .counts_dropped()
    .on_create(|slice, _| drop_topology(slice))
    .on_update(|slice, _, _| drop_topology(slice));
pub(crate) const FLOW_SCHEMA: Strategy =
    Strategy::NEW.unconditional().generation(SPEC).status().metadata(MetadataOnStatus::AllUnchanged);
pub(crate) const PRIORITY_LEVEL_CONFIGURATION: Strategy =
    Strategy::NEW.unconditional().generation(SPEC).status().metadata(MetadataOnStatus::AllUnchanged);
pub(crate) const IP_ADDRESS: Strategy = Strategy::NEW.unconditional();
pub(crate) const INGRESS: Strategy = Strategy::NEW.unconditional().generation(SPEC).status();
pub(crate) const INGRESS_CLASS: Strategy = Strategy::NEW.unconditional().generation(SPEC);
pub(crate) const NETWORK_POLICY: Strategy = Strategy::NEW.unconditional().generation(SPEC);
pub(crate) const SERVICE_CIDR: Strategy =
    Strategy::NEW.unconditional().status().metadata(MetadataOnStatus::Unchanged);
pub(crate) const RUNTIME_CLASS: Strategy = Strategy::NEW.creates();
pub(crate) const POD_DISRUPTION_BUDGET: Strategy = Strategy::NEW.generation(SPEC).status();
pub(crate) const CLUSTER_ROLE: Strategy = Strategy::NEW.unconditional().creates();
pub(crate) const CLUSTER_ROLE_BINDING: Strategy = Strategy::NEW.unconditional().creates();
pub(crate) const ROLE: Strategy = Strategy::NEW.unconditional().creates();
pub(crate) const ROLE_BINDING: Strategy = Strategy::NEW.unconditional().creates();
pub(crate) const DEVICE_CLASS: Strategy = Strategy::NEW.unconditional().generation(SPEC);
pub(crate) const RESOURCE_POOL_STATUS_REQUEST: Strategy =
    Strategy::NEW.status().metadata(MetadataOnStatus::Unchanged).gates(STATUS_REQUEST_GATES);
pub(crate) const DEVICE_TAINT_RULE: Strategy = Strategy::NEW
    .generation(SPEC)
    .status()
    .metadata(MetadataOnStatus::Unchanged)
    .on_create(resource::create_taint_rule)
    .on_update(resource::update_taint_rule)
    .stamps(resource::create_taint_rule);
pub(crate) const RESOURCE_CLAIM: Strategy = Strategy::NEW
    .unconditional()
    .status()
    .metadata(MetadataOnStatus::Unchanged)
    .gates(resource::CLAIM_GATES)
    .on_status(resource::update_claim_status);
pub(crate) const RESOURCE_CLAIM_TEMPLATE: Strategy =
    Strategy::NEW.unconditional().gates(resource::TEMPLATE_GATES);
pub(crate) const RESOURCE_SLICE: Strategy = Strategy::NEW
    .unconditional()
    .generation(SPEC)
    .counts_dropped()
    .gates(resource::SLICE_GATES)
    .on_create(resource::create_slice)
    .on_update(resource::update_slice)
    .stamps(resource::create_slice);
pub(crate) const EVICTION_REQUEST: Strategy =
    Strategy::NEW.generation(SPEC).status().metadata(MetadataOnStatus::Unchanged);
pub(crate) const EVICTION: Strategy =
    Strategy::NEW.generation(SPEC).status().metadata(MetadataOnStatus::Unchanged);
pub(crate) const WORKLOAD: Strategy = Strategy::NEW
    .on_create(|workload, context| scheduling::drop_disabled(workload, None, context.features))
    .on_update(|new, old, context| scheduling::drop_disabled(new, Some(old), context.features));
pub(crate) const POD_GROUP: Strategy = Strategy::NEW
    .status()
    .metadata(MetadataOnStatus::Unchanged)
    .gates(scheduling::POD_GROUP_GATES)
    .features(scheduling::POD_GROUP_FEATURES);
pub(crate) const COMPOSITE_POD_GROUP: Strategy =
    Strategy::NEW.status().metadata(MetadataOnStatus::Unchanged).gates(scheduling::COMPOSITE_POD_GROUP_GATES);
pub(crate) const PRIORITY_CLASS: Strategy = Strategy::NEW.unconditional().generation_on_create();
pub(crate) const CSI_DRIVER: Strategy = Strategy::NEW.generation_on_update(SPEC);
pub(crate) const CSI_NODE: Strategy =
    Strategy::NEW.status().metadata(MetadataOnStatus::Unchanged).gates(&[&[&["status", "storageHealth"]]]);
pub(crate) const CSI_STORAGE_CAPACITY: Strategy = Strategy::NEW;
pub(crate) const STORAGE_CLASS: Strategy = Strategy::NEW.unconditional();
pub(crate) const VOLUME_ATTACHMENT: Strategy = Strategy::NEW.status().metadata(MetadataOnStatus::Unchanged);
pub(crate) const VOLUME_ATTRIBUTES_CLASS: Strategy = Strategy::NEW.unconditional();
pub(crate) const STORAGE_VERSION: Strategy = Strategy::NEW.status().metadata(MetadataOnStatus::Unchanged);
pub(crate) const STORAGE_VERSION_MIGRATION: Strategy =
    Strategy::NEW.status().metadata(MetadataOnStatus::Unchanged);

/// Alpha field: which pods may be preempted in place.
const NODE_GATES: &[Gate] = &[&[&["spec", "podPreemptionPolicy"]]];
/// The partition type whose devices are counted.
const STATUS_REQUEST_GATES: &[Gate] = &[&[&["spec", "defaultPartitionTypeAttribute"]]];
const CLAIM_GATES: &[Gate] = &[&[&["status", "healthStatus"]]];
/// Fields of coordinated leader election.
const LEASE_GATES: &[Gate] = &[&[&["spec", "strategy"]], &[&["spec", "preferredHolder"]]];

impl Strategy {
    /// Stores objects as sent, without changes on create or update.
    pub(crate) const NEW: Strategy = Strategy {
        status: StatusHandling::AsSent,
        generation: Generation::Unset,
        counts_dropped: false,
        metadata: MetadataOnStatus::AsSent,
        gates: &[],
        features: &[],
        create: |_, _| {},
        update: |_, _, _| {},
        update_status: |_, _, _| {},
        stamp: |_, _| {},
        show: |_| {},
        canonicalize: |_| {},
        grace_period: None,
        reset: None,
        create_on_update: false,
        unconditional_update: false,
        propagation: Propagation::Background,
    };

    pub(crate) const fn unconditional(mut self) -> Self {
        self.unconditional_update = true;
        self
    }

    pub(crate) const fn creates(mut self) -> Self {
        self.create_on_update = true;
        self
    }

    pub(crate) const fn status(mut self) -> Self {
        self.status = StatusHandling::Reset;
        self
    }

    pub(crate) const fn status_preserved_on_update(mut self) -> Self {
        self.status = StatusHandling::UnchangedOnUpdate;
        self
    }

    pub(crate) const fn generation(mut self, watched: &'static [&'static [&'static str]]) -> Self {
        self.generation = Generation::Watches(watched);
        self
    }

    pub(crate) const fn generation_of_all(mut self) -> Self {
        self.generation = Generation::WatchesAll;
        self
    }

    pub(crate) const fn generation_on_create(mut self) -> Self {
        self.generation = Generation::OnCreate;
        self
    }

    pub(crate) const fn generation_on_update(mut self, watched: &'static [&'static [&'static str]]) -> Self {
        self.generation = Generation::WatchesUpdates(watched);
        self
    }

    pub(crate) const fn counts_dropped(mut self) -> Self {
        self.counts_dropped = true;
        self
    }

    pub(crate) const fn metadata(mut self, metadata: MetadataOnStatus) -> Self {
        self.metadata = metadata;
        self
    }

    pub(crate) const fn gates(mut self, gates: &'static [Gate]) -> Self {
        self.gates = gates;
        self
    }

    pub(super) const fn features(mut self, features: &'static [FeatureFields]) -> Self {
        self.features = features;
        self
    }

    pub(crate) const fn collects(mut self, propagation: Propagation) -> Self {
        self.propagation = propagation;
        self
    }

    pub(crate) const fn stamps(mut self, step: fn(&mut Value, &StrategyContext)) -> Self {
        self.stamp = step;
        self
    }

    pub(crate) const fn shows(mut self, step: fn(&mut Value)) -> Self {
        self.show = step;
        self
    }

    pub(crate) const fn canonical(mut self, step: fn(&mut Value)) -> Self {
        self.canonicalize = step;
        self
    }

    pub(crate) const fn graceful(mut self, grace_period: fn(&Value, Option<i64>) -> i64) -> Self {
        self.grace_period = Some(grace_period);
        self
    }

    pub(crate) const fn resets(mut self, reset: OwnReset) -> Self {
        self.reset = Some(reset);
        self
    }

    pub(crate) const fn on_create(mut self, step: fn(&mut Value, &StrategyContext)) -> Self {
        self.create = step;
        self
    }

    pub(crate) const fn on_update(mut self, step: fn(&mut Value, &Value, &StrategyContext)) -> Self {
        self.update = step;
        self
    }

    pub(crate) const fn on_status(mut self, step: fn(&mut Value, &Value, &StrategyContext)) -> Self {
        self.update_status = step;
        self
    }
}

/// Removes the topology of `discovery.k8s.io/v1beta1` endpoints, which v1 never stores.
fn drop_topology(slice: &mut Value) {
    let Some(Value::List(endpoints)) = slice.get_mut("endpoints") else { return };
    for endpoint in endpoints {
        endpoint.remove_at(&["deprecatedTopology"]);
    }
}

fn create_namespace(namespace: &mut Value, _: &StrategyContext) {
    namespace.set_at(&["status", "phase"], "Active");
    let mut finalizers = namespace.list_at(&["spec", "finalizers"]).to_vec();
    if !finalizers.iter().any(|finalizer| finalizer.as_str() == Some("kubernetes")) {
        finalizers.push("kubernetes".into());
        namespace.set_at(&["spec", "finalizers"], finalizers);
    }
}

fn label_namespace(namespace: &mut Value) {
    let name = api::meta::name(namespace).to_owned();
    namespace.set_at(&["metadata", "labels", api::labels::NAMESPACE_NAME], name);
}

fn update_namespace(new: &mut Value, old: &Value, _: &StrategyContext) {
    keep(new, old, &["spec", "finalizers"]);
}

fn create_node(node: &mut Value, _: &StrategyContext) {
    node.remove_at(&["spec", "configSource"]);
    node.remove_at(&["status", "config"]);
}

fn update_node(new: &mut Value, old: &Value, _: &StrategyContext) {
    if old.at(&["spec", "configSource"]).is_none() {
        new.remove_at(&["spec", "configSource"]);
    }
}

fn update_node_status(new: &mut Value, old: &Value, _: &StrategyContext) {
    if old.at(&["status", "config"]).is_none() {
        new.remove_at(&["status", "config"]);
    }
}

fn update_secret(new: &mut Value, old: &Value, _: &StrategyContext) {
    if new.text("type").is_empty() {
        keep(new, old, &["type"]);
    }
}

fn create_service_account(account: &mut Value, _: &StrategyContext) {
    let Some(Value::List(secrets)) = account.get_mut("secrets") else { return };
    for secret in secrets {
        *secret = match secret.part("name") {
            Some(name) => Value::map([("name", name.clone())]),
            None => Value::Map(value::Map::new()),
        };
    }
}

fn update_service_account(account: &mut Value, _: &Value, context: &StrategyContext) {
    create_service_account(account, context);
}

fn create_crd(crd: &mut Value, _: &StrategyContext) {
    record_stored_version(crd);
}

fn update_crd(new: &mut Value, _: &Value, _: &StrategyContext) {
    record_stored_version(new);
}

fn record_stored_version(crd: &mut Value) {
    let stored = crd.list_at(&["spec", "versions"]).iter().find(|version| version.flag("storage"));
    let Some(name) = stored.map(|version| Value::from(version.text("name"))) else { return };
    let mut versions = crd.list_at(&["status", "storedVersions"]).to_vec();
    if !versions.contains(&name) {
        versions.push(name);
        crd.set_at(&["status", "storedVersions"], versions);
    }
}

fn create_api_service(service: &mut Value, context: &StrategyContext) {
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

/// Annotation that counts the changes of a DaemonSet's template; it replaced a field.
const TEMPLATE_GENERATION: &[&str] = &["metadata", "annotations", "deprecated.daemonset.template.generation"];

fn template_generation(set: &Value) -> i64 {
    set.str_at(TEMPLATE_GENERATION).and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn create_daemon_set(set: &mut Value, _: &StrategyContext) {
    let generation = template_generation(set).max(1);
    set.set_at(TEMPLATE_GENERATION, generation.to_string());
}

/// Shows the template generation of a DaemonSet that was sent without the annotation.
fn show_template_generation(set: &mut Value) {
    if set.at(TEMPLATE_GENERATION).is_none() {
        set.set_at(TEMPLATE_GENERATION, template_generation(set).to_string());
    }
}

/// kube-apiserver stores this in an internal field, not in the annotation, so a status update cannot lose it.
fn keep_template_generation(new: &mut Value, old: &Value, _: &StrategyContext) {
    new.set_at(TEMPLATE_GENERATION, template_generation(old).to_string());
}

fn update_daemon_set(new: &mut Value, old: &Value, _: &StrategyContext) {
    let generation = template_generation(old);
    let changed = !same(new.at(&["spec", "template"]), old.at(&["spec", "template"]));
    let generation = if changed { generation.saturating_add(1) } else { generation };
    new.set_at(TEMPLATE_GENERATION, generation.to_string());
}
