//! Identical concurrent requests share one call.
//!
//! The first request is the leader and makes the call; identical requests are followers and wait for its
//! result. If the leader is dropped before it completes, it wakes its followers, and one of them becomes the
//! next leader.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

pub(super) struct SharedCalls<T> {
    running: Mutex<HashMap<String, Arc<Mutex<SharedCall<T>>>>>,
}

struct SharedCall<T> {
    state: CallState<T>,
    waiting: Vec<Waker>,
}

enum CallState<T> {
    Running,
    Completed(T),
    /// The leader was dropped.
    Abandoned,
}

pub(super) enum CallRole<'a, T> {
    Leader(CallLeader<'a, T>),
    Follower(CallFollower<T>),
}

pub(super) struct CallLeader<'a, T> {
    calls: &'a SharedCalls<T>,
    key: String,
    call: Arc<Mutex<SharedCall<T>>>,
}

/// Resolves to the result of the call, or to `None` if the leader was dropped.
pub(super) struct CallFollower<T> {
    call: Arc<Mutex<SharedCall<T>>>,
}

impl<T> Default for SharedCalls<T> {
    fn default() -> Self {
        SharedCalls { running: Mutex::default() }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> SharedCalls<T> {
    pub(super) fn join(&self, key: &str) -> CallRole<'_, T> {
        let mut running = lock(&self.running);
        if let Some(call) = running.get(key) {
            return CallRole::Follower(CallFollower { call: call.clone() });
        }
        let call = Arc::new(Mutex::new(SharedCall { state: CallState::Running, waiting: Vec::new() }));
        running.insert(key.to_owned(), call.clone());
        CallRole::Leader(CallLeader { calls: self, key: key.to_owned(), call })
    }
}

impl<T> CallLeader<'_, T> {
    /// Completes the call and wakes the followers.
    pub(super) fn complete(self, outcome: T) {
        lock(&self.call).state = CallState::Completed(outcome);
    }
}

impl<T> Drop for CallLeader<'_, T> {
    fn drop(&mut self) {
        lock(&self.calls.running).remove(&self.key);
        let mut call = lock(&self.call);
        if matches!(call.state, CallState::Running) {
            call.state = CallState::Abandoned;
        }
        for waker in call.waiting.drain(..) {
            waker.wake();
        }
    }
}

impl<T: Clone> Future for CallFollower<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut call = lock(&self.call);
        match &call.state {
            CallState::Running => {}
            CallState::Completed(outcome) => return Poll::Ready(Some(outcome.clone())),
            CallState::Abandoned => return Poll::Ready(None),
        }
        if !call.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            call.waiting.push(context.waker().clone());
        }
        Poll::Pending
    }
}
