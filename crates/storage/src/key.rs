//! Keys are paths: `/registry/<group>/<resource>/[<namespace>/]<name>`.
//!
//! A *scope* is what lists and watches are asked for: a directory (it ends with `/`) or one key (it does not).

/// How many path segments name a shard of the working set: `/registry/<group>/<resource>/`.
const SHARD_SEGMENTS: usize = 3;

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

/// The directory whose table holds `key`: its first three segments, or fewer if it has no more.
pub(crate) fn shard(key: &str) -> &str {
    let slashes = key.bytes().enumerate().filter(|(_, byte)| *byte == b'/');
    let end = slashes.take(SHARD_SEGMENTS + 1).last();
    end.and_then(|(slash, _)| key.get(..=slash)).unwrap_or(key)
}

/// Whether every key that `scope` covers is in one shard.
pub(crate) fn is_within_shard(scope: &str) -> bool {
    !scope.ends_with('/') || scope.bytes().filter(|byte| *byte == b'/').count() > SHARD_SEGMENTS
}

/// Every scope that covers `key`: each directory above it, then the key itself.
pub(crate) fn scopes(key: &str) -> impl Iterator<Item = &str> {
    let slashes = key.bytes().enumerate().filter(|(_, byte)| *byte == b'/');
    slashes.filter_map(|(slash, _)| key.get(..=slash)).chain(std::iter::once(key))
}

#[cfg(test)]
mod tests;
