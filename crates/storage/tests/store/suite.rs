//! The tests that every backend must pass: `every_backend!` runs them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use storage::{
    Backend, Change, ChangeKind, CommitError, Expect, Fence, ListAt, ListRequest, ReadError, Record, Store,
    StoreOptions, WatchError, WatchFrom, Write, WritePriority,
};

use crate::fixture::{
    Time, at, body, conflict, create, delete, describe, key, now, put, record, remove, shard_end, update,
};

const ALL: &str = "/registry/core/things/";

pub(crate) async fn open(backend: impl Backend) -> Store {
    Store::open(backend, StoreOptions { shard_end, ..StoreOptions::default() }).await.unwrap()
}

pub(crate) async fn an_empty_store_is_at_revision_1_and_the_first_write_gets_2(backend: impl Backend) {
    let store = open(backend).await;
    assert_eq!(store.revision(), 1);
    let page = store.list(ListRequest::all(ALL)).await.unwrap();
    assert!(page.entries.is_empty() && page.more.is_none());
    assert_eq!(page.revision, 1);
    assert_eq!(create(&store, "a", "1").await, 2);
    assert_eq!(store.revision(), 2);
    assert_eq!(at(&store, ALL, 1).await.unwrap(), [""; 0]);
}

pub(crate) async fn a_write_whose_expectation_fails_is_a_conflict(backend: impl Backend) {
    let store = open(backend).await;
    let a = key("a");
    assert_eq!(conflict(store.commit(put(&a, Expect::Revision(1), "x")).await), None);
    let first = create(&store, "a", "1").await;
    assert_eq!(conflict(store.commit(put(&a, Expect::Absent, "x")).await), Some(first));
    let second = store.commit(put(&a, Expect::Revision(first), "2")).await.unwrap().revision;
    assert_eq!(conflict(store.commit(put(&a, Expect::Revision(first), "x")).await), Some(second));
    assert_eq!(conflict(store.commit(delete(&a, Expect::Revision(first))).await), Some(second));
    assert_eq!(conflict(store.commit(delete(&a, Expect::Absent)).await), Some(second));
    let entry = store.get(&a).unwrap();
    assert_eq!((entry.created, entry.revision), (first, second));
    store.commit(delete(&a, Expect::Revision(second))).await.unwrap();
    assert_eq!(conflict(store.commit(delete(&a, Expect::Any)).await), None);
    assert_eq!(conflict(store.commit(put(&a, Expect::Revision(second), "x")).await), None);
    let again = store.commit(put(&a, Expect::Any, "3")).await.unwrap();
    assert_eq!(again.entry.created, again.revision);
    // Rejected writes do not use up a revision.
    assert_eq!(again.revision, 5);
}

pub(crate) async fn a_fenced_write_is_refused_after_a_key_of_its_fences_has_changed(backend: impl Backend) {
    let store = open(backend).await;
    let fence = |name: &str, revision| Fence { key: key(name), revision };
    let one = create(&store, "one", "").await;
    let two = create(&store, "two", "").await;
    let fenced = async |name: &str, one: u64, two: u64| {
        let fences = vec![fence("one", one), fence("two", two)];
        store.commit_fenced(put(&key(name), Expect::Absent, "1"), fences).await
    };
    let a = fenced("a", one, two).await.unwrap().revision;
    let changed = update(&store, "two", "").await;
    let refused = fenced("b", one, two).await;
    assert!(matches!(refused, Err(CommitError::Fenced)), "{refused:?}");
    assert!(store.get(&key("b")).is_none());
    assert_eq!(conflict(fenced("a", one, two).await), Some(a));
    fenced("b", one, changed).await.unwrap();
    remove(&store, "one").await;
    let refused = fenced("c", one, changed).await;
    assert!(matches!(refused, Err(CommitError::Fenced)), "{refused:?}");
    // A key that was created again is another one.
    create(&store, "one", "").await;
    let refused = fenced("c", one, changed).await;
    assert!(matches!(refused, Err(CommitError::Fenced)), "{refused:?}");
}

