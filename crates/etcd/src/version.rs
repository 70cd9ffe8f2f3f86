//! The oldest etcd that answers progress requests correctly, which consistent reads need.

use std::cmp::Ordering;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::client::EtcdClient;

/// Fixed in these releases (etcd issues 15220 and 17507); every later minor release has the fix.
const FIXED: [(u32, u32, u32); 2] = [(3, 4, 31), (3, 5, 13)];

/// Reads `MAJOR.MINOR.PATCH`, ignoring a suffix such as `-rc.1`.
fn parse(version: &str) -> Option<(u32, u32, u32)> {
    let mut numbers = version.split(['-', '+']).next()?.split('.').map(|number| number.parse().ok());
    let parsed = (numbers.next()??, numbers.next()??, numbers.next()??);
    numbers.next().is_none().then_some(parsed)
}

fn supports_consistent_reads(version: (u32, u32, u32)) -> bool {
    let (major, minor, _) = version;
    match FIXED.iter().find(|(fixed_major, fixed_minor, _)| (*fixed_major, *fixed_minor) == (major, minor)) {
        Some(fixed) => version.cmp(fixed) != Ordering::Less,
        None => FIXED.last().is_some_and(|last| version > *last),
    }
}

/// How long one member may take to report its version. All members are asked at the same time.
const MEMBER_TIMEOUT: Duration = Duration::from_secs(5);

/// The cluster cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MemberError {
    TooOld(String),
    /// None of the members answers.
    Unreachable(String),
}

/// Fails if a member that answers is too old. Members that do not answer are not checked, but one must.
pub(crate) async fn check_members(client: &EtcdClient) -> Result<(), MemberError> {
    let mut asked = JoinSet::new();
    for index in 0..client.endpoint_count() {
        let client = client.clone();
        asked.spawn(async move { client.member_status(index, MEMBER_TIMEOUT).await });
    }
    let mut failures = Vec::new();
    let mut is_checked = false;
    while let Some(answer) = asked.join_next().await {
        match answer {
            Ok(Ok(status)) => {
                check_version(&status.version).map_err(MemberError::TooOld)?;
                is_checked = true;
            }
            Ok(Err(status)) => failures.push(status.message),
            Err(error) => failures.push(error.to_string()),
        }
    }
    failures.sort_unstable();
    if is_checked { Ok(()) } else { Err(MemberError::Unreachable(failures.join("; "))) }
}

/// Fails if the member at the endpoint with this index is too old, or does not answer. It may not have answered at the start, or be
/// another one now.
pub(crate) async fn check_member(client: &EtcdClient, index: usize) -> Result<(), String> {
    let status = client.member_status(index, MEMBER_TIMEOUT).await.map_err(|status| status.message)?;
    check_version(&status.version)
}

fn check_version(version: &str) -> Result<(), String> {
    if parse(version).is_some_and(supports_consistent_reads) {
        return Ok(());
    }
    Err(format!(
        "etcd {version} cannot serve consistent reads (its progress notifications are not reliable); use 3.5.13 or newer"
    ))
}

#[cfg(test)]
mod tests {
    use super::{parse, supports_consistent_reads};

    #[test]
    fn members_with_reliable_progress_notifications_are_accepted() {
        for version in ["3.4.31", "3.4.33", "3.5.13", "3.5.30", "3.6.0", "3.7.0-rc.1", "4.0.0"] {
            assert!(parse(version).is_some_and(supports_consistent_reads), "{version}");
        }
    }

    #[test]
    fn older_members_and_unreadable_versions_are_refused() {
        for version in ["3.3.99", "3.4.30", "3.5.12", "3.5.0", "2.3.8", "", "3.5", "3.5.x", "3.5.13.1"] {
            assert!(!parse(version).is_some_and(supports_consistent_reads), "{version}");
        }
    }
}
