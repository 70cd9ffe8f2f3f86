//! How many bytes the server holds at once for its clients, in all and for one account: request bodies, and answers that their
//! clients have not read.
//!
//! A body is charged while it arrives, for what has arrived and not for what its head declares, and until its request ends: what is
//! decoded from it is gone by then, too. An answer is charged until its last byte has been handed to the socket. What does not fit is
//! refused at once (429) and does not wait: bodies that wait for room hold what they already have, so that all of them could wait for
//! each other.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::Status;
use authn::User;
use authn::names::SERVICE_ACCOUNT_PREFIX;
use prometheus::{IntCounterVec, IntGauge, Opts};
use tracing::warn;
use value::Str;

use crate::connections::{ClientAddress, LogLimit};
use crate::metrics::MetricRegistry;

/// The bytes of each budget.
const TOTAL: u64 = 256 << 20;
/// What every body is charged at least: its task, and what the connection buffers for it.
const MINIMUM: u64 = 16 << 10;
/// How much is reserved at a time.
const STEP: u64 = 64 << 10;

/// What may be held, and what is.
#[derive(Debug)]
pub struct ByteBudget {
    total: u64,
    what: &'static str,
    /// As in `held`, to be read without the lock.
    in_use: AtomicU64,
    held: Mutex<Held>,
    metrics: Option<BudgetMetrics>,
    log: LogLimit,
}

#[derive(Debug, Default)]
struct Held {
    total: u64,
    /// By owner; owners that hold nothing have no entry.
    owners: HashMap<Str, u64>,
}

/// Whose bytes they are: a user's, those of all service accounts of a namespace, or an address's if its users are anonymous.
#[derive(Clone, Debug)]
pub struct Account {
    owner: Str,
    rank: Rank,
}

impl Account {
    /// The account of a user at an address.
    pub fn of(user: &User, peer: IpAddr) -> Self {
        let rank = Rank::of(user);
        let namespace =
            user.name.strip_prefix(SERVICE_ACCOUNT_PREFIX).and_then(|account| account.split_once(':'));
        let owner = match namespace {
            _ if rank == Rank::Anonymous => format!("{} at {}", user.name, ClientAddress::of(peer)).into(),
            // Whoever may create service accounts in a namespace has as many as they like.
            Some((namespace, _)) if rank == Rank::Ordinary => {
                format!("{SERVICE_ACCOUNT_PREFIX}{namespace}").into()
            }
            _ => user.name.clone(),
        };
        Account { owner, rank }
    }
}

impl Account {
    /// The name under which it is known.
    pub fn owner(&self) -> &Str {
        &self.owner
    }
}

/// Whom a part of the budget is reserved for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rank {
    /// Whoever did not say who they are: there may be any number of them.
    Anonymous,
    Ordinary,
    /// The cluster's own components: `system:` users, service accounts only of `kube-system`.
    System,
    /// Members of `system:masters`.
    Master,
}

impl Rank {
    fn of(user: &User) -> Self {
        let account = user.name.strip_prefix(SERVICE_ACCOUNT_PREFIX);
        match user.name.as_str() {
            _ if user.is_in(authn::names::MASTERS) => Rank::Master,
            authn::names::ANONYMOUS => Rank::Anonymous,
            _ if account.is_some_and(|account| account.starts_with("kube-system:")) => Rank::System,
            name if account.is_none() && name.starts_with("system:") => Rank::System,
            _ => Rank::Ordinary,
        }
    }
}

/// Why some bytes do not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exceeded {
    /// All accounts together hold too much.
    Total,
    /// The account holds more than its share while others need the rest.
    Share,
}

#[derive(Debug)]
struct BudgetMetrics {
    held: IntGauge,
    refused: IntCounterVec,
}

impl BudgetMetrics {
    fn register(registry: &MetricRegistry, held: IntGauge, refused: Opts) -> Result<Self, prometheus::Error> {
        let refused = IntCounterVec::new(refused, &["reason"])?;
        registry.register(Box::new(held.clone()))?;
        registry.register(Box::new(refused.clone()))?;
        Ok(BudgetMetrics { held, refused })
    }
}

impl ByteBudget {
    /// The budget for request bodies.
    pub fn for_bodies(registry: &MetricRegistry) -> Result<Arc<Self>, prometheus::Error> {
        let held = IntGauge::new(
            "apiserver_request_body_bytes",
            "Bytes of request bodies that the server holds, as charged to the budget for them.",
        )?;
        let refused = Opts::new(
            "apiserver_request_body_refused_total",
            "Number of request bodies that were not read to their end, by reason: total and share (of the budget for bodies), slow.",
        );
        Ok(Self::with("request bodies", BudgetMetrics::register(registry, held, refused)?))
    }

    /// The budget for answers.
    pub fn for_answers(registry: &MetricRegistry) -> Result<Arc<Self>, prometheus::Error> {
        let held = IntGauge::new(
            "apiserver_unsent_response_bytes",
            "Bytes of answers that clients have not read yet, as charged to the budget for them.",
        )?;
        let refused = Opts::new(
            "apiserver_unsent_response_refused_total",
            "Number of times that the budget for unread answers was exceeded, by reason: total, share.",
        );
        Ok(Self::with("unread answers", BudgetMetrics::register(registry, held, refused)?))
    }

