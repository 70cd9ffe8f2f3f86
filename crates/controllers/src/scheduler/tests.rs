use value::{Budget, BudgetEnded, Str, Value};

use super::fit::{SchedulerSnapshot, unschedulable_message};
use super::readiness::{self, Readiness};
use super::{is_pending, unsupported};
use crate::fake::parse;

fn cluster(nodes: &[&str], pods: &[&str]) -> SchedulerSnapshot {
    let mut cluster = SchedulerSnapshot::default();
    for node in nodes {
        let node = parse(node);
        cluster.nodes.insert(Str::from(node.str_at(&["metadata", "name"]).unwrap()), node.into());
    }
    for pod in pods {
        let pod = parse(pod);
        let name = Str::from(pod.str_at(&["metadata", "name"]).unwrap());
        cluster.remember_pod((Str::new_static("default"), name), &pod);
    }
    cluster
}

fn tried(cluster: &SchedulerSnapshot, pod: &str) -> Result<Vec<String>, String> {
    let (fitting, reasons) = cluster.fitting(&parse(pod), &Budget::UNLIMITED).unwrap();
    if fitting.is_empty() {
        return Err(unschedulable_message(cluster.nodes.len(), &reasons));
    }
    Ok(fitting.iter().map(ToString::to_string).collect())
}

const SMALL: &str = r#"{"metadata":{"name":"small","labels":{"disk":"ssd"}},"status":{"allocatable":{"cpu":"1","memory":"1Gi","pods":"2"}}}"#;
const LARGE: &str = r#"{"metadata":{"name":"large","labels":{"disk":"tape"}},"status":{"allocatable":{"cpu":"4","memory":"8Gi","pods":"10"}}}"#;

fn wants(cpu: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"p","namespace":"default"}},"spec":{{"containers":[{{"name":"c","resources":{{"requests":{{"cpu":"{cpu}"}}}}}}]}}}}"#
    )
}

#[test]
fn the_least_allocated_feasible_node_is_preferred() {
    let on = r#"{"metadata":{"name":"a"},"spec":{"nodeName":"large","containers":[{"name":"c","resources":{"requests":{"cpu":"3500m"}}}]}}"#;
    let cluster = cluster(&[SMALL, LARGE], &[on]);
    assert_eq!(tried(&cluster, &wants("100m")), Ok(vec!["small".to_owned(), "large".to_owned()]));
    assert_eq!(tried(&cluster, &wants("500m")), Ok(vec!["small".to_owned(), "large".to_owned()]));
    assert_eq!(tried(&cluster, &wants("2")), Err("0/2 nodes are available: 2 Insufficient cpu.".to_owned()));
    assert_eq!(
        tried(&SchedulerSnapshot::default(), &wants("1")),
        Err("no nodes available to schedule pods".to_owned())
    );
}

#[test]
fn init_containers_overhead_and_the_number_of_pods_count() {
    let one = cluster(&[SMALL], &[]);
    let init = r#"{"spec":{"containers":[{"name":"c"}],"initContainers":[{"name":"i","resources":{"requests":{"cpu":"2"}}}]}}"#;
    assert_eq!(tried(&one, init), Err("0/1 nodes are available: 1 Insufficient cpu.".to_owned()));
    let overhead = r#"{"spec":{"containers":[{"name":"c"}],"overhead":{"memory":"2Gi"}}}"#;
    assert_eq!(tried(&one, overhead), Err("0/1 nodes are available: 1 Insufficient memory.".to_owned()));
    let on = |name: &str| {
        format!(
            r#"{{"metadata":{{"name":"{name}"}},"spec":{{"nodeName":"small","containers":[{{"name":"c"}}]}}}}"#
        )
    };
    let full = cluster(&[SMALL], &[&on("a"), &on("b")]);
    assert_eq!(tried(&full, &wants("1m")), Err("0/1 nodes are available: 1 Too many pods.".to_owned()));
    let mut freed = full;
    freed.forget_pod(&(Str::new_static("default"), Str::new_static("a")));
    assert!(tried(&freed, &wants("1m")).is_ok());
}

