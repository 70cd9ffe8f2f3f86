//! Decodes and validates the policy file, with the error messages of kube-apiserver.

use api::field::{FieldError, aggregate, quote};
use api::names;
use value::yaml::{self, Document};
use value::{Map, Path, Str, Value};

use super::{AuditConditions, AuditDecision, AuditPolicy, AuditRule, AuditStage, GroupResources, Level};

const API_VERSION: &str = "audit.k8s.io/v1";
const KIND: &str = "Policy";
/// Other kinds of this version, which Go's decoder accepts and then fails to convert to a policy.
const OTHERS: [&str; 3] = ["Event", "EventList", "PolicyList"];
/// Location of Go's scheme, which is part of its error message.
const SCHEME: &str = "k8s.io/apiserver/pkg/audit/scheme.go:30";
/// Decodes and validates a policy.
pub(super) fn policy(bytes: &[u8]) -> Result<AuditPolicy, String> {
    let raw = read(bytes)?;
    let errors = raw.problems();
    if !errors.is_empty() {
        return Err(aggregate(&errors));
    }
    if raw.rules.is_empty() {
        return Err("loaded illegal policy with 0 rules".to_owned());
    }
    let stages = |names: &[Str]| -> Vec<AuditStage> {
        let named = |stage: &AuditStage| {
            [&raw.omit_stages[..], names].iter().any(|list| list.iter().any(|s| s == stage.as_str()))
        };
        AuditStage::ALL.into_iter().filter(named).collect()
    };
    let rules = raw.rules.iter().map(|rule| AuditRule {
        decision: AuditDecision {
            level: Level::ALL.into_iter().find(|l| rule.level == l.as_str()).unwrap_or(Level::None),
            omit_stages: stages(&rule.omit_stages),
            omit_managed_fields: rule.omit_managed_fields.unwrap_or(raw.omit_managed_fields),
        },
        conditions: rule.conditions.clone(),
    });
    Ok(AuditPolicy { rules: rules.collect() })
}

/// A policy whose fields have the right types but are not validated.
#[derive(Default)]
struct RawPolicy {
    rules: Vec<RawRule>,
    omit_stages: Vec<Str>,
    omit_managed_fields: bool,
}

#[derive(Default)]
struct RawRule {
    level: Str,
    conditions: AuditConditions,
    omit_stages: Vec<Str>,
    omit_managed_fields: Option<bool>,
}

impl RawPolicy {
    fn problems(&self) -> Vec<FieldError> {
        let mut errors = Vec::new();
        unknown_stages(&self.omit_stages, &Path::root().field("omitStages"), &mut errors);
        for (i, rule) in self.rules.iter().enumerate() {
            rule.problems(&Path::root().field("rules").index(i), &mut errors);
        }
        errors
    }
}

impl RawRule {
    fn problems(&self, path: &Path, errors: &mut Vec<FieldError>) {
        let AuditConditions { paths, resources, namespaces, .. } = &self.conditions;
        let levels = Level::ALL.map(Level::as_str);
        if self.level.is_empty() {
            errors.push(FieldError::required(&path.field("level"), ""));
        } else if !levels.contains(&self.level.as_str()) {
            errors.push(FieldError::not_supported(&path.field("level"), self.level.clone(), &levels));
        }
        for (i, spec) in paths.iter().enumerate().filter(|(_, spec)| *spec != "*") {
            let at = path.field("nonResourceURLs").index(i);
            if !spec.starts_with('/') {
                let why = "non-resource URL rules must begin with a '/' character";
                errors.push(FieldError::invalid(&at, spec.clone(), why));
            }
            // Go ignores the last byte, so a final `*` is permitted.
            if spec.strip_suffix('*').unwrap_or(spec).contains('*') {
                let why = "non-resource URL wildcards '*' must be the final character of the rule";
                errors.push(FieldError::invalid(&at, spec.clone(), why));
            }
        }
        let at = path.field("resources");
        for resources in resources {
            let group = &resources.group;
            if !group.is_empty() && group != "*" {
                let why = names::is_dns1123_subdomain(group);
                if !why.is_empty() {
                    let why = why.join(",");
                    errors.push(FieldError::invalid(&at.field("group"), group.clone(), why));
                }
            }
            if !resources.names.is_empty() && resources.resources.is_empty() {
                let value = Value::list(resources.names.iter().cloned());
                let why = "using resourceNames requires at least one resource";
                errors.push(FieldError::invalid(&at.field("resourceNames"), value, why));
            }
        }
        unknown_stages(&self.omit_stages, &path.field("omitStages"), errors);
        if !paths.is_empty() && (!resources.is_empty() || !namespaces.is_empty()) {
            let value = Value::list(paths.iter().cloned());
            let why = "rules cannot apply to both regular resources and non-resource URLs";
            errors.push(FieldError::invalid(&path.field("nonResourceURLs"), value, why));
        }
    }
}

