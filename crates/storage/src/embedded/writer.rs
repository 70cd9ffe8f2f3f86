//! The writer thread: takes queued writes, commits them in one transaction, and answers them.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use tokio::sync::{mpsc, oneshot};

use crate::backend::{Batch, CommitFailure, DecidedChange, Feed, Unavailable, WriteDecision, WriteRejection};
use crate::error::OpenError;
use crate::record::{Change, Fence, StoredEntry, Write};

use super::WriterShared;
use super::disk::Medium;
use super::log::{Changes, Log, Replaced, remember};
use super::migrate::Rekey;
use super::row;

/// Maximum number of writes in one transaction.
const BATCH: usize = 512;
/// Maximum bytes in one transaction; the last write may exceed it.
const BATCH_BYTES: usize = 8 << 20;
/// Replaced rows that a transaction removes besides its writes: more than writes can replace, so that removal keeps up.
const REMOVE_BESIDE: usize = 64;
/// Replaced rows removed in one transaction while there are no writes.
const REMOVE_IDLE: usize = 1024;

/// A request to the writer thread.
pub(super) enum Job {
    Commit {
        write: Write,
        fences: Vec<Fence>,
        answer: DecisionSender,
    },
    /// Compact if there is something to remove, or recover after an error.
    Compact,
}

type DecisionSender = oneshot::Sender<Result<WriteDecision, CommitFailure>>;

pub(super) struct Writer {
    medium: Medium,
    feed: Feed,
    shared: Arc<WriterShared>,
    /// The compacted revision recorded in the file.
    compacted: u64,
    /// Rows to remove, in the order of the revisions that replaced them.
    trail: VecDeque<Replaced>,
    /// The file must be reopened before it is used again.
    is_broken: bool,
}

impl Writer {
    pub(super) fn open(
        mut medium: Medium,
        rekey: Option<Rekey>,
        feed: Feed,
        shared: Arc<WriterShared>,
    ) -> Result<Writer, OpenError> {
        medium.lock()?;
        let log = Log::open(&medium, rekey)?;
        let (compacted, trail) = log.load(&feed, &medium.path())?;
        *shared.log.write().unwrap_or_else(PoisonError::into_inner) = Some(log);
        shared.compact.store(compacted, Ordering::Relaxed);
        Ok(Writer { medium, feed, shared, compacted, trail, is_broken: false })
    }

    /// Runs until all senders are dropped, then closes the file.
    pub(super) fn run(&mut self, mut jobs: mpsc::Receiver<Job>) {
        while let Some(first) = jobs.blocking_recv() {
            let mut batch = Vec::new();
            let mut bytes = 0_usize;
            let mut next = Some(first);
            while let Some(job) = next {
                if let Job::Commit { write, fences, answer } = job {
                    if let Change::Put(record) = &write.change {
                        bytes = bytes.saturating_add(record.size());
                    }
                    batch.push((write, fences, answer));
                }
                let is_full = batch.len() >= BATCH || bytes >= BATCH_BYTES;
                next = if is_full { None } else { jobs.try_recv().ok() };
            }
            if self.is_broken {
                self.recover();
            }
            if !batch.is_empty() {
                self.commit(batch);
            }
            while jobs.is_empty() && self.compact() {}
        }
        self.close();
        if self.medium.has_sync_failed() {
            // The last chance to leave a reliable file behind.
            drop(self.reopen());
        }
    }

    /// Decides the writes and makes the accepted ones durable before answering any of them.
    fn commit(&mut self, batch: Vec<(Write, Vec<Fence>, DecisionSender)>) {
        let mut decided = Batch::new(&self.feed);
        let mut answers = Vec::with_capacity(batch.len());
        let mut accepted = Vec::new();
        let mut replaced = VecDeque::new();
        let mut changes = Changes::default();
        let mut expiring = Vec::new();
        for (write, fences, answer) in batch {
            let deadline = write.ttl.map(|ttl| self.feed.deadline(ttl));
            let (done, current) = match decided.decide(write, &fences) {
                Ok(accepted) => accepted,
                Err(rejection) => {
                    answers.push((answer, Err(rejection)));
                    continue;
                }
            };
            let previous = current.map(|version| version.revision);
            let Some(row) = row::encode(&done, previous.unwrap_or(0), deadline) else {
                // INVARIANT: limits keep keys and facts far below the capacity of a row. If one is too long, the revisions
                // decided after it would leave a gap, so the whole batch is dropped.
                drop(answers);
                return;
            };
            remember(&mut replaced, &done, previous);
            expiring.extend(deadline.map(|deadline| (Arc::clone(&done.key), done.revision, deadline)));
            changes.append.push((done.revision, row));
            answers.push((answer, Ok(accepted.len())));
            accepted.push(done);
        }
        let at = decided.revision();
        if !accepted.is_empty() {
            let removed = self.plan(&mut changes, REMOVE_BESIDE.max(2 * accepted.len()));
            if let Err(Unavailable(reason)) = self.write(&changes) {
                // The file is cut to the last acknowledged write before it is used again.
                for (answer, _) in answers {
                    let _ = answer.send(Err(CommitFailure::NotStored(reason.clone())));
                }
                return;
            }
            self.settle(&changes, removed);
            self.trail.extend(replaced);
            for (key, revision, deadline) in expiring {
                self.feed.expire_at(&key, revision, deadline);
            }
        }
        self.answer(accepted, answers, at);
    }

