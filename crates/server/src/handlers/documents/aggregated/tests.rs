use super::*;

fn remote(entry: &Arc<Value>) -> Vec<RemoteVersion> {
    let registration = discovery::of_custom_version("example.com", "v1");
    vec![RemoteVersion { registration, entry: Arc::clone(entry) }]
}

#[test]
fn the_document_is_built_again_only_after_changes() {
    let discovery = AggregatedDiscovery::default();
    let custom = Arc::new(CustomKinds::default());
    let entry = Arc::new(Value::map([("resources", Value::List(vec![Value::from("r")]))]));
    let stale = || Arc::new(discovery::stale_version("v1"));
    let found = |custom: &Arc<CustomKinds>, entry: &Arc<Value>| {
        discovery.find(custom, &remote(entry)).map(|document| document.body)
    };
    assert_eq!(found(&custom, &entry), None);
    for (entry, text) in [(&stale(), "stale"), (&entry, "current")] {
        discovery.set(&custom, remote(entry), DiscoveryDocument::of(&Value::from(text)));
        let body = Bytes::from(format!("\"{text}\"\n"));
        assert_eq!(found(&custom, entry), Some(body));
        assert_eq!(found(&custom, &stale()).is_some(), text == "stale", "a stale entry is made anew");
    }
    assert_eq!(found(&custom, &Arc::new(Value::clone(&entry))), None, "another document was fetched");
    assert!(discovery.find(&custom, &[]).is_none(), "an APIService was deleted");
    assert_eq!(found(&Arc::new(CustomKinds::default()), &entry), None, "a CRD has changed");
    drop(custom);
    let last = discovery.last.lock().unwrap();
    assert!(last.as_ref().unwrap().custom.upgrade().is_none(), "deleted CRDs are not kept");
}