fn unknown_stages(stages: &[Str], path: &Path, errors: &mut Vec<FieldError>) {
    let known = AuditStage::ALL.map(AuditStage::as_str);
    for (i, stage) in stages.iter().enumerate().filter(|(_, stage)| !known.contains(&stage.as_str())) {
        let why = format!("allowed stages are {}", known.join(","));
        errors.push(FieldError::invalid(&path.index(i), stage.clone(), why));
    }
}

fn read(bytes: &[u8]) -> Result<RawPolicy, String> {
    let failed = |why: String| format!("failed decoding: {why}");
    let document: Document = yaml::document(bytes).map_err(|e| failed(e.to_string()))?;
    let (api_version, kind) = api::type_meta::read(&document.value).map_err(|error| failed(error.message))?;
    let empty = Map::new();
    let root = document.value.as_map().unwrap_or(&empty);
    // Go's decoder has defaults: an omitted kind means Policy, an omitted version the internal one.
    let kind = if kind.is_empty() { KIND } else { kind };
    if api_version.is_empty() {
        return Err(format!("unknown group version field audit.k8s.io/__internal, Kind={kind} in policy"));
    }
    if api_version == API_VERSION && OTHERS.contains(&kind) {
        return Err(failed(format!("converting (v1.{kind}) to (audit.Policy): unknown conversion")));
    }
    if (api_version, kind) != (API_VERSION, KIND) {
        return Err(failed(format!(
            "no kind {} is registered for version {} in scheme {}",
            quote(kind),
            quote(api_version),
            quote(SCHEME)
        )));
    }
    let mut reader = PolicyReader::default();
    let policy = reader.policy(root);
    if let Some(mismatch) = reader.mismatch {
        return Err(failed(mismatch));
    }
    let mut strict: Vec<String> = match document.strict {
        Some(strict) => vec![strict],
        None => document.duplicates.iter().map(|path| format!("duplicate field {}", quote(path))).collect(),
    };
    strict.extend(reader.unknown.iter().map(|path| format!("unknown field {}", quote(path))));
    // As in kube-apiserver: unknown fields only cause a warning, so that an older server accepts a newer
    // policy.
    if !strict.is_empty() {
        let strict = strict.join(", ");
        tracing::warn!(
            "Audit policy contains errors, falling back to lenient decoding: strict decoding error: {strict}"
        );
    }
    Ok(policy)
}

/// Reads fields in Go's order. Records the first type mismatch and all unknown fields.
#[derive(Default)]
struct PolicyReader {
    mismatch: Option<String>,
    unknown: Vec<String>,
}

/// A field's Go struct, and its path as Go prints it, without indices.
struct PolicyField<'a> {
    owner: &'a str,
    dotted: String,
}

impl<'a> PolicyField<'a> {
    fn new(owner: &'a str, parent: &str, name: &str) -> Self {
        PolicyField {
            owner,
            dotted: if parent.is_empty() { name.to_owned() } else { format!("{parent}.{name}") },
        }
    }
}

impl PolicyReader {
    fn policy(&mut self, root: &Map) -> RawPolicy {
        let mut out = RawPolicy::default();
        for (name, value) in root.iter() {
            let field = PolicyField::new(KIND, "", name);
            match name.as_str() {
                // Metadata has no effect on the policy.
                "apiVersion" | "kind" | "metadata" => {}
                "rules" => {
                    let items = self.list(&field, value, "[]v1.PolicyRule").iter().enumerate();
                    out.rules = items
                        .map(|(i, item)| self.rule(&Path::root().field("rules").index(i), item))
                        .collect();
                }
                "omitStages" => out.omit_stages = self.texts(&field, value, "v1.Stage"),
                "omitManagedFields" => out.omit_managed_fields = self.flag(&field, value).unwrap_or_default(),
                _ => self.unknown.push(name.to_string()),
            }
        }
        out
    }

