//! The client certificate of the aggregator (`--proxy-client-cert-file`).

use std::fs;
use std::time::Duration;

use conformance::aggregated_server::AggregatedServer;
use conformance::server::run_to_end;
use conformance::{Server, accepts};
use tempfile::TempDir;

use crate::both_servers::{
    FISCHERS, NAME, SERVICES, create_service, service, wait_for_condition, without_aggregated_discovery,
};

#[tokio::test]
async fn an_unusable_proxy_certificate_stops_the_start() {
    let folder = TempDir::new().unwrap();
    let (one, two) = (Server::up().await.unwrap(), Server::up().await.unwrap());
    let data = format!("--data-dir={}", folder.path().join("data").display());
    let cert = format!("--proxy-client-cert-file={}", one.data().join("front-proxy-client.crt").display());
    let key = format!("--proxy-client-key-file={}", two.data().join("front-proxy-client.key").display());
    let patience = Duration::from_secs(20);
    let (code, said) = run_to_end(&["serve", &data, &cert], patience).await.unwrap();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("set both --proxy-client-cert-file"), "{said}");
    let (code, said) = run_to_end(&["serve", &data, "--secure-port=0", &cert, &key], patience).await.unwrap();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("--proxy-client-cert-file"), "{said}");
    let mode = |name: &str| {
        use std::os::unix::fs::PermissionsExt as _;
        fs::metadata(one.data().join(name)).unwrap().permissions().mode() & 0o777
    };
    for name in
        ["front-proxy-ca.crt", "front-proxy-ca.key", "front-proxy-client.crt", "front-proxy-client.key"]
    {
        assert_eq!(mode(name), 0o600, "{name}");
    }
}

/// A CA, and a client certificate that it signed.
fn front_proxy() -> (String, String, String) {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let client = CertificateParams::default().signed_by(&key, &authority).unwrap();
    (authority.pem(), client.pem(), key.serialize_pem())
}

#[tokio::test]
async fn a_new_proxy_certificate_is_used_without_a_restart() {
    let folder = TempDir::new().unwrap();
    let (cert, key) = (folder.path().join("proxy.crt"), folder.path().join("proxy.key"));
    let ((_, old_cert, old_key), (authority, new_cert, new_key)) = (front_proxy(), front_proxy());
    fs::write(&cert, old_cert).unwrap();
    fs::write(&key, old_key).unwrap();
    let flags = [
        format!("--proxy-client-cert-file={}", cert.display()),
        format!("--proxy-client-key-file={}", key.display()),
    ];
    let server = Server::serve(&[&flags[0], &flags[1]]).await.unwrap();
    let client = server.client().unwrap();
    let extension =
        AggregatedServer::start("wardle.default.svc", Some(&authority), without_aggregated_discovery)
            .await
            .unwrap();
    create_service(&client).await;
    accepts(client.post(SERVICES, &service(extension.port, &extension.ca_bundle)).await).unwrap();
    wait_for_condition(&client, NAME, "False", "FailedDiscoveryCheck").await;
    assert!(extension.received().is_empty());
    // The key is written first: a pair that does not match is not used.
    fs::write(&key, new_key).unwrap();
    fs::write(&cert, new_cert).unwrap();
    wait_for_condition(&client, NAME, "True", "Passed").await;
    accepts(client.get(FISCHERS).await).unwrap();
}
