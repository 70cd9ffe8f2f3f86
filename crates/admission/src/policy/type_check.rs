//! Validating policies against the schemas of the kinds that they name, so that a typo is seen before it denies something.
//!
//! This is advice: policies are evaluated on what objects are, whatever is said here.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::{GroupVersion, GroupVersionKind};
use resources::expressions::{KindTypes, TypedCompiler};
use value::Value;

use crate::Cluster;

/// The most kinds of one rule that are looked at.
const MOST_KINDS: usize = 10;

/// The most combinations of a group, a version and a resource that are looked up for one policy: its rules may name as many as three
/// long lists have.
const MOST_LOOKED_UP: usize = 10_000;

/// No group, version or resource has a longer name.
const LONGEST: usize = 253;

/// What is wrong with the expressions of a validating policy, as its `status.typeChecking.expressionWarnings`.
pub fn type_check(policy: &Value, cluster: &dyn Cluster) -> Vec<Value> {
    let spec = policy.get("spec").unwrap_or(&Value::Null);
    let types = |kind: &GroupVersionKind| {
        cluster.schema(kind).map(|schema| Arc::new(KindTypes::new(kind.kind.clone(), schema)))
    };
    let params = spec.get("paramKind").filter(|kind| !kind.is_null()).map(|kind| {
        let version = GroupVersion::parse(kind.str_at(&["apiVersion"]).unwrap_or_default()).ok()?;
        types(&version.kind(kind.str_at(&["kind"]).unwrap_or_default()))
    });
    let named = |group: &str, version: &str, resource: &str| {
        cluster.named(group, version, resource).into_iter().map(|found| found.kind).collect()
    };
    let compilers: Vec<(GroupVersionKind, TypedCompiler)> = kinds(spec, named)
        .into_iter()
        .filter_map(|kind| {
            let object = types(&kind)?;
            let compiler = TypedCompiler::new(&object, params.as_ref().map(Option::as_ref));
            for variable in spec.list_at(&["variables"]) {
                let text = |field: &str| variable.str_at(&[field]).unwrap_or_default();
                compiler.variable(text("name"), text("expression"));
            }
            Some((kind, compiler))
        })
        .collect();
    let mut warnings = Vec::new();
    for (i, validation) in spec.list_at(&["validations"]).iter().enumerate() {
        for field in ["expression", "messageExpression"] {
            let expression = validation.str_at(&[field]).unwrap_or_default();
            if expression.is_empty() && field == "messageExpression" {
                continue;
            }
            let wrong: Vec<String> = compilers
                .iter()
                .filter_map(|(kind, compiler)| {
                    compiler.check(expression).err().map(|issues| format!("{kind}: {issues}\n"))
                })
                .collect();
            if !wrong.is_empty() {
                warnings.push(Value::map([
                    ("fieldRef", format!("spec.validations[{i}].{field}")),
                    ("warning", wrong.join("\n")),
                ]));
            }
        }
    }
    warnings
}

/// The kinds that the rules name without stars, sorted by group, version and kind. `named` are those that a group, a version and the
/// lowercase name of a resource mean.
fn kinds(
    spec: &Value,
    mut named: impl FnMut(&str, &str, &str) -> Vec<GroupVersionKind>,
) -> BTreeSet<GroupVersionKind> {
    let mut kinds = BTreeSet::new();
    let mut left = MOST_LOOKED_UP;
    for rule in spec.list_at(&["matchConstraints", "resourceRules"]) {
        let texts = |field: &str| {
            let mut texts: Vec<&str> = rule.list_at(&[field]).iter().filter_map(Value::as_str).collect();
            texts.sort_unstable();
            texts
        };
        let (groups, versions) = (texts("apiGroups"), texts("apiVersions"));
        if groups.iter().chain(&versions).any(|text| text.contains('*')) {
            continue;
        }
        let can_be = |text: &&str| text.len() <= LONGEST;
        let resources = texts("resources").into_iter().filter(|text| !text.contains(['*', '/']));
        let resources: Vec<String> = resources.filter(can_be).map(str::to_lowercase).collect();
        let mut count = 0;
        for group in groups.iter().copied().filter(can_be) {
            for version in versions.iter().copied().filter(can_be) {
                for resource in &resources {
                    if left == 0 {
                        return kinds;
                    }
                    left -= 1;
                    // Without a group it is looked up in all of them, as clients do.
                    for found in named(group, version, resource) {
                        kinds.insert(found);
                        count += 1;
                        if count == MOST_KINDS {
                            return kinds;
                        }
                    }
                }
            }
        }
    }
    kinds
}

#[cfg(test)]
mod tests;
