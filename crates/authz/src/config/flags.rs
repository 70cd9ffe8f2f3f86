//! Builds an [`AuthorizationConfiguration`] from flags.

use std::time::Duration;

use api::field::quote;

use crate::conditions::Conditions;
use crate::config::{
    AuthorizationConfiguration, AuthorizerType, ConfiguredAuthorizer, FailurePolicy,
    SubjectAccessReviewVersion, WebhookConfiguration,
};

/// The name of the webhook that flags configure.
pub(super) const WEBHOOK_NAME: &str = "default";
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(30);

/// The `--authorization-*` flags, except the configuration file.
#[derive(Clone, Debug)]
pub struct Flags {
    pub modes: Vec<String>,
    pub policy_file: String,
    pub webhook_config_file: String,
    pub webhook_version: String,
    /// A zero duration disables caching.
    pub authorized_ttl: Duration,
    /// A zero duration disables caching.
    pub unauthorized_ttl: Duration,
}

impl Default for Flags {
    fn default() -> Self {
        Flags {
            modes: Vec::new(),
            policy_file: String::new(),
            webhook_config_file: String::new(),
            webhook_version: "v1beta1".to_owned(),
            authorized_ttl: Duration::from_mins(5),
            unauthorized_ttl: Duration::from_secs(30),
        }
    }
}

impl Flags {
    /// The configuration, or all errors in kube-apiserver's words.
    pub fn configuration(&self) -> Result<AuthorizationConfiguration, Vec<String>> {
        let mut errors = Vec::new();
        if self.modes.is_empty() {
            errors.push("at least one authorization-mode must be passed".to_owned());
        }
        for mode in &self.modes {
            match AuthorizerType::parse(mode) {
                None => errors.push(format!("authorization-mode {} is not a valid mode", quote(mode))),
                Some(AuthorizerType::Abac) if self.policy_file.is_empty() => {
                    errors.push("authorization-mode ABAC's authorization policy file not passed".to_owned());
                }
                Some(AuthorizerType::Webhook) if self.webhook_config_file.is_empty() => {
                    errors
                        .push("authorization-mode Webhook's authorization config file not passed".to_owned());
                }
                Some(_) => {}
            }
        }
        let has = |kind: AuthorizerType| self.modes.iter().any(|mode| mode == kind.as_str());
        if !self.policy_file.is_empty() && !has(AuthorizerType::Abac) {
            errors.push("cannot specify --authorization-policy-file without mode ABAC".to_owned());
        }
        if !self.webhook_config_file.is_empty() && !has(AuthorizerType::Webhook) {
            errors.push("cannot specify --authorization-webhook-config-file without mode Webhook".to_owned());
        }
        if (1..self.modes.len()).any(|i| self.modes.iter().take(i).any(|m| Some(m) == self.modes.get(i))) {
            let modes: Vec<String> = self.modes.iter().map(|mode| quote(mode)).collect();
            errors
                .push(format!("authorization-mode [{}] has mode specified more than once", modes.join(" ")));
        }
        let version = match self.webhook_version.as_str() {
            "v1" => Some(SubjectAccessReviewVersion::V1),
            "v1beta1" => Some(SubjectAccessReviewVersion::V1Beta1),
            other => {
                // kube-apiserver checks this only if everything else is valid.
                if has(AuthorizerType::Webhook) && errors.is_empty() {
                    errors.push(format!(
                        "invalid authorization config: unsupported webhook authorizer version {}, supported versions are \"v1\", \"v1beta1\"",
                        quote(other)
                    ));
                }
                None
            }
        };
        if !errors.is_empty() {
            return Err(errors);
        }
        let non_zero = |ttl: Duration| (!ttl.is_zero()).then_some(ttl);
        let authorizer = |kind: AuthorizerType| match (kind, version) {
            (AuthorizerType::Webhook, Some(version)) => ConfiguredAuthorizer {
                kind,
                name: WEBHOOK_NAME.into(),
                webhook: Some(WebhookConfiguration {
                    authorized_ttl: non_zero(self.authorized_ttl),
                    unauthorized_ttl: non_zero(self.unauthorized_ttl),
                    timeout: WEBHOOK_TIMEOUT,
                    version,
                    failure_policy: FailurePolicy::NoOpinion,
                    kubeconfig: self.webhook_config_file.as_str().into(),
                    conditions: Conditions::default(),
                }),
            },
            _ => ConfiguredAuthorizer { kind, name: kind.step_name(), webhook: None },
        };
        let kinds = self.modes.iter().filter_map(|mode| AuthorizerType::parse(mode));
        Ok(AuthorizationConfiguration { authorizers: kinds.map(authorizer).collect() })
    }
}
