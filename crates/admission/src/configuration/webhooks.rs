//! `WebhookAdmissionConfiguration`: how the two webhook plugins are configured.

use api::FieldError;
use value::{Path, Str};

use super::document::Document;

const SCHEME: &str = "k8s.io/apiserver/pkg/admission/plugin/webhook/config/kubeconfig.go:34";

/// The configuration of `MutatingAdmissionWebhook` or `ValidatingAdmissionWebhook`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebhookAdmission {
    /// The kubeconfig that says as whom webhooks are asked; empty if there is none.
    pub kubeconfig: Str,
    /// The folder of manifests with webhooks that the API cannot change; empty if there is none.
    pub static_manifests: Str,
}

impl WebhookAdmission {
    /// Reads a plugin's configuration.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        const OWNER: &str = "WebhookAdmission";
        let document = Document::read(bytes)?;
        document.is(super::GROUP, &["v1"], "WebhookAdmissionConfiguration", SCHEME)?;
        let (root, mut fields) = document.fields();
        let read = WebhookAdmission {
            kubeconfig: fields.text(&root, OWNER, "", "kubeConfigFile"),
            static_manifests: fields.text(&root, OWNER, "", "staticManifestsDir"),
        };
        fields.only(&root, "", &["apiVersion", "kind", "kubeConfigFile", "staticManifestsDir"]);
        fields.finish()?;
        if !read.kubeconfig.is_empty() && !read.kubeconfig.starts_with('/') {
            let at = Path::root().field("kubeConfigFile");
            let why = "must be an absolute file path";
            return Err(FieldError::invalid(&at, read.kubeconfig, why).to_string());
        }
        Ok(read)
    }
}
