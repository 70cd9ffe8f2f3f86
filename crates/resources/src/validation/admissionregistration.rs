//! Webhook configurations, and the rules that select requests for webhooks and policies alike.

use std::collections::HashSet;

use api::FieldErrors;
use api::names;
use value::Value;

use super::admission_expression::{Expressions, Known};
use super::fields::{At, Read, Report, same};
use super::{Context, Rules, meta, no_rules};
use crate::repeated::Repeated;

pub(super) const MUTATING_WEBHOOKS: Rules = Rules {
    create: |object, context| create(object, context, true),
    update: |new, old, _| webhooks(new, true, &Options::of(new, old), &Known::of_webhooks(old)),
    update_status: no_rules,
};
pub(super) const VALIDATING_WEBHOOKS: Rules = Rules {
    create: |object, context| create(object, context, false),
    update: |new, old, _| webhooks(new, false, &Options::of(new, old), &Known::of_webhooks(old)),
    update_status: no_rules,
};

/// Names with this end belong to configuration from manifest files and cannot be used through the API.
pub const STATIC_SUFFIX: &str = ".static.k8s.io";

const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];
pub(super) const FAILURE_POLICIES: [&str; 2] = ["Fail", "Ignore"];
const MATCH_POLICIES: [&str; 2] = ["Equivalent", "Exact"];
pub(super) const REINVOCATION_POLICIES: [&str; 2] = ["IfNeeded", "Never"];
const MAX_CONDITIONS: usize = 64;

/// What an update may keep although a new configuration may not have it.
#[expect(clippy::struct_excessive_bools, reason = "each is one thing an old object may keep")]
struct Options {
    skip_conditions: bool,
    any_side_effects: bool,
    any_review_version: bool,
    repeated_names: bool,
    lenient_selectors: bool,
}

impl Options {
    const STRICT: Options = Options {
        skip_conditions: false,
        any_side_effects: false,
        any_review_version: false,
        repeated_names: false,
        lenient_selectors: false,
    };

    fn of(new: &Value, old: &Value) -> Self {
        let (hooks, former) = (new.items("webhooks"), old.items("webhooks"));
        Options {
            skip_conditions: hooks.len() == former.len()
                && hooks
                    .iter()
                    .zip(former)
                    .all(|(hook, old)| same(hook.part("matchConditions"), old.part("matchConditions"))),
            any_side_effects: former
                .iter()
                .any(|hook| !matches!(hook.text("sideEffects"), "None" | "NoneOnDryRun")),
            any_review_version: former.iter().any(|hook| {
                let mut versions = hook.texts("admissionReviewVersions").peekable();
                versions.peek().is_some() && !versions.any(|version| REVIEW_VERSIONS.contains(&version))
            }),
            repeated_names: Repeated::earlier(former.iter().map(|hook| hook.text("name"))).any(),
            lenient_selectors: former.iter().any(|hook| {
                let mut errors = FieldErrors::new();
                for field in ["namespaceSelector", "objectSelector"] {
                    meta::label_selector(hook.part(field), false, &At::ROOT, &mut errors);
                }
                !errors.is_empty()
            }),
        }
    }
}

fn create(object: &Value, context: &Context, is_mutating: bool) -> FieldErrors {
    let mut errors = webhooks(object, is_mutating, &Options::STRICT, &Known::default());
    static_name(object, context, &mut errors);
    errors
}

/// A name that only manifest files may use.
pub(super) fn static_name(object: &Value, context: &Context, errors: &mut FieldErrors) {
    let name = api::meta::name(object);
    if name.ends_with(STATIC_SUFFIX) && !context.static_names {
        let detail = format!(
            "names ending with \"{STATIC_SUFFIX}\" are reserved for static manifest-based configurations and cannot be managed via the API"
        );
        errors.invalid(&At::new("metadata.name"), name, detail);
    }
}

fn webhooks(object: &Value, is_mutating: bool, options: &Options, known: &Known<'_>) -> FieldErrors {
    let mut errors = meta::create(object, false, names::name_is_dns_subdomain);
    let list = At::new("webhooks");
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, hook) in object.items("webhooks").iter().enumerate() {
        let at = list.index(i);
        webhook(hook, is_mutating, options, &at, &mut errors);
        if !options.skip_conditions {
            let expressions = Expressions::of_webhook(known);
            match_conditions(
                hook.items("matchConditions"),
                &expressions,
                &at.field("matchConditions"),
                &mut errors,
            );
        }
        review_versions(hook, options, &at.field("admissionReviewVersions"), &mut errors);
        let name = hook.text("name");
        if !options.repeated_names && !name.is_empty() && !seen.insert(name) {
            errors.duplicate(&at.field("name"), name);
        }
    }
    errors
}

