//! Maps keys of the store to keys in etcd.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

/// Selects keys of the store: a function that returns true for them.
#[derive(Clone)]
pub struct KeyFilter(pub Arc<dyn Fn(&str) -> bool + Send + Sync>);

impl fmt::Debug for KeyFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyFilter")
    }
}

/// The part of etcd that belongs to this store: the keys below `--etcd-prefix`, or some of them.
#[derive(Clone, Debug)]
pub(crate) struct KeySpace {
    /// Begins with `/` and does not end with it.
    prefix: String,
    /// The first part of all keys of the store, which `prefix` replaces.
    store_root: String,
    /// The keys of the store that are in this cluster; `None` for all.
    owned: Option<KeyFilter>,
}

impl KeySpace {
    /// `prefix` as in `--etcd-prefix`: with or without slashes around it.
    pub(crate) fn new(prefix: &str, store_root: &str) -> Self {
        let prefix = format!("/{}", prefix.trim_matches('/')).trim_end_matches('/').to_owned();
        KeySpace { prefix, store_root: store_root.to_owned(), owned: None }
    }

    /// Without all keys of the store except these.
    pub(crate) fn limited_to(self, owned: KeyFilter) -> Self {
        KeySpace { owned: Some(owned), ..self }
    }

    /// The key in etcd for a key or a directory of the store.
    pub(crate) fn etcd_key(&self, key: &str) -> Bytes {
        let rest = key.strip_prefix(&self.store_root).unwrap_or(key);
        [self.prefix.as_str(), rest].concat().into()
    }

    /// The key of the store for a key in etcd; `None` for keys that do not belong to it or are not text.
    pub(crate) fn store_key(&self, key: &[u8]) -> Option<Arc<str>> {
        let rest = std::str::from_utf8(key).ok()?.strip_prefix(&self.prefix)?;
        let key: Arc<str> = rest.starts_with('/').then(|| [&self.store_root, rest].concat().into())?;
        self.owned.as_ref().is_none_or(|KeyFilter(owns)| owns(&key)).then_some(key)
    }

    /// The directory of all keys, which ends with `/`.
    pub(crate) fn directory(&self) -> String {
        [&self.prefix, "/"].concat()
    }

    /// The key of the marker of an incomplete migration. No key of any prefix has this form, because those begin with `/`.
    pub(crate) fn migration_marker(&self) -> Bytes {
        ["portcullis-migration:", &self.directory()].concat().into()
    }

    /// The key that a health check reads; it need not exist.
    pub(crate) fn health(&self) -> Bytes {
        [&self.prefix, "/health"].concat().into()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{KeyFilter, KeySpace};

    #[test]
    fn keys_are_mapped_there_and_back_below_any_prefix() {
        for (prefix, in_etcd) in [
            ("/registry", "/registry/pods/a/b"),
            ("other/", "/other/pods/a/b"),
            ("/", "/pods/a/b"),
            ("", "/pods/a/b"),
        ] {
            let space = KeySpace::new(prefix, "/registry");
            assert_eq!(space.etcd_key("/registry/pods/a/b"), in_etcd, "{prefix}");
            assert_eq!(
                space.store_key(in_etcd.as_bytes()).as_deref(),
                Some("/registry/pods/a/b"),
                "{prefix}"
            );
        }
    }

    #[test]
    fn the_marker_of_a_migration_is_outside_of_every_prefix() {
        let prefixes = ["/registry", "/", "portcullis-migration:", "/other"];
        let spaces = prefixes.map(|prefix| KeySpace::new(prefix, "/registry"));
        for marked in &spaces {
            for space in &spaces {
                assert_eq!(space.store_key(&marked.migration_marker()), None, "{marked:?} {space:?}");
            }
        }
    }

    #[test]
    fn keys_outside_the_prefix_do_not_belong_to_the_store() {
        let space = KeySpace::new("/registry", "/registry");
        for key in [&b"/registry2/pods/a"[..], b"compact_rev_key", b"/registry", b"/registry/\xff", b""] {
            assert_eq!(space.store_key(key), None, "{key:?}");
        }
    }

    #[test]
    fn keys_that_the_filter_does_not_select_do_not_belong_to_the_store() {
        let events = KeyFilter(Arc::new(|key: &str| key.starts_with("/registry/events/")));
        let space = KeySpace::new("/other", "/registry").limited_to(events);
        assert_eq!(space.store_key(b"/other/events/a/b").as_deref(), Some("/registry/events/a/b"));
        assert_eq!(space.store_key(b"/other/pods/a/b"), None);
    }
}
