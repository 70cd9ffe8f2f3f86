//! Validation of PodTemplate and of the pod templates of workloads.

use api::validation::fields::{At, Read, Report};
use api::validation::meta;
use api::{FieldErrors, names};
use value::{Map, Value};

use super::pod::options::PodValidationOptions;
use super::pod::{annotations, spec};
use super::{ValidationContext, ValidationRules, no_rules};

pub(crate) const POD_TEMPLATE: ValidationRules = ValidationRules { create, update, update_status: no_rules };

fn create(object: &Value, context: &ValidationContext) -> FieldErrors {
    let mut errors = meta::create(object, true, names::name_is_dns_subdomain);
    let options = PodValidationOptions::for_template(None, context);
    template(object.part("template"), &options, &At::new("template"), &mut errors);
    errors
}

fn update(new: &Value, old: &Value, context: &ValidationContext) -> FieldErrors {
    let mut errors = meta::update(new, old);
    let options = PodValidationOptions::for_template(old.part("template"), context);
    template(new.part("template"), &options, &At::new("template"), &mut errors);
    errors
}

/// Validates a pod template whose field path is `at`.
pub(super) fn template(
    template: Option<&Value>,
    options: &PodValidationOptions,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    let metadata = template.part("metadata");
    meta::labels(metadata, "labels", at, errors);
    meta::annotations(metadata, at, errors);
    let no_spec = Value::Map(Map::new());
    let spec = template.part("spec").unwrap_or(&no_spec);
    annotations::annotations(metadata, Some(spec), options, &at.field("annotations"), errors);
    let at = at.field("spec");
    spec::spec(spec, None, options, &at, errors);
    annotations::seccomp_annotations_match(metadata, spec, &at, errors);
    annotations::app_armor_annotations_match(metadata, spec, &at, errors);
    if !spec.items("ephemeralContainers").is_empty() {
        errors
            .forbidden(&at.field("ephemeralContainers"), "ephemeral containers not allowed in pod template");
    }
}