/// A deletion that is decided just before is noticed, though the store may decide both together.
pub(crate) async fn a_fence_compares_with_writes_that_are_decided_together(backend: impl Backend) {
    let store = open(backend).await;
    for round in 0..20 {
        let (fence_name, name) = (format!("fence-{round}"), format!("new-{round}"));
        let revision = create(&store, &fence_name, "").await;
        let fences = vec![Fence { key: key(&fence_name), revision }];
        let deleting = store.commit(delete(&key(&fence_name), Expect::Any));
        let creating = store.commit_fenced(put(&key(&name), Expect::Absent, "1"), fences);
        let (deleted, created) = tokio::join!(deleting, creating);
        let deleted = deleted.unwrap().revision;
        match created {
            Ok(created) => assert!(created.revision < deleted, "created after the fence was deleted"),
            Err(error) => assert!(matches!(error, CommitError::Fenced), "{error}"),
        }
    }
}

pub(crate) async fn entries_and_deletion_events_carry_their_own_revision(backend: impl Backend) {
    let store = open(backend).await;
    let created = store.commit(put(&key("a"), Expect::Absent, "1")).await.unwrap();
    assert_eq!(created.entry.body, body("1", 2));
    assert_eq!(created.entry.facts, "1");
    assert_eq!(created.event.kind, ChangeKind::Created);
    assert_eq!(store.get(&key("a")).unwrap(), created.entry);
    let deleted = store.commit(delete(&key("a"), Expect::Any)).await.unwrap();
    assert_eq!(deleted.revision, 3);
    assert_eq!(deleted.entry.body, body("1", 3));
    assert_eq!(deleted.event.previous.as_deref(), Some(&*created.entry));
    assert!(store.get(&key("a")).is_none());
    assert_eq!(deleted.entry.record(), record("1"));
}

pub(crate) async fn lists_are_ordered_bounded_and_confined_to_their_scope(backend: impl Backend) {
    let store = open(backend).await;
    for name in ["ns1/b", "ns1/a", "ns2/a", "ns10/a", "ns1/c"] {
        create(&store, name, "1").await;
    }
    store.commit(put("/registry/core/thingsandmore/x", Expect::Absent, "1")).await.unwrap();
    store.commit(put("/registry/apps/things/x", Expect::Absent, "1")).await.unwrap();
    assert_eq!(now(&store, ALL).await, ["ns1/a=1", "ns1/b=1", "ns1/c=1", "ns10/a=1", "ns2/a=1"]);
    assert_eq!(now(&store, &format!("{ALL}ns1/")).await, ["ns1/a=1", "ns1/b=1", "ns1/c=1"]);
    assert_eq!(now(&store, &key("ns1/b")).await, ["ns1/b=1"]);
    assert_eq!(now(&store, "/registry/core/none/").await, [""; 0]);
    assert_eq!(now(&store, "/registry/").await.len(), 7);
    assert_eq!((store.count(ALL), store.count("/"), store.count(&key("ns1/b"))), (5, 7, 1));
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = store
            .list(ListRequest { limit: 2, after: after.as_deref(), ..ListRequest::all(ALL) })
            .await
            .unwrap();
        seen.extend(page.entries.iter().map(|entry| entry.key.to_string()));
        assert_eq!(page.remaining, 5 - seen.len() as u64);
        assert_eq!(page.more.is_some(), page.remaining > 0);
        let Some(more) = page.more else { break };
        after = Some(more);
    }
    assert_eq!(seen.len(), 5);
    assert!(seen.is_sorted());
}

