//! [`VerifiedTokenCache`]: recently verified tokens, because verifying a signature is expensive.

use std::fmt;
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{Context, SHA256};
use value::{Str, TtlCache};

use crate::authenticator::TokenCaller;

/// How long a verified token is cached. A token whose pod was deleted stays valid for this much longer.
const CACHE_TTL: Duration = Duration::from_secs(10);

const CAPACITY: usize = 4096;

/// Verified tokens by digest. Rejected tokens are not cached: each costs its sender a verification.
pub struct VerifiedTokenCache {
    entries: TtlCache<[u8; 32], TokenCaller, SystemTime>,
}

impl Default for VerifiedTokenCache {
    fn default() -> Self {
        VerifiedTokenCache { entries: TtlCache::new(CAPACITY) }
    }
}

impl VerifiedTokenCache {
    /// The caller of a token that was verified for these audiences less than [`CACHE_TTL`] ago.
    pub(crate) fn get(&self, token: &str, wanted: Option<&[Str]>, now: SystemTime) -> Option<TokenCaller> {
        self.entries.get(&key(token, wanted), now)
    }

    /// Caches the caller of a token that was verified at `now`.
    pub(crate) fn put(&self, token: &str, wanted: Option<&[Str]>, now: SystemTime, caller: TokenCaller) {
        if let Some(until) = now.checked_add(CACHE_TTL) {
            self.entries.insert(key(token, wanted), caller, now..until);
        }
    }
}

impl fmt::Debug for VerifiedTokenCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VerifiedTokenCache")
    }
}

fn key(token: &str, wanted: Option<&[Str]>) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    // Including the lengths prevents collisions between a token and a token followed by an audience.
    for part in std::iter::once(token).chain(wanted.unwrap_or_default().iter().map(Str::as_str)) {
        context.update(&part.len().to_le_bytes());
        context.update(part.as_bytes());
    }
    context.update(&[u8::from(wanted.is_some())]);
    let mut out = [0; 32];
    out.copy_from_slice(context.finish().as_ref());
    out
}
