//! Keys are paths of the form `/registry/<directory>/[<namespace>/]<name>`.
//!
//! Lists and watches take a *scope*: a directory (ends with `/`) or one key (does not).

/// Divides the key space into shards: returns the length of the prefix, including its closing `/`, that all keys of one shard share;
/// `None` for a scope above the shards, or a key in none. It must return the same prefix for all keys under that prefix.
pub type ShardEnd = fn(&str) -> Option<usize>;

/// Divides the working set into tables. Keys outside any shard share one table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shards(pub(crate) ShardEnd);

impl Shards {
    /// The prefix whose table holds `key`.
    pub(crate) fn of(self, key: &str) -> &str {
        (self.0)(key).and_then(|end| key.get(..end)).unwrap_or_default()
    }

    /// Reports whether all keys that `scope` covers are in one shard.
    pub(crate) fn is_within(self, scope: &str) -> bool {
        !scope.ends_with('/') || (self.0)(scope).is_some()
    }
}

/// Reports whether `key` can name a record: it starts with `/`, is not a directory, has no empty segment and no control character.
pub(crate) fn is_key(key: &str) -> bool {
    is_scope(key) && !key.ends_with('/')
}

/// Reports whether `scope` can be listed or watched: a key, or a directory.
pub(crate) fn is_scope(scope: &str) -> bool {
    let bytes = scope.as_bytes();
    bytes.first() == Some(&b'/')
        && !bytes.windows(2).any(|pair| pair == b"//")
        && !bytes.iter().any(u8::is_ascii_control)
}

/// Reports whether `scope` covers `key`.
pub(crate) fn covers(scope: &str, key: &str) -> bool {
    if scope.ends_with('/') { key.starts_with(scope) } else { key == scope }
}

/// Every scope that covers `key`: each directory above it, then the key itself.
pub(crate) fn scopes(key: &str) -> impl Iterator<Item = &str> {
    let slashes = key.bytes().enumerate().filter(|(_, byte)| *byte == b'/');
    slashes.filter_map(|(slash, _)| key.get(..=slash)).chain(std::iter::once(key))
}

#[cfg(test)]
mod tests;
