use catalog::{Catalog, encode, keys};
use storage::{Change, Expect, Memory, Store, StoreOptions, Write, WritePriority};
use value::Map;

use super::*;

/// Stores a ConfigMap of this name.
async fn stored(store: &Store, name: &str) -> Arc<StoredEntry> {
    let record = encode::record(&encode::head("v1", "ConfigMap"), &Value::Map(Map::new()), Vec::new());
    let write = Write {
        key: format!("{}default/{name}", keys::CONFIG_MAPS).into(),
        expect: Expect::Absent,
        change: Change::Put(record),
        priority: WritePriority::Ordinary,
        ttl: None,
    };
    store.commit(write).await.unwrap().entry
}

#[tokio::test]
async fn the_cache_of_converted_objects_is_bounded_by_their_size() {
    let kind = Catalog::new(kinds::table::Served::default())
        .find(&"".into(), &"v1".into(), &"configmaps".into())
        .unwrap();
    let object = Arc::new(Value::from("x".repeat(MAX_BYTES / 3)));
    let cache = ConvertedObjectCache::default();
    let store = Store::open(Memory::new(), StoreOptions::default()).await.unwrap();
    let mut entries = Vec::new();
    for name in ["a", "b", "c"] {
        let entry = stored(&store, name).await;
        cache.put(&kind, &entry, &object);
        entries.push(entry);
    }
    let cached: Vec<bool> = entries.iter().map(|entry| cache.get(&kind, entry).is_some()).collect();
    assert_eq!(cached, [false, true, true], "only the object that was used longest ago is evicted");
}
