//! Type checks policies against the schemas of the kinds that they match, to find typos before they deny
//! requests.
//!
//! The results are advice: evaluation does not depend on them.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::{GroupVersion, GroupVersionKind};
use cel::{Issue, Issues};
use kinds::expressions::{KindTypes, TypedCompiler};
use kinds::table::Resource;
use schema::Link;
use value::Value;

use crate::ClusterView;

/// At most this many kinds of a rule are checked.
const MAX_KINDS: usize = 10;

/// At most this many combinations of group, version and resource are looked up for one policy, because the
/// lists of its rules multiply.
const MAX_LOOKUPS: usize = 10_000;

/// The longest name of a group, version or resource.
const MAX_NAME_BYTES: usize = 253;

/// Supplies the kinds and schemas to check against: those of a cluster, or the built-in ones.
pub trait TypeCheckKinds {
    /// The kinds of the resource with this plural or singular name in a version. An empty group means any
    /// group.
    fn kinds_of(&self, group: &str, version: &str, resource: &str) -> Vec<GroupVersionKind>;

    fn schema_of(&self, kind: &GroupVersionKind) -> Option<Link>;
}

impl<C: ClusterView + ?Sized> TypeCheckKinds for C {
    fn kinds_of(&self, group: &str, version: &str, resource: &str) -> Vec<GroupVersionKind> {
        self.rest_mappings_named(group, version, resource).into_iter().map(|found| found.kind).collect()
    }

