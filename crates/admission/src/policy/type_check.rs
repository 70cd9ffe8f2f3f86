//! Type checks policies against the schemas of the kinds that they match, to find typos before they deny
//! requests.
//!
//! The results are advice: evaluation does not depend on them.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use api::{GroupVersion, GroupVersionKind};
use cel::{Issue, Issues};
use kinds::expressions::{KindTypes, TypedCompiler};
use kinds::table::Resource;
use schema::Link;
use value::Value;
use value::text::first_bytes;

use crate::ClusterView;

/// At most this many kinds of a rule are checked.
const MAX_KINDS: usize = 10;

/// At most this many combinations of group, version and resource are looked up for one policy, because the
/// lists of its rules multiply.
const MAX_LOOKUPS: usize = 10_000;

/// The longest name of a group, version or resource.
const MAX_NAME_BYTES: usize = 253;

/// Bytes of the warnings of one policy. An error quotes the line of the expression, so errors can be thousands of times
/// longer than the policy.
const MAX_WARNING_BYTES: usize = 64 << 10;

/// Bytes of the expressions of one policy that are checked, where an expression counts once for each kind.
const MAX_CHECKED_BYTES: usize = 4 << 20;

/// Bytes that each check of an expression counts besides its length.
const CHECK_OVERHEAD: usize = 256;

/// The last line of the last warning if a limit is exceeded.
const LEFT_OUT: &str = "further type checks and their errors are left out";

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
/// kube-apiserver does, up to a number of bytes and of checks.
pub fn type_check(policy: &Value, catalog: &dyn TypeCheckKinds) -> Vec<Value> {
    let spec = policy.get("spec").unwrap_or(&Value::Null);
    let types = |kind: &GroupVersionKind| {
        catalog.schema_of(kind).map(|schema| Arc::new(KindTypes::new(kind.kind.clone(), schema)))
    };
    let params = spec.get("paramKind").filter(|kind| !kind.is_null()).map(|kind| {
        let version = GroupVersion::parse(kind.str_at(&["apiVersion"]).unwrap_or_default()).ok()?;
        types(&version.kind(kind.str_at(&["kind"]).unwrap_or_default()))
    });
    let mut limits = TypeCheckLimits { work: MAX_CHECKED_BYTES, room: MAX_WARNING_BYTES, exceeded: false };
    let work_of_variables = variables(spec).map(|(_, expression)| work_of(expression)).sum();
    let mut compilers: Vec<(GroupVersionKind, TypedCompiler)> = Vec::new();
    for kind in kinds(spec, |group, version, resource| catalog.kinds_of(group, version, resource)) {
        let Some(object) = types(&kind) else { continue };
        if !limits.take_work(work_of_variables) {
            break;
        }
        let compiler = TypedCompiler::new(&object, params.as_ref().map(Option::as_ref));
        for (name, expression) in variables(spec) {
            let _ = compiler.variable(name, expression);
        }
        compilers.push((kind, compiler));
    }
    let mut warnings = Vec::new();
    for (i, validation) in spec.list_at(&["validations"]).iter().enumerate() {
        for field in ["expression", "messageExpression"] {
            let expression = validation.str_at(&[field]).unwrap_or_default();
            if expression.is_empty() && field == "messageExpression" {
                continue;
            }
            let warning = limits.check(expression, &compilers);
            if !warning.is_empty() {
                let field = format!("spec.validations[{i}].{field}");
                limits.room = limits.room.saturating_sub(field.len());
                warnings.push(Value::map([("fieldRef", field), ("warning", warning)]));
            }
            if limits.exceeded {
                return warnings;
            }
        }
    }
    warnings
}

/// The rest of the work and of the bytes of warnings for one policy.
struct TypeCheckLimits {
    work: usize,
    room: usize,
    exceeded: bool,
}

impl TypeCheckLimits {
    /// Spends work. Returns false if there was less left.
    fn take_work(&mut self, work: usize) -> bool {
        self.exceeded |= work > self.work;
        self.work = self.work.saturating_sub(work);
        !self.exceeded
    }

    /// Type checks an expression for each kind and returns the errors. If a limit is exceeded, the last line says so.
    fn check(&mut self, expression: &str, compilers: &[(GroupVersionKind, TypedCompiler)]) -> String {
        let mut warning = String::new();
        for (kind, compiler) in compilers {
            if !self.take_work(work_of(expression)) {
                break;
            }
            let Err(issues) = compiler.check(expression) else { continue };
            let separator = if warning.is_empty() { "" } else { "\n" };
            let mut out = BoundedText { text: &mut warning, room: &mut self.room };
            if writeln!(out, "{separator}{kind}: {issues}").is_err() {
                self.exceeded = true;
                break;
            }
        }
        if self.exceeded {
            // A line that was cut is left out.
            warning.truncate(warning.rfind('\n').map_or(0, |end| end + 1));
            warning.push_str(LEFT_OUT);
        }
        warning
    }
}

/// Writes to a text until `room` is used up.
struct BoundedText<'a> {
    text: &'a mut String,
    room: &'a mut usize,
}

impl fmt::Write for BoundedText<'_> {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let fitting = first_bytes(part, *self.room);
        self.text.push_str(fitting);
        if fitting.len() < part.len() {
            *self.room = 0;
            return Err(fmt::Error);
        }
        *self.room -= fitting.len();
        Ok(())
    }
}

/// The work to check an expression for one kind.
fn work_of(expression: &str) -> usize {
    expression.len().saturating_add(CHECK_OVERHEAD)
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
