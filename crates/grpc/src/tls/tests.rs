use conformance::TestAuthority;
use rcgen::{DistinguishedName, ExtendedKeyUsagePurpose};

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

/// A certificate authority, with a folder for the files of a client.
struct ClientFolder {
    folder: tempfile::TempDir,
    authority: TestAuthority,
}

impl ClientFolder {
    fn new() -> ClientFolder {
        let folder = tempfile::tempdir().unwrap();
        let authority = TestAuthority::new("ca").unwrap();
        std::fs::write(folder.path().join("ca"), &authority.pem).unwrap();
        ClientFolder { folder, authority }
    }

    /// The certificate and the key of a new client, in PEM.
    fn issue_client(&self) -> (String, String) {
        self.authority.issue(&DistinguishedName::new(), ExtendedKeyUsagePurpose::ClientAuth, &[]).unwrap()
    }

    /// Writes the files of a new client certificate, and returns it.
    fn rotate(&self) -> CertificateDer<'static> {
        let (certificate, key) = self.issue_client();
        std::fs::write(self.folder.path().join("certificate"), &certificate).unwrap();
        std::fs::write(self.folder.path().join("key"), key).unwrap();
        CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()
    }

    fn files(&self) -> TlsFiles {
        let file = |name: &str| Some(self.folder.path().join(name));
        TlsFiles { ca: file("ca"), certificate: file("certificate"), key: file("key") }
    }

    /// Connects with the client's configuration; returns the certificate that the server got.
    async fn connect(&self, client: &Arc<ClientConfig>) -> CertificateDer<'static> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.authority.pem.as_bytes()).unwrap()).unwrap();
        let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(
            Arc::new(roots),
            Arc::clone(&provider),
        );
        let server_auth = ExtendedKeyUsagePurpose::ServerAuth;
        let (certificate, key) =
            self.authority.issue(&DistinguishedName::new(), server_auth, &["localhost"]).unwrap();
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap();
        let (near, far) = tokio::io::duplex(64 << 10);
        let connector = tokio_rustls::TlsConnector::from(Arc::clone(client));
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let (connected, accepted) =
            tokio::join!(connector.connect("localhost".try_into().unwrap(), near), acceptor.accept(far));
        connected.unwrap();
        accepted.unwrap().get_ref().1.peer_certificates().unwrap().first().unwrap().clone().into_owned()
    }
}

#[tokio::test]
async fn a_connection_uses_the_client_certificate_that_is_in_the_files_when_it_is_opened() {
    let client = ClientFolder::new();
    let first = client.rotate();
    let config = client.files().load().unwrap();
    assert_eq!(client.connect(&config).await, first);
    let second = client.rotate();
    assert_eq!(client.connect(&config).await, second);
}

#[tokio::test]
async fn files_that_cannot_be_used_leave_the_last_client_certificate_in_use() {
    let client = ClientFolder::new();
    let first = client.rotate();
    let config = client.files().load().unwrap();
    let files = client.files();
    let (certificate, key) = (files.certificate.unwrap(), files.key.unwrap());
    // A key that does not belong to the certificate: the files are being replaced.
    std::fs::write(&key, client.issue_client().1).unwrap();
    assert_eq!(client.connect(&config).await, first);
    std::fs::write(&certificate, "no PEM").unwrap();
    assert_eq!(client.connect(&config).await, first);
    std::fs::remove_file(&key).unwrap();
    assert_eq!(client.connect(&config).await, first);
    let second = client.rotate();
    assert_eq!(client.connect(&config).await, second);
}

#[test]
fn a_key_that_does_not_belong_to_the_certificate_is_refused_when_the_files_are_first_loaded() {
    let client = ClientFolder::new();
    client.rotate();
    let files = client.files();
    std::fs::write(files.key.as_ref().unwrap(), client.issue_client().1).unwrap();
    let error = files.load().unwrap_err().to_string();
    assert!(error.contains("check that the key belongs to the certificate"), "{error}");
}
