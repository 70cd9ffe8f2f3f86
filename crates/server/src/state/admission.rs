//! Admission: the chain of plugins, with the policies, webhooks and quotas that it applies.

use std::path::PathBuf;
use std::sync::{Arc, Weak};

use ::admission::manifests::{LoadedManifests, ManifestSet};
use ::admission::policy::{MutatingPolicies, TypeCheckKinds, ValidatingPolicies};
use ::admission::{AdmissionMetrics, ChainConfig, PluginChain, PluginSelection};
use api::GroupVersionKind;
use api::features::Features;
use runtime::identity;
use schema::Link;

use super::{State, Storage};
use crate::admission::configuration::PluginConfigurations;
use crate::admission::informers::Informers;
use crate::admission::meter::AdmissionMeter;
use crate::admission::namespace_auto_provision::NamespaceAutoProvision;
use crate::admission::pod_security::PodSecurityCounters;
use crate::admission::quota::ResourceQuotaPlugin;
use crate::admission::registered_webhooks::{RegisteredWebhooks, WebhookCalls, WebhookCredentials};
use crate::admission::webhooks::{TokenMetrics, WebhookTokenSource};
use crate::cluster::{ConvertedObjectCache, DecodedObjectCache};
use crate::config::{AdmissionConfig, ConfigError};
use crate::loopback::Loopback;
use crate::manifests::{DirectoryStatuses, LoadContext, ManifestDirectories, ManifestMetrics};
use crate::metrics::Metrics;

pub struct Admission {
    pub chain: PluginChain,
    /// The plugin NamespaceLifecycle is enabled.
    pub(crate) checks_namespaces: bool,
    pub(crate) quotas: Arc<ResourceQuotaPlugin>,
    /// The policies and bindings in force, stored and static.
    pub(crate) policies: Informers,
    /// The webhooks in force, stored and static.
    pub(crate) webhooks: RegisteredWebhooks,
    /// The tokens that authenticate this server to webhooks, if it sends any.
    pub(crate) webhook_tokens: Option<Arc<WebhookTokenSource>>,
    /// The state of each directory of static manifests.
    pub(crate) manifests: Arc<DirectoryStatuses>,
    /// The clock and the metrics of admission.
    pub(crate) meter: Arc<dyn AdmissionMetrics>,
    /// Decoded objects that plugins look up often.
    pub(crate) decoded_objects: DecodedObjectCache,
    /// Parameters of policies, converted to the version that the policy names.
    pub(crate) converted_objects: ConvertedObjectCache,
}

/// An admission configuration whose files are read and checked. Building the subsystem from it cannot fail, which
/// [`Arc::new_cyclic`] requires.
pub(crate) struct LoadedAdmission {
    selection: PluginSelection,
    /// The plugins that need neither the store nor the server.
    stages: ChainConfig,
    quota_limited: Vec<::admission::plugins::resource_quota::LimitedResource>,
    webhook_credentials: WebhookCredentials,
    webhook_tokens: Option<TokenMetrics>,
    meter: Arc<dyn AdmissionMetrics>,
    manifests: Arc<DirectoryStatuses>,
}

/// Directories of static manifests that are not loaded yet.
pub(crate) struct StaticManifests {
    directories: Vec<(ManifestSet, PathBuf)>,
    /// Treats warnings about manifests as errors.
    strict: bool,
    /// Shared with [`Admission::manifests`] and with the health checks.
    pub(crate) statuses: Arc<DirectoryStatuses>,
}

impl AdmissionConfig {
    /// Reads the plugin configuration files and checks everything that needs no store. `has_issuer`: service account tokens are
    /// issued, so webhooks can get some.
    pub(crate) fn load(
        self,
        metrics: &Metrics,
        has_issuer: bool,
        features: Features,
    ) -> Result<(LoadedAdmission, StaticManifests), ConfigError> {
        let registry = metrics.registry();
        let named = |list: &[String], plugin: &str| list.iter().any(|name| name == plugin);
        let is_enabled = |plugin: &str| named(&self.enable, plugin) && !named(&self.disable, plugin);
        let is_not_disabled = |plugin: &str| !named(&self.disable, plugin);

        let meter = AdmissionMeter::new(registry).map_err(ConfigError::other)?;
        let token_metrics = TokenMetrics::new(registry).map_err(ConfigError::other)?;
        let pod_security_metrics = PodSecurityCounters::new(registry).map_err(ConfigError::other)?;

        let mut configurations = PluginConfigurations::read(self.configuration_file.as_deref())?;
        let settings = ::admission::plugins::PluginSettings {
            suffix: runtime::random::suffix,
            features,
            pod_security_metrics: Some(Arc::new(pod_security_metrics)),
            pod_security: configurations.pod_security()?,
            ..self.plugins
        };
        let settings = configurations.settings(settings, is_enabled)?;
        let quota_limited = configurations.limited()?;
        let image_policy = configurations.image_policy(is_enabled("ImagePolicyWebhook"))?;
        let webhook_credentials = configurations.webhook_credentials()?;
        let mut directories = self.manifests;
        directories.extend(configurations.manifests(self.static_manifests, is_not_disabled)?);
        PluginConfigurations::check_directories(&directories, self.static_manifests, is_not_disabled)?;
        configurations.finish();

        let statuses = Arc::new(DirectoryStatuses::of(&directories));
        let loaded = LoadedAdmission {
            selection: PluginSelection::new(&self.enable, &self.disable).map_err(ConfigError::other)?,
            stages: ChainConfig { image_policy, settings, ..ChainConfig::default() },
            quota_limited,
            webhook_credentials,
            webhook_tokens: (self.webhook_tokens && has_issuer).then_some(token_metrics),
            meter: Arc::new(meter),
            manifests: Arc::clone(&statuses),
        };
        Ok((loaded, StaticManifests { directories, strict: self.strict_manifests, statuses }))
    }
}

