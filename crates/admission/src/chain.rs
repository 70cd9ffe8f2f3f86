//! The chain: which plugins there are, which are on, and how they run.

use std::sync::Arc;
use std::time::Duration;

use api::Status;
use value::Value;

use crate::handles::handles;
use crate::plugins::NamespaceLifecycle;
use crate::{Attributes, Cluster, Meter, Notes, Pass, Phase, Plugin, Reinvocation, Seen, Stage, Unmetered};

/// A plugin's name, as the flags spell it.
pub type PluginName = &'static str;

/// The stages that the server keeps at what is stored. One that is absent has nothing to say.
#[derive(Clone, Default)]
pub struct Stages {
    /// `MutatingAdmissionPolicy`.
    pub mutating_policies: Option<Arc<dyn Stage>>,
    /// `MutatingAdmissionWebhook`.
    pub mutating_webhooks: Option<Arc<dyn Stage>>,
    /// `ValidatingAdmissionPolicy`.
    pub validating_policies: Option<Arc<dyn Stage>>,
    /// `ValidatingAdmissionWebhook`.
    pub validating_webhooks: Option<Arc<dyn Stage>>,
    /// `ResourceQuota`.
    pub quota: Option<Arc<dyn Stage>>,
}

/// A link of the chain.
enum Link {
    Plugin(Box<dyn Plugin>),
    Stage(Arc<dyn Stage>),
}

/// One row of the chain: name, whether it is on unless a flag says otherwise, and how it is made.
struct Row {
    name: PluginName,
    on: bool,
    make: fn(&Stages) -> Option<Link>,
}

/// A plugin that is on unless a flag says otherwise.
macro_rules! on {
    ($name:ident) => {
        Row { name: stringify!($name), on: true, make: |_| Some(Link::Plugin(Box::new($name))) }
    };
}

/// A stage that the server keeps.
macro_rules! stage {
    ($name:literal, $field:ident) => {
        Row { name: $name, on: true, make: |stages| stages.$field.clone().map(Link::Stage) }
    };
}

/// Every plugin, in the order in which they run.
const PLUGINS: &[Row] = &[
    on!(NamespaceLifecycle),
    stage!("MutatingAdmissionPolicy", mutating_policies),
    stage!("MutatingAdmissionWebhook", mutating_webhooks),
    stage!("ValidatingAdmissionPolicy", validating_policies),
    stage!("ValidatingAdmissionWebhook", validating_webhooks),
    stage!("ResourceQuota", quota),
];

/// Kubernetes' plugins that this chain does not have yet. Naming one in a flag is an error that says so, because leaving a
/// check out silently would be the wrong answer.
const NOT_YET: &[&str] = &[
    "AlwaysAdmit",
    "AlwaysDeny",
    "AlwaysPullImages",
    "CertificateApproval",
    "CertificateSigning",
    "CertificateSubjectRestriction",
    "ClusterTrustBundleAttest",
    "DefaultIngressClass",
    "DefaultStorageClass",
    "DefaultTolerationSeconds",
    "DenyServiceExternalIPs",
    "EventRateLimit",
    "ExtendedResourceToleration",
    "ImagePolicyWebhook",
    "LimitPodHardAntiAffinityTopology",
    "LimitRanger",
    "NamespaceAutoProvision",
    "NamespaceExists",
    "NodeDeclaredFeatureValidator",
    "NodeRestriction",
    "OwnerReferencesPermissionEnforcement",
    "PersistentVolumeClaimResize",
    "PodNodeSelector",
    "PodSecurity",
    "PodTolerationRestriction",
    "PodTopologyLabels",
    "Priority",
    "RuntimeClass",
    "ServiceAccount",
    "StorageObjectInUseProtection",
    "TaintNodesByCondition",
];

/// Why a chain cannot be built from the flags.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// No such plugin.
    #[error("admission plugin `{0}` is unknown")]
    Unknown(String),
    /// A plugin of Kubernetes that is not built in.
    #[error("admission plugin `{0}` is not implemented yet, so it cannot be enabled")]
    NotYet(String),
    /// Named in both flags.
    #[error("`{0}` in enable-admission-plugins and disable-admission-plugins overlapped")]
    Both(String),
}

/// The plugins that are on, in order.
pub struct Chain {
    links: Vec<(PluginName, Link)>,
    meter: Arc<dyn Meter>,
}

