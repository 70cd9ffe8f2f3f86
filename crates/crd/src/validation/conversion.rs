//! Validates `spec.conversion` of a CRD.

use api::validation::fields::{Read, Report};
use api::validation::repeated::Repeated;
use api::{FieldErrors, names};
use value::Value;
use value::go::base64::STD;

use super::strictness::Strictness;
use super::{SPEC, one_of};

/// Why a webhook's `caBundle` cannot be loaded, in the wording of Go's client.
pub(super) fn unreadable_bundle(bundle: &str) -> Option<&'static str> {
    let pem = STD.decode(bundle).unwrap_or_default();
    let mut found = false;
    for block in x509::pem::blocks(&pem) {
        found = true;
        let is_bare = block.is_certificate();
        if is_bare && x509::Certificate::from_der(&block.bytes).is_some() {
            return None;
        }
    }
    Some(if found {
        "unable to load root certificates: failed to parse certificate: x509: malformed certificate"
    } else {
        "unable to load root certificates: unable to parse bytes as PEM block"
    })
}

pub(super) fn conversion(spec: &Value, strict: &Strictness, errors: &mut FieldErrors) {
    let Some(conversion) = spec.part("conversion") else { return };
    let at = SPEC.field("conversion");
    let strategy = conversion.text("strategy");
    if strategy != "None" && spec.flag("preserveUnknownFields") {
        let detail = "must be None if spec.preserveUnknownFields is true";
        errors.invalid(&at.field("strategy"), strategy, detail);
    }
    one_of(strategy, &["None", "Webhook"], &at.field("strategy"), errors);
    let webhook = conversion.part("webhook");
    let config = webhook.part("clientConfig");
    let reviews: Vec<&str> = webhook.texts("conversionReviewVersions").collect();
    let (config_at, reviews_at) = (at.field("webhookClientConfig"), at.field("conversionReviewVersions"));
    if strategy != "Webhook" {
        let detail = "should not be set when strategy is not set to Webhook";
        if config.is_some() {
            errors.forbidden(&config_at, detail);
        }
        if !reviews.is_empty() {
            errors.forbidden(&reviews_at, detail);
        }
        return;
    }
    match config {
        None => errors.required(&config_at, "required when strategy is set to Webhook"),
        Some(config) => {
            api::validation::webhook_client::client_config(Some(config), &config_at, errors);
            let bundle = config.text("caBundle");
            let why = unreadable_bundle(bundle).filter(|_| !bundle.is_empty() && strict.ca_bundle);
            if let Some(why) = why {
                errors.invalid(&config_at.field("caBundle"), bundle, why);
            }
        }
    }
    if reviews.is_empty() {
        errors.required(&reviews_at, "");
        return;
    }
    let mut known = false;
    let repeated = Repeated::earlier(&reviews);
    for (i, review) in reviews.iter().enumerate() {
        if repeated.at(i) {
            errors.invalid(&reviews_at.index(i), *review, "duplicate version");
            continue;
        }
        errors.invalid_each(&reviews_at.index(i), review, names::is_dns1035_label(review));
        known |= matches!(*review, "v1" | "v1beta1");
    }
    if strict.review_versions && !known {
        let shown = Value::list(reviews.iter().copied());
        errors.invalid(&reviews_at, shown, "must include at least one of v1, v1beta1");
    }
}
