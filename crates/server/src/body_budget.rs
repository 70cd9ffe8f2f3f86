//! How many bytes of request bodies the server holds at once, in all and for one user.
//!
//! A body is charged while it arrives, for what has arrived and not for what its head declares, and until its request ends: what is
//! decoded from it is gone by then, too. A body that does not fit is refused at once (429) and does not wait: bodies that wait for
//! room hold what they already have, so that all of them could wait for each other.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::Status;
use authn::User;
use prometheus::{IntCounterVec, IntGauge, Opts, Registry};
use value::Str;

/// The bytes of all bodies.
const TOTAL: u64 = 256 << 20;
/// What every body is charged at least: its task, and what the connection buffers for it.
const MINIMUM: u64 = 16 << 10;
/// How much is reserved at a time.
const STEP: u64 = 64 << 10;

/// What may be held, and what is.
#[derive(Debug)]
pub struct BodyBudget {
    total: u64,
    held: Mutex<Held>,
    metrics: Option<BodyMetrics>,
}

#[derive(Debug, Default)]
struct Held {
    total: u64,
    /// By user name; users without a body have no entry.
    users: HashMap<Str, u64>,
}

/// Whom a part of the budget is reserved for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rank {
    Ordinary,
    /// The cluster's own components: `system:` users, service accounts only of `kube-system`.
    System,
    /// Members of `system:masters`.
    Master,
}

impl Rank {
    fn of(user: &User) -> Self {
        let account = user.name.strip_prefix("system:serviceaccount:");
        match user.name.as_str() {
            _ if user.is_in(authn::names::MASTERS) => Rank::Master,
            authn::names::ANONYMOUS => Rank::Ordinary,
            _ if account.is_some_and(|account| account.starts_with("kube-system:")) => Rank::System,
            name if account.is_none() && name.starts_with("system:") => Rank::System,
            _ => Rank::Ordinary,
        }
    }
}

/// Why a body does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exceeded {
    /// All users together hold too much.
    Total,
    /// The user holds more than its share while others need the rest.
    Share,
}

#[derive(Debug)]
struct BodyMetrics {
    held: IntGauge,
    refused: IntCounterVec,
}

impl BodyBudget {
    /// The budget of a server.
    pub fn new(registry: &Registry) -> Result<Arc<Self>, prometheus::Error> {
        let held = IntGauge::new(
            "apiserver_request_body_bytes",
            "Bytes of request bodies that the server holds, as charged to the budget for them.",
        )?;
        let refused = IntCounterVec::new(
            Opts::new(
                "apiserver_request_body_refused_total",
                "Number of request bodies that were not read to their end, by reason: total and share (of the budget for bodies), slow.",
            ),
            &["reason"],
        )?;
        registry.register(Box::new(held.clone()))?;
        registry.register(Box::new(refused.clone()))?;
        let metrics = Some(BodyMetrics { held, refused });
        Ok(Arc::new(BodyBudget { total: TOTAL, held: Mutex::default(), metrics }))
    }

    /// A charge for a body of `user`, of which nothing has arrived yet.
    pub fn open(self: &Arc<Self>, user: &User) -> Result<BodyCharge, Status> {
        let mut charge = BodyCharge {
            budget: Arc::clone(self),
            user: user.name.clone(),
            rank: Rank::of(user),
            reserved: 0,
        };
        charge.reserve(MINIMUM)?;
        Ok(charge)
    }

    /// Counts a body that arrived too slowly.
    pub fn count_slow(&self) {
        self.count("slow");
    }

    fn count(&self, reason: &str) {
        if let Some(metrics) = &self.metrics {
            metrics.refused.with_label_values(&[reason]).inc();
        }
    }

    /// What all users up to this rank may hold: the rest is reserved, so that users who fill their part do not lock out the
    /// cluster's components, nor those its administrators.
    fn ceiling(&self, rank: Rank) -> u64 {
        match rank {
            Rank::Ordinary => self.total / 8 * 7,
            Rank::System => self.total / 16 * 15,
            Rank::Master => self.total,
        }
    }

    /// Whether `more` bytes fit. A user is held to a quarter only while more than half of the budget is in use: one that is alone
    /// may have half.
    fn check(&self, held: &Held, charge: &BodyCharge, more: u64) -> Result<(), Exceeded> {
        let total = held.total.saturating_add(more);
        if total > self.ceiling(charge.rank) {
            return Err(Exceeded::Total);
        }
        let own = held.users.get(&charge.user).copied().unwrap_or(0).saturating_add(more);
        if charge.rank != Rank::Master && total > self.total / 2 && own > self.total / 4 {
            return Err(Exceeded::Share);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self, held: &Held) {
        if let Some(metrics) = &self.metrics {
            metrics.held.set(i64::try_from(held.total).unwrap_or(i64::MAX));
        }
    }
}

/// What one body is charged, given back when dropped.
#[derive(Debug)]
pub struct BodyCharge {
    budget: Arc<BodyBudget>,
    user: Str,
    rank: Rank,
    reserved: u64,
}

impl BodyCharge {
    /// Charges the body for `bytes` in all.
    pub fn grow_to(&mut self, bytes: u64) -> Result<(), Status> {
        if bytes <= self.reserved {
            return Ok(());
        }
        self.reserve(bytes.next_multiple_of(STEP) - self.reserved)
    }

    fn reserve(&mut self, more: u64) -> Result<(), Status> {
        let mut held = self.budget.lock();
        if let Err(exceeded) = self.budget.check(&held, self, more) {
            drop(held);
            let (reason, message) = match exceeded {
                Exceeded::Total => {
                    ("total", "the server holds too many request bodies, please try again later")
                }
                Exceeded::Share => ("share", "too many request bodies of this user, please try again later"),
            };
            self.budget.count(reason);
            return Err(Status::too_many_requests(message, 1));
        }
        held.total = held.total.saturating_add(more);
        match held.users.get_mut(&self.user) {
            Some(own) => *own = own.saturating_add(more),
            None => drop(held.users.insert(self.user.clone(), more)),
        }
        self.budget.show(&held);
        self.reserved = self.reserved.saturating_add(more);
        Ok(())
    }
}

impl Drop for BodyCharge {
    fn drop(&mut self) {
        let mut held = self.budget.lock();
        held.total = held.total.saturating_sub(self.reserved);
        let left = held.users.get_mut(&self.user).map_or(0, |own| {
            *own = own.saturating_sub(self.reserved);
            *own
        });
        if left == 0 {
            held.users.remove(&self.user);
        }
        self.budget.show(&held);
    }
}

#[cfg(test)]
mod tests;
