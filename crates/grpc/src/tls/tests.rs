use super::*;

#[test]
fn tls_files_that_cannot_be_used_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let (absent, garbage) = (folder.path().join("absent"), folder.path().join("garbage"));
    std::fs::write(&garbage, "no PEM").unwrap();
    let load = |ca: &Path| {
        TlsFiles { ca: Some(ca.to_owned()), ..TlsFiles::default() }.load().unwrap_err().to_string()
    };
    assert!(load(&absent).starts_with(&format!("cannot read `{}`", absent.display())));
    assert_eq!(load(&garbage), format!("`{}` contains no certificate in PEM format", garbage.display()));
    let half = TlsFiles { certificate: Some(garbage), ..TlsFiles::default() };
    assert!(half.load().is_err());
}