impl Chain {
    /// The chain with the default plugins, those of `enable` added and those of `disable` taken out.
    pub fn new(enable: &[String], disable: &[String], stages: &Stages) -> Result<Self, ChainError> {
        for name in enable.iter().chain(disable) {
            let known = PLUGINS.iter().any(|row| row.name == name);
            let not_yet = NOT_YET.contains(&name.as_str());
            if !known && !not_yet {
                return Err(ChainError::Unknown(name.clone()));
            }
            if not_yet && enable.contains(name) {
                return Err(ChainError::NotYet(name.clone()));
            }
        }
        if let Some(both) = enable.iter().find(|name| disable.contains(name)) {
            return Err(ChainError::Both(both.clone()));
        }
        let links = PLUGINS
            .iter()
            .filter(|row| {
                let named = |list: &[String]| list.iter().any(|n| n == row.name);
                (row.on || named(enable)) && !named(disable)
            })
            .filter_map(|row| Some((row.name, (row.make)(stages)?)))
            .collect();
        Ok(Chain { links, meter: Arc::new(Unmetered) })
    }

    /// This chain, counted by `meter`.
    #[must_use]
    pub fn metered(self, meter: Arc<dyn Meter>) -> Self {
        Chain { meter, ..self }
    }

    /// The names of the plugins that are on, in order.
    pub fn plugins(&self) -> impl Iterator<Item = PluginName> {
        self.links.iter().map(|(name, _)| *name)
    }

    /// The mutating phase: each link in order, the first refusal ends it; once more where one of them asked for it. `object`
    /// is absent when something is deleted.
    pub async fn mutate(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&mut Value>,
        cluster: &dyn Cluster,
        notes: &mut Notes,
    ) -> Result<(), Status> {
        let begun = self.meter.now();
        let outcome = self.mutate_all(attributes, object, cluster, notes).await;
        self.passed_step(Phase::Mutating, attributes, &outcome, begun);
        outcome
    }

    async fn mutate_all(
        &self,
        attributes: &Attributes<'_>,
        mut object: Option<&mut Value>,
        cluster: &dyn Cluster,
        notes: &mut Notes,
    ) -> Result<(), Status> {
        let mut passes = Reinvocation::default();
        loop {
            for (name, link) in &self.links {
                let begun = self.meter.now();
                let outcome = match (link, object.as_deref_mut()) {
                    (Link::Plugin(plugin), Some(object)) => plugin.mutate(attributes, object, cluster, notes),
                    (Link::Plugin(_), None) => Ok(()),
                    (Link::Stage(stage), object) => {
                        let mut pass = Pass { attributes, cluster, notes, passes: &mut passes };
                        stage.mutate(&mut pass, object).await
                    }
                };
                self.passed(name, Phase::Mutating, attributes, &outcome, begun);
                outcome?;
            }
            if !passes.begin_second() {
                return Ok(());
            }
        }
    }

    /// The validating phase: each link in order, the first refusal ends it.
    pub async fn validate(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
        cluster: &dyn Cluster,
        notes: &mut Notes,
    ) -> Result<(), Status> {
        let begun = self.meter.now();
        let outcome = self.validate_all(attributes, object, cluster, notes).await;
        self.passed_step(Phase::Validating, attributes, &outcome, begun);
        outcome
    }

    async fn validate_all(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Value>,
        cluster: &dyn Cluster,
        notes: &mut Notes,
    ) -> Result<(), Status> {
        let seen = Seen::new(object);
        for (name, link) in &self.links {
            let begun = self.meter.now();
            let outcome = match link {
                Link::Plugin(plugin) => plugin.validate(attributes, object, cluster, notes),
                Link::Stage(stage) => stage.validate(attributes, &seen, cluster, notes).await,
            };
            self.passed(name, Phase::Validating, attributes, &outcome, begun);
            outcome?;
        }
        Ok(())
    }

    fn passed(
        &self,
        name: &str,
        phase: Phase,
        attributes: &Attributes<'_>,
        outcome: &Result<(), Status>,
        begun: Duration,
    ) {
        if handles(name, phase, attributes.operation) {
            let took = self.meter.now().saturating_sub(begun);
            self.meter.plugin(name, phase, attributes.operation, outcome.is_err(), took);
        }
    }

    fn passed_step(
        &self,
        phase: Phase,
        attributes: &Attributes<'_>,
        outcome: &Result<(), Status>,
        begun: Duration,
    ) {
        let took = self.meter.now().saturating_sub(begun);
        self.meter.step(phase, attributes.operation, outcome.is_err(), took);
    }
}

impl std::fmt::Debug for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.plugins()).finish()
    }
}
