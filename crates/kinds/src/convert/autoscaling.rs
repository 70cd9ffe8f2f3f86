//! Conversion of HorizontalPodAutoscaler between the served autoscaling/v1 and the stored autoscaling/v2.
//!
//! v1 has only one metric, CPU utilization. All other fields of v2 are stored in annotations in the format of
//! Kubernetes and restored from them.

use api::validation::fields::Read;
use value::{Map, Value, json, write};

use crate::defaults::autoscaling::{CPU_UTILIZATION, cpu_metric};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const ROUND_TRIP: [&str; 6] = [
    METRICS,
    CURRENT_METRICS,
    CONDITIONS,
    BEHAVIOR,
    "autoscaling.alpha.kubernetes.io/scale-down-tolerance",
    "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
];

/// Field order of v1's Go structs; one order fits all of them. The keys of `matchLabels` are sorted alphabetically.
const FIELD_ORDER: &[&str] = &[
    "type",
    "status",
    "object",
    "pods",
    "resource",
    "containerResource",
    "external",
    "target",
    "kind",
    "name",
    "apiVersion",
    "metricName",
    "metricSelector",
    "targetValue",
    "currentValue",
    "targetAverageUtilization",
    "currentAverageUtilization",
    "targetAverageValue",
    "currentAverageValue",
    "selector",
    "averageValue",
    "container",
    "matchLabels",
    "matchExpressions",
    "key",
    "operator",
    "values",
    "lastTransitionTime",
    "reason",
    "message",
    "observedGeneration",
];

pub fn v1_to_v2(object: &Value) -> Value {
    let mut out = without_round_trip(object, "autoscaling/v2");
    let annotations = object.part("metadata").part("annotations");
    let read = |key: &str| annotations.text_if_set(key).and_then(|text| json::parse(text.as_bytes()).ok());
    let spec = object.part("spec");
    copy(spec, &["scaleTargetRef", "minReplicas", "maxReplicas"], "spec", &mut out);
    let mut metrics: Vec<Value> = Vec::new();
    if let Some(Value::List(others)) = read(METRICS) {
        metrics.extend(others.iter().map(|metric| metric_from_v1(metric, SpecOrStatus::Spec)));
    }
    if let Some(percent) = spec.number_if_set("targetCPUUtilizationPercentage") {
        metrics.push(cpu_at(percent));
    }
    if metrics.is_empty() {
        metrics.push(cpu_at(CPU_UTILIZATION));
    }
    out.set_at(&["spec", "metrics"], metrics);
    if let Some(behavior) = read(BEHAVIOR).as_ref().and_then(behavior_from_json) {
        out.set_at(&["spec", "behavior"], behavior);
    }
    let status = object.part("status");
    let counts = ["observedGeneration", "lastScaleTime", "currentReplicas", "desiredReplicas"];
    copy(status, &counts, "status", &mut out);
    if let Some(Value::List(current)) = read(CURRENT_METRICS) {
        let current: Vec<Value> =
            current.iter().map(|metric| metric_from_v1(metric, SpecOrStatus::Status)).collect();
        out.set_at(&["status", "currentMetrics"], current);
    } else if let Some(percent) = status.number_if_set("currentCPUUtilizationPercentage") {
        let mut metric = Value::map([("type", "Resource")]);
        metric.set_at(&["resource", "name"], "cpu");
        metric.set_at(&["resource", "current", "averageUtilization"], percent);
        out.set_at(&["status", "currentMetrics"], vec![metric]);
    }
    if let Some(Value::List(conditions)) = read(CONDITIONS) {
        out.set_at(&["status", "conditions"], conditions);
    }
    out
}

