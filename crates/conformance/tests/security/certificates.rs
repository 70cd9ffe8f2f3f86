//! Certificate requests: who may request which subject, and with which key. Signers read requests with Go's libraries, so every
//! check must read the same subject and key as Go.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use conformance::client::{Credentials, Trust};
use conformance::{Client, Server, TestAuthority, accepts, rejects};
use http::Method;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, DnValue, IsCa, Issuer, KeyPair,
    PublicKeyData,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const GROUP: &str = "/apis/certificates.k8s.io/v1";
const SIGNING_REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const POD_REQUESTS: &str = "/apis/certificates.k8s.io/v1/namespaces/default/podcertificaterequests";
const SIGNER: &str = "example.com/signer";
const HOUR: i64 = 3600;

fn utf8(text: &str) -> DnValue {
    DnValue::Utf8String(text.to_owned())
}

fn bmp(text: &str) -> DnValue {
    DnValue::BmpString(text.try_into().unwrap())
}

/// A certificate request for an organization and a common name in PEM format.
fn request(organization: DnValue, name: DnValue) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, organization);
    params.distinguished_name.push(DnType::CommonName, name);
    params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap()
}

/// Two requests in one text: a lax reader takes the first, and Go, which does not accept its end, the second.
fn two_requests_in_one_text(harmless: &str, wanted: &str) -> String {
    format!("{}{wanted}", harmless.replace("-----END", " -----END"))
}

/// A signed request whose subject was replaced by other bytes of the same length.
fn forged(pem: &str, from: &str, to: &str) -> String {
    let body: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
    let mut der = STANDARD.decode(body).unwrap();
    let at = der.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
    der[at..at + from.len()].copy_from_slice(to.as_bytes());
    let label = "CERTIFICATE REQUEST";
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der))
}

fn signing_request(name: &str, signer: &str, pem: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "signerName": signer, "usages": ["digital signature", "client auth"], "request": STANDARD.encode(pem)}})
}

fn message(status: &Value) -> &str {
    status["message"].as_str().unwrap()
}

#[tokio::test]
async fn system_masters_cannot_be_requested_in_any_encoding() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let signer = "kubernetes.io/kube-apiserver-client";
    let harmless = request(utf8("devs"), utf8("x"));
    let masters = request(utf8("system:masters"), utf8("root"));
    let mut passed = Vec::new();
    for (name, pem) in [
        ("plain", masters.clone()),
        ("bmp", request(bmp("system:masters"), utf8("root"))),
        ("bmp-with-terminator", request(bmp("system:masters\0"), utf8("root"))),
        ("teletex", request(DnValue::TeletexString("system:masters".try_into().unwrap()), utf8("root"))),
        ("indented-end", two_requests_in_one_text(&harmless, &masters)),
        ("end-in-a-line", harmless.replace("\n-----END", "-----END") + &masters),
        ("begin-in-a-line", format!("x{harmless}{masters}")),
    ] {
        let status = client.post(SIGNING_REQUESTS, &signing_request(name, signer, &pem)).await;
        match rejects(status, 403, "Forbidden") {
            Ok(status) => {
                let words = "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed";
                assert!(message(&status).ends_with(words), "{name}: {status}");
            }
            Err(_) => passed.push(name),
        }
    }
    assert_eq!(passed, Vec::<&str>::new());
    // A subject that Go would skip is rejected.
    let universal = forged(&harmless, "\u{c}\u{4}devs", "\u{1c}\u{4}devs");
    let status = client.post(SIGNING_REQUESTS, &signing_request("universal", signer, &universal)).await;
    rejects(status, 422, "Invalid").unwrap();
    // Requests for other signers are not restricted, and only the first request counts.
    accepts(client.post(SIGNING_REQUESTS, &signing_request("other", SIGNER, &masters)).await).unwrap();
    let followed = format!("a comment\n{harmless}{masters}");
    for (name, pem) in [("good", harmless), ("bmp-good", request(bmp("devs"), bmp("x"))), ("two", followed)] {
        accepts(client.post(SIGNING_REQUESTS, &signing_request(name, signer, &pem)).await).unwrap();
    }
}

#[tokio::test]
async fn a_request_with_an_invalid_signature_is_rejected() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let good = request(utf8("devs"), utf8("alice"));
    accepts(client.post(SIGNING_REQUESTS, &signing_request("good", SIGNER, &good)).await).unwrap();
    let forged = forged(&good, "alice", "admin");
    let status = client.post(SIGNING_REQUESTS, &signing_request("forged", SIGNER, &forged)).await;
    let status = rejects(status, 422, "Invalid").unwrap();
    let wanted = format!(
        "spec.request: Invalid value: \"{}\": x509: ECDSA verification failure",
        STANDARD.encode(&forged)
    );
    assert!(message(&status).ends_with(&wanted), "{status}");
}

