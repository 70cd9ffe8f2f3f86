//! Estimates how many seats a request will occupy, and for how long.

use std::time::Duration;

use crate::SeatSeconds;

/// Maximum seats of a list.
const MAX_LIST_SEATS: u64 = 100;
/// Maximum seats for the watch events of a write.
const MAX_MUTATING_SEATS: u64 = 10;
/// Bytes of memory in use at one time that count as one seat.
const BYTES_PER_SEAT: u64 = 100_000;
/// Maximum memory of a list served from the watch cache, because it is streamed.
const STREAMED_BYTES: u64 = 1_000_000;
/// The largest object size, assumed if the actual size is unknown.
const MAX_OBJECT_BYTES: u64 = 1_500_000;
/// Number of watches that one seat serves.
const WATCHES_PER_SEAT: u64 = 10;
/// How long a seat is busy with the event of a write.
const EVENT_TIME: Duration = Duration::from_millis(5);

/// The estimated cost of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkEstimate {
    /// Seats while it executes.
    pub initial_seats: u64,
    /// Seats afterwards, while its event is sent to watches.
    pub final_seats: u64,
    /// How long it occupies the final seats. The client does not wait for it.
    pub additional_latency: Duration,
}

impl WorkEstimate {
    /// The cost of most requests.
    pub const ONE_SEAT: WorkEstimate = WorkEstimate::seats(1);

    /// This many seats, and none after execution.
    pub const fn seats(seats: u64) -> Self {
        WorkEstimate { initial_seats: seats, final_seats: 0, additional_latency: Duration::ZERO }
    }

    /// The seats that are reserved for it from start to end.
    pub fn max_seats(&self) -> u64 {
        self.initial_seats.max(self.final_seats)
    }
}

/// Statistics about the stored objects of a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectStats {
    /// Number of stored objects.
    pub count: u64,
    /// Average object size in bytes.
    pub average_bytes: u64,
}

/// The options of a list or watch that determine its cost. A list with unreadable options has the maximum cost.
#[derive(Clone, Copy, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent options of a request, as the client sends them"
)]
pub struct ListQuery<'a> {
    pub is_watch: bool,
    /// True if a field selector limits the list to one object by name.
    pub names_one: bool,
    /// `limit`; zero means no limit.
    pub limit: i64,
    pub resource_version: &'a str,
    pub resource_version_match: &'a str,
    /// The `continue` token of the request.
    pub continue_token: &'a str,
    /// True if the query has a label or field selector.
    pub has_selector: bool,
    pub sends_initial_events: bool,
}

impl ListQuery<'_> {
    /// Reports whether kube-apiserver would answer from its watch cache.
    fn is_from_cache(&self) -> bool {
        if self.is_watch {
            return true;
        }
        match self.resource_version_match {
            "NotOlderThan" => true,
            "" if !self.continue_token.is_empty() => false,
            "" => self.limit <= 0 || matches!(self.resource_version, "" | "0"),
            _ => false,
        }
    }
}

/// Maximum seats of a request: the smaller of `most` and the level's limit `level_max`, where zero means no limit.
fn cap(level_max: u64, most: u64) -> u64 {
    if level_max == 0 || level_max > most { most } else { level_max }
}

/// The cost of a list or watch with unreadable options: it will fail, and until then any cost is possible.
pub fn unreadable_list(level_max: u64) -> WorkEstimate {
    WorkEstimate::seats(cap(level_max, MAX_LIST_SEATS))
}

/// The cost of a list, or of the start of a watch. `stats` is `None` if another server stores the objects.
pub fn list(query: &ListQuery<'_>, stats: Option<ObjectStats>, level_max: u64) -> WorkEstimate {
    let begins_with_nothing =
        query.is_watch && !query.sends_initial_events && !matches!(query.resource_version, "" | "0");
    let Some(stats) = stats.filter(|_| !begins_with_nothing) else { return WorkEstimate::ONE_SEAT };
    let size =
        if stats.average_bytes == 0 && stats.count > 0 { MAX_OBJECT_BYTES } else { stats.average_bytes };
    let limited = match u64::try_from(query.limit) {
        Ok(limit) if limit > 0 => limit.min(stats.count),
        _ => stats.count,
    };
    let from_cache = query.is_from_cache();
    let objects = if query.names_one {
        1
    } else if !from_cache && query.has_selector {
        limited.max(stats.count / 2)
    } else {
        limited
    };
    let bytes = objects.saturating_mul(size);
    let bytes = if from_cache { bytes.min(STREAMED_BYTES) } else { bytes };
    WorkEstimate::seats(bytes.div_ceil(BYTES_PER_SEAT).max(1).min(cap(level_max, MAX_LIST_SEATS)))
}

