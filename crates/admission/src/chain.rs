//! The chain: which plugins there are, which are on, and how they run.

use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};
use std::time::Duration;

use api::Status;
use value::Value;

use crate::handles::handles;
use crate::plugins::{
    AlwaysAdmit, AlwaysDeny, AlwaysPullImages, CertificateApproval, CertificateSigning,
    CertificateSubjectRestriction, ClusterTrustBundleAttest, DefaultIngressClass, DefaultStorageClass,
    DefaultTolerationSeconds, DenyServiceExternalIPs, EventRateLimit, ExtendedResourceToleration,
    LimitPodHardAntiAffinityTopology, LimitRanger, NamespaceExists, NamespaceLifecycle,
    NodeDeclaredFeatureValidator, NodeRestriction, OwnerReferencesPermissionEnforcement,
    PersistentVolumeClaimResize, PodGroupProtection, PodNodeSelector, PodResizeValidator, PodSecurity,
    PodTolerationRestriction, PodTopologyLabels, Priority, RuntimeClass, ServiceAccount, Settings,
    StorageObjectInUseProtection, TaintNodesByCondition,
};
use crate::{
    Attributes, Cluster, Linked, Meter, Notes, Operation, Pass, Phase, Plugin, Reinvocation, Seen, Stage,
    Unmetered,
};

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
    /// `NamespaceAutoProvision`.
    pub namespace_auto_provision: Option<Arc<dyn Stage>>,
    /// `ImagePolicyWebhook`.
    pub image_policy: Option<Arc<dyn Stage>>,
    /// What flags and the configuration file say to the built-in plugins.
    pub settings: Settings,
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

/// A built-in plugin that decides at once, made with the settings if it has any.
macro_rules! plugin {
    ($name:ident, $on:expr) => {
        plugin!($name, $on, |_| $name)
    };
    ($name:ident, $on:expr, $make:expr) => {
        Row {
            name: stringify!($name),
            on: $on,
            make: |stages| {
                let make: fn(&Settings) -> $name = $make;
                Some(Link::Plugin(Box::new(make(&stages.settings))))
            },
        }
    };
}

/// A built-in plugin that may have to wait.
macro_rules! waiting {
    ($name:ident, $on:expr) => {
        waiting!($name, $on, |_| $name)
    };
    ($name:ident, $on:expr, $make:expr) => {
        Row {
            name: stringify!($name),
            on: $on,
            make: |stages| {
                let make: fn(&Settings) -> $name = $make;
                Some(Link::Stage(Arc::new(make(&stages.settings))))
            },
        }
    };
}

/// A stage that the server keeps.
macro_rules! stage {
    ($name:literal, $field:ident, $on:expr) => {
        Row { name: $name, on: $on, make: |stages| stages.$field.clone().map(Link::Stage) }
    };
}

/// On and off, unless a flag says otherwise.
const ON: bool = true;
const OFF: bool = false;

