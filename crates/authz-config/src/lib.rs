//! Authorization configuration: builds the authorizer chain from flags or a file, and reloads it when the file changes.
//!
//! [`Authorization`] is the configuration of the server. [`Authorization::load`] reads and checks it before anything else starts;
//! [`LoadedAuthorization::build_chain`] builds the chain once there is a store; [`follow`] replaces it when the file or a file that it
//! names changes. The crate `authz` makes the decisions.
//!
//! ```
//! use authz_config::Authorization;
//!
//! # fn main() -> Result<(), runtime::ConfigError> {
//! let loaded = Authorization::rbac().load()?;
//! assert_eq!(loaded.configuration.authorizers.len(), 1);
//! # Ok(())
//! # }
//! ```

mod observe;
mod reload;
mod send;

pub use send::sender;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use authz::abac::AbacPolicies;
use authz::config::{
    self, AuthorizationConfigError, AuthorizationConfiguration, AuthorizerType, CheckedConfiguration,
    Environment, Flags, WebhookConfiguration,
};
use authz::node::NodeAuthorizer;
use authz::{AuthorizerChain, ReviewCompiler, SharedAuthorizers, assemble, rbac};
use runtime::ConfigError;
use runtime::files;

pub use observe::AuthorizationMetrics;
pub use reload::{ReferencedFiles, follow};

/// Source of the authorization configuration.
#[derive(Clone, Debug)]
pub enum Authorization {
    /// `--authorization-mode` and the flags of its modes.
    Flags(Flags),
    /// A configuration file, which is reloaded when it changes.
    File {
        /// Value of the flag `--authorization-config`.
        path: PathBuf,
        /// `--authorization-policy-file`, for the type ABAC.
        policy_file: String,
    },
}

impl Authorization {
    /// RBAC as the only authorizer.
    pub fn rbac() -> Self {
        Authorization::Flags(Flags { modes: vec!["RBAC".to_owned()], ..Flags::default() })
    }
}

/// A configuration that was read and checked.
pub struct LoadedAuthorization {
    pub configuration: AuthorizationConfiguration,
    /// Path and content of the file, if the configuration comes from one.
    pub source: Option<(PathBuf, Vec<u8>)>,
    policies: Option<Arc<AbacPolicies>>,
}

/// Why a configuration cannot be used.
pub enum Unusable {
    /// The file cannot be read.
    Unreadable(String),
    /// The configuration is invalid.
    AuthorizationConfigError(Box<AuthorizationConfigError>),
    /// The configuration is valid, but its chain cannot be built, for example because a kubeconfig is missing.
    Unmade(String),
}

impl Unusable {
    /// The message in kube-apiserver's words.
    pub fn message(&self) -> String {
        match self {
            Unusable::Unreadable(why) | Unusable::Unmade(why) => why.clone(),
            Unusable::AuthorizationConfigError(refused) => refused.to_string(),
        }
    }

    /// One line per problem, with file and position.
    pub fn located(&self, path: &Path) -> Vec<String> {
        match self {
            Unusable::Unreadable(why) | Unusable::Unmade(why) => vec![format!("{}: {why}", path.display())],
            Unusable::AuthorizationConfigError(refused) => refused.located(&path.display().to_string()),
        }
    }
}

impl Authorization {
    /// Reads the files and checks the configuration.
    pub fn load(&self) -> Result<LoadedAuthorization, ConfigError> {
        let (configuration, source, policy_file) = match self {
            Authorization::Flags(flags) => {
                let configuration = flags.configuration().map_err(|errors| {
                    let shown: Vec<String> = errors.iter().map(|error| with_flag(error)).collect();
                    ConfigError::other(shown.join("; ")).in_kubernetes_words(api::field::aggregate(&errors))
                })?;
                (configuration, None, &flags.policy_file)
            }
            Authorization::File { path, policy_file } => {
                let refuse = |unusable: &Unusable| {
                    ConfigError::flag("authorization-config", unusable.located(path).join("\n  "))
                        .in_kubernetes_words(unusable.message())
                };
                let bytes = read(path).map_err(|unusable| refuse(&unusable))?;
                let checked = parse(&bytes, &[]).map_err(|unusable| refuse(&unusable))?;
                warn(&checked, path);
                (checked.configuration, Some((path.clone(), bytes)), policy_file)
            }
        };
        let uses_policies = configuration.authorizers.iter().any(|a| a.kind == AuthorizerType::Abac);
        let policies = if uses_policies { Some(Arc::new(policies(policy_file)?)) } else { None };
        Ok(LoadedAuthorization { configuration, source, policies })
    }
}

/// Adds the missing flag to a message of kube-apiserver that does not name it.
fn with_flag(error: &str) -> String {
    let flag = match error {
        "authorization-mode ABAC's authorization policy file not passed" => "--authorization-policy-file",
        "authorization-mode Webhook's authorization config file not passed" => {
            "--authorization-webhook-config-file"
        }
        _ => return error.to_owned(),
    };
    format!("{error} (set {flag})")
}

pub fn read(path: &Path) -> Result<Vec<u8>, Unusable> {
    files::read(path).map_err(|why| {
        let operation = if why == "is a directory" { "read" } else { "open" };
        Unusable::Unreadable(format!("{operation} {}: {why}", path.display()))
    })
}

