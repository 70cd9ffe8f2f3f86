//! Benchmarks API Priority and Fairness for a request that does not have to wait: classification, taking seats, and giving them back. The
//! fast path, which light requests take, and the queues, which all others take, are timed separately.

#![expect(clippy::expect_used, reason = "a benchmark that cannot run ends")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use authn::{Caller, InternalIdentity, User};
use criterion::{Criterion, criterion_group, criterion_main};
use flowcontrol::bootstrap::{self, FlowControlKind};
use flowcontrol::{
    ArrivalDecision, FlowSchema, PresentRequests, PriorityLevel, PriorityLevelController, RequestArrival,
    RequestClassifier, RequestDigest, WorkEstimate,
};

fn admit(criterion: &mut Criterion) {
    let mut controller: PriorityLevelController<()> = PriorityLevelController::new(600, Duration::ZERO);
    let (mut levels, mut schemas) = (Vec::new(), Vec::new());
    for found in bootstrap::objects() {
        match found.kind {
            FlowControlKind::PriorityLevel => levels.extend(PriorityLevel::read(&found.object)),
            FlowControlKind::FlowSchema => schemas.push(FlowSchema::read(&found.object)),
        }
    }
    let classifier = controller.configure(Duration::ZERO, levels, schemas).classifier;
    fast_path(criterion, &classifier);
    let users = [
        ("administrator", User::named("admin").in_groups(["system:masters", "system:authenticated"])),
        (
            "service account",
            User::named("system:serviceaccount:default:web").in_groups([
                "system:serviceaccounts",
                "system:serviceaccounts:default",
                "system:authenticated",
            ]),
        ),
        ("user", User::named("alice").in_groups(["devs", "system:authenticated"])),
    ];
    for (name, user) in &users {
        let attributes = RequestDigest {
            user,
            is_resource: true,
            verb: "get",
            group: "",
            resource: "configmaps",
            subresource: "",
            namespace: "default",
            path: "/api/v1/namespaces/default/configmaps/x",
        };
        criterion.bench_function(&format!("classify, {name}"), |b| {
            b.iter(|| classifier.index(black_box(&attributes)));
        });
        let mut now = Duration::from_secs(1);
        criterion.bench_function(&format!("classify, take seats of the queues and finish, {name}"), |b| {
            b.iter(|| {
                now += Duration::from_micros(10);
                let class = classifier.classify(black_box(&attributes));
                let (distinguisher, hash) = class.flow_of(&attributes);
                let arrival = RequestArrival {
                    flow: class.flow,
                    distinguisher: distinguisher.into(),
                    hash,
                    work: WorkEstimate::ONE_SEAT,
                    interested_watches: None,
                    is_watch: false,
                    is_resumed: false,
                    ticket: (),
                };
                let admission = class.level.queues().start(now, arrival);
                if let ArrivalDecision::Executing(id) = admission {
                    class.level.queues().finish(now + Duration::from_micros(5), id);
                }
            });
        });
    }
}

/// The steps of a GET: it becomes present, is classified by its caller, passes the fast path and ends.
fn fast_path(criterion: &mut Criterion, classifier: &RequestClassifier<()>) {
    let service_account = InternalIdentity::ServiceAccount { namespace: "default", name: "web" };
    let callers = [
        ("exempt", Caller::internal(InternalIdentity::ApiServer)),
        ("service account", Caller::internal(service_account)),
    ];
    let (present, epoch) = (PresentRequests::default(), Instant::now());
    for (name, caller) in &callers {
        criterion.bench_function(&format!("classify, enter and leave the fast path, {name}"), |b| {
            b.iter(|| {
                let _present = present.arrive();
                let index =
                    classifier.index_of_all(black_box(caller), true).expect("one class for all requests");
                let class = classifier.class(index);
                let seat =
                    class.enter_fast_path(epoch, present.estimate()).expect("the level is not contended");
                class.leave_fast_path(epoch, seat, epoch);
            });
        });
    }
}

criterion_group!(benches, admit);
criterion_main!(benches);