pub fn v2_to_v1(object: &Value) -> Value {
    let mut out = without_round_trip(object, "autoscaling/v1");
    let spec = object.part("spec");
    copy(spec, &["scaleTargetRef", "minReplicas", "maxReplicas"], "spec", &mut out);
    let metrics = spec.items("metrics");
    if let Some(percent) = metrics.iter().find_map(cpu_utilization) {
        out.set_at(&["spec", "targetCPUUtilizationPercentage"], percent);
    }
    let mut annotate = |key: &str, text: String| out.set_at(&["metadata", "annotations", key], text);
    let list = |items: Vec<Value>| ordered(&Value::List(items), false);
    let others: Vec<Value> = metrics
        .iter()
        .filter(|metric| cpu_utilization(metric).is_none())
        .map(|metric| metric_to_v1(metric, SpecOrStatus::Spec))
        .collect();
    if !others.is_empty() {
        annotate(METRICS, list(others));
    }
    let status = object.part("status");
    let current = status.items("currentMetrics");
    if !current.is_empty() {
        let current = current.iter().map(|metric| metric_to_v1(metric, SpecOrStatus::Status)).collect();
        annotate(CURRENT_METRICS, list(current));
    }
    if let Some(behavior) = spec.part("behavior") {
        annotate(BEHAVIOR, behavior_to_json(behavior));
    }
    let conditions = status.items("conditions");
    if !conditions.is_empty() {
        annotate(CONDITIONS, list(conditions.iter().map(written_condition).collect()));
    }
    let counts = ["observedGeneration", "lastScaleTime", "currentReplicas", "desiredReplicas"];
    copy(status, &counts, "status", &mut out);
    let used = current.iter().rev().find_map(|metric| {
        let resource = metric.part("resource").filter(|resource| resource.text("name") == "cpu");
        resource
            .filter(|_| metric.text("type") == "Resource")?
            .part("current")
            .number_if_set("averageUtilization")
    });
    if let Some(percent) = used {
        out.set_at(&["status", "currentCPUUtilizationPercentage"], percent);
    }
    out
}

/// Returns kind and metadata without the annotations that this conversion writes.
fn without_round_trip(object: &Value, api_version: &str) -> Value {
    let mut out = Value::map([("apiVersion", api_version), ("kind", "HorizontalPodAutoscaler")]);
    if let Some(metadata) = object.part("metadata") {
        let mut metadata = metadata.clone();
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_map_mut) {
            annotations.retain(|key, _| !ROUND_TRIP.contains(&key.as_str()));
            if annotations.is_empty() {
                metadata.remove_at(&["annotations"]);
            }
        }
        out.set_at(&["metadata"], metadata);
    }
    out
}

fn copy(from: Option<&Value>, fields: &[&str], part: &str, out: &mut Value) {
    for field in fields {
        if let Some(value) = from.part(field) {
            out.set_at(&[part, field], value.clone());
        }
    }
}

fn cpu_at(percent: i64) -> Value {
    let mut metric = cpu_metric();
    metric.set_at(&["resource", "target", "averageUtilization"], percent);
    metric
}

/// CPU utilization target of a v2 metric, the only metric for which v1 has a field.
fn cpu_utilization(metric: &Value) -> Option<i64> {
    let resource = metric.part("resource").filter(|_| metric.text("type") == "Resource")?;
    let target = resource.part("target").filter(|_| resource.text("name") == "cpu");
    target.number_if_set("averageUtilization")
}

/// Whether a metric is a target (`spec`) or a measurement (`status`).
#[derive(Clone, Copy, PartialEq)]
enum SpecOrStatus {
    Spec,
    Status,
}

impl SpecOrStatus {
    /// Field of v2's metric that holds the numbers.
    fn part(self) -> &'static str {
        if self == SpecOrStatus::Spec { "target" } else { "current" }
    }

    /// Name in v1 of a number in v2.
    fn v1_name(self, number: &str) -> &'static str {
        match (self, number) {
            (SpecOrStatus::Spec, "value") => "targetValue",
            (SpecOrStatus::Spec, "averageValue") => "targetAverageValue",
            (SpecOrStatus::Spec, _) => "targetAverageUtilization",
            (SpecOrStatus::Status, "value") => "currentValue",
            (SpecOrStatus::Status, "averageValue") => "currentAverageValue",
            (SpecOrStatus::Status, _) => "currentAverageUtilization",
        }
    }
}