/// Parses and checks the content of the file. `required`: the authorizer types that a reload must not remove.
pub fn parse(bytes: &[u8], required: &[AuthorizerType]) -> Result<CheckedConfiguration, Unusable> {
    let compiler = ReviewCompiler::default();
    let environment = Environment { compiler: &compiler, kubeconfig: &kubeconfig_is_there, required };
    config::load(bytes, &environment).map_err(|refused| Unusable::AuthorizationConfigError(Box::new(refused)))
}

/// Logs the parts of a configuration that are valid but probably not intended.
pub fn warn(checked: &CheckedConfiguration, path: &Path) {
    for warning in &checked.warnings {
        tracing::warn!(
            problem = warning.located(&path.display().to_string()),
            "the authorization config has a setting that is valid but probably not intended; check it"
        );
    }
}

/// Checks that a kubeconfig is a regular file. Its content is read when the client of the webhook is built.
pub fn kubeconfig_is_there(path: &str) -> Result<(), String> {
    let metadata = std::fs::metadata(path)
        .map_err(|error| format!("error loading file: stat {path}: {}", files::go_words(&error)))?;
    if metadata.is_file() { Ok(()) } else { Err("must be a regular file".to_owned()) }
}

fn policies(path: &str) -> Result<AbacPolicies, ConfigError> {
    let fail = |why: String| {
        let words = format!("invalid authorization config: {why}");
        ConfigError::flag("authorization-policy-file", why).in_kubernetes_words(words)
    };
    if path.is_empty() {
        let why = "missing; the authorizer type ABAC needs the file of its policies".to_owned();
        return Err(ConfigError::flag("authorization-policy-file", why)
            .in_kubernetes_words("invalid authorization config: open : no such file or directory"));
    }
    let bytes = files::read(Path::new(path)).map_err(|why| fail(format!("open {path}: {why}")))?;
    let text = String::from_utf8_lossy(&bytes);
    let (policies, unversioned) =
        AbacPolicies::parse(path, &text).map_err(|error| fail(error.to_string()))?;
    if unversioned {
        tracing::warn!(
            "Policy file {path} contained unversioned rules. See docs/admin/authorization.md#abac-mode for ABAC file format details."
        );
    }
    Ok(policies)
}

/// The parts of a chain that do not depend on its configuration file: built once at start, reused by reloads.
#[derive(Clone)]
pub struct AuthorizerParts {
    pub rbac: Option<Arc<rbac::RbacIndex>>,
    pub node: Option<Arc<NodeAuthorizer>>,
    policies: Option<Arc<AbacPolicies>>,
    metrics: Arc<AuthorizationMetrics>,
}

impl LoadedAuthorization {
    /// Whether the chain has an authorizer of this type.
    pub fn uses(&self, kind: AuthorizerType) -> bool {
        self.configuration.authorizers.iter().any(|a| a.kind == kind)
    }

    /// The authorizer types that a reload must not remove: all but Webhook.
    pub fn required(&self) -> Vec<AuthorizerType> {
        let kinds = self.configuration.authorizers.iter().map(|a| a.kind);
        kinds.filter(|kind| *kind != AuthorizerType::Webhook).collect()
    }

    /// Builds the first chain. Also returns its parts for reloads, and the files that it was built from.
    pub fn build_chain(
        &self,
        index: &Arc<rbac::RbacIndex>,
        node: Option<Arc<NodeAuthorizer>>,
        metrics: Arc<AuthorizationMetrics>,
    ) -> Result<(AuthorizerChain, AuthorizerParts, ReferencedFiles), ConfigError> {
        let rbac = self.uses(AuthorizerType::Rbac).then(|| Arc::clone(index));
        let parts = AuthorizerParts { rbac, node, policies: self.policies.clone(), metrics };
        let (chain, files) = parts.chain(&self.configuration);
        let chain = chain.map_err(|why| {
            let words = format!("invalid authorization config: {why}");
            let flag = if self.source.is_some() {
                "authorization-config"
            } else {
                "authorization-webhook-config-file"
            };
            ConfigError::flag(flag, why).in_kubernetes_words(words)
        })?;
        Ok((chain, parts, files))
    }
}

impl AuthorizerParts {
    /// Builds the chain. Also returns the files that it was built from besides the configuration file, even if it cannot be built.
    pub fn chain(
        &self,
        configuration: &AuthorizationConfiguration,
    ) -> (Result<AuthorizerChain, String>, ReferencedFiles) {
        let several =
            configuration.authorizers.iter().filter(|a| a.kind == AuthorizerType::Webhook).count() > 1;
        let shared = SharedAuthorizers {
            rbac: self.rbac.clone(),
            node: self.node.clone(),
            abac: self.policies.clone(),
            observer: self.metrics.observer(several),
        };
        let followed = std::cell::RefCell::new(ReferencedFiles::default());
        let sender = |name: &str, webhook: &WebhookConfiguration| {
            let mut files = Vec::new();
            let path = Path::new(webhook.kubeconfig.as_str());
            let sender = send::sender(name, path, webhook.timeout, &mut files);
            followed.borrow_mut().add(files);
            sender
        };
        let chain = assemble(configuration, &shared, &sender);
        (chain, followed.into_inner())
    }

    pub fn metrics(&self) -> &AuthorizationMetrics {
        &self.metrics
    }
}