/// Every plugin, in the order in which they run.
const PLUGINS: &[Row] = &[
    plugin!(AlwaysAdmit, OFF),
    stage!("NamespaceAutoProvision", namespace_auto_provision, OFF),
    plugin!(NamespaceLifecycle, ON),
    plugin!(NamespaceExists, OFF),
    plugin!(LimitPodHardAntiAffinityTopology, OFF),
    plugin!(LimitRanger, ON),
    waiting!(ServiceAccount, ON, |settings| ServiceAccount { suffix: settings.suffix }),
    waiting!(NodeRestriction, OFF),
    plugin!(TaintNodesByCondition, ON),
    plugin!(AlwaysPullImages, OFF),
    stage!("ImagePolicyWebhook", image_policy, OFF),
    plugin!(PodSecurity, ON, |settings| PodSecurity {
        configuration: settings.pod_security.clone(),
        counter: settings.pod_security_counter.clone(),
    }),
    plugin!(PodNodeSelector, OFF, |settings| PodNodeSelector { selectors: settings.node_selectors.clone() }),
    plugin!(Priority, ON),
    plugin!(DefaultTolerationSeconds, ON, |settings| DefaultTolerationSeconds {
        not_ready: settings.not_ready_toleration_seconds,
        unreachable: settings.unreachable_toleration_seconds,
    }),
    plugin!(PodTolerationRestriction, OFF, |settings| settings.tolerations.clone()),
    plugin!(EventRateLimit, OFF, |settings| EventRateLimit::new(
        &settings.event_limits,
        settings.clock.clone()
    )),
    plugin!(ExtendedResourceToleration, OFF),
    plugin!(DefaultStorageClass, ON),
    plugin!(StorageObjectInUseProtection, ON),
    plugin!(PodGroupProtection, ON),
    waiting!(OwnerReferencesPermissionEnforcement, OFF),
    plugin!(PersistentVolumeClaimResize, ON),
    plugin!(RuntimeClass, ON),
    waiting!(CertificateApproval, ON),
    waiting!(CertificateSigning, ON),
    waiting!(ClusterTrustBundleAttest, ON),
    plugin!(CertificateSubjectRestriction, ON),
    plugin!(DefaultIngressClass, ON),
    plugin!(DenyServiceExternalIPs, OFF),
    plugin!(PodTopologyLabels, ON),
    plugin!(NodeDeclaredFeatureValidator, ON),
    plugin!(PodResizeValidator, ON),
    stage!("MutatingAdmissionPolicy", mutating_policies, ON),
    stage!("MutatingAdmissionWebhook", mutating_webhooks, ON),
    stage!("ValidatingAdmissionPolicy", validating_policies, ON),
    stage!("ValidatingAdmissionWebhook", validating_webhooks, ON),
    stage!("ResourceQuota", quota, ON),
    plugin!(AlwaysDeny, OFF),
];

/// Why a chain cannot be built from the flags.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// No such plugin.
    #[error("admission plugin `{0}` is unknown")]
    Unknown(String),
    /// A plugin that needs a server, where there is none: leaving a check out silently would be the wrong answer.
    #[error("admission plugin `{0}` cannot be enabled here: it needs a running server")]
    NotHere(String),
    /// Named in both flags.
    #[error("`{0}` in enable-admission-plugins and disable-admission-plugins overlapped")]
    Both(String),
}

/// The plugins that run: those that are on by default, with the enabled ones added and the disabled ones removed.
#[derive(Clone, Debug)]
pub struct PluginSelection(Vec<PluginName>);

impl PluginSelection {
    /// From `--enable-admission-plugins` and `--disable-admission-plugins`. Fails if a name is unknown or is in both lists.
    pub fn new(enable: &[String], disable: &[String]) -> Result<Self, ChainError> {
        if let Some(unknown) = enable.iter().chain(disable).find(|name| !Chain::knows(name)) {
            return Err(ChainError::Unknown(unknown.clone()));
        }
        if let Some(both) = enable.iter().find(|name| disable.contains(name)) {
            return Err(ChainError::Both(both.clone()));
        }
        let named = |list: &[String], row: &Row| list.iter().any(|name| name == row.name);
        let runs = |row: &&Row| (row.on || named(enable, row)) && !named(disable, row);
        Ok(PluginSelection(PLUGINS.iter().filter(runs).map(|row| row.name).collect()))
    }

    pub fn contains(&self, plugin: &str) -> bool {
        self.0.contains(&plugin)
    }
}

/// A link in its place, with the phases and operations in which it is counted.
struct Placed {
    name: PluginName,
    place: usize,
    link: Link,
    counted: u8,
}

impl Placed {
    fn new(place: usize, name: PluginName, link: Link) -> Self {
        let mut counted = 0;
        for phase in [Phase::Mutating, Phase::Validating] {
            for operation in [Operation::Create, Operation::Update, Operation::Delete, Operation::Connect] {
                if handles(name, phase, operation) {
                    counted |= bit(phase, operation);
                }
            }
        }
        Placed { name, place, link, counted }
    }

    fn is_counted(&self, phase: Phase, operation: Operation) -> bool {
        self.counted & bit(phase, operation) != 0
    }
}

fn bit(phase: Phase, operation: Operation) -> u8 {
    let place = match operation {
        Operation::Create => 0,
        Operation::Update => 1,
        Operation::Delete => 2,
        Operation::Connect => 3,
    };
    1 << (place + if phase == Phase::Mutating { 0 } else { 4 })
}

/// The plugins that are on, in order.
pub struct Chain {
    links: Vec<Placed>,
    meter: Arc<dyn Meter>,
    /// Held while a request takes what is in force, and while several sets are replaced as one.
    replacing: RwLock<()>,
}

