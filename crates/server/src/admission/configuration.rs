//! Reads `--admission-control-config-file` and the files that it names into one configuration per plugin.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::admission::configuration::{
    AdmissionConfiguration, PluginConfigurationSource, WebhookAdmission, static_manifests,
};
use ::admission::manifests::ManifestSet;
use ::admission::plugins::image_policy::ImagePolicy;
use ::admission::plugins::resource_quota::LimitedResource;
use ::admission::plugins::{
    ImagePolicyWebhook, PluginSettings, PodNodeSelector, PodTolerationRestriction, event_rate_limit,
    pod_security,
};
use ::admission::{AsyncPlugin, PluginChain};
use api::FieldError;
use authz_config::sender;
use runtime::files::{go_words, read as read_file};
use value::{Path as FieldPath, Str};

use crate::admission::registered_webhooks::WebhookCredentials;
use crate::admission::webhooks::KubeconfigCredentials;
use crate::config::ConfigError;

/// Timeout of requests to the backend of `ImagePolicyWebhook`.
const IMAGE_POLICY_TIMEOUT: Duration = Duration::from_secs(30);

/// The plugins that support `staticManifestsDir`.
const WITH_MANIFESTS: [(&str, ManifestSet); 4] = [
    ("MutatingAdmissionPolicy", ManifestSet::MutatingPolicies),
    ("MutatingAdmissionWebhook", ManifestSet::MutatingWebhooks),
    ("ValidatingAdmissionPolicy", ManifestSet::ValidatingPolicies),
    ("ValidatingAdmissionWebhook", ManifestSet::ValidatingWebhooks),
];

/// Plugin configurations by plugin name. The method that configures a plugin removes its entry.
#[derive(Debug, Default)]
pub(crate) struct PluginConfigurations {
    by_name: BTreeMap<Str, Vec<u8>>,
    /// The directories of static manifests, by plugin.
    directories: BTreeMap<&'static str, Str>,
}

impl PluginConfigurations {
    /// Reads the file and all files that it names. Without a path the result is empty.
    pub(crate) fn read(path: Option<&Path>) -> Result<Self, ConfigError> {
        let Some(path) = path else { return Ok(PluginConfigurations::default()) };
        let shown = path.display();
        let failed = |why: String| {
            ConfigError::other(format!("failed to apply admission: failed to read plugin config: {why}"))
        };
        let bytes = read_file(path).map_err(|why| {
            failed(format!(
                "unable to read admission control configuration from \"{shown}\" [open {shown}: {why}]"
            ))
        })?;
        let configuration = AdmissionConfiguration::parse(&bytes).map_err(failed)?;
        let directory = path.parent().unwrap_or(Path::new("/"));
        let mut by_name = BTreeMap::new();
        let mut named = BTreeSet::new();
        for (index, plugin) in configuration.plugins.into_iter().enumerate() {
            // kube-apiserver uses the first of two entries for a plugin, and ignores an entry for an unknown plugin. Both silently drop a
            // configuration that an administrator wanted to enforce, so both are errors here.
            let at = FieldPath::root().field("plugins").index(index).field("name");
            if !PluginChain::is_known_plugin(&plugin.name) {
                let why = "there is no admission plugin of this name";
                return Err(failed(FieldError::invalid(&at, plugin.name, why).to_string()));
            }
            if !named.insert(plugin.name.clone()) {
                return Err(failed(FieldError::duplicate(&at, plugin.name).to_string()));
            }
            let bytes = match plugin.source {
                PluginConfigurationSource::Absent => continue,
                PluginConfigurationSource::Inline(bytes) => bytes,
                PluginConfigurationSource::ThisFile => bytes.clone(),
                PluginConfigurationSource::File(file) => {
                    let file = directory.join(file.as_str());
                    read_file(&file).map_err(|why| {
                        ConfigError::other(format!(
                            "Couldn't open admission plugin configuration {0}: open {0}: {why}",
                            file.display()
                        ))
                    })?
                }
            };
            by_name.insert(plugin.name, bytes);
        }
        let mut read = PluginConfigurations { by_name, directories: BTreeMap::new() };
        for plugin in ["MutatingAdmissionPolicy", "ValidatingAdmissionPolicy"] {
            if let Some(bytes) = read.take(plugin) {
                let directory = static_manifests(plugin, &bytes).map_err(|why| refused(plugin, &why))?;
                read.directories.insert(plugin, directory);
            }
        }
        Ok(read)
    }

