//! `ValidatingAdmissionPolicyConfiguration` and `MutatingAdmissionPolicyConfiguration`: the configurations of
//! the two policy plugins.

use value::Str;

use super::document::ConfigDocument;

const SCHEME: &str = "k8s.io/apiserver/pkg/admission/plugin/policy/config/config.go:32";

/// Parses the configuration of one of the two plugins. Returns the directory of static manifests; empty if there
/// is none.
pub fn static_manifests(plugin: &str, bytes: &[u8]) -> Result<Str, String> {
    let document = ConfigDocument::read(bytes)?;
    let kind = format!("{plugin}Configuration");
    let other = match plugin {
        "ValidatingAdmissionPolicy" => "MutatingAdmissionPolicyConfiguration",
        _ => "ValidatingAdmissionPolicyConfiguration",
    };
    if document.expect_kind(super::GROUP, &["v1"], other, SCHEME).is_ok() {
        return Err(format!("unexpected type: *policyconfig.{other}"));
    }
    document.expect_kind(super::GROUP, &["v1"], &kind, SCHEME)?;
    let (root, mut fields) = document.fields();
    let directory = fields.text(&root, &kind, "", "staticManifestsDir");
    fields.reject_unknown(&root, "", &["apiVersion", "kind", "staticManifestsDir"]);
    fields.finish()?;
    Ok(directory)
}
