use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use fuzz::Dice;

use super::{CHUNK, EntryTable, ScopeTotals, StoredEntries};
use crate::{Record, StoredEntry};

fn entry(key: &str, revision: u64) -> Arc<StoredEntry> {
    // The body has from two digits to hundreds of bytes.
    let body = Bytes::from(vec![b' '; usize::try_from(revision % 499).unwrap_or_default()]);
    let record = Record { body, revision_at: 0, facts: Bytes::from_static(b"not counted") };
    Arc::new(StoredEntry::new(key.into(), revision, revision, &record))
}

fn keys(entries: &StoredEntries) -> Vec<&str> {
    entries.iter().map(|entry| &*entry.key).collect()
}

#[test]
fn an_entry_table_behaves_as_a_sorted_map() {
    let mut table = EntryTable::default();
    let mut model = BTreeMap::new();
    let mut dice = Dice::new(7);
    for revision in 0..20_000 {
        let number = dice.roll(1500);
        let key = format!("/r/g/things/n{}/{number:04}", number % 3);
        if dice.roll(5) < if revision < 12_000 { 3 } else { 1 } {
            let old = table.insert(entry(&key, revision)).map(|old| old.revision);
            assert_eq!(old, model.insert(key, revision));
        } else {
            assert_eq!(table.remove(&key).map(|old| old.revision), model.remove(&key));
        }
    }
    let all = table.select("/r/g/things/", None);
    assert_eq!(keys(&all), model.keys().collect::<Vec<_>>());
    assert_eq!(all.len(), model.len());
    assert_eq!(table.totals(), ScopeTotals::of(&all));
    assert_eq!(EntryTable::from_sorted(all.iter().cloned().collect()).totals(), table.totals());
    assert!(table.chunks.iter().all(|chunk| !chunk.is_empty() && chunk.len() <= CHUNK));
    for (key, revision) in &model {
        assert_eq!(table.get(key).map(|entry| entry.revision), Some(*revision));
    }
    for scope in ["/r/g/things/n0/", "/r/g/things/n1/", "/r/g/things/n9/", "/r/"] {
        for after in [None, Some("/r/g/things/n1/0700"), Some("/a"), Some("/z")] {
            let expected: Vec<_> = model
                .keys()
                .filter(|key| key.starts_with(scope) && after.is_none_or(|after| key.as_str() > after))
                .collect();
            assert_eq!(keys(&table.select(scope, after)), expected, "{scope} after {after:?}");
        }
    }
}

#[test]
fn a_selection_is_a_snapshot_unaffected_by_later_writes() {
    let mut table = EntryTable::from_sorted((0..1000).map(|n| entry(&format!("/r/g/t/{n:04}"), 1)).collect());
    let before = table.select("/r/g/t/", None);
    for n in 0..1000 {
        if n % 2 == 0 {
            table.remove(&format!("/r/g/t/{n:04}"));
        } else {
            table.insert(entry(&format!("/r/g/t/{n:04}"), 2));
        }
    }
    assert_eq!(before.len(), 1000);
    assert!(before.iter().all(|entry| entry.revision == 1));
    assert_eq!(before.iter().count(), 1000);
    assert!(table.select("/r/g/t/", None).iter().all(|entry| entry.revision == 2));
    assert_eq!(table.select("/", None).len(), 500);
}

#[test]
fn truncating_a_page_returns_the_number_of_removed_entries() {
    let table = EntryTable::from_sorted((0..1000).map(|n| entry(&format!("/r/g/t/{n:04}"), 1)).collect());
    for limit in [0, 1, 255, 256, 257, 999, 1000, 2000] {
        let mut page = table.select("/r/g/t/", None);
        assert_eq!(page.truncate(limit), 1000_usize.saturating_sub(limit));
        assert_eq!(page.len(), limit.min(1000));
        assert_eq!(page.iter().count(), page.len());
    }
}

#[test]
fn selecting_a_key_returns_only_its_entry() {
    let table = EntryTable::from_sorted(vec![entry("/r/g/t/a", 1), entry("/r/g/t/ab", 1)]);
    assert_eq!(keys(&table.select("/r/g/t/a", None)), ["/r/g/t/a"]);
    assert!(table.select("/r/g/t/a", Some("/r/g/t/a")).is_empty());
    assert!(table.select("/r/g/t/b", None).is_empty());
}