/// A client with a certificate of `authority`.
fn client(authority: &TestAuthority, server: &Server, name: &str, group: &str) -> Client {
    let credentials = authority.client(name, &[group], None).unwrap();
    Client::new(&server.url, Trust::Anything, credentials).unwrap()
}

#[tokio::test]
async fn a_node_may_request_only_its_own_certificate() {
    let (authority, folder) = (TestAuthority::new("clients").unwrap(), TempDir::new().unwrap());
    let ca = folder.path().join("ca.crt");
    let flags = ["--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction"];
    let server =
        Server::serve(&[flags[0], flags[1], &authority.flag("client-ca-file", &ca).unwrap()]).await.unwrap();
    let one = client(&authority, &server, "system:node:one", "system:nodes");
    let signer = "kubernetes.io/kube-apiserver-client-kubelet";
    let ask =
        async |name: &str, pem: &str| one.post(SIGNING_REQUESTS, &signing_request(name, signer, pem)).await;
    let own = request(utf8("system:nodes"), utf8("system:node:one"));
    let other = request(utf8("system:nodes"), utf8("system:node:two"));
    accepts(ask("own", &own).await).unwrap();
    for (name, pem) in [("other", other.clone()), ("disguised", two_requests_in_one_text(&own, &other))] {
        let status = rejects(ask(name, &pem).await, 403, "Forbidden").unwrap();
        let words = "can only create a node CSR with CN=system:node:one";
        assert!(message(&status).ends_with(words), "{name}: {status}");
    }
    accepts(ask("own-bmp", &request(utf8("system:nodes"), bmp("system:node:one"))).await).unwrap();
}

/// A key, its pod certificate request, and certificates to issue for it.
struct PodRequest {
    key: KeyPair,
    authority: (CertificateParams, KeyPair),
    now: i64,
}

impl PodRequest {
    fn new(key: KeyPair) -> Self {
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        PodRequest {
            key,
            authority: (authority, KeyPair::generate().unwrap()),
            now: i64::try_from(now).unwrap(),
        }
    }

