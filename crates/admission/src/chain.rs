//! The admission chain: the list of all plugins, which of them are enabled, and how they run.

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
    PersistentVolumeClaimResize, PluginSettings, PodGroupProtection, PodNodeSelector, PodResizeValidator,
    PodSecurity, PodTolerationRestriction, PodTopologyLabels, Priority, RuntimeClass, ServiceAccount,
    StorageObjectInUseProtection, TaintNodesByCondition,
};
use crate::{
    AdmissionAttributes, AdmissionMetrics, AdmissionNotes, AdmissionPhase, AsyncPlugin, ClusterView,
    MutatingRequest, NoMetrics, Operation, Plugin, PluginId, Reinvocation, VersionedObject,
};

/// A plugin's name as `--enable-admission-plugins` spells it.
pub type PluginName = &'static str;

/// The plugins that the server provides, and the settings of the built-in ones. A plugin that is `None` is
/// not part of the chain.
#[derive(Clone, Default)]
pub struct ChainConfig {
    pub mutating_policies: Option<Arc<dyn AsyncPlugin>>,
    pub mutating_webhooks: Option<Arc<dyn AsyncPlugin>>,
    pub validating_policies: Option<Arc<dyn AsyncPlugin>>,
    pub validating_webhooks: Option<Arc<dyn AsyncPlugin>>,
    pub quota: Option<Arc<dyn AsyncPlugin>>,
    pub namespace_auto_provision: Option<Arc<dyn AsyncPlugin>>,
    pub image_policy: Option<Arc<dyn AsyncPlugin>>,
    pub settings: PluginSettings,
}

enum ChainPlugin {
    Plugin(Box<dyn Plugin>),
    Async(Arc<dyn AsyncPlugin>),
}

/// A plugin of the list. `on` is true if the plugin is enabled by default.
struct PluginDeclaration {
    name: PluginName,
    on: bool,
    make: fn(&ChainConfig) -> Option<ChainPlugin>,
}

/// Declares a built-in plugin. `$link` makes a `ChainPlugin` of it.
macro_rules! built_in {
    ($link:expr, $name:ident, $on:expr, $make:expr) => {
        PluginDeclaration {
            name: stringify!($name),
            on: $on,
            make: |stages| {
                let make: fn(&PluginSettings) -> $name = $make;
                Some($link(make(&stages.settings)))
            },
        }
    };
}

/// Declares a built-in plugin that decides synchronously.
macro_rules! plugin {
    ($name:ident, $on:expr) => {
        plugin!($name, $on, |_| $name)
    };
    ($name:ident, $on:expr, $make:expr) => {
        built_in!(|plugin| ChainPlugin::Plugin(Box::new(plugin)), $name, $on, $make)
    };
}

/// Declares a built-in plugin that may wait.
macro_rules! waiting {
    ($name:ident, $on:expr) => {
        waiting!($name, $on, |_| $name)
    };
    ($name:ident, $on:expr, $make:expr) => {
        built_in!(|plugin| ChainPlugin::Async(Arc::new(plugin)), $name, $on, $make)
    };
}

/// Declares a plugin that the server provides, by its field of [`ChainConfig`].
macro_rules! stage {
    ($name:literal, $field:ident, $on:expr) => {
        PluginDeclaration {
            name: $name,
            on: $on,
            make: |stages| stages.$field.clone().map(ChainPlugin::Async),
        }
    };
}

/// Whether a plugin is enabled by default.
const ON: bool = true;
const OFF: bool = false;

/// Every plugin, in the order in which they run. This is kube-apiserver's order.
const PLUGINS: &[PluginDeclaration] = &[
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
        metrics: settings.pod_security_metrics.clone(),
    }),
    plugin!(PodNodeSelector, OFF, |settings| PodNodeSelector { selectors: settings.node_selectors.clone() }),
    plugin!(Priority, ON, |settings| Priority { features: settings.features }),
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
    plugin!(PodGroupProtection, ON, |settings| PodGroupProtection { features: settings.features }),
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

/// The plugin flags contradict each other or name a plugin that cannot be enabled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    #[error("admission plugin `{0}` is unknown")]
    Unknown(String),
    /// The plugin needs a running server. Leaving its check out silently would admit what the server denies.
    #[error("admission plugin `{0}` cannot be enabled here: it needs a running server")]
    NeedsServer(String),
    #[error("`{0}` in enable-admission-plugins and disable-admission-plugins overlapped")]
    EnabledAndDisabled(String),
}

/// The plugins that run: those that are on by default, with the enabled ones added and the disabled ones removed.
#[derive(Clone, Debug)]
pub struct PluginSelection(Vec<PluginName>);

