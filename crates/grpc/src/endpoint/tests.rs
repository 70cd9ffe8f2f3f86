use super::*;

fn parse(url: &str) -> Result<GrpcEndpoint, String> {
    GrpcEndpoint::parse(url, None).map_err(|error| error.to_string())
}

#[test]
fn endpoints_are_urls_with_a_host_and_a_port() {
    assert_eq!(parse("http://127.0.0.1:2379").unwrap().origin(), "http://127.0.0.1:2379");
    assert_eq!(parse("http://[::1]:2379/").unwrap().origin(), "http://[::1]:2379");
    assert_eq!(parse("http://etcd").unwrap().origin(), "http://etcd:80");
    assert_eq!(parse("unix:///run/kms.sock").unwrap().origin(), "http://localhost");
}

#[test]
fn invalid_endpoints_are_rejected_with_a_reason() {
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
