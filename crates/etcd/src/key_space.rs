//! Maps keys of the store to keys in etcd.

use std::sync::Arc;

use bytes::Bytes;

/// The part of etcd that belongs to this store: the keys below `--etcd-prefix`.
#[derive(Clone, Debug)]
pub(crate) struct KeySpace {
    /// Begins with `/` and does not end with it.
    prefix: String,
    /// The first part of all keys of the store, which `prefix` replaces.
    store_root: String,
}

impl KeySpace {
    /// `prefix` as in `--etcd-prefix`: with or without slashes around it.
    pub(crate) fn new(prefix: &str, store_root: &str) -> Self {
        let prefix = format!("/{}", prefix.trim_matches('/')).trim_end_matches('/').to_owned();
        KeySpace { prefix, store_root: store_root.to_owned() }
    }

    /// The key in etcd for a key or a directory of the store.
    pub(crate) fn etcd_key(&self, key: &str) -> Bytes {
        let rest = key.strip_prefix(&self.store_root).unwrap_or(key);
        [self.prefix.as_str(), rest].concat().into()
    }

    /// The key of the store for a key in etcd; `None` for keys that do not belong to it or are not text.
    pub(crate) fn store_key(&self, key: &[u8]) -> Option<Arc<str>> {
        let rest = std::str::from_utf8(key).ok()?.strip_prefix(&self.prefix)?;
        rest.starts_with('/').then(|| [&self.store_root, rest].concat().into())
    }

    /// The directory of all keys, which ends with `/`.
    pub(crate) fn directory(&self) -> String {
        [&self.prefix, "/"].concat()
    }

    /// The key that a health check reads; it need not exist.
    pub(crate) fn health(&self) -> Bytes {
        [&self.prefix, "/health"].concat().into()
    }
}

#[cfg(test)]
mod tests {
    use super::KeySpace;

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
    fn keys_outside_the_prefix_do_not_belong_to_the_store() {
        let space = KeySpace::new("/registry", "/registry");
        for key in [&b"/registry2/pods/a"[..], b"compact_rev_key", b"/registry", b"/registry/\xff", b""] {
            assert_eq!(space.store_key(key), None, "{key:?}");
        }
    }
}
