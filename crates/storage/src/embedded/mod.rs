//! The embedded backend: one file, one process, one writer.
//!
//! The file is a log: a redb table from revision to change. Loading replays it to find the live records, so a write appends
//! one row at the end of one tree. Replaced rows stay for reads at older revisions until compaction removes them.
//!
//! A dedicated thread takes writes from a queue. Writes that arrive while one transaction is being synced form the next
//! one, and each write is answered only after its transaction has been synced.
//!
//! A commit costs one sync. redb's *quick repair* would cost a second one on every commit and save, only after a crash,
//! one pass over the file; loading makes such a pass anyway, so it is not used.

mod directory;
mod disk;
mod fault;
mod import;
mod location;
mod log;
mod migrate;
mod restore;
mod row;
mod stopped;
mod writer;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;

use tokio::sync::{mpsc, oneshot};

use crate::backend::{
    Backend, BackendFuture, CommitFailure, Feed, Range, RangePage, Unavailable, WriteDecision,
};
use crate::error::{OpenError, ReadError};
use crate::record::{Fence, Write};
use crate::table::StoredEntries;

pub use self::directory::is_store;
pub use self::import::{ImportDirectory, ImportError, StoreImport};
pub use self::location::StoreLocation;
pub use self::migrate::Rekey;
pub use self::restore::{RestoreError, RestoredStore, restore};
pub use self::stopped::{ExpiringRecord, SaveError, StoppedStore};

use self::disk::{FileStatus, Medium};
use self::log::Log;
use self::writer::{Job, Writer};

/// The version of the file format that this build reads and writes.
pub const FORMAT: u32 = 2;

/// Capacity of the writer's queue; further writers wait for a free slot.
const QUEUE: usize = 1024;

pub struct Embedded {
    /// Opened, and taken, by [`Backend::start`].
    medium: Mutex<Option<Medium>>,
    /// Maps keys when a file of the previous format is migrated.
    rekey: Mutex<Option<Rekey>>,
    path: PathBuf,
    running: Mutex<Option<WriterThread>>,
    shared: Arc<WriterShared>,
    file_status: Arc<FileStatus>,
}

/// State shared between the writer thread and its callers.
#[derive(Default)]
struct WriterShared {
    /// The open file; `None` before it is opened, after it is closed, and while it cannot be reopened.
    log: RwLock<Option<Log>>,
    /// The revision up to which compaction was requested.
    compact: AtomicU64,
    /// The current reason why writes fail.
    trouble: Mutex<Option<String>>,
}

struct WriterThread {
    queue: mpsc::Sender<Job>,
    thread: JoinHandle<()>,
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Embedded {
    /// A store in this directory, which is created if needed.
    pub fn at(directory: impl AsRef<Path>) -> Embedded {
        let directory = directory.as_ref();
        Embedded::new(Medium::directory(directory), directory.to_owned())
    }

    /// A store in another location, such as a simulated disk.
    pub fn over(location: impl StoreLocation) -> Embedded {
        Embedded::new(Medium::at(location), PathBuf::from("(not a file)"))
    }

    /// Migrates a file of format 1 when it is opened. Records are unchanged, and `rekey` maps each to its new key; a record
    /// without a new key is left out. The old file stays beside the new one, with `.v1` after its name. Revisions before the
    /// migration can no longer be listed or watched.
    #[must_use]
    pub fn migrating(
        self,
        rekey: impl FnOnce(&StoredEntries) -> Vec<Option<Arc<str>>> + Send + 'static,
    ) -> Embedded {
        *self.rekey.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(rekey));
        self
    }

    fn new(medium: Medium, path: PathBuf) -> Embedded {
        let file_status = medium.file_status();
        Embedded {
            medium: Mutex::new(Some(medium)),
            rekey: Mutex::default(),
            path,
            running: Mutex::default(),
            shared: Arc::default(),
            file_status,
        }
    }