/// The cost of a write whose event this many watches receive.
pub fn mutating(watches: usize, level_max: u64) -> WorkEstimate {
    let watches = u64::try_from(watches).unwrap_or(u64::MAX);
    if watches < WATCHES_PER_SEAT {
        return WorkEstimate::ONE_SEAT;
    }
    let wide = watches.div_ceil(WATCHES_PER_SEAT);
    // Spread the work over fewer seats for a longer time: wide requests block many seats while they wait for the rest.
    let final_seats = wide.min(cap(level_max, MAX_MUTATING_SEATS));
    let additional_latency = SeatSeconds::of(wide, EVENT_TIME).duration_on(final_seats);
    WorkEstimate { initial_seats: 1, final_seats, additional_latency }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seats(query: ListQuery<'_>, count: u64, average_bytes: u64, level_max: u64) -> u64 {
        list(&query, Some(ObjectStats { count, average_bytes }), level_max).max_seats()
    }

    #[test]
    fn list_cost_is_a_seat_per_100_kb_held_in_memory() {
        let plain = ListQuery::default();
        assert_eq!(seats(plain, 0, 0, 0), 1);
        assert_eq!(seats(plain, 100, 1000, 0), 1);
        assert_eq!(seats(plain, 101, 1000, 0), 2);
        assert_eq!(seats(plain, 1_000_000, 1000, 0), 10, "served from memory, a list is streamed");
        let page = ListQuery { limit: 500, ..plain };
        assert_eq!(seats(page, 1_000_000, 1000, 0), 5);
        let next = ListQuery { continue_token: "x", ..page };
        assert_eq!(seats(next, 1_000_000, 10_000, 0), 50, "a continued list is not streamed");
        assert_eq!(seats(next, 1_000_000, 10_000, 12), 12, "never more than the level allows");
        let exact = ListQuery { resource_version: "5", resource_version_match: "Exact", ..plain };
        assert_eq!(seats(exact, 1_000_000, 1000, 0), 100, "and never more than 100");
        let selected = ListQuery { has_selector: true, ..next };
        assert_eq!(seats(selected, 4000, 1000, 0), 20, "with a selector, half of everything is looked at");
        let one = ListQuery { names_one: true, ..plain };
        assert_eq!(seats(one, 1_000_000, 1000, 0), 1);
        assert_eq!(seats(plain, 3, 0, 0), 10, "objects of unknown size may be large");
        assert_eq!(list(&plain, None, 0), WorkEstimate::ONE_SEAT, "another server keeps the objects");
        assert_eq!(unreadable_list(7), WorkEstimate::seats(7));
        assert_eq!(unreadable_list(0), WorkEstimate::seats(100));
    }

    #[test]
    fn only_watches_with_initial_events_cost_as_much_as_a_list() {
        let watch = ListQuery { is_watch: true, ..ListQuery::default() };
        assert_eq!(seats(watch, 1000, 500, 0), 5);
        assert_eq!(seats(ListQuery { resource_version: "0", ..watch }, 1000, 500, 0), 5);
        let from = ListQuery { resource_version: "7", ..watch };
        assert_eq!(seats(from, 1000, 500, 0), 1);
        assert_eq!(seats(ListQuery { sends_initial_events: true, ..from }, 1000, 500, 0), 5);
    }

    #[test]
    fn a_write_occupies_seats_after_its_end_when_many_watch() {
        assert_eq!(mutating(9, 0), WorkEstimate::ONE_SEAT);
        let work = |final_seats, millis| WorkEstimate {
            initial_seats: 1,
            final_seats,
            additional_latency: Duration::from_millis(millis),
        };
        assert_eq!(mutating(10, 0), work(1, 5));
        assert_eq!(mutating(95, 0), work(10, 5));
        assert_eq!(mutating(200, 0), work(10, 10), "20 seats for 5 ms are 10 seats for 10 ms");
        assert_eq!(mutating(200, 4), work(4, 25));
    }
}