#[test]
fn scheduling_respects_node_selectors_taints_and_host_ports() {
    let tainted = r#"{"metadata":{"name":"tainted"},"spec":{"taints":[{"key":"gpu","value":"yes","effect":"NoSchedule"}]},"status":{"allocatable":{"pods":"10"}}}"#;
    let closed = r#"{"metadata":{"name":"closed"},"spec":{"unschedulable":true},"status":{"allocatable":{"pods":"10"}}}"#;
    let on = r#"{"metadata":{"name":"a"},"spec":{"nodeName":"small","containers":[{"name":"c","ports":[{"hostPort":80,"protocol":"TCP"}]}]}}"#;
    let cluster = cluster(&[SMALL, tainted, closed], &[on]);
    assert_eq!(tried(&cluster, r#"{"spec":{"nodeSelector":{"disk":"ssd"}}}"#), Ok(vec!["small".to_owned()]));
    assert_eq!(
        tried(&cluster, r#"{"spec":{"nodeSelector":{"disk":"tape"}}}"#),
        Err("0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable.".to_owned())
    );
    let affinity = |operator: &str| {
        format!(
            r#"{{"spec":{{"affinity":{{"nodeAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":{{"nodeSelectorTerms":[{{"matchExpressions":[{{"key":"disk","operator":"{operator}","values":["ssd"]}}]}}]}}}}}}}}}}"#
        )
    };
    assert_eq!(tried(&cluster, &affinity("In")), Ok(vec!["small".to_owned()]));
    assert!(tried(&cluster, &affinity("NotIn")).is_err());
    // An unknown operator matches no node.
    assert!(tried(&cluster, &affinity("Resembles")).is_err());
    for (toleration, fits) in [
        (r#"{"key":"gpu","operator":"Equal","value":"yes","effect":"NoSchedule"}"#, true),
        (r#"{"key":"gpu","operator":"Exists"}"#, true),
        (r#"{"operator":"Exists"}"#, true),
        (r#"{"key":"gpu","value":"no"}"#, false),
        (r#"{"key":"gpu","operator":"Exists","effect":"NoExecute"}"#, false),
        (r#"{"key":"gpu","operator":"Resembles","value":"yes"}"#, false),
    ] {
        let pod = format!(r#"{{"spec":{{"tolerations":[{toleration}]}}}}"#);
        let (fitting, _) = cluster.fitting(&parse(&pod), &Budget::UNLIMITED).unwrap();
        assert_eq!(fitting.contains(&Str::new_static("tainted")), fits, "{toleration}");
    }
    let port = r#"{"spec":{"containers":[{"name":"c","ports":[{"hostPort":80,"hostIP":"10.0.0.1"}]}]}}"#;
    let (fitting, _) = cluster.fitting(&parse(port), &Budget::UNLIMITED).unwrap();
    assert!(fitting.is_empty(), "{fitting:?}");
    let other = r#"{"spec":{"containers":[{"name":"c","ports":[{"hostPort":80,"protocol":"UDP"}]}]}}"#;
    assert_eq!(tried(&cluster, other), Ok(vec!["small".to_owned()]));
}

#[test]
fn host_ports_collide_unless_their_addresses_differ() {
    let on = r#"{"metadata":{"name":"a"},"spec":{"nodeName":"small","containers":[{"name":"c","ports":[
        {"hostPort":80,"hostIP":"10.0.0.1"},{"hostPort":81},{"hostPort":82,"hostIP":"::"}]}]}}"#;
    let cluster = cluster(&[SMALL], &[on]);
    for (port, fits) in [
        (r#"{"hostPort":80,"hostIP":"10.0.0.2"}"#, true),
        (r#"{"hostPort":80,"hostIP":"10.0.0.1"}"#, false),
        (r#"{"hostPort":80,"hostIP":"10.0.0.1","protocol":"UDP"}"#, true),
        (r#"{"hostPort":80}"#, false),
        (r#"{"hostPort":80,"hostIP":"0.0.0.0"}"#, false),
        (r#"{"hostPort":81,"hostIP":"10.0.0.2"}"#, false),
        (r#"{"hostPort":82,"hostIP":"10.0.0.2"}"#, false),
        (r#"{"hostPort":83},{"hostPort":80,"hostIP":"10.0.0.3"}"#, true),
        (r#"{"hostPort":83},{"hostPort":80,"hostIP":"10.0.0.3"},{"hostPort":80,"hostIP":"10.0.0.1"}"#, false),
        (r#"{"containerPort":80}"#, true),
    ] {
        let pod = format!(r#"{{"spec":{{"containers":[{{"name":"c","ports":[{port}]}}]}}}}"#);
        assert_eq!(tried(&cluster, &pod).is_ok(), fits, "{port}");
    }
}

/// A pod with host ports at this address.
fn with_host_ports(name: &str, address: &str, count: usize) -> String {
    let port = |i: usize| format!(r#"{{"hostPort":{},"hostIP":"{address}"}}"#, i + 1);
    let ports = (0..count).map(port).collect::<Vec<_>>().join(",");
    format!(
        r#"{{"metadata":{{"name":"{name}"}},"spec":{{"nodeName":"small","containers":[{{"name":"c","ports":[{ports}]}}]}}}}"#
    )
}

#[test]
fn comparing_host_ports_takes_a_counted_step_for_each_port_in_use_and_can_be_canceled() {
    let cluster = cluster(&[SMALL], &[&with_host_ports("a", "10.0.0.1", 40_000)]);
    let pod = parse(&with_host_ports("b", "10.0.0.2", 40_000));
    let budget = Budget::new(50_000);
    // Comparing each port with each would take 1,600,000,000 steps.
    let (fitting, _) = cluster.fitting(&pod, &budget).unwrap();
    assert_eq!(fitting, ["small"]);
    assert!((40_000..50_000).contains(&budget.spent()), "{}", budget.spent());
    assert_eq!(cluster.fitting(&pod, &Budget::new(20_000)).unwrap_err(), BudgetEnded::Exhausted);
    let canceled = Budget::new(u64::MAX);
    canceled.cancel();
    assert_eq!(cluster.fitting(&pod, &canceled).unwrap_err(), BudgetEnded::Canceled);
    // A pod without host ports is compared with none.
    let budget = Budget::new(1000);
    assert!(cluster.fitting(&parse(&wants("1m")), &budget).is_ok());
}

#[test]
fn unsupported_scheduling_features_are_reported() {
    for (spec, words) in [
        (
            r#"{"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"z"}]}}}"#,
            Some("podAffinity"),
        ),
        (
            r#"{"topologySpreadConstraints":[{"whenUnsatisfiable":"DoNotSchedule"}]}"#,
            Some("topologySpreadConstraint"),
        ),
        (r#"{"topologySpreadConstraints":[{"whenUnsatisfiable":"ScheduleAnyway"}]}"#, None),
        (
            r#"{"volumes":[{"name":"d","persistentVolumeClaim":{"claimName":"x"}}]}"#,
            Some("\"d\" is a persistentVolumeClaim"),
        ),
        (r#"{"volumes":[{"name":"d","emptyDir":{}}]}"#, None),
        (r#"{"schedulingGroup":{"podGroupName":"g"}}"#, Some("group")),
    ] {
        let feature = unsupported::first_unsupported_feature(&parse(&format!(r#"{{"spec":{spec}}}"#)));
        assert_eq!(feature.is_some(), words.is_some(), "{spec}");
        assert!(feature.unwrap_or_default().contains(words.unwrap_or_default()), "{spec}");
    }
}

#[test]
fn required_anti_affinity_of_a_pod_excludes_only_its_topology_domain() {
    let labeled = |name: &str, zone: &str| {
        format!(
            r#"{{"metadata":{{"name":"{name}","labels":{{"z":"{zone}"}}}},"status":{{"allocatable":{{"pods":"9"}}}}}}"#
        )
    };
    let alone = |node: &str| {
        format!(
            r#"{{"metadata":{{"name":"alone"}},"spec":{{"nodeName":"{node}","affinity":{{"podAntiAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":[{{"topologyKey":"z","labelSelector":{{"matchLabels":{{"app":"web"}}}}}}]}}}}}}}}"#
        )
    };
    let nodes = [labeled("a", "1"), labeled("b", "1"), labeled("c", "2")];
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    let pod = |app: &str, namespace: &str| {
        format!(r#"{{"metadata":{{"namespace":"{namespace}","labels":{{"app":"{app}"}}}}}}"#)
    };
    let there = cluster(&nodes, &[&alone("a")]);
    assert_eq!(tried(&there, &pod("web", "default")), Ok(vec!["c".to_owned()]));
    assert_eq!(tried(&there, &pod("db", "default")).unwrap().len(), 3);
    assert_eq!(tried(&there, &pod("web", "other")).unwrap().len(), 3);
    // On an unknown node its anti-affinity has no effect.
    assert_eq!(tried(&cluster(&nodes, &[&alone("nowhere")]), &pod("web", "default")).unwrap().len(), 3);
    let full = cluster(&nodes[..2], &[&alone("a")]);
    assert_eq!(
        tried(&full, &pod("web", "default")),
        Err("0/2 nodes are available: 2 node(s) didn't satisfy existing pods anti-affinity rules.".to_owned())
    );
}

#[test]
fn only_pending_ungated_pods_of_the_default_scheduler_are_scheduled() {
    let pending = |spec: &str| is_pending(&parse(&format!(r#"{{"spec":{spec}}}"#)));
    assert!(pending(r#"{"schedulerName":"default-scheduler"}"#));
    assert!(!pending(r#"{"schedulerName":"mine"}"#));
    assert!(!pending(r#"{"nodeName":"n"}"#));
    assert!(!pending(r#"{"schedulingGates":[{"name":"g"}]}"#));
    assert!(!is_pending(&Value::map([("status", Value::map([("phase", "Failed")]))])));
}

#[test]
fn binding_waits_for_device_binding_conditions() {
    let claim = |conditions: &str| {
        parse(&format!(
            r#"{{"metadata":{{"name":"c"}},"status":{{"allocation":{{"allocationTimestamp":"1970-01-01T00:01:40Z","devices":{{"results":[
            {{"driver":"d","pool":"p","device":"plain"}},
            {{"driver":"d","pool":"p","device":"x","bindingConditions":["ready","wired"],"bindingFailureConditions":["broken"]}}]}}}},
            "devices":[{{"driver":"d","pool":"p","device":"x","conditions":[{conditions}]}}]}}}}"#
        ))
    };
    let ready = r#"{"type":"ready","status":"True"}"#;
    let wired = r#"{"type":"wired","status":"True"}"#;
    let broken = r#"{"type":"broken","status":"True","reason":"Fire","message":"it burns"}"#;
    let of = |conditions: &[&str], now: i64| readiness::of(&claim(&conditions.join(",")), now);
    assert_eq!(of(&[], 200), Readiness::Waiting(Some(700)));
    assert_eq!(of(&[ready], 700), Readiness::Waiting(Some(700)));
    assert_eq!(of(&[ready, r#"{"type":"wired","status":"False"}"#], 200), Readiness::Waiting(Some(700)));
    assert_eq!(of(&[ready, wired], 9000), Readiness::Ready);
    assert_eq!(of(&[ready], 701), Readiness::Failed("device binding timed out: claim=c".to_owned()));
    assert_eq!(
        of(&[ready, wired, broken], 200),
        Readiness::Failed(r#"device binding failed: claim=c, reason=Fire, message="it burns""#.to_owned())
    );
    // A device without reported conditions is not ready.
    let silent = parse(
        r#"{"status":{"allocation":{"devices":{"results":[{"driver":"d","pool":"p","device":"x","bindingConditions":["ready"]}]}}}}"#,
    );
    assert_eq!(readiness::of(&silent, 200), Readiness::Waiting(None));
    assert_eq!(readiness::of(&parse(r#"{"status":{"allocation":{}}}"#), 200), Readiness::Ready);
}
