//! `ValidatingAdmissionPolicyConfiguration` and `MutatingAdmissionPolicyConfiguration`: how the two policy plugins are configured.

use value::Str;

use super::document::Document;

const SCHEME: &str = "k8s.io/apiserver/pkg/admission/plugin/policy/config/config.go:32";

/// Reads the configuration of `plugin`, which is one of the two: the folder of manifests with policies that the API cannot change;
/// empty if there is none.
pub fn static_manifests(plugin: &str, bytes: &[u8]) -> Result<Str, String> {
    let document = Document::read(bytes)?;
    let kind = format!("{plugin}Configuration");
    let other = match plugin {
        "ValidatingAdmissionPolicy" => "MutatingAdmissionPolicyConfiguration",
        _ => "ValidatingAdmissionPolicyConfiguration",
    };
    if document.is(super::GROUP, &["v1"], other, SCHEME).is_ok() {
        return Err(format!("unexpected type: *policyconfig.{other}"));
    }
    document.is(super::GROUP, &["v1"], &kind, SCHEME)?;
    let (root, mut fields) = document.fields();
    let folder = fields.text(&root, &kind, "", "staticManifestsDir");
    fields.only(&root, "", &["apiVersion", "kind", "staticManifestsDir"]);
    fields.finish()?;
    Ok(folder)
}
