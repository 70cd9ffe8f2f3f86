//! Conversion of HorizontalPodAutoscaler between autoscaling/v1 and autoscaling/v2.

use kinds::convert::autoscaling::{v1_to_v2, v2_to_v1};
use value::{Value, json};

#[cfg(test)]
mod object {
    use super::{Value, json};

    pub(crate) fn parsed(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }
}

use object::parsed;

const TARGET: &str =
    r#""scaleTargetRef":{"kind":"Deployment","name":"d","apiVersion":"apps/v1"},"maxReplicas":5"#;

#[test]
fn v1_autoscalers_have_the_cpu_metric_as_a_field() {
    let v2 = parsed(&format!(
        r#"{{"metadata":{{"name":"h"}},"spec":{{{TARGET},"metrics":[{{"type":"Resource","resource":{{"name":"cpu","target":{{"type":"Utilization","averageUtilization":50}}}}}}]}}}}"#
    ));
    let v1 = v2_to_v1(&v2);
    assert_eq!(v1.int_at(&["spec", "targetCPUUtilizationPercentage"]), Some(50));
    assert_eq!(v1.at(&["metadata", "annotations"]), None);
    assert_eq!(v1_to_v2(&v1).at(&["spec"]), v2.at(&["spec"]));
}

#[test]
fn v1_autoscalers_keep_other_metrics_in_the_annotation_of_kubernetes() {
    let v2 = parsed(&format!(
        r#"{{"metadata":{{"name":"h","annotations":{{"a":"b"}}}},"spec":{{{TARGET},"metrics":[{{"type":"Object","object":{{"describedObject":{{"apiVersion":"v1","kind":"Service","name":"s"}},"metric":{{"name":"o","selector":{{"matchLabels":{{"z":"1","type":"2"}}}}}},"target":{{"type":"AverageValue","averageValue":"2500m"}}}}}}]}}}}"#
    ));
    let v1 = v2_to_v1(&v2);
    assert_eq!(
        v1.str_at(&["metadata", "annotations", "autoscaling.alpha.kubernetes.io/metrics"]),
        Some(
            r#"[{"type":"Object","object":{"target":{"kind":"Service","name":"s","apiVersion":"v1"},"metricName":"o","targetValue":"0","selector":{"matchLabels":{"type":"2","z":"1"}},"averageValue":"2500m"}}]"#
        )
    );
    assert_eq!(v1.at(&["spec", "targetCPUUtilizationPercentage"]), None);
    let back = v1_to_v2(&v1);
    assert_eq!(back.at(&["spec"]), v2.at(&["spec"]));
    assert_eq!(back.at(&["metadata"]), v2.at(&["metadata"]));
}

#[test]
fn autoscaler_behavior_is_stored_in_the_v1_annotation_under_its_go_names() {
    let v2 = parsed(&format!(
        r#"{{"metadata":{{"name":"h"}},"spec":{{{TARGET},"metrics":[{{"type":"Resource","resource":{{"name":"cpu","target":{{"type":"Utilization","averageUtilization":80}}}}}}],"behavior":{{"scaleDown":{{"selectPolicy":"Max","policies":[{{"type":"Pods","value":1,"periodSeconds":2}}]}}}}}}}}"#
    ));
    let v1 = v2_to_v1(&v2);
    assert_eq!(
        v1.str_at(&["metadata", "annotations", "autoscaling.alpha.kubernetes.io/behavior"]),
        Some(
            r#"{"ScaleUp":null,"ScaleDown":{"StabilizationWindowSeconds":null,"SelectPolicy":"Max","Policies":[{"Type":"Pods","Value":1,"PeriodSeconds":2}],"Tolerance":null}}"#
        )
    );
    assert_eq!(v1_to_v2(&v1).at(&["spec"]), v2.at(&["spec"]));
}

#[test]
fn a_v1_autoscaler_without_metrics_targets_eighty_percent_cpu() {
    let v1 = parsed(&format!(r#"{{"metadata":{{"name":"h"}},"spec":{{{TARGET}}}}}"#));
    let v2 = v1_to_v2(&v1);
    let metric = &v2.list_at(&["spec", "metrics"])[0];
    assert_eq!(metric.int_at(&["resource", "target", "averageUtilization"]), Some(80));
}

#[test]
fn an_annotation_that_is_not_json_is_ignored() {
    let v1 = parsed(&format!(
        r#"{{"metadata":{{"name":"h","annotations":{{"autoscaling.alpha.kubernetes.io/metrics":"{{","autoscaling.alpha.kubernetes.io/behavior":"[]"}}}},"spec":{{{TARGET},"targetCPUUtilizationPercentage":7}}}}"#
    ));
    let v2 = v1_to_v2(&v1);
    assert_eq!(v2.list_at(&["spec", "metrics"]).len(), 1);
    assert_eq!(v2.at(&["spec", "behavior"]), None);
    assert_eq!(v2.at(&["metadata", "annotations"]), None);
}
