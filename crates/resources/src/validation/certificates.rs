//! certificates.k8s.io: CertificateSigningRequest, ClusterTrustBundle, PodCertificateRequest.
//!
//! Certificates and requests are parsed, not verified: whether a request is signed with the key it names is for the
//! signer to check.

use std::collections::HashMap;

use api::FieldErrors;
use api::field::FieldErrorKind;
use api::names;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use value::Value;
use x509_parser::prelude::{FromDer as _, X509Certificate, X509CertificationRequest};

use super::fields::{At, IMMUTABLE, Read, Report, same, supersede};
use super::pod_projected::signer_name;
use super::{Context, Rules, internal_json, meta, unified_diff};
use crate::repeated::Repeated;

pub(super) const SIGNING_REQUEST: Rules = Rules {
    create: |request, _| signing_request(request, None),
    update: |new, old, _| signing_request_update(new, old, Change::Main),
    update_status: |new, old, _| signing_request_update(new, old, Change::Status),
};
pub(super) const TRUST_BUNDLE: Rules = Rules {
    create: |bundle, _| trust_bundle(bundle, true),
    update: |new, old, _| {
        let changed = new.part("spec").text("trustBundle") != old.part("spec").text("trustBundle");
        let mut errors = trust_bundle(new, changed);
        errors.extend(meta::update(new, old));
        let (signer, former) = (new.part("spec").text("signerName"), old.part("spec").text("signerName"));
        if signer != former {
            errors.invalid(&At::new("spec.signerName"), signer, IMMUTABLE);
        }
        errors
    },
    update_status: super::no_rules,
};
pub(super) const POD_CERTIFICATE_REQUEST: Rules = Rules {
    create: |request, _| pod_request(request),
    update: |new, old, _| {
        let mut errors = meta::update(new, old);
        if !same(new.part("spec"), old.part("spec")) {
            let shown = internal_json::compact("PodCertificateRequestSpec", new.part("spec"));
            errors.report(FieldErrorKind::Invalid, &SPEC, None, format!("{shown}: {IMMUTABLE}"));
        }
        errors
    },
    update_status: pod_request_status,
};

const SPEC: At<'static> = At::new("spec");
const CONDITIONS: At<'static> = At::new("status.conditions");
const LEGACY: &str = "kubernetes.io/legacy-unknown";
const MAX_TRUST_BUNDLE: usize = 1 << 20;
const MAX_KEY: usize = 10 << 10;
const MAX_CHAIN: usize = 100 << 10;
const MAX_UID: usize = 128;
const MIN_LIFETIME: i64 = 3600;
const MAX_LIFETIME: i64 = 91 * 24 * 3600;
const MAX_KUBERNETES_LIFETIME: i64 = 24 * 3600;

const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// Which part of a request is being changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Main,
    Status,
    Approval,
}

/// An update of a signing request through `approval`.
pub fn approval(new: &Value, old: &Value, _: &Context) -> FieldErrors {
    signing_request_update(new, old, Change::Approval)
}

/// One block of PEM text.
pub(crate) struct Block {
    pub(crate) label: String,
    has_headers: bool,
    bytes: Vec<u8>,
}

/// The PEM blocks of a text, skipping whatever is not PEM.
pub(crate) fn pem_blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let label = line.trim_end().strip_prefix("-----BEGIN ").and_then(|rest| rest.strip_suffix("-----"));
        let Some(label) = label else { continue };
        let end = format!("-----END {label}-----");
        let mut body = String::new();
        let mut has_headers = false;
        let mut closed = false;
        for line in lines.by_ref() {
            let line = line.trim();
            if line == end {
                closed = true;
                break;
            }
            if line.contains(':') {
                has_headers = true;
            } else {
                body.push_str(line);
            }
        }
        if let (true, Ok(bytes)) = (closed, STANDARD.decode(&body)) {
            blocks.push(Block { label: label.to_owned(), has_headers, bytes });
        }
    }
    blocks
}

