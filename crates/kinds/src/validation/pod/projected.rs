//! Validation of projected volumes, which combine files of several sources in one directory.

use std::collections::HashSet;

use api::validation::fields::{At, Read, Report};
use api::validation::meta;
use api::{FieldErrors, names};
use value::Value;

use super::user_ids::optional_id;
use super::volume_paths::local_path;
use super::volume_sources;
use super::volumes::Volume;
use crate::validation::{internal_json, token_seconds};

const MIN_CERTIFICATE_SECONDS: i64 = 3600;
const MAX_CERTIFICATE_SECONDS: i64 = 91 * 24 * 3600;
const MAX_KUBERNETES_CERTIFICATE_SECONDS: i64 = 24 * 3600;

/// Paths used by the sources so far. A duplicate is reported at the volume.
struct ProjectedPaths<'a> {
    taken: HashSet<&'a str>,
}

impl<'a> ProjectedPaths<'a> {
    fn take(&mut self, path: &'a str, named: &str, at: &At<'_>, errors: &mut FieldErrors) {
        if !self.taken.insert(path) {
            errors.invalid(at, named, "conflicting duplicate paths");
        }
    }
}

pub(in crate::validation) fn projected(
    source: &Value,
    volume: &Volume<'_>,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    volume_sources::default_mode(source, at, errors);
    let mut paths = ProjectedPaths { taken: HashSet::new() };
    let list = at.field("sources");
    for (i, source) in source.items("sources").iter().enumerate() {
        let source_at = list.index(i);
        let mut count = 0;
        for field in ["secret", "configMap"] {
            if let Some(object) = source.part(field) {
                count += 1;
                keys(object, &mut paths, at, &source_at.field(field), errors);
            }
        }
        if let Some(downward) = source.part("downwardAPI") {
            count += 1;
            for file in downward.items("items") {
                volume_sources::downward_file(file, &source_at.field("downwardAPI"), errors);
                let path = file.text("path");
                if !path.is_empty() {
                    paths.take(path, path, at, errors);
                }
            }
        }
        if let Some(token) = source.part("serviceAccountToken") {
            count += 1;
            service_account_token(token, volume, at, &source_at.field("serviceAccountToken"), errors);
        }
        if let Some(bundle) = source.part("clusterTrustBundle") {
            count += 1;
            trust_bundle(bundle, &source_at.field("clusterTrustBundle"), errors);
            let path = bundle.text("path");
            paths.take(path, path, at, errors);
        }
        if let Some(certificate) = source.part("podCertificate") {
            count += 1;
            pod_certificate(certificate, &mut paths, at, &source_at.field("podCertificate"), errors);
        }
        if count > 1 {
            errors.forbidden(&source_at, "may not specify more than 1 volume type per source");
        }
    }
}

fn keys<'a>(
    object: &'a Value,
    paths: &mut ProjectedPaths<'a>,
    volume_at: &At<'_>,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    let name = object.text("name");
    if name.is_empty() {
        errors.required(&at.field("name"), "");
    }
    let items = at.field("items");
    for (i, item) in object.items("items").iter().enumerate() {
        volume_sources::key_to_path(item, &items.index(i), errors);
        let path = item.text("path");
        if !path.is_empty() {
            paths.take(path, name, volume_at, errors);
        }
    }
}

fn service_account_token(
    token: &Value,
    volume: &Volume<'_>,
    volume_at: &At<'_>,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    let expiration = at.field("expirationSeconds");
    match token.number_if_set("expirationSeconds") {
        None => errors.required(&expiration, ""),
        Some(seconds) => token_seconds(seconds, &expiration, errors),
    }
    let path = token.text("path");
    if path.is_empty() {
        errors.required(&volume_at.field("path"), "");
    } else if !volume.options.non_local_token_path {
        local_path(path, &volume_at.field("path"), errors);
    }
    optional_id(token, "user", at, errors);
}

fn trust_bundle(bundle: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    match (bundle.text_if_set("name"), bundle.text_if_set("signerName")) {
        (Some(_), Some(_)) => {
            let json = internal_json::compact("ClusterTrustBundleProjection", Some(bundle));
            errors.invalid_json(at, &json, "only one of name and signerName may be used");
        }
        (Some(name), None) => {
            if name.is_empty() {
                errors.required(&at.field("name"), "must be a valid object name");
            }
            for message in trust_bundle_name(name) {
                let detail = format!("not a valid clustertrustbundlename: {message}");
                errors.invalid(&at.field("name"), name, detail);
            }
            if let Some(selector) = bundle.part("labelSelector") {
                let json = meta::label_selector_json(Some(selector));
                let detail = "labelSelector must be unset if name is specified";
                errors.invalid_json(&at.field("labelSelector"), &json, detail);
            }
        }
        (None, Some(signer)) => {
            if signer.is_empty() {
                errors.required(&at.field("signerName"), "must be a valid signer name");
            }
            signer_name(signer, &at.field("signerName"), errors);
            meta::label_selector(bundle.part("labelSelector"), false, &at.field("labelSelector"), errors);
        }
        (None, None) => errors.required(at, "either name or signerName must be specified"),
    }
    let path = bundle.text("path");
    if path.is_empty() {
        errors.required(&at.field("path"), "");
    }
    optional_id(bundle, "user", at, errors);
    local_path(path, &at.field("path"), errors);
}

