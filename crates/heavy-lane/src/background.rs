//! Large work of background tasks, such as informers and controllers, that belongs to no request.

use std::cell::Cell;
use std::sync::mpsc;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::JoinHandle;

use super::{HeavyLane, LARGE};

thread_local! {
    static IS_LANE_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Records that the current thread belongs to a lane.
pub(super) fn mark_lane_thread() {
    IS_LANE_THREAD.set(true);
}

impl HeavyLane {
    /// Runs synchronous work of a background task with `size` bytes: in the lane if they are large, otherwise at once. Returns `None` if it
    /// panicked in the lane, or the server stops.
    pub async fn run<T: Send + 'static>(
        &self,
        size: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        if size <= LARGE || IS_LANE_THREAD.get() {
            return Some(work());
        }
        self.spawn(work)?.await.ok()
    }

    /// Like [`HeavyLane::run`], for callers that cannot await. Meanwhile another thread runs the tasks of this one.
    pub fn run_blocking<T: Send + 'static>(
        &self,
        size: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        // A runtime with one thread, as in tests, has none to run its tasks.
        let has_threads =
            Handle::try_current().is_ok_and(|home| home.runtime_flavor() == RuntimeFlavor::MultiThread);
        if size <= LARGE || IS_LANE_THREAD.get() || !has_threads {
            return Some(work());
        }
        tokio::task::block_in_place(|| {
            let (sender, receiver) = mpsc::channel();
            self.spawn(move || sender.send(work()))?;
            // Without a message, the work panicked or was dropped.
            receiver.recv().ok()
        })
    }

    fn spawn<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<JoinHandle<T>> {
        let runtime = self.runtime.as_ref()?;
        self.background_tasks.inc();
        let home = Handle::try_current().ok();
        Some(runtime.spawn(async move {
            // Tasks that the work spawns belong to the main runtime.
            let _home = home.as_ref().map(Handle::enter);
            work()
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_in_lane() -> bool {
        std::thread::current().name() == Some("heavy-lane")
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn only_large_work_of_background_tasks_runs_in_the_lane() {
        let lane = HeavyLane::start(&runtime::MetricRegistry::new()).unwrap();
        for (size, expected) in [(LARGE, false), (LARGE + 1, true)] {
            assert_eq!(lane.run(size, is_in_lane).await, Some(expected), "{size}");
            assert_eq!(lane.run_blocking(size, is_in_lane), Some(expected), "{size}");
        }
        assert_eq!(lane.background_tasks.get(), 2);
        assert_eq!(lane.requests.get(), 0, "it is no request");
    }

    #[tokio::test]
    async fn callers_that_cannot_await_do_the_work_if_their_runtime_has_one_thread() {
        let lane = HeavyLane::start(&runtime::MetricRegistry::new()).unwrap();
        assert_eq!(lane.run_blocking(LARGE + 1, is_in_lane), Some(false));
        assert_eq!(lane.run(LARGE + 1, is_in_lane).await, Some(true));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn work_that_panics_in_the_lane_has_no_result() {
        let lane = HeavyLane::start(&runtime::MetricRegistry::new()).unwrap();
        let panics = || -> bool { panic!("expected by the test") };
        assert_eq!(lane.run(LARGE + 1, panics).await, None);
        assert_eq!(lane.run_blocking(LARGE + 1, panics), None);
        assert_eq!(lane.run(LARGE + 1, is_in_lane).await, Some(true), "the lane goes on");
    }
}