fn decoded(text: &str) -> String {
    let bytes = STANDARD.decode(text).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn parse_request(text: &str) -> Result<(), String> {
    signing_request_organizations(text).map(|_| ())
}

/// The organizations in the subject of a certificate signing request, which comes as PEM in base64.
pub fn signing_request_organizations(text: &str) -> Result<Vec<String>, String> {
    // A name in an encoding that is not text is still a name; it must not hide what it says.
    with_request(text, |request| {
        let names = request.certification_request_info.subject.iter_organization();
        names.map(|name| String::from_utf8_lossy(name.attr_value().data).into_owned()).collect()
    })
}

/// The common name in the subject of such a request; of several the last, as Go reads them.
pub fn signing_request_common_name(text: &str) -> Result<String, String> {
    with_request(text, |request| {
        let names = request.certification_request_info.subject.iter_common_name();
        let last = names.last().map(|name| String::from_utf8_lossy(name.attr_value().data).into_owned());
        last.unwrap_or_default()
    })
}

fn with_request<T>(text: &str, see: impl FnOnce(&X509CertificationRequest<'_>) -> T) -> Result<T, String> {
    match pem_blocks(&decoded(text)).first() {
        Some(block) if block.label == "CERTIFICATE REQUEST" => {
            let Ok((_, request)) = X509CertificationRequest::from_der(&block.bytes) else {
                return Err("asn1: structure error: invalid certificate request".to_owned());
            };
            Ok(see(&request))
        }
        _ => Err("PEM block type must be CERTIFICATE REQUEST".to_owned()),
    }
}

fn check_certificates(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Ok(());
    }
    let blocks = pem_blocks(&decoded(text));
    for block in &blocks {
        if block.label != "CERTIFICATE" {
            let label = api::field::quote(&block.label);
            return Err(format!("only CERTIFICATE PEM blocks are allowed, found {label}"));
        }
        if block.has_headers {
            return Err("no PEM block headers are permitted".to_owned());
        }
        if X509Certificate::from_der(&block.bytes).is_err() {
            return Err("x509: malformed certificate".to_owned());
        }
    }
    if blocks.is_empty() {
        return Err("must contain at least one CERTIFICATE PEM block".to_owned());
    }
    Ok(())
}

fn repeats(values: &[&str]) -> bool {
    Repeated::earlier(values).any()
}

fn signing_request(request: &Value, old: Option<&Value>) -> FieldErrors {
    let mut errors = meta::create(request, false, |_, _| Vec::new());
    let spec = request.part("spec");
    if let Err(why) = parse_request(spec.text("request")) {
        let shown = spec.part("request").cloned().unwrap_or_default();
        errors.invalid(&SPEC.field("request"), shown, why);
    }
    let usages: Vec<&str> = spec.texts("usages").collect();
    let former: Vec<&str> = old.map(|old| old.part("spec").texts("usages").collect()).unwrap_or_default();
    let at = SPEC.field("usages");
    if usages.is_empty() {
        errors.required(&at, "");
    }
    if former.iter().all(|usage| USAGES.contains(usage)) {
        for (i, usage) in usages.iter().enumerate().filter(|(_, usage)| !USAGES.contains(usage)) {
            errors.not_supported(&at.index(i), *usage, &USAGES);
        }
    }
    if !repeats(&former) {
        let repeated = Repeated::earlier(&usages);
        for (i, usage) in usages.iter().enumerate() {
            if repeated.at(i) {
                errors.duplicate(&at.index(i), *usage);
            }
        }
    }
    let signer = spec.text("signerName");
    let was_legacy = old.is_some_and(|old| old.part("spec").text("signerName") == LEGACY);
    if signer == LEGACY && !was_legacy {
        let detail = "the legacy signerName is not allowed via this API version";
        errors.invalid(&SPEC.field("signerName"), signer, detail);
    } else {
        signer_name(signer, &SPEC.field("signerName"), &mut errors);
    }
    if let Some(seconds) = spec.number_if_set("expirationSeconds")
        && seconds < 600
    {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.invalid(&SPEC.field("expirationSeconds"), seconds, detail);
    }
    let mut declared = FieldErrors::new();
    request_conditions(request, old, &mut errors, &mut declared);
    let certificate = request.part("status").text("certificate");
    let former = old.map(|old| old.part("status").text("certificate"));
    let kept = former.is_some_and(|former| former == certificate || check_certificates(former).is_err());
    if !kept && let Err(why) = check_certificates(certificate) {
        errors.invalid(&At::new("status.certificate"), "<certificate data>", why);
    }
    supersede(errors, declared)
}

fn request_conditions(
    request: &Value,
    old: Option<&Value>,
    errors: &mut FieldErrors,
    declared: &mut FieldErrors,
) {
    let types = |request: &Value| -> Vec<String> {
        let conditions = request.list_at(&["status", "conditions"]).iter();
        conditions.map(|condition| condition.text("type").to_owned()).collect()
    };
    let former = old.map(types).unwrap_or_default();
    let has = |kind: &str| former.iter().any(|former| former == kind);
    let had_both = has("Approved") && has("Denied");
    let had_empty = has("");
    let had_repeated = repeats(&former.iter().map(String::as_str).collect::<Vec<_>>());
    let conditions = request.list_at(&["status", "conditions"]);
    let repeated = Repeated::of_field(conditions, "type");
    for (i, condition) in conditions.iter().enumerate() {
        let at = CONDITIONS.index(i);
        let kind = condition.text("type");
        if kind.is_empty() && !had_empty {
            errors.required(&at.field("type"), "");
        }
        let statuses: &[&str] = if matches!(kind, "Approved" | "Denied" | "Failed") {
            &["True"]
        } else {
            &["False", "True", "Unknown"]
        };
        let status = condition.text("status");
        if status.is_empty() {
            errors.required(&at.field("status"), "");
        } else if !statuses.contains(&status) {
            errors.not_supported(&at.field("status"), status, statuses);
        }
        if !had_repeated && repeated.at(i) {
            errors.duplicate(&at.field("type"), kind);
        }
    }
    let now = types(request);
    let both = ["Approved", "Denied"].iter().all(|kind| now.iter().any(|now| now == kind));
    if both && !had_both {
        let detail = "must specify at most one of: `conditions[{\"type\": \"Approved\"}]`, `conditions[{\"type\": \"Denied\"}]`";
        let shown = "{conditions[{\"type\": \"Approved\"}], conditions[{\"type\": \"Denied\"}]}";
        declared.invalid(&CONDITIONS, shown, detail);
    }
}

fn signing_request_update(new: &Value, old: &Value, change: Change) -> FieldErrors {
    let mut errors = signing_request(new, Some(old));
    let of = |request: &Value, kind: &str| -> Vec<Value> {
        let conditions = request.list_at(&["status", "conditions"]).iter();
        conditions.filter(|condition| condition.text("type") == kind).cloned().collect()
    };
    for kind in ["Approved", "Denied", "Failed"] {
        if of(new, kind).len() < of(old, kind).len() {
            errors.forbidden(&CONDITIONS, format!("updates may not remove a condition of type \"{kind}\""));
        }
    }
    if change != Change::Approval {
        for kind in ["Approved", "Denied"] {
            let (now, before) = (of(new, kind), of(old, kind));
            if now.len() > before.len() {
                errors.forbidden(&CONDITIONS, format!("updates may not add a condition of type \"{kind}\""));
            } else if now.len() == before.len() && now != before {
                let print = |list: Vec<Value>| {
                    internal_json::indented("[]CertificateSigningRequestCondition", Some(&Value::List(list)))
                };
                let diff = unified_diff::unified(&print(before), &print(now));
                let detail = format!("updates may not modify a condition of type \"{kind}\"\n{diff}");
                errors.forbidden(&CONDITIONS, detail);
            }
        }
    }
    let (now, before) = (new.part("status").text("certificate"), old.part("status").text("certificate"));
    if now != before {
        let at = At::new("status.certificate");
        if change != Change::Status {
            errors.forbidden(&at, "updates may not set certificate content");
        } else if !before.is_empty() {
            errors.forbidden(&at, "updates may not modify existing certificate content");
        }
    }
    errors.extend(meta::update(new, old));
    errors
}

fn trust_bundle(bundle: &Value, parse: bool) -> FieldErrors {
    let spec = bundle.part("spec");
    let signer = spec.text("signerName");
    let metadata = meta::create(bundle, false, |_, _| Vec::new());
    let mut errors = FieldErrors::new();
    for (field, is_prefix) in [("generateName", true), ("name", false)] {
        let name = api::meta::text(bundle, field);
        if !name.is_empty() {
            let wrong = bundle_name(name, is_prefix, signer);
            errors.invalid_each(&At::new("metadata").field(field), name, wrong);
        }
    }
    errors.extend(metadata);
    if !signer.is_empty() {
        signer_name(signer, &SPEC.field("signerName"), &mut errors);
    }
    if parse {
        anchors(spec.text("trustBundle"), &mut errors);
    }
    errors
}

fn bundle_name(name: &str, is_prefix: bool, signer: &str) -> Vec<String> {
    if signer.is_empty() {
        if name.contains(':') {
            return vec!["ClusterTrustBundle without signer name must not have \":\" in its name".to_owned()];
        }
        return names::name_is_dns_subdomain(name, is_prefix);
    }
    let prefix = format!("{}:", signer.replace('/', ":"));
    match name.strip_prefix(&prefix) {
        Some(rest) => names::name_is_dns_subdomain(rest, is_prefix),
        None => {
            vec![format!("ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}")]
        }
    }
}

fn anchors(text: &str, errors: &mut FieldErrors) {
    let at = SPEC.field("trustBundle");
    if text.len() > MAX_TRUST_BUNDLE {
        errors.too_long(&at, MAX_TRUST_BUNDLE);
        return;
    }
    let count = errors.len();
    let mut seen: Vec<(Vec<u8>, Vec<usize>)> = Vec::new();
    let mut places: HashMap<Vec<u8>, usize> = HashMap::new();
    for (i, block) in pem_blocks(text).into_iter().enumerate() {
        let wrong = if block.label != "CERTIFICATE" {
            format!("entry {i} has bad block type: {}", block.label)
        } else if block.has_headers {
            format!("entry {i} has PEM block headers")
        } else {
            match X509Certificate::from_der(&block.bytes) {
                Err(_) => format!("entry {i} does not parse as X.509"),
                Ok((_, certificate)) if !certificate.is_ca() => {
                    format!("entry {i} does not have the CA bit set")
                }
                Ok(_) => {
                    let place = *places.entry(block.bytes.clone()).or_insert(seen.len());
                    match seen.get_mut(place) {
                        Some((_, entries)) => entries.push(i),
                        None => seen.push((block.bytes, vec![i])),
                    }
                    continue;
                }
            }
        };
        errors.invalid(&at, "<value omitted>", wrong);
    }
    if errors.len() > count {
        return;
    }
    if seen.is_empty() {
        errors.invalid(&at, "<value omitted>", "at least one trust anchor must be provided");
    }
    for (_, places) in seen.iter().filter(|(_, places)| places.len() > 1) {
        let places: Vec<String> = places.iter().map(ToString::to_string).collect();
        let detail = format!("duplicate trust anchor (indices [{}])", places.join(" "));
        errors.invalid(&at, "<value omitted>", detail);
    }
}

fn pod_request(request: &Value) -> FieldErrors {
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
        (true, false, false) => {
            let at = SPEC.field("stubPKCS10Request");
            let bytes = STANDARD.decode(spec.text("stubPKCS10Request")).unwrap_or_default();
            if bytes.len() > MAX_KEY {
                errors.too_long(&at, MAX_KEY);
            } else if X509CertificationRequest::from_der(&bytes).is_err() {
                let detail = "must be a valid PKCS#10 CSR".to_owned();
                errors.report(FieldErrorKind::Invalid, &at, None, detail);
            }
        }
        (false, true, true) => {
            for field in ["pkixPublicKey", "proofOfPossession"] {
                if STANDARD.decode(spec.text(field)).unwrap_or_default().len() > MAX_KEY {
                    errors.too_long(&SPEC.field(field), MAX_KEY);
                    return errors;
                }
            }
        }
        _ => {
            let detail =
                "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set";
            errors.report(FieldErrorKind::Invalid, &SPEC, None, detail.to_owned());
        }
    }
    errors
}