pub(crate) async fn a_list_at_an_exact_revision_returns_the_state_at_that_revision(backend: impl Backend) {
    let store = open(backend).await;
    let mut states = vec![(1, Vec::new())];
    for step in ["+a", "+c", "~a", "+b", "-c", "~b", "-a", "+c", "~c", "-b", "+a"] {
        let (action, name) = step.split_at(1);
        let value = states.len().to_string();
        let revision = match action {
            "+" => create(&store, name, &value).await,
            "~" => update(&store, name, &value).await,
            _ => remove(&store, name).await,
        };
        create(&store, &format!("elsewhere/{revision}"), "x").await;
        states.push((
            revision,
            now(&store, ALL).await.into_iter().filter(|item| !item.contains('/')).collect(),
        ));
    }
    for (revision, state) in states {
        let mut found = at(&store, ALL, revision).await.unwrap();
        found.retain(|item| !item.contains('/'));
        assert_eq!(found, state, "at {revision}");
        for (name, scope) in [("a", key("a")), ("b", key("b"))] {
            let expected: Vec<_> = state.iter().filter(|item| item.starts_with(name)).cloned().collect();
            assert_eq!(at(&store, &scope, revision).await.unwrap(), expected);
        }
    }
}

pub(crate) async fn paging_is_consistent_under_concurrent_writes(backend: impl Backend) {
    let store = open(backend).await;
    for number in 0..100 {
        create(&store, &format!("{number:03}"), "old").await;
    }
    let first = store.list(ListRequest { limit: 7, ..ListRequest::all(ALL) }).await.unwrap();
    let mut seen: Vec<_> = first.entries.iter().cloned().collect();
    let mut more = first.more;
    let mut number = 0;
    while let Some(after) = more {
        update(&store, &format!("{:03}", 99 - number), "new").await;
        remove(&store, &format!("{:03}", 50 - number)).await;
        create(&store, &format!("{:03}b", number * 7), "new").await;
        number += 1;
        let at = ListAt::Exact(first.revision);
        let page = store
            .list(ListRequest { at, after: Some(&after), limit: 7, ..ListRequest::all(ALL) })
            .await
            .unwrap();
        assert_eq!(
            (page.revision, page.remaining),
            (first.revision, (100 - seen.len() - page.entries.len()) as u64)
        );
        seen.extend(page.entries.iter().cloned());
        more = page.more;
    }
    assert_eq!(seen.len(), 100);
    assert!(seen.is_sorted_by(|a, b| a.key < b.key) && seen.iter().all(|entry| entry.facts == "old"));
}

pub(crate) async fn compacted_and_future_revisions_are_refused(backend: impl Backend) {
    let store = open(backend).await;
    for value in ["1", "2", "3", "4"] {
        update(&store, "a", value).await;
    }
    assert_eq!(at(&store, ALL, 6).await, Err(ReadError::Future { current: 5 }));
    assert!(matches!(store.watch(ALL, WatchFrom::Revision(6)), Err(WatchError::Future { current: 5 })));
    assert_eq!(at(&store, ALL, 3).await.unwrap(), ["a=2"]);
    store.compact(4);
    assert_eq!(at(&store, ALL, 3).await, Err(ReadError::Compacted { oldest: 4 }));
    assert!(matches!(store.watch(ALL, WatchFrom::Revision(3)), Err(WatchError::Compacted { oldest: 4 })));
    assert_eq!(at(&store, ALL, 4).await.unwrap(), ["a=3"]);
    let mut watch = store.watch(ALL, WatchFrom::Revision(4)).unwrap();
    assert_eq!(describe(&watch.next().await.unwrap()), "~a=4@5");
    // Revisions that do not exist yet cannot be compacted.
    store.compact(1000);
    assert_eq!(at(&store, ALL, 5).await.unwrap(), ["a=4"]);
    assert_eq!(update(&store, "a", "5").await, 6);
}

pub(crate) async fn revisions_older_than_the_retention_time_are_compacted(backend: impl Backend) {
    let time = Time::default();
    let store = Store::open(backend, time.options()).await.unwrap();
    create(&store, "a", "1").await;
    time.pass(200);
    let middle = update(&store, "a", "2").await;
    time.pass(200);
    update(&store, "a", "3").await;
    // The state replaced 200 seconds ago is still available, the one replaced 400 seconds ago is not.
    assert_eq!(at(&store, ALL, middle).await.unwrap(), ["a=2"]);
    time.pass(200);
    update(&store, "a", "4").await;
    assert!(matches!(at(&store, ALL, 2).await, Err(ReadError::Compacted { .. })));
    assert_eq!(now(&store, ALL).await, ["a=4"]);
}

