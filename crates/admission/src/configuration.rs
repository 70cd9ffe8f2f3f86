//! The file of `--admission-control-config-file`: which plugin is configured how.
//!
//! A plugin's configuration is a document of its own, in place or in another file. Here the file is split into these documents; each
//! plugin reads its own ([`WebhookAdmission`] is that of the two webhook plugins). Everything is strict, and refused in the words of
//! Kubernetes' decoder.

pub(crate) mod document;
mod policies;
mod webhooks;

use value::{Map, Str, Value, write};

use document::Document;
pub use policies::static_manifests;
pub use webhooks::WebhookAdmission;

const GROUP: &str = "apiserver.config.k8s.io";
/// Where Go's scheme of these kinds is declared; part of its message.
const SCHEME: &str = "k8s.io/apiserver/pkg/server/options/admission.go:51";
/// Plugins that once read the whole file themselves, by the field that shows it.
const LEGACY: [(&str, &str); 2] =
    [("imagePolicy", "ImagePolicyWebhook"), ("podNodeSelectorPluginConfig", "PodNodeSelector")];

/// What the file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdmissionConfiguration {
    /// The plugins it names, in order; of two with one name the first counts.
    pub plugins: Vec<PluginConfiguration>,
}

/// How one plugin is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginConfiguration {
    /// The plugin's name.
    pub name: Str,
    /// Where its configuration is.
    pub place: ConfigurationPlace,
}

/// Where a plugin's configuration is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigurationPlace {
    /// Right there, as JSON.
    Inline(Vec<u8>),
    /// In a file; the path is relative to the file that names it.
    File(Str),
    /// In the very file that was read.
    ThisFile,
    /// Nowhere.
    Nowhere,
}

impl AdmissionConfiguration {
    /// Reads the file.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        const OWNER: &str = "AdmissionConfiguration";
        const PLUGIN: &str = "AdmissionPluginConfiguration";
        let document = Document::read(bytes)?;
        if let Err(why) = document.is(GROUP, &["v1", "v1alpha1"], OWNER, SCHEME) {
            return Self::legacy(document.root()).ok_or(why);
        }
        let (root, mut fields) = document.fields();
        let version = root.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        let package = version.rsplit('/').next().unwrap_or_default().to_owned();
        let mut plugins = Vec::new();
        let list = fields.list(&root, OWNER, "plugins", &format!("[]{package}.{PLUGIN}"));
        let nothing = Map::new();
        for (index, plugin) in list.iter().enumerate() {
            let map = match plugin {
                Value::Map(map) => map,
                Value::Null => &nothing,
                other => {
                    fields.wrong(other, OWNER, "", "plugins", &format!("{package}.{PLUGIN}"));
                    continue;
                }
            };
            let name = fields.text(map, PLUGIN, "plugins", "name");
            let path = fields.text(map, PLUGIN, "plugins", "path");
            let place = match map.get("configuration") {
                Some(inline) if !inline.is_null() => ConfigurationPlace::Inline(write::to_vec(inline)),
                _ if path.is_empty() => ConfigurationPlace::Nowhere,
                _ => ConfigurationPlace::File(path),
            };
            plugins.push(PluginConfiguration { name, place });
            fields.only(map, &format!("plugins[{index}]"), &["configuration", "name", "path"]);
        }
        fields.only(&root, "", &["apiVersion", "kind", "plugins"]);
        fields.finish()?;
        Ok(AdmissionConfiguration { plugins })
    }

    /// A file of the time when plugins read it themselves.
    fn legacy(root: &Map) -> Option<Self> {
        let plugins: Vec<PluginConfiguration> = LEGACY
            .iter()
            .filter(|_| LEGACY.iter().any(|(field, _)| root.get(field).is_some()))
            .map(|(_, name)| PluginConfiguration {
                name: Str::new_static(name),
                place: ConfigurationPlace::ThisFile,
            })
            .collect();
        (!plugins.is_empty()).then_some(AdmissionConfiguration { plugins })
    }
}

#[cfg(test)]
mod tests;
