use authn::FrontProxy;
use transport::pki;
use value::{Str, Value};

use super::{EXPIRY_SLACK, PublishedTrust, merged, strings};

/// Seconds since the epoch at which the certificates of these tests begin.
const START: i64 = 1_700_000_000;

fn authority(name: &str, at: i64) -> String {
    pki::authority(name, at).unwrap().cert_pem
}

fn server(clients: &str, user_header: &str) -> PublishedTrust {
    let list = |text: &str| vec![Str::from(text)];
    PublishedTrust {
        clients: clients.as_bytes().to_vec(),
        proxies: clients.as_bytes().to_vec(),
        proxy: FrontProxy {
            username_headers: list(user_header),
            group_headers: list("X-Remote-Group"),
            extra_header_prefixes: list("X-Remote-Extra-"),
            ..FrontProxy::default()
        },
    }
}

fn empty() -> Value {
    Value::map::<Str, Value>([])
}

/// When the certificate expires, in seconds since the epoch.
fn not_after(pem: &str) -> i64 {
    use x509_parser::prelude::{FromDer as _, X509Certificate};
    let der = transport::tls::certificates(pem.as_bytes()).unwrap().remove(0);
    X509Certificate::from_der(&der).unwrap().1.validity().not_after.timestamp()
}

#[test]
fn servers_with_different_authorities_publish_the_union_after_one_write_each() {
    let (a, b) = (server(&authority("a", START), "X-A"), server(&authority("b", START), "X-B"));
    let by_a = merged(&empty(), &a, START).unwrap();
    let by_b = merged(&by_a, &b, START).unwrap();
    assert_ne!(by_a, by_b);
    assert_eq!(merged(&by_b, &a, START).unwrap(), by_b, "a has nothing to add");
    assert_eq!(merged(&by_b, &b, START).unwrap(), by_b, "b has nothing to add");
    assert_eq!(by_b.str_at(&["client-ca-file"]).unwrap().matches("BEGIN").count(), 2);
    assert_eq!(by_b.str_at(&["requestheader-username-headers"]), Some(r#"["X-A","X-B"]"#));
    assert_eq!(by_b.str_at(&["requestheader-group-headers"]), Some(r#"["X-Remote-Group"]"#));
    assert_eq!(by_b.str_at(&["requestheader-allowed-names"]), Some("[]"));
    assert_eq!(by_b.str_at(&["requestheader-uid-headers"]), None);
}

#[test]
fn clocks_that_differ_by_minutes_do_not_make_servers_undo_each_others_writes() {
    let pem = authority("a", START);
    let (owner, other) = (server(&pem, "X-A"), server("", "X-A"));
    let published = merged(&empty(), &owner, START).unwrap();
    let expiry = not_after(&pem);
    let soon_after = merged(&published, &other, expiry + EXPIRY_SLACK - 1).unwrap();
    assert_eq!(soon_after, published, "the certificate stays published for five minutes");
    let later = merged(&published, &other, expiry + EXPIRY_SLACK).unwrap();
    assert_eq!(later.str_at(&["client-ca-file"]), None);
}

#[test]
fn data_that_cannot_be_parsed_is_an_error_and_is_not_overwritten() {
    let own = server(&authority("a", START), "X-A");
    for (key, text) in [
        ("client-ca-file", "not a certificate"),
        ("client-ca-file", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        ("requestheader-client-ca-file", "x"),
        ("requestheader-allowed-names", "[1]"),
        ("requestheader-group-headers", "{}"),
        ("requestheader-uid-headers", "["),
    ] {
        let error = merged(&Value::map([(key, text)]), &own, START).unwrap_err();
        assert!(error.contains(key), "{error}");
    }
    assert_eq!(strings(""), Ok(Vec::new()));
}
