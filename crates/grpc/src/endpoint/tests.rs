use super::*;

fn parse(url: &str) -> Result<Endpoint, String> {
    Endpoint::parse(url, None).map_err(|error| error.to_string())
}

#[test]
fn endpoints_are_urls_with_a_host_and_a_port() {
    assert_eq!(parse("http://127.0.0.1:2379").unwrap().origin(), "http://127.0.0.1:2379");
    assert_eq!(parse("http://[::1]:2379/").unwrap().origin(), "http://[::1]:2379");
    assert_eq!(parse("http://etcd").unwrap().origin(), "http://etcd:80");
    assert_eq!(parse("unix:///run/kms.sock").unwrap().origin(), "http://localhost");
}

#[test]
fn other_texts_are_rejected_with_a_reason() {
    for (url, why) in [
        ("127.0.0.1:2379", "its scheme must be http, https or unix"),
        ("ftp://127.0.0.1:2379", "its scheme must be http, https or unix"),
        ("http://127.0.0.1:2379/v3", "it must consist of a scheme"),
        ("http://a?b", "it must consist of a scheme"),
        ("unix://relative", "must be absolute"),
        ("https://127.0.0.1:2379", "it needs TLS"),
        ("", "it is not a URL"),
    ] {
        let error = parse(url).unwrap_err();
        assert!(error.contains(why), "{url}: {error}");
    }
}

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
