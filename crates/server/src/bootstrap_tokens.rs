//! Looks up bootstrap tokens in the store's memory.

use std::sync::Arc;

use api::bootstrap_token::BootstrapTokenSecret;
use api::namespaces;
use authn::{BootstrapSecrets, FoundBootstrapSecret};
use catalog::{encode, keys};
use storage::{EntryIdentity, Store, StoredEntry};
use value::TtlCache;

use crate::tokens::LARGE_BODY;

/// Number of large Secrets whose tokens are cached.
const CACHED_TOKENS: usize = 256;

/// The Secrets in memory. Like kube-apiserver, a server whose memory lags behind etcd accepts a deleted token until it catches up.
pub(crate) struct StoredBootstrapTokens {
    store: Store,
    /// The tokens of large Secrets. They expire only when the entry changes.
    large: TtlCache<Arc<str>, (EntryIdentity, FoundBootstrapSecret), u8>,
}

impl StoredBootstrapTokens {
    pub(crate) fn new(store: Store) -> Self {
        StoredBootstrapTokens { store, large: TtlCache::new(CACHED_TOKENS) }
    }
}

impl BootstrapSecrets for StoredBootstrapTokens {
    fn get(&self, name: &str) -> Result<FoundBootstrapSecret, String> {
        let Some(entry) = self.store.get(&keys::namespaced(keys::SECRETS, namespaces::SYSTEM, name)) else {
            return Ok(FoundBootstrapSecret::Missing);
        };
        if entry.body.len() <= LARGE_BODY {
            return read(&entry);
        }
        if let Some((of, found)) = self.large.get(&entry.key, 0)
            && of.is(&entry)
        {
            return Ok(found);
        }
        let found = read(&entry)?;
        self.large.insert(Arc::clone(&entry.key), (EntryIdentity::of(&entry), found.clone()), 0..1);
        Ok(found)
    }
}

fn read(entry: &StoredEntry) -> Result<FoundBootstrapSecret, String> {
    let secret = encode::tree(entry).map_err(|error| error.to_string())?;
    let token = BootstrapTokenSecret::of(&secret).map(Arc::new);
    Ok(token.map_or(FoundBootstrapSecret::OtherType, FoundBootstrapSecret::Token))
}