pub(crate) async fn revisions_beyond_the_retained_number_are_compacted(backend: impl Backend) {
    let options = StoreOptions { retain_revisions: 32, ..StoreOptions::default() };
    let store = Store::open(backend, options).await.unwrap();
    for number in 0..200 {
        update(&store, &format!("{}", number % 3), &number.to_string()).await;
    }
    assert!(matches!(at(&store, ALL, 201 - 60).await, Err(ReadError::Compacted { .. })));
    assert_eq!(at(&store, ALL, 201 - 30).await.unwrap().len(), 3);
}

pub(crate) async fn revisions_beyond_the_retained_size_are_compacted(backend: impl Backend) {
    let options = StoreOptions { retain_bytes: 100_000, ..StoreOptions::default() };
    let store = Store::open(backend, options).await.unwrap();
    let first = create(&store, "a", "small").await;
    for number in 0..30 {
        assert!(at(&store, ALL, first).await.is_ok() || number > 4, "after {number} of them");
        update(&store, "a", &number.to_string().repeat(5_000)).await;
    }
    assert!(matches!(at(&store, ALL, first).await, Err(ReadError::Compacted { .. })));
    assert_eq!(at(&store, ALL, store.revision() - 2).await.unwrap().len(), 1);
}

pub(crate) async fn a_watch_delivers_exactly_the_events_in_its_scope(backend: impl Backend) {
    let store = open(backend).await;
    create(&store, "ns1/a", "1").await;
    let mut all = store.watch(ALL, WatchFrom::Now).unwrap();
    let mut past = store.watch(ALL, WatchFrom::Revision(1)).unwrap();
    let mut namespace = store.watch("/registry/core/things/ns1/", WatchFrom::Now).unwrap();
    let mut single = store.watch(&key("ns1/a"), WatchFrom::Now).unwrap();
    let mut other = store.watch("/registry/apps/things/", WatchFrom::Now).unwrap();
    assert_eq!(store.watches(), 5);
    update(&store, "ns1/a", "2").await;
    create(&store, "ns1/ab", "3").await;
    create(&store, "ns10/a", "4").await;
    remove(&store, "ns1/a").await;
    let events = async |watch: &mut storage::Watch, count: usize| {
        let mut events = Vec::new();
        for _ in 0..count {
            events.push(describe(&watch.next().await.unwrap()));
        }
        assert!(watch.try_next().unwrap().is_none());
        events
    };
    let changes = ["~ns1/a=2@3", "+ns1/ab=3@4", "+ns10/a=4@5", "-ns1/a=2@6"];
    assert_eq!(events(&mut all, 4).await, changes);
    assert_eq!(events(&mut past, 5).await, [&["+ns1/a=1@2"], &changes[..]].concat());
    assert_eq!(events(&mut namespace, 3).await, [changes[0], changes[1], changes[3]]);
    assert_eq!(events(&mut single, 2).await, [changes[0], changes[3]]);
    assert!(other.try_next().unwrap().is_none());
    drop((all, past, namespace, single, other));
    assert_eq!(store.watches(), 0);
}

pub(crate) async fn watches_share_events_that_carry_the_previous_entry(backend: impl Backend) {
    let store = open(backend).await;
    let mut one = store.watch(ALL, WatchFrom::Now).unwrap();
    let mut two = store.watch(ALL, WatchFrom::Now).unwrap();
    create(&store, "a", "1").await;
    update(&store, "a", "2").await;
    remove(&store, "a").await;
    let mut before = None;
    for _ in 0..3 {
        let event = one.next().await.unwrap();
        assert!(Arc::ptr_eq(&event, &two.next().await.unwrap()));
        assert_eq!(event.previous.as_ref().map(|entry| entry.revision), before);
        assert_eq!(event.entry.revision, event.revision);
        assert_eq!(event.entry.created, 2);
        before = Some(event.revision);
    }
}

