//! `PodSecurityConfiguration`: the defaults of namespaces without labels, and who is exempt.

use api::{FieldError, names};
use value::{Path, Value};

use super::policy::{Level, Policy, Standard, Version};

const GROUP: &str = "pod-security.admission.config.k8s.io";

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
    /// Reads the plugin's part of the admission configuration. The error is the one that Kubernetes gives at the start.
    pub fn parse(tree: &Value) -> Result<Self, String> {
        let api_version = tree.str_at(&["apiVersion"]).unwrap_or_default();
        let kind = tree.str_at(&["kind"]).unwrap_or_default();
        let known =
            ["v1", "v1beta1", "v1alpha1"].iter().any(|version| api_version == format!("{GROUP}/{version}"));
        if !known || kind != "PodSecurityConfiguration" {
            return Err(format!("no kind \"{kind}\" is registered for version \"{api_version}\""));
        }
        let root = Path::root();
        let mut errors = Vec::new();
        let text = |field: &str, default: &'static str| {
            tree.str_at(&["defaults", field]).filter(|text| !text.is_empty()).unwrap_or(default).to_owned()
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
        let mut exempt = |field: &str, check: &dyn Fn(&str) -> Vec<String>| {
            let path = root.field("exemptions").field(field);
            let mut known: Vec<String> = Vec::new();
            for (i, name) in tree.list_at(&["exemptions", field]).iter().enumerate() {
                let name = name.as_str().unwrap_or_default();
                let wrong = check(name);
                if !wrong.is_empty() {
                    errors.push(FieldError::invalid(&path.index(i), name, wrong.join(", ")));
                } else if known.iter().any(|other| other == name) {
                    errors.push(FieldError::duplicate(&path.index(i), name));
                } else {
                    known.push(name.to_owned());
                }
            }
            known
        };
        let namespaces = exempt("namespaces", &|name| names::name_is_dns_label(name, false));
        let runtime_classes = exempt("runtimeClasses", &|name| names::name_is_dns_subdomain(name, false));
        let usernames = exempt("usernames", &|name| {
            if name.is_empty() { vec!["username must not be empty".to_owned()] } else { Vec::new() }
        });
        if !errors.is_empty() {
            return Err(api::field::aggregate(&errors));
        }
        Ok(Configuration { defaults, namespaces, usernames, runtime_classes })
    }
}
