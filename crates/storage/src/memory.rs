//! A backend without persistence, for tests and for servers embedded in another process.

use std::future::ready;
use std::sync::{Mutex, PoisonError};

use crate::backend::{
    Backend, BackendFuture, Batch, CommitFailure, Feed, Range, RangePage, Unavailable, WriteDecision,
    WriteRejection,
};
use crate::error::{OpenError, ReadError};
use crate::record::{Fence, Write};

/// The memory backend. Revisions older than the store's event history count as compacted.
#[derive(Debug, Default)]
pub struct Memory {
    /// Its lock serializes the writers.
    feed: Mutex<Option<Feed>>,
}

impl Memory {
    pub fn new() -> Memory {
        Memory::default()
    }

    fn decide(&self, write: Write, fences: &[Fence]) -> Result<WriteDecision, CommitFailure> {
        let guard = self.feed.lock().unwrap_or_else(PoisonError::into_inner);
        let feed = guard.as_ref().ok_or_else(|| Unavailable("the store is closed".to_owned()))?;
        let ttl = write.ttl;
        let done = match Batch::new(feed).decide(write, fences) {
            Ok((done, _)) => done,
            Err(WriteRejection::State) => return Ok(WriteDecision::Refused { at: feed.revision() }),
            Err(WriteRejection::Fenced) => return Ok(WriteDecision::Fenced),
            Err(WriteRejection::SpaceQuota(over)) => return Ok(WriteDecision::OverQuota(over)),
        };
        if let Some(ttl) = ttl {
            feed.expire_at(&done.key, done.revision, feed.deadline(ttl));
        }
        let applied = feed.apply(vec![done]);
        let event = applied.events().first().cloned().flatten();
        event
            .map(WriteDecision::Committed)
            .ok_or_else(|| CommitFailure::Unknown("the working set did not apply the change".to_owned()))
    }
}

impl Backend for Memory {
    fn start(&self, feed: Feed) -> BackendFuture<'_, Result<(), OpenError>> {
        feed.load(1, 0, Vec::new());
        *self.feed.lock().unwrap_or_else(PoisonError::into_inner) = Some(feed);
        Box::pin(ready(Ok(())))
    }

    fn commit(&self, write: Write) -> BackendFuture<'_, Result<WriteDecision, CommitFailure>> {
        Box::pin(ready(self.decide(write, &[])))
    }

    fn commit_fenced(
        &self,
        write: Write,
        fences: Vec<Fence>,
    ) -> BackendFuture<'_, Result<WriteDecision, CommitFailure>> {
        Box::pin(ready(self.decide(write, &fences)))
    }

    fn range(&self, _: Range) -> BackendFuture<'_, Result<RangePage, ReadError>> {
        let feed = self.feed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let oldest = feed.map_or(0, |feed| feed.0.oldest_event());
        Box::pin(ready(Err(ReadError::Compacted { oldest })))
    }

    fn compact(&self, _: u64) {}

    fn health(&self) -> Result<(), Unavailable> {
        Ok(())
    }

    fn close(&self) -> BackendFuture<'_, ()> {
        *self.feed.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Box::pin(ready(()))
    }
}
