use std::time::Duration;

use super::*;
use crate::queueset::{Queuing, RequestArrival};
use crate::{Dealer, WorkEstimate};

struct Fixed;

impl DescribeRequest<()> for Fixed {
    fn time(&self, at: Duration) -> String {
        format!("T{}", at.as_secs())
    }

    fn details(&self, (): &()) -> [String; 8] {
        ["alice", "get", "/api", "ns", "n", "v1", "pods", ""].map(str::to_owned)
    }
}

fn levels() -> Vec<Arc<ActiveLevel<()>>> {
    let queuing = Queuing::Queue { dealer: Dealer::new(2, 1).unwrap(), queues: 2, length_limit: 5 };
    let level = ActiveLevel::new("busy".into(), queuing, Duration::ZERO);
    {
        let mut queues = level.queues();
        let flow = queues.flow("users");
        queues.configure(Duration::ZERO, queuing, 1, 1);
        for _ in 0..2 {
            let arrival = RequestArrival {
                flow,
                distinguisher: "alice".into(),
                hash: 1,
                work: WorkEstimate::ONE_SEAT,
                interested_watches: None,
                is_watch: false,
                is_resumed: false,
                ticket: (),
            };
            queues.start(Duration::from_secs(7), arrival);
        }
    }
    vec![Arc::new(ActiveLevel::new("idle".into(), Queuing::Reject, Duration::ZERO)), Arc::new(level)]
}

#[test]
fn tables_have_columns_as_wide_as_their_widest_cell() {
    let expected = "\
PriorityLevelName, ActiveQueues, IsIdle, IsQuiescing, WaitingRequests, ExecutingRequests, DispatchedRequests, RejectedRequests, TimedoutRequests, CancelledRequests
idle,              0,            true,   false,       0,               0,                 0,                  0,                0,                0
busy,              1,            false,  false,       1,               1,                 1,                  0,                0,                0
";
    assert_eq!(priority_levels(&levels()), expected);
    let expected = "\
PriorityLevelName, Index,  PendingRequests, ExecutingRequests, SeatsInUse, NextDispatchR, InitialSeatsSum, MaxSeatsSum, TotalWorkSum
busy,              0,      0,               0,                 0,          0.00000000ss,  0,               0,           0.00000000ss
busy,              1,      1,               1,                 1,          0.00300000ss,  1,               1,           0.00300000ss
";
    assert_eq!(queues(&levels()), expected);
}

#[test]
fn requests_are_listed_with_queue_index_and_details_on_demand() {
    let expected = "\
PriorityLevelName, FlowSchemaName, QueueIndex, RequestIndexInQueue, FlowDistingsher, ArriveTime, InitialSeats, FinalSeats, AdditionalLatency, StartTime
busy,              users,          1,          0,                   alice,           T7,         1,            0,          0s,                0001-01-01T00:00:00Z
busy,              users,          1,          -1,                  alice,           T7,         1,            0,          0s,                T7
";
    assert_eq!(requests(&levels(), &Fixed, false), expected);
    let detailed = requests(&levels(), &Fixed, true);
    let last = detailed.lines().last().unwrap();
    assert!(
        last.ends_with("alice,    get,    /api,    ns,        n,      v1,         pods,     "),
        "{last:?}"
    );
}
