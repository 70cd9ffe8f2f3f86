//! PodSecurity: enforces the Pod Security Standards that a namespace's labels select.

mod checks;
mod configuration;
mod existing_pods;
mod policy;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use api::{FieldError, Status, meta};
use value::Value;

use self::checks::{PodView, in_detail, violations};
pub use self::configuration::PodSecurityConfiguration;
use self::policy::PREFIX;
pub use self::policy::{LevelVersion, NamespacePolicy, PodSecurityLevel, PodSecurityVersion};
use crate::{AdmissionAttributes, AdmissionNotes, ClusterView, Operation, Plugin};

/// The server's own minor version; later ones are in the future.
const SERVER_MINOR: u32 = 37;
/// Subresources of pods that change no checked field.
const IGNORED: &[&str] = &["exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"];

/// Records the plugin's metrics.
pub trait PodSecurityMetrics: Send + Sync {
    /// `pod_security_evaluations_total`: decision, level, version, mode, operation, resource, subresource.
    fn evaluation(&self, labels: [&str; 7]);
    /// `pod_security_exemptions_total`: operation, resource, subresource.
    fn exemption(&self, labels: [&str; 3]);
    /// `pod_security_errors_total`: fatal, operation, resource, subresource.
    fn error(&self, labels: [&str; 4]);
}

pub struct PodSecurity {
    pub configuration: PodSecurityConfiguration,
    pub metrics: Option<Arc<dyn PodSecurityMetrics>>,
}

struct MetricLabels<'a> {
    operation: &'static str,
    resource: &'static str,
    subresource: &'a str,
}

impl<'a> MetricLabels<'a> {
    fn of(attributes: &'a AdmissionAttributes<'_>) -> Self {
        MetricLabels {
            operation: if attributes.operation == Operation::Create { "create" } else { "update" },
            resource: if attributes.resource.resource == "pods" { "pod" } else { "controller" },
            subresource: &attributes.subresource,
        }
    }
}

/// A pod, or the pod template of a workload resource, and the policy of its namespace.
struct EvaluatedPod<'a> {
    object: &'a Value,
    policy: &'a NamespacePolicy,
    /// Errors in the labels that the policy was read from.
    label_errors: &'a [FieldError],
    /// Whether violations of the `enforce` level are rejected. They are not in templates.
    enforce: bool,
}

impl Plugin for PodSecurity {
    fn stored_bytes_to_validate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: Option<&Value>,
        cluster: &dyn ClusterView,
    ) -> usize {
        let (Some(object), Some(old)) = (object, attributes.old_object.stored()) else { return 0 };
        let is_update = attributes.operation == Operation::Update && attributes.is_resource("", "namespaces");
        if !is_update || exempts(&self.configuration.namespaces, &attributes.namespace) {
            return 0;
        }
        let enforced = |namespace| NamespacePolicy::of(namespace, &self.configuration.defaults).0.enforce;
        if is_stricter(enforced(object), enforced(old)) {
            existing_pods::stored_bytes(meta::name(object), cluster)
        } else {
            0
        }
    }

    fn validate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: Option<&Value>,
        cluster: &dyn ClusterView,
        notes: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        let Some(object) = object else { return Ok(()) };
        if !attributes.operation.is_write() {
            return Ok(());
        }
        let resource = (attributes.resource.group.as_str(), attributes.resource.resource.as_str());
        let template: &[&str] = match resource {
            ("", "namespaces") => return self.check_namespace(attributes, object, cluster, notes),
            ("", "pods") => return self.check_pod(attributes, object, cluster, notes),
            ("", "podtemplates") => &["template"],
            ("", "replicationcontrollers")
            | ("apps", "replicasets" | "deployments" | "statefulsets" | "daemonsets")
            | ("batch", "jobs") => &["spec", "template"],
            ("batch", "cronjobs") => &["spec", "jobTemplate", "spec", "template"],
            _ => return Ok(()),
        };
        if attributes.subresource.is_empty() {
            self.check_template(attributes, object.at(template), cluster, notes);
        }
        Ok(())
    }
}

impl PodSecurity {
    fn check_namespace(
        &self,
        attributes: &AdmissionAttributes<'_>,
        namespace: &Value,
        cluster: &dyn ClusterView,
        notes: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        if !attributes.subresource.is_empty() {
            return Ok(());
        }
        let (policy, errors) = NamespacePolicy::of(namespace, &self.configuration.defaults);
        let invalid = |errors: &[FieldError]| {
            Err(Status::invalid(&attributes.kind.group_kind(), &attributes.name, errors))
        };
        let exempt = exempts(&self.configuration.namespaces, &attributes.namespace);
        if attributes.operation == Operation::Create {
            if !errors.is_empty() {
                return invalid(&errors);
            }
            if exempt {
                self.warn_of_exemption(namespace, &policy, notes);
            }
            return Ok(());
        }
        let Some(old) = attributes.old_object.stored() else { return Ok(()) };
        let (before, old_errors) = NamespacePolicy::of(old, &self.configuration.defaults);
        if !errors.is_empty() && errors != old_errors {
            return invalid(&errors);
        }
        let new = policy.enforce;
        if !is_stricter(new, before.enforce) {
            return Ok(());
        }
        if exempt {
            self.warn_of_exemption(namespace, &policy, notes);
            return Ok(());
        }
        let name = meta::name(namespace);
        for warning in existing_pods::warnings(&self.configuration, name, new, cluster) {
            notes.warn(warning);
        }
        Ok(())
    }

