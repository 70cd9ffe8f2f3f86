use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use storage::backend::{
    Backend, BackendFuture, CommitFailure, Feed, Range, RangePage, Unavailable, WriteDecision,
};
use storage::{Fence, OpenError, ReadError, Store, StoreOptions, Write};

use super::{ClusterProbes, StoreProbe};

const SECOND: Duration = Duration::from_secs(1);

/// A shared backend that answers only the reads of health checks, after some time.
struct SlowBackend {
    delay: Duration,
    reads: Arc<AtomicUsize>,
}

impl Backend for SlowBackend {
    fn start(&self, feed: Feed) -> BackendFuture<'_, Result<(), OpenError>> {
        feed.load(1, 0, Vec::new());
        Box::pin(std::future::ready(Ok(())))
    }

    fn commit(&self, _: Write) -> BackendFuture<'_, Result<WriteDecision, CommitFailure>> {
        Box::pin(std::future::ready(Err(CommitFailure::NotStored(String::new()))))
    }

    fn commit_fenced(
        &self,
        write: Write,
        _: Vec<Fence>,
    ) -> BackendFuture<'_, Result<WriteDecision, CommitFailure>> {
        self.commit(write)
    }

    fn range(&self, _: Range) -> BackendFuture<'_, Result<RangePage, ReadError>> {
        Box::pin(std::future::ready(Err(ReadError::Unavailable(String::new()))))
    }

    fn compact(&self, _: u64) {}

    fn is_shared(&self) -> bool {
        true
    }

    fn probe(&self) -> Option<BackendFuture<'_, Result<(), Unavailable>>> {
        Some(Box::pin(async {
            self.reads.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(self.delay).await;
            Ok(())
        }))
    }

    fn health(&self) -> Result<(), Unavailable> {
        Ok(())
    }

    fn close(&self) -> BackendFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// A store with such a backend, and the number of its reads.
async fn slow_store(delay: Duration) -> (Store, Arc<AtomicUsize>) {
    let reads = Arc::default();
    let backend = SlowBackend { delay, reads: Arc::clone(&reads) };
    (Store::open(backend, StoreOptions::default()).await.unwrap(), reads)
}

/// Both checks of a store, with a time limit each.
fn checks(store: &Store, live: Duration, ready: Duration) -> ClusterProbes {
    ClusterProbes {
        store: store.clone(),
        names: ["etcd".to_owned(), "etcd-readiness".to_owned()],
        live: StoreProbe::new(live),
        ready: StoreProbe::new(ready),
    }
}

#[tokio::test(start_paused = true)]
async fn each_check_has_its_own_time_limit() {
    let (store, _) = slow_store(3 * SECOND).await;
    let late = Err("error getting data from etcd: context deadline exceeded".to_owned());
    for (live, ready, expected) in [
        (2 * SECOND, 4 * SECOND, [late.clone(), Ok(())]),
        (4 * SECOND, 2 * SECOND, [Ok(()), late.clone()]),
        (2 * SECOND, 2 * SECOND, [late.clone(), late]),
    ] {
        let probes = checks(&store, live, ready);
        probes.run("readyz", "").await;
        let results = ["etcd", "etcd-readiness"].map(|check| probes.result(check).unwrap());
        assert_eq!(results, expected, "{live:?} {ready:?}");
    }
    assert!(checks(&store, SECOND, SECOND).result("ping").is_none());
}

#[tokio::test(start_paused = true)]
async fn only_the_readiness_page_and_the_check_itself_read_for_readiness() {
    for (page, check, expected) in [
        ("livez", "", 1),
        ("healthz", "", 1),
        ("readyz", "", 2),
        ("readyz", "etcd-readiness", 1),
        ("livez", "ping", 0),
    ] {
        let (store, reads) = slow_store(Duration::ZERO).await;
        checks(&store, SECOND, SECOND).run(page, check).await;
        assert_eq!(reads.load(Ordering::SeqCst), expected, "{page}/{check}");
    }
}

#[tokio::test(start_paused = true)]
async fn etcd_is_read_at_most_once_in_half_of_the_time_limit() {
    let (store, reads) = slow_store(Duration::ZERO).await;
    let probes = checks(&store, 2 * SECOND, 2 * SECOND);
    for _ in 0..100 {
        probes.run("livez", "").await;
    }
    assert_eq!(reads.load(Ordering::SeqCst), 1);
    tokio::time::advance(Duration::from_millis(999)).await;
    probes.run("livez", "").await;
    assert_eq!(reads.load(Ordering::SeqCst), 1);
    tokio::time::advance(Duration::from_millis(1)).await;
    probes.run("livez", "").await;
    assert_eq!(reads.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_check_does_not_wait_for_the_read_of_another() {
    let (store, reads) = slow_store(10 * SECOND).await;
    let probes = checks(&store, 2 * SECOND, 2 * SECOND);
    let begin = tokio::time::Instant::now();
    tokio::join!(probes.run("livez", ""), async {
        probes.run("livez", "").await;
        assert_eq!(begin.elapsed(), Duration::ZERO);
        assert_eq!(probes.result("etcd"), Some(Ok(())), "the last result stands");
    });
    assert_eq!(reads.load(Ordering::SeqCst), 1);
    assert!(probes.result("etcd").unwrap().is_err());
}