    fn with(what: &'static str, metrics: BudgetMetrics) -> Arc<Self> {
        let metrics = Some(metrics);
        let (in_use, held, log) = (AtomicU64::new(0), Mutex::default(), LogLimit::default());
        Arc::new(ByteBudget { total: TOTAL, what, in_use, held, metrics, log })
    }

    /// A charge for a body, of which nothing has arrived yet.
    pub fn open(self: &Arc<Self>, account: Account) -> Result<ByteCharge, Status> {
        self.charge(account, MINIMUM)
    }

    /// A charge for some bytes.
    pub fn charge(self: &Arc<Self>, account: Account, bytes: u64) -> Result<ByteCharge, Status> {
        let mut charge = ByteCharge { budget: Arc::clone(self), account, reserved: 0 };
        charge.reserve(bytes)?;
        Ok(charge)
    }

    /// A charge for bytes that are there whether they fit or not.
    pub fn charge_anyway(self: &Arc<Self>, account: Account, bytes: u64) -> ByteCharge {
        let mut charge = ByteCharge { budget: Arc::clone(self), account, reserved: 0 };
        let mut held = self.lock();
        charge.take(&mut held, bytes);
        drop(held);
        charge
    }

    /// Refuses an account that has no room for anything.
    pub fn check_room(&self, account: &Account) -> Result<(), Status> {
        // Below half of the budget everybody has room.
        if self.in_use.load(Ordering::Relaxed) < self.total / 2 {
            return Ok(());
        }
        let exceeded = self.check(&self.lock(), account, 1);
        exceeded.map_err(|exceeded| self.refuse(account, exceeded))
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

    /// What all accounts up to this rank may hold: the rest is reserved, so that users who fill their part do not lock out the
    /// cluster's components, nor those its administrators.
    fn ceiling(&self, rank: Rank) -> u64 {
        match rank {
            Rank::Anonymous => self.total / 8 * 5,
            Rank::Ordinary => self.total / 8 * 7,
            Rank::System => self.total / 16 * 15,
            Rank::Master => self.total,
        }
    }

    /// Whether `more` bytes fit. An account is held to a quarter only while more than half of the budget is in use: one that is
    /// alone may have half.
    fn check(&self, held: &Held, account: &Account, more: u64) -> Result<(), Exceeded> {
        let total = held.total.saturating_add(more);
        if total > self.ceiling(account.rank) {
            return Err(Exceeded::Total);
        }
        let own = held.owners.get(&account.owner).copied().unwrap_or(0).saturating_add(more);
        if account.rank != Rank::Master && total > self.total / 2 && own > self.total / 4 {
            return Err(Exceeded::Share);
        }
        Ok(())
    }

    fn refuse(&self, account: &Account, exceeded: Exceeded) -> Status {
        let what = self.what;
        let (reason, message) = match exceeded {
            Exceeded::Total => ("total", format!("the server holds too many {what}, please try again later")),
            Exceeded::Share => ("share", format!("too many {what} of this user, please try again later")),
        };
        self.count(reason);
        if let Some(unlogged) = self.log.due() {
            let owner = account.owner.as_str();
            warn!(
                what,
                reason,
                ?owner,
                unlogged,
                "the budget for bytes held for clients is exceeded: requests are refused"
            );
        }
        Status::too_many_requests(message, 1)
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self, held: &Held) {
        self.in_use.store(held.total, Ordering::Relaxed);
        if let Some(metrics) = &self.metrics {
            metrics.held.set(i64::try_from(held.total).unwrap_or(i64::MAX));
        }
    }
}

/// What is charged for one body or answer, given back when dropped.
#[derive(Debug)]
pub struct ByteCharge {
    budget: Arc<ByteBudget>,
    account: Account,
    reserved: u64,
}

impl ByteCharge {
    /// Charges for `bytes` in all, in steps.
    pub fn grow_to(&mut self, bytes: u64) -> Result<(), Status> {
        if bytes <= self.reserved {
            return Ok(());
        }
        self.reserve(bytes.next_multiple_of(STEP) - self.reserved)
    }

    fn reserve(&mut self, more: u64) -> Result<(), Status> {
        let budget = Arc::clone(&self.budget);
        let mut held = budget.lock();
        if let Err(exceeded) = budget.check(&held, &self.account, more) {
            drop(held);
            return Err(budget.refuse(&self.account, exceeded));
        }
        self.take(&mut held, more);
        Ok(())
    }

    fn take(&mut self, held: &mut Held, more: u64) {
        held.total = held.total.saturating_add(more);
        match held.owners.get_mut(&self.account.owner) {
            Some(own) => *own = own.saturating_add(more),
            None => drop(held.owners.insert(self.account.owner.clone(), more)),
        }
        self.budget.show(held);
        self.reserved = self.reserved.saturating_add(more);
    }
}

impl Drop for ByteCharge {
    fn drop(&mut self) {
        let mut held = self.budget.lock();
        held.total = held.total.saturating_sub(self.reserved);
        let left = held.owners.get_mut(&self.account.owner).map_or(0, |own| {
            *own = own.saturating_sub(self.reserved);
            *own
        });
        if left == 0 {
            held.owners.remove(&self.account.owner);
        }
        self.budget.show(&held);
    }
}

#[cfg(test)]
mod tests;