    /// Warns that the labels of an exempt namespace have no effect.
    fn warn_of_exemption(&self, namespace: &Value, policy: &NamespacePolicy, notes: &mut AdmissionNotes) {
        if policy.is_privileged() || policy.is_equivalent(&self.configuration.defaults) {
            return;
        }
        let modes = [("enforce", policy.enforce), ("audit", policy.audit), ("warn", policy.warn)];
        let set: Vec<String> = modes
            .into_iter()
            .filter(|(name, standard)| {
                let has = |suffix: &str| {
                    namespace.at(&["metadata", "labels", &format!("{PREFIX}{name}{suffix}")]).is_some()
                };
                standard.level != PodSecurityLevel::Privileged && (has("") || has("-version"))
            })
            .map(|(name, standard)| format!("{name}={standard}"))
            .collect();
        let name = api::field::quote(meta::name(namespace));
        notes.warn(format!(
            "namespace {name} is exempt from Pod Security, and the policy ({}) will be ignored",
            set.join(", ")
        ));
    }

    fn check_pod(
        &self,
        attributes: &AdmissionAttributes<'_>,
        pod: &Value,
        cluster: &dyn ClusterView,
        notes: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        if IGNORED.contains(&attributes.subresource.as_str()) || self.exempts_request(attributes, notes) {
            return Ok(());
        }
        let Some(namespace) = cluster.object("", "namespaces", "", &attributes.namespace) else {
            let name = api::field::quote(&attributes.namespace);
            let status = Status::internal(format!("failed to lookup namespace {name}"));
            let why = format!("{}: namespaces {name} not found", status.message());
            notes.annotate(format!("{PREFIX}error"), why);
            self.count_error(attributes, true);
            return Err(status);
        };
        let (policy, errors) = NamespacePolicy::of(&namespace, &self.configuration.defaults);
        if errors.is_empty() && policy.is_privileged() {
            self.count(attributes, "allow", policy.enforce, "enforce");
            notes.annotate(format!("{PREFIX}enforce-policy"), LevelVersion::PRIVILEGED.to_string());
            return Ok(());
        }
        if attributes.operation == Operation::Update
            && let Some(old) = attributes.old_object.stored()
            && !is_significant(pod, old)
        {
            return Ok(());
        }
        let pod = EvaluatedPod { object: pod, policy: &policy, label_errors: &errors, enforce: true };
        self.evaluate(attributes, &pod, notes)
    }

    /// Workload resources are never rejected; they cause warnings and audit annotations.
    fn check_template(
        &self,
        attributes: &AdmissionAttributes<'_>,
        template: Option<&Value>,
        cluster: &dyn ClusterView,
        notes: &mut AdmissionNotes,
    ) {
        if self.exempts_request(attributes, notes) {
            return;
        }
        let Some(namespace) = cluster.object("", "namespaces", "", &attributes.namespace) else {
            let name = api::field::quote(&attributes.namespace);
            let why = format!("failed to lookup namespace {name}: namespaces {name} not found");
            notes.annotate(format!("{PREFIX}error"), why);
            self.count_error(attributes, true);
            return;
        };
        let (policy, errors) = NamespacePolicy::of(&namespace, &self.configuration.defaults);
        let silent = policy.warn.level == PodSecurityLevel::Privileged
            && policy.audit.level == PodSecurityLevel::Privileged;
        if errors.is_empty() && silent {
            return;
        }
        if let Some(template) = template {
            // Cannot fail, because nothing is enforced.
            let pod =
                EvaluatedPod { object: template, policy: &policy, label_errors: &errors, enforce: false };
            self.evaluate(attributes, &pod, notes).ok();
        }
    }

