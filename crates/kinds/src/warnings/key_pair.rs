//! Checks the key pair of a TLS secret for the PEM errors that Go reports.

use value::Value;

/// Returns the first PEM error in Go's words. Does not parse the certificate or key itself.
pub(super) fn problem(secret: &Value) -> Option<String> {
    let labels = |key: &str| -> Vec<String> {
        let text = secret.str_at(&["data", key]).unwrap_or_default();
        let bytes = value::go::base64::STD.decode(text).unwrap_or_default();
        x509::pem::blocks(&bytes).map(|block| block.label).collect()
    };
    let certificate = labels("tls.crt");
    if !certificate.iter().any(|label| label == "CERTIFICATE") {
        return Some(match certificate.as_slice() {
            [] => "tls: failed to find any PEM data in certificate input".to_owned(),
            [one] if one.ends_with("PRIVATE KEY") => "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched".to_owned(),
            skipped => format!("tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the following types: [{}]", skipped.join(" ")),
        });
    }
    let key = labels("tls.key");
    if key.iter().any(|label| label == "PRIVATE KEY" || label.ends_with(" PRIVATE KEY")) {
        return None;
    }
    Some(match key.as_slice() {
        [] => "tls: failed to find any PEM data in key input".to_owned(),
        [one] if one == "CERTIFICATE" => {
            "tls: found a certificate rather than a key in the PEM for the private key".to_owned()
        }
        skipped => format!(
            "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks of the following types: [{}]",
            skipped.join(" ")
        ),
    })
}
