//! Service account tokens: their configuration, and the lookup of the objects that they are bound to.

use std::sync::Arc;

use api::attestation::WebhookConfigurationKind;
use api::meta;
use authn::tokens::{
    BoundKind, BoundObjects, Issuer, LookupFuture, RequestRules, TokenVerificationKey, TokenVerifier,
    discovery,
};
use catalog::encode;
use catalog::keys;
use storage::{EntryIdentity, Store, StoredEntry};
use value::{Map, Str, TtlCache, Value};

use crate::config::ConfigError;
use crate::consistent_reads;

/// The flags of service account tokens.
#[derive(Clone, Debug)]
pub struct TokenConfig {
    /// `--service-account-issuer`; new tokens name the first one, tokens of all are accepted.
    pub issuers: Vec<Str>,
    /// PEM content of the file `--service-account-signing-key-file`.
    pub signing_key: Vec<u8>,
    /// PEM content of each `--service-account-key-file`; if empty, the public half of the signing key is used.
    pub keys: Vec<Vec<u8>>,
    /// `--api-audiences`; the issuers if empty.
    pub audiences: Vec<Str>,
    /// `--service-account-max-token-expiration` in seconds; 0 for no limit.
    pub max_seconds: i64,
    /// Extends projected tokens to one year for clients that do not reload them (`--service-account-extend-token-expiration`).
    pub extend: bool,
    /// `--service-account-jwks-uri`; if empty, the default path on the external address.
    pub jwks_uri: String,
    /// Accepts legacy tokens only while their Secret exists (`--service-account-lookup`).
    pub lookup: bool,
}

/// Issues tokens and publishes how to verify them.
pub struct Tokens {
    pub issuer: Issuer,
    /// Defaults and limits of TokenRequests.
    pub rules: RequestRules,
    /// The OpenID provider document; absent if the issuer's URL does not allow one.
    pub configuration: Option<Vec<u8>>,
    /// The JSON Web Key Set with the public keys.
    pub key_set: Vec<u8>,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens").finish_non_exhaustive()
    }
}

impl Tokens {
    /// Builds the issuer and the verifier of tokens. `webhooks`: tokens can be bound to webhook configurations.
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
            let found = TokenVerificationKey::all_from_pem(pem)
                .map_err(|e| ConfigError::flag("service-account-key-file", e))?;
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
                tracing::warn!(%error, "cannot serve OpenID discovery; set --service-account-issuer to an https URL");
                None
            }
        };
        let tokens = Tokens {
            issuer,
            rules: RequestRules { audiences: audiences.clone(), max_seconds, extend, webhooks },
            configuration,
            key_set: discovery::key_set(&public),
        };
        let verifier =
            TokenVerifier::new(issuers, public, audiences, Arc::new(StoredObjects::in_memory(store.clone())));
        let verifier = if lookup { verifier } else { verifier.without_lookup() };
        let verifier = if webhooks { verifier.with_webhooks() } else { verifier };
        Ok((tokens, verifier))
    }
}

/// Looks up the objects that tokens are bound to in the store.
pub struct StoredObjects {
    store: Store,
    /// Reads every object from the backend, even one that memory has. As in kube-apiserver, tokens are issued with objects from the backend
    /// and verified with objects in memory.
    is_newest: bool,
    /// Name, UID and deletion timestamp of large objects, by their storage key. They expire only when the entry changes.
    identities: TtlCache<Arc<str>, (EntryIdentity, Arc<Value>), u8>,
}

/// Objects and Secrets with larger bodies are not decoded for each request that uses their token.
pub(crate) const LARGE_BODY: usize = 8 * 1024;
/// Number of large objects whose identities are cached.
const CACHED_IDENTITIES: usize = 4096;

impl StoredObjects {
    /// For verifying tokens: an object that memory lacks is looked up in the backend.
    pub fn in_memory(store: Store) -> Self {
        StoredObjects { store, is_newest: false, identities: TtlCache::new(CACHED_IDENTITIES) }
    }

