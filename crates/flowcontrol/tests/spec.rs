//! Runs every page under `spec/` as a test.
//!
//! The bootstrap objects are stored first. A `yaml` block stores a FlowSchema; an `ask` block lists requests and their classes, one per
//! line; a `demand` block lists levels with numbers of requests; a `seats SEATS` block lets these requests arrive at a new server with
//! so many seats, ends a period of ten seconds if there are any, and shows the seats of each level.

#![expect(clippy::unwrap_used, clippy::panic, reason = "this is a test")]

use std::fmt::Write as _;
use std::time::Duration;

use authn::User;
use flowcontrol::bootstrap::{self, FlowControlKind};
use flowcontrol::{
    FlowSchema, PriorityLevel, PriorityLevelController, RequestArrival, RequestClassifier, RequestDigest,
    WorkEstimate,
};
use pages::{Page, pages};
use value::yaml;

pages!(check, "": allocation, classification);

struct Cluster {
    levels: Vec<PriorityLevel>,
    schemas: Vec<FlowSchema>,
    demand: Vec<(String, u64)>,
}

impl Cluster {
    fn new() -> Self {
        let (mut levels, mut schemas) = (Vec::new(), Vec::new());
        for found in bootstrap::objects() {
            match found.kind {
                FlowControlKind::PriorityLevel => levels.push(PriorityLevel::read(&found.object).unwrap()),
                FlowControlKind::FlowSchema => schemas.push(FlowSchema::read(&found.object)),
            }
        }
        Cluster { levels, schemas, demand: Vec::new() }
    }

    fn configure(&self, seats: u32) -> (PriorityLevelController<()>, RequestClassifier<()>) {
        let mut controller = PriorityLevelController::new(seats, Duration::ZERO);
        let configured = controller.configure(Duration::ZERO, self.levels.clone(), self.schemas.clone());
        (controller, configured.classifier)
    }

    fn seats(&self, seats: u32) -> String {
        let (mut controller, _configuration) = self.configure(seats);
        for (name, requests) in &self.demand {
            let (level, _) = controller.levels().find(|(level, _)| level.name == name.as_str()).unwrap();
            let mut queues = level.queues();
            let flow = queues.flow("test");
            for hash in 0..*requests {
                queues.start(
                    Duration::ZERO,
                    RequestArrival {
                        flow,
                        distinguisher: "".into(),
                        hash: hash * 7919,
                        work: WorkEstimate::ONE_SEAT,
                        interested_watches: None,
                        is_watch: false,
                        is_resumed: false,
                        ticket: (),
                    },
                );
            }
        }
        if !self.demand.is_empty() {
            controller.adjust(Duration::from_secs(10));
        }
        let mut out = String::new();
        for (level, limits) in controller.levels() {
            let (nominal, lower, upper, current) =
                (limits.nominal, limits.lower, limits.upper, limits.current);
            writeln!(out, "{}: nominal {nominal}, from {lower} to {upper}, now {current}", level.name)
                .unwrap();
        }
        out
    }

    fn ask(&self, line: &str) -> String {
        let (question, _) = line.split_once(" -> ").unwrap_or((line, ""));
        let mut words = question.split(' ');
        let who = words.next().unwrap();
        let (name, groups) = who.strip_suffix(']').unwrap().split_once('[').unwrap();
        let user = User::named(name).in_groups(groups.split(',').filter(|group| !group.is_empty()));
        let verb = words.next().unwrap();
        let what = words.next().unwrap();
        let namespace = match (words.next(), words.next()) {
            (Some("-n"), Some(namespace)) => namespace,
            (None, None) => "",
            other => panic!("{line}: {other:?}"),
        };
        let (kind, subresource) = what.split_once('/').unwrap_or((what, ""));
        let (resource, group) = kind.split_once('.').unwrap_or((kind, ""));
        let is_resource = !what.starts_with('/');
        let attributes = RequestDigest {
            user: &user,
            is_resource,
            verb,
            group,
            resource,
            subresource,
            namespace,
            path: what,
        };
        let (_controller, classifier) = self.configure(600);
        let class = classifier.classify(&attributes);
        let (distinguisher, hash) = class.flow_of(&attributes);
        let mut answer = format!("{question} -> {} {}", class.schema.name, class.level.name);
        if hash != 0 {
            write!(answer, " {distinguisher:?}").unwrap();
        }
        answer
    }
}

fn check(page: &Page) {
    let mut cluster = Cluster::new();
    page.check(|info, body| match info.split_once(' ').unwrap_or((info, "")) {
        ("yaml", _) => {
            cluster.schemas.push(FlowSchema::read(&yaml::read(body.as_bytes()).unwrap().value));
            None
        }
        ("demand", _) => {
            let line = |line: &str| {
                let (level, requests) = line.split_once(' ').unwrap();
                (level.to_owned(), requests.parse().unwrap())
            };
            cluster.demand = body.lines().map(line).collect();
            None
        }
        ("seats", seats) => Some(cluster.seats(seats.parse().unwrap())),
        ("ask", _) => Some(body.lines().map(|line| cluster.ask(line) + "\n").collect()),
        (other, _) => panic!("unknown block {other:?}"),
    });
}
