use authn::{Caller, InternalIdentity, User};

use super::*;
use crate::objects::RequestDigest;
use crate::queueset::{ArrivalDecision, RequestArrival};
use crate::{WorkEstimate, bootstrap::FlowControlKind};

fn bootstrap_objects() -> (Vec<PriorityLevel>, Vec<FlowSchema>) {
    let (mut levels, mut schemas) = (Vec::new(), Vec::<FlowSchema>::new());
    for found in bootstrap::objects() {
        match found.kind {
            FlowControlKind::PriorityLevel => levels.push(PriorityLevel::read(&found.object).unwrap()),
            FlowControlKind::FlowSchema => schemas.push(FlowSchema::read(&found.object)),
        }
    }
    (levels, schemas)
}

fn configured() -> (PriorityLevelController<()>, RequestClassifier<()>) {
    let mut controller = PriorityLevelController::new(600, Duration::ZERO);
    let (levels, schemas) = bootstrap_objects();
    let configured = controller.configure(Duration::ZERO, levels, schemas);
    (controller, configured.classifier)
}

fn limits(controller: &PriorityLevelController<()>, name: &str) -> (i64, i64, i64, i64) {
    let (_, limits) = controller.levels().find(|(level, _)| level.name == name).unwrap();
    (limits.nominal, limits.lower, limits.upper, limits.current)
}

fn arrival(class: &RequestClass<()>, seats: u64) -> RequestArrival<()> {
    RequestArrival {
        flow: class.flow,
        distinguisher: "".into(),
        hash: 0,
        work: WorkEstimate::seats(seats),
        interested_watches: None,
        is_watch: false,
        is_resumed: false,
        ticket: (),
    }
}

fn get_pods(user: &User) -> RequestDigest<'_> {
    RequestDigest {
        user,
        is_resource: true,
        verb: "get",
        group: "",
        resource: "pods",
        subresource: "",
        namespace: "default",
        path: "/api/v1/namespaces/default/pods/x",
    }
}

#[test]
fn nominal_seats_match_kubernetes() {
    let (controller, _) = configured();
    // 245 shares: 600 * shares / 245, rounded up; lendable parts rounded to the nearest.
    assert_eq!(limits(&controller, "catch-all"), (13, 13, 613, 30));
    assert_eq!(limits(&controller, "workload-low").0, 245);
    assert_eq!(limits(&controller, "workload-low").1, 245 - 221);
    assert_eq!(limits(&controller, "global-default").0, 49);
    assert_eq!(limits(&controller, "exempt"), (0, 0, 600, 0));
    let total: i64 = controller.levels().map(|(_, limits)| limits.nominal).sum();
    assert_eq!(total, 74 + 98 + 25 + 98 + 245 + 49 + 13);
    let (level, _) = controller.levels().find(|(level, _)| level.name == "global-default").unwrap();
    assert_eq!(level.max_seats(), 8, "the smaller of 15 % and a sixth");
}

#[test]
fn a_busy_level_borrows_lendable_seats_of_idle_levels() {
    let (mut controller, classifier) = configured();
    let alice = User::named("alice").in_groups(["system:authenticated"]);
    let class = classifier.classify(&get_pods(&alice));
    assert_eq!(class.level.name, "global-default");
    for _ in 0..300 {
        class.level.queues().start(Duration::ZERO, arrival(class, 1));
    }
    for period in 1..=3 {
        controller.adjust(Duration::from_secs(10 * period));
    }
    let (nominal, _, _, current) = limits(&controller, "global-default");
    assert!(current > 3 * nominal, "{current} of {nominal}");
    let (nominal, lower, _, current) = limits(&controller, "workload-low");
    assert!(current < nominal && current >= lower, "{current} of {nominal}");
    let total: i64 = controller.levels().map(|(_, limits)| limits.current).sum();
    assert!((599..=605).contains(&total), "all seats are given away: {total}");
    assert!(class.level.queues().load().executing > 100, "waiting requests have moved up");
}

#[test]
fn seats_used_by_exempt_requests_are_taken_from_other_levels() {
    let (mut controller, classifier) = configured();
    let admin = User::named("admin").in_groups(["system:masters"]);
    let class = classifier.classify(&get_pods(&admin));
    assert!(class.is_exempt);
    for _ in 0..1000 {
        class.level.queues().start(Duration::ZERO, arrival(class, 1));
    }
    controller.adjust(Duration::from_secs(10));
    assert_eq!(limits(&controller, "exempt").3, 1000);
    assert_eq!(limits(&controller, "workload-low").3, limits(&controller, "workload-low").1);
}

#[test]
fn a_deleted_priority_level_drains_and_its_flow_schemas_are_dangling() {
    let (mut controller, classifier) = configured();
    let alice = User::named("alice").in_groups(["system:authenticated"]);
    let class = classifier.classify(&get_pods(&alice));
    let ArrivalDecision::Executing(id) = class.level.queues().start(Duration::ZERO, arrival(class, 1)) else {
        panic!()
    };
    let (mut levels, schemas) = bootstrap_objects();
    levels.retain(|level| level.name != "global-default");
    let now = Duration::from_secs(1);
    let changed = controller.configure(now, levels.clone(), schemas.clone());
    let dangling = changed.updates.iter().find(|update| update.schema == "global-default").unwrap();
    assert_eq!(
        (dangling.condition.status.as_str(), dangling.condition.reason.as_str()),
        ("True", "NotFound")
    );
    assert_eq!(changed.classifier.classify(&get_pods(&alice)).schema.name, "catch-all");
    assert!(class.level.is_quiescing());
    assert!(controller.levels().any(|(level, _)| level.name == "global-default"));
    assert!(class.level.queues().finish(now, id).is_idle);
    controller.configure(now, levels, schemas);
    assert!(!controller.levels().any(|(level, _)| level.name == "global-default"));
}

