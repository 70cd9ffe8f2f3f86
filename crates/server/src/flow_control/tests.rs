use std::sync::Arc;
use std::time::{Duration, Instant};

use authn::{Caller, InternalIdentity};
use flowcontrol::{RequestArrival, WorkEstimate, bootstrap};
use http::Method;
use requests::request_info::{Query, RequestInfo};

use super::seat::Hold;
use super::{Assignment, ClientGone, FairSeat, FlowControl, Waiter, request_digest};

const LONG: Duration = Duration::from_mins(10);

/// A service account's request, which belongs to `workload-low`.
fn request(control: &FlowControl) -> (FairSeat, RequestArrival<Waiter>) {
    let caller = Caller::internal(InternalIdentity::ServiceAccount { namespace: "default", name: "web" });
    let info = Arc::new(RequestInfo::parse(&Method::GET, "/api/v1/nodes/n", &Query::default()));
    let in_force = Arc::clone(control.in_force.load().get());
    let digest = request_digest(&caller, &info);
    let assignment = Assignment { index: in_force.configuration.index(&digest), in_force };
    let class = assignment.class();
    assert_eq!(class.level.name, "workload-low");
    let (distinguisher, hash) = class.flow_of(&digest);
    let (flow, distinguisher) = (class.flow, distinguisher.into());
    let arrival = RequestArrival {
        flow,
        distinguisher,
        hash,
        work: WorkEstimate::ONE_SEAT,
        interested_watches: None,
        is_watch: false,
        is_resumed: false,
        ticket: Waiter { caller, info: Arc::clone(&info), wake: None },
    };
    (FairSeat::new(assignment, Hold::Nothing, true, ClientGone::default()), arrival)
}

#[tokio::test]
async fn compute_only_requests_queue_when_seats_are_exhausted() {
    let control = FlowControl::new(100, LONG);
    for found in bootstrap::objects() {
        control.object_changed(found.kind, None, Some(&found.object));
    }
    let level = Arc::clone(&request(&control).0.assignment.class().level);
    let seats = usize::try_from(level.queues().limit()).unwrap();
    // Each request releases its seat as soon as it has it.
    let requests: Vec<_> = (0..2 * seats)
        .map(|_| {
            let ((mut seat, arrival), level) = (request(&control), Arc::clone(&level));
            let present = control.arrived();
            tokio::spawn(async move {
                assert!(seat.take(arrival, Instant::now(), LONG).await);
                let load = level.queues().load();
                drop((seat, present));
                load
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

/// Returns a seat on the fast path of `workload-low`.
fn fast_seat(control: &FlowControl) -> FairSeat {
    for found in bootstrap::objects() {
        control.object_changed(found.kind, None, Some(&found.object));
    }
    let (mut seat, _) = request(control);
    seat.hold = Hold::Fast(seat.assignment.class().enter_fast_path(Instant::now(), 1).unwrap());
    seat
}

#[tokio::test]
async fn a_fast_path_seat_can_be_released_and_reacquired() {
    let control = FlowControl::new(100, LONG);
    let mut seat = fast_seat(&control);
    let level = Arc::clone(&seat.assignment.class().level);
    assert_eq!(level.queues().load().executing, 1);
    seat.release();
    assert!(level.queues().is_idle());
    assert_eq!(seat.reacquire().await, Ok(()));
    assert_eq!(level.queues().load().seats_in_use, 1);
    drop(seat);
    assert!(level.queues().is_idle());
}

#[tokio::test]
async fn a_request_that_left_the_fast_path_is_refused_when_it_is_closed() {
    let control = FlowControl::new(100, LONG);
    let mut seat = fast_seat(&control);
    seat.release();
    let (mut wide, mut arrival) = request(&control);
    arrival.work = WorkEstimate::seats(seat.assignment.class().level.queues().limit());
    assert!(wide.take(arrival, Instant::now(), LONG).await);
    assert!(seat.reacquire().await.is_err());
    drop(wide);
    assert_eq!(seat.reacquire().await, Ok(()), "the level is idle again");
}

#[tokio::test]
async fn the_last_fast_path_request_of_a_deleted_priority_level_notifies_the_controller() {
    let control = FlowControl::new(100, LONG);
    let seat = fast_seat(&control);
    for found in bootstrap::objects() {
        control.object_changed(found.kind, Some(&found.object), None);
    }
    assert!(seat.assignment.class().level.is_quiescing());
    // Consume the notifications caused by the changed objects.
    while tokio::time::timeout(Duration::ZERO, control.shared.changed.notified()).await.is_ok() {}
    drop(seat);
    tokio::time::timeout(LONG, control.shared.changed.notified()).await.unwrap();
}
