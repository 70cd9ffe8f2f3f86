//! `PodSecurityConfiguration`: the defaults of namespaces without labels, and who is exempt.

use api::{FieldError, names};
use value::{Map, Path, Str, Value};

use super::policy::{Level, Policy, Standard, Version};
use crate::configuration::document::Document;

const GROUP: &str = "pod-security.admission.config.k8s.io";
/// Where Go's scheme of these kinds is declared; part of its message.
const SCHEME: &str = "k8s.io/pod-security-admission/admission/api/scheme/scheme.go:31";
/// What a namespace can have a level for.
const MODES: &[&str] = &["enforce", "audit", "warn"];

/// The configuration, checked.
#[derive(Clone, Debug, Default)]
pub struct Configuration {
    /// The policy of a namespace that says nothing.
    pub defaults: Policy,
    /// Namespaces in which nothing is checked.
    pub namespaces: Vec<String>,
    /// Users whose pods are not checked.
    pub usernames: Vec<String>,
    /// Runtime classes whose pods are not checked.
    pub runtime_classes: Vec<String>,
}

impl Configuration {
    /// Reads the plugin's part of the admission configuration, strictly: what is misspelt would leave pods unchecked. The error is
    /// the one that Kubernetes gives at the start.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        const KIND: &str = "PodSecurityConfiguration";
        const DEFAULTS: &str = "PodSecurityDefaults";
        const EXEMPTIONS: &str = "PodSecurityExemptions";
        let document = Document::read(bytes)?;
        document.is(GROUP, &["v1", "v1beta1", "v1alpha1"], KIND, SCHEME)?;
        let (tree, mut fields) = document.fields();
        let package = tree.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        let package = package.rsplit('/').next().unwrap_or_default();
        let nothing = Map::new();
        let of_type = |name: &str| format!("{package}.{name}");
        let given = fields.inside(&tree, KIND, "defaults", &of_type(DEFAULTS)).unwrap_or(&nothing);
        let mut texts: Vec<(String, Str)> = Vec::new();
        for mode in MODES {
            for name in [(*mode).to_owned(), format!("{mode}-version")] {
                let text = fields.text(given, DEFAULTS, "defaults", &name);
                texts.push((name, text));
            }
        }
        let known: Vec<&str> = texts.iter().map(|(name, _)| name.as_str()).collect();
        fields.only(given, "defaults", &known);
        let exempt = fields.inside(&tree, KIND, "exemptions", &of_type(EXEMPTIONS)).unwrap_or(&nothing);
        let mut exempted = |name: &str| fields.texts(exempt, EXEMPTIONS, "exemptions", name);
        let (usernames, namespaces, runtime_classes) =
            (exempted("usernames"), exempted("namespaces"), exempted("runtimeClasses"));
        fields.only(exempt, "exemptions", &["namespaces", "runtimeClasses", "usernames"]);
        fields.only(&tree, "", &["apiVersion", "defaults", "exemptions", "kind"]);
        fields.finish()?;
        Self::checked(&texts, &namespaces, &runtime_classes, &usernames)
    }

    /// What was read, if it makes sense.
    fn checked(
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
            let mut wrong = |field: &str, text: &str, why: &str| {
                errors.push(FieldError::invalid(&root.field("defaults").field(field), text, why));
            };
            let level = text(mode, "privileged");
            let version_field = format!("{mode}-version");
            let version = text(&version_field, "latest");
            Standard {
                level: Level::parse(&level).unwrap_or_else(|why| {
                    wrong(mode, &level, why);
                    Level::Restricted
                }),
                version: Version::parse(&version).unwrap_or_else(|why| {
                    wrong(&version_field, &version, why);
                    Version::Latest
                }),
            }
        };
        let enforce = standard("enforce");
        let warn = standard("warn");
        let defaults = Policy { enforce, warn, audit: standard("audit") };
        let mut exempt = |field: &str, names: &[Str], check: &dyn Fn(&str) -> Vec<String>| {
            let path = root.field("exemptions").field(field);
            let mut known: Vec<String> = Vec::new();
            for (i, name) in names.iter().enumerate() {
                let wrong = check(name);
                if !wrong.is_empty() {
                    errors.push(FieldError::invalid(&path.index(i), name.as_str(), wrong.join(", ")));
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
        Ok(Configuration { defaults, namespaces, usernames, runtime_classes })
    }
}
