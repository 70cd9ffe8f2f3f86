//! `WebhookAdmissionConfiguration`: the configuration of the two webhook plugins.

use api::FieldError;
use value::{Path, Str};

use super::document::ConfigDocument;

const SCHEME: &str = "k8s.io/apiserver/pkg/admission/plugin/webhook/config/kubeconfig.go:34";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebhookAdmission {
    /// The kubeconfig with the credentials for webhooks; empty if there is none.
    pub kubeconfig: Str,
    /// The directory of static manifests; empty if there is none.
    pub static_manifests: Str,
}

impl WebhookAdmission {
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        const OWNER: &str = "WebhookAdmission";
        let document = ConfigDocument::read(bytes)?;
        document.expect_kind(super::GROUP, &["v1"], "WebhookAdmissionConfiguration", SCHEME)?;
        let (root, mut fields) = document.fields();
        let read = WebhookAdmission {
            kubeconfig: fields.text(&root, OWNER, "", "kubeConfigFile"),
            static_manifests: fields.text(&root, OWNER, "", "staticManifestsDir"),
        };
        fields.reject_unknown(&root, "", &["apiVersion", "kind", "kubeConfigFile", "staticManifestsDir"]);
        fields.finish()?;
        if !read.kubeconfig.is_empty() && !read.kubeconfig.starts_with('/') {
            let at = Path::root().field("kubeConfigFile");
            let why = "must be an absolute file path";
            return Err(FieldError::invalid(&at, read.kubeconfig, why).to_string());
        }
        Ok(read)
    }
}
