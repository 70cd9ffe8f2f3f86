//! Authenticates bootstrap tokens, which are Secrets in `kube-system`.

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use api::bootstrap_token::{BootstrapToken, BootstrapTokenSecret, SECRET_TYPE, USER_PREFIX};
use api::namespaces;
use aws_lc_rs::constant_time::verify_slices_are_equal;

use crate::user::User;

/// The state of a Secret with the name of a bootstrap token.
#[derive(Clone, Debug)]
pub enum FoundBootstrapSecret {
    /// No Secret has this name.
    Missing,
    /// The Secret has another type.
    OtherType,
    Token(Arc<BootstrapTokenSecret>),
}

/// Access to the Secrets that hold bootstrap tokens.
pub trait BootstrapSecrets: Send + Sync {
    /// Looks up a Secret of `kube-system` by name. Clients are not authenticated yet, so this must be cheap for every name, and must
    /// not leave the process. An error rejects the token.
    fn get(&self, name: &str) -> Result<FoundBootstrapSecret, String>;
}

/// Authenticates bootstrap tokens (`--enable-bootstrap-token-auth`).
#[derive(Clone)]
pub struct BootstrapTokens(Arc<dyn BootstrapSecrets>);

impl BootstrapTokens {
    pub fn new(secrets: Arc<dyn BootstrapSecrets>) -> Self {
        BootstrapTokens(secrets)
    }

    /// The user of a token, or for the log why it is rejected.
    pub(crate) fn user(&self, token: BootstrapToken<'_>, now: SystemTime) -> Result<User, String> {
        let name = token.secret_name();
        let refused = |why: &str| {
            Err(format!("Bootstrap secret {}/{name} matching bearer token {why}", namespaces::SYSTEM))
        };
        let secret = match self.0.get(&name)? {
            FoundBootstrapSecret::Missing => {
                return Err(format!("No secret of name {name} to match bootstrap bearer token"));
            }
            FoundBootstrapSecret::OtherType => {
                return refused(&format!("has invalid type, expected {SECRET_TYPE}."));
            }
            FoundBootstrapSecret::Token(secret) => secret,
        };
        if secret.is_deleting {
            return refused("is deleted and awaiting removal");
        }
        if verify_slices_are_equal(&secret.secret, token.secret.as_bytes()).is_err() {
            return refused("has invalid value for key token-secret.");
        }
        if secret.id != token.id.as_bytes() {
            return refused("has invalid value for key token-id.");
        }
        let micros = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
        if secret.expiry.has_passed(i64::try_from(micros).unwrap_or(i64::MAX)) {
            return refused("has expired.");
        }
        if !secret.allows_authentication {
            return refused("not marked usage-bootstrap-authentication=true.");
        }
        match secret.groups() {
            Ok(groups) => {
                Ok(User { name: format!("{USER_PREFIX}{}", token.id).into(), groups, ..User::default() })
            }
            Err(why) => refused(&format!("has invalid value for key auth-extra-groups: {why}.")),
        }
    }
}

impl fmt::Debug for BootstrapTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BootstrapTokens")
    }
}

#[cfg(test)]
mod tests;
