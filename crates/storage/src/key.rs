//! Keys are paths, as `/registry/<directory>/[<namespace>/]<name>`.
//!
//! A *scope* is what lists and watches are asked for: a directory (it ends with `/`) or one key (it does not).

/// Divides the key space into shards: gives the length of the prefix, with its closing `/`, that all keys of one shard share;
/// `None` for what is above the shards, or in none. All keys under such a prefix must be given the same one.
pub type ShardEnd = fn(&str) -> Option<usize>;

/// How the working set is divided into tables. Keys in no shard are together in one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shards(pub(crate) ShardEnd);

impl Shards {
    /// The prefix whose table holds `key`.
    pub(crate) fn of(self, key: &str) -> &str {
        (self.0)(key).and_then(|end| key.get(..end)).unwrap_or_default()
    }

    /// Whether every key that `scope` covers is in one shard.
    pub(crate) fn is_within(self, scope: &str) -> bool {
        !scope.ends_with('/') || (self.0)(scope).is_some()
    }
}

/// Whether `key` can name a record: `/`-rooted, not a directory, no empty segment, no control character.
pub(crate) fn is_key(key: &str) -> bool {
    is_scope(key) && !key.ends_with('/')
}

/// Whether `scope` can be listed or watched: a key, or a directory.
pub(crate) fn is_scope(scope: &str) -> bool {
    let bytes = scope.as_bytes();
    bytes.first() == Some(&b'/')
        && !bytes.windows(2).any(|pair| pair == b"//")
        && !bytes.iter().any(u8::is_ascii_control)
}

/// Whether `scope` covers `key`.
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
