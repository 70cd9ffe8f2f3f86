use std::sync::Arc;
use std::time::Duration;

use admission::WriteGuard as _;

use super::{ChargeState, InFlightWrite, Namespace, SETTLE, USE_WITHIN};
use crate::loopback::Loopback;
use crate::write::TimeMark;

#[tokio::test(start_paused = true)]
async fn usage_is_settled_when_it_has_not_changed_for_some_time() {
    let namespace = Namespace::default();
    assert_eq!(namespace.unsettled_for("q", "1"), SETTLE);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(namespace.unsettled_for("q", "1"), SETTLE.saturating_sub(Duration::from_secs(1)));
    assert_eq!(namespace.unsettled_for("q", "2"), SETTLE, "a charge");
    tokio::time::advance(SETTLE).await;
    assert_eq!(namespace.unsettled_for("q", "2"), Duration::ZERO);
    assert_eq!(namespace.unsettled_for("q", "1"), SETTLE, "a quota that was restored");
    namespace.set_settled("q", "3");
    assert_eq!(namespace.unsettled_for("q", "3"), Duration::ZERO, "counted by this server");
    namespace.forget("q");
    assert_eq!(namespace.unsettled_for("q", "3"), SETTLE, "another quota of this name");
}

#[tokio::test(start_paused = true)]
async fn a_recount_waits_for_the_writes_of_this_server() {
    let namespace = Arc::new(Namespace::default());
    assert!(namespace.drain().await);
    let in_namespace = ("n".into(), Arc::clone(&namespace));
    let write =
        InFlightWrite::new(in_namespace, ChargeState::Charged, TimeMark::now(), Loopback::disconnected());
    assert!(!namespace.drain().await);
    write.check().await.unwrap();
    tokio::time::advance(USE_WITHIN).await;
    write.check().await.unwrap_err();
    drop(write);
    assert!(namespace.drain().await);
}
