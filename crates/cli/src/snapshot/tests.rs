use std::path::{Path, PathBuf};

use super::default_kubeconfig;

#[test]
fn the_default_kubeconfig_is_the_one_of_kubectl() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let check = |variable: Option<&str>| default_kubeconfig(variable.map(PathBuf::from), Some(home));
    assert_eq!(check(Some("/k")).unwrap(), Path::new("/k"));
    let several = check(Some("/a:/b")).unwrap_err().to_string();
    assert_eq!(several, "KUBECONFIG names several files; name one with --kubeconfig");
    for unset in [None, Some("")] {
        let missing = check(unset).unwrap_err().to_string();
        assert!(missing.starts_with("no server is named"), "{missing}");
    }
    std::fs::create_dir(home.join(".kube")).unwrap();
    std::fs::write(home.join(".kube/config"), "").unwrap();
    assert_eq!(check(None).unwrap(), home.join(".kube/config"));
    assert!(default_kubeconfig(None, None).is_err());
}