fn metric_to_v1(metric: &Value, side: SpecOrStatus) -> Value {
    let mut out = Value::map([("type", metric.text("type"))]);
    for field in ["object", "pods", "resource", "containerResource", "external"] {
        let Some(source) = metric.part(field) else { continue };
        let numbers = source.part(side.part());
        let mut v1 = Value::Map(Map::new());
        let mut put = |name: &str, value: Option<&Value>, always: Option<&str>| match (value, always) {
            (Some(value), _) => v1.set_at(&[name], value.clone()),
            (None, Some(default)) => v1.set_at(&[name], default),
            (None, None) => {}
        };
        let (value, average) = (numbers.part("value"), numbers.part("averageValue"));
        let identifier = source.part("metric");
        match field {
            "object" => {
                let described = source.part("describedObject");
                put("target", Some(&reference(described)), None);
                put("metricName", identifier.part("name"), Some(""));
                put(side.v1_name("value"), value, Some("0"));
                put("selector", identifier.part("selector"), None);
                put("averageValue", average, None);
            }
            "pods" => {
                put("metricName", identifier.part("name"), Some(""));
                put(side.v1_name("averageValue"), average, Some("0"));
                put("selector", identifier.part("selector"), None);
            }
            "external" => {
                put("metricName", identifier.part("name"), Some(""));
                put("metricSelector", identifier.part("selector"), None);
                put(side.v1_name("value"), value, (side == SpecOrStatus::Status).then_some("0"));
                put(side.v1_name("averageValue"), average, None);
            }
            _ => {
                put("name", source.part("name"), Some(""));
                put(side.v1_name("averageUtilization"), numbers.part("averageUtilization"), None);
                put(side.v1_name("averageValue"), average, (side == SpecOrStatus::Status).then_some("0"));
                if field == "containerResource" {
                    put("container", source.part("container"), Some(""));
                }
            }
        }
        out.set_at(&[field], v1);
    }
    out
}

fn reference(described: Option<&Value>) -> Value {
    let mut out = Value::map([("kind", described.text("kind")), ("name", described.text("name"))]);
    let version = described.text("apiVersion");
    if !version.is_empty() {
        out.set_at(&["apiVersion"], version);
    }
    out
}

fn metric_from_v1(metric: &Value, side: SpecOrStatus) -> Value {
    let mut out = Value::map([("type", metric.text("type"))]);
    for field in ["object", "pods", "resource", "containerResource", "external"] {
        let Some(v1) = metric.part(field) else { continue };
        let mut source = Value::Map(Map::new());
        let is_resource = matches!(field, "resource" | "containerResource");
        if is_resource {
            source.set_at(&["name"], v1.text("name"));
            if field == "containerResource" {
                source.set_at(&["container"], v1.text("container"));
            }
        } else {
            source.set_at(&["metric", "name"], v1.text("metricName"));
            let selector = v1.part("selector").or_else(|| v1.part("metricSelector"));
            if let Some(selector) = selector {
                source.set_at(&["metric", "selector"], selector.clone());
            }
        }
        if field == "object" {
            source.set_at(&["describedObject"], reference(v1.part("target")));
        }
        let average_name = if field == "object" { "averageValue" } else { side.v1_name("averageValue") };
        let average = v1.part(average_name);
        let value = v1.part(side.v1_name("value"));
        let utilization = v1.part(side.v1_name("averageUtilization"));
        let numbers = source.make_map().entry_or_insert_with(side.part(), || Map::new().into());
        let mut put = |name: &str, value: Option<&Value>| {
            if let Some(value) = value {
                numbers.set_at(&[name], value.clone());
            }
        };
        put("averageUtilization", utilization);
        put("averageValue", average);
        // In v1 the value of an object metric is mandatory, so a zero beside an average means that there is none.
        let is_filler =
            field == "object" && side == SpecOrStatus::Spec && average.is_some() && is_zero(value);
        if !is_filler {
            put("value", value);
        }
        if side == SpecOrStatus::Spec {
            let kind = match field {
                "object" if average.is_none() => "Value",
                "external" if value.is_some() => "Value",
                "resource" | "containerResource" if utilization.is_some() => "Utilization",
                _ => "AverageValue",
            };
            numbers.set_at(&["type"], kind);
        }
        out.set_at(&[field], source);
    }
    out
}

fn is_zero(value: Option<&Value>) -> bool {
    value
        .and_then(Value::as_str)
        .is_none_or(|text| api::quantity::Quantity::parse(text).is_ok_and(|quantity| quantity.is_zero()))
}

