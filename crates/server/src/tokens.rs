//! Service-account tokens: what the server was told about them, and where the objects they are bound to are found.

use std::sync::Arc;

use api::attestation::WebhookConfigurationKind;
use api::meta;
use authn::tokens::{
    BoundKind, BoundObjects, Issuer, LookupFuture, PublicKey, RequestRules, TokenVerifier, discovery,
};
use storage::Store;
use value::{Str, Value};

use crate::config::ConfigError;
use crate::encode;
use crate::keys;

/// What the flags say about service-account tokens.
#[derive(Clone, Debug)]
pub struct TokenConfig {
    /// `--service-account-issuer`; the first one issues, all are believed.
    pub issuers: Vec<Str>,
    /// PEM of `--service-account-signing-key-file`.
    pub signing_key: Vec<u8>,
    /// PEM of each `--service-account-key-file`; the signing key's own public half if there is none.
    pub keys: Vec<Vec<u8>>,
    /// `--api-audiences`; the issuer if there are none.
    pub audiences: Vec<Str>,
    /// `--service-account-max-token-expiration` in seconds; 0 for none.
    pub max_seconds: i64,
    /// `--service-account-extend-token-expiration`.
    pub extend: bool,
    /// `--service-account-jwks-uri`.
    pub jwks_uri: String,
    /// `--service-account-lookup`.
    pub lookup: bool,
}

/// Issues tokens and publishes how to verify them.
pub struct Tokens {
    /// Issues them.
    pub issuer: Issuer,
    /// What may be asked for.
    pub rules: RequestRules,
    /// The OpenID provider document; absent if the issuer's URL does not allow one.
    pub configuration: Option<Vec<u8>>,
    /// The key set.
    pub key_set: Vec<u8>,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens").finish_non_exhaustive()
    }
}

impl Tokens {
    /// From what the flags say; also makes what verifies the tokens. `webhooks`: whether tokens can be bound to configurations of
    /// webhooks.
    pub fn new(
        config: TokenConfig,
        store: &Store,
        external_address: &str,
        webhooks: bool,
    ) -> Result<(Self, TokenVerifier), ConfigError> {
        let TokenConfig { issuers, signing_key, keys, audiences, max_seconds, extend, jwks_uri, lookup } =
            config;
        let mut public = Vec::new();
        for pem in &keys {
            let found =
                PublicKey::all_from_pem(pem).map_err(|e| ConfigError::flag("service-account-key-file", e))?;
            public.extend(found);
        }
        let Some(name) = issuers.first().cloned() else {
            return Err(ConfigError::flag("service-account-issuer", "an issuer is required to sign tokens"));
        };
        let issuer = Issuer::from_pem(name.clone(), &signing_key)
            .map_err(|e| ConfigError::flag("service-account-signing-key-file", e))?;
        if public.is_empty() {
            public.push(issuer.public_key().clone());
        }
        let audiences = if audiences.is_empty() { issuers.clone() } else { audiences };
        let configuration = match discovery::configuration(&name, &jwks_uri, external_address, &public) {
            Ok(document) => Some(document),
            Err(error) => {
                tracing::warn!(%error, "OpenID discovery is not published");
                None
            }
        };
        let tokens = Tokens {
            issuer,
            rules: RequestRules { audiences: audiences.clone(), max_seconds, extend, webhooks },
            configuration,
            key_set: discovery::key_set(&public),
        };
        let verifier = TokenVerifier::new(issuers, public, audiences, Arc::new(StoredObjects(store.clone())));
        let verifier = if lookup { verifier } else { verifier.without_lookup() };
        let verifier = if webhooks { verifier.with_webhooks() } else { verifier };
        Ok((tokens, verifier))
    }
}

/// The objects tokens are bound to, as they are stored now.
pub struct StoredObjects(pub Store);

impl BoundObjects for StoredObjects {
    fn get<'a>(&'a self, kind: BoundKind, namespace: &'a str, name: &'a str) -> LookupFuture<'a> {
        let key = match kind {
            BoundKind::ServiceAccount => keys::namespaced(keys::SERVICE_ACCOUNTS, namespace, name),
            BoundKind::Pod => keys::namespaced(keys::PODS, namespace, name),
            BoundKind::Secret => keys::namespaced(keys::SECRETS, namespace, name),
            BoundKind::Node => format!("{}{name}", keys::NODES),
            BoundKind::Webhooks(WebhookConfigurationKind::Validating) => {
                format!("{}{name}", keys::VALIDATING_WEBHOOKS)
            }
            BoundKind::Webhooks(WebhookConfigurationKind::Mutating) => {
                format!("{}{name}", keys::MUTATING_WEBHOOKS)
            }
        };
        let found = match self.0.get(&key) {
            None => Ok(None),
            Some(entry) => {
                encode::tree(&entry).map(|object| Some(Arc::new(object))).map_err(|e| e.to_string())
            }
        };
        Box::pin(std::future::ready(found))
    }

    /// A group that this server itself has, built in or by a CRD, has an API service of its own: Kubernetes registers one and
    /// registers it again when it is deleted. Of other groups somebody registered one, or there is none.
    fn has_api_service(&self, group: &str) -> bool {
        let names = |object: &Value| {
            object.str_at(&["spec", "group"]).unwrap_or_default() == group && !meta::is_deleting(object)
        };
        let any = |scope: &str| {
            let page = self.0.snapshot(scope);
            page.entries.iter().filter_map(|entry| encode::tree(entry).ok()).any(|object| names(&object))
        };
        kinds::table::group(group).is_some() || any(keys::API_SERVICES) || any(keys::CRDS)
    }
}
