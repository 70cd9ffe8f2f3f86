use value::{Value, json};

use super::{CidrAction, decide};

fn stored(cidrs: &str, conditions: &str) -> Value {
    let text = format!(
        r#"{{"metadata":{{"name":"kubernetes"}},"spec":{{"cidrs":{cidrs}}},"status":{{"conditions":{conditions}}}}}"#
    );
    json::parse(text.as_bytes()).unwrap()
}

const READY: &str = r#"[{"type":"Ready","status":"True"}]"#;

#[test]
fn the_default_service_cidr_follows_the_flag_only_from_one_family_to_two() {
    let one = ["10.0.0.0/24".to_owned()];
    let two = ["10.0.0.0/24".to_owned(), "fd00::/108".to_owned()];
    assert_eq!(decide(None, &one), CidrAction::Create);
    assert_eq!(decide(Some(&stored(r#"["10.0.0.0/24"]"#, READY)), &one), CidrAction::Nothing);
    assert_eq!(decide(Some(&stored(r#"["10.0.0.0/24"]"#, READY)), &two), CidrAction::AddSecondRange);
    let CidrAction::ReportMismatch(warning) = decide(Some(&stored(r#"["10.9.0.0/24"]"#, READY)), &two) else {
        panic!("other ranges are reported")
    };
    assert_eq!(
        warning.message,
        "The default ServiceCIDR [10.9.0.0/24] does not match the controller flag configurations [10.0.0.0/24 fd00::/108]"
    );
    let both = stored(r#"["10.0.0.0/24","fd00::/108"]"#, READY);
    assert!(matches!(decide(Some(&both), &one), CidrAction::ReportMismatch(_)), "no way back");
}

#[test]
fn the_condition_is_set_unless_another_component_has_set_it() {
    let ranges = ["10.0.0.0/24".to_owned()];
    let with = |conditions: &str| decide(Some(&stored(r#"["10.0.0.0/24"]"#, conditions)), &ranges);
    assert_eq!(with("[]"), CidrAction::SetReady);
    assert_eq!(with(r#"[{"type":"Ready","status":"Unknown"}]"#), CidrAction::SetReady);
    let CidrAction::ReportNotReady(warning) =
        with(r#"[{"type":"Ready","status":"False","reason":"Why","message":"it is closed"}]"#)
    else {
        panic!("it is reported")
    };
    assert_eq!(
        (warning.reason.as_str(), warning.message.as_str()),
        ("Why", "Configuration matches, but it is closed")
    );
    let mut deleting = stored(r#"["10.0.0.0/24"]"#, "[]");
    deleting.set_at(&["metadata", "deletionTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(decide(Some(&deleting), &ranges), CidrAction::Nothing);
}
