use outbound::{Failure, FailureKind};
use runtime::MetricRegistry;

use super::CustomMetrics;

/// Certificates without SAN or with a SHA-1 signature are counted; other failures are not.
#[test]
fn only_certificates_without_san_or_with_sha1_are_counted() {
    let metrics = CustomMetrics::new(&MetricRegistry::new()).unwrap();
    let fail = |why: &str| {
        let message = format!("Post \"https://x\": tls: failed to verify certificate: {why}");
        metrics.webhook_failed(&Failure { kind: FailureKind::Connect, message });
        (metrics.missing_san.get(), metrics.insecure_sha1.get())
    };
    assert_eq!(fail("x509: certificate signed by unknown authority"), (0, 0));
    assert_eq!(fail("x509: certificate relies on legacy Common Name field, use SANs instead"), (1, 0));
    let sha1 = "x509: certificate signed by unknown authority (possibly because of \"x509: cannot verify signature: insecure algorithm SHA1-RSA\" while trying to verify candidate authority certificate \"ca\")";
    assert_eq!(fail(sha1), (1, 1));
}