    fn schema_of(&self, kind: &GroupVersionKind) -> Option<Link> {
        self.schema(kind, None)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct BuiltInKinds;

impl TypeCheckKinds for BuiltInKinds {
    fn kinds_of(&self, group: &str, version: &str, resource: &str) -> Vec<GroupVersionKind> {
        let wanted = |row: &&Resource| {
            (group.is_empty() || row.group == group) && (row.plural == resource || row.singular == resource)
        };
        let rows = kinds::table::all().filter(wanted);
        rows.filter(|row| row.versions.iter().any(|of| of.name == version))
            .map(|row| GroupVersionKind::new(row.group, version, row.kind))
            .collect()
    }

    fn schema_of(&self, kind: &GroupVersionKind) -> Option<Link> {
        schema::of(&kind.group, &kind.version, &kind.kind).map(Link::Node)
    }
}

/// Type checks a validating policy. Returns `status.typeChecking.expressionWarnings` exactly as
/// kube-apiserver does.
pub fn type_check(policy: &Value, catalog: &dyn TypeCheckKinds) -> Vec<Value> {
    let spec = policy.get("spec").unwrap_or(&Value::Null);
    let types = |kind: &GroupVersionKind| {
        catalog.schema_of(kind).map(|schema| Arc::new(KindTypes::new(kind.kind.clone(), schema)))
    };
    let params = spec.get("paramKind").filter(|kind| !kind.is_null()).map(|kind| {
        let version = GroupVersion::parse(kind.str_at(&["apiVersion"]).unwrap_or_default()).ok()?;
        types(&version.kind(kind.str_at(&["kind"]).unwrap_or_default()))
    });
    let compilers: Vec<(GroupVersionKind, TypedCompiler)> =
        kinds(spec, |group, version, resource| catalog.kinds_of(group, version, resource))
            .into_iter()
            .filter_map(|kind| {
                let object = types(&kind)?;
                let compiler = TypedCompiler::new(&object, params.as_ref().map(Option::as_ref));
                for (name, expression) in variables(spec) {
                    let _ = compiler.variable(name, expression);
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

/// The names and expressions of a policy's variables.
fn variables(spec: &Value) -> impl Iterator<Item = (&str, &str)> {
    spec.list_at(&["variables"]).iter().map(|variable| {
        let name = variable.str_at(&["name"]).unwrap_or_default();
        (name, variable.str_at(&["expression"]).unwrap_or_default())
    })
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeWarning {
    /// The field path of the expression.
    pub field: String,
    /// The error with its position in the expression.
    pub message: String,
}

/// Finds certain type errors in the expressions of a policy. It checks more than [`type_check`], because it
/// looks at every expression and at mutating policies, and reports less, because operators can make it reject
/// the policy: an expression is reported only if it is wrong for every kind that the policy names and all
/// these kinds are known.
pub fn type_warnings(policy: &Value, catalog: &dyn TypeCheckKinds) -> Vec<TypeWarning> {
    let spec = policy.get("spec").unwrap_or(&Value::Null);
    let mutations = spec.list_at(&["mutations"]);
    let mut resolved = BTreeSet::new();
    let kinds = kinds(spec, |group, version, resource| {
        let found = catalog.kinds_of(group, version, resource);
        if !found.is_empty() {
            resolved.insert(resource.to_owned());
        }
        found
    });
    if kinds.len() >= MAX_KINDS || !names_all_kinds(spec, &resolved) {
        return Vec::new();
    }
    let mut compilers = Vec::new();
    for kind in kinds {
        let Some(schema) = catalog.schema_of(&kind) else { return Vec::new() };
        let types = Arc::new(KindTypes::tolerant(kind.kind.clone(), schema));
        compilers.push((kind, TypedCompiler::tolerant(&types, !mutations.is_empty())));
    }
    let is_certain = |issue: &Issue, kind: &GroupVersionKind| {
        let missing = issue.message.starts_with("undefined field");
        // To the checker, equal but separate object types differ, for example containers and init containers,
        // or the objects of an apply configuration.
        missing || mutations.is_empty() && !issue.message.contains(kind.kind.as_str())
    };
    let mut warnings = Vec::new();
    let mut add = |field: String, check: &dyn Fn(&TypedCompiler) -> Result<(), Issues>| {
        let mut common: Option<Vec<Issue>> = None;
        for (kind, compiler) in &compilers {
            let Err(issues) = check(compiler) else {
                common = None;
                break;
            };
            let issues = issues.sorted().into_iter().filter(|issue| is_certain(issue, kind));
            common = Some(match common {
                None => issues.cloned().collect(),
                Some(before) => issues.filter(|issue| before.contains(issue)).cloned().collect(),
            });
            if common.as_ref().is_some_and(Vec::is_empty) {
                break;
            }
        }
        for issue in common.unwrap_or_default() {
            let (line, column) = (issue.location.line, issue.location.column + 1);
            let message = format!("{} at line {line}, column {column} of the expression", issue.message);
            warnings.push(TypeWarning { field: field.clone(), message });
        }
    };
    for (i, (name, expression)) in variables(spec).enumerate() {
        let check = |compiler: &TypedCompiler| compiler.variable(name, expression);
        add(format!("spec.variables[{i}].expression"), &check);
    }
    for (list, parts) in EXPRESSIONS {
        for (i, item) in spec.list_at(&[list]).iter().enumerate() {
            for part in *parts {
                if let Some(expression) = item.str_at(part).filter(|text| !text.is_empty()) {
                    let field = format!("spec.{list}[{i}].{}", part.join("."));
                    add(field, &|compiler: &TypedCompiler| compiler.check(expression));
                }
            }
        }
    }
    warnings
}

/// The fields with expressions, besides `variables`.
const EXPRESSIONS: &[(&str, &[&[&str]])] = &[
    ("matchConditions", &[&["expression"]]),
    ("validations", &[&["expression"], &["messageExpression"]]),
    ("auditAnnotations", &[&["valueExpression"]]),
    ("mutations", &[&["applyConfiguration", "expression"], &["jsonPatch", "expression"]]),
];

/// Subresources whose object has the kind of the resource.
const SUBRESOURCES_OF_SAME_KIND: &[&str] =
    &["status", "ephemeralcontainers", "resize", "approval", "finalize"];

/// Whether the rules name all kinds explicitly, and all of them are known.
fn names_all_kinds(spec: &Value, resolved: &BTreeSet<String>) -> bool {
    spec.list_at(&["matchConstraints", "resourceRules"]).iter().all(|rule| {
        let texts = |field: &str| rule.list_at(&[field]).iter().filter_map(Value::as_str);
        let no_stars = ["apiGroups", "apiVersions", "resources"]
            .into_iter()
            .all(|field| texts(field).all(|text| !text.contains('*')));
        no_stars
            && texts("resources").all(|resource| match resource.split_once('/') {
                None => resolved.contains(&resource.to_lowercase()),
                Some((_, subresource)) => SUBRESOURCES_OF_SAME_KIND.contains(&subresource),
            })
    })
}

/// The kinds that the rules name without wildcards, sorted by group, version and kind. `rest_mappings_named` looks up a
/// group, a version and a lowercase resource name.
fn kinds(
    spec: &Value,
    mut rest_mappings_named: impl FnMut(&str, &str, &str) -> Vec<GroupVersionKind>,
) -> BTreeSet<GroupVersionKind> {
    let mut kinds = BTreeSet::new();
    let mut left = MAX_LOOKUPS;
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
        let can_be = |text: &&str| text.len() <= MAX_NAME_BYTES;
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
                    // A rule without a group is looked up in all groups, as clients do.
                    for found in rest_mappings_named(group, version, resource) {
                        kinds.insert(found);
                        count += 1;
                        if count == MAX_KINDS {
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
