//! `PodSecurityConfiguration`: the defaults for namespaces without labels, and exemptions.

use api::{FieldError, names};
use value::{Map, Path, Str, Value};

use super::policy::{LevelVersion, NamespacePolicy, PodSecurityLevel, PodSecurityVersion};
use crate::configuration::document::ConfigDocument;

const GROUP: &str = "pod-security.admission.config.k8s.io";
/// The location of Go's scheme for these kinds, which is part of its error messages.
const SCHEME: &str = "k8s.io/pod-security-admission/admission/api/scheme/scheme.go:31";
const MODES: &[&str] = &["enforce", "audit", "warn"];

/// A valid configuration of PodSecurity.
#[derive(Clone, Debug, Default)]
pub struct PodSecurityConfiguration {
    /// The policy of namespaces without labels.
    pub defaults: NamespacePolicy,
    pub namespaces: Vec<String>,
    pub usernames: Vec<String>,
    pub runtime_classes: Vec<String>,
}

impl PodSecurityConfiguration {
    /// Parses the plugin's configuration strictly: a misspelt field would leave pods unchecked. The error is
    /// kube-apiserver's.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        const KIND: &str = "PodSecurityConfiguration";
        const DEFAULTS: &str = "PodSecurityDefaults";
        const EXEMPTIONS: &str = "PodSecurityExemptions";
        let document = ConfigDocument::read(bytes)?;
        document.expect_kind(GROUP, &["v1", "v1beta1", "v1alpha1"], KIND, SCHEME)?;
        let (tree, mut fields) = document.fields();
        let package = tree.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        let package = package.rsplit('/').next().unwrap_or_default();
        let absent = Map::new();
        let of_type = |name: &str| format!("{package}.{name}");
        let given = fields.object(&tree, KIND, "defaults", &of_type(DEFAULTS)).unwrap_or(&absent);
        let mut texts: Vec<(String, Str)> = Vec::new();
        for mode in MODES {
            for name in [(*mode).to_owned(), format!("{mode}-version")] {
                let text = fields.text(given, DEFAULTS, "defaults", &name);
                texts.push((name, text));
            }
        }
        let known: Vec<&str> = texts.iter().map(|(name, _)| name.as_str()).collect();
        fields.reject_unknown(given, "defaults", &known);
        let exempt = fields.object(&tree, KIND, "exemptions", &of_type(EXEMPTIONS)).unwrap_or(&absent);
        let mut exempted = |name: &str| fields.texts(exempt, EXEMPTIONS, "exemptions", name);
        let (usernames, namespaces, runtime_classes) =
            (exempted("usernames"), exempted("namespaces"), exempted("runtimeClasses"));
        fields.reject_unknown(exempt, "exemptions", &["namespaces", "runtimeClasses", "usernames"]);
        fields.reject_unknown(&tree, "", &["apiVersion", "defaults", "exemptions", "kind"]);
        fields.finish()?;
        Self::validated(&texts, &namespaces, &runtime_classes, &usernames)
    }

    fn validated(
        texts: &[(String, Str)],
        namespaces: &[Str],
        runtime_classes: &[Str],
        usernames: &[Str],
    ) -> Result<Self, String> {
        let root = Path::root();
        let mut errors = Vec::new();
        let text = |field: &str, default: &'static str| {
            let given = texts.iter().find(|(name, text)| name == field && !text.is_empty());
            given.map_or(default, |(_, text)| text.as_str()).to_owned()
        };
        let mut standard = |mode: &str| {
            let mut type_mismatch = |field: &str, text: &str, why: &str| {
                errors.push(FieldError::invalid(&root.field("defaults").field(field), text, why));
            };
            let level = text(mode, "privileged");
            let version_field = format!("{mode}-version");
            let version = text(&version_field, "latest");
            LevelVersion {
                level: PodSecurityLevel::parse(&level).unwrap_or_else(|why| {
                    type_mismatch(mode, &level, why);
                    PodSecurityLevel::Restricted
                }),
                version: PodSecurityVersion::parse(&version).unwrap_or_else(|why| {
                    type_mismatch(&version_field, &version, why);
                    PodSecurityVersion::Latest
                }),
            }
        };
        let enforce = standard("enforce");
        let warn = standard("warn");
        let defaults = NamespacePolicy { enforce, warn, audit: standard("audit") };
        let mut exempt = |field: &str, names: &[Str], check: &dyn Fn(&str) -> Vec<String>| {
            let path = root.field("exemptions").field(field);
            let mut known: Vec<String> = Vec::new();
            for (i, name) in names.iter().enumerate() {
                let type_mismatch = check(name);
                if !type_mismatch.is_empty() {
                    errors.push(FieldError::invalid(&path.index(i), name.as_str(), type_mismatch.join(", ")));
                } else if known.iter().any(|other| other == name) {
                    errors.push(FieldError::duplicate(&path.index(i), name.as_str()));
                } else {
                    known.push(name.to_string());
                }
            }
            known
        };
        let namespaces = exempt("namespaces", namespaces, &|name| names::name_is_dns_label(name, false));
        let runtime_classes =
            exempt("runtimeClasses", runtime_classes, &|name| names::name_is_dns_subdomain(name, false));
        let usernames = exempt("usernames", usernames, &|name| {
            if name.is_empty() { vec!["username must not be empty".to_owned()] } else { Vec::new() }
        });
        if !errors.is_empty() {
            return Err(api::field::aggregate(&errors));
        }
        Ok(PodSecurityConfiguration { defaults, namespaces, usernames, runtime_classes })
    }
}
