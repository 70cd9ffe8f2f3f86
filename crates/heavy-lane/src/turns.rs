//! Limits how many requests of one account, and of one class of accounts, run in the heavy lane at once.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use value::Str;

/// Requests of one account that may run in the lane at once. Its other requests wait outside, so that a
/// request of another account has only few before it.
pub(super) const TURNS: usize = 2;

/// Requests of one class that may run in a lane with this number of threads at once: as much of the lane as service accounts may have of
/// the byte budgets, but those of at least two accounts.
pub(super) fn class_turns(threads: usize) -> usize {
    (threads / 8 * 5).max(2 * TURNS)
}

/// The account whose turns a request uses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LaneAccount {
    pub owner: Str,
    /// The class of accounts that have turns together, because one client may control any number of them. `None` for an account of its own.
    pub class: Option<&'static str>,
}

/// The turns of each account and class that has requests in the lane or waiting for it.
#[derive(Debug)]
pub(super) struct AccountTurns {
    /// Turns of each class.
    of_class: usize,
    queues: Mutex<HashMap<TurnOwner, TurnQueue>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum TurnOwner {
    Account(LaneAccount),
    Class(&'static str),
}

/// The turns of one account or class, and the requests that wait for one.
#[derive(Debug, Default)]
struct TurnQueue {
    used: usize,
    /// Requests that have run before. They come first, because they may hold locks that requests of other accounts wait for.
    returning: VecDeque<oneshot::Sender<HeldTurn>>,
    entering: VecDeque<oneshot::Sender<HeldTurn>>,
}

/// The queue in which a request waits for a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TurnOrder {
    Entering,
    Returning,
}

impl AccountTurns {
    pub(super) fn new(of_class: usize) -> Self {
        AccountTurns { of_class, queues: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TurnOwner, TurnQueue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn is_unused(&self) -> bool {
        self.lock().is_empty()
    }

    /// Waits until the account, and then its class, may run one more request in the lane. So few requests of each account wait for the
    /// class, and its accounts get their turns one after the other.
    pub(super) async fn take(self: &Arc<Self>, account: &LaneAccount, order: TurnOrder) -> AccountTurn {
        let own = self.take_of(TurnOwner::Account(account.clone()), TURNS, order).await;
        let of_class = match account.class {
            Some(class) => Some(self.take_of(TurnOwner::Class(class), self.of_class, order).await),
            None => None,
        };
        AccountTurn { _of_class: of_class, _own: own }
    }

    async fn take_of(self: &Arc<Self>, owner: TurnOwner, most: usize, order: TurnOrder) -> HeldTurn {
        loop {
            let waiting = {
                let mut queues = self.lock();
                let queue = queues.entry(owner.clone()).or_default();
                if queue.used < most {
                    queue.used += 1;
                    return HeldTurn::new(self, owner);
                }
                let (turn, waiting) = oneshot::channel();
                match order {
                    TurnOrder::Entering => queue.entering.push_back(turn),
                    TurnOrder::Returning => queue.returning.push_back(turn),
                }
                waiting
            };
            // Without a turn, the queue was removed, so that one is free.
            if let Ok(turn) = waiting.await {
                return turn;
            }
        }
    }
}

/// A turn of an account and of its class. Its drop admits their next requests.
#[derive(Debug)]
pub(super) struct AccountTurn {
    _of_class: Option<HeldTurn>,
    _own: HeldTurn,
}

/// A turn of an account or class. Its drop admits the owner's next request.
#[derive(Debug)]
struct HeldTurn {
    /// `None` once it is given up.
    held: Option<(Arc<AccountTurns>, TurnOwner)>,
}

impl HeldTurn {
    fn new(turns: &Arc<AccountTurns>, owner: TurnOwner) -> Self {
        HeldTurn { held: Some((Arc::clone(turns), owner)) }
    }
}

impl Drop for HeldTurn {
    fn drop(&mut self) {
        let Some((turns, owner)) = self.held.take() else { return };
        let mut queues = turns.lock();
        let Some(queue) = queues.get_mut(&owner) else { return };
        while let Some(next) = queue.returning.pop_front().or_else(|| queue.entering.pop_front()) {
            match next.send(HeldTurn::new(&turns, owner.clone())) {
                Ok(()) => return,
                // The request has ended. Its turn must not be given back twice.
                Err(mut unused) => drop(unused.held.take()),
            }
        }
        queue.used = queue.used.saturating_sub(1);
        if queue.used == 0 {
            queues.remove(&owner);
        }
    }
}

/// The turn of one request: given up while the request waits for something, and taken again before it continues.
pub(super) struct RequestTurn {
    turns: Arc<AccountTurns>,
    account: LaneAccount,
    /// After the deadline the request runs without a turn: it ends at its next check of the budget, which is canceled then.
    deadline: Option<Instant>,
    /// The main runtime, which passes the turn on. If a thread of the lane did, it would run the account's next request at once, before those
    /// of other accounts.
    home: Handle,
    state: TurnState,
}

enum TurnState {
    Running(Option<AccountTurn>),
    Waiting,
    Retaking(Pin<Box<dyn Future<Output = Option<AccountTurn>> + Send>>),
}

impl RequestTurn {
    /// Waits for the first turn of a request. Must be called on the main runtime.
    pub(super) async fn take(
        turns: &Arc<AccountTurns>,
        account: &LaneAccount,
        deadline: Option<Instant>,
    ) -> Self {
        let turn = take_until(Arc::clone(turns), account.clone(), TurnOrder::Entering, deadline).await;
        let (turns, account, home) = (Arc::clone(turns), account.clone(), Handle::current());
        RequestTurn { turns, account, deadline, home, state: TurnState::Running(turn) }
    }

    /// Gives up the turn, because the request waits.
    pub(super) fn release(&mut self) {
        if let TurnState::Running(Some(turn)) = std::mem::replace(&mut self.state, TurnState::Waiting) {
            self.home.spawn(async move { drop(turn) });
        }
    }

    /// Takes the turn again, if it was given up. Must be ready before the request is polled.
    pub(super) fn poll_retake(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let TurnState::Waiting = self.state {
            let (turns, account) = (Arc::clone(&self.turns), self.account.clone());
            let retaking = take_until(turns, account, TurnOrder::Returning, self.deadline);
            self.state = TurnState::Retaking(Box::pin(retaking));
        }
        if let TurnState::Retaking(retaking) = &mut self.state {
            let turn = ready!(retaking.as_mut().poll(context));
            self.state = TurnState::Running(turn);
        }
        Poll::Ready(())
    }
}

impl Drop for RequestTurn {
    fn drop(&mut self) {
        self.release();
    }
}

async fn take_until(
    turns: Arc<AccountTurns>,
    account: LaneAccount,
    order: TurnOrder,
    deadline: Option<Instant>,
) -> Option<AccountTurn> {
    let taken = turns.take(&account, order);
    match deadline {
        None => Some(taken.await),
        Some(deadline) => tokio::time::timeout_at(deadline.into(), taken).await.ok(),
    }
}