const OUTCOMES: [&str; 3] = ["Issued", "Denied", "Failed"];

fn pod_request_status(new: &Value, old: &Value, _: &Context) -> FieldErrors {
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
    meta::conditions(conditions, &CONDITIONS, &mut errors);
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
    let at = At::new("status");
    let mut refuse = |detail: &str| errors.report(FieldErrorKind::Invalid, &at, None, detail.to_owned());
    let unchanged = same(new.part("status"), old.part("status"));
    if outcome(old).is_some() {
        if !unchanged {
            refuse("immutable after PodCertificateRequest is issued, denied, or failed");
        }
        return errors;
    }
    match outcome(new).as_deref() {
        Some("Issued") => issued(new, &mut errors),
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

fn issued(request: &Value, errors: &mut FieldErrors) {
    let status = request.part("status");
    let chain = status.text("certificateChain");
    let at = At::new("status.certificateChain");
    if chain.len() > MAX_CHAIN {
        errors.too_long(&at, MAX_CHAIN);
        return;
    }
    let blocks = pem_blocks(chain);
    let Some(leaf) = blocks.first() else {
        errors.invalid(&at, chain, "issued certificate chain must contain at least one certificate");
        return;
    };
    if leaf.label != "CERTIFICATE" {
        let detail = "issued certificate chain must consist entirely of CERTIFICATE PEM blocks";
        errors.invalid(&at, chain, detail);
        return;
    }
    if X509Certificate::from_der(&leaf.bytes).is_err() {
        errors.invalid(&at, chain, "leaf certificate does not parse as valid X.509");
        return;
    }
    for field in ["notBefore", "notAfter"] {
        if status.text(field).is_empty() {
            let detail = "must be present and consistent with the issued certificate";
            errors.required(&At::new("status").field(field), detail);
        }
    }
    if status.text("beginRefreshAt").is_empty() {
        let detail = "must be present and in the range [notbefore+10min, notafter-10min]";
        errors.required(&At::new("status.beginRefreshAt"), detail);
    }
}