    fn stub(&self) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.serialize_request(&self.key).unwrap().der().to_vec()
    }

    fn object(name: &str, stub: &[u8]) -> Value {
        json!({"metadata": {"name": name}, "spec": {
            "signerName": SIGNER, "podName": "p", "podUID": "u", "serviceAccountName": "s", "serviceAccountUID": "u",
            "nodeName": "n", "nodeUID": "u", "maxExpirationSeconds": 24 * HOUR, "stubPKCS10Request": STANDARD.encode(stub)}})
    }

    /// A certificate for a key that is valid from now on.
    fn issue(&self, key: &impl PublicKeyData, lifetime: i64) -> String {
        let mut params = CertificateParams::new(vec!["p.default.pod".to_owned()]).unwrap();
        let time = |seconds| OffsetDateTime::from_unix_timestamp(seconds).unwrap();
        (params.not_before, params.not_after) = (time(self.now), time(self.now + lifetime));
        let issuer = Issuer::from_params(&self.authority.0, &self.authority.1);
        params.signed_by(key, &issuer).unwrap().pem()
    }

    fn status(&self, chain: &str, lifetime: i64) -> Value {
        let now = rfc3339(self.now);
        json!({"certificateChain": chain, "notBefore": now, "notAfter": rfc3339(self.now + lifetime),
            "beginRefreshAt": rfc3339(self.now + lifetime / 2),
            "conditions": [{"type": "Issued", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": now}]})
    }
}

fn rfc3339(seconds: i64) -> String {
    let time = OffsetDateTime::from_unix_timestamp(seconds).unwrap();
    let (month, day, hour) = (u8::from(time.month()), time.day(), time.hour());
    format!("{}-{month:02}-{day:02}T{hour:02}:{:02}:{:02}Z", time.year(), time.minute(), time.second())
}

/// Stores a request with this name and status.
async fn request_with_status(client: &Client, name: &str, status: Value) -> Value {
    let mut stored = accepts(client.get(&format!("{POD_REQUESTS}/{name}")).await).unwrap();
    stored["status"] = status;
    stored
}

/// Grants alice all permissions for the API group except those for signers, and bob those to sign for one signer.
async fn grant(client: &Client) {
    let at = "/apis/rbac.authorization.k8s.io/v1";
    for (name, user, rules) in [
        (
            "writer",
            "alice",
            json!([{"apiGroups": ["certificates.k8s.io"], "verbs": ["*"],
            "resources": ["podcertificaterequests", "podcertificaterequests/status"]}]),
        ),
        (
            "signer",
            "bob",
            json!([
            {"apiGroups": ["certificates.k8s.io"], "verbs": ["get", "update", "patch"],
                "resources": ["podcertificaterequests", "podcertificaterequests/status"]},
            {"apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "verbs": ["sign"],
                "resourceNames": ["example.com/*"]}]),
        ),
    ] {
        let role = json!({"metadata": {"name": name}, "rules": rules});
        accepts(client.post(&format!("{at}/clusterroles"), &role).await).unwrap();
        let binding = json!({"metadata": {"name": name}, "subjects": [{"kind": "User", "name": user}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}});
        accepts(client.post(&format!("{at}/clusterrolebindings"), &binding).await).unwrap();
    }
}

#[tokio::test]
async fn issuing_and_denying_pod_certificates_needs_permission_to_sign() {
    let server = Server::serve(&[]).await.unwrap();
    let admin = server.client().unwrap();
    grant(&admin).await;
    let (alice, bob) = (admin.as_token(Some("alicetoken")), admin.as_token(Some("bobtoken")));
    let pod = PodRequest::new(KeyPair::generate().unwrap());
    let issued = pod.status(&pod.issue(&pod.key, HOUR), HOUR);
    let mut denied = json!({"conditions": issued["conditions"]});
    denied["conditions"][0]["type"] = json!("Denied");
    for (name, status) in [("issued", issued), ("denied", denied)] {
        accepts(alice.post(POD_REQUESTS, &PodRequest::object(name, &pod.stub())).await).unwrap();
        let at = format!("{POD_REQUESTS}/{name}/status");
        let mut object = request_with_status(&admin, name, status).await;
        let refused = rejects(alice.json(Method::PUT, &at, &object).await, 422, "Invalid").unwrap();
        let words = format!(
            "PodCertificateRequest.certificates.k8s.io \"{name}\" is invalid: spec.signerName: Forbidden: \
             User \"alice\" is not permitted to \"sign\" for signer \"{SIGNER}\""
        );
        assert_eq!(message(&refused), words);
        // The signer of the stored request counts, not that of the body.
        object["spec"]["signerName"] = json!("other.example.org/signer");
        rejects(alice.json(Method::PUT, &at, &object).await, 422, "Invalid").unwrap();
        // A status update without a change needs no permission.
        accepts(alice.json(Method::PUT, &at, &request_with_status(&admin, name, json!({})).await).await)
            .unwrap();
        accepts(
            bob.json(Method::PUT, &at, &request_with_status(&admin, name, object["status"].clone()).await)
                .await,
        )
        .unwrap();
    }
    let listed = accepts(admin.get(&format!("{GROUP}/podcertificaterequests")).await).unwrap();
    assert_eq!(listed["items"][0]["status"]["conditions"][0]["type"], "Denied");
}

#[tokio::test]
async fn an_issued_chain_must_match_the_requested_key_and_validity() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let pod = PodRequest::new(KeyPair::generate().unwrap());
    accepts(client.post(POD_REQUESTS, &PodRequest::object("r", &pod.stub())).await).unwrap();
    let other = KeyPair::generate().unwrap();
    let good = pod.issue(&pod.key, HOUR);
    let status = |chain: &str| pod.status(chain, HOUR);
    let with = |field: &str, value: Value| {
        let mut status = status(&good);
        status[field] = value;
        status
    };
    let early = rfc3339(pod.now - 1);
    for (status, words) in [
        (
            status(&pod.issue(&other, HOUR)),
            "leaf certificate was not issued to the requested public key".to_owned(),
        ),
        (with("notBefore", Value::Null), "status.notBefore: Required value: must be present and consistent with the issued certificate".to_owned()),
        (with("notBefore", json!(early)), format!("status.notBefore: Invalid value: \"{early}\": must be set to the NotBefore time encoded in the leaf certificate")),
        (with("beginRefreshAt", json!(early)), format!("status.beginRefreshAt: Invalid value: \"{early}\": must be at least 10 minutes after status.notBefore")),
        (
            pod.status(&pod.issue(&pod.key, HOUR - 1), HOUR - 1),
            "status.certificateChain: Invalid value: 3599000000000: leaf certificate lifetime must be >= 1 hour".to_owned(),
        ),
        (
            pod.status(&pod.issue(&pod.key, 25 * HOUR), 25 * HOUR),
            "status.certificateChain: Invalid value: 90000000000000: leaf certificate lifetime must be <= spec.maxExpirationSeconds (86400)".to_owned(),
        ),
        (status("none"), "issued certificate chain must contain at least one certificate".to_owned()),
    ] {
        let object = request_with_status(&client, "r", status).await;
        let refused = client.json(Method::PUT, &format!("{POD_REQUESTS}/r/status"), &object).await;
        let refused = rejects(refused, 422, "Invalid").unwrap_or_else(|problem| panic!("{words}: {problem}"));
        assert!(message(&refused).ends_with(&words), "{words}: {refused}");
    }
    let object = request_with_status(&client, "r", status(&good)).await;
    accepts(client.json(Method::PUT, &format!("{POD_REQUESTS}/r/status"), &object).await).unwrap();
}

#[tokio::test]
async fn a_pod_certificate_request_proves_possession_of_a_strong_key() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    for (name, algorithm) in [
        ("p256", &rcgen::PKCS_ECDSA_P256_SHA256),
        ("p384", &rcgen::PKCS_ECDSA_P384_SHA384),
        ("p521", &rcgen::PKCS_ECDSA_P521_SHA512),
        ("ed25519", &rcgen::PKCS_ED25519),
    ] {
        let pod = PodRequest::new(KeyPair::generate_for(algorithm).unwrap());
        let mut stub = pod.stub();
        accepts(client.post(POD_REQUESTS, &PodRequest::object(name, &stub)).await).unwrap();
        // The version field, which is part of the signed bytes.
        let at = stub.windows(3).position(|window| window == [2, 1, 0]).unwrap();
        stub[at + 2] = 1;
        let refused = client.post(POD_REQUESTS, &PodRequest::object(&format!("forged-{name}"), &stub)).await;
        let refused = rejects(refused, 422, "Invalid").unwrap();
        let words = "spec.stubPKCS10Request: Invalid value: invalid signature";
        assert!(message(&refused).ends_with(words), "{refused}");
    }
    let weak = PodRequest::new(
        KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048).unwrap(),
    );
    let refused = client.post(POD_REQUESTS, &PodRequest::object("weak", &weak.stub())).await;
    let refused = rejects(refused, 422, "Invalid").unwrap();
    let words = "spec.stubPKCS10Request: Invalid value: \"2048-bit modulus\": RSA keys must have modulus size 3072 or 4096";
    assert!(message(&refused).ends_with(words), "{refused}");
    let strong = PodRequest::new(
        KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_3072).unwrap(),
    );
    accepts(client.post(POD_REQUESTS, &PodRequest::object("strong", &strong.stub())).await).unwrap();
}

