use api::features::{Feature, Features};
use value::json::parse;
use value::{Value, write};

use super::drop_disabled;

fn workload(text: &str) -> Value {
    parse(format!(r#"{{"spec":{text}}}"#).as_bytes()).unwrap()
}

fn dropped(new: &str, old: Option<&str>, features: Features) -> String {
    let mut new = workload(new);
    drop_disabled(&mut new, old.map(workload).as_ref(), features);
    write::to_string(new.at(&["spec"]).unwrap())
}

const ALL: &str = r#"{"podGroupTemplates":[{"name":"a","preemptionPolicy":"Never","resourceClaims":[{"name":"c"}],"schedulingConstraints":{}}]}"#;
const TREE: &str = r#"{"compositePodGroupTemplates":[{"compositePodGroupTemplates":[{"name":"b","podGroupTemplates":[{"name":"c","schedulingConstraints":{}}]}],"name":"a","preemptionPolicy":"Never"}]}"#;

#[test]
fn fields_of_disabled_features_are_dropped_from_new_templates() {
    assert_eq!(dropped(ALL, None, Features::default()), r#"{"podGroupTemplates":[{"name":"a"}]}"#);
    let topology = Features::default().with(Feature::TopologyAwareWorkloadScheduling);
    assert_eq!(
        dropped(ALL, None, topology),
        r#"{"podGroupTemplates":[{"name":"a","schedulingConstraints":{}}]}"#
    );
    assert_eq!(dropped(TREE, None, topology), "{}");
    assert_eq!(dropped(TREE, None, Features::ALL), TREE.replace(r#","preemptionPolicy":"Never""#, ""));
}

#[test]
fn fields_of_disabled_features_stay_if_the_stored_template_has_them() {
    assert_eq!(dropped(ALL, Some(ALL), Features::default()), ALL);
    assert_eq!(dropped(TREE, Some(TREE), Features::default()), TREE);
    // A template at another position does not count, and neither does a composite template with another name.
    let second = ALL.replace("[{\"name\":\"a\"", "[{\"name\":\"b\"},{\"name\":\"a\"");
    assert_eq!(
        dropped(&second, Some(ALL), Features::default()),
        r#"{"podGroupTemplates":[{"name":"b"},{"name":"a"}]}"#
    );
    let renamed = TREE.replace(r#""name":"a""#, r#""name":"z""#);
    assert_eq!(
        dropped(&renamed, Some(TREE), Features::default()),
        r#"{"compositePodGroupTemplates":[{"name":"z"}]}"#
    );
}