    /// The plugins whose configurations have not been taken yet.
    pub(crate) fn names(&self) -> BTreeSet<Str> {
        self.by_name.keys().cloned().collect()
    }

    /// Removes and returns the configuration of a plugin.
    pub(crate) fn take(&mut self, plugin: &str) -> Option<Vec<u8>> {
        self.by_name.remove(plugin)
    }

    /// Takes the configuration of PodSecurity: its defaults and exemptions.
    pub(crate) fn pod_security(&mut self) -> Result<pod_security::PodSecurityConfiguration, ConfigError> {
        const PLUGIN: &str = "PodSecurity";
        let Some(bytes) = self.take(PLUGIN).filter(|bytes| !bytes.is_empty()) else {
            return Ok(pod_security::PodSecurityConfiguration::default());
        };
        pod_security::PodSecurityConfiguration::parse(&bytes).map_err(|why| refused(PLUGIN, &why))
    }

    /// Adds the configurations of built-in plugins to `settings`. `is_on` returns whether a plugin is enabled; the configuration of a
    /// disabled plugin is ignored with a warning.
    pub(crate) fn settings(
        &mut self,
        settings: PluginSettings,
        is_on: impl Fn(&str) -> bool,
    ) -> Result<PluginSettings, ConfigError> {
        let mut of = |plugin: &'static str| {
            let bytes = self.take(plugin);
            if bytes.is_some() && !is_on(plugin) {
                tracing::warn!(
                    plugin,
                    "ignoring the configuration of an admission plugin that is not enabled; enable the plugin or remove its configuration"
                );
            }
            bytes.filter(|_| is_on(plugin))
        };
        let node_selectors = of("PodNodeSelector").map(|bytes| PodNodeSelector::parse(&bytes)).transpose();
        let tolerations =
            of("PodTolerationRestriction").map(|bytes| PodTolerationRestriction::parse(&bytes)).transpose();
        let event_limits = match of("EventRateLimit") {
            Some(bytes) => event_rate_limit::limits(&bytes),
            None if is_on("EventRateLimit") => event_rate_limit::limits_without_configuration(),
            None => Ok(Vec::new()),
        };
        let start = Instant::now();
        Ok(PluginSettings {
            node_selectors: node_selectors
                .map_err(|why| refused("PodNodeSelector", &why))?
                .unwrap_or_default(),
            tolerations: tolerations
                .map_err(|why| refused("PodTolerationRestriction", &why))?
                .unwrap_or_default(),
            event_limits: event_limits.map_err(|why| refused("EventRateLimit", &why))?,
            clock: Arc::new(move || start.elapsed()),
            ..settings
        })
    }

    /// Takes the configuration of ResourceQuota: resources that may be used only where a quota covers them.
    pub(crate) fn limited(&mut self) -> Result<Vec<LimitedResource>, ConfigError> {
        const PLUGIN: &str = "ResourceQuota";
        let Some(bytes) = self.take(PLUGIN) else { return Ok(Vec::new()) };
        LimitedResource::parse(&bytes).map_err(|why| refused(PLUGIN, &why))
    }

    /// Builds the plugin ImagePolicyWebhook if it is enabled; then a missing configuration is an error.
    pub(crate) fn image_policy(&mut self, is_on: bool) -> Result<Option<Arc<dyn AsyncPlugin>>, ConfigError> {
        const PLUGIN: &str = "ImagePolicyWebhook";
        let bytes = self.take(PLUGIN);
        if !is_on {
            return Ok(None);
        }
        let stage = bytes.ok_or_else(|| "no config specified".to_owned()).and_then(|bytes| {
            let policy = ImagePolicy::parse(&bytes)?;
            let kubeconfig = Path::new(policy.kubeconfig.as_str());
            let sender = sender(PLUGIN, kubeconfig, IMAGE_POLICY_TIMEOUT, &mut Vec::new())?;
            Ok(ImagePolicyWebhook::new(policy, sender))
        });
        stage.map(|stage| Some(Arc::new(stage) as _)).map_err(|why| refused(PLUGIN, &why))
    }

    /// Takes the configurations of both webhook plugins and returns their credentials. Their manifest directories are recorded for
    /// [`PluginConfigurations::manifests`].
    pub(crate) fn webhook_credentials(&mut self) -> Result<WebhookCredentials, ConfigError> {
        Ok(WebhookCredentials {
            mutating: self.credentials("MutatingAdmissionWebhook")?,
            validating: self.credentials("ValidatingAdmissionWebhook")?,
        })
    }

    fn credentials(&mut self, plugin: &'static str) -> Result<KubeconfigCredentials, ConfigError> {
        let Some(bytes) = self.take(plugin) else { return Ok(KubeconfigCredentials::default()) };
        let failed = |why: String| refused(plugin, &why);
        let WebhookAdmission { kubeconfig, static_manifests } =
            WebhookAdmission::parse(&bytes).map_err(failed)?;
        self.directories.insert(plugin, static_manifests);
        if kubeconfig.is_empty() {
            return Ok(KubeconfigCredentials::default());
        }
        KubeconfigCredentials::read(Path::new(kubeconfig.as_str())).map_err(failed)
    }

    /// Checks directories of static manifests, wherever they were configured: the feature gate must be on and their plugins enabled. No
    /// two directories may be for one plugin, because one would replace the other.
    pub(crate) fn check_directories(
        directories: &[(ManifestSet, PathBuf)],
        gate: bool,
        is_on: impl Fn(&str) -> bool,
    ) -> Result<(), ConfigError> {
        for (index, (set, directory)) in directories.iter().enumerate() {
            let shown = directory.display();
            if !gate {
                return Err(ConfigError::other(format!(
                    "{shown}: static manifests require the ManifestBasedAdmissionControlConfig feature gate to be enabled"
                )));
            }
            for (plugin, of) in WITH_MANIFESTS {
                let concerns = |set: ManifestSet| set == ManifestSet::Mixed || set == of;
                if !concerns(*set) {
                    continue;
                }
                if !is_on(plugin) {
                    return Err(ConfigError::other(format!(
                        "{shown}: the plugin {plugin} is disabled, so nothing would enforce what is in the directory; enable the plugin or leave the directory out"
                    )));
                }
                let other = directories.iter().take(index).find(|(other, _)| concerns(*other));
                if let Some((_, other)) = other {
                    return Err(ConfigError::other(format!(
                        "{shown} and {} are both for the plugin {plugin}: one would replace the other, so name only one of them",
                        other.display()
                    )));
                }
            }
        }
        Ok(())
    }

    /// The directories of static manifests in the configuration file. It is an error to configure one while the feature gate (`gate`) is
    /// off or the plugin is disabled (`is_on`), because the manifests would not be enforced.
    pub(crate) fn manifests(
        &self,
        gate: bool,
        is_on: impl Fn(&str) -> bool,
    ) -> Result<Vec<(ManifestSet, PathBuf)>, ConfigError> {
        let mut directories = Vec::new();
        for (plugin, set) in WITH_MANIFESTS {
            let Some(directory) = self.directories.get(plugin).filter(|directory| !directory.is_empty())
            else {
                continue;
            };
            check_directory(directory, gate).map_err(|error| refused(plugin, &error.to_string()))?;
            if !is_on(plugin) {
                let why = "staticManifestsDir is set, but the plugin is disabled, so nothing would enforce what is in it; enable the plugin or leave the directory out";
                return Err(refused(plugin, why));
            }
            directories.push((set, PathBuf::from(directory.as_str())));
        }
        Ok(directories)
    }

    /// Warns about the configurations that are left: their plugins take none.
    pub(crate) fn finish(self) {
        for name in self.by_name.keys() {
            tracing::warn!(plugin = %name, "ignoring the configuration of an admission plugin that takes none; remove it from the admission configuration");
        }
    }
}

/// Checks `staticManifestsDir`: the feature gate must be on, and the path must be an absolute path of a directory.
fn check_directory(directory: &Str, gate: bool) -> Result<(), FieldError> {
    let at = FieldPath::root().field("staticManifestsDir");
    let invalid = |why: &str| Err(FieldError::invalid(&at, directory.clone(), why));
    if !gate {
        let why =
            "staticManifestsDir requires the ManifestBasedAdmissionControlConfig feature gate to be enabled";
        return Err(FieldError::forbidden(&at, why));
    }
    if !directory.starts_with('/') {
        return invalid("must be an absolute file path");
    }
    match std::fs::metadata(directory.as_str()) {
        Err(error) => invalid(&format!("unable to read: stat {directory}: {}", go_words(&error))),
        Ok(found) if !found.is_dir() => invalid("must be a directory"),
        Ok(_) => Ok(()),
    }
}

/// The error for a plugin with an invalid configuration, in kube-apiserver's words.
pub(crate) fn refused(plugin: &str, why: &str) -> ConfigError {
    ConfigError::other(format!(
        "failed to apply admission: couldn't init admission plugin \"{plugin}\": {why}"
    ))
}
