//! Counts parts of response bodies that HTTP/2 has buffered but not sent. Once a whole response is buffered
//! its stream can no longer be reset alone ([`crate::drain::StreamGuard`]), so a connection with too old data
//! is closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;

use super::ConnectionState;

/// Interval at which all connections are checked.
pub(super) const EVERY: Duration = Duration::from_secs(10);
/// Slot length in seconds, for own responses and for forwarded responses of other servers.
const SECONDS: [u64; 2] = [10, 60];
/// Ring buffer size in slots.
const SLOTS: usize = 8;
/// Slot ages that must be empty: data stalls after 50 to 70 seconds, forwarded data after five to seven
/// minutes.
const OLD: [u64; 2] = [6, 7];
/// Smaller parts are not counted, as each stream costs that much memory anyway.
const COUNTED_FROM: usize = 1024;

/// Counts of buffered parts by the time slot in which they were handed over.
#[derive(Debug, Default)]
pub(super) struct BufferedParts([[AtomicU32; SLOTS]; 2]);

impl BufferedParts {
    fn slot(&self, which: usize, number: u64) -> Option<&AtomicU32> {
        self.0.get(which)?.get(usize::try_from(number % SLOTS as u64).ok()?)
    }

    /// True if data has been buffered too long. `now` is in seconds since the server started.
    pub(super) fn is_stalled(&self, now: u64) -> bool {
        SECONDS.iter().enumerate().any(|(which, seconds)| {
            // Slot `age` before the current one equals slot `SLOTS - age` after it, modulo `SLOTS`.
            let old = |age: &u64| self.slot(which, now / seconds + SLOTS as u64 - age);
            OLD.iter().filter_map(old).any(|slot| slot.load(Ordering::Relaxed) > 0)
        })
    }
}

/// Bytes that are counted as waiting until they are dropped.
struct UnsentBytes {
    bytes: Bytes,
    connection: Arc<ConnectionState>,
    is_forwarded: bool,
    slot: u64,
}

impl UnsentBytes {
    fn counter(&self) -> Option<&AtomicU32> {
        self.connection.waiting.slot(usize::from(self.is_forwarded), self.slot)
    }
}

impl AsRef<[u8]> for UnsentBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for UnsentBytes {
    fn drop(&mut self) {
        if let Some(counter) = self.counter() {
            counter.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl ConnectionState {
    /// Wraps the bytes so that they count as waiting until they are dropped.
    pub fn hand_over(self: &Arc<Self>, bytes: Bytes, is_forwarded: bool) -> Bytes {
        if bytes.len() < COUNTED_FROM {
            return bytes;
        }
        let seconds = SECONDS.get(usize::from(is_forwarded)).copied().unwrap_or(1);
        let slot = self.began.elapsed().as_secs() / seconds;
        let unsent = UnsentBytes { bytes, connection: Arc::clone(self), is_forwarded, slot };
        if let Some(counter) = unsent.counter() {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        Bytes::from_owner(unsent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffered_parts_count_as_stalled_only_after_several_time_slots() {
        let waiting = BufferedParts::default();
        waiting.slot(0, 100).unwrap().store(1, Ordering::Relaxed);
        let stalled = |now| waiting.is_stalled(now);
        assert!([1000, 1010, 1049, 1059].iter().all(|now| !stalled(*now)));
        assert!([1060, 1069, 1079].iter().all(|now| stalled(*now)));
        waiting.slot(0, 100).unwrap().store(0, Ordering::Relaxed);
        assert!(!stalled(1060));
        waiting.slot(1, 100).unwrap().store(1, Ordering::Relaxed);
        assert!(!stalled(6060) && !stalled(6300));
        assert!(stalled(6360) && stalled(6400));
    }
}
