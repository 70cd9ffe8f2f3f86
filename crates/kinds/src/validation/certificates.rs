//! Validation of CertificateSigningRequest and ClusterTrustBundle.

use std::collections::HashMap;

use api::FieldErrors;
use api::names;
use api::signers;
use api::validation::fields::{At, IMMUTABLE, Read, Report, supersede};
use api::validation::meta;
use api::validation::repeated::Repeated;
use value::Value;
use x509::{Certificate, CertificateRequest, pem};

use super::pod::projected::signer_name;
use super::{ValidationContext, ValidationRules, internal_json, unified_diff};

pub(crate) const SIGNING_REQUEST: ValidationRules = ValidationRules {
    create: |request, _| signing_request(request, None),
    update: |new, old, _| signing_request_update(new, old, CsrEndpoint::Main),
    update_status: |new, old, _| signing_request_update(new, old, CsrEndpoint::Status),
};
pub(crate) const TRUST_BUNDLE: ValidationRules = ValidationRules {
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
const SPEC: At<'static> = At::new("spec");
const CONDITIONS: At<'static> = At::new("status.conditions");
const MAX_TRUST_BUNDLE: usize = 1 << 20;

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

/// Resource or subresource through which a signing request is updated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CsrEndpoint {
    Main,
    Status,
    Approval,
}

/// Validates an update of a signing request through `approval`.
pub fn approval(new: &Value, old: &Value, _: &ValidationContext) -> FieldErrors {
    signing_request_update(new, old, CsrEndpoint::Approval)
}

/// Decodes the certificate request in `spec.request`, which is base64-encoded PEM.
pub fn certificate_request(text: &str) -> Result<CertificateRequest, x509::Error> {
    CertificateRequest::from_pem(&decoded(text))
}

fn decoded(text: &str) -> Vec<u8> {
    value::go::base64::STD.decode(text).unwrap_or_default()
}

fn check_certificates(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Ok(());
    }
    let pem = decoded(text);
    let mut blocks = pem::blocks(&pem).peekable();
    if blocks.peek().is_none() {
        return Err("must contain at least one CERTIFICATE PEM block".to_owned());
    }
    for block in blocks {
        if block.label != "CERTIFICATE" {
            let label = api::field::quote(&block.label);
            return Err(format!("only CERTIFICATE PEM blocks are allowed, found {label}"));
        }
        if block.has_headers {
            return Err("no PEM block headers are permitted".to_owned());
        }
        if block.bytes.is_empty() {
            return Err("found CERTIFICATE PEM block containing 0 certificates".to_owned());
        }
        if Certificate::all_from_der(&block.bytes).is_none() {
            return Err("x509: malformed certificate".to_owned());
        }
    }
    Ok(())
}

fn repeats(values: &[&str]) -> bool {
    Repeated::earlier(values).any()
}

fn signing_request(request: &Value, old: Option<&Value>) -> FieldErrors {
    let mut errors = meta::create(request, false, |_, _| Vec::new());
    let spec = request.part("spec");
    let signed = certificate_request(spec.text("request")).and_then(|request| request.check_signature());
    if let Err(why) = signed {
        let shown = spec.part("request").cloned().unwrap_or_default();
        errors.invalid(&SPEC.field("request"), shown, why.to_string());
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
    let was_legacy = old.is_some_and(|old| old.part("spec").text("signerName") == signers::LEGACY_UNKNOWN);
    if signer == signers::LEGACY_UNKNOWN && !was_legacy {
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
    let ratcheted = former.is_some_and(|former| former == certificate || check_certificates(former).is_err());
    if !ratcheted && let Err(why) = check_certificates(certificate) {
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

fn signing_request_update(new: &Value, old: &Value, change: CsrEndpoint) -> FieldErrors {
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
    if change != CsrEndpoint::Approval {
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
        if change != CsrEndpoint::Status {
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
    let mut anchors_of: Vec<(Vec<u8>, Vec<usize>)> = Vec::new();
    let mut indices: HashMap<Vec<u8>, usize> = HashMap::new();
    for (i, block) in pem::blocks(text.as_bytes()).enumerate() {
        let wrong = if block.label != "CERTIFICATE" {
            format!("entry {i} has bad block type: {}", block.label)
        } else if block.has_headers {
            format!("entry {i} has PEM block headers")
        } else {
            match Certificate::from_der(&block.bytes) {
                None => format!("entry {i} does not parse as X.509"),
                Some(certificate) if !certificate.is_authority => {
                    format!("entry {i} does not have the CA bit set")
                }
                Some(_) => {
                    let index = *indices.entry(block.bytes.clone()).or_insert(anchors_of.len());
                    match anchors_of.get_mut(index) {
                        Some((_, entries)) => entries.push(i),
                        None => anchors_of.push((block.bytes, vec![i])),
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
    if anchors_of.is_empty() {
        errors.invalid(&at, "<value omitted>", "at least one trust anchor must be provided");
    }
    for (_, indices) in anchors_of.iter().filter(|(_, indices)| indices.len() > 1) {
        let indices: Vec<String> = indices.iter().map(ToString::to_string).collect();
        let detail = format!("duplicate trust anchor (indices [{}])", indices.join(" "));
        errors.invalid(&at, "<value omitted>", detail);
    }
}
