//! `--admission-control-config-file`, and the files it names → each plugin's own configuration.

use std::collections::BTreeMap;
use std::path::Path;

use ::admission::configuration::{AdmissionConfiguration, ConfigurationPlace, WebhookAdmission};
use value::Str;

use crate::admission::registered::WebhookCredentials;
use crate::admission::webhooks::Credentials;
use crate::config::ConfigError;
use crate::files::read as read_file;

/// Plugins that are on by default and can be configured. Nothing that is said to one of them may be left unheard.
const CONFIGURABLE: [&str; 4] =
    ["MutatingAdmissionPolicy", "PodSecurity", "ResourceQuota", "ValidatingAdmissionPolicy"];

/// The plugins' configurations, by name. Each plugin takes its own.
#[derive(Debug, Default)]
pub(crate) struct PluginConfigurations {
    by_name: BTreeMap<Str, Vec<u8>>,
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
        Ok(PluginConfigurations { by_name })
    }

    /// The configuration of a plugin, which is then taken care of.
    pub(crate) fn take(&mut self, plugin: &str) -> Option<Vec<u8>> {
        self.by_name.remove(plugin)
    }

    /// As whom webhooks are asked.
    pub(crate) fn webhook_credentials(&mut self) -> Result<WebhookCredentials, ConfigError> {
        Ok(WebhookCredentials {
            mutating: self.credentials("MutatingAdmissionWebhook")?,
            validating: self.credentials("ValidatingAdmissionWebhook")?,
        })
    }

    fn credentials(&mut self, plugin: &str) -> Result<Credentials, ConfigError> {
        let Some(bytes) = self.take(plugin) else { return Ok(Credentials::default()) };
        let failed = |why: String| refused(plugin, &why);
        let WebhookAdmission { kubeconfig, static_manifests } =
            WebhookAdmission::parse(&bytes).map_err(failed)?;
        if !static_manifests.is_empty() {
            return Err(failed("staticManifestsDir is not implemented yet; leave it out".to_owned()));
        }
        if kubeconfig.is_empty() {
            return Ok(Credentials::default());
        }
        Credentials::read(Path::new(kubeconfig.as_str())).map_err(failed)
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

/// A plugin that cannot be started as it is configured.
pub(crate) fn refused(plugin: &str, why: &str) -> ConfigError {
    ConfigError::other(format!(
        "failed to apply admission: couldn't init admission plugin \"{plugin}\": {why}"
    ))
}
