//! Limits the bytes held for clients at once, in total and per account: request bodies, the objects that are decoded from them or for them,
//! and responses that clients have not read.
//!
//! A body is charged as it arrives, for the bytes received and not for the declared length, until its request ends. Before it is read, it
//! is charged for the bytes that the buffers of its connection can hold
//! ([`Discarding::charge_buffers`](crate::discard::Discarding::charge_buffers)). A response is charged until its last byte is handed to the
//! socket. Bytes that do not fit are refused at once (429) instead of waiting: waiting bodies would hold the bytes that have arrived, and
//! all of them could wait for each other.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::{Status, bootstrap_token};
use authn::User;
use authn::names::SERVICE_ACCOUNT_PREFIX;
use prometheus::{IntCounterVec, IntGauge};
use runtime::{LogLimit, MetricRegistry};
use tracing::warn;
use value::Str;

use crate::connections::ClientAddress;

/// Size in bytes of the budgets for bodies and for answers.
const TOTAL: u64 = 256 << 20;
/// Size in bytes of the budget for decoded objects. Half of it, the share of a user alone, has room for every object that fits into a body.
const TOTAL_OF_OBJECTS: u64 = 768 << 20;
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
    /// Part of `total` of [`Rank::Anonymous`].
    anonymous: u64,
    /// Part of `total` of [`Rank::ServiceAccount`].
    service_accounts: u64,
    /// Charged bytes by owner; owners without any have no entry.
    owners: HashMap<Str, u64>,
}

impl ChargedBytes {
    /// The bytes of all accounts of a rank, where they are limited together.
    fn of_rank(&mut self, rank: Rank) -> Option<&mut u64> {
        match rank {
            Rank::Anonymous => Some(&mut self.anonymous),
            Rank::ServiceAccount => Some(&mut self.service_accounts),
            Rank::Ordinary | Rank::System | Rank::Master => None,
        }
    }
}

/// The owner that bytes are charged to: a user, all service accounts of one namespace, or the client address
/// of anonymous users.
#[derive(Clone, Debug)]
pub struct BudgetAccount {
    owner: Str,
    rank: Rank,
}

impl BudgetAccount {
    pub fn of(user: &User, peer: IpAddr) -> Self {
        let rank = Rank::of(user);
        let namespace =
            user.name.strip_prefix(SERVICE_ACCOUNT_PREFIX).and_then(|account| account.split_once(':'));
        let owner = match namespace {
            _ if rank == Rank::Anonymous => format!("{} at {}", user.name, ClientAddress::of(peer)).into(),
            // Service accounts share one account per namespace, since users who can create them can create
            // any number.
            Some((namespace, _)) if rank == Rank::ServiceAccount => {
                format!("{SERVICE_ACCOUNT_PREFIX}{namespace}").into()
            }
            _ => user.name.clone(),
        };
        BudgetAccount { owner, rank }
    }
}

impl BudgetAccount {
    /// Key of the account in the budget.
    pub fn owner(&self) -> &Str {
        &self.owner
    }

    /// The class of accounts with which it is limited together; `None` if it is limited on its own.
    pub fn class(&self) -> Option<&'static str> {
        match self.rank {
            Rank::Anonymous => Some("anonymous clients"),
            Rank::ServiceAccount => Some("service accounts"),
            Rank::Ordinary | Rank::System | Rank::Master => None,
        }
    }

    /// The number of long-running requests of this account that are ended only after those of other accounts: all of them for
    /// administrators and cluster components, as many as a kubelet needs for nodes, none for others.
    pub(crate) fn spared_requests(&self) -> SparedRequests {
        match self.rank {
            Rank::System if self.owner.starts_with(authn::names::NODE_PREFIX) => SparedRequests::NODE,
            Rank::System | Rank::Master => SparedRequests::ALL,
            Rank::Anonymous | Rank::ServiceAccount | Rank::Ordinary => SparedRequests::NONE,
        }
    }
}

/// The number of long-running requests, and of connections that have some, up to which an account is spared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SparedRequests {
    pub(crate) requests: usize,
    pub(crate) connections: usize,
}

impl SparedRequests {
    const NONE: SparedRequests = SparedRequests { requests: 0, connections: 0 };
    const ALL: SparedRequests = SparedRequests { requests: usize::MAX, connections: usize::MAX };
    /// A kubelet watches each ConfigMap and Secret of its pods by itself, up to some hundreds, on few connections. A node is as safe as its
    /// disk, so one with more is not spared.
    const NODE: SparedRequests = SparedRequests { requests: 2048, connections: 16 };
}

/// Priority of an account: higher ranks have part of the budget reserved for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rank {
    /// Unauthenticated clients; their number is not limited.
    Anonymous,
    /// Service accounts outside `kube-system`. Who can create namespaces can create any number of them.
    ServiceAccount,
    Ordinary,
    /// Cluster components: `system:` users without those of bootstrap tokens, and of the service accounts only those in `kube-system`.
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
            _ if account.is_some() => Rank::ServiceAccount,
            // Tokens of these users are handed to machines that are to join the cluster.
            name if name.starts_with(bootstrap_token::USER_PREFIX) => Rank::Ordinary,
            name if name.starts_with("system:") => Rank::System,
            _ => Rank::Ordinary,
        }
    }
}