pub(crate) async fn all_watches_deliver_events_in_the_same_order(backend: impl Backend) {
    let store = open(backend).await;
    let mut watches: Vec<_> = (0..3).map(|_| store.watch(ALL, WatchFrom::Now).unwrap()).collect();
    let mut narrow = store.watch("/registry/core/things/3/", WatchFrom::Now).unwrap();
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for number in 0..50 {
                    update(&store, &format!("{writer}/{}", number % 5), &number.to_string()).await;
                }
            })
        })
        .collect();
    let mut orders = Vec::new();
    for watch in &mut watches {
        let mut order = Vec::new();
        for _ in 0..400 {
            order.push(watch.next().await.unwrap().revision);
        }
        orders.push(order);
    }
    for writer in writers {
        writer.await.unwrap();
    }
    assert!(orders.iter().all(|order| *order == orders[0]));
    assert_eq!(orders[0], (2..=401).collect::<Vec<_>>());
    let mut last = 0;
    for number in 0..50 {
        let event = narrow.next().await.unwrap();
        assert!(event.revision > last);
        assert_eq!(event.entry.facts, number.to_string());
        last = event.revision;
    }
}

pub(crate) async fn only_a_watch_that_lags_behind_the_history_is_ended(backend: impl Backend) {
    let options = StoreOptions { history_events: 100, ..StoreOptions::default() };
    let store = Store::open(backend, options).await.unwrap();
    let mut slow = store.watch(ALL, WatchFrom::Now).unwrap();
    let mut elsewhere = store.watch("/registry/core/others/", WatchFrom::Now).unwrap();
    let mut fast = store.watch(ALL, WatchFrom::Now).unwrap();
    for number in 0..300 {
        update(&store, "a", &number.to_string()).await;
        assert_eq!(fast.next().await.unwrap().entry.facts, number.to_string());
    }
    assert_eq!(slow.next().await.unwrap_err(), WatchError::Lagged);
    assert_eq!(slow.try_next().unwrap_err(), WatchError::Lagged);
    // This watch has no events in its scope, so it missed none.
    store.commit(put("/registry/core/others/a", Expect::Absent, "1")).await.unwrap();
    assert_eq!(elsewhere.next().await.unwrap().entry.facts, "1");
}

pub(crate) async fn event_history_is_bounded_by_bytes(backend: impl Backend) {
    let options = StoreOptions { history_bytes: 100_000, ..StoreOptions::default() };
    let store = Store::open(backend, options).await.unwrap();
    let mut slow = store.watch(ALL, WatchFrom::Now).unwrap();
    for _ in 0..20 {
        update(&store, "a", &"x".repeat(10_000)).await;
    }
    assert_eq!(slow.next().await.unwrap_err(), WatchError::Lagged);
}

pub(crate) async fn watch_progress_never_passes_an_undelivered_event(backend: impl Backend) {
    let store = open(backend).await;
    let mut watch = store.watch("/registry/core/things/mine/", WatchFrom::Now).unwrap();
    assert!(watch.try_next().unwrap().is_none());
    assert_eq!(watch.progress(), 1);
    let other = create(&store, "other/a", "1").await;
    store.reached(other).await;
    assert_eq!(watch.progress(), other);
    let mine = create(&store, "mine/a", "1").await;
    store.reached(mine).await;
    assert_eq!(
        watch.progress(),
        1.max(watch.progress().min(other)),
        "the progress does not pass an undelivered event"
    );
    assert_eq!(watch.next().await.unwrap().revision, mine);
    let later = update(&store, "other/a", "2").await;
    store.reached(later).await;
    assert!(watch.try_next().unwrap().is_none());
    assert_eq!(watch.progress(), later);
}

pub(crate) async fn list_and_watch_continues_without_a_gap_after_the_list(backend: impl Backend) {
    let store = open(backend).await;
    let writer = tokio::spawn({
        let store = store.clone();
        async move {
            for number in 0..300 {
                update(&store, &format!("{}", number % 7), &number.to_string()).await;
            }
        }
    });
    for _ in 0..20 {
        let (page, mut watch) = store.list_and_watch(ALL);
        for step in 1..=5 {
            if store.revision() >= 301 {
                break;
            }
            assert_eq!(watch.next().await.unwrap().revision, page.revision + step);
        }
        tokio::task::yield_now().await;
    }
    writer.await.unwrap();
    assert_eq!(store.revision(), 301);
}

