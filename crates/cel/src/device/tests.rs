use value::json::parse;

use super::{DeviceSelector, DeviceSelectorError, SelectableDevice};

fn device() -> SelectableDevice {
    let device = parse(
        br#"{"name": "gpu-0", "allowMultipleAllocations": true,
             "attributes": {"model": {"string": "A100"}, "cores": {"int": 8}, "ready": {"bool": true},
                            "dra.example.com/driverVersion": {"version": "1.2.3"}, "other.example.com/numa": {"int": 1}},
             "capacity": {"memory": {"value": "80Gi"}, "other.example.com/lanes": {"value": "16"}}}"#,
    )
    .unwrap();
    SelectableDevice::read("dra.example.com", &device).unwrap()
}

fn matches(expression: &str) -> Result<bool, String> {
    DeviceSelector::check(expression).unwrap();
    DeviceSelector::compile(expression).unwrap().matches(&device())
}

fn refusal(expression: &str) -> DeviceSelectorError {
    DeviceSelector::check(expression).unwrap_err()
}

#[test]
fn a_selector_reads_the_driver_attributes_and_capacity() {
    for expression in [
        r#"device.driver == "dra.example.com""#,
        r#"device.attributes["dra.example.com"].model == "A100""#,
        r#"device.attributes["dra.example.com"].ready"#,
        r#"device.attributes["dra.example.com"].cores > 4"#,
        r#"device.attributes["other.example.com"].numa == 1"#,
        r#"device.attributes["dra.example.com"].driverVersion.isGreaterThan(semver("1.2.0"))"#,
        r#"device.capacity["dra.example.com"].memory.compareTo(quantity("40Gi")) >= 0"#,
        r#"device.capacity["other.example.com"].lanes == quantity("16")"#,
        "device.allowMultipleAllocations",
        r#"cel.bind(dra, device.attributes["dra.example.com"], dra.ready && dra.cores == 8)"#,
        r#"device.attributes.exists(domain, domain == "other.example.com")"#,
    ] {
        assert_eq!(matches(expression), Ok(true), "{expression}");
    }
}

#[test]
fn an_unknown_domain_is_an_empty_map_and_not_a_member() {
    assert_eq!(matches(r#"has(device.attributes["absent.example.com"].model)"#), Ok(false));
    assert_eq!(matches(r#""absent.example.com" in device.attributes"#), Ok(false));
    assert_eq!(matches(r#""dra.example.com" in device.attributes"#), Ok(true));
    assert_eq!(matches(r"size(device.attributes) == 2 && size(device.capacity) == 2"), Ok(true));
    let missing = matches(r#"device.attributes["absent.example.com"].model == "A100""#);
    assert_eq!(missing, Err("no such key: model".to_owned()));
}

#[test]
fn a_selector_result_that_is_not_a_bool_is_a_run_time_error() {
    assert!(matches(r#"device.attributes["dra.example.com"].model"#).unwrap_err().contains("bool"));
}

#[test]
fn expressions_of_the_wrong_type_are_refused() {
    let wrong = |not: &str| {
        DeviceSelectorError::Invalid(format!("must evaluate to bool or the unknown type, not {not}"))
    };
    assert_eq!(refusal("device.driver"), wrong("string"));
    assert_eq!(refusal("1 + 1"), wrong("int"));
    assert_eq!(refusal("dyn(true)"), wrong("dyn"));
    let unknown = refusal("device.foo == 1");
    assert!(
        unknown.to_string().starts_with("compilation failed: ERROR: <input>:1:7: undefined field 'foo'"),
        "{unknown}"
    );
    assert!(refusal("foo.bind(a, 1, true)").to_string().contains("undeclared reference"));
    let bind = refusal("cel.bind(1, 1, true)").to_string();
    assert!(bind.contains("cel.bind() variable names must be simple identifiers"), "{bind}");
}

#[test]
fn expressions_that_may_cost_too_much_are_refused() {
    let loops = "device.attributes.all(a, device.attributes.all(b, device.attributes.all(c, device.attributes.all(d, a != b + c + d))))";
    assert_eq!(refusal(loops), DeviceSelectorError::TooComplex);
    let nested = r#"device.attributes["dra.example.com"].model.matches("a+b")"#;
    assert_eq!(DeviceSelector::check(nested), Ok(()));
}

#[test]
fn an_unreadable_device_error_names_the_attribute() {
    let device = parse(br#"{"attributes": {"v": {"version": "one"}}}"#).unwrap();
    let error = SelectableDevice::read("dra.example.com", &device).unwrap_err();
    assert_eq!(error, "attribute v: parse semantic version: No Major.Minor.Patch elements found");
}
