use api::GroupResource;
use storage::CommitError;

use super::commit_status;

#[test]
fn clients_get_the_reason_of_etcd_and_not_that_of_a_disk() {
    let resource = GroupResource::new("", "configmaps");
    let status = |why: &str| commit_status(&CommitError::Unavailable(why.to_owned()), &resource, "a");
    let full = status("etcdserver: mvcc: database space exceeded");
    assert_eq!((full.code(), full.message()), (500, "etcdserver: mvcc: database space exceeded"));
    let disk = status("I/O error: No space left on device (os error 28)");
    let expected = "Internal error occurred: the store cannot write; nothing was changed";
    assert_eq!((disk.code(), disk.message()), (500, expected));
}
