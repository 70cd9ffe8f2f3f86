use super::Metrics;

#[test]
fn stored_objects_are_counted_under_both_names() {
    let metrics = Metrics::new(0.0).unwrap();
    let lines = |objects: &[(String, usize)]| {
        let page = String::from_utf8(metrics.page((0, 0), None, objects)).unwrap();
        let is_count = |line: &&str| line.contains("_objects{");
        page.lines().filter(is_count).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        lines(&[("pods".to_owned(), 3), ("deployments.apps".to_owned(), 1)]),
        [
            r#"apiserver_resource_objects{group="",resource="pods"} 3"#,
            r#"apiserver_resource_objects{group="apps",resource="deployments"} 1"#,
            r#"apiserver_storage_objects{resource="deployments.apps"} 1"#,
            r#"apiserver_storage_objects{resource="pods"} 3"#,
        ]
    );
    // Resources that are no longer served disappear from the page.
    assert_eq!(lines(&[]).len(), 0);
}
