use std::sync::Arc;

use kinds::table;
use storage::{Change, Expect, Memory, Store, StoreOptions, Write, WritePriority};

use super::{ServedResource, StoredEntry, StoredObject};

fn requests(version: &str) -> ServedResource {
    let row = table::find("certificates.k8s.io", version, "podcertificaterequests").unwrap();
    ServedResource::of_row(row, version).unwrap()
}

/// A request that is stored in a version.
async fn stored_as(version: &str) -> Arc<StoredEntry> {
    let text = format!(
        r#"{{"apiVersion":"certificates.k8s.io/{version}","kind":"PodCertificateRequest","metadata":{{"name":"r","namespace":"n"}}}}"#
    );
    let object = StoredObject::of_unknown_crd(value::json::parse(text.as_bytes()).unwrap());
    let head = crate::encode::head(&format!("certificates.k8s.io/{version}"), "PodCertificateRequest");
    let write = Write {
        key: "/registry/podcertificaterequests/n/r".into(),
        expect: Expect::Absent,
        change: Change::Put(ServedResource::custom_record(&head, &object)),
        priority: WritePriority::Ordinary,
        ttl: None,
    };
    let store = Store::open(Memory::new(), StoreOptions::default()).await.unwrap();
    store.commit(write).await.unwrap().entry
}

#[tokio::test]
async fn an_object_in_another_stored_version_is_converted() {
    let (v1, beta) = (requests("v1"), requests("v1beta1"));
    let current = stored_as("v1beta1").await;
    assert!(!beta.must_convert(&current));
    // Older releases of this server stored v1.
    let old = stored_as("v1").await;
    assert!(beta.must_convert(&old) && v1.must_convert(&old));
    let shown = beta.shapes().to_sent(beta.shapes().load_built_in(&old).unwrap());
    assert_eq!(shown.str_at(&["apiVersion"]), Some("certificates.k8s.io/v1beta1"));
}
