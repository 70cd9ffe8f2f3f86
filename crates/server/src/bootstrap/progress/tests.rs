use api::Status;

use super::{PostStartHook, Progress};

#[tokio::test]
async fn a_bootstrap_check_fails_naming_the_object_that_is_not_written_and_the_reason() {
    let progress = Progress::default();
    assert!(progress.check(PostStartHook::Roles).is_err(), "nothing has been begun");
    progress.begin(PostStartHook::Roles, "/clusterroles/a");
    progress.begin(PostStartHook::Roles, "/clusterroles/b");
    progress.set_complete();
    assert_eq!(progress.check(PostStartHook::SystemNamespaces), Ok(()));
    progress.refused("/clusterroles/a", &Status::bad_request("policy 'p' denied it"));
    progress.done("/clusterroles/b");
    progress.settled().await;
    assert_eq!(
        progress.check(PostStartHook::Roles),
        Err("/clusterroles/a is not written: policy 'p' denied it".to_owned())
    );
    progress.done("/clusterroles/a");
    assert_eq!(progress.check(PostStartHook::Roles), Ok(()));
    progress.done_all().await;
}
