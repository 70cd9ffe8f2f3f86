//! [`LogQueue`]: writes log lines on a thread of its own.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Maximum number of bytes that wait to be written.
const CAPACITY: usize = 4 * 1024 * 1024;

/// Lines of all queues that were dropped, for the metrics of the process.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Number of log lines that this process has dropped, because its log was not read in time.
pub fn dropped_log_lines() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

/// A bounded queue of log lines, which one thread writes. Threads that log never wait, also if the log is a full pipe whose reader does
/// not read: lines that do not fit into the queue are dropped and counted.
#[derive(Clone, Debug)]
pub struct LogQueue {
    shared: Arc<SharedLogQueue>,
}

#[derive(Debug)]
struct SharedLogQueue {
    capacity: usize,
    state: Mutex<LogQueueState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct LogQueueState {
    /// Whole lines, one after another.
    waiting: Vec<u8>,
    /// Length of the lines that the thread writes now.
    being_written: usize,
    /// Lines dropped since the last report.
    dropped: u64,
}

impl LogQueue {
    /// Starts the thread, which ends with the process. What `output` cannot write is lost. After lines were dropped, `report` is called with
    /// their number when the queue is empty again; it may log.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn start(
        output: impl Write + Send + 'static,
        report: impl Fn(u64) + Send + 'static,
    ) -> io::Result<LogQueue> {
        LogQueue::start_with(CAPACITY, output, report)
    }

    fn start_with(
        capacity: usize,
        mut output: impl Write + Send + 'static,
        report: impl Fn(u64) + Send + 'static,
    ) -> io::Result<LogQueue> {
        let shared = Arc::new(SharedLogQueue { capacity, state: Mutex::default(), changed: Condvar::new() });
        let queue = LogQueue { shared: Arc::clone(&shared) };
        let run = move || {
            loop {
                let lines = shared.take();
                let _ = output.write_all(&lines);
                let _ = output.flush();
                let dropped = shared.written();
                if dropped > 0 {
                    report(dropped);
                }
            }
        };
        std::thread::Builder::new().name("log".to_owned()).spawn(run)?;
        Ok(queue)
    }

    /// Adds a line, which includes its line feed, or drops it if the queue is full.
    pub fn push(&self, line: &[u8]) {
        let mut state = self.shared.lock();
        if state.waiting.len() + state.being_written + line.len() > self.shared.capacity {
            state.dropped += 1;
            DROPPED.fetch_add(1, Ordering::Relaxed);
            return;
        }
        state.waiting.extend_from_slice(line);
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Waits until all lines are written, but no longer than `patience`.
    pub fn flush(&self, patience: Duration) {
        let is_behind = |state: &mut LogQueueState| state.being_written > 0 || !state.waiting.is_empty();
        let waited = self.shared.changed.wait_timeout_while(self.shared.lock(), patience, is_behind);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

impl SharedLogQueue {
    fn lock(&self) -> MutexGuard<'_, LogQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for lines and takes them.
    fn take(&self) -> Vec<u8> {
        let is_empty = |state: &mut LogQueueState| state.waiting.is_empty();
        let state = self.changed.wait_while(self.lock(), is_empty);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        let lines = std::mem::take(&mut state.waiting);
        state.being_written = lines.len();
        lines
    }

    /// Records that the lines that were taken are written. Returns the number of dropped lines to report, if no line waits.
    fn written(&self) -> u64 {
        let mut state = self.lock();
        state.being_written = 0;
        let dropped = if state.waiting.is_empty() { std::mem::take(&mut state.dropped) } else { 0 };
        drop(state);
        self.changed.notify_all();
        dropped
    }
}

#[cfg(test)]
mod tests;
