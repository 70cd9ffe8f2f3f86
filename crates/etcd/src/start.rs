//! The start: waits for etcd, as long as kube-apiserver does, and loads all objects.

use std::sync::Arc;
use std::time::Duration;

use grpc::{GrpcCode, GrpcStatus};
use storage::OpenError;
use tokio::time::Instant;

use crate::backend::ValueCodec;
use crate::client::EtcdClient;
use crate::key_space::KeySpace;
use crate::load::{Loaded, load};
use crate::migration;
use crate::version::{MemberError, check_members};

/// How long the start waits for an etcd that does not answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Pause before etcd is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// Interval of log messages while the start waits.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

enum FailedAttempt {
    /// Trying again does not help.
    Final(OpenError),
    Unavailable(String),
}

/// Loads all objects from a cluster whose members are new enough. Waits for a cluster that is not available, and logs that it does.
pub(crate) async fn load_at_start(
    client: &EtcdClient,
    keys: &KeySpace,
    codec: &Arc<dyn ValueCodec>,
) -> Result<Loaded, OpenError> {
    let begin = Instant::now();
    let mut wait = Wait::begin();
    loop {
        match try_load(client, keys, codec).await {
            Ok(loaded) => {
                let (objects, revision) = (loaded.records.len(), loaded.revision);
                tracing::info!(objects, revision, took = ?begin.elapsed(), "loaded all objects from etcd");
                return Ok(loaded);
            }
            Err(failed) => wait.after(failed).await?,
        }
    }
}

/// Waits until a member answers, and fails if one that answers is too old.
pub(crate) async fn wait_for_members(client: &EtcdClient) -> Result<(), OpenError> {
    let mut wait = Wait::begin();
    loop {
        match try_members(client).await {
            Ok(()) => return Ok(()),
            Err(failed) => wait.after(failed).await?,
        }
    }
}

async fn try_members(client: &EtcdClient) -> Result<(), FailedAttempt> {
    check_members(client).await.map_err(|error| match error {
        MemberError::TooOld(why) => FailedAttempt::Final(OpenError::Unavailable(why)),
        MemberError::Unreachable(why) => FailedAttempt::Unavailable(why),
    })
}

async fn try_load(
    client: &EtcdClient,
    keys: &KeySpace,
    codec: &Arc<dyn ValueCodec>,
) -> Result<Loaded, FailedAttempt> {
    try_members(client).await?;
    migration::check_no_marker(client, keys).await.map_err(|error| match error {
        OpenError::Unavailable(why) => FailedAttempt::Unavailable(why),
        other => FailedAttempt::Final(other),
    })?;
    load(client, keys, codec).await.map_err(|status| {
        if is_temporary(&status) {
            FailedAttempt::Unavailable(status.message)
        } else {
            FailedAttempt::Final(OpenError::Unavailable(status.message))
        }
    })
}

/// True for the failures of a cluster without a leader, or whose members do not answer.
fn is_temporary(status: &GrpcStatus) -> bool {
    matches!(
        status.code,
        GrpcCode::Unavailable | GrpcCode::DeadlineExceeded | GrpcCode::Canceled | GrpcCode::Unknown
    )
}

/// Waits at the start for a cluster that is not available, and logs the reason from time to time.
struct Wait {
    begin: Instant,
    next_report: Instant,
}

impl Wait {
    fn begin() -> Wait {
        let begin = Instant::now();
        Wait { begin, next_report: begin }
    }

    /// Pauses after a failed attempt, or gives up.
    async fn after(&mut self, failed: FailedAttempt) -> Result<(), OpenError> {
        let why = match failed {
            FailedAttempt::Final(error) => return Err(error),
            FailedAttempt::Unavailable(why) => why,
        };
        let now = Instant::now();
        let left = PATIENCE.saturating_sub(now.duration_since(self.begin));
        if left.is_zero() {
            return Err(OpenError::Unavailable(format!(
                "etcd does not answer: {why}; check that it runs, the URLs in --etcd-servers, and the files in --etcd-cafile, --etcd-certfile and --etcd-keyfile"
            )));
        }
        if now >= self.next_report {
            tracing::warn!(reason = %why, gives_up_in = ?left, "etcd does not answer; waiting for it");
            self.next_report = now + REPORT_INTERVAL;
        }
        tokio::time::sleep(RETRY).await;
        Ok(())
    }
}