fn trust_bundle_name(name: &str) -> Vec<String> {
    match name.rsplit_once(':') {
        None => names::name_is_dns_subdomain(name, false),
        // The part before the last colon is taken as the signer name, so the name always has the required prefix.
        Some((signer, rest)) => {
            if signer.is_empty() {
                return vec![
                    "ClusterTrustBundle without signer name must not have \":\" in its name".to_owned(),
                ];
            }
            names::name_is_dns_subdomain(rest, false)
        }
    }
}

fn pod_certificate<'a>(
    certificate: &'a Value,
    paths: &mut ProjectedPaths<'a>,
    volume_at: &At<'_>,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    const KEY_TYPES: [&str; 6] = ["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"];
    let signer = certificate.text("signerName");
    signer_name(signer, &at.field("signerName"), errors);
    user_annotations(certificate, &at.field("userAnnotations"), errors);
    optional_id(certificate, "user", at, errors);
    let key_type = certificate.text("keyType");
    if !KEY_TYPES.contains(&key_type) {
        errors.not_supported(&at.field("keyType"), key_type, &KEY_TYPES);
    }
    if let Some(seconds) = certificate.number_if_set("maxExpirationSeconds") {
        let at = at.field("maxExpirationSeconds");
        if seconds < MIN_CERTIFICATE_SECONDS {
            let detail = format!("if provided, maxExpirationSeconds must be >= {MIN_CERTIFICATE_SECONDS}");
            errors.invalid(&at, seconds, detail);
        }
        let max = if is_kubernetes_signer(signer) {
            MAX_KUBERNETES_CERTIFICATE_SECONDS
        } else {
            MAX_CERTIFICATE_SECONDS
        };
        if seconds > max {
            errors.invalid(&at, seconds, format!("if provided, maxExpirationSeconds must be <= {max}"));
        }
    }
    let mut any = false;
    for field in ["credentialBundlePath", "keyPath", "certificateChainPath"] {
        let path = certificate.text(field);
        if !path.is_empty() {
            any = true;
            local_path(path, &at.field(field), errors);
            paths.take(path, path, volume_at, errors);
        }
    }
    if !any {
        let detail = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath";
        errors.required(at, detail);
    }
}

fn user_annotations(certificate: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let mut size = 0;
    let path = value::Path::root().field(at.to_string());
    for (key, value) in certificate.text_entries("userAnnotations") {
        errors.append(&mut names::is_domain_prefixed_key(&path, &key.to_lowercase()));
        size += key.len() + value.len();
    }
    if size > meta::MAX_ANNOTATIONS_SIZE {
        errors.too_long(at, meta::MAX_ANNOTATIONS_SIZE);
    }
}

fn is_kubernetes_signer(signer: &str) -> bool {
    let host = signer.split_once('/').map_or(signer, |(host, _)| host);
    host == "kubernetes.io" || host.ends_with(".kubernetes.io")
}

/// Validates a signer name such as `example.com/signer-name`.
pub(crate) fn signer_name(signer: &str, at: &At<'_>, errors: &mut FieldErrors) {
    const MAX_PATH: usize = names::SUBDOMAIN_MAX + names::LABEL_MAX + 1;
    if signer.is_empty() {
        errors.required(at, "");
        return;
    }
    let Some((domain, path)) = signer.split_once('/').filter(|(_, path)| !path.contains('/')) else {
        let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        errors.invalid(at, signer, detail);
        return;
    };
    if domain.len() > names::SUBDOMAIN_MAX {
        errors.too_long(at, names::SUBDOMAIN_MAX);
    }
    first_wrong_label(domain, names::is_dns1123_label, at, errors);
    if !domain.contains('.') {
        errors.invalid(at, domain, "should be a domain with at least two segments separated by dots");
    }
    first_wrong_label(path, names::is_dns1123_subdomain, at, errors);
    let max = names::SUBDOMAIN_MAX + MAX_PATH + 1;
    if signer.len() > max {
        errors.too_long(at, max);
    }
}

fn first_wrong_label(text: &str, rule: fn(&str) -> Vec<String>, at: &At<'_>, errors: &mut FieldErrors) {
    let wrong = text.split('.').map(|label| (label, rule(label))).find(|(_, wrong)| !wrong.is_empty());
    if let Some((label, wrong)) = wrong {
        for message in wrong {
            let detail = format!("validating label {}: {message}", api::field::quote(label));
            errors.invalid(at, text, detail);
        }
    }
}