/// The status line of the answer to a request with these unescaped header lines.
async fn status_line_for_headers(client: &Client, headers: &[&[u8]]) -> String {
    let mut stream = client.tls_stream().await.unwrap();
    let mut request = b"GET /api HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n".to_vec();
    for header in headers {
        request.extend_from_slice(header);
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    stream.write_all(&request).await.unwrap();
    let mut answer = Vec::new();
    // The server may close the connection without a TLS close_notify.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn malformed_identity_headers_do_not_fall_back_to_the_proxy_user() {
    // One CA for clients and proxies: the proxy's certificate also authenticates a user of its own.
    let (authority, folder) = (TestAuthority::new("clients").unwrap(), TempDir::new().unwrap());
    let ca = folder.path().join("ca.crt");
    let server = Server::serve(&[
        &authority.flag("client-ca-file", &ca).unwrap(),
        &authority.flag("requestheader-client-ca-file", &ca).unwrap(),
        "--requestheader-allowed-names=front",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-uid-headers=X-Remote-Uid",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
    ])
    .await
    .unwrap();
    let front = client(&authority, &server, "front", "system:masters");

    // The proxy itself, and on behalf of a user whose name is not ASCII.
    assert!(status_line_for_headers(&front, &[]).await.contains(" 200 "));
    assert!(
        status_line_for_headers(
            &front,
            &["x-remote-user: zoë".as_bytes(), b"x-remote-group: system:masters"]
        )
        .await
        .contains(" 200 ")
    );
    let name: &[u8] = b"x-remote-user: alice";
    let unreadable: [&[&[u8]]; 4] = [
        &[b"x-remote-user: \xff"],
        &[name, b"x-remote-group: system:masters", b"x-remote-group: \xff"],
        &[name, b"x-remote-group: system:masters", b"x-remote-uid: \xe9"],
        &[name, b"x-remote-group: system:masters", b"x-remote-extra-scopes: \xc3"],
    ];
    for headers in unreadable {
        let line = status_line_for_headers(&front, headers).await;
        assert!(line.contains(" 401 "), "{line}");
    }
    // A malformed token does not fall back to anonymous access either.
    let anonymous = Client::new(&server.url, Trust::Anything, Credentials::None).unwrap();
    let line = status_line_for_headers(&anonymous, &[b"authorization: Bearer \xff"]).await;
    assert!(line.contains(" 401 "), "{line}");
}