    fn queue(&self) -> Result<mpsc::Sender<Job>, Unavailable> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.as_ref().map(|running| running.queue.clone()).ok_or_else(closed)
    }

    fn stop(&self) -> Option<WriterThread> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Backend for Embedded {
    fn start(&self, feed: Feed) -> BackendFuture<'_, Result<(), OpenError>> {
        Box::pin(async move {
            let medium = self.medium.lock().unwrap_or_else(PoisonError::into_inner).take();
            let medium = medium
                .ok_or_else(|| OpenError::Unavailable("this backend was already opened once".to_owned()))?;
            let rekey = self.rekey.lock().unwrap_or_else(PoisonError::into_inner).take();
            let (queue, jobs) = mpsc::channel(QUEUE);
            let (opened, is_open) = oneshot::channel();
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new()
                .name("store-writer".to_owned())
                .spawn(move || match Writer::open(medium, rekey, feed, shared) {
                    Ok(mut writer) => {
                        if opened.send(Ok(())).is_ok() {
                            writer.run(jobs);
                        }
                    }
                    Err(error) => drop(opened.send(Err(error))),
                })
                .map_err(|error| {
                    OpenError::Unavailable(format!("cannot start the writer thread: {error}"))
                })?;
            is_open.await.map_err(|_| {
                OpenError::Unavailable("the writer thread ended before the file was open".to_owned())
            })??;
            *self.running.lock().unwrap_or_else(PoisonError::into_inner) =
                Some(WriterThread { queue, thread });
            Ok(())
        })
    }

    fn commit(&self, write: Write) -> BackendFuture<'_, Result<WriteDecision, CommitFailure>> {
        self.commit_fenced(write, Vec::new())
    }

    fn commit_fenced(
        &self,
        write: Write,
        fences: Vec<Fence>,
    ) -> BackendFuture<'_, Result<WriteDecision, CommitFailure>> {
        Box::pin(async move {
            let (answer, decision) = oneshot::channel();
            self.queue()?.send(Job::Commit { write, fences, answer }).await.map_err(|_| closed())?;
            // The writer thread drops a write without an answer only when it ends.
            decision
                .await
                .map_err(|_| CommitFailure::Unknown("the store was closed during the write".to_owned()))?
        })
    }

    fn range(&self, range: Range) -> BackendFuture<'_, Result<RangePage, ReadError>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let reading = tokio::task::spawn_blocking(move || {
                let snapshot = {
                    let log = shared.log.read().unwrap_or_else(PoisonError::into_inner);
                    log.as_ref()
                        .ok_or_else(|| ReadError::Unavailable("the store is closed".to_owned()))?
                        .snapshot()?
                };
                snapshot.range(&range)
            });
            reading.await.map_err(|error| ReadError::Unavailable(error.to_string()))?
        })
    }

    fn file_bytes(&self) -> Option<u64> {
        Some(self.file_status.length())
    }

    fn compact(&self, revision: u64) {
        self.shared.compact.fetch_max(revision, Ordering::Relaxed);
        if let Ok(queue) = self.queue() {
            // If the queue is full, the next batch compacts.
            let _ = queue.try_send(Job::Compact);
        }
    }

    fn health(&self) -> Result<(), Unavailable> {
        match &*self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(trouble) => {
                if let Ok(queue) = self.queue() {
                    // Trigger a recovery attempt, even if no client writes.
                    let _ = queue.try_send(Job::Compact);
                }
                Err(Unavailable(trouble.clone()))
            }
            None => self.queue().map(drop),
        }
    }

    fn close(&self) -> BackendFuture<'_, ()> {
        let running = self.stop();
        Box::pin(async move {
            let Some(WriterThread { queue, thread }) = running else { return };
            drop(queue);
            // The thread ends when the queue is empty; joining waits for at most a few syncs.
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        })
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        // The directory must be released before it can be opened again.
        if let Some(WriterThread { queue, thread }) = self.stop() {
            drop(queue);
            let _ = thread.join();
        }
    }
}

fn closed() -> Unavailable {
    Unavailable("the store is closed".to_owned())
}