fn webhook(hook: &Value, is_mutating: bool, options: &Options, at: &At<'_>, errors: &mut FieldErrors) {
    let count = errors.len();
    errors.extend(names::is_fully_qualified_name(&value::Path::root(), hook.text("name")));
    for error in errors.iter_mut().skip(count) {
        error.field = at.field("name").to_string();
    }
    let rules = at.field("rules");
    for (i, rule) in hook.items("rules").iter().enumerate() {
        rule_with_operations(rule, &rules.index(i), errors);
    }
    one_of(hook, "failurePolicy", &FAILURE_POLICIES, at, errors);
    one_of(hook, "matchPolicy", &MATCH_POLICIES, at, errors);
    let effects: &[&str] = if options.any_side_effects {
        &["None", "NoneOnDryRun", "Some", "Unknown"]
    } else {
        &["None", "NoneOnDryRun"]
    };
    if hook.part("sideEffects").is_none() {
        errors.required(&at.field("sideEffects"), format!("must specify one of {}", effects.join(", ")));
    }
    one_of(hook, "sideEffects", effects, at, errors);
    if let Some(seconds) = hook.number_if_set("timeoutSeconds")
        && !(1..=30).contains(&seconds)
    {
        let detail = "the timeout value must be between 1 and 30 seconds";
        errors.invalid(&at.field("timeoutSeconds"), seconds, detail);
    }
    for field in ["namespaceSelector", "objectSelector"] {
        meta::label_selector(hook.part(field), options.lenient_selectors, &at.field(field), errors);
    }
    if is_mutating {
        one_of(hook, "reinvocationPolicy", &REINVOCATION_POLICIES, at, errors);
    }
    client_config(hook.part("clientConfig"), &at.field("clientConfig"), errors);
}

/// A text that, if set, is one of a few.
pub(super) fn one_of(holder: &Value, field: &str, known: &[&str], at: &At<'_>, errors: &mut FieldErrors) {
    if let Some(text) = holder.text_if_set(field)
        && !known.contains(&text)
    {
        errors.not_supported(&at.field(field), text, known);
    }
}

fn review_versions(hook: &Value, options: &Options, at: &At<'_>, errors: &mut FieldErrors) {
    let versions: Vec<&str> = hook.texts("admissionReviewVersions").collect();
    let accepted = REVIEW_VERSIONS.join(", ");
    if versions.is_empty() {
        errors.required(at, format!("must specify one of {accepted}"));
        return;
    }
    let repeated = Repeated::earlier(&versions);
    for (i, version) in versions.iter().enumerate() {
        if repeated.at(i) {
            errors.invalid(&at.index(i), *version, "duplicate version");
            continue;
        }
        errors.invalid_each(&at.index(i), version, names::is_dns1035_label(version));
    }
    if !options.any_review_version && !versions.iter().any(|version| REVIEW_VERSIONS.contains(version)) {
        let detail = format!("must include at least one of {accepted}");
        errors.invalid(at, Value::list(versions), detail);
    }
}

/// Where a webhook is: a URL or a service.
pub(super) fn client_config(config: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    match (config.text_if_set("url"), config.part("service")) {
        (Some(url), None) => webhook_url(url, &at.field("url"), errors),
        (None, Some(service)) => webhook_service(service, &at.field("service"), errors),
        _ => errors.required(at, "exactly one of url or service is required"),
    }
}