    /// For issuing tokens: every object is looked up in the backend.
    pub fn newest(store: Store) -> Self {
        StoredObjects { store, is_newest: true, identities: TtlCache::new(CACHED_IDENTITIES) }
    }

    /// The entry of an object. Another server may have created it a moment ago.
    async fn entry(&self, key: &str) -> Result<Option<Arc<StoredEntry>>, String> {
        match self.store.get(key).filter(|_| !self.is_newest) {
            None => {
                consistent_reads::entry(&self.store, key).await.map_err(|status| status.message().to_owned())
            }
            found => Ok(found),
        }
    }

    /// The identity of an object, decoded once for each entry in memory if it is large.
    fn identity_of(&self, entry: &Arc<StoredEntry>) -> Result<Arc<Value>, String> {
        if entry.body.len() <= LARGE_BODY {
            return decode(entry);
        }
        if let Some((of, known)) = self.identities.get(&entry.key, 0)
            && of.is(entry)
        {
            return Ok(known);
        }
        let object = decode(entry)?;
        let mut identity = Value::Map(Map::new());
        for field in ["name", "uid", "deletionTimestamp"] {
            if let Some(value) = object.at(&["metadata", field]) {
                identity.set_at(&["metadata", field], value.clone());
            }
        }
        let identity = Arc::new(identity);
        self.identities.insert(
            Arc::clone(&entry.key),
            (EntryIdentity::of(entry), Arc::clone(&identity)),
            0..1,
        );
        Ok(identity)
    }
}

fn decode(entry: &StoredEntry) -> Result<Arc<Value>, String> {
    encode::tree(entry).map(Arc::new).map_err(|e| e.to_string())
}

fn key(kind: BoundKind, namespace: &str, name: &str) -> String {
    match kind {
        BoundKind::ServiceAccount => keys::namespaced(keys::SERVICE_ACCOUNTS, namespace, name),
        BoundKind::Pod => keys::namespaced(keys::PODS, namespace, name),
        BoundKind::Secret => keys::namespaced(keys::SECRETS, namespace, name),
        BoundKind::Node => keys::cluster_scoped(keys::NODES, name),
        BoundKind::Webhooks(WebhookConfigurationKind::Validating) => {
            keys::cluster_scoped(keys::VALIDATING_WEBHOOKS, name)
        }
        BoundKind::Webhooks(WebhookConfigurationKind::Mutating) => {
            keys::cluster_scoped(keys::MUTATING_WEBHOOKS, name)
        }
    }
}

impl BoundObjects for StoredObjects {
    fn get<'a>(&'a self, kind: BoundKind, namespace: &'a str, name: &'a str) -> LookupFuture<'a> {
        let key = key(kind, namespace, name);
        Box::pin(async move { self.entry(&key).await?.map(|entry| decode(&entry)).transpose() })
    }

    fn identity<'a>(&'a self, kind: BoundKind, namespace: &'a str, name: &'a str) -> LookupFuture<'a> {
        let key = key(kind, namespace, name);
        Box::pin(async move { self.entry(&key).await?.map(|entry| self.identity_of(&entry)).transpose() })
    }

    /// Built-in groups and groups of CRDs always have an APIService: kube-apiserver registers one for each, and registers it again
    /// when it is deleted. Any other group has one only if it is stored.
    fn has_api_service(&self, group: &str) -> bool {
        let names = |object: &Value| {
            object.str_at(&["spec", "group"]).unwrap_or_default() == group && !meta::is_deleting(object)
        };
        let any = |scope: &str| {
            let page = self.store.snapshot(scope);
            page.entries.iter().filter_map(|entry| encode::tree(entry).ok()).any(|object| names(&object))
        };
        kinds::table::group(group).is_some() || any(keys::API_SERVICES) || any(keys::CRDS)
    }
}
