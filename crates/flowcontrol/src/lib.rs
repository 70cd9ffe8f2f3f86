//! API Priority and Fairness: decides which requests run now, which wait, and which are rejected.
//!
//! FlowSchemas classify requests into flows and assign each to a priority level; a level has a number of seats and queues its requests
//! fairly by flow. The crate only decides: objects come in as [`value::Value`], time is passed in as a
//! [`Duration`](std::time::Duration) since a moment of the caller's choice, and the caller implements the waiting.
//!
//! ```
//! use std::time::Duration;
//! use flowcontrol::{ArrivalDecision, PriorityLevelController, RequestArrival, RequestDigest, RequestTicket, WorkEstimate};
//!
//! struct Waiter;
//! impl RequestTicket for Waiter {
//!     fn dispatched(&mut self) { /* wake the request */ }
//! }
//!
//! // 600 seats, and the mandatory objects alone.
//! let now = Duration::ZERO;
//! let mut controller: PriorityLevelController<Waiter> = PriorityLevelController::new(600, now);
//! let classifier = controller.configure(now, Vec::new(), Vec::<flowcontrol::FlowSchema>::new()).classifier;
//!
//! let user = authn::User::named("alice").in_groups(["system:authenticated"]);
//! let attributes = RequestDigest {
//!     user: &user, is_resource: true, verb: "get", group: "", resource: "pods", subresource: "", namespace: "default", path: "",
//! };
//! let class = classifier.classify(&attributes);
//! assert_eq!(class.schema.name, "catch-all");
//! let (distinguisher, hash) = class.flow_of(&attributes);
//! let arrival = RequestArrival {
//!     flow: class.flow, distinguisher: distinguisher.into(), hash, work: WorkEstimate::ONE_SEAT,
//!     interested_watches: None, is_watch: false, is_resumed: false, ticket: Waiter,
//! };
//! let ArrivalDecision::Executing(id) = class.level.queues().start(now, arrival) else { panic!() };
//! class.level.queues().finish(now + Duration::from_millis(2), id);
//! ```
//!
//! [`PriorityLevelController::adjust`] moves seats between levels that lend and borrow; [`bootstrap`] has the objects that
//! every server maintains; [`dump`] renders the tables for `/debug/api_priority_and_fairness/`.

pub mod allocation;
pub mod bootstrap;
mod controller;
mod dealer;
mod demand;
pub mod dump;
pub mod estimate;
mod fast_path;
mod flow_cache;
mod flow_stats;
mod level;
mod objects;
mod queueset;
mod retry;
mod seat_seconds;
mod shard;
mod statistics;
mod watches;

pub use controller::{AppliedConfiguration, PriorityLevelController, StatusUpdate};
pub use dealer::{Dealer, Hand};
pub use demand::{ADJUSTMENT_PERIOD, LevelLimits};
pub use estimate::WorkEstimate;
pub use flow_stats::{DispatchBounds, FlowStats, LevelGauges, RejectReason, RequestPhase, Traffic};
pub use level::{ActiveLevel, FastSeat, LevelReading, LockedQueueSet, RequestClass, RequestClassifier};
pub use objects::{
    CATCH_ALL, DanglingCondition, Distinguisher, EXEMPT, FlowSchema, PriorityLevel, RequestDigest,
};
pub use queueset::{
    ArrivalDecision, Ended, LevelLoad, QueueSet, QueueView, Queuing, RequestArrival, RequestId,
    RequestTicket, RequestTotals, TrackedRequest, Withdrawn,
};
pub use retry::RetryAfter;
pub use seat_seconds::SeatSeconds;
pub use shard::{PerShard, PresentRequest, PresentRequests};
pub use statistics::{Histogram, RatioGauge};
pub use watches::{WatchIdentifier, WatchTracker};