    fn evaluate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        pod: &EvaluatedPod<'_>,
        notes: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        let EvaluatedPod { object, policy, label_errors, enforce } = *pod;
        if exempts(&self.configuration.runtime_classes, runtime_class(object)) {
            self.exempt(attributes, "runtimeClass", notes);
            return Ok(());
        }
        if !label_errors.is_empty() {
            let why = format!("Failed to parse policy: {}", api::field::aggregate(label_errors));
            notes.annotate(format!("{PREFIX}error"), why);
            self.count_error(attributes, false);
        }
        let pod = PodView { object };
        let mut refused = Ok(());
        // Modes with the same level and version are evaluated once.
        let mut known: Vec<(LevelVersion, String)> = Vec::new();
        let mut detail = |standard: LevelVersion| match known.iter().find(|(other, _)| *other == standard) {
            Some((_, detail)) => detail.clone(),
            None => {
                let detail = in_detail(&violations(standard, pod));
                known.push((standard, detail.clone()));
                detail
            }
        };
        if enforce {
            notes.annotate(format!("{PREFIX}enforce-policy"), policy.enforce.to_string());
            let found = detail(policy.enforce);
            let decision = if found.is_empty() { "allow" } else { "deny" };
            self.count(attributes, decision, policy.enforce, "enforce");
            if !found.is_empty() {
                let why = format!("violates PodSecurity \"{}\": {found}", policy.enforce);
                refused = Err(attributes.forbidden(why));
            }
        }
        let found = detail(policy.audit);
        if !found.is_empty() {
            let text = format!("would violate PodSecurity \"{}\": {found}", policy.audit);
            notes.annotate(format!("{PREFIX}audit-violations"), text);
            self.count(attributes, "deny", policy.audit, "audit");
        }
        refused?;
        let found = detail(policy.warn);
        if !found.is_empty() {
            notes.warn(format!("would violate PodSecurity \"{}\": {found}", policy.warn));
            self.count(attributes, "deny", policy.warn, "warn");
        }
        Ok(())
    }

    fn exempts_request(&self, attributes: &AdmissionAttributes<'_>, notes: &mut AdmissionNotes) -> bool {
        let reason = if exempts(&self.configuration.namespaces, &attributes.namespace) {
            "namespace"
        } else if exempts(&self.configuration.usernames, &attributes.user.name) {
            "user"
        } else {
            return false;
        };
        self.exempt(attributes, reason, notes);
        true
    }

    fn exempt(&self, attributes: &AdmissionAttributes<'_>, reason: &str, notes: &mut AdmissionNotes) {
        notes.annotate(format!("{PREFIX}exempt"), reason);
        if let Some(metrics) = &self.metrics {
            let labels = MetricLabels::of(attributes);
            metrics.exemption([labels.operation, labels.resource, labels.subresource]);
        }
    }

    fn count(
        &self,
        attributes: &AdmissionAttributes<'_>,
        decision: &str,
        standard: LevelVersion,
        mode: &str,
    ) {
        let Some(metrics) = &self.metrics else { return };
        let version = match standard.version {
            _ if standard.level == PodSecurityLevel::Privileged => PodSecurityVersion::Latest.to_string(),
            PodSecurityVersion::Minor(minor) if minor > SERVER_MINOR => "future".to_owned(),
            version => version.to_string(),
        };
        let labels = MetricLabels::of(attributes);
        metrics.evaluation([
            decision,
            standard.level.as_str(),
            &version,
            mode,
            labels.operation,
            labels.resource,
            labels.subresource,
        ]);
    }

    fn count_error(&self, attributes: &AdmissionAttributes<'_>, fatal: bool) {
        if let Some(metrics) = &self.metrics {
            let labels = MetricLabels::of(attributes);
            let fatal = if fatal { "true" } else { "false" };
            metrics.error([fatal, labels.operation, labels.resource, labels.subresource]);
        }
    }
}

impl std::fmt::Debug for PodSecurity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PodSecurity").field("configuration", &self.configuration).finish_non_exhaustive()
    }
}

fn exempts(list: &[String], name: &str) -> bool {
    !name.is_empty() && list.iter().any(|exempt| exempt == name)
}

fn runtime_class(pod: &Value) -> &str {
    pod.str_at(&["spec", "runtimeClassName"]).unwrap_or_default()
}

/// Whether pods that `old` admitted may violate `new`.
fn is_stricter(new: LevelVersion, old: LevelVersion) -> bool {
    let is_relaxed = new.version == old.version && new.level <= old.level;
    new != old && new.level != PodSecurityLevel::Privileged && !is_relaxed
}

/// Whether an update changes checked fields: images, or the set of containers.
fn is_significant(new: &Value, old: &Value) -> bool {
    let image = |container: &Value| container.str_at(&["image"]).unwrap_or_default().to_owned();
    for field in ["containers", "initContainers"] {
        let (new, old) = (new.list_at(&["spec", field]), old.list_at(&["spec", field]));
        if new.len() != old.len() || new.iter().zip(old).any(|(new, old)| image(new) != image(old)) {
            return true;
        }
    }
    // If a name occurs twice, the first container counts.
    let before = old.list_at(&["spec", "ephemeralContainers"]).iter().rev();
    let before: HashMap<Option<&str>, &Value> =
        before.map(|container| (container.str_at(&["name"]), container)).collect();
    new.list_at(&["spec", "ephemeralContainers"]).iter().any(|container| {
        let same = before.get(&container.str_at(&["name"]));
        same.is_none_or(|other| image(other) != image(container))
    })
}
