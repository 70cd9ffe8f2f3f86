//! `--admission-control-config-file`: splits an `AdmissionConfiguration` into the configurations of its
//! plugins.
//!
//! A plugin's configuration is inline or in a file of its own. Each plugin parses its own document;
//! [`WebhookAdmission`] is that of the two webhook plugins. All parsing is strict, with kube-apiserver's
//! error messages.

pub(crate) mod document;
mod policies;
mod webhooks;

use value::{Map, Str, Value, write};

use document::ConfigDocument;
pub use policies::static_manifests;
pub use webhooks::WebhookAdmission;

const GROUP: &str = "apiserver.config.k8s.io";
/// The location of Go's scheme for these kinds, which is part of its error messages.
const SCHEME: &str = "k8s.io/apiserver/pkg/server/options/admission.go:51";
/// Plugins whose configuration may be the whole file, without an `AdmissionConfiguration` around it: their
/// field and name.
const LEGACY: [(&str, &str); 2] =
    [("imagePolicy", "ImagePolicyWebhook"), ("podNodeSelectorPluginConfig", "PodNodeSelector")];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdmissionConfiguration {
    /// In file order. If a name occurs twice, the first entry counts.
    pub plugins: Vec<PluginConfiguration>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginConfiguration {
    pub name: Str,
    pub source: PluginConfigurationSource,
}

/// The location of a plugin's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PluginConfigurationSource {
    /// The inline `configuration`, encoded as JSON.
    Inline(Vec<u8>),
    /// A path relative to the file that names it.
    File(Str),
    /// The configuration file itself (see [`LEGACY`]).
    ThisFile,
    /// The plugin has no configuration.
    Absent,
}

impl AdmissionConfiguration {
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        const OWNER: &str = "AdmissionConfiguration";
        const PLUGIN: &str = "AdmissionPluginConfiguration";
        let document = ConfigDocument::read(bytes)?;
        if let Err(why) = document.expect_kind(GROUP, &["v1", "v1alpha1"], OWNER, SCHEME) {
            return Self::legacy(document.root()).ok_or(why);
        }
        let (root, mut fields) = document.fields();
        let version = root.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        let package = version.rsplit('/').next().unwrap_or_default().to_owned();
        let mut plugins = Vec::new();
        let list = fields.list(&root, OWNER, "plugins", &format!("[]{package}.{PLUGIN}"));
        let absent = Map::new();
        for (index, plugin) in list.iter().enumerate() {
            let map = match plugin {
                Value::Map(map) => map,
                Value::Null => &absent,
                other => {
                    fields.type_mismatch(other, OWNER, "", "plugins", &format!("{package}.{PLUGIN}"));
                    continue;
                }
            };
            let name = fields.text(map, PLUGIN, "plugins", "name");
            let path = fields.text(map, PLUGIN, "plugins", "path");
            let source = match map.get("configuration") {
                Some(inline) if !inline.is_null() => PluginConfigurationSource::Inline(write::to_vec(inline)),
                _ if path.is_empty() => PluginConfigurationSource::Absent,
                _ => PluginConfigurationSource::File(path),
            };
            plugins.push(PluginConfiguration { name, source });
            fields.reject_unknown(map, &format!("plugins[{index}]"), &["configuration", "name", "path"]);
        }
        fields.reject_unknown(&root, "", &["apiVersion", "kind", "plugins"]);
        fields.finish()?;
        Ok(AdmissionConfiguration { plugins })
    }

    /// A file from before `AdmissionConfiguration` existed.
    fn legacy(root: &Map) -> Option<Self> {
        let plugins: Vec<PluginConfiguration> = LEGACY
            .iter()
            .filter(|_| LEGACY.iter().any(|(field, _)| root.get(field).is_some()))
            .map(|(_, name)| PluginConfiguration {
                name: Str::new_static(name),
                source: PluginConfigurationSource::ThisFile,
            })
            .collect();
        (!plugins.is_empty()).then_some(AdmissionConfiguration { plugins })
    }
}

#[cfg(test)]
mod tests;
