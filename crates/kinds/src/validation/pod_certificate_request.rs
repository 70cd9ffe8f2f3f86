//! Validation of PodCertificateRequest.
//!
//! A request must prove possession of its key. An issued certificate must be for that key and have the requested
//! lifetime. Who may issue, deny or fail a request depends on the caller and is checked elsewhere.

use api::FieldErrors;
use api::field::FieldErrorKind;
use api::names;
use api::time::Timestamp;
use api::validation::fields::{At, IMMUTABLE, Read, Report, same};
use api::validation::meta;
use value::Value;
use x509::{Certificate, CertificateRequest, Curve, PublicKey, pem};

use super::pod::projected::signer_name;
use super::{ValidationContext, ValidationRules, internal_json};

pub(crate) const POD_CERTIFICATE_REQUEST: ValidationRules = ValidationRules {
    create: |request, _| create(request),
    update: |new, old, _| {
        let mut errors = meta::update(new, old);
        if !same(new.part("spec"), old.part("spec")) {
            let shown = internal_json::compact("PodCertificateRequestSpec", new.part("spec"));
            errors.report(FieldErrorKind::Invalid, &SPEC, None, format!("{shown}: {IMMUTABLE}"));
        }
        errors
    },
    update_status,
};

const SPEC: At<'static> = At::new("spec");
const STATUS: At<'static> = At::new("status");
const CHAIN: At<'static> = At::new("status.certificateChain");
const NOT_BEFORE: At<'static> = At::new("status.notBefore");
const NOT_AFTER: At<'static> = At::new("status.notAfter");
const BEGIN_REFRESH: At<'static> = At::new("status.beginRefreshAt");

const MAX_KEY: usize = 10 << 10;
const MAX_CHAIN: usize = 100 << 10;
const MAX_UID: usize = 128;
const MIN_LIFETIME: i64 = 3600;
const MAX_LIFETIME: i64 = 91 * 24 * 3600;
const MAX_KUBERNETES_LIFETIME: i64 = 24 * 3600;
/// Maximum distance of `notBefore` from now, in seconds.
const CLOCK_SKEW: i64 = 5 * 60;
/// Minimum distance of `beginRefreshAt` from `notBefore` and `notAfter`, in seconds.
const REFRESH_MARGIN: i64 = 10 * 60;

fn create(request: &Value) -> FieldErrors {
    let mut errors = meta::create(request, true, names::name_is_dns_subdomain);
    let spec = request.part("spec");
    let signer = spec.text("signerName");
    signer_name(signer, &SPEC.field("signerName"), &mut errors);
    let at = SPEC.field("unverifiedUserAnnotations");
    let mut size = 0;
    for (key, text) in spec.text_entries("unverifiedUserAnnotations") {
        let path = value::Path::root().field(at.to_string());
        errors.extend(names::is_domain_prefixed_key(&path, &key.to_lowercase()));
        size += key.len() + text.len();
    }
    if size > meta::MAX_ANNOTATIONS_SIZE {
        errors.too_long(&at, meta::MAX_ANNOTATIONS_SIZE);
    }
    for (name, uid) in
        [("podName", "podUID"), ("serviceAccountName", "serviceAccountUID"), ("nodeName", "nodeUID")]
    {
        let text = spec.text(name);
        errors.invalid_each(&SPEC.field(name), text, names::is_dns1123_subdomain(text));
        let id = spec.text(uid);
        if id.is_empty() {
            errors.invalid(&SPEC.field(uid), id, "must not be empty");
        }
        if id.len() > MAX_UID {
            errors.too_long(&SPEC.field(uid), MAX_UID);
        }
    }
    let at = SPEC.field("maxExpirationSeconds");
    let Some(seconds) = spec.number_if_set("maxExpirationSeconds") else {
        errors.required(&at, "must be set");
        return errors;
    };
    let host = signer.split('/').next().unwrap_or_default();
    let is_kubernetes = host == "kubernetes.io" || host.ends_with(".kubernetes.io");
    let most = if is_kubernetes { MAX_KUBERNETES_LIFETIME } else { MAX_LIFETIME };
    if !(MIN_LIFETIME..=most).contains(&seconds) {
        errors.invalid(&at, seconds, format!("must be in the range [{MIN_LIFETIME}, {most}]"));
    }
    let is_set = |field: &str| !spec.text(field).is_empty();
    match (is_set("stubPKCS10Request"), is_set("pkixPublicKey"), is_set("proofOfPossession")) {
        (true, false, false) => stub_request(spec, &mut errors),
        (false, true, true) => possession(spec, &mut errors),
        _ => {
            let detail =
                "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set";
            omitted(&SPEC, detail, &mut errors);
        }
    }
    errors
}

