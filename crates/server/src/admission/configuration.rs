//! `--admission-control-config-file`, and the files it names → each plugin's own configuration.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ::admission::configuration::{
    AdmissionConfiguration, ConfigurationPlace, WebhookAdmission, static_manifests,
};
use ::admission::manifests::Set;
use ::admission::plugins::pod_security;
use api::FieldError;
use value::{Path as FieldPath, Str};

use crate::admission::registered::WebhookCredentials;
use crate::admission::webhooks::Credentials;
use crate::config::ConfigError;
use crate::files::{go_words, read as read_file};

/// Plugins that can be configured, but not yet here. Nothing that is said to one of them may be left unheard.
const CONFIGURABLE: [&str; 3] = ["PodNodeSelector", "PodTolerationRestriction", "ResourceQuota"];

/// The plugins that take folders of static manifests.
const WITH_MANIFESTS: [(&str, Set); 4] = [
    ("MutatingAdmissionPolicy", Set::MutatingPolicies),
    ("MutatingAdmissionWebhook", Set::MutatingWebhooks),
    ("ValidatingAdmissionPolicy", Set::ValidatingPolicies),
    ("ValidatingAdmissionWebhook", Set::ValidatingWebhooks),
];

/// The plugins' configurations, by name. Each plugin takes its own.
#[derive(Debug, Default)]
pub(crate) struct PluginConfigurations {
    by_name: BTreeMap<Str, Vec<u8>>,
    /// The folders of static manifests, by plugin.
    folders: BTreeMap<&'static str, Str>,
}

impl PluginConfigurations {
    /// Reads the file and all files it names; without one there is nothing to read.
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
        let folder = path.parent().unwrap_or(Path::new("/"));
        let mut by_name = BTreeMap::new();
        for plugin in configuration.plugins {
            let bytes = match plugin.place {
                ConfigurationPlace::Nowhere => continue,
                ConfigurationPlace::Inline(bytes) => bytes,
                ConfigurationPlace::ThisFile => bytes.clone(),
                ConfigurationPlace::File(file) => {
                    let file = folder.join(file.as_str());
                    read_file(&file).map_err(|why| {
                        ConfigError::other(format!(
                            "Couldn't open admission plugin configuration {0}: open {0}: {why}",
                            file.display()
                        ))
                    })?
                }
            };
            by_name.entry(plugin.name).or_insert(bytes);
        }
        let mut read = PluginConfigurations { by_name, folders: BTreeMap::new() };
        for plugin in ["MutatingAdmissionPolicy", "ValidatingAdmissionPolicy"] {
            if let Some(bytes) = read.take(plugin) {
                let folder = static_manifests(plugin, &bytes).map_err(|why| refused(plugin, &why))?;
                read.folders.insert(plugin, folder);
            }
        }
        Ok(read)
    }

    /// The configuration of a plugin, which is then taken care of.
    pub(crate) fn take(&mut self, plugin: &str) -> Option<Vec<u8>> {
        self.by_name.remove(plugin)
    }

    /// The defaults and exemptions of pod security.
    pub(crate) fn pod_security(&mut self) -> Result<pod_security::Configuration, ConfigError> {
        const PLUGIN: &str = "PodSecurity";
        let Some(bytes) = self.take(PLUGIN).filter(|bytes| !bytes.is_empty()) else {
            return Ok(pod_security::Configuration::default());
        };
        pod_security::Configuration::parse(&bytes).map_err(|why| refused(PLUGIN, &why))
    }

    /// As whom webhooks are asked.
    pub(crate) fn webhook_credentials(&mut self) -> Result<WebhookCredentials, ConfigError> {
        Ok(WebhookCredentials {
            mutating: self.credentials("MutatingAdmissionWebhook")?,
            validating: self.credentials("ValidatingAdmissionWebhook")?,
        })
    }

    fn credentials(&mut self, plugin: &'static str) -> Result<Credentials, ConfigError> {
        let Some(bytes) = self.take(plugin) else { return Ok(Credentials::default()) };
        let failed = |why: String| refused(plugin, &why);
        let WebhookAdmission { kubeconfig, static_manifests } =
            WebhookAdmission::parse(&bytes).map_err(failed)?;
        self.folders.insert(plugin, static_manifests);
        if kubeconfig.is_empty() {
            return Ok(Credentials::default());
        }
        Credentials::read(Path::new(kubeconfig.as_str())).map_err(failed)
    }

    /// The folders of static manifests. `gate` says whether there may be any, `is_on` whether a plugin runs: a folder that nobody
    /// enforces must not look as if it were enforced.
    pub(crate) fn manifests(
        &self,
        gate: bool,
        is_on: impl Fn(&str) -> bool,
    ) -> Result<Vec<(Set, PathBuf)>, ConfigError> {
        let mut folders = Vec::new();
        for (plugin, set) in WITH_MANIFESTS {
            let Some(folder) = self.folders.get(plugin).filter(|folder| !folder.is_empty()) else { continue };
            check_folder(folder, gate).map_err(|error| refused(plugin, &error.to_string()))?;
            if !is_on(plugin) {
                let why = "staticManifestsDir is set, but the plugin is disabled, so nothing would enforce what is in it; enable the plugin or leave the folder out";
                return Err(refused(plugin, why));
            }
            folders.push((set, PathBuf::from(folder.as_str())));
        }
        Ok(folders)
    }

    /// What is left when every plugin has taken its own was meant for nobody, or for one that cannot do what it says.
    pub(crate) fn finish(self, disabled: &[String]) -> Result<(), ConfigError> {
        for name in self.by_name.keys() {
            if CONFIGURABLE.contains(&name.as_str()) && !disabled.iter().any(|plugin| plugin == name) {
                return Err(refused(name, "its configuration is not implemented yet; leave it out"));
            }
            tracing::warn!(plugin = %name, "the admission configuration names a plugin that is not enabled or takes none");
        }
        Ok(())
    }
}

/// Whether a folder of static manifests can be one.
fn check_folder(folder: &Str, gate: bool) -> Result<(), FieldError> {
    let at = FieldPath::root().field("staticManifestsDir");
    let invalid = |why: &str| Err(FieldError::invalid(&at, folder.clone(), why));
    if !gate {
        let why =
            "staticManifestsDir requires the ManifestBasedAdmissionControlConfig feature gate to be enabled";
        return Err(FieldError::forbidden(&at, why));
    }
    if !folder.starts_with('/') {
        return invalid("must be an absolute file path");
    }
    match std::fs::metadata(folder.as_str()) {
        Err(error) => invalid(&format!("unable to read: stat {folder}: {}", go_words(&error))),
        Ok(found) if !found.is_dir() => invalid("must be a directory"),
        Ok(_) => Ok(()),
    }
}

/// A plugin that cannot be started as it is configured.
pub(crate) fn refused(plugin: &str, why: &str) -> ConfigError {
    ConfigError::other(format!(
        "failed to apply admission: couldn't init admission plugin \"{plugin}\": {why}"
    ))
}
