//! Random writes, crashes and reopenings, checked against a model of the acknowledged writes.
//!
//! `PORTCULLIS_ROUNDS` sets the number of histories, `PORTCULLIS_SEED` the first seed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fuzz::Dice;
use storage::{
    Change, ChangeKind, CommitError, Embedded, Expect, ListAt, ListRequest, Store, StoreEvent, StoreOptions,
    WatchError, WatchFrom,
};

use crate::disk::SimulatedDisk;
use crate::fixture::{body, delete, key, put};

const ALL: &str = "/registry/core/things/";

/// Live keys with their value and revision.
type StoreState = BTreeMap<Arc<str>, (String, u64)>;

/// The acknowledged writes, and those with an unknown outcome.
#[derive(Default)]
struct Model {
    /// Acknowledged writes by revision: the key, and the value unless it was deleted.
    acknowledged: BTreeMap<u64, (Arc<str>, Option<String>)>,
    /// Writes that returned an error: they may have happened.
    open: BTreeSet<(Arc<str>, Option<String>)>,
    /// The live keys at `revision`.
    base: StoreState,
    revision: u64,
}

impl Model {
    /// Checks the store against the acknowledged writes, allowing for unacknowledged ones that happened.
    fn check(&mut self, store: &Store) -> Result<(), String> {
        let last = self.acknowledged.last_key_value().map_or(self.revision, |(revision, _)| *revision);
        if store.revision() < last {
            return Err(format!(
                "revision {last} was acknowledged, and the store is at {}",
                store.revision()
            ));
        }
        let mut state = std::mem::take(&mut self.base);
        let mut from = self.revision;
        if let Err(WatchError::Compacted { oldest }) = store.watch("/", WatchFrom::Revision(from)) {
            // The file was rewritten from the acknowledged state.
            from = oldest;
            let later = self.acknowledged.split_off(&(oldest + 1));
            for (revision, (key, value)) in std::mem::replace(&mut self.acknowledged, later) {
                match value {
                    Some(value) => state.insert(key, (value, revision)),
                    None => state.remove(&key),
                };
            }
        }
        let mut watch = store.watch("/", WatchFrom::Revision(from)).map_err(|error| error.to_string())?;
        while let Some(event) = watch.try_next().map_err(|error| error.to_string())? {
            let (revision, change) = (event.revision, change(&event));
            match self.acknowledged.remove(&revision) {
                Some(expected) if expected == change => {}
                Some(expected) => return Err(format!("{expected:?} was acknowledged, not {change:?}")),
                None if self.open.remove(&change) => {}
                None => return Err(format!("no write produced {change:?} at {revision}")),
            }
            apply(&mut state, &event)?;
        }
        if let Some((revision, change)) = self.acknowledged.first_key_value() {
            return Err(format!("{change:?} was acknowledged at {revision} and is gone"));
        }
        let page = store.snapshot("/");
        let live: StoreState = page
            .entries
            .iter()
            .map(|entry| (entry.key.clone(), (text(&entry.facts), entry.revision)))
            .collect();
        if live != state {
            return Err(format!("live is {live:?}, and the events say {state:?}"));
        }
        for entry in &page.entries {
            if entry.body != body(&text(&entry.facts), entry.revision) {
                return Err(format!("half a write: {entry:?}"));
            }
        }
        self.open.clear();
        self.base = state;
        self.revision = store.revision();
        Ok(())
    }
}

fn change(event: &StoreEvent) -> (Arc<str>, Option<String>) {
    let value = (event.kind != ChangeKind::Deleted).then(|| text(&event.entry.facts));
    (event.entry.key.clone(), value)
}

