//! CAs in `--client-ca-file` and `--requestheader-client-ca-file` are subject to their validity and constraints.

use conformance::client::{Credentials, Trust};
use conformance::{Client, Server, accepts};
use http::Method;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use time::OffsetDateTime;

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";

/// A self-signed CA, with its key for signing.
struct Root {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

fn root(name: &str, change: impl FnOnce(&mut CertificateParams)) -> Root {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    Root { pem: params.self_signed(&key).unwrap().pem(), issuer: Issuer::new(params, key) }
}

/// A client certificate for system:masters, signed by this CA.
fn administrator(issuer: &Issuer<'static, KeyPair>) -> (String, KeyPair) {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::OrganizationName, "system:masters");
    params.distinguished_name.push(DnType::CommonName, "eve");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    (params.signed_by(&key, issuer).unwrap().pem(), key)
}

/// Like [`administrator`], with an intermediate CA that the client sends.
fn administrator_through(
    issuer: &Issuer<'static, KeyPair>,
    usages: Vec<KeyUsagePurpose>,
) -> (String, KeyPair) {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "between");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = usages;
    let key = KeyPair::generate().unwrap();
    let pem = params.signed_by(&key, issuer).unwrap().pem();
    let (leaf, leaf_key) = administrator(&Issuer::new(params, key));
    (format!("{leaf}{pem}"), leaf_key)
}

fn connect(server: &Server, (pem, key): (String, KeyPair)) -> Client {
    let credentials = Credentials::Certificate(pem.into_bytes(), key.serialize_pem().into_bytes());
    Client::new(&server.url, Trust::Anything, credentials).unwrap()
}

fn expired(params: &mut CertificateParams) {
    params.not_after = OffsetDateTime::now_utc() - time::Duration::days(1);
}

#[tokio::test]
async fn client_cas_are_subject_to_their_validity_and_constraints() {
    let good = root("good", |_| {});
    let short = root("short", |params| params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0)));
    let bad = [
        ("expired", root("expired", expired)),
        ("no authority", root("no-authority", |params| params.is_ca = IsCa::ExplicitNoCa)),
        ("says nothing about authority", root("silent", |params| params.is_ca = IsCa::NoCa)),
        (
            "for servers",
            root("servers", |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]),
        ),
        (
            "may not sign certificates",
            root("no-sign", |params| params.key_usages = vec![KeyUsagePurpose::DigitalSignature]),
        ),
    ];
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.crt");
    let all = bad.iter().map(|(_, root)| root).chain([&good, &short]);
    std::fs::write(&file, all.map(|root| root.pem.as_str()).collect::<String>()).unwrap();
    let server = Server::serve(&[&format!("--client-ca-file={}", file.display())]).await.unwrap();

    let sign = vec![KeyUsagePurpose::KeyCertSign];
    for (what, credentials) in [
        ("a valid authority", administrator(&good.issuer)),
        ("an authority in between", administrator_through(&good.issuer, sign.clone())),
        ("an authority that allows none in between", administrator(&short.issuer)),
    ] {
        accepts(connect(&server, credentials).get(SECRETS).await).expect(what);
    }
    let mut refused: Vec<(&str, (String, KeyPair))> =
        bad.iter().map(|(what, root)| (*what, administrator(&root.issuer))).collect();
    refused.push(("one in between too many", administrator_through(&short.issuer, sign)));
    let data = vec![KeyUsagePurpose::DigitalSignature];
    refused.push(("one in between may not sign", administrator_through(&good.issuer, data)));
    for (what, credentials) in refused {
        let client = connect(&server, credentials);
        let review = client.post(REVIEWS, &serde_json::json!({})).await.unwrap();
        assert_eq!((review.code, client.get(SECRETS).await.unwrap().code), (401, 401), "{what}");
    }
}

#[tokio::test]
async fn a_front_proxy_with_an_expired_ca_is_rejected() {
    let (good, old) = (root("good", |_| {}), root("old", expired));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("proxies.crt");
    std::fs::write(&file, format!("{}{}", old.pem, good.pem)).unwrap();
    let server = Server::serve(&[
        &format!("--requestheader-client-ca-file={}", file.display()),
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
    ])
    .await
    .unwrap();
    let headers = [("x-remote-user", "eve"), ("x-remote-group", "system:masters")];
    for (root, code) in [(&good, 200), (&old, 401)] {
        let client = connect(&server, administrator(&root.issuer));
        let answer = client.send(Method::GET, SECRETS, &headers, bytes::Bytes::new()).await.unwrap();
        assert_eq!(answer.code, code);
    }
}

/// A certificate followed by unrelated ones, with at least this many bytes in all.
fn padded(bytes: usize) -> (String, KeyPair) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["client.example.com".to_owned()]).unwrap();
    let leaf = params.self_signed(&key).unwrap();
    let (mut pem, mut size) = (leaf.pem(), leaf.der().len());
    let names: Vec<String> = (0..50).map(|number| format!("name-{number}.example.com")).collect();
    while size < bytes {
        let other = CertificateParams::new(names.clone()).unwrap();
        let other = other.self_signed(&KeyPair::generate().unwrap()).unwrap();
        pem.push_str(&other.pem());
        size += other.der().len();
    }
    (pem, key)
}

#[tokio::test]
async fn client_certificate_chains_have_a_size_limit() {
    let server = Server::serve(&[]).await.unwrap();
    // No CA signed it, and health checks are public.
    let short = connect(&server, padded(10 * 1024));
    assert_eq!(short.get("/livez").await.unwrap().code, 200);
    let long = connect(&server, padded(17 * 1024));
    assert!(long.get("/livez").await.is_err(), "the handshake fails");
}
