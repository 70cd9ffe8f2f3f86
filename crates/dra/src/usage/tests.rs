use super::*;
use crate::DraGates;

#[test]
fn released_devices_leave_no_usage_behind() {
    let parse = |text: &str| value::json::parse(text.as_bytes()).unwrap();
    let slice = parse(
        r#"{"metadata": {"name": "s"}, "spec": {"driver": "d", "nodeName": "n",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "x", "allowMultipleAllocations": true, "capacity": {"memory": {"value": "10"}}}]}}"#,
    );
    let inventory = Inventory::read([&slice], DraGates::default());
    let mut usage = Usage::new(&inventory);
    let claim = |capacity: &str, amount: &str| {
        parse(&format!(
            r#"{{"status": {{"allocation": {{"devices": {{"results": [{{"driver": "d", "pool": "p", "device": "x",
                "shareID": "s", "consumedCapacity": {{"{capacity}": "{amount}"}}}}]}}}}}}}}"#
        ))
    };
    let taken = |usage: &Usage| usage.devices.iter().map(|device| device.taken.len()).sum::<usize>();
    // Each time with another device name, or without any result, as a stored status may be.
    for i in 0..100 {
        for claim in [claim(&format!("c{i}"), "1"), claim("memory", "0")] {
            usage.set("u", holdings(&claim, &inventory), &inventory);
            assert!(taken(&usage) <= 1);
        }
    }
    usage.set("u", holdings(&claim("memory", "4"), &inventory), &inventory);
    assert_eq!(usage.consumed_capacity(inventory.devices.first().unwrap(), "memory"), 4_000_000_000);
    usage.set("u", Vec::new(), &inventory);
    assert_eq!(taken(&usage), 0);
}