    fn answer(
        &self,
        accepted: Vec<DecidedChange>,
        answers: Vec<(DecisionSender, Result<usize, WriteRejection>)>,
        at: u64,
    ) {
        let applied = self.feed.apply(accepted);
        for (answer, decided) in answers {
            let decision = match decided {
                Err(WriteRejection::State) => Ok(WriteDecision::Refused { at }),
                Err(WriteRejection::Fenced) => Ok(WriteDecision::Fenced),
                Err(WriteRejection::SpaceQuota(over)) => Ok(WriteDecision::OverQuota(over)),
                Ok(index) => match applied.events().get(index).cloned().flatten() {
                    Some(event) => Ok(WriteDecision::Committed(event)),
                    None => {
                        Err(CommitFailure::Unknown("the working set did not apply the change".to_owned()))
                    }
                },
            };
            // The caller may have dropped its future.
            let _ = answer.send(decision);
        }
    }

    /// Removes rows that are no longer needed. Returns whether there was work to do.
    fn compact(&mut self) -> bool {
        let mut changes = Changes::default();
        let removed = self.plan(&mut changes, REMOVE_IDLE);
        if self.is_broken || (removed == 0 && changes.compacted.is_none()) {
            return false;
        }
        if self.write(&changes).is_err() {
            return false;
        }
        self.settle(&changes, removed);
        true
    }

    /// Adds at most `limit` rows to remove for compaction to a transaction; returns their number.
    fn plan(&self, changes: &mut Changes, limit: usize) -> usize {
        let compact = self.shared.compact.load(Ordering::Relaxed);
        changes.compacted = Some(compact).filter(|compact| *compact > self.compacted);
        changes.remove =
            self.trail.iter().take_while(|old| old.at <= compact).take(limit).map(|old| old.row).collect();
        changes.remove.len()
    }

    /// Records the removals of a committed transaction.
    fn settle(&mut self, changes: &Changes, removed: usize) {
        self.compacted = changes.compacted.unwrap_or(self.compacted);
        self.trail.drain(..removed);
        if self.trail.is_empty() {
            self.trail.shrink_to_fit();
        }
    }

    fn write(&mut self, changes: &Changes) -> Result<(), Unavailable> {
        let log = self.shared.log.read().unwrap_or_else(PoisonError::into_inner);
        let Some(log) = log.as_ref() else {
            return Err(self.trouble().unwrap_or_else(super::closed));
        };
        let result = log.commit(changes);
        if let Err(fault) = result {
            self.is_broken = true;
            tracing::error!(error = %fault.message, "the store cannot write; check space, permissions and health of the disk of the data directory");
            self.set_trouble(Some(fault.message.clone()));
            return Err(Unavailable(fault.message));
        }
        Ok(())
    }

    /// Reopens the file after a fault and restores the acknowledged state.
    fn recover(&mut self) {
        self.close();
        match self.reopen() {
            Ok(log) => {
                *self.shared.log.write().unwrap_or_else(PoisonError::into_inner) = Some(log);
                self.is_broken = false;
                self.set_trouble(None);
                tracing::info!("the store can write again");
            }
            Err(reason) => self.set_trouble(Some(reason)),
        }
    }

    fn reopen(&mut self) -> Result<Log, String> {
        let revision = self.feed.revision();
        if !self.medium.has_sync_failed() {
            let log = Log::open(&self.medium, None).map_err(|error| error.to_string())?;
            let left = log.cut(revision).map_err(|fault| fault.message)?;
            if left.max(self.compacted).max(1) == revision {
                return Ok(log);
            }
        }
        // The acknowledged state is complete in memory, but perhaps not in the file.
        tracing::warn!("writing the store to a new file after an I/O error");
        let deadline = |entry: &StoredEntry| self.feed.deadline_of(entry);
        let log =
            Log::make(&self.medium, &self.feed.live(), revision, deadline).map_err(|fault| fault.message)?;
        self.trail.clear();
        self.compacted = revision;
        Ok(log)
    }

    fn close(&self) {
        *self.shared.log.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn trouble(&self) -> Option<Unavailable> {
        self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone().map(Unavailable)
    }

    fn set_trouble(&self, trouble: Option<String>) {
        *self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }
}
