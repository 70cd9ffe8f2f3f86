//! Sections of requests that hold a lock for which requests of other accounts may wait.

use std::cell::Cell;
use std::pin::pin;
use std::task::Poll;

thread_local! {
    /// Whether the poll that runs on this thread has left the work inside of a section.
    static WAITS: Cell<bool> = const { Cell::new(false) };
}

/// Runs a part of a request that waits for a lock and then holds it. In the heavy lane, what it does after a wait needs no turn of its
/// account: otherwise the other requests of the account could keep the lock from requests of other accounts. So it must not compute much,
/// and the lock must let only few requests in at a time. Elsewhere it has no effect.
pub async fn without_turn<T>(section: impl Future<Output = T>) -> T {
    let mut section = pin!(section);
    let mut has_waited = false;
    let done = std::future::poll_fn(|context| {
        let polled = section.as_mut().poll(context);
        if polled.is_pending() {
            has_waited = true;
            WAITS.set(true);
        }
        polled
    })
    .await;
    if has_waited {
        // The next poll takes a turn again.
        let mut is_over = false;
        std::future::poll_fn(|context| {
            if std::mem::replace(&mut is_over, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
    done
}

/// Reports whether the poll since the last call has left the work inside of a section.
pub(super) fn take_waits() -> bool {
    WAITS.take()
}
