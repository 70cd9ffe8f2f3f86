//! Benchmarks API Priority and Fairness for a request that does not have to wait: classification, taking seats, and giving them back.

use std::hint::black_box;
use std::time::Duration;

use authn::User;
use criterion::{Criterion, criterion_group, criterion_main};
use flowcontrol::bootstrap::{self, FlowControlKind};
use flowcontrol::{
    Arrival, ArrivalDecision, FlowSchema, PriorityLevel, PriorityLevelController, RequestDigest,
    RequestTicket, WorkEstimate,
};

struct Silent;

impl RequestTicket for Silent {
    fn dispatched(&mut self) {}
}

fn admit(criterion: &mut Criterion) {
    let mut controller: PriorityLevelController<Silent> = PriorityLevelController::new(600, Duration::ZERO);
    let (mut levels, mut schemas) = (Vec::new(), Vec::new());
    for found in bootstrap::objects() {
        match found.kind {
            FlowControlKind::PriorityLevel => levels.extend(PriorityLevel::read(&found.object)),
            FlowControlKind::FlowSchema => schemas.push(FlowSchema::read(&found.object)),
        }
    }
    let classifier = controller.configure(Duration::ZERO, levels, schemas).classifier;
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
        criterion.bench_function(&format!("classify, admit and finish, {name}"), |b| {
            b.iter(|| {
                now += Duration::from_micros(10);
                let class = classifier.classify(black_box(&attributes));
                let (distinguisher, hash) = class.flow_of(&attributes);
                let arrival = Arrival {
                    flow: class.flow,
                    distinguisher: distinguisher.into(),
                    hash,
                    work: WorkEstimate::ONE_SEAT,
                    interested_watches: None,
                    is_watch: false,
                    is_resumed: false,
                    ticket: Silent,
                };
                let admission = class.level.queues().start(now, arrival);
                if let ArrivalDecision::Executing(id) = admission {
                    class.level.queues().finish(now + Duration::from_micros(5), id);
                }
            });
        });
    }
}

criterion_group!(benches, admit);
criterion_main!(benches);