pub(crate) async fn concurrent_compare_and_swap_writes_are_not_lost(backend: impl Backend) {
    let store = open(backend).await;
    create(&store, "counter", "0").await;
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                for _ in 0..25 {
                    loop {
                        let entry = store.get(&key("counter")).unwrap();
                        let value: u64 = std::str::from_utf8(&entry.facts).unwrap().parse().unwrap();
                        let write =
                            put(&key("counter"), Expect::Revision(entry.revision), &(value + 1).to_string());
                        match store.commit(write).await {
                            Ok(_) => break,
                            Err(CommitError::Conflict { current: Some(_) }) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(store.get(&key("counter")).unwrap().facts, "200");
    assert_eq!(store.revision(), 202);
}

pub(crate) async fn oversized_and_malformed_keys_and_records_are_refused(backend: impl Backend) {
    let options = StoreOptions { max_key: 40, max_record: 100, ..StoreOptions::default() };
    let store = Store::open(backend, options).await.unwrap();
    let fits = Record { body: vec![b'x'; 90].into(), revision_at: 90, facts: vec![b'f'; 10].into() };
    let write = |key: &str, record: Record| Write {
        key: key.into(),
        expect: Expect::Any,
        change: Change::Put(record),
        priority: WritePriority::Ordinary,
        ttl: None,
    };
    let long = format!("/r/g/t/{}", "k".repeat(33));
    store.commit(write(&long, fits.clone())).await.unwrap();
    let refused = store.commit(write(&format!("{long}k"), fits.clone())).await;
    assert!(matches!(refused, Err(CommitError::TooLarge { what: "key", size: 41, limit: 40 })));
    let large = Record { facts: vec![b'f'; 11].into(), ..fits.clone() };
    let refused = store.commit(write("/r/g/t/a", large)).await;
    assert!(matches!(refused, Err(CommitError::TooLarge { what: "record", size: 101, limit: 100 })));
    let outside = Record { revision_at: 91, ..fits.clone() };
    assert!(matches!(store.commit(write("/r/g/t/a", outside)).await, Err(CommitError::Invalid(_))));
    for wrong in ["", "a", "/r/g/t/", "/r//t", "/r/g/t/\n"] {
        let refused = store.commit(write(wrong, fits.clone())).await;
        assert!(matches!(refused, Err(CommitError::Invalid(_))), "{wrong:?}");
    }
    assert_eq!(store.revision(), 2);
}

pub(crate) async fn a_closed_store_refuses_writes_and_ends_watches(backend: impl Backend) {
    let store = open(backend).await;
    let mut watch = store.watch(ALL, WatchFrom::Now).unwrap();
    create(&store, "a", "1").await;
    assert!(store.health().is_ok());
    store.close().await;
    assert_eq!(watch.next().await.unwrap().entry.facts, "1");
    assert_eq!(watch.next().await.unwrap_err(), WatchError::Closed);
    let refused = store.commit(put(&key("b"), Expect::Any, "1")).await;
    assert!(matches!(refused, Err(CommitError::Unavailable(_))));
    assert_eq!(store.get(&key("a")).unwrap().facts, "1");
}

pub(crate) async fn a_waiting_watch_wakes_on_a_write(backend: impl Backend) {
    let store = open(backend).await;
    let mut watch = store.watch(ALL, WatchFrom::Now).unwrap();
    let waiting = tokio::spawn(async move { watch.next().await.unwrap().revision });
    tokio::task::yield_now().await;
    create(&store, "a", "1").await;
    let events = tokio::time::timeout(Duration::from_secs(30), waiting).await.unwrap().unwrap();
    assert_eq!(events, 2);
    assert_eq!(store.fresh().await, Ok(2));
}

/// etcd grants no lease below two seconds.
const SHORT: Duration = Duration::from_secs(2);

async fn next(watch: &mut storage::Watch) -> String {
    describe(&tokio::time::timeout(Duration::from_secs(30), watch.next()).await.unwrap().unwrap())
}

pub(crate) async fn a_key_with_a_time_to_live_is_deleted_when_it_ends(backend: impl Backend) {
    let store = open(backend).await;
    let begin = Instant::now();
    let ttl = |name, ttl| Write { ttl: Some(ttl), ..put(&key(name), Expect::Any, "1") };
    store.commit(ttl("long", Duration::from_hours(1))).await.unwrap();
    store.commit(ttl("short", SHORT)).await.unwrap();
    create(&store, "forever", "1").await;
    let mut watch = store.watch(ALL, WatchFrom::Now).unwrap();
    assert_eq!(next(&mut watch).await, "-short=1@5");
    assert!(begin.elapsed() >= SHORT);
    assert_eq!(now(&store, ALL).await, ["forever=1", "long=1"]);
}

pub(crate) async fn a_write_without_a_time_to_live_keeps_the_key(backend: impl Backend) {
    let store = open(backend).await;
    let ttl = |name| Write { ttl: Some(SHORT), ..put(&key(name), Expect::Any, "1") };
    store.commit(ttl("kept")).await.unwrap();
    update(&store, "kept", "2").await;
    // A key that was renewed expires by its last time to live.
    store.commit(ttl("renewed")).await.unwrap();
    store.commit(ttl("renewed")).await.unwrap();
    let mut watch = store.watch(ALL, WatchFrom::Now).unwrap();
    assert_eq!(next(&mut watch).await, "-renewed=1@6");
    store.commit(ttl("last")).await.unwrap();
    assert_eq!(next(&mut watch).await, "+last=1@7");
    assert_eq!(next(&mut watch).await, "-last=1@8");
    assert_eq!(now(&store, ALL).await, ["kept=2"]);
}

/// Runs the suite for one backend: the second argument returns a value that must outlive the store, and the backend; `None` if the
/// backend's tests are left out.
macro_rules! suite {
    ($name:ident, $make:expr, $($case:ident),* $(,)?) => {
        mod $name {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    let Some((_store, backend)) = $make else { return };
                    crate::suite::$case(backend).await;
                }
            )*
        }
    };
}

macro_rules! every_backend {
    ($($name:ident: $make:expr;)*) => {
        $(suite!(
            $name, $make,
            an_empty_store_is_at_revision_1_and_the_first_write_gets_2,
            a_write_whose_expectation_fails_is_a_conflict,
            a_fenced_write_is_refused_after_a_key_of_its_fences_has_changed,
            a_fence_compares_with_writes_that_are_decided_together,
            entries_and_deletion_events_carry_their_own_revision,
            lists_are_ordered_bounded_and_confined_to_their_scope,
            a_list_at_an_exact_revision_returns_the_state_at_that_revision,
            paging_is_consistent_under_concurrent_writes,
            compacted_and_future_revisions_are_refused,
            revisions_older_than_the_retention_time_are_compacted,
            revisions_beyond_the_retained_number_are_compacted,
            revisions_beyond_the_retained_size_are_compacted,
            a_watch_delivers_exactly_the_events_in_its_scope,
            watches_share_events_that_carry_the_previous_entry,
            all_watches_deliver_events_in_the_same_order,
            only_a_watch_that_lags_behind_the_history_is_ended,
            event_history_is_bounded_by_bytes,
            watch_progress_never_passes_an_undelivered_event,
            list_and_watch_continues_without_a_gap_after_the_list,
            concurrent_compare_and_swap_writes_are_not_lost,
            oversized_and_malformed_keys_and_records_are_refused,
            a_closed_store_refuses_writes_and_ends_watches,
            a_waiting_watch_wakes_on_a_write,
            a_key_with_a_time_to_live_is_deleted_when_it_ends,
            a_write_without_a_time_to_live_keeps_the_key,
        );)*
    };
}