/// Reports an invalid value without quoting it.
fn omitted(at: &At<'_>, detail: &str, errors: &mut FieldErrors) {
    errors.report(FieldErrorKind::Invalid, at, None, detail.to_owned());
}

fn bytes(spec: Option<&Value>, field: &str) -> Vec<u8> {
    value::go::base64::STD.decode(spec.text(field)).unwrap_or_default()
}

fn stub_request(spec: Option<&Value>, errors: &mut FieldErrors) {
    let at = SPEC.field("stubPKCS10Request");
    let der = bytes(spec, "stubPKCS10Request");
    if der.len() > MAX_KEY {
        errors.too_long(&at, MAX_KEY);
        return;
    }
    let Ok(request) = CertificateRequest::from_der(&der) else {
        omitted(&at, "must be a valid PKCS#10 CSR", errors);
        return;
    };
    let unknown = |errors: &mut FieldErrors| omitted(&at, UNKNOWN_KEY, errors);
    let curves = "elliptic public keys must use curve P256, P384, or P521";
    let Some(key) = &request.key else { return unknown(errors) };
    if acceptable(key, &at, curves, unknown, errors) && request.check_signature().is_err() {
        omitted(&at, "invalid signature", errors);
    }
}

/// Validates the older proof of possession: a signature of the pod's uid.
fn possession(spec: Option<&Value>, errors: &mut FieldErrors) {
    let key_at = SPEC.field("pkixPublicKey");
    let (key, proof) = (bytes(spec, "pkixPublicKey"), bytes(spec, "proofOfPossession"));
    for (field, bytes) in [("pkixPublicKey", &key), ("proofOfPossession", &proof)] {
        if bytes.len() > MAX_KEY {
            errors.too_long(&SPEC.field(field), MAX_KEY);
            return;
        }
    }
    let shown = spec.text("pkixPublicKey");
    let Ok(key) = PublicKey::from_spki(&key) else {
        errors.invalid(&key_at, shown, "must be a valid PKIX-serialized public key");
        return;
    };
    let unknown = |errors: &mut FieldErrors| errors.invalid(&key_at, shown, UNKNOWN_KEY);
    let curves = "elliptic public keys must use curve P256 or P384";
    if acceptable(&key, &key_at, curves, unknown, errors)
        && !key.verifies_possession(spec.text("podUID").as_bytes(), &proof)
    {
        let detail = "could not verify proof-of-possession signature";
        omitted(&SPEC.field("proofOfPossession"), detail, errors);
    }
}

const UNKNOWN_KEY: &str = "unknown public key type; supported types are Ed25519, ECDSA, and RSA";

/// Returns true if certificates may be issued for keys of this type and size; reports an error otherwise.
fn acceptable(
    key: &PublicKey,
    at: &At<'_>,
    curves: &str,
    unknown: impl FnOnce(&mut FieldErrors),
    errors: &mut FieldErrors,
) -> bool {
    match key {
        PublicKey::Ed25519(_) | PublicKey::Ecdsa { curve: Curve::P256 | Curve::P384 | Curve::P521, .. } => {
            return true;
        }
        PublicKey::Ecdsa { curve, .. } => errors.invalid(at, format!("curve {}", curve.name()), curves),
        PublicKey::Rsa { modulus, .. } => match modulus.len() * 8 {
            3072 | 4096 => return true,
            bits => {
                let detail = "RSA keys must have modulus size 3072 or 4096";
                errors.invalid(at, format!("{bits}-bit modulus"), detail);
            }
        },
        PublicKey::Other => unknown(errors),
    }
    false
}

const OUTCOMES: [&str; 3] = ["Issued", "Denied", "Failed"];