impl Chain {
    /// How many places the list of all plugins has.
    pub const PLACES: usize = PLUGINS.len();

    /// Whether there is a plugin of this name.
    pub fn knows(name: &str) -> bool {
        PLUGINS.iter().any(|row| row.name == name)
    }

    /// Selects plugins by the flags and builds the chain of them. Fails if `enable` names a plugin whose stage is absent.
    pub fn new(enable: &[String], disable: &[String], stages: &Stages) -> Result<Self, ChainError> {
        let selection = PluginSelection::new(enable, disable)?;
        let missing = |row: &&Row| {
            !row.on && enable.iter().any(|name| name == row.name) && (row.make)(stages).is_none()
        };
        if let Some(row) = PLUGINS.iter().find(missing) {
            return Err(ChainError::NotHere(row.name.to_owned()));
        }
        Ok(Self::build(&selection, stages))
    }

    /// The chain of the selected plugins. Those whose stage is absent are left out.
    pub fn build(selection: &PluginSelection, stages: &Stages) -> Self {
        let links = PLUGINS
            .iter()
            .enumerate()
            .filter(|(_, row)| selection.contains(row.name))
            .filter_map(|(place, row)| Some(Placed::new(place, row.name, (row.make)(stages)?)))
            .collect();
        Chain { links, meter: Arc::new(Unmetered), replacing: RwLock::new(()) }
    }

    /// This chain, counted by `meter`.
    #[must_use]
    pub fn metered(self, meter: Arc<dyn Meter>) -> Self {
        Chain { meter, ..self }
    }

    /// Until the guard is dropped no request takes what is in force: for replacing the sets of several plugins as one. It must not
    /// be held for long.
    pub fn replace(&self) -> RwLockWriteGuard<'_, ()> {
        self.replacing.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what is in force for a request that begins.
    fn begin_request(&self, attributes: &Attributes<'_>) {
        let _steady = self.replacing.read().unwrap_or_else(PoisonError::into_inner);
        for placed in &self.links {
            if let Link::Stage(stage) = &placed.link {
                stage.begin(&attributes.in_force);
            }
        }
    }

    /// The names of the plugins that are on, in order.
    pub fn plugins(&self) -> impl Iterator<Item = PluginName> {
        self.links.iter().map(|placed| placed.name)
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
        self.begin_request(attributes);
        let mut passes = Reinvocation::default();
        let mut clock = self.meter.now();
        loop {
            for placed in &self.links {
                let outcome = match (&placed.link, object.as_deref_mut()) {
                    (Link::Plugin(plugin), Some(object)) => plugin.mutate(attributes, object, cluster, notes),
                    (Link::Plugin(plugin), None) => plugin.admit_deletion(attributes),
                    (Link::Stage(stage), object) => {
                        let mut pass = Pass { attributes, cluster, notes, passes: &mut passes };
                        stage.mutate(&mut pass, object).await
                    }
                };
                self.passed(placed, Phase::Mutating, attributes, &outcome, &mut clock);
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
        self.begin_request(attributes);
        let seen = Seen::new(object);
        let mut clock = self.meter.now();
        for placed in &self.links {
            let outcome = match &placed.link {
                Link::Plugin(plugin) => plugin.validate(attributes, object, cluster, notes),
                Link::Stage(stage) => stage.validate(attributes, &seen, cluster, notes).await,
            };
            self.passed(placed, Phase::Validating, attributes, &outcome, &mut clock);
            outcome?;
        }
        Ok(())
    }

    /// Counts a link that was passed. One reading of the clock ends a link and begins the next: a link that is not counted has
    /// nothing to do in this phase, and so takes no time worth telling apart.
    fn passed(
        &self,
        placed: &Placed,
        phase: Phase,
        attributes: &Attributes<'_>,
        outcome: &Result<(), Status>,
        clock: &mut Duration,
    ) {
        if placed.is_counted(phase, attributes.operation) {
            let now = self.meter.now();
            let took = now.saturating_sub(*clock);
            *clock = now;
            let link = Linked { place: placed.place, name: placed.name };
            self.meter.plugin(link, phase, attributes.operation, outcome.is_err(), took);
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
