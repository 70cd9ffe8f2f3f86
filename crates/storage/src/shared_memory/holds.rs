//! Commits that a test holds back at a point of its choice.

use tokio::sync::watch;

/// The point at which the shared store holds a commit back until the test releases it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldPoint {
    /// Before the service decides, like a request that is slow to arrive.
    BeforeDecision,
    /// On the way to the service, which decides it after the release, even if the store gives it up.
    InNetwork,
    /// After the service has stored the write, before the store learns of it, like a response that is slow to arrive.
    BeforeAnswer,
}

/// Controls a commit that stops at a [`HoldPoint`]. Dropping it releases the commit.
#[derive(Debug)]
pub struct CommitHold {
    pub(super) reached: watch::Receiver<bool>,
    pub(super) _release: watch::Sender<()>,
}

impl CommitHold {
    /// Waits until the commit has stopped. The caller must set a time limit.
    pub async fn reached(&mut self) {
        // The sender is dropped only with the service.
        let _ = self.reached.wait_for(|reached| *reached).await;
    }

    /// Lets the commit continue.
    pub fn release(self) {}
}

#[derive(Debug)]
pub(super) struct HeldCommit {
    pub(super) point: HoldPoint,
    pub(super) reached: watch::Sender<bool>,
    pub(super) released: watch::Receiver<()>,
}

impl HeldCommit {
    /// Waits for the release, if the commit stops here.
    pub(super) async fn stop(&mut self, point: HoldPoint) {
        if self.point == point {
            self.reached.send_replace(true);
            // An error means that the controlling side was dropped.
            while self.released.changed().await.is_ok() {}
        }
    }
}