    fn rule(&mut self, path: &Path, value: &Value) -> RawRule {
        const OWNER: &str = "PolicyRule";
        let mut out = RawRule::default();
        let rules = PolicyField { owner: KIND, dotted: "rules".to_owned() };
        for (name, value) in self.object(&rules, value, "v1.PolicyRule").iter() {
            let field = PolicyField::new(OWNER, "rules", name);
            match name.as_str() {
                "level" => out.level = self.text(&field, value, "v1.Level"),
                "users" => out.conditions.users = self.texts(&field, value, "string"),
                "userGroups" => out.conditions.user_groups = self.texts(&field, value, "string"),
                "verbs" => out.conditions.verbs = self.texts(&field, value, "string"),
                "resources" => {
                    let items = self.list(&field, value, "[]v1.GroupResources").iter().enumerate();
                    out.conditions.resources = items
                        .map(|(i, item)| self.resources(&field, &path.field("resources").index(i), item))
                        .collect();
                }
                "namespaces" => out.conditions.namespaces = self.texts(&field, value, "string"),
                "nonResourceURLs" => out.conditions.paths = self.texts(&field, value, "string"),
                "omitStages" => out.omit_stages = self.texts(&field, value, "v1.Stage"),
                "omitManagedFields" => out.omit_managed_fields = self.flag(&field, value),
                _ => self.unknown.push(path.field(name.clone()).to_string()),
            }
        }
        out
    }

    fn resources(&mut self, rules: &PolicyField<'_>, path: &Path, value: &Value) -> GroupResources {
        const OWNER: &str = "GroupResources";
        let mut out = GroupResources::default();
        for (name, value) in self.object(rules, value, "v1.GroupResources").iter() {
            let field = PolicyField::new(OWNER, &rules.dotted, name);
            match name.as_str() {
                "group" => out.group = self.text(&field, value, "string"),
                "resources" => out.resources = self.texts(&field, value, "string"),
                "resourceNames" => out.names = self.texts(&field, value, "string"),
                _ => self.unknown.push(path.field(name.clone()).to_string()),
            }
        }
        out
    }

    fn object<'v>(&mut self, field: &PolicyField<'_>, value: &'v Value, wanted: &str) -> &'v Map {
        static EMPTY: Map = Map::new();
        match value {
            Value::Map(map) => map,
            Value::Null => &EMPTY,
            other => {
                self.wrong(field, other, wanted);
                &EMPTY
            }
        }
    }

    fn list<'v>(&mut self, field: &PolicyField<'_>, value: &'v Value, wanted: &str) -> &'v [Value] {
        match value {
            Value::List(list) => list,
            Value::Null => &[],
            other => {
                self.wrong(field, other, wanted);
                &[]
            }
        }
    }

    fn texts(&mut self, field: &PolicyField<'_>, value: &Value, wanted: &str) -> Vec<Str> {
        let items = self.list(field, value, &format!("[]{wanted}"));
        items.iter().map(|item| self.text(field, item, wanted)).collect()
    }

    fn text(&mut self, field: &PolicyField<'_>, value: &Value, wanted: &str) -> Str {
        match value {
            Value::String(text) => text.clone(),
            Value::Null => Str::default(),
            other => {
                self.wrong(field, other, wanted);
                Str::default()
            }
        }
    }

    fn flag(&mut self, field: &PolicyField<'_>, value: &Value) -> Option<bool> {
        match value {
            Value::Bool(flag) => Some(*flag),
            Value::Null => None,
            other => {
                self.wrong(field, other, "bool");
                None
            }
        }
    }

    fn wrong(&mut self, field: &PolicyField<'_>, value: &Value, wanted: &str) {
        self.mismatch.get_or_insert(format!(
            "json: cannot unmarshal {} into Go struct field {}.{} of type {wanted}",
            value.json_type(),
            field.owner,
            field.dotted
        ));
    }
}
