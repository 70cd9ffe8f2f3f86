//! Validation of PriorityClass and RuntimeClass.

use std::collections::BTreeSet;

use api::FieldErrors;
use api::field::FieldErrorKind;
use api::names;
use api::validation::fields::{At, IMMUTABLE, Read, Report, same, supersede};
use api::validation::meta;
use api::validation::repeated::Repeated;
use value::Value;

use super::pod::options::PodValidationOptions;
use super::pod::resources::container_requirements;
use super::pod::scheduling::toleration_list;
use super::{ValidationContext, ValidationRules, internal_json, no_rules};

pub(crate) const PRIORITY_CLASS: ValidationRules =
    ValidationRules { create: priority_class, update: priority_class_update, update_status: no_rules };
pub(crate) const RUNTIME_CLASS: ValidationRules =
    ValidationRules { create: runtime_class, update: runtime_class_update, update_status: no_rules };

const HIGHEST_USER_PRIORITY: i64 = 1_000_000_000;
/// Priority classes that exist in every cluster.
const SYSTEM_CLASSES: [(&str, i64); 2] =
    [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];

fn priority_class(class: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::create(class, false, names::name_is_dns_subdomain);
    let name = api::meta::name(class);
    let value = class.number("value");
    if name.starts_with("system-") {
        if let Err(why) = is_system_class(name, value, class.flag("globalDefault")) {
            let detail = format!(
                "priority class names with 'system-' prefix are reserved for system use only. error: {why}"
            );
            errors.forbidden(&At::new("metadata.name"), detail);
        }
    } else if value > HIGHEST_USER_PRIORITY {
        let detail = format!("maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}");
        errors.forbidden(&At::new("value"), detail);
    }
    if let Some(policy) = class.text_if_set("preemptionPolicy") {
        const POLICIES: [&str; 2] = ["PreemptLowerPriority", "Never"];
        let at = At::new("preemptionPolicy");
        if policy.is_empty() {
            errors.required(&at, "");
        } else if !POLICIES.contains(&policy) {
            errors.not_supported(&at, policy, &POLICIES);
        }
    }
    errors
}

fn is_system_class(name: &str, value: i64, is_default: bool) -> Result<(), String> {
    let Some((_, expected)) = SYSTEM_CLASSES.iter().find(|(known, _)| *known == name) else {
        return Err(format!("{name} is not a known system priority class"));
    };
    if value != *expected {
        return Err(format!("value of {name} PriorityClass must be {expected}"));
    }
    if is_default {
        return Err(format!("globalDefault of {name} PriorityClass must be false"));
    }
    Ok(())
}

fn priority_class_update(new: &Value, old: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::update(new, old);
    if new.number("value") != old.number("value") {
        errors.forbidden(&At::new("value"), "may not be changed in an update.");
    }
    errors.immutable(
        &At::new("preemptionPolicy"),
        new.part("preemptionPolicy"),
        old.part("preemptionPolicy"),
    );
    errors
}

fn runtime_class(class: &Value, context: &ValidationContext) -> FieldErrors {
    let errors = runtime_class_rules(class, context);
    supersede(errors, declared_handler(class, None))
}

fn runtime_class_update(new: &Value, old: &Value, context: &ValidationContext) -> FieldErrors {
    let mut errors = runtime_class_rules(new, context);
    errors.extend(meta::update(new, old));
    if new.text("handler") != old.text("handler") {
        errors.invalid(&At::new("handler"), new.text("handler"), IMMUTABLE);
    }
    supersede(errors, declared_handler(new, Some(old)))
}

fn runtime_class_rules(class: &Value, context: &ValidationContext) -> FieldErrors {
    let mut errors = meta::create(class, false, names::name_is_dns_subdomain);
    let handler = class.text("handler");
    if handler.is_empty() {
        errors.required(&At::new("handler"), "");
    } else {
        errors.invalid_each(&At::new("handler"), handler, names::is_dns1123_label(handler));
    }
    if let Some(overhead) = class.part("overhead") {
        let limits = Value::map([("limits", overhead.part("podFixed").cloned().unwrap_or_default())]);
        let options = PodValidationOptions::for_template(None, context);
        container_requirements(Some(&limits), &BTreeSet::new(), &At::new("overhead"), &options, &mut errors);
    }
    if let Some(scheduling) = class.part("scheduling") {
        let at = At::new("scheduling");
        meta::labels(Some(scheduling), "nodeSelector", &at, &mut errors);
        let list = at.field("tolerations");
        let tolerations = scheduling.items("tolerations");
        toleration_list(tolerations, &PodValidationOptions::for_template(None, context), &list, &mut errors);
        let key = |toleration: &Value| {
            ["key", "operator", "value", "effect"].map(|field| toleration.text(field).to_owned())
        };
        let repeated = Repeated::earlier(tolerations.iter().map(key));
        for (i, toleration) in tolerations.iter().enumerate() {
            if repeated.at(i) {
                let shown = internal_json::compact("Toleration", Some(toleration));
                errors.report(FieldErrorKind::Duplicate, &list.index(i), None, shown);
            }
        }
    }
    errors
}

/// Declarative validation of the handler: on create required and a DNS label, on update immutable and required.
fn declared_handler(new: &Value, old: Option<&Value>) -> FieldErrors {
    let mut declared = FieldErrors::new();
    let at = At::new("handler");
    let handler = new.text("handler");
    if let Some(old) = old {
        if same(new.part("handler"), old.part("handler")) {
            return declared;
        }
        declared.invalid(&at, Value::Null, IMMUTABLE);
        if handler.is_empty() {
            declared.required(&at, "");
        }
        return declared;
    }
    if handler.is_empty() {
        declared.required(&at, "");
    } else {
        declared.invalid_each(&at, handler, names::is_dns1123_label(handler));
    }
    declared
}