fn apply(state: &mut StoreState, event: &StoreEvent) -> Result<(), String> {
    let before = match event.kind {
        ChangeKind::Deleted => state.remove(&event.entry.key),
        _ => state.insert(event.entry.key.clone(), (text(&event.entry.facts), event.revision)),
    };
    let previous = event.previous.as_ref().map(|entry| (text(&entry.facts), entry.revision));
    let is_new = (event.kind == ChangeKind::Created) == before.is_none();
    if before == previous && is_new { Ok(()) } else { Err(format!("{event:?} does not follow {before:?}")) }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs one history: several lifetimes of the store, each with several batches of concurrent writes, each ended by a crash
/// or a clean close.
async fn play(seed: u64, is_lying: bool) -> Result<(), String> {
    let mut dice = Dice::new(seed);
    let disk = SimulatedDisk::default();
    let open = async || {
        let disk = disk.clone();
        // The default history holds all events, so that the model can follow them.
        Store::open(Embedded::over(disk), StoreOptions::default()).await.map_err(|error| error.to_string())
    };
    let mut model = Model { revision: 1, ..Model::default() };
    open().await?.close().await;
    if is_lying {
        disk.lie();
    }
    let mut nonce = 0;
    for _ in 0..4 {
        let store = open().await?;
        model.check(&store)?;
        let crashes = dice.roll(4) > 0;
        if crashes {
            disk.light_fuse(dice.roll(400));
        }
        for _ in 0..dice.roll(20) {
            if dice.roll(5) == 0 {
                // The model no longer needs revisions before its own.
                store.compact(model.revision);
            }
            // Occasionally the disk fails or runs full.
            disk.fail_syncs(!is_lying && dice.roll(15) == 0);
            disk.set_room((dice.roll(15) == 0).then(|| disk.size()));
            let wave: Vec<_> = (0..=dice.roll(12))
                .map(|_| {
                    nonce += 1;
                    let key = key(&format!("{}", dice.roll(15)));
                    let current = store.get(&key).map(|entry| entry.revision);
                    let expect = match dice.roll(4) {
                        0 => Expect::Any,
                        1 => Expect::Absent,
                        _ => current.map_or(Expect::Absent, Expect::Revision),
                    };
                    if dice.roll(4) == 0 {
                        return delete(&key, expect);
                    }
                    let length = if dice.roll(10) == 0 { dice.roll(20_000) } else { dice.roll(300) };
                    put(&key, expect, &format!("{nonce}-{}", "x".repeat(usize::try_from(length).unwrap())))
                })
                .collect();
            let mut answers = tokio::task::JoinSet::new();
            for write in wave {
                let store = store.clone();
                answers.spawn(async move { (write.clone(), store.commit(write).await) });
            }
            while let Some(answer) = answers.join_next().await {
                let (write, answer) = answer.map_err(|error| error.to_string())?;
                let value = match write.change {
                    Change::Put(record) => Some(text(&record.facts)),
                    Change::Delete => None,
                };
                match answer {
                    Ok(committed) => {
                        model.acknowledged.insert(committed.revision, (write.key, value));
                    }
                    Err(CommitError::Conflict { .. }) => {}
                    Err(CommitError::Unavailable(_)) => {
                        model.open.insert((write.key, value));
                    }
                    Err(error) => return Err(error.to_string()),
                }
            }
        }
        // Reads still work after any disk error, and show the acknowledged state.
        for (revision, (key, value)) in &model.acknowledged {
            let is_last = !model.acknowledged.range(revision + 1..).any(|(_, (other, _))| other == key);
            if is_last && store.get(key).map(|entry| text(&entry.facts)) != *value {
                return Err(format!("`{key}` does not read as acknowledged at {revision}"));
            }
        }
        disk.fail_syncs(false);
        disk.set_room(None);
        if crashes {
            drop(store);
            disk.crash(&mut dice);
        } else {
            store.close().await;
        }
    }
    let store = open().await?;
    model.check(&store)?;
    let at = ListAt::Exact(store.revision());
    let page =
        store.list(ListRequest { at, ..ListRequest::all(ALL) }).await.map_err(|error| error.to_string())?;
    if page.entries.len() == model.base.len() { Ok(()) } else { Err("the list is not complete".to_owned()) }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_a_crash() {
    let first = setting("PORTCULLIS_SEED", 1);
    for seed in first..first + setting("PORTCULLIS_ROUNDS", 40) {
        if let Err(violation) = play(seed, false).await {
            panic!("PORTCULLIS_SEED={seed}: {violation}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_crash_test_detects_a_disk_that_ignores_syncs() {
    let mut found = 0;
    for seed in 1..=10 {
        found += u32::from(play(seed, true).await.is_err());
    }
    assert!(found >= 8, "only {found} of 10 histories noticed it");
}