fn webhook_url(url: &str, at: &At<'_>, errors: &mut FieldErrors) {
    const FORM: &str = "; desired format: https://host[/path]";
    let parts = match UrlParts::parse(url) {
        Ok(parts) => parts,
        Err(why) => {
            errors.required(at, format!("url must be a valid URL: {why}{FORM}"));
            return;
        }
    };
    if parts.scheme != "https" {
        errors.invalid(at, parts.scheme.as_str(), format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if parts.host.is_empty() {
        errors.invalid(at, "", format!("host must be specified{FORM}"));
    }
    if let Some(user) = parts.user {
        errors.invalid(at, user, "user information is not permitted in the URL");
    }
    if !parts.fragment.is_empty() {
        errors.invalid(at, parts.fragment, "fragments are not permitted in the URL");
    }
    if !parts.query.is_empty() {
        errors.invalid(at, parts.query, "query parameters are not permitted in the URL");
    }
}

/// The parts of a URL that the rules look at, split as Go's `net/url` does.
struct UrlParts<'a> {
    scheme: String,
    user: Option<&'a str>,
    host: &'a str,
    query: &'a str,
    fragment: &'a str,
}

impl<'a> UrlParts<'a> {
    fn parse(url: &'a str) -> Result<Self, String> {
        let quoted = api::field::quote(url);
        let refused = |why: &str| Err(format!("parse {quoted}: {why}"));
        if url.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return refused("net/url: invalid control character in URL");
        }
        let (rest, fragment) = url.split_once('#').unwrap_or((url, ""));
        let is_scheme = |text: &str| {
            text.starts_with(|c: char| c.is_ascii_alphabetic())
                && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
        };
        let (scheme, rest) = match rest.split_once(':') {
            Some((scheme, rest)) if is_scheme(scheme) => (scheme.to_lowercase(), rest),
            Some(("", _)) => return refused("missing protocol scheme"),
            Some((before, _)) if !before.contains('/') => {
                return refused("first path segment in URL cannot contain colon");
            }
            _ => (String::new(), rest),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let Some(authority) = rest.strip_prefix("//") else {
            let is_path = scheme.is_empty() || rest.starts_with('/');
            if let Some(escape) = bad_escape(rest).filter(|_| is_path).or_else(|| bad_escape(fragment)) {
                return refused(&escape);
            }
            return Ok(UrlParts { scheme, user: None, host: "", query, fragment });
        };
        let (authority, path) = authority.split_at(authority.find('/').unwrap_or(authority.len()));
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        if host.contains(' ') {
            return refused("invalid character \" \" in host name");
        }
        if !host.starts_with('[')
            && let Some((_, port)) = host.rsplit_once(':')
            && !port.bytes().all(|byte| byte.is_ascii_digit())
        {
            return refused(&format!("invalid port {} after host", api::field::quote(&format!(":{port}"))));
        }
        if let Some(escape) = [host, path, fragment].into_iter().find_map(bad_escape) {
            return refused(&escape);
        }
        Ok(UrlParts { scheme, user, host, query, fragment })
    }
}

/// What is wrong with the first escape that is none.
fn bad_escape(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let is_hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    let at =
        (0..bytes.len()).find(|at| bytes.get(*at) == Some(&b'%') && !(is_hex(at + 1) && is_hex(at + 2)))?;
    let shown = String::from_utf8_lossy(bytes.get(at..bytes.len().min(at + 3)).unwrap_or_default());
    Some(format!("invalid URL escape {}", api::field::quote(&shown)))
}

/// A service reference. Kubernetes swaps the two names, so each is reported at the other's place.
fn webhook_service(service: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    if service.text("namespace").is_empty() {
        errors.required(&at.field("name"), "");
    }
    if service.text("name").is_empty() {
        errors.required(&at.field("namespace"), "");
    }
    let port = service.number("port");
    let wrong = names::is_valid_port_num(port);
    if !wrong.is_empty() {
        errors.invalid(&at.field("port"), port, format!("port is not valid: {}", wrong.join(", ")));
    }
    let path = service.text("path");
    let at = at.field("path");
    match path {
        "" | "/" => return,
        "//" => {
            errors.invalid(&at, path, "segment[0] may not be empty");
            return;
        }
        _ => {}
    }
    if !path.starts_with('/') {
        errors.invalid(&at, path, "must start with a '/'");
    }
    let mut chars = path.chars();
    chars.next();
    let steps = chars.as_str();
    for (i, step) in steps.strip_suffix('/').unwrap_or(steps).split('/').enumerate() {
        if step.is_empty() {
            errors.invalid(&at, path, format!("segment[{i}] may not be empty"));
            continue;
        }
        for error in names::is_dns1123_subdomain(step) {
            errors.invalid(&at, path, format!("segment[{i}]: {error}"));
        }
    }
}

/// Match conditions.
pub(super) fn match_conditions(
    conditions: &[Value],
    expressions: &Expressions<'_>,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    if conditions.len() > MAX_CONDITIONS {
        errors.too_many(at, conditions.len(), MAX_CONDITIONS);
    }
    let repeated = Repeated::of_field(conditions, "name");
    for (i, condition) in conditions.iter().enumerate() {
        let here = at.index(i);
        let expression = condition.text("expression").trim();
        if expression.is_empty() {
            errors.required(&here.field("expression"), "");
        } else {
            expressions.condition(expression, &here.field("expression"), errors);
        }
        let name = condition.text("name");
        if name.is_empty() {
            errors.required(&here.field("name"), "");
        } else {
            errors.invalid_each(&here.field("name"), name, names::is_qualified_name(name));
            if repeated.at(i) {
                errors.duplicate(&here.field("name"), name);
            }
        }
    }
}

