//! Restrictions on static manifests beyond the API's rules.

use std::collections::{BTreeMap, HashMap, HashSet};

use api::field::quote;
use api::meta;
use value::{Str, Value};

use super::decode::ObjectSpans;
use super::problem::{ManifestProblem, NAME_HINT, Problems};
use super::{Manifest, ManifestFile};

pub use kinds::validation::admissionregistration::STATIC_SUFFIX;

/// Names by kind, with the file in which each occurred.
#[derive(Default)]
pub(super) struct SeenNames(HashMap<(&'static str, Str), String>);

impl SeenNames {
    pub(super) fn is_taken(&self, kind: &'static str, name: &str) -> bool {
        self.0.contains_key(&(kind, name.into()))
    }

    /// Records the name of an object that was accepted earlier.
    pub(super) fn record(&mut self, kind: &'static str, name: &str, file: &str) {
        self.0.insert((kind, name.into()), file.to_owned());
    }

    /// A name must have the suffix `.static.k8s.io` and be unique for its kind.
    pub(super) fn check(
        &mut self,
        file: &ManifestFile,
        kind: &'static str,
        object: &Value,
        spans: &ObjectSpans,
        problems: &mut Problems<'_>,
    ) {
        let name = meta::name(object);
        let at = spans.of("metadata.name");
        let path = quote(&file.path);
        if name.is_empty() {
            let message = "metadata.name: Required value: name is required".to_owned();
            let report = format!("{kind} {}: {message}", quote(name));
            problems.error_loading(
                ManifestProblem::at(file, at, "metadata.name", message, Some(NAME_HINT)),
                || report,
            );
            return;
        }
        if !name.ends_with(STATIC_SUFFIX) {
            let message = format!("{} must have a name ending with {}", quote(name), quote(STATIC_SUFFIX));
            let hint = format!("call it {name}{STATIC_SUFFIX}");
            problems.error_loading(
                ManifestProblem::at(file, at, "metadata.name", message, Some(&hint)),
                || {
                    format!(
                        "{} in file {path} must have a name ending with {}",
                        quote(name),
                        quote(STATIC_SUFFIX)
                    )
                },
            );
            return;
        }
        if let Some(previous) = self.0.get(&(kind, name.into())) {
            let message = format!("duplicate name {} (previously seen in {})", quote(name), quote(previous));
            let hint = "names are unique per kind over all files of the directory";
            let previous = quote(previous);
            problems.error_loading(
                ManifestProblem::at(file, at, "metadata.name", message, Some(hint)),
                || {
                    format!(
                        "duplicate name {} found in file {path} (previously seen in {previous})",
                        quote(name)
                    )
                },
            );
            return;
        }
        self.record(kind, name, &file.path);
    }
}

pub(super) fn check(
    file: &ManifestFile,
    kind: &'static str,
    object: &Value,
    spans: &ObjectSpans,
    problems: &mut Problems<'_>,
) {
    let name = quote(meta::name(object));
    match kind {
        "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy" => {
            if object.at(&["spec", "paramKind"]).is_some() {
                let field = "spec.paramKind";
                let message = format!("{kind} {name}: {field} is not supported for static manifests");
                let hint =
                    "write the values into the policy: parameters live in the API, which can be changed";
                let report = message.clone();
                problems.error_loading(
                    ManifestProblem::at(file, spans.of(field), field, message, Some(hint)),
                    || report,
                );
            }
        }
        "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding" => {
            let policy = object.str_at(&["spec", "policyName"]).unwrap_or_default();
            if policy.is_empty() {
                let field = "spec.policyName";
                let message = format!("binding {name} must reference a policy (spec.policyName)");
                let report = message.clone();
                problems
                    .error_loading(ManifestProblem::at(file, spans.of("spec"), field, message, None), || {
                        report
                    });
            } else if !policy.ends_with(STATIC_SUFFIX) {
                let field = "spec.policyName";
                let message = format!(
                    "binding {name}: {field} {} must end with {}",
                    quote(policy),
                    quote(STATIC_SUFFIX)
                );
                let hint = "a static binding binds a policy of the same directory";
                let report = message.clone();
                problems.error_loading(
                    ManifestProblem::at(file, spans.of(field), field, message, Some(hint)),
                    || report,
                );
            } else if object.at(&["spec", "paramRef"]).is_some() {
                let field = "spec.paramRef";
                let message = format!("binding {name}: {field} is not supported for static manifests");
                let report = message.clone();
                problems
                    .error_loading(ManifestProblem::at(file, spans.of(field), field, message, None), || {
                        report
                    });
            }
        }
        _ => webhooks(file, object, &name, spans, problems),
    }
}

/// Webhooks must use a URL: a service reference would depend on the API.
fn webhooks(
    file: &ManifestFile,
    object: &Value,
    name: &str,
    spans: &ObjectSpans,
    problems: &mut Problems<'_>,
) {
    let path = quote(&file.path);
    for (index, webhook) in object.list_at(&["webhooks"]).iter().enumerate() {
        let own = quote(webhook.str_at(&["name"]).unwrap_or_default());
        let field = format!("webhooks[{index}].clientConfig");
        let (field, why) = if webhook.at(&["clientConfig", "service"]).is_some() {
            let why =
                "clientConfig.service is not supported for static manifests; use clientConfig.url instead";
            (format!("{field}.service"), why)
        } else if webhook.str_at(&["clientConfig", "url"]).unwrap_or_default().is_empty() {
            (field, "clientConfig.url is required for static manifests")
        } else {
            continue;
        };
        let message = format!("webhook {own} in {name}: {why}");
        problems.error_loading(ManifestProblem::at(file, spans.of(&field), &field, message, None), || {
            format!("webhook {own} in {name} (file {path}): {why}")
        });
    }
}

/// A binding's policy must be in the same directory.
pub(super) fn references(objects: &BTreeMap<&'static str, Vec<Manifest>>, problems: &mut Problems<'_>) {
    for (bindings, policies) in [
        ("MutatingAdmissionPolicyBinding", "MutatingAdmissionPolicy"),
        ("ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"),
    ] {
        let known: HashSet<&str> =
            objects.get(policies).into_iter().flatten().map(|m| meta::name(&m.object)).collect();
        for binding in objects.get(bindings).into_iter().flatten() {
            let policy = binding.object.str_at(&["spec", "policyName"]).unwrap_or_default();
            if known.contains(policy) {
                continue;
            }
            let message = format!(
                "binding {} references policy {} which does not exist in the manifest directory",
                quote(meta::name(&binding.object)),
                quote(policy)
            );
            let report = message.clone();
            let file = ManifestFile { path: binding.file.to_string(), content: Err(String::new()) };
            let position = value::yaml::Position { line: binding.line, column: 1 };
            let hint = "a policy and its binding are in one directory";
            problems.push(
                || report,
                ManifestProblem::at(&file, position, "spec.policyName", message, Some(hint)),
            );
        }
    }
}
