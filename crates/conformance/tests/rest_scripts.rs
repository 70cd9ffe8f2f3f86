//! Every request script gets the answers that were recorded from a real kube-apiserver.
//!
//! Each script has one line in [`scripts!`] with its exact number of steps, so that a lost step fails. A script without a line
//! fails `every_script_has_a_test`. Each script runs with the embedded store and on etcd.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use conformance::{EtcdProcess, script, suite};

/// Makes two tests per script and the list of their names.
macro_rules! scripts {
    ($($test:ident $name:literal $steps:literal)*) => {
        const NAMES: &[&str] = &[$($name),*];

        mod answers_equal_kube_apiserver {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $test() {
                    super::check($name, $steps, None).await;
                }
            )*
        }

        mod answers_on_etcd_equal_kube_apiserver {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $test() {
                    super::check_on_etcd($name, $steps).await;
                }
            )*
        }
    };
}

scripts! {
    access "access" 52
    admission_cluster_objects "admission-cluster-objects" 38
    admission_limits_and_quotas "admission-limits-and-quotas" 46
    admission_pod_security "admission-pod-security" 168
    admission_pods "admission-pods" 46
    apiservices "apiservices" 67
    apply "apply" 186
    autoscalers "autoscalers" 4
    crd_defaults "crd-defaults" 20
    crd_lifecycle "crd-lifecycle" 25
    crd_validation "crd-validation" 161
    create "create" 66
    custom_resource_rules "custom-resource-rules" 41
    custom_resources "custom-resources" 186
    custom_resources_apply "custom-resources-apply" 50
    delete "delete" 63
    delete_collections "delete-collections" 11
    delete_unreadable_objects "delete-unreadable-objects" 4
    discovery "discovery" 134
    evictions "evictions" 40
    kinds "kinds" 539
    managed_fields "managed-fields" 20
    media_types "media-types" 10
    namespaces "namespaces" 22
    patch "patch" 51
    pod_fields "pod-fields" 5
    query_parameters "query-parameters" 7
    read "read" 91
    request_bodies "request-bodies" 13
    services "services" 48
    strategic_merge_patch "strategic-merge-patch" 75
    strategic_merge_patch_types "strategic-merge-patch-types" 9
    subresources "subresources" 158
    tables "tables" 9
    update "update" 61
    validation "validation" 104
    watch "watch" 52
}

/// Replays one script against a server of its own. `steps` counts the steps of every round of the script.
async fn check(name: &str, steps: usize, etcd: Option<&EtcdProcess>) {
    let script = script::load(name).unwrap();
    assert_eq!(script.step_count(), steps, "`{name}.yaml` has another number of steps than its test says");
    let score = suite::run_one(script, etcd).await.unwrap();
    print!("{}", score.report);
    assert_eq!(score.total, steps, "`{name}.expected.json` has another number of answers");
    assert_eq!(score.passed, steps, "steps of `{name}.yaml` got another answer; see the differences above");
}

/// Does nothing where the tests with etcd are left out.
async fn check_on_etcd(name: &str, steps: usize) {
    let Some(etcd) = EtcdProcess::start().await.unwrap() else { return };
    check(name, steps, Some(&etcd)).await;
}

#[test]
fn every_script_has_a_test() {
    let found: Vec<String> = script::all().unwrap().into_iter().map(|script| script.name).collect();
    assert_eq!(found, NAMES, "the files in `scripts/` and the lines of `scripts!` differ");
}

#[test]
fn step_names_are_unique_in_their_script() {
    for script in script::all().unwrap() {
        let mut names = BTreeSet::new();
        for step in &script.steps {
            assert!(names.insert(&step.name), "{}.yaml: two steps are named `{}`", script.name, step.name);
        }
    }
}

#[test]
fn step_names_make_sense_without_the_step_before() {
    let dependent = [
        "and ",
        "nor ",
        "or ",
        "but ",
        "it ",
        "its ",
        "they ",
        "their ",
        "so ",
        "again",
        "the same",
        "another one",
    ];
    for script in script::all().unwrap() {
        for step in &script.steps {
            let name = &step.name;
            assert!(
                name.split_whitespace().count() >= 2
                    && !dependent.iter().any(|start| name.starts_with(start)),
                "{}.yaml: the step name `{name}` does not make sense alone in a failure report",
                script.name
            );
        }
    }
}

#[test]
fn scripts_are_block_style_yaml_under_120_columns() {
    for script in script::all().unwrap() {
        for (number, line) in script::text(&script.name).unwrap().lines().enumerate() {
            let at = format!("{}.yaml:{}", script.name, number + 1);
            assert!(line.chars().count() <= 120, "{at}: the line is longer than 120 columns");
            assert!(
                !line.starts_with("- {\"name\"") && !line.starts_with("- {name: "),
                "{at}: the step is not in block style"
            );
        }
    }
}
