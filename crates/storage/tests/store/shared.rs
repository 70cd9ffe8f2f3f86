//! A shared backend like the one for etcd: a service that several stores use, that decides compare-and-swap itself, and
//! that delivers changes through a separate stream.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use storage::backend::{BoxFuture, Done, Feed, Range, RangePage, StoredRecord, Unavailable, WriteDecision};
use storage::{
    Backend, Change, CommitError, Expect, OpenError, ReadError, Store, StoreOptions, WatchFrom, Write,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::fixture::{conflict, create, describe, key, now, put, update};

const ALL: &str = "/registry/core/things/";

/// The shared service. Clones are the same service.
#[derive(Clone, Default)]
pub(crate) struct Service(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    log: Vec<Done>,
    /// The last revision used by keys outside the stores.
    skipped: u64,
    compacted: u64,
}

impl State {
    fn revision(&self) -> u64 {
        self.log.last().map_or(1, |last| last.revision).max(self.skipped)
    }

    fn live(&self, revision: u64) -> BTreeMap<Arc<str>, StoredRecord> {
        let mut live = BTreeMap::new();
        for done in self.log.iter().filter(|done| done.revision <= revision) {
            let Done { key, revision, created, change } = done.clone();
            match change {
                Change::Put(record) => {
                    live.insert(key.clone(), StoredRecord { key, revision, created, record })
                }
                Change::Delete => live.remove(&key),
            };
        }
        live
    }
}

impl Service {
    /// A backend for one store that uses the service.
    pub(crate) fn backend(&self) -> Client {
        Client { service: self.clone(), link: Mutex::default() }
    }

    /// Uses up a revision, like a write to a key outside the stores.
    fn skip(&self) -> u64 {
        let mut state = self.lock();
        state.skipped = state.revision() + 1;
        self.0.changed.send_replace(state.skipped);
        state.skipped
    }

    /// Decides a write: returns its revision, or the revision at which it was rejected.
    fn transact(&self, write: Write) -> Result<u64, u64> {
        let mut state = self.lock();
        let at = state.revision();
        let Write { key, expect, change, .. } = write;
        let current = state.live(at).remove(&key);
        let expected = match expect {
            Expect::Absent => current.is_none(),
            Expect::Revision(revision) => {
                current.as_ref().is_some_and(|current| current.revision == revision)
            }
            Expect::Any => true,
        };
        if !expected || (change == Change::Delete && current.is_none()) {
            return Err(at);
        }
        let revision = at + 1;
        let created = current.map_or(revision, |current| current.created);
        state.log.push(Done { key, revision, created, change });
        self.0.changed.send_replace(revision);
        Ok(revision)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap()
    }
}

pub(crate) struct Client {
    service: Service,
    link: Mutex<Option<(Feed, JoinHandle<()>)>>,
}

impl Client {
    fn feed(&self) -> Result<Feed, Unavailable> {
        let link = self.link.lock().unwrap();
        link.as_ref().map(|(feed, _)| feed.clone()).ok_or_else(|| Unavailable("not connected".to_owned()))
    }
}

/// Feeds the changes of the service in order.
async fn stream(service: Service, feed: Feed) {
    let mut news = service.0.changed.subscribe();
    loop {
        news.mark_unchanged();
        let from = feed.revision();
        let (changes, revision) = {
            let state = service.lock();
            let changes: Vec<_> = state.log.iter().filter(|done| done.revision > from).cloned().collect();
            (changes, state.revision())
        };
        drop(feed.apply(changes));
        feed.advance(revision);
        if news.changed().await.is_err() {
            return;
        }
    }
}

impl Backend for Client {
    fn start(&self, feed: Feed) -> BoxFuture<'_, Result<(), OpenError>> {
        let state = self.service.lock();
        let revision = state.revision();
        feed.load(revision, state.compacted, state.live(revision).into_values().collect());
        drop(state);
        let task = tokio::spawn(stream(self.service.clone(), feed.clone()));
        *self.link.lock().unwrap() = Some((feed, task));
        Box::pin(std::future::ready(Ok(())))
    }

    fn commit(&self, write: Write) -> BoxFuture<'_, Result<WriteDecision, Unavailable>> {
        Box::pin(async move {
            let feed = self.feed()?;
            match self.service.transact(write) {
                Ok(revision) => {
                    let event = feed.event(revision).await;
                    event
                        .map(WriteDecision::Committed)
                        .ok_or_else(|| Unavailable("the event is gone".to_owned()))
                }
                Err(at) => {
                    feed.reached(at).await;
                    Ok(WriteDecision::Refused { at })
                }
            }
        })
    }

    fn range(&self, range: Range) -> BoxFuture<'_, Result<RangePage, ReadError>> {
        let state = self.service.lock();
        if range.revision < state.compacted {
            return Box::pin(std::future::ready(Err(ReadError::Compacted { oldest: state.compacted })));
        }
        let mut records: Vec<_> = state.live(range.revision).into_values().collect();
        records.retain(|stored| {
            let is_after = range.after.as_deref().is_none_or(|after| *stored.key > *after);
            is_after && (*stored.key == *range.scope || stored.key.starts_with(&range.scope))
        });
        let remaining = records.len().saturating_sub(range.limit) as u64;
        records.truncate(range.limit);
        Box::pin(std::future::ready(Ok(RangePage { records, remaining })))
    }

    fn compact(&self, revision: u64) {
        let mut state = self.service.lock();
        state.compacted = state.compacted.max(revision);
    }

    fn latest(&self) -> Option<BoxFuture<'_, Result<u64, Unavailable>>> {
        Some(Box::pin(async { Ok(self.service.lock().revision()) }))
    }

    fn health(&self) -> Result<(), Unavailable> {
        self.feed().map(drop)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        let link = self.link.lock().unwrap().take();
        Box::pin(async {
            if let Some((_, task)) = link {
                task.abort();
            }
        })
    }
}

