//! CustomResourceDefinition (names, versions, scope) and APIService.

use api::FieldErrors;
use api::names;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use value::Value;

use super::fields::{At, IMMUTABLE, Read, Report};
use super::{Rules, meta};

pub(super) const DEFINITION: Rules = Rules {
    create: |definition, _| definition_rules(definition),
    update: |new, old, _| {
        let mut errors = meta::update(new, old);
        spec_rules(new, &mut errors);
        let (spec, former) = (new.part("spec"), old.part("spec"));
        if is_established(old) {
            fixed(spec.text("scope"), former.text("scope"), &SPEC.field("scope"), &mut errors);
            let kind = |spec: Option<&Value>| spec.part("names").text("kind").to_owned();
            fixed(&kind(spec), &kind(former), &SPEC.field("names.kind"), &mut errors);
        }
        fixed(spec.text("group"), former.text("group"), &SPEC.field("group"), &mut errors);
        let plural = |spec: Option<&Value>| spec.part("names").text("plural").to_owned();
        fixed(&plural(spec), &plural(former), &SPEC.field("names.plural"), &mut errors);
        stored_versions(new, &mut errors);
        errors
    },
    update_status: |new, old, _| {
        let mut errors = meta::update(new, old);
        stored_versions(new, &mut errors);
        errors
    },
};
pub(super) const API_SERVICE: Rules = Rules {
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

fn fixed(now: &str, before: &str, at: &At<'_>, errors: &mut FieldErrors) {
    if now != before {
        errors.invalid(at, now, IMMUTABLE);
    }
}

fn is_established(definition: &Value) -> bool {
    let conditions = definition.list_at(&["status", "conditions"]).iter();
    let mut established = conditions.filter(|condition| condition.text("type") == "Established");
    established.any(|condition| condition.text("status") == "True")
}

/// Metadata whose name must be `wanted`; `rule` judges it besides.
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

fn definition_rules(definition: &Value) -> FieldErrors {
    let spec = definition.part("spec");
    let wanted = format!("{}.{}", spec.part("names").text("plural"), spec.text("group"));
    let mut errors = named(definition, |name| {
        let mut wrong = names::name_is_dns_subdomain(name, false);
        if name != wanted {
            wrong.push("must be spec.names.plural+\".\"+spec.group".to_owned());
        }
        wrong
    });
    spec_rules(definition, &mut errors);
    stored_versions(definition, &mut errors);
    errors
}

/// Details joined as one error has them.
fn joined(at: &At<'_>, text: &str, before: &str, wrong: &[String], errors: &mut FieldErrors) {
    if !wrong.is_empty() {
        errors.invalid(at, text, format!("{before}{}", wrong.join(",")));
    }
}

fn spec_rules(definition: &Value, errors: &mut FieldErrors) {
    let spec = definition.part("spec");
    let group = spec.text("group");
    let wrong = names::is_dns1123_subdomain(group);
    if group.is_empty() {
        errors.required(&SPEC.field("group"), "");
    } else if !wrong.is_empty() {
        joined(&SPEC.field("group"), group, "", &wrong, errors);
    } else if !group.contains('.') {
        errors.invalid(&SPEC.field("group"), group, "should be a domain with at least one dot");
    }
    match spec.text("scope") {
        "" => errors.required(&SPEC.field("scope"), ""),
        "Cluster" | "Namespaced" => {}
        other => errors.not_supported(&SPEC.field("scope"), other, &["Cluster", "Namespaced"]),
    }
    versions(spec, errors);
    let names_at = SPEC.field("names");
    let given = spec.part("names");
    for field in ["plural", "singular", "kind", "listKind"] {
        if given.text(field).is_empty() {
            errors.required(&names_at.field(field), "");
        }
    }
    accepted_names(given, &names_at, errors);
    let conversion = spec.part("conversion");
    match conversion.text("strategy") {
        "" => errors.required(&SPEC.field("conversion.strategy"), ""),
        "None" | "Webhook" => {}
        other => errors.not_supported(&SPEC.field("conversion.strategy"), other, &["None", "Webhook"]),
    }
}

fn versions(spec: Option<&Value>, errors: &mut FieldErrors) {
    let versions = spec.items("versions");
    let list = SPEC.field("versions");
    for (i, version) in versions.iter().enumerate() {
        if version.part("schema").part("openAPIV3Schema").is_none() {
            let at = list.index(i);
            errors.required(&at.field("schema.openAPIV3Schema"), "");
        }
    }
    for (i, version) in versions.iter().enumerate() {
        let at = list.index(i);
        let name = version.text("name");
        joined(&at.field("name"), name, "", &names::is_dns1035_label(name), errors);
    }
    let shown = || spec.part("versions").cloned().unwrap_or_default();
    let repeated = versions.iter().enumerate().any(|(i, version)| {
        versions.iter().take(i).any(|earlier| earlier.text("name") == version.text("name"))
    });
    if repeated {
        errors.invalid(&list, shown(), "must contain unique version names");
    }
    if versions.iter().filter(|version| version.flag("storage")).count() != 1 {
        errors.invalid(&list, shown(), "must have exactly one version marked as storage version");
    }
}

fn accepted_names(given: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    const MIXED: &str = "may have mixed case, but should otherwise match: ";
    for (field, before) in [("plural", ""), ("singular", ""), ("kind", MIXED), ("listKind", MIXED)] {
        let name = given.text(field);
        if !name.is_empty() {
            let judged = if before.is_empty() { name.to_owned() } else { name.to_lowercase() };
            joined(&at.field(field), name, before, &names::is_dns1035_label(&judged), errors);
        }
    }
    let short = at.field("shortNames");
    for (i, name) in given.texts("shortNames").enumerate() {
        joined(&short.index(i), name, "", &names::is_dns1035_label(name), errors);
    }
    let kind = given.text("kind");
    if !kind.is_empty() && kind == given.text("listKind") {
        errors.invalid(&at.field("listKind"), kind, "kind and listKind may not be the same");
    }
    let categories = at.field("categories");
    for (i, category) in given.texts("categories").enumerate() {
        joined(&categories.index(i), category, "", &names::is_dns1035_label(category), errors);
    }
}

fn stored_versions(definition: &Value, errors: &mut FieldErrors) {
    let at = At::new("status.storedVersions");
    let stored: Vec<&str> = definition.part("status").texts("storedVersions").collect();
    let shown = || Value::list(stored.iter().copied());
    if stored.is_empty() {
        errors.invalid(&at, Value::Null, "must have at least one stored version");
        return;
    }
    let versions = definition.list_at(&["spec", "versions"]);
    for (i, version) in stored.iter().enumerate() {
        if !versions.iter().any(|known| known.text("name") == *version) {
            let detail = format!(
                "missing from spec.versions; {version} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {version} and removes {version} from status.storedVersions"
            );
            errors.invalid(&at.index(i), *version, detail);
        }
    }
    if let Some(current) = versions.iter().find(|version| version.flag("storage"))
        && !stored.contains(&current.text("name"))
    {
        let detail = format!("must have the storage version {}", current.text("name"));
        errors.invalid(&at, shown(), detail);
    }
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
    let bundle = STANDARD.decode(spec.text("caBundle")).unwrap_or_default().len();
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
