//! [`TokenCache`]: recently verified tokens, because verifying a signature is expensive.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{Context, SHA256};
use value::Str;

use crate::authenticator::TokenCaller;

/// How long a verified token is cached. A token whose pod was deleted stays valid for this much longer.
const CACHE_TTL: Duration = Duration::from_secs(10);

const CAPACITY: usize = 4096;

/// Verified tokens by digest. Invalid tokens are not cached.
#[derive(Default)]
pub struct TokenCache {
    entries: Mutex<HashMap<[u8; 32], (SystemTime, TokenCaller)>>,
}

impl TokenCache {
    /// The cached caller, unless it has expired.
    pub(crate) fn get(&self, token: &str, wanted: Option<&[Str]>, now: SystemTime) -> Option<TokenCaller> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, caller) = entries.get(&key(token, wanted))?;
        // If the clock was set back, the entry counts as expired.
        (now.duration_since(*at).is_ok_and(|age| age < CACHE_TTL)).then(|| caller.clone())
    }

    pub(crate) fn put(&self, token: &str, wanted: Option<&[Str]>, now: SystemTime, caller: TokenCaller) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= CAPACITY {
            entries.retain(|_, (at, _)| now.duration_since(*at).is_ok_and(|age| age < CACHE_TTL));
            if entries.len() >= CAPACITY {
                entries.clear();
            }
        }
        entries.insert(key(token, wanted), (now, caller));
    }
}

impl fmt::Debug for TokenCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenCache")
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