impl PluginSelection {
    /// From `--enable-admission-plugins` and `--disable-admission-plugins`. Fails if a name is unknown or is in both lists.
    pub fn new(enable: &[String], disable: &[String]) -> Result<Self, ChainError> {
        if let Some(unknown) = enable.iter().chain(disable).find(|name| !PluginChain::is_known_plugin(name)) {
            return Err(ChainError::Unknown(unknown.clone()));
        }
        if let Some(both) = enable.iter().find(|name| disable.contains(name)) {
            return Err(ChainError::EnabledAndDisabled(both.clone()));
        }
        let named = |list: &[String], row: &PluginDeclaration| list.iter().any(|name| name == row.name);
        let runs = |row: &&PluginDeclaration| (row.on || named(enable, row)) && !named(disable, row);
        Ok(PluginSelection(PLUGINS.iter().filter(runs).map(|row| row.name).collect()))
    }

    /// The names of all plugins, whether they are on by default or not.
    pub fn known_plugins() -> impl Iterator<Item = PluginName> {
        PLUGINS.iter().map(|row| row.name)
    }

    pub fn contains(&self, plugin: &str) -> bool {
        self.0.contains(&plugin)
    }
}

/// An enabled plugin. `counted` is a bit set over phases and operations: those in which the plugin appears in
/// metrics.
struct EnabledPlugin {
    name: PluginName,
    position: usize,
    link: ChainPlugin,
    counted: u8,
}

impl EnabledPlugin {
    fn new(position: usize, name: PluginName, link: ChainPlugin) -> Self {
        let mut counted = 0;
        for phase in [AdmissionPhase::Mutating, AdmissionPhase::Validating] {
            for operation in [Operation::Create, Operation::Update, Operation::Delete, Operation::Connect] {
                if handles(name, phase, operation) {
                    counted |= bit(phase, operation);
                }
            }
        }
        EnabledPlugin { name, position, link, counted }
    }

    fn is_counted(&self, phase: AdmissionPhase, operation: Operation) -> bool {
        self.counted & bit(phase, operation) != 0
    }
}

fn bit(phase: AdmissionPhase, operation: Operation) -> u8 {
    let position = match operation {
        Operation::Create => 0,
        Operation::Update => 1,
        Operation::Delete => 2,
        Operation::Connect => 3,
    };
    1 << (position + if phase == AdmissionPhase::Mutating { 0 } else { 4 })
}

/// The enabled plugins, in order.
pub struct PluginChain {
    plugins: Vec<EnabledPlugin>,
    metrics: Arc<dyn AdmissionMetrics>,
    /// Read-locked while a request pins its snapshot, write-locked while several policy sets are replaced
    /// together.
    replacement: RwLock<()>,
}

impl PluginChain {
    /// The number of plugins in the list, enabled or not. Positions of [`PluginId`] are below it.
    pub const PLUGIN_COUNT: usize = PLUGINS.len();

    pub fn is_known_plugin(name: &str) -> bool {
        PLUGINS.iter().any(|row| row.name == name)
    }

    /// Selects plugins by the flags and builds their chain. Fails if `enable` names a plugin that is off by default and whose
    /// part of the configuration is absent.
    pub fn new(enable: &[String], disable: &[String], stages: &ChainConfig) -> Result<Self, ChainError> {
        let selection = PluginSelection::new(enable, disable)?;
        let missing = |row: &&PluginDeclaration| {
            !row.on && enable.iter().any(|name| name == row.name) && (row.make)(stages).is_none()
        };
        if let Some(row) = PLUGINS.iter().find(missing) {
            return Err(ChainError::NeedsServer(row.name.to_owned()));
        }
        Ok(Self::build(&selection, stages))
    }

    /// The chain of the selected plugins. Those whose part of the configuration is absent are left out.
    pub fn build(selection: &PluginSelection, stages: &ChainConfig) -> Self {
        let plugins = PLUGINS
            .iter()
            .enumerate()
            .filter(|(_, row)| selection.contains(row.name))
            .filter_map(|(position, row)| Some(EnabledPlugin::new(position, row.name, (row.make)(stages)?)))
            .collect();
        PluginChain { plugins, metrics: Arc::new(NoMetrics), replacement: RwLock::new(()) }
    }

    /// Records this chain's metrics in `metrics`.
    #[must_use]
    pub fn with_metrics(self, metrics: Arc<dyn AdmissionMetrics>) -> Self {
        PluginChain { metrics, ..self }
    }