#[test]
fn up_to_date_flow_schema_conditions_are_not_rewritten() {
    let (_, mut schemas) = bootstrap_objects();
    let (levels, _) = bootstrap_objects();
    let mut controller: PriorityLevelController<()> = PriorityLevelController::new(600, Duration::ZERO);
    assert_eq!(controller.configure(Duration::ZERO, levels.clone(), schemas.clone()).updates.len(), 11);
    for schema in &mut schemas {
        schema.dangling = Some(DanglingCondition::of(&schema.level, true));
    }
    assert!(controller.configure(Duration::ZERO, levels, schemas).updates.is_empty());
}

#[test]
fn mandatory_flow_control_objects_apply_even_if_not_stored() {
    let mut controller: PriorityLevelController<()> = PriorityLevelController::new(600, Duration::ZERO);
    let classifier = controller.configure(Duration::ZERO, Vec::new(), Vec::<FlowSchema>::new()).classifier;
    let admin = User::named("admin").in_groups(["system:masters"]);
    let without_groups = User::named("nobody");
    assert_eq!(classifier.classify(&get_pods(&admin)).schema.name, "exempt");
    assert_eq!(classifier.classify(&get_pods(&without_groups)).schema.name, "catch-all");
    assert_eq!(limits(&controller, "catch-all").0, 600, "the one level with shares has all seats");
}

#[test]
fn classification_depends_on_groups_and_on_the_schemas_of_the_configuration() {
    let (_, classifier) = configured();
    let (_, without) = {
        let mut controller: PriorityLevelController<()> = PriorityLevelController::new(600, Duration::ZERO);
        let configured = controller.configure(Duration::ZERO, Vec::new(), Vec::<FlowSchema>::new());
        (controller, configured.classifier)
    };
    let alice = User::named("alice").in_groups(["system:authenticated"]);
    let node = User::named("alice").in_groups(["system:nodes", "system:authenticated"]);
    let master = User::named("alice").in_groups(["system:masters", "system:authenticated"]);
    let many = (0..40).map(|number| format!("group-{number}")).chain(["system:masters".to_owned()]);
    let in_many = User::named("alice").in_groups(many.collect::<Vec<_>>());
    for _ in 0..2 {
        for (user, schema) in
            [(&alice, "global-default"), (&node, "system-nodes"), (&master, EXEMPT), (&in_many, EXEMPT)]
        {
            assert_eq!(classifier.classify(&get_pods(user)).schema.name, schema);
        }
        assert_eq!(without.classify(&get_pods(&alice)).schema.name, CATCH_ALL);
        assert_eq!(without.classify(&get_pods(&master)).schema.name, EXEMPT);
    }
}

/// Requests of a user that bootstrap flow schemas tell apart.
fn requests(user: &User) -> Vec<RequestDigest<'_>> {
    let resource = |verb, group, resource, namespace| RequestDigest {
        user,
        is_resource: true,
        verb,
        group,
        resource,
        subresource: "",
        namespace,
        path: "",
    };
    let page = |path| RequestDigest { is_resource: false, path, ..resource("get", "", "", "") };
    vec![
        get_pods(user),
        resource("update", "coordination.k8s.io", "leases", "kube-system"),
        resource("get", "", "nodes", ""),
        resource("create", "", "events", "default"),
        page("/healthz"),
        page("/version"),
    ]
}

#[test]
fn the_class_of_all_requests_is_the_class_of_each() {
    let (mut controller, classifier) = configured();
    let account = |namespace, name| InternalIdentity::ServiceAccount { namespace, name };
    let callers = [
        InternalIdentity::ApiServer,
        InternalIdentity::Scheduler,
        account("default", "web"),
        account("kube-system", "endpoint-controller"),
    ]
    .map(Caller::internal);
    let classes_of_all = |classifier: &RequestClassifier<()>| -> Vec<[Option<usize>; 2]> {
        let found = callers.iter().map(|caller| {
            let classes = [true, false].map(|is_resource| classifier.index_of_all(caller, is_resource));
            for request in requests(caller.user()) {
                let of_all = if request.is_resource { classes[0] } else { classes[1] };
                assert!(of_all.is_none_or(|class| class == classifier.index(&request)), "{request:?}");
            }
            classes
        });
        found.collect()
    };
    let known = |classes: &[[Option<usize>; 2]]| {
        classes.iter().map(|of| of.map(|class| class.is_some())).collect::<Vec<_>>()
    };
    // Health pages have a flow schema of their own; leases of controllers and schedulers, too.
    let expected = [[true, true], [false, false], [true, false], [false, false]];
    assert_eq!(known(&classes_of_all(&classifier)), expected);
    // Each thread remembers the classes of a caller, but not beyond the configuration that they belong to.
    let without =
        controller.configure(Duration::from_secs(1), Vec::new(), Vec::<FlowSchema>::new()).classifier;
    assert_ne!(classes_of_all(&without), classes_of_all(&classifier));
}
