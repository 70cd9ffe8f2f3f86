//! [`TokenCache`]: whose the tokens are that were verified a moment ago. A signature costs far more than a digest.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{Context, SHA256};
use value::Str;

use crate::authenticator::TokenCaller;

/// How long a verified token is believed without looking again: a token whose pod is gone may live this much longer.
const LIFE: Duration = Duration::from_secs(10);

/// How many tokens are kept at most.
const CAPACITY: usize = 4096;

/// Verified tokens by digest. Only good ones are kept: a bad one costs its sender the same every time.
#[derive(Default)]
pub struct TokenCache {
    entries: Mutex<HashMap<[u8; 32], (SystemTime, TokenCaller)>>,
}

impl TokenCache {
    /// Whose a token was verified to be, if that was not long ago.
    pub(crate) fn get(&self, token: &str, wanted: Option<&[Str]>, now: SystemTime) -> Option<TokenCaller> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, caller) = entries.get(&key(token, wanted))?;
        // A clock that was set back makes an entry old, not eternal.
        (now.duration_since(*at).is_ok_and(|age| age < LIFE)).then(|| caller.clone())
    }

    /// Keeps whose a token was verified to be.
    pub(crate) fn put(&self, token: &str, wanted: Option<&[Str]>, now: SystemTime, caller: TokenCaller) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= CAPACITY {
            entries.retain(|_, (at, _)| now.duration_since(*at).is_ok_and(|age| age < LIFE));
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
    // Lengths keep a token that ends like an audience apart from the two of them.
    for part in std::iter::once(token).chain(wanted.unwrap_or_default().iter().map(Str::as_str)) {
        context.update(&part.len().to_le_bytes());
        context.update(part.as_bytes());
    }
    context.update(&[u8::from(wanted.is_some())]);
    let mut out = [0; 32];
    out.copy_from_slice(context.finish().as_ref());
    out
}
