//! Validation of CustomResourceDefinition (see [`crd::validation`]) and APIService.

#[cfg(test)]
mod tests;

use api::FieldErrors;
use api::names;
use api::validation::fields::{At, Read, Report};
use api::validation::meta;
use value::Value;
use value::go::base64::STD;

use super::{ValidationContext, ValidationRules};

pub(crate) const CUSTOM_RESOURCE_DEFINITION: ValidationRules = ValidationRules {
    create: |object, context| crd::validation::create(object, &crd_context(context)),
    update: |new, old, context| crd::validation::update(new, old, &crd_context(context)),
    update_status: |new, old, _| crd::validation::update_status(new, old),
};

fn crd_context(context: &ValidationContext) -> crd::validation::CrdValidationContext {
    crd::validation::CrdValidationContext {
        stopwatch: context.stopwatch.clone(),
        budget: context.budget.clone(),
        overlapping: crate::table::overlapping,
    }
}

pub(crate) const API_SERVICE: ValidationRules = ValidationRules {
    create: |service, _| api_service(service),
    update: |new, old, _| {
        let mut errors = meta::update(new, old);
        errors.extend(api_service(new));
        errors
    },
    update_status: |new, old, _| {
        let mut errors = meta::update(new, old);
        let list = At::new("status.conditions");
        for (i, condition) in new.list_at(&["status", "conditions"]).iter().enumerate() {
            let status = condition.text("status");
            if !matches!(status, "True" | "False" | "Unknown") {
                let at = list.index(i);
                errors.not_supported(&at.field("status"), status, &["True", "False", "Unknown"]);
            }
        }
        errors
    },
};

const SPEC: At<'static> = At::new("spec");

/// Validates metadata of a cluster-scoped object; `wrong` returns the errors of its name.
fn named(object: &Value, wrong: impl Fn(&str) -> Vec<String>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    for field in ["generateName", "name"] {
        let name = api::meta::text(object, field);
        if !name.is_empty() {
            errors.invalid_each(&At::new("metadata").field(field), name, wrong(name));
        }
    }
    errors.extend(meta::create(object, false, |_, _| Vec::new()));
    errors
}

fn api_service(service: &Value) -> FieldErrors {
    let spec = service.part("spec");
    let (group, version) = (spec.text("group"), spec.text("version"));
    let wanted = format!("{version}.{group}");
    let mut errors = named(service, |name| {
        let wrong = names::is_path_segment_name(name);
        if wrong.is_empty() && name != wanted {
            let wanted = api::field::quote(&wanted);
            return vec![format!("must be `spec.version+\".\"+spec.group`: {wanted}")];
        }
        wrong
    });
    let at = SPEC.field("group");
    if group.is_empty() && version != "v1" {
        errors.required(&at, "only v1 may have an empty group and it better be legacy kube");
    }
    if !group.is_empty() {
        errors.invalid_each(&at, group, names::is_dns1123_subdomain(group));
    }
    errors.invalid_each(&SPEC.field("version"), version, names::is_dns1035_label(version));
    for (field, most) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1000)] {
        let number = spec.number(field);
        if !(1..=most).contains(&number) {
            errors.invalid(&SPEC.field(field), number, format!("must be positive and less than {most}"));
        }
    }
    let bundle = STD.decode(spec.text("caBundle")).unwrap_or_default().len();
    let skips = spec.flag("insecureSkipTLSVerify");
    let Some(reference) = spec.part("service") else {
        if bundle != 0 {
            let detail = "local APIServices may not have a caBundle";
            errors.invalid(&SPEC.field("caBundle"), format!("{bundle} bytes"), detail);
        }
        if skips {
            let detail = "local APIServices may not have insecureSkipTLSVerify";
            errors.invalid(&SPEC.field("insecureSkipTLSVerify"), true, detail);
        }
        return errors;
    };
    let at = SPEC.field("service");
    for field in ["namespace", "name"] {
        if reference.text(field).is_empty() {
            errors.required(&at.field(field), "");
        }
    }
    let port = reference.number("port");
    let wrong = names::is_valid_port_num(port);
    if !wrong.is_empty() {
        errors.invalid(&at.field("port"), port, format!("port is not valid: {}", wrong.join(", ")));
    }
    if skips && bundle > 0 {
        let detail = "may not be true if caBundle is present";
        errors.invalid(&SPEC.field("insecureSkipTLSVerify"), true, detail);
    }
    errors
}