/// Which requests a webhook or policy is about.
pub(super) fn rule_with_operations(rule: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
    let operations: Vec<&str> = rule.texts("operations").collect();
    let here = at.field("operations");
    if operations.is_empty() {
        errors.required(&here, "");
    }
    if operations.len() > 1 && operations.contains(&"*") {
        let shown = Value::list(operations.iter().copied());
        errors.invalid(&here, shown, "if '*' is present, must not specify other operations");
    }
    for (i, operation) in operations.iter().enumerate() {
        if !OPERATIONS.contains(operation) {
            errors.not_supported(&here.index(i), *operation, &OPERATIONS);
        }
    }
    for (field, what) in [("apiGroups", "API groups"), ("apiVersions", "API versions")] {
        let here = at.field(field);
        let values: Vec<&str> = rule.texts(field).collect();
        if values.is_empty() {
            errors.required(&here, "");
        }
        if values.len() > 1 && values.contains(&"*") {
            let detail = format!("if '*' is present, must not specify other {what}");
            errors.invalid(&here, Value::list(values.iter().copied()), detail);
        }
        if field == "apiVersions" {
            for (i, _) in values.iter().enumerate().filter(|(_, version)| version.is_empty()) {
                errors.required(&here.index(i), "");
            }
        }
    }
    resources(rule, &at.field("resources"), errors);
    one_of(rule, "scope", &["*", "Cluster", "Namespaced"], at, errors);
}

fn resources(rule: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let resources: Vec<&str> = rule.texts("resources").collect();
    if resources.is_empty() {
        errors.required(at, "");
    }
    let mut whole_resources: HashSet<&str> = HashSet::new();
    let mut whole_subresources: HashSet<&str> = HashSet::new();
    let (mut has_all, mut has_star, mut has_plain) = (false, false, false);
    for (i, resource) in resources.iter().enumerate() {
        let here = at.index(i);
        if resource.is_empty() {
            errors.required(&here, "");
            continue;
        }
        has_all |= *resource == "*/*";
        has_star |= *resource == "*";
        let Some((name, sub)) = resource.split_once('/') else {
            // As Kubernetes has it, only the last name without a subresource counts.
            has_plain = *resource != "*";
            continue;
        };
        if whole_resources.contains(name) {
            let detail = format!("if '{name}/*' is present, must not specify {resource}");
            errors.invalid(&here, *resource, detail);
        }
        if whole_subresources.contains(sub) {
            let detail = format!("if '*/{sub}' is present, must not specify {resource}");
            errors.invalid(&here, *resource, detail);
        }
        if sub == "*" {
            whole_resources.insert(name);
        }
        if name == "*" {
            whole_subresources.insert(sub);
        }
    }
    let shown = || Value::list(resources.iter().copied());
    if resources.len() > 1 && has_all {
        errors.invalid(at, shown(), "if '*/*' is present, must not specify other resources");
    }
    if has_star && has_plain {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.invalid(at, shown(), detail);
    }
}

/// What a policy or binding is about.
pub(super) fn match_resources(resources: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    let Some(holder) = resources else { return };
    if holder.part("matchPolicy").is_none() {
        errors.required(&at.field("matchPolicy"), "");
    }
    one_of(holder, "matchPolicy", &MATCH_POLICIES, at, errors);
    for field in ["namespaceSelector", "objectSelector"] {
        match holder.part(field) {
            None => errors.required(&at.field(field), ""),
            selector => meta::label_selector(selector, false, &at.field(field), errors),
        }
    }
    for field in ["resourceRules", "excludeResourceRules"] {
        let list = at.field(field);
        for (i, rule) in holder.items(field).iter().enumerate() {
            let here = list.index(i);
            let names_at = here.field("resourceNames");
            let mut seen: HashSet<&str> = HashSet::new();
            for (j, name) in rule.texts("resourceNames").enumerate() {
                errors.invalid_each(&names_at.index(j), name, names::is_path_segment_name(name));
                if !seen.insert(name) {
                    errors.duplicate(&names_at.index(j), name);
                }
            }
            rule_with_operations(rule, &here, errors);
        }
    }
}
