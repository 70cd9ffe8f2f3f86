//! Frees connections when nearly all are busy with long-running requests, which have no time limit.

use std::sync::atomic::Ordering;

use super::{BATCH, CLOSE_GRACEFULLY, CLOSE_NOW, ConnectionState, Connections, STAY_OPEN, URGENT};

/// How long a client has to close a connection whose long-running requests have ended, if all connections are in use, in milliseconds.
const LEAVE_WITHIN: u64 = 5_000;

impl Connections {
    /// Ends the long-running requests of some connections, and closes these gracefully, if at least [`URGENT`] percent of the limit are
    /// claimed. Others do not count, even if they have requests: clients that are not authenticated must not end requests of others. `end`
    /// ends those of a number of connections and returns the ids of the connections.
    pub(super) fn end_long_running(&self, end: &impl Fn(usize) -> Vec<u64>) {
        let is_busy = |connection: &ConnectionState| {
            connection.is_claimed() && connection.close.load(Ordering::Relaxed) == STAY_OPEN
        };
        let busy = self.lock().open.values().filter(|connection| is_busy(connection)).count();
        let limit = self.limits.connections;
        let most = limit.saturating_mul(URGENT) / 100;
        if busy < most {
            return;
        }
        let above = busy.saturating_sub(most).saturating_add(1);
        let ended = end(above.min((limit / BATCH).max(1)));
        if ended.is_empty() {
            return;
        }
        let now = self.millis().max(1);
        let table = self.lock();
        for connection in ended.iter().filter_map(|id| table.open.get(id)) {
            connection.ended_at.store(now, Ordering::Relaxed);
            self.close(connection, CLOSE_GRACEFULLY);
        }
        drop(table);
        self.metrics.closed("long_running", ended.len());
    }

    /// Closes connections whose long-running requests were ended and whose clients have not left since.
    /// `now` is in milliseconds since the server started.
    pub(super) fn close_ended(&self, now: u64) {
        let latest = now.saturating_sub(LEAVE_WITHIN);
        let table = self.lock();
        for connection in table.open.values() {
            let ended_at = connection.ended_at.load(Ordering::Relaxed);
            if ended_at != 0 && ended_at <= latest {
                self.close(connection, CLOSE_NOW);
            }
        }
    }
}