/// The limit that a charge would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exceeded {
    /// The total that accounts of this rank may use.
    Total,
    /// The account's own share of what is left.
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
        Ok(Self::with("request bodies", TOTAL, BudgetMetrics { held, refused }))
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
        Ok(Self::with("unread answers", TOTAL, BudgetMetrics { held, refused }))
    }

    pub fn for_objects(registry: &MetricRegistry) -> Result<Arc<Self>, prometheus::Error> {
        let held = registry.gauge(
            "portcullis_decoded_object_bytes",
            "Estimated memory in bytes of the large decoded objects of requests, as charged to the budget for them.",
        )?;
        let refused = registry.counter_vec(
            "portcullis_decoded_object_refused_total",
            "Number of requests that were refused because of the budget for decoded objects, by reason: total, share.",
            &["reason"],
        )?;
        Ok(Self::with("decoded objects", TOTAL_OF_OBJECTS, BudgetMetrics { held, refused }))
    }

    fn with(what: &'static str, total: u64, metrics: BudgetMetrics) -> Arc<Self> {
        let metrics = Some(metrics);
        let (in_use, held, log) = (AtomicU64::new(0), Mutex::default(), LogLimit::default());
        Arc::new(ByteBudget { total, what, in_use, held, metrics, log })
    }

    /// Opens the charge of a body that has not arrived yet; refuses with 429 if it does not fit.
    pub fn open(self: &Arc<Self>, account: BudgetAccount) -> Result<ByteCharge, Status> {
        self.charge(account, MINIMUM)
    }

    /// Charges `bytes`, or refuses with 429 if they do not fit.
    pub fn charge(self: &Arc<Self>, account: BudgetAccount, bytes: u64) -> Result<ByteCharge, Status> {
        let mut charge = ByteCharge { budget: Arc::clone(self), account, reserved: 0 };
        charge.reserve(bytes)?;
        Ok(charge)
    }

    /// Charges bytes that are already in memory, even beyond the limit.
    pub fn charge_anyway(self: &Arc<Self>, account: BudgetAccount, bytes: u64) -> ByteCharge {
        let mut charge = ByteCharge { budget: Arc::clone(self), account, reserved: 0 };
        let mut held = self.lock();
        charge.take(&mut held, bytes);
        drop(held);
        charge
    }

    /// Refuses with 429 an account that has no room for a single byte.
    pub fn check_room(&self, account: &BudgetAccount) -> Result<(), Status> {
        // No account is limited below a quarter of the budget, as `check` computes it for the lowest rank.
        if self.in_use.load(Ordering::Relaxed) < self.total / 4 {
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

    /// The bytes that accounts of this rank may still charge. The rest is reserved for higher ranks, so that users cannot lock out cluster
    /// components, nor components the administrators. What all service accounts hold together, also with anonymous clients, leaves room for
    /// users, because one user may control any number of them.
    fn room(&self, held: &ChargedBytes, rank: Rank) -> u64 {
        let below = |ceiling: u64, in_use: u64| ceiling.saturating_sub(in_use);
        let (total, accounts) = (self.total, held.service_accounts);
        match rank {
            Rank::Anonymous => below(total / 8 * 5, held.total),
            Rank::ServiceAccount => below(total / 8 * 7, held.total)
                .min(below(total / 8 * 5, accounts))
                .min(below(total / 8 * 6, accounts.saturating_add(held.anonymous))),
            Rank::Ordinary => below(total / 8 * 7, held.total),
            Rank::System => below(total / 16 * 15, held.total),
            Rank::Master => below(total, held.total),
        }
    }

    /// Checks that `more` bytes fit. An account may hold up to 4/3 of the bytes that are then left for its rank, so each account that comes
    /// later finds room: a user alone gets half of the budget, the next one 4/7 of the rest, and so on. Administrators have no such share.
    fn check(&self, held: &ChargedBytes, account: &BudgetAccount, more: u64) -> Result<(), Exceeded> {
        let room = self.room(held, account.rank);
        if more > room {
            return Err(Exceeded::Total);
        }
        let own = held.owners.get(&account.owner).copied().unwrap_or(0).saturating_add(more);
        let left = room.saturating_sub(more);
        if account.rank != Rank::Master && own.saturating_mul(3) > left.saturating_mul(4) {
            return Err(Exceeded::Share);
        }
        Ok(())
    }

    fn refuse(&self, account: &BudgetAccount, exceeded: Exceeded) -> Status {
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
    account: BudgetAccount,
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

    /// Lowers the charge to `bytes` in total.
    pub fn shrink_to(&mut self, bytes: u64) {
        if self.reserved > bytes {
            self.release(self.reserved - bytes);
        }
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
        if let Some(of_rank) = held.of_rank(self.account.rank) {
            *of_rank = of_rank.saturating_add(more);
        }
        match held.owners.get_mut(&self.account.owner) {
            Some(own) => *own = own.saturating_add(more),
            None => drop(held.owners.insert(self.account.owner.clone(), more)),
        }
        self.budget.show(held);
        self.reserved = self.reserved.saturating_add(more);
    }

    fn release(&mut self, bytes: u64) {
        let mut held = self.budget.lock();
        held.total = held.total.saturating_sub(bytes);
        if let Some(of_rank) = held.of_rank(self.account.rank) {
            *of_rank = of_rank.saturating_sub(bytes);
        }
        let left = held.owners.get_mut(&self.account.owner).map_or(0, |own| {
            *own = own.saturating_sub(bytes);
            *own
        });
        if left == 0 {
            held.owners.remove(&self.account.owner);
        }
        self.budget.show(&held);
        drop(held);
        self.reserved = self.reserved.saturating_sub(bytes);
    }
}

impl Drop for ByteCharge {
    fn drop(&mut self) {
        self.release(self.reserved);
    }
}

#[cfg(test)]
mod tests;