async fn two() -> (Service, Store, Store) {
    let service = Service::default();
    let one = Store::open(service.backend(), StoreOptions::default()).await.unwrap();
    let two = Store::open(service.backend(), StoreOptions::default()).await.unwrap();
    (service, one, two)
}

#[tokio::test]
async fn a_fresh_read_sees_the_writes_of_another_server() {
    let (_service, one, two) = two().await;
    let mut watch = two.watch(ALL, WatchFrom::Now).unwrap();
    create(&one, "a", "1").await;
    assert_eq!(two.fresh().await, Ok(2));
    assert_eq!(two.get(&key("a")), one.get(&key("a")));
    update(&two, "a", "2").await;
    one.fresh().await.unwrap();
    assert_eq!(now(&one, ALL).await, ["a=2"]);
    assert_eq!(describe(&watch.next().await.unwrap()), "+a=1@2");
    assert_eq!(describe(&watch.next().await.unwrap()), "~a=2@3");
}

#[tokio::test]
async fn a_server_that_is_behind_is_refused_and_shown_the_current_entry() {
    let (_service, one, two) = two().await;
    let first = create(&one, "a", "1").await;
    let second = one.commit(put(&key("a"), Expect::Revision(first), "2")).await.unwrap().revision;
    let refused = two.commit(put(&key("a"), Expect::Revision(first), "x")).await;
    assert_eq!(conflict(refused), Some(second));
    assert!(matches!(
        two.commit(put(&key("a"), Expect::Absent, "x")).await,
        Err(CommitError::Conflict { current: Some(_) })
    ));
}

#[tokio::test]
async fn revisions_used_by_other_servers_do_not_block_watches() {
    let (service, one, _two) = two().await;
    create(&one, "a", "1").await;
    let skipped = service.skip();
    assert_eq!(one.fresh().await, Ok(skipped));
    let watch = one.watch(ALL, WatchFrom::Now).unwrap();
    assert_eq!(watch.progress(), skipped);
    assert_eq!(create(&one, "b", "2").await, skipped + 1);
    let late = Store::open(service.backend(), StoreOptions::default()).await.unwrap();
    assert_eq!(now(&late, ALL).await, ["a=1", "b=2"]);
    assert!(
        late.watch(ALL, WatchFrom::Revision(2)).is_err(),
        "what was before it was opened, it does not know"
    );
}
