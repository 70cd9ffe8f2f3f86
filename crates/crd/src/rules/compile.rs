//! Compiles the rules of a schema, and those of all schemas below it into a tree.

use std::sync::{Arc, LazyLock};

use cel::schema::{CelSchema, SchemaHints, SchemaTypes};
use cel::{Checked, Env, Program, Type, Version};
use value::{Str, Value};

use crate::field_path::field_path;
use crate::node::{SchemaNode, ValidationRule};
use crate::stopwatch::{Stopwatch, timed};

/// Maximum size of a request in bytes, which bounds how often a rule can apply.
const MOST_BYTES: u64 = 3 * 1024 * 1024;

static BASE: LazyLock<Env> = LazyLock::new(|| Env::kubernetes(Version::CURRENT));

/// Name of the type of `self`; nested types are named after it.
const SELF_TYPE: &str = "selfType";

/// A schema with rules, in its parsed form and as JSON, from which CEL declares types.
#[derive(Clone, Copy)]
pub struct RuleSource<'a> {
    pub node: &'a SchemaNode,
    pub schema: &'a Value,
    /// Whether it describes a whole resource and not only a part of one.
    pub is_resource: bool,
}

#[derive(Debug)]
pub struct CompiledRule {
    pub rule: ValidationRule,
    pub program: Result<Program, String>,
    /// Whether it is a transition rule, which refers to `oldSelf`.
    pub uses_old_self: bool,
    pub message: Option<Result<Program, String>>,
    /// Estimated maximum CEL cost of one evaluation, if the estimate was requested.
    pub max_cost: u64,
    /// Estimated maximum CEL cost of the `messageExpression`.
    pub message_max_cost: u64,
    /// The `fieldPath` that errors report, relative to the value of the rule.
    pub(super) field_path: String,
}

#[derive(Debug)]
pub struct CompiledRules {
    /// In the order of the schema.
    pub rules: Vec<CompiledRule>,
    /// How often a value of this schema can occur in one request.
    pub max_cardinality: u64,
    pub(super) schema: Arc<CelSchema>,
    pub(super) env: Env,
    /// Declares `oldSelf` as an optional value.
    pub(super) optional_env: Env,
}

/// Compiles the rules of a schema. Costs are estimated only when a CRD is validated (`estimate`). `None` if the schema cannot be
/// converted to CEL types.
pub fn compile(
    source: RuleSource<'_>,
    estimate: bool,
    watch: Option<&dyn Stopwatch>,
) -> Option<CompiledRules> {
    timed(watch, |watch, took| watch.compiled(took), || compile_rules(source, estimate))
}

fn compile_rules(source: RuleSource<'_>, estimate: bool) -> Option<CompiledRules> {
    let types = CelSchema::from_openapi(source.schema, SELF_TYPE, source.is_resource)?;
    let declared = types.declared_type();
    let base = BASE.with_types(Arc::new(SchemaTypes::new([Arc::clone(&types)])));
    let env = base.with_variables([("self", declared.clone()), ("oldSelf", declared.clone())]);
    let optional_env =
        base.with_variables([("self", declared.clone()), ("oldSelf", Type::optional(declared))]);
    let hints = SchemaHints::new(
        [("self", &types), ("oldSelf", &types)].map(|(name, types)| (Str::from(name), Arc::clone(types))),
    );
    let max_cost = |checked: &Checked| if estimate { checked.estimate(&hints).max } else { 0 };
    let rules = source.node.rules.iter().map(|rule| {
        let env = if rule.optional_old_self == Some(true) { &optional_env } else { &env };
        compile_rule(rule, source.node, env, max_cost)
    });
    Some(CompiledRules {
        rules: rules.collect(),
        max_cardinality: MOST_BYTES / (types.min_serialized() + 1),
        schema: types,
        env,
        optional_env,
    })
}

fn compile_rule(
    rule: &ValidationRule,
    node: &SchemaNode,
    env: &Env,
    max_cost: impl Fn(&Checked) -> u64,
) -> CompiledRule {
    let mut compiled = CompiledRule {
        rule: rule.clone(),
        program: Err(String::new()),
        uses_old_self: false,
        message: None,
        max_cost: 0,
        message_max_cost: 0,
        field_path: String::new(),
    };
    let checked = match env.compile(&rule.rule) {
        Err(issues) => {
            compiled.program = Err(format!("compilation failed: {issues}"));
            return compiled;
        }
        Ok(checked) if *checked.output_type() != Type::Bool => {
            compiled.program = Err("cel expression must evaluate to a bool".to_owned());
            return compiled;
        }
        Ok(checked) => checked,
    };
    compiled.uses_old_self = checked.mentions("oldSelf");
    compiled.program = checked.program().map_err(|error| format!("program instantiation failed: {error}"));
    compiled.max_cost = max_cost(&checked);
    if !rule.message_expression.is_empty() {
        compiled.message = Some(match env.compile(&rule.message_expression) {
            Err(issues) => Err(format!("messageExpression compilation failed: {issues}")),
            Ok(checked) if *checked.output_type() != Type::String => {
                Err("messageExpression must evaluate to a string".to_owned())
            }
            Ok(checked) => {
                compiled.message_max_cost = max_cost(&checked);
                checked.program().map_err(|error| format!("messageExpression instantiation failed: {error}"))
            }
        });
    }
    if !rule.field_path.is_empty()
        && let Ok((path, _)) = field_path(&rule.field_path, node, true)
    {
        compiled.field_path = path.text();
    }
    compiled
}

/// The rules of one schema and of the schemas below it. A schema is absent if neither it nor a schema below it has rules.
#[derive(Debug, Default)]
pub(super) struct RuleNode {
    pub(super) own: Option<CompiledRules>,
    /// Why the rules of this schema cannot run.
    pub(super) error: Option<&'static str>,
    pub(super) items: Option<Box<RuleNode>>,
    pub(super) values: Option<Box<RuleNode>>,
    pub(super) properties: Vec<(Str, RuleNode)>,
}

impl RuleNode {
    pub(super) fn compile(source: RuleSource<'_>, watch: Option<&dyn Stopwatch>) -> RuleNode {
        let RuleSource { node, schema, .. } = source;
        let below = |node: &SchemaNode, schema: Option<&Value>| {
            let schema = schema.unwrap_or(&Value::Null);
            let source = RuleSource { node, schema, is_resource: node.embedded };
            node.has_rules().then(|| RuleNode::compile(source, watch))
        };
        let mut rules = RuleNode::default();
        if !node.rules.is_empty() {
            rules.own = compile(source, false, watch);
            if rules.own.is_none() {
                rules.error = Some("failed to convert to declType for CEL validation rules");
            }
        }
        rules.items = node.items.as_deref().and_then(|items| below(items, schema.get("items"))).map(Box::new);
        rules.values =
            node.values().and_then(|values| below(values, schema.get("additionalProperties"))).map(Box::new);
        rules.properties = node
            .properties
            .iter()
            .filter_map(|(name, property)| {
                Some((name.clone(), below(property, schema.at(&["properties", name]))?))
            })
            .collect();
        rules
    }

    pub(super) fn compiles_data(&self) -> bool {
        let own = self.own.iter().flat_map(|own| &own.rules);
        let mut programs = own.flat_map(|rule| [Some(&rule.program), rule.message.as_ref()]).flatten();
        programs.any(|program| program.as_ref().is_ok_and(Program::compiles_data))
            || self.items.iter().chain(&self.values).any(|below| below.compiles_data())
            || self.properties.iter().any(|(_, below)| below.compiles_data())
    }
}
