//! Defaults of the `autoscaling` group, in version v2.

use value::{Map, Value};

use super::fields::Fill;

/// Default target for CPU utilization, in percent of the request.
pub(crate) const CPU_UTILIZATION: i64 = 80;
const POLICY_PERIOD_SECONDS: i64 = 15;

pub fn horizontal_pod_autoscaler(object: &mut Value) {
    let Some(object) = object.as_map_mut() else { return };
    let spec = object.child_or_insert("spec");
    spec.fill("minReplicas", 1);
    spec.fill_zero("metrics", Value::list([cpu_metric()]));
    if let Some(behavior) = spec.child("behavior") {
        let percent = scaling_policy("Percent", 100);
        let up = behavior.child_or_insert("scaleUp");
        up.fill("stabilizationWindowSeconds", 0);
        up.fill("selectPolicy", "Max");
        up.fill("policies", Value::list([scaling_policy("Pods", 4), percent.clone()]));
        let down = behavior.child_or_insert("scaleDown");
        down.fill("selectPolicy", "Max");
        down.fill("policies", Value::list([percent]));
    }
}

/// The metric of an autoscaler that names none: average CPU utilization.
pub(crate) fn cpu_metric() -> Value {
    let mut metric = Value::Map(Map::new());
    metric.set_at(&["type"], "Resource");
    metric.set_at(&["resource", "name"], "cpu");
    metric.set_at(&["resource", "target", "type"], "Utilization");
    metric.set_at(&["resource", "target", "averageUtilization"], CPU_UTILIZATION);
    metric
}

fn scaling_policy(kind: &str, value: i64) -> Value {
    Value::map([
        ("type", Value::from(kind)),
        ("value", value.into()),
        ("periodSeconds", POLICY_PERIOD_SECONDS.into()),
    ])
}
