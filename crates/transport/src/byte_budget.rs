//! Limits the bytes held for clients at once, in total and per account: request bodies, and responses that
//! clients have not read.
//!
//! A body is charged as it arrives, for the bytes received and not for the declared length, until its request
//! ends; what is decoded from it is freed by then too. A response is charged until its last byte is handed to
//! the socket. Bytes that do not fit are refused at once (429) instead of waiting: waiting bodies would hold
//! what they already have, and all of them could wait for each other.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::Status;
use authn::User;
use authn::names::SERVICE_ACCOUNT_PREFIX;
use prometheus::{IntCounterVec, IntGauge};
use runtime::MetricRegistry;
use tracing::warn;
use value::Str;

use crate::connections::{ClientAddress, LogLimit};

/// Size of each budget in bytes.
const TOTAL: u64 = 256 << 20;
/// Minimum charge of a body, for its task and the connection's buffers.
const MINIMUM: u64 = 16 << 10;
/// Granularity of later charges, in bytes.
const STEP: u64 = 64 << 10;

/// A budget of bytes and its current use.
#[derive(Debug)]
pub struct ByteBudget {
    total: u64,
    what: &'static str,
    /// Copy of `held.total` that can be read without the lock.
    in_use: AtomicU64,
    held: Mutex<ChargedBytes>,
    metrics: Option<BudgetMetrics>,
    log: LogLimit,
}

#[derive(Debug, Default)]
struct ChargedBytes {
    total: u64,
    /// Charged bytes by owner; owners without any have no entry.
    owners: HashMap<Str, u64>,
}

/// The owner that bytes are charged to: a user, all service accounts of one namespace, or the client address
/// of anonymous users.
#[derive(Clone, Debug)]
pub struct Account {
    owner: Str,
    rank: Rank,
}

impl Account {
    pub fn of(user: &User, peer: IpAddr) -> Self {
        let rank = Rank::of(user);
        let namespace =
            user.name.strip_prefix(SERVICE_ACCOUNT_PREFIX).and_then(|account| account.split_once(':'));
        let owner = match namespace {
            _ if rank == Rank::Anonymous => format!("{} at {}", user.name, ClientAddress::of(peer)).into(),
            // Service accounts share one account per namespace, since users who can create them can create
            // any number.
            Some((namespace, _)) if rank == Rank::Ordinary => {
                format!("{SERVICE_ACCOUNT_PREFIX}{namespace}").into()
            }
            _ => user.name.clone(),
        };
        Account { owner, rank }
    }
}

impl Account {
    /// Key of the account in the budget.
    pub fn owner(&self) -> &Str {
        &self.owner
    }
}

/// Priority of an account: higher ranks have part of the budget reserved for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rank {
    /// Unauthenticated clients; their number is not limited.
    Anonymous,
    Ordinary,
    /// Cluster components: `system:` users, but of the service accounts only those in `kube-system`.
    System,
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

/// The limit that a charge would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exceeded {
    /// The total that accounts of this rank may use.
    Total,
    /// The account's own share, while more than half of the budget is in use.
    Share,
}

#[derive(Debug)]
struct BudgetMetrics {
    held: IntGauge,
    refused: IntCounterVec,
}

impl ByteBudget {
    pub fn for_bodies(registry: &MetricRegistry) -> Result<Arc<Self>, prometheus::Error> {
        let held = registry.gauge(
            "apiserver_request_body_bytes",
            "Bytes of request bodies that the server holds, as charged to the budget for them.",
        )?;
        let refused = registry.counter_vec(
            "apiserver_request_body_refused_total",
            "Number of request bodies that were not read to their end, by reason: total and share (of the budget for bodies), slow.",
            &["reason"],
        )?;
        Ok(Self::with("request bodies", BudgetMetrics { held, refused }))
    }

