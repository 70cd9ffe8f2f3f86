//! Every request script gets the answers that were recorded from a real kube-apiserver.
//!
//! Each script has one line in [`scripts!`] with its exact number of steps, so that a lost step fails. A script without a line
//! fails `every_script_has_a_test`.

use conformance::{script, suite};

/// Makes one test per script and the list of their names.
macro_rules! scripts {
    ($($test:ident $name:literal $steps:literal)*) => {
        const NAMES: &[&str] = &[$($name),*];

        mod answers_equal_kube_apiserver {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $test() {
                    super::check($name, $steps).await;
                }
            )*
        }
    };
}

scripts! {
    access "access" 52
    apiservices "apiservices" 66
    apply "apply" 185
    corners "corners" 42
    create "create" 65
    custom "custom" 186
    custom_apply "custom-apply" 50
    definition_defaults "definition-defaults" 34
    definitions "definitions" 172
    delete "delete" 60
    discovery "discovery" 134
    kinds "kinds" 539
    namespaces "namespaces" 22
    owners "owners" 19
    patch "patch" 51
    plugins_cluster "plugins-cluster" 38
    plugins_evictions "plugins-evictions" 40
    plugins_limits "plugins-limits" 46
    plugins_pod_security "plugins-pod-security" 168
    plugins_pods "plugins-pods" 46
    read "read" 90
    refusals "refusals" 57
    rules "rules" 41
    services "services" 40
    strategic "strategic" 75
    subresources "subresources" 157
    update "update" 57
    validation "validation" 97
    watch "watch" 51
}

/// Replays one script against a server of its own. `steps` counts the steps of every round of the script.
async fn check(name: &str, steps: usize) {
    let script = script::load(name).unwrap();
    assert_eq!(script.step_count(), steps, "`{name}.yaml` has another number of steps than its test says");
    let score = suite::run_one(script).await.unwrap();
    print!("{}", score.report);
    assert_eq!(score.total, steps, "`{name}.expected.json` has another number of answers");
    assert_eq!(score.passed, steps, "steps of `{name}.yaml` got another answer; see the differences above");
}

#[test]
fn every_script_has_a_test() {
    let found: Vec<String> = script::all().unwrap().into_iter().map(|script| script.name).collect();
    assert_eq!(found, NAMES, "the files in `scripts/` and the lines of `scripts!` differ");
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
