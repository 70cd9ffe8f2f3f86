//! The pause between attempts of a background task.

use std::time::Duration;

use tokio::sync::watch;
use value::Backoff;

/// A pause that doubles after every failed attempt, up to a maximum.
#[derive(Clone, Copy, Debug)]
pub struct RetryPause(Backoff);

impl RetryPause {
    pub const fn new(first: Duration, longest: Duration) -> Self {
        RetryPause(Backoff::new(first, longest))
    }

    /// The length of the next pause.
    pub fn next(self) -> Duration {
        self.0.next()
    }

    /// Waits, for a task that ends with the server.
    pub async fn sleep(&mut self) {
        tokio::time::sleep(self.0.fail()).await;
    }

    /// Waits. Returns false if the server stops first.
    pub async fn wait(&mut self, stop: &mut watch::Receiver<bool>) -> bool {
        tokio::select! {
            () = self.sleep() => true,
            _ = stop.wait_for(|stop| *stop) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::watch;
    use tokio::time::Instant;

    use super::RetryPause;

    #[tokio::test(start_paused = true)]
    async fn a_pause_doubles_up_to_its_maximum_and_ends_when_the_server_stops() {
        let (stop, mut stopped) = watch::channel(false);
        let mut pause = RetryPause::new(Duration::from_secs(1), Duration::from_secs(3));
        let begun = Instant::now();
        for seconds in [1, 3, 6, 9] {
            assert!(pause.wait(&mut stopped).await);
            assert_eq!(begun.elapsed().as_secs(), seconds);
        }
        stop.send_replace(true);
        assert!(!pause.wait(&mut stopped).await);
        assert_eq!(begun.elapsed().as_secs(), 9);
    }
}
