use super::*;

/// The objects that exist in a test.
struct Existing(Vec<SeriesObject>);

impl ExistingObjects for Existing {
    fn contains(&self, object: &SeriesObject) -> bool {
        self.0.contains(object)
    }
}

fn things(version: Option<&str>) -> SeriesObject {
    SeriesObject::Resource {
        group: "example.com".into(),
        version: version.map(Str::from),
        plural: "things".into(),
    }
}

/// The number of series of each family.
fn series(registry: &MetricRegistry) -> Vec<(String, usize)> {
    let of = |family: &prometheus::proto::MetricFamily| (family.name().to_owned(), family.get_metric().len());
    registry.gather().iter().map(of).collect()
}

#[test]
fn the_series_of_an_object_are_removed_by_the_second_sweep_that_misses_it() {
    let registry = MetricRegistry::new();
    let requests = registry
        .counter_vec("requests_total", "Requests.", &["group", "resource", "version", "code"])
        .unwrap();
    requests.with_label_values(&["example.com", "things", "v1", "200"]).inc();
    requests.with_label_values(&["example.com", "things", "v2", "200"]).inc();
    // Without a resource, and without object labels.
    requests.with_label_values(&["", "", "", "404"]).inc();
    registry.counter_vec("other_total", "Other.", &["code"]).unwrap().with_label_values(&["1"]).inc();
    let checks = registry.histogram_vec("checks", "Checks.", &["policy", "policy_binding"], &[1.0]).unwrap();
    checks.with_label_values(&["p", "b"]).observe(1.0);
    checks.with_label_values(&["p", "other"]).observe(1.0);

    let counts = |requests, checks| {
        let all = [("checks", checks), ("other_total", 1), ("requests_total", requests)];
        all.map(|(name, count): (&str, usize)| (name.to_owned(), count)).to_vec()
    };
    let policy = || SeriesObject::Policy("p".into());
    let binding = |name: &str| SeriesObject::PolicyBinding(name.into());
    let all =
        Existing(vec![things(Some("v1")), things(Some("v2")), policy(), binding("b"), binding("other")]);
    let fewer = Existing(vec![things(Some("v1")), policy(), binding("b")]);
    let mut sweeper = SeriesSweeper::default();
    for (existing, expected) in [
        (&all, counts(3, 2)),
        (&all, counts(3, 2)),
        (&fewer, counts(3, 2)),
        // An object that exists again keeps its series.
        (&all, counts(3, 2)),
        (&fewer, counts(3, 2)),
        (&fewer, counts(2, 1)),
        (&Existing(Vec::new()), counts(2, 1)),
    ] {
        sweeper.sweep(&registry, existing);
        assert_eq!(series(&registry), expected);
    }
    sweeper.sweep(&registry, &Existing(Vec::new()));
    assert_eq!(series(&registry), [("other_total".to_owned(), 1), ("requests_total".to_owned(), 1)]);
}

#[test]
fn labels_name_objects_only_in_families_about_them() {
    let check = |family: &str, labels: &[(&str, &str)], expected: &[SeriesObject]| {
        assert_eq!(objects(family, &SeriesLabels::of(labels)), expected, "{family} {labels:?}");
    };
    let request = [("group", "example.com"), ("resource", "things"), ("version", "v1")];
    check("apiserver_request_total", &request, &[things(Some("v1"))]);
    check("etcd_requests_total", &[("group", "example.com"), ("resource", "things")], &[things(None)]);
    check("pod_security_evaluations_total", &[("resource", "pod")], &[]);
    let name = [("name", "n.example.com")];
    let webhook = SeriesObject::Webhook("n.example.com".into());
    check("apiserver_admission_webhook_request_total", &name, std::slice::from_ref(&webhook));
    check("apiserver_admission_manifest_webhook_request_total", &name, std::slice::from_ref(&webhook));
    check("apiserver_admission_controller_admission_duration_seconds", &name, &[]);
    check("kubernetes_feature_enabled", &name, &[]);
    let service = SeriesObject::ApiService("n.example.com".into());
    check("aggregator_unavailable_apiservice_total", &name, &[service]);
    let conditions = "apiserver_admission_match_condition_evaluation_seconds";
    check(conditions, &[("kind", "webhook"), ("name", "n.example.com")], &[webhook]);
    check(conditions, &[("kind", "policy"), ("name", "p")], &[SeriesObject::Policy("p".into())]);
    let conversions = "apiserver_crd_conversion_webhook_duration_seconds";
    check(conversions, &[("crd_name", "c")], &[SeriesObject::Crd("c".into())]);
}