    /// Blocks requests from pinning their snapshot while several policy sets are replaced together. Hold the
    /// guard only briefly.
    pub fn lock_replacement(&self) -> RwLockWriteGuard<'_, ()> {
        self.replacement.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pins the policies and webhooks that are in force now for this request. Does not replace those pinned earlier.
    fn pin_snapshot(&self, attributes: &AdmissionAttributes<'_>) {
        let _no_replacement = self.replacement.read().unwrap_or_else(PoisonError::into_inner);
        for plugin in &self.plugins {
            if let ChainPlugin::Async(stage) = &plugin.link {
                stage.pin_snapshot(&attributes.snapshot);
            }
        }
    }

    /// The names of the enabled plugins, in order.
    pub fn plugins(&self) -> impl Iterator<Item = PluginName> {
        self.plugins.iter().map(|plugin| plugin.name)
    }

    /// Runs the mutating phase. Stops at the first error; runs twice if a plugin requests reinvocation.
    /// `object` is `None` for a delete.
    pub async fn mutate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: Option<&mut Value>,
        cluster: &dyn ClusterView,
        notes: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        let begun = self.metrics.now();
        let outcome = self.run_mutating(attributes, object, cluster, notes).await;
        self.record_phase(AdmissionPhase::Mutating, attributes, &outcome, begun);
        outcome
    }

    async fn run_mutating(
        &self,
        attributes: &AdmissionAttributes<'_>,
        mut object: Option<&mut Value>,
        cluster: &dyn ClusterView,
        notes: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        self.pin_snapshot(attributes);
        let mut reinvocation = Reinvocation::default();
        let mut clock = self.metrics.now();
        loop {
            for plugin in &self.plugins {
                let outcome = match (&plugin.link, object.as_deref_mut()) {
                    (ChainPlugin::Plugin(plugin), Some(object)) => {
                        attributes.within_budget(|| plugin.mutate(attributes, object, cluster, notes))
                    }
                    (ChainPlugin::Plugin(plugin), None) => {
                        attributes.within_budget(|| plugin.admit_deletion(attributes))
                    }
                    (ChainPlugin::Async(stage), object) => {
                        let mut request =
                            MutatingRequest { attributes, cluster, notes, reinvocation: &mut reinvocation };
                        stage.mutate(&mut request, object).await
                    }
                };
                self.record_plugin(plugin, AdmissionPhase::Mutating, attributes, &outcome, &mut clock);
                outcome?;
            }
            if !reinvocation.begin_second() {
                return Ok(());
            }
        }
    }

    /// Runs the validating phase. Stops at the first error. `object` is `None` for a delete.
    pub async fn validate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: Option<&Value>,
        cluster: &dyn ClusterView,
        notes: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        let begun = self.metrics.now();
        let outcome = self.run_validating(attributes, object, cluster, notes).await;
        self.record_phase(AdmissionPhase::Validating, attributes, &outcome, begun);
        outcome
    }

    async fn run_validating(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: Option<&Value>,
        cluster: &dyn ClusterView,
        notes: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        self.pin_snapshot(attributes);
        let seen = VersionedObject::new(object);
        let mut clock = self.metrics.now();
        for plugin in &self.plugins {
            let outcome = match &plugin.link {
                ChainPlugin::Plugin(plugin) => {
                    let bytes = plugin.stored_bytes_to_validate(attributes, object, cluster);
                    if bytes > 0 {
                        cluster.prepare_for(bytes).await;
                    }
                    attributes.within_budget(|| plugin.validate(attributes, object, cluster, notes))
                }
                ChainPlugin::Async(stage) => stage.validate(attributes, &seen, cluster, notes).await,
            };
            self.record_plugin(plugin, AdmissionPhase::Validating, attributes, &outcome, &mut clock);
            outcome?;
        }
        Ok(())
    }

    /// Records the metrics of one plugin. One reading of the clock ends a plugin and starts the next: plugins
    /// that are not counted do nothing in this phase, so they take no measurable time.
    fn record_plugin(
        &self,
        plugin: &EnabledPlugin,
        phase: AdmissionPhase,
        attributes: &AdmissionAttributes<'_>,
        outcome: &Result<(), Status>,
        clock: &mut Duration,
    ) {
        if plugin.is_counted(phase, attributes.operation) {
            let now = self.metrics.now();
            let took = now.saturating_sub(*clock);
            *clock = now;
            let link = PluginId { position: plugin.position, name: plugin.name };
            self.metrics.plugin(link, phase, attributes.operation, outcome.is_err(), took);
        }
    }

    fn record_phase(
        &self,
        phase: AdmissionPhase,
        attributes: &AdmissionAttributes<'_>,
        outcome: &Result<(), Status>,
        begun: Duration,
    ) {
        let took = self.metrics.now().saturating_sub(begun);
        self.metrics.phase(phase, attributes.operation, outcome.is_err(), took);
    }
}

impl std::fmt::Debug for PluginChain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.plugins()).finish()
    }
}
