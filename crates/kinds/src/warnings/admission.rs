//! Warnings about admission policies, their bindings and webhook configurations.

use std::collections::HashSet;

use api::validation::fields::{At, Read};
use value::Value;

const STATIC_SUFFIX: &str = crate::validation::admissionregistration::STATIC_SUFFIX;

/// Resources for which admission webhooks are never called.
const NOT_INTERCEPTED: &[(&str, &str)] = &[
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
];

/// Warnings about policies and their bindings, mutating and validating.
pub(crate) fn admission_policy(new: &Value, _: Option<&Value>, warnings: &mut Vec<String>) {
    // Validation rejects these names where they are reserved; elsewhere they cause this warning.
    if api::meta::name(new).ends_with(STATIC_SUFFIX) {
        warnings.push(format!(
            "metadata.name: names ending with \"{STATIC_SUFFIX}\" are reserved for static manifest-based \
             configurations and cannot be managed via the API"
        ));
    }
}

/// Warnings about MutatingWebhookConfiguration and ValidatingWebhookConfiguration.
pub(crate) fn webhook_configuration(new: &Value, old: Option<&Value>, warnings: &mut Vec<String>) {
    admission_policy(new, old, warnings);
    let webhooks = At::new("webhooks");
    for (i, webhook) in new.items("webhooks").iter().enumerate() {
        let here = webhooks.index(i);
        let rules = here.field("rules");
        for (j, rule) in webhook.items("rules").iter().enumerate() {
            if rule.texts("apiGroups").chain(rule.texts("resources")).any(|name| name == "*") {
                continue;
            }
            // Few groups and resources are left after this, so that their pairs are few too.
            let groups =
                distinct(rule.texts("apiGroups"), |one| NOT_INTERCEPTED.iter().any(|(g, _)| *g == one));
            let resources =
                distinct(rule.texts("resources"), |one| NOT_INTERCEPTED.iter().any(|(_, r)| *r == one));
            for group in groups {
                for resource in resources.iter().filter(|one| NOT_INTERCEPTED.contains(&(group, one))) {
                    warnings.push(format!(
                        "{}: {resource}.{group} is excluded from admission webhooks; this rule will have no effect",
                        rules.index(j)
                    ));
                }
            }
        }
    }
}

/// The texts that are wanted, each once, in the order of their first occurrences.
fn distinct<'a>(texts: impl Iterator<Item = &'a str>, is_wanted: impl Fn(&str) -> bool) -> Vec<&'a str> {
    let mut seen = HashSet::new();
    texts.filter(|text| is_wanted(text) && seen.insert(*text)).collect()
}