    pub fn for_answers(registry: &MetricRegistry) -> Result<Arc<Self>, prometheus::Error> {
        let held = registry.gauge(
            "apiserver_unsent_response_bytes",
            "Bytes of answers that clients have not read yet, as charged to the budget for them.",
        )?;
        let refused = registry.counter_vec(
            "apiserver_unsent_response_refused_total",
            "Number of times that the budget for unread answers was exceeded, by reason: total, share.",
            &["reason"],
        )?;
        Ok(Self::with("unread answers", BudgetMetrics { held, refused }))
    }

    fn with(what: &'static str, metrics: BudgetMetrics) -> Arc<Self> {
        let metrics = Some(metrics);
        let (in_use, held, log) = (AtomicU64::new(0), Mutex::default(), LogLimit::default());
        Arc::new(ByteBudget { total: TOTAL, what, in_use, held, metrics, log })
    }

    /// Opens the charge of a body that has not arrived yet; refuses with 429 if it does not fit.
    pub fn open(self: &Arc<Self>, account: Account) -> Result<ByteCharge, Status> {
        self.charge(account, MINIMUM)
    }

    /// Charges `bytes`, or refuses with 429 if they do not fit.
    pub fn charge(self: &Arc<Self>, account: Account, bytes: u64) -> Result<ByteCharge, Status> {
        let mut charge = ByteCharge { budget: Arc::clone(self), account, reserved: 0 };
        charge.reserve(bytes)?;
        Ok(charge)
    }

    /// Charges bytes that are already in memory, even beyond the limit.
    pub fn charge_anyway(self: &Arc<Self>, account: Account, bytes: u64) -> ByteCharge {
        let mut charge = ByteCharge { budget: Arc::clone(self), account, reserved: 0 };
        let mut held = self.lock();
        charge.take(&mut held, bytes);
        drop(held);
        charge
    }

    /// Refuses with 429 an account that has no room for a single byte.
    pub fn check_room(&self, account: &Account) -> Result<(), Status> {
        // No account is limited below half of the budget.
        if self.in_use.load(Ordering::Relaxed) < self.total / 2 {
            return Ok(());
        }
        let exceeded = self.check(&self.lock(), account, 1);
        exceeded.map_err(|exceeded| self.refuse(account, exceeded))
    }

    pub fn count_slow(&self) {
        self.count("slow");
    }

    fn count(&self, reason: &str) {
        if let Some(metrics) = &self.metrics {
            metrics.refused.with_label_values(&[reason]).inc();
        }
    }

    /// The total that accounts of this rank may fill. The rest is reserved for higher ranks, so that users
    /// cannot lock out cluster components, nor components the administrators.
    fn ceiling(&self, rank: Rank) -> u64 {
        match rank {
            Rank::Anonymous => self.total / 8 * 5,
            Rank::Ordinary => self.total / 8 * 7,
            Rank::System => self.total / 16 * 15,
            Rank::Master => self.total,
        }
    }

    /// Checks that `more` bytes fit. An account is limited to a quarter only while more than half of the
    /// budget is in use, so a single account may use half.
    fn check(&self, held: &ChargedBytes, account: &Account, more: u64) -> Result<(), Exceeded> {
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
                "requests are refused, because the budget for bytes held for clients is exceeded"
            );
        }
        Status::too_many_requests(message, 1)
    }

    fn lock(&self) -> MutexGuard<'_, ChargedBytes> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self, held: &ChargedBytes) {
        self.in_use.store(held.total, Ordering::Relaxed);
        if let Some(metrics) = &self.metrics {
            metrics.held.set(i64::try_from(held.total).unwrap_or(i64::MAX));
        }
    }
}

/// The bytes charged for one body or response; released on drop.
#[derive(Debug)]
pub struct ByteCharge {
    budget: Arc<ByteBudget>,
    account: Account,
    reserved: u64,
}

impl ByteCharge {
    /// Raises the charge to at least `bytes` in total, in multiples of `STEP`.
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

    fn take(&mut self, held: &mut ChargedBytes, more: u64) {
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