impl LoadedAdmission {
    /// Starts the informers of policies and webhooks and builds the chain.
    pub(crate) fn build(self, storage: &Storage, metrics: &Metrics, loopback: &Loopback) -> Admission {
        let Storage { store, unreadable, .. } = storage;
        let LoadedAdmission { selection, mut stages, meter, manifests, .. } = self;

        let validating = Arc::new(ValidatingPolicies::new(Arc::clone(&meter)));
        let mutating = Arc::new(MutatingPolicies::new(Arc::clone(&meter)));
        stages.validating_policies = Some(Arc::clone(&validating) as _);
        stages.mutating_policies = Some(Arc::clone(&mutating) as _);
        let policies = Informers::start(store, unreadable, validating, mutating);

        let webhook_tokens =
            self.webhook_tokens.map(|metrics| WebhookTokenSource::new(metrics, loopback.clone()));
        let calls = WebhookCalls {
            credentials: self.webhook_credentials,
            tokens: webhook_tokens.as_ref(),
            meter: &meter,
            metrics: &metrics.custom,
            loopback,
        };
        let webhooks = RegisteredWebhooks::start(store, unreadable, calls, &mut stages);

        let quotas = Arc::new(ResourceQuotaPlugin::new(self.quota_limited, loopback.clone()));
        stages.quota = Some(Arc::clone(&quotas) as _);
        stages.namespace_auto_provision = Some(Arc::new(NamespaceAutoProvision::new(loopback.clone())));

        Admission {
            checks_namespaces: selection.contains("NamespaceLifecycle"),
            chain: PluginChain::build(&selection, &stages).with_metrics(Arc::clone(&meter)),
            quotas,
            policies,
            webhooks,
            webhook_tokens,
            manifests,
            meter,
            decoded_objects: DecodedObjectCache::default(),
            converted_objects: ConvertedObjectCache::default(),
        }
    }
}

impl Admission {
    /// Replaces the policies and webhooks of a directory. No request sees some of the new ones beside some of the old ones.
    fn apply_manifests(&self, set: ManifestSet, loaded: &LoadedManifests) {
        // Policies are compiled before the lock is taken.
        let validating = matches!(set, ManifestSet::ValidatingPolicies | ManifestSet::Mixed)
            .then(|| self.policies.fix_validating(loaded));
        let mutating = matches!(set, ManifestSet::MutatingPolicies | ManifestSet::Mixed)
            .then(|| self.policies.fix_mutating(loaded));
        let _replacing = self.chain.lock_replacement();
        validating.into_iter().chain(mutating).for_each(|replace| replace());
        if matches!(set, ManifestSet::ValidatingWebhooks | ManifestSet::Mixed) {
            self.webhooks.fix_validating(loaded);
        }
        if matches!(set, ManifestSet::MutatingWebhooks | ManifestSet::Mixed) {
            self.webhooks.fix_mutating(loaded);
        }
    }
}

impl StaticManifests {
    /// Loads every directory and puts its manifests in force. The server must not start after an error.
    pub(crate) fn put_in_force(self, state: &Arc<State>) -> Result<ManifestDirectories, ConfigError> {
        let StaticManifests { directories, strict, statuses } = self;
        let server = Arc::downgrade(state);
        let apply = move |set: ManifestSet, loaded: &LoadedManifests| {
            if let Some(state) = server.upgrade() {
                state.admission.apply_manifests(set, loaded);
            }
        };
        let id_hash = identity::hash(identity::id(&identity::host()).as_bytes());
        let metrics = ManifestMetrics::new(state.metrics.registry(), id_hash).map_err(ConfigError::other)?;
        let kinds = Arc::new(ServedKinds(Arc::downgrade(state)));
        let context = LoadContext { apply: Arc::new(apply), kinds, strict };
        ManifestDirectories::start(directories, context, metrics, statuses)
    }
}

/// The served resources, built-in and custom, against which the expressions of static manifests are type-checked.
struct ServedKinds(Weak<State>);

impl TypeCheckKinds for ServedKinds {
    fn kinds_of(&self, group: &str, version: &str, resource: &str) -> Vec<GroupVersionKind> {
        self.0.upgrade().map(|state| state.kinds_of(group, version, resource)).unwrap_or_default()
    }

    fn schema_of(&self, kind: &GroupVersionKind) -> Option<Link> {
        self.0.upgrade()?.schema_of(kind)
    }
}