/// Converts a condition to v1, which writes the transition time even if it is unknown.
fn written_condition(condition: &Value) -> Value {
    let mut condition = condition.clone();
    if condition.part("lastTransitionTime").is_none() {
        condition.set_at(&["lastTransitionTime"], Value::Null);
    }
    condition
}

/// Writes JSON with the fields in the order of Go's structs.
fn ordered(value: &Value, alphabetical: bool) -> String {
    match value {
        Value::List(items) => {
            let items: Vec<String> = items.iter().map(|item| ordered(item, false)).collect();
            format!("[{}]", items.join(","))
        }
        Value::Map(map) => {
            let rank = |key: &str| FIELD_ORDER.iter().position(|field| *field == key).unwrap_or(usize::MAX);
            let mut entries: Vec<(&str, &Value)> =
                map.iter().map(|(key, value)| (key.as_str(), value)).collect();
            if !alphabetical {
                entries.sort_by_key(|(key, _)| rank(key));
            }
            let entry = |(key, value): &(&str, &Value)| {
                format!("{}:{}", write::to_string(&(*key).into()), ordered(value, *key == "matchLabels"))
            };
            format!("{{{}}}", entries.iter().map(entry).collect::<Vec<_>>().join(","))
        }
        other => write::to_string(other),
    }
}

const RULES: [(&str, &str); 2] = [("ScaleUp", "scaleUp"), ("ScaleDown", "scaleDown")];
const RULE_FIELDS: [(&str, &str); 4] = [
    ("StabilizationWindowSeconds", "stabilizationWindowSeconds"),
    ("SelectPolicy", "selectPolicy"),
    ("Policies", "policies"),
    ("Tolerance", "tolerance"),
];
const POLICY_FIELDS: [(&str, &str); 3] =
    [("Type", "type"), ("Value", "value"), ("PeriodSeconds", "periodSeconds")];

/// Writes `behavior` as in Kubernetes' annotation: the internal type, with Go's field names.
fn behavior_to_json(behavior: &Value) -> String {
    let policy = |policy: &Value| struct_json(&POLICY_FIELDS, |field| write_or_null(policy.part(field)));
    let rules = |rules: Option<&Value>| match rules {
        None => "null".to_owned(),
        Some(rules) => struct_json(&RULE_FIELDS, |field| match (field, rules.part(field)) {
            ("policies", Some(Value::List(policies))) => {
                let policies: Vec<String> = policies.iter().map(policy).collect();
                format!("[{}]", policies.join(","))
            }
            (_, value) => write_or_null(value),
        }),
    };
    struct_json(&RULES, |field| rules(behavior.part(field)))
}

fn struct_json(fields: &[(&str, &str)], json: impl Fn(&str) -> String) -> String {
    let fields: Vec<String> =
        fields.iter().map(|(name, field)| format!("\"{name}\":{}", json(field))).collect();
    format!("{{{}}}", fields.join(","))
}

fn write_or_null(value: Option<&Value>) -> String {
    value.map_or_else(|| "null".to_owned(), write::to_string)
}

/// Reads the annotation of `behavior`. Like Go, matches names without regard to case.
fn behavior_from_json(behavior: &Value) -> Option<Value> {
    let mut out = Value::Map(Map::new());
    for (name, field) in RULES {
        let Some(rules) = any_case(behavior, name) else { continue };
        let mut read = Value::Map(Map::new());
        for (name, field) in RULE_FIELDS {
            match any_case(rules, name) {
                Some(Value::List(policies)) => {
                    let policies: Vec<Value> = policies.iter().map(policy_from_json).collect();
                    read.set_at(&[field], policies);
                }
                Some(value) => read.set_at(&[field], value.clone()),
                None => {}
            }
        }
        out.set_at(&[field], read);
    }
    out.as_map().is_some_and(|map| !map.is_empty()).then_some(out)
}

fn policy_from_json(policy: &Value) -> Value {
    let mut out = Value::Map(Map::new());
    for (name, field) in POLICY_FIELDS {
        if let Some(value) = any_case(policy, name) {
            out.set_at(&[field], value.clone());
        }
    }
    out
}

fn any_case<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    let map = object.as_map()?;
    map.iter()
        .find(|(key, _)| key.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
        .filter(|v| !v.is_null())
}
