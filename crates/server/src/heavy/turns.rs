//! Limits how many requests of one account are in the heavy lane at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use value::Str;

/// Requests of one account that may be queued in the lane at once. Its other requests wait outside, so that a
/// request of another account has only few before it.
pub(super) const TURNS: usize = 2;

/// One semaphore of [`TURNS`] permits per account that has requests in the lane or waiting for it.
#[derive(Debug, Default)]
pub(super) struct AccountTurns {
    accounts: Mutex<HashMap<Str, Arc<Semaphore>>>,
}

impl AccountTurns {
    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<Str, Arc<Semaphore>>> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the account may run one more request in the lane.
    pub(super) async fn take(self: &Arc<Self>, account: &Str) -> AccountTurn {
        let of_account =
            Arc::clone(self.lock().entry(account.clone()).or_insert_with(|| Arc::new(Semaphore::new(TURNS))));
        let mut turn = AccountTurn { turns: Arc::clone(self), account: account.clone(), permit: None };
        turn.permit = of_account.acquire_owned().await.ok();
        turn
    }
}

/// A permit of an account, or the wait for it. Its drop admits the account's next request.
#[derive(Debug)]
pub(super) struct AccountTurn {
    turns: Arc<AccountTurns>,
    account: Str,
    permit: Option<OwnedSemaphorePermit>,
}

impl Drop for AccountTurn {
    fn drop(&mut self) {
        self.permit = None;
        let mut accounts = self.turns.lock();
        // Every other turn of the account, held or awaited, has a reference to the semaphore too.
        if accounts.get(&self.account).is_some_and(|turns| Arc::strong_count(turns) == 1) {
            accounts.remove(&self.account);
        }
    }
}
