use authz::rbac::bootstrap;

use super::{account, invalidates_tokens, is_another, rbac_collection};

#[test]
fn the_collection_of_a_deleted_object_decides_whether_it_was_the_account() {
    let (collection, mut account) = account();
    assert!(invalidates_tokens(&collection, Some(&account), None));
    account.set_at(&["kind"], "ClusterRole");
    assert!(invalidates_tokens(&collection, Some(&account), None), "whatever kind its content claims");
    for mut role in bootstrap::webhook_tokens() {
        let collection = rbac_collection(&role);
        role.set_at(&["kind"], "ServiceAccount");
        assert!(!invalidates_tokens(&collection, Some(&role), None), "{collection}");
    }
}

#[test]
fn a_service_account_is_another_when_deleted_or_recreated_but_not_when_first_created() {
    let made = |uid: &str| {
        let (_, mut account) = account();
        api::meta::set(&mut account, "uid", uid);
        account
    };
    let (one, two) = (made("1"), made("2"));
    assert!(!is_another(None, Some(&one)));
    assert!(!is_another(Some(&one), Some(&one)));
    assert!(is_another(Some(&one), Some(&two)));
    assert!(is_another(Some(&one), None));
}
