use std::sync::Arc;
use std::time::{Duration, Instant};

use authn::{Caller, InternalIdentity};
use flowcontrol::{Arrival, Work, bootstrap};
use http::Method;

use super::{Assignment, ClientGone, FairSeat, FlowControl, Waiter, attributes};
use crate::request_info::{Query, RequestInfo};

const LONG: Duration = Duration::from_mins(10);

/// A request of a service account, which goes to `workload-low`.
fn request(control: &FlowControl) -> (FairSeat, Arrival<Waiter>) {
    let caller = Caller::internal(InternalIdentity::ServiceAccount { namespace: "default", name: "web" });
    let info = Arc::new(RequestInfo::parse(&Method::GET, "/api/v1/nodes/n", &Query::default()));
    let in_force = control.in_force.load_full();
    let asked = attributes(&caller, &info);
    let assignment = Assignment { index: in_force.configuration.index(&asked), in_force };
    let class = assignment.class();
    assert_eq!(class.level.name, "workload-low");
    let (distinguisher, hash) = class.flow_of(&asked);
    let (flow, distinguisher) = (class.flow, distinguisher.into());
    let arrival = Arrival {
        flow,
        distinguisher,
        hash,
        work: Work::ONE_SEAT,
        interested_watches: None,
        is_watch: false,
        is_resumed: false,
        ticket: Waiter { caller, info: Arc::clone(&info), wake: None },
    };
    (FairSeat::new(assignment, true, ClientGone::default()), arrival)
}

#[tokio::test]
async fn requests_that_only_compute_queue_when_they_are_many() {
    let control = FlowControl::new(100, LONG);
    for found in bootstrap::objects() {
        control.object_changed(found.kind, None, Some(&found.object));
    }
    let level = Arc::clone(&request(&control).0.assignment.class().level);
    let seats = usize::try_from(level.queues().limit()).unwrap();
    // Each of these gives its seat back as soon as it has it.
    let requests: Vec<_> = (0..2 * seats)
        .map(|_| {
            let ((mut seat, arrival), level) = (request(&control), Arc::clone(&level));
            let present = control.arrived();
            tokio::spawn(async move {
                let _present = present;
                assert!(seat.take(arrival, Instant::now(), LONG).await);
                level.queues().load()
            })
        })
        .collect();
    let mut seen = Vec::new();
    for request in requests {
        let load = request.await.unwrap();
        seen.push((load.executing, load.waiting));
    }
    assert_eq!(seen.first(), Some(&(seats, seats)), "they took all seats, and the others wait");
    assert!(seen.contains(&(1, 0)), "few requests need not wait for others");
    assert!(level.queues().is_idle());
}
