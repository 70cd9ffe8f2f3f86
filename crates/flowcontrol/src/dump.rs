//! The tables at `/debug/api_priority_and_fairness/`, in kube-apiserver's format.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use crate::level::ActiveLevel;
use crate::queueset::{QueueSet, RequestTicket, TrackedRequest};

/// Idle queues of a level with more queues than this are omitted.
const MAX_IDLE_QUEUES: u32 = 4096;

/// Minimum column width in characters.
const MIN_WIDTH: usize = 8;

/// Lines of cells; all lines have as many cells as the first.
struct DebugTable {
    lines: Vec<Vec<String>>,
}

impl DebugTable {
    fn new(headers: &[&str]) -> Self {
        DebugTable { lines: vec![headers.iter().map(|header| (*header).to_owned()).collect()] }
    }

    /// Ends every cell but the last of a line with a comma and pads it to the width of its column.
    fn render(&self) -> String {
        let columns = self.lines.first().map_or(0, Vec::len);
        let width = |column: usize| {
            let cells = self.lines.iter().filter_map(|line| line.get(column));
            // Plus the comma and one space.
            cells.map(|cell| cell.chars().count() + 2).max().unwrap_or(0).max(MIN_WIDTH)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut out = String::new();
        for line in &self.lines {
            for (number, (cell, width)) in line.iter().zip(&widths).enumerate() {
                if number + 1 == line.len() {
                    out.push_str(cell);
                } else {
                    let _ = write!(out, "{:width$}", format!("{cell},"));
                }
            }
            out.push('\n');
        }
        out
    }
}

/// One row per priority level.
pub fn priority_levels<T: RequestTicket>(levels: &[Arc<ActiveLevel<T>>]) -> String {
    let mut table = DebugTable::new(&[
        "PriorityLevelName",
        "ActiveQueues",
        "IsIdle",
        "IsQuiescing",
        "WaitingRequests",
        "ExecutingRequests",
        "DispatchedRequests",
        "RejectedRequests",
        "TimedoutRequests",
        "CancelledRequests",
    ]);
    for level in levels {
        let mut queues = level.queues();
        queues.take_fast_counts();
        let (load, counts) = (queues.load(), queues.counts);
        table.lines.push(vec![
            level.name.to_string(),
            queues.queues_with_waiting().to_string(),
            queues.is_idle().to_string(),
            level.is_quiescing().to_string(),
            load.waiting.to_string(),
            load.executing.to_string(),
            counts.dispatched.to_string(),
            counts.rejected.to_string(),
            counts.timed_out.to_string(),
            counts.canceled.to_string(),
        ]);
    }
    table.render()
}

/// One row per queue.
pub fn queues<T: RequestTicket>(levels: &[Arc<ActiveLevel<T>>]) -> String {
    let mut table = DebugTable::new(&[
        "PriorityLevelName",
        "Index",
        "PendingRequests",
        "ExecutingRequests",
        "SeatsInUse",
        "NextDispatchR",
        "InitialSeatsSum",
        "MaxSeatsSum",
        "TotalWorkSum",
    ]);
    for level in levels {
        let queues = level.queues();
        let count = queues.queue_count();
        for index in 0..count {
            let queue = queues.queue(index);
            if count > MAX_IDLE_QUEUES && queue.waiting.is_empty() && queue.seats_in_use == 0 {
                continue;
            }
            table.lines.push(vec![
                level.name.to_string(),
                index.to_string(),
                queue.waiting.len().to_string(),
                queue.executing.to_string(),
                queue.seats_in_use.to_string(),
                queue.next_dispatch.to_string(),
                queue.initial_seats_sum.to_string(),
                queue.max_seats_sum.to_string(),
                queue.total_work_sum.to_string(),
            ]);
        }
    }
    table.render()
}

/// Formats the parts of a request that this crate does not know.
pub trait DescribeRequest<T> {
    /// Formats a time as RFC 3339 with nanoseconds.
    fn time(&self, at: Duration) -> String;

    /// The cells from `UserName` to `SubResource`.
    fn details(&self, ticket: &T) -> [String; 8];
}

/// One row per request; `details` adds the columns about the request itself.
pub fn requests<T: RequestTicket>(
    levels: &[Arc<ActiveLevel<T>>],
    describe: &impl DescribeRequest<T>,
    details: bool,
) -> String {
    let mut headers = vec![
        "PriorityLevelName",
        "FlowSchemaName",
        "QueueIndex",
        "RequestIndexInQueue",
        "FlowDistingsher",
        "ArriveTime",
        "InitialSeats",
        "FinalSeats",
        "AdditionalLatency",
        "StartTime",
    ];
    if details {
        headers.extend([
            "UserName",
            "Verb",
            "APIPath",
            "Namespace",
            "Name",
            "APIVersion",
            "Resource",
            "SubResource",
        ]);
    }
    let mut table = DebugTable::new(&headers);
    for level in levels {
        let queues = level.queues();
        let row = |request: &TrackedRequest<T>, queue: i64, index: i64| {
            let work = request.work;
            let latency = i64::try_from(work.additional_latency.as_nanos()).unwrap_or(i64::MAX);
            let mut line = vec![
                level.name.to_string(),
                queues.flows().get(request.flow).map(|flow| flow.schema.to_string()).unwrap_or_default(),
                queue.to_string(),
                index.to_string(),
                request.distinguisher.to_string(),
                describe.time(request.arrived),
                work.initial_seats.to_string(),
                work.final_seats.to_string(),
                api::time::format_duration(latency),
                request.started.map_or_else(|| "0001-01-01T00:00:00Z".to_owned(), |at| describe.time(at)),
            ];
            if details {
                line.extend(describe.details(&request.ticket));
            }
            line
        };
        table.lines.extend(waiting(&queues).map(|(request, queue, index)| row(request, queue, index)));
        let mut executing: Vec<&TrackedRequest<T>> =
            queues.requests().map(|(_, request)| request).filter(|request| request.is_executing()).collect();
        executing.sort_by_key(|request| (request.queue.is_none(), request.queue, request.arrived));
        for request in executing {
            table.lines.push(row(request, request.queue.map_or(-1, i64::from), -1));
        }
    }
    table.render()
}

/// Waiting requests with the index of their queue and their position in it.
fn waiting<T: RequestTicket>(queues: &QueueSet<T>) -> impl Iterator<Item = (&TrackedRequest<T>, i64, i64)> {
    queues.busy_queues().flat_map(|(index, ids)| {
        let found = ids.into_iter().filter_map(|id| queues.request(id));
        (0..).zip(found).map(move |(position, request)| (request, i64::from(index), position))
    })
}

#[cfg(test)]
mod tests;
