//! What static manifests may not do, on top of the rules of the API.

use std::collections::{BTreeMap, HashMap, HashSet};

use api::field::quote;
use api::meta;
use value::{Str, Value};

use super::decode::Place;
use super::problem::{NAME_HINT, Problem, Problems};
use super::{File, Manifest};

pub use kinds::validation::admissionregistration::STATIC_SUFFIX;

/// Names so far, by kind, with the file each was seen in.
#[derive(Default)]
pub(super) struct Names(HashMap<(&'static str, Str), String>);

impl Names {
    /// Whether a name has been seen.
    pub(super) fn is_taken(&self, kind: &'static str, name: &str) -> bool {
        self.0.contains_key(&(kind, name.into()))
    }

    /// Notes a name that nothing is wrong with.
    pub(super) fn take(&mut self, kind: &'static str, name: &str, file: &str) {
        self.0.insert((kind, name.into()), file.to_owned());
    }

    /// A name must have the suffix and be the only one of its kind.
    pub(super) fn check(
        &mut self,
        file: &File,
        kind: &'static str,
        object: &Value,
        place: &Place,
        problems: &mut Problems<'_>,
    ) {
        let name = meta::name(object);
        let at = place.of("metadata.name");
        let path = quote(&file.path);
        if name.is_empty() {
            let message = "metadata.name: Required value: name is required".to_owned();
            let said = format!("{kind} {}: {message}", quote(name));
            problems.at(file, at, "metadata.name", message, Some(NAME_HINT), || said);
            return;
        }
        if !name.ends_with(STATIC_SUFFIX) {
            let message = format!("{} must have a name ending with {}", quote(name), quote(STATIC_SUFFIX));
            let hint = format!("call it {name}{STATIC_SUFFIX}");
            problems.at(file, at, "metadata.name", message, Some(&hint), || {
                format!(
                    "{} in file {path} must have a name ending with {}",
                    quote(name),
                    quote(STATIC_SUFFIX)
                )
            });
            return;
        }
        if let Some(previous) = self.0.get(&(kind, name.into())) {
            let message = format!("duplicate name {} (previously seen in {})", quote(name), quote(previous));
            let hint = "names are unique per kind over all files of the folder";
            let previous = quote(previous);
            problems.at(file, at, "metadata.name", message, Some(hint), || {
                format!("duplicate name {} found in file {path} (previously seen in {previous})", quote(name))
            });
            return;
        }
        self.take(kind, name, &file.path);
    }
}

/// The restrictions of each kind.
pub(super) fn check(
    file: &File,
    kind: &'static str,
    object: &Value,
    place: &Place,
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
                let said = message.clone();
                problems.at(file, place.of(field), field, message, Some(hint), || said);
            }
        }
        "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding" => {
            let policy = object.str_at(&["spec", "policyName"]).unwrap_or_default();
            if policy.is_empty() {
                let field = "spec.policyName";
                let message = format!("binding {name} must reference a policy (spec.policyName)");
                let said = message.clone();
                problems.at(file, place.of("spec"), field, message, None, || said);
            } else if !policy.ends_with(STATIC_SUFFIX) {
                let field = "spec.policyName";
                let message = format!(
                    "binding {name}: {field} {} must end with {}",
                    quote(policy),
                    quote(STATIC_SUFFIX)
                );
                let hint = "a static binding binds a policy of the same folder";
                let said = message.clone();
                problems.at(file, place.of(field), field, message, Some(hint), || said);
            } else if object.at(&["spec", "paramRef"]).is_some() {
                let field = "spec.paramRef";
                let message = format!("binding {name}: {field} is not supported for static manifests");
                let said = message.clone();
                problems.at(file, place.of(field), field, message, None, || said);
            }
        }
        _ => webhooks(file, object, &name, place, problems),
    }
}

/// Webhooks are reached by URL: a service reference would make them depend on the API.
fn webhooks(file: &File, object: &Value, name: &str, place: &Place, problems: &mut Problems<'_>) {
    let path = quote(&file.path);
    for (index, webhook) in object.list_at(&["webhooks"]).iter().enumerate() {
        let own = quote(webhook.str_at(&["name"]).unwrap_or_default());
        let field = format!("webhooks[{index}].clientConfig");
        if webhook.at(&["clientConfig", "service"]).is_some() {
            let field = format!("{field}.service");
            let why =
                "clientConfig.service is not supported for static manifests; use clientConfig.url instead";
            problems.at(
                file,
                place.of(&field),
                &field,
                format!("webhook {own} in {name}: {why}"),
                None,
                || format!("webhook {own} in {name} (file {path}): {why}"),
            );
        } else if webhook.str_at(&["clientConfig", "url"]).unwrap_or_default().is_empty() {
            let why = "clientConfig.url is required for static manifests";
            problems.at(
                file,
                place.of(&field),
                &field,
                format!("webhook {own} in {name}: {why}"),
                None,
                || format!("webhook {own} in {name} (file {path}): {why}"),
            );
        }
    }
}

/// A binding's policy is in the same folder.
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
            let said = message.clone();
            let file = File { path: binding.file.to_string(), content: Err(String::new()) };
            let position = value::yaml::Position { line: binding.line, column: 1 };
            let hint = "a policy and its binding are in one folder";
            problems.push(|| said, Problem::at(&file, position, "spec.policyName", message, Some(hint)));
        }
    }
}