fn update_status(new: &Value, old: &Value, context: &ValidationContext) -> FieldErrors {
    let mut errors = meta::update(new, old);
    if !errors.is_empty() {
        return errors;
    }
    let conditions = new.list_at(&["status", "conditions"]);
    let mut known = 0;
    for (i, condition) in conditions.iter().enumerate() {
        let at = format!("status.conditions.[{i}]");
        let at = At::new(&at);
        let kind = condition.text("type");
        if !OUTCOMES.contains(&kind) {
            errors.not_supported(&at.field("type"), kind, &OUTCOMES);
            continue;
        }
        known += 1;
        if known > 1 {
            let detail = r#"There may be at most one condition with type "Issued", "Denied", or "Failed""#;
            errors.invalid(&at.field("type"), kind, detail);
        }
        if condition.text("status") != "True" {
            errors.not_supported(&at.field("status"), condition.text("status"), &["True"]);
        }
    }
    meta::conditions(conditions, &STATUS.field("conditions"), &mut errors);
    if !errors.is_empty() {
        return errors;
    }
    let outcome = |request: &Value| {
        let conditions = request.list_at(&["status", "conditions"]).iter();
        conditions
            .filter(|condition| condition.text("status") == "True")
            .map(|condition| condition.text("type").to_owned())
            .find(|kind| OUTCOMES.contains(&kind.as_str()))
    };
    let mut refuse = |detail: &str| omitted(&STATUS, detail, &mut errors);
    let unchanged = same(new.part("status"), old.part("status"));
    if outcome(old).is_some() {
        if !unchanged {
            refuse("immutable after PodCertificateRequest is issued, denied, or failed");
        }
        return errors;
    }
    match outcome(new).as_deref() {
        Some("Issued") => issued(new, old.part("spec"), context.now, &mut errors),
        Some(_) => {
            let fields = ["certificateChain", "notBefore", "beginRefreshAt", "notAfter"];
            if fields.iter().any(|field| !new.part("status").text(field).is_empty()) {
                refuse(
                    "non-condition status fields must be empty when denying or failing the PodCertificateRequest",
                );
            }
        }
        None => {
            if !unchanged {
                refuse(r#"status is immutable unless transitioning to "Issued", "Denied", or "Failed""#);
            }
        }
    }
    errors
}

/// Validates an issued certificate. As in kube-apiserver, stops at the first error, except errors about names.
fn issued(request: &Value, spec: Option<&Value>, now: i64, errors: &mut FieldErrors) {
    let chain = request.part("status").text("certificateChain");
    if chain.len() > MAX_CHAIN {
        errors.too_long(&CHAIN, MAX_CHAIN);
        return;
    }
    let Some((leaf, rest)) = pem::decode(chain.as_bytes()) else {
        errors.invalid(&CHAIN, chain, "issued certificate chain must contain at least one certificate");
        return;
    };
    if leaf.label != "CERTIFICATE" {
        let detail = "issued certificate chain must consist entirely of CERTIFICATE PEM blocks";
        errors.invalid(&CHAIN, chain, detail);
        return;
    }
    let Some(leaf) = Certificate::from_der(&leaf.bytes) else {
        errors.invalid(&CHAIN, chain, "leaf certificate does not parse as valid X.509");
        return;
    };
    names_in(&leaf, errors);
    let key = match requested_key(spec) {
        Ok(key) => key,
        Err((field, detail)) => return omitted(&SPEC.field(field), detail, errors),
    };
    if leaf.key.is_none() || leaf.key != key {
        errors.invalid(&CHAIN, chain, "leaf certificate was not issued to the requested public key");
        return;
    }
    if !times(request, spec, &leaf, now, errors) {
        return;
    }
    for block in pem::blocks(rest) {
        if block.label != "CERTIFICATE" {
            // kube-apiserver misspells it like this.
            let detail = "issued certificate chain must consist entirely of CERTFICATE PEM blocks";
            errors.invalid(&CHAIN, chain, detail);
            return;
        }
        if Certificate::from_der(&block.bytes).is_none() {
            errors.invalid(&CHAIN, chain, "intermediate certificate does not parse as valid X.509");
            return;
        }
    }
}

/// Public key of a stored request. The error is the invalid field and the reason.
fn requested_key(spec: Option<&Value>) -> Result<Option<PublicKey>, (&'static str, &'static str)> {
    if !spec.text("stubPKCS10Request").is_empty() {
        return CertificateRequest::from_der(&bytes(spec, "stubPKCS10Request"))
            .map(|request| request.key)
            .map_err(|_| ("stubPKCS10Request", "must be a valid PKCS#10 CSR"));
    }
    PublicKey::from_spki(&bytes(spec, "pkixPublicKey"))
        .map(Some)
        .map_err(|_| ("pkixPublicKey", "must be a valid PKIX-serialized public key"))
}

fn names_in(leaf: &Certificate, errors: &mut FieldErrors) {
    for name in &leaf.dns_names {
        let mut refuse = |detail: &str| errors.invalid(&CHAIN, name.as_str(), detail);
        if name.is_empty() {
            refuse("leaf certificate should not contain empty DNSName");
        }
        if name.contains("..") {
            refuse("leaf certificate's DNSName should not contain '..'");
        }
        if name.starts_with('.') || name.ends_with('.') {
            refuse("leaf certificate's DNSName should not start or end with '.'");
        }
    }
    for address in leaf.email_addresses.iter().filter(|address| !is_mail_address(address)) {
        let detail = "leaf certificate should not contain invalid EmailAddress";
        errors.invalid(&CHAIN, address.as_str(), detail);
    }
}

/// Checks that the times in the status equal those of the certificate and are in range. Reports only the first error.
fn times(
    request: &Value,
    spec: Option<&Value>,
    leaf: &Certificate,
    now: i64,
    errors: &mut FieldErrors,
) -> bool {
    let status = request.part("status");
    let time = |field: &str| Timestamp::parse(status.text(field)).ok().map(|time| time.seconds);
    let (before, after, refresh) = (time("notBefore"), time("notAfter"), time("beginRefreshAt"));
    if before.is_none() {
        errors.required(&NOT_BEFORE, "must be present and consistent with the issued certificate");
    }
    if after.is_none() {
        errors.required(&NOT_AFTER, "must be present and consistent with the issued certificate");
    }
    if refresh.is_none() {
        let detail = "must be present and in the range [notbefore+10min, notafter-10min]";
        errors.required(&BEGIN_REFRESH, detail);
    }
    let (true, Some(before), Some(after), Some(refresh)) = (errors.is_empty(), before, after, refresh) else {
        return false;
    };
    let mut wrong_time = |at: &At<'_>, time: i64, detail: &str| {
        errors.invalid(at, Timestamp::from_seconds(time).time(), detail);
        false
    };
    if before != leaf.not_before {
        let detail = "must be set to the NotBefore time encoded in the leaf certificate";
        return wrong_time(&NOT_BEFORE, before, detail);
    }
    if before.abs_diff(now) >= CLOCK_SKEW.unsigned_abs() {
        let detail = "must be set to within 5 minutes of kube-apiserver's current time";
        return wrong_time(&NOT_BEFORE, before, detail);
    }
    if after != leaf.not_after {
        let detail = "must be set to the NotAfter time encoded in the leaf certificate";
        return wrong_time(&NOT_AFTER, after, detail);
    }
    let lifetime = after.saturating_sub(before);
    let most = spec.number("maxExpirationSeconds");
    let wrong_lifetime = if lifetime < MIN_LIFETIME {
        Some("leaf certificate lifetime must be >= 1 hour".to_owned())
    } else if lifetime > most {
        Some(format!("leaf certificate lifetime must be <= spec.maxExpirationSeconds ({most})"))
    } else {
        None
    };
    if let Some(detail) = wrong_lifetime {
        // Go prints durations in nanoseconds.
        errors.invalid(&CHAIN, lifetime.saturating_mul(1_000_000_000), detail);
        return false;
    }
    if refresh < before.saturating_add(REFRESH_MARGIN) {
        return wrong_time(&BEGIN_REFRESH, refresh, "must be at least 10 minutes after status.notBefore");
    }
    if refresh > after.saturating_sub(REFRESH_MARGIN) {
        return wrong_time(&BEGIN_REFRESH, refresh, "must be at least 10 minutes before status.notAfter");
    }
    true
}

/// Returns true if Go's `net/mail` accepts the text: `local@domain`, or a name followed by the address in angle brackets.
fn is_mail_address(text: &str) -> bool {
    let text = text.trim_matches([' ', '\t']);
    let address = match text.strip_suffix('>') {
        Some(start) => match start.rsplit_once('<') {
            Some((_, address)) => address,
            None => return false,
        },
        None => text,
    };
    let is_atom = |atom: &str| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c);
        !atom.is_empty() && atom.chars().all(allowed)
    };
    let is_dotted = |text: &str| text.split('.').all(is_atom);
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let quoted = local.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let is_local =
        is_dotted(local) || quoted.is_some_and(|text| !text.is_empty() && !text.contains(['"', '\\']));
    let literal = domain.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    is_local && (is_dotted(domain) || literal.is_some_and(|text| text.parse::<std::net::IpAddr>().is_ok()))
}

#[cfg(test)]
mod tests;
