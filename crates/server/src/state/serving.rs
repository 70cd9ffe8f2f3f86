//! Serving: the limits on requests, audit, health, and the threads for expensive requests.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::audit::Audit;
use crate::byte_budget::ByteBudget;
use crate::flow_control::{self, FlowControl};
use crate::health::Health;
use crate::heavy::HeavyLane;
use crate::seats::Seats;

/// The serving subsystem.
pub struct Serving {
    /// `--request-timeout`.
    pub request_timeout: Duration,
    /// API Priority and Fairness; without it, [`Serving::seats`] limits requests.
    pub(crate) flow_control: Option<(Arc<FlowControl>, flow_control::Informers)>,
    /// The in-flight limits.
    pub seats: Seats,
    /// Bounds the bytes of request bodies that are held in memory.
    pub body_budget: Arc<ByteBudget>,
    /// Bounds the bytes of responses that wait for their clients.
    pub answer_budget: Arc<ByteBudget>,
    /// The threads for requests that compute much.
    pub(crate) heavy: HeavyLane,
    /// One permit per mutating request in progress, also when its client has gone. Stopping the server waits for all of them.
    pub(crate) under_way: Arc<Semaphore>,
    pub audit: Option<Arc<Audit>>,
    pub health: Health,
}
