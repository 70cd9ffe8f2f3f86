//! Warnings about manifests that are valid but probably not intended. In strict mode they are errors.

use std::collections::{BTreeMap, HashSet};

use api::field::quote;
use api::meta;
use value::Value;
use value::yaml::Position;

use super::decode::ObjectSpans;
use super::problem::ManifestProblem;
use super::{Manifest, ManifestFile};
use crate::policy::{TypeCheckKinds, type_warnings};

pub(super) fn of_object(
    file: &ManifestFile,
    kind: &str,
    object: &Value,
    spans: &ObjectSpans,
    catalog: &dyn TypeCheckKinds,
) -> Vec<ManifestProblem> {
    let name = quote(meta::name(object));
    if kind.ends_with("AdmissionPolicy") {
        let problem = |warning: crate::policy::TypeWarning| {
            let message = format!("{kind} {name}: {}: {}", warning.field, warning.message);
            let hint = "evaluating this expression fails for the objects that the policy is for";
            ManifestProblem::at(file, spans.of(&warning.field), &warning.field, message, Some(hint))
        };
        return type_warnings(object, catalog).into_iter().map(problem).collect();
    }
    let mut problems = Vec::new();
    for (index, webhook) in object.list_at(&["webhooks"]).iter().enumerate() {
        let Some(bundle) = webhook.str_at(&["clientConfig", "caBundle"]).filter(|text| !text.is_empty())
        else {
            continue;
        };
        let pem = value::go::base64::STD.decode(bundle).unwrap_or_default();
        if !x509::pem::blocks(&pem).any(|block| block.is_certificate()) {
            let field = format!("webhooks[{index}].clientConfig.caBundle");
            let own = quote(webhook.str_at(&["name"]).unwrap_or_default());
            let message =
                format!("{kind} {name}: {field} of webhook {own} has no PEM-encoded certificate in it");
            let hint =
                "every call of the webhook fails; put in a PEM file, encoded with `base64 --wrap=0 ca.crt`";
            problems.push(ManifestProblem::at(file, spans.of(&field), &field, message, Some(hint)));
        }
    }
    problems
}

/// Warns if the directory has no objects, or policies without a binding.
pub(super) fn of_directory(
    directory: &str,
    objects: &BTreeMap<&'static str, Vec<Manifest>>,
) -> Vec<ManifestProblem> {
    if objects.values().all(Vec::is_empty) {
        let hint = "put manifests into it, or leave it out of the configuration";
        let message = "the directory has no objects, so nothing is enforced from it".to_owned();
        return vec![ManifestProblem::of_file(directory, message, Some(hint))];
    }
    let mut problems = Vec::new();
    for (policies, bindings) in [
        ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"),
        ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
    ] {
        let bound: HashSet<&str> = objects
            .get(bindings)
            .into_iter()
            .flatten()
            .filter_map(|binding| binding.object.str_at(&["spec", "policyName"]))
            .collect();
        for policy in objects.get(policies).into_iter().flatten() {
            let name = meta::name(&policy.object);
            if !bound.contains(name) {
                let message = format!("{policies} {} has no binding, so it is not enforced", quote(name));
                let hint = format!("add a {bindings} with `policyName: {name}` to the directory");
                let position = Position { line: policy.line, column: 1 };
                let file = ManifestFile { path: policy.file.to_string(), content: Err(String::new()) };
                problems.push(ManifestProblem::at(&file, position, "", message, Some(&hint)));
            }
        }
    }
    problems
}
