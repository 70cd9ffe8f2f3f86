//! `x-kubernetes-validations`: compiles CEL rules with the types of their schema and runs them within a cost budget.

use std::sync::{Arc, LazyLock};

use api::field::{FieldError, FieldErrorKind, FieldErrors, quote};
use api::validation::fields::{At, Report};
use cel::schema::{CelSchema, SchemaHints, SchemaTypes};
use cel::{Activation, Env, ErrorKind, Program, Type, Val, Version};
use value::{BudgetEnded, Str, Value};

use super::compiled::ValidationFindings;
use super::correlate::{Counterparts, Pair};
use super::field_path::field_path;
use super::node::{SchemaNode, ValidationRule};
use super::stopwatch::{Stopwatch, timed};
use super::strategy::Bounds;
use super::verdict::{MAX_PROBLEMS, MAX_TOLD, is_full};

/// CEL cost limit of all rules of one object together.
const BUDGET: i64 = 10_000_000;
/// Longest message, in bytes, that a `messageExpression` may return.
const LONGEST_MESSAGE: usize = 5 * 1024;
/// The steps charged for compiling one rule, about 20 µs.
const STEPS_TO_COMPILE: u64 = 1000;
/// Maximum size of a request in bytes, which bounds how often a rule can apply.
const MOST_BYTES: u64 = 3 * 1024 * 1024;

static BASE: LazyLock<Env> = LazyLock::new(|| Env::kubernetes(Version::CURRENT));

/// Name of the type of `self`; nested types are named after it.
const SELF_TYPE: &str = "selfType";

#[derive(Debug)]
pub struct CompiledRule {
    pub rule: ValidationRule,
    /// The compiled rule, or the compile error.
    pub program: Result<Program, String>,
    /// Whether it is a transition rule, which refers to `oldSelf`.
    pub uses_old_self: bool,
    /// The compiled `messageExpression`, or its compile error.
    pub message: Option<Result<Program, String>>,
    /// Estimated maximum CEL cost of one evaluation, if the estimate was requested.
    pub max_cost: u64,
    /// Estimated maximum CEL cost of the `messageExpression`.
    pub message_max_cost: u64,
    /// The `fieldPath` that errors report, relative to the value of the rule.
    field_path: String,
}

#[derive(Debug)]
pub struct Compilation {
    /// In the order of the schema.
    pub rules: Vec<CompiledRule>,
    /// How often a value of this schema can occur in one request.
    pub max_cardinality: u64,
    schema: Arc<CelSchema>,
    env: Env,
    optional_env: Env,
}

/// Compiles the rules of a schema. `schema` is its JSON; `resource` means that it describes a whole resource. Costs are estimated only
/// when a CRD is validated (`estimate`). `None` if the schema cannot be converted to CEL types.
pub fn compile(
    rules: &[ValidationRule],
    node: &SchemaNode,
    schema: &Value,
    resource: bool,
    estimate: bool,
    watch: Option<&dyn Stopwatch>,
) -> Option<Compilation> {
    timed(watch, |watch, took| watch.compiled(took), || compilation(rules, node, schema, resource, estimate))
}

fn compilation(
    rules: &[ValidationRule],
    node: &SchemaNode,
    schema: &Value,
    resource: bool,
    estimate: bool,
) -> Option<Compilation> {
    let types = CelSchema::from_openapi(schema, SELF_TYPE, resource)?;
    let declared = types.declared_type();
    let base = BASE.with_types(Arc::new(SchemaTypes::new([Arc::clone(&types)])));
    let env = base.with_variables([("self", declared.clone()), ("oldSelf", declared.clone())]);
    let optional_env =
        base.with_variables([("self", declared.clone()), ("oldSelf", Type::optional(declared))]);
    let hints = SchemaHints::new(
        [("self", &types), ("oldSelf", &types)].map(|(name, types)| (Str::from(name), Arc::clone(types))),
    );
    let max_cost = |checked: &cel::Checked| if estimate { checked.estimate(&hints).max } else { 0 };
    let compiled = rules.iter().map(|rule| {
        let env = if rule.optional_old_self == Some(true) { &optional_env } else { &env };
        let mut compiled = CompiledRule {
            rule: rule.clone(),
            program: Err(String::new()),
            uses_old_self: false,
            message: None,
            max_cost: 0,
            message_max_cost: 0,
            field_path: String::new(),
        };
        match env.compile(&rule.rule) {
            Err(issues) => compiled.program = Err(format!("compilation failed: {issues}")),
            Ok(checked) if *checked.output_type() != Type::Bool => {
                compiled.program = Err("cel expression must evaluate to a bool".to_owned());
            }
            Ok(checked) => {
                compiled.uses_old_self = checked.mentions("oldSelf");
                compiled.program =
                    checked.program().map_err(|error| format!("program instantiation failed: {error}"));
                compiled.max_cost = max_cost(&checked);
                if !rule.message_expression.is_empty() {
                    compiled.message = Some(match env.compile(&rule.message_expression) {
                        Err(issues) => Err(format!("messageExpression compilation failed: {issues}")),
                        Ok(checked) if *checked.output_type() != Type::String => {
                            Err("messageExpression must evaluate to a string".to_owned())
                        }
                        Ok(checked) => {
                            compiled.message_max_cost = max_cost(&checked);
                            checked
                                .program()
                                .map_err(|error| format!("messageExpression instantiation failed: {error}"))
                        }
                    });
                }
                if !rule.field_path.is_empty()
                    && let Ok((path, _)) = field_path(&rule.field_path, node, true)
                {
                    compiled.field_path = path.text();
                }
            }
        }
        compiled
    });
    Some(Compilation {
        rules: compiled.collect(),
        max_cardinality: MOST_BYTES / (types.min_serialized() + 1),
        schema: types,
        env,
        optional_env,
    })
}

/// The rules of a schema and of all schemas below it.
#[derive(Debug)]
pub(super) struct Rules {
    root: Scope,
}

#[derive(Debug, Default)]
struct Scope {
    own: Option<Compilation>,
    /// Why the rules of this schema cannot run.
    error: Option<&'static str>,
    items: Option<Box<Scope>>,
    values: Option<Box<Scope>>,
    properties: Vec<(Str, Scope)>,
}

impl Scope {
    fn compiles_data(&self) -> bool {
        let own = self.own.iter().flat_map(|own| &own.rules);
        let mut programs = own.flat_map(|rule| [Some(&rule.program), rule.message.as_ref()]).flatten();
        programs.any(|program| program.as_ref().is_ok_and(Program::compiles_data))
            || self.items.iter().chain(&self.values).any(|below| below.compiles_data())
            || self.properties.iter().any(|(_, below)| below.compiles_data())
    }
}

impl Rules {
    /// Compiles the rules of a whole resource; `None` if it has none.
    pub(super) fn compile(node: &SchemaNode, schema: &Value, watch: Option<&dyn Stopwatch>) -> Option<Self> {
        Rules::of(node, schema, true, watch)
    }

    /// Compiles the rules of a schema, which is only a part of a resource unless `resource` is set.
    pub(super) fn of(
        node: &SchemaNode,
        schema: &Value,
        resource: bool,
        watch: Option<&dyn Stopwatch>,
    ) -> Option<Self> {
        node.has_rules().then(|| Rules { root: scope(node, schema, resource, watch) })
    }

    /// Whether one of the rules compiles regular expressions taken from objects.
    pub(super) fn compile_data(&self) -> bool {
        self.root.compiles_data()
    }

    /// Runs the rules on an object and its old version, if there is one.
    pub(super) fn run(
        &self,
        node: &SchemaNode,
        new: &Value,
        old: Option<&Value>,
        pair: Option<&Pair<'_>>,
        bounds: Bounds<'_>,
        found: &mut ValidationFindings,
    ) {
        let limit = cel::pattern::PER_OBJECT.matching_at_most(bounds.budget.left());
        cel::pattern::within(limit, || {
            self.run_at(node, new, old, pair, &At::ROOT, BUDGET, bounds, found);
        });
    }

    /// Like [`Rules::run`], for a part of an object. Returns the CEL budget that is left; once it is negative, no more rules may run.
    #[expect(clippy::too_many_arguments, reason = "the parts of one walk")]
    pub(super) fn run_at(
        &self,
        node: &SchemaNode,
        new: &Value,
        old: Option<&Value>,
        pair: Option<&Pair<'_>>,
        at: &At<'_>,
        budget: i64,
        bounds: Bounds<'_>,
        found: &mut ValidationFindings,
    ) -> i64 {
        let mut run = Run { budget, found, bounds };
        let _ = run.scope(&self.root, node, new, old, Ratchet { current: pair, nearest: None }, at);
        run.budget
    }
}

fn scope(node: &SchemaNode, schema: &Value, resource: bool, watch: Option<&dyn Stopwatch>) -> Scope {
    let below = |node: &SchemaNode, schema: Option<&Value>| {
        node.has_rules().then(|| scope(node, schema.unwrap_or(&Value::Null), node.embedded, watch))
    };
    let mut made = Scope::default();
    if !node.rules.is_empty() {
        made.own = compile(&node.rules, node, schema, resource, false, watch);
        if made.own.is_none() {
            made.error = Some("failed to convert to declType for CEL validation rules");
        }
    }
    made.items = node.items.as_deref().and_then(|items| below(items, schema.get("items"))).map(Box::new);
    made.values =
        node.values().and_then(|values| below(values, schema.get("additionalProperties"))).map(Box::new);
    made.properties = node
        .properties
        .iter()
        .filter_map(|(name, property)| {
            Some((name.clone(), below(property, schema.at(&["properties", name]))?))
        })
        .collect();
    made
}

/// Decides whether an error becomes a warning: the value, or else the nearest enclosing value that can be correlated, did not change.
#[derive(Clone, Copy)]
struct Ratchet<'p, 'a> {
    current: Option<&'p Pair<'a>>,
    nearest: Option<&'p Pair<'a>>,
}

impl Ratchet<'_, '_> {
    fn lets_pass(self) -> bool {
        self.current.or(self.nearest).is_some_and(Pair::is_unchanged)
    }
}

/// The CEL cost budget or the request's budget is used up, or the error limit is reached.
struct Exhausted;

struct Run<'f> {
    budget: i64,
    found: &'f mut ValidationFindings,
    bounds: Bounds<'f>,
}

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

const TOO_MANY_STEPS: &str = "validation takes too many steps, no further validation rules will be run";

impl Run<'_> {
    /// Spends steps of the request's budget: one for each value that has rules, plus those of the evaluations. The CEL cost of rules is
    /// counted separately, as in Kubernetes.
    fn spend(&mut self, steps: u64, at: &At<'_>) -> Result<(), Exhausted> {
        let detail = match self.bounds.budget.spend(steps) {
            Ok(()) => return Ok(()),
            Err(BudgetEnded::Exhausted) => TOO_MANY_STEPS,
            Err(BudgetEnded::Cancelled) => "validation rules were cancelled because the request ended",
        };
        self.found.errors.forbidden(at, detail);
        Err(self.exhausted())
    }

    /// CEL cost limit of one evaluation. An evaluation that exceeds the request's remaining budget ends early, and its result is
    /// discarded.
    fn call_limit(&self) -> u64 {
        cel::PER_CALL_LIMIT.min(self.bounds.budget.left().saturating_add(1))
    }

    fn exhausted(&mut self) -> Exhausted {
        self.budget = -1;
        Exhausted
    }

    fn scope(
        &mut self,
        scope: &Scope,
        node: &SchemaNode,
        new: &Value,
        old: Option<&Value>,
        ratchet: Ratchet<'_, '_>,
        at: &At<'_>,
    ) -> Result<(), Exhausted> {
        self.spend(1, at)?;
        let watch = self.bounds.watch;
        timed(
            watch,
            |watch, took| watch.evaluated(took),
            || self.run_scope(scope, node, new, old, ratchet, at),
        )
    }

    fn run_scope(
        &mut self,
        scope: &Scope,
        node: &SchemaNode,
        new: &Value,
        old: Option<&Value>,
        ratchet: Ratchet<'_, '_>,
        at: &At<'_>,
    ) -> Result<(), Exhausted> {
        if new.is_null() {
            return Ok(());
        }
        let old = old.filter(|old| !old.is_null());
        self.rules(scope, node, new, old, ratchet, at)?;
        match new {
            Value::List(items) => {
                let Some((below, inner)) = scope.items.as_deref().zip(node.items.as_deref()) else {
                    return Ok(());
                };
                let olds = Counterparts::new(node, old.and_then(Value::as_list).unwrap_or_default());
                for (index, item) in items.iter().enumerate() {
                    let pair = ratchet.current.and_then(|pair| pair.index(index));
                    let inside = inside(ratchet, pair.as_ref());
                    let before = olds.of(item);
                    self.scope(below, inner, item, before, inside, &at.index(index))?;
                }
            }
            Value::Map(map) => {
                // Only maps of a known type have values that can be correlated with old ones.
                let correlates = matches!(node.map_type.as_deref(), None | Some("granular" | "atomic"));
                let before = old.and_then(Value::as_map).filter(|_| correlates);
                if let Some((below, node)) = scope.values.as_deref().zip(node.values()) {
                    for (key, value) in map.iter() {
                        let pair = ratchet.current.and_then(|pair| pair.key(key));
                        let old = before.and_then(|old| old.get(key));
                        self.scope(below, node, value, old, inside(ratchet, pair.as_ref()), &at.key(key))?;
                    }
                }
                for (name, below) in &scope.properties {
                    let (Some(value), Some(node)) = (map.get(name), node.property(name)) else { continue };
                    let is_type = matches!(name.as_str(), "apiVersion" | "kind");
                    let pair = ratchet.current.and_then(|pair| pair.key(name));
                    let inside = if ratchet.current.is_some() && ratchet.nearest.is_none() && is_type {
                        Ratchet { current: None, nearest: None }
                    } else {
                        inside(ratchet, pair.as_ref())
                    };
                    let old = before.and_then(|old| old.get(name));
                    self.scope(below, node, value, old, inside, &at.field(name))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn rules(
        &mut self,
        scope: &Scope,
        node: &SchemaNode,
        new: &Value,
        old: Option<&Value>,
        ratchet: Ratchet<'_, '_>,
        at: &At<'_>,
    ) -> Result<(), Exhausted> {
        if let Some(error) = scope.error {
            let detail = format!("rule compiler initialization error: {error}");
            self.found.errors.invalid(at, node.kind.clone(), detail);
            return self.go_on();
        }
        let Some(own) = &scope.own else { return Ok(()) };
        if self.budget <= 0 {
            self.found.errors.invalid(at, node.kind.clone(), OUT_OF_BUDGET);
            return Err(self.exhausted());
        }
        let data = Val::typed(new, Some(&own.schema));
        let before = old.map(|old| Val::typed(old, Some(&own.schema)));
        let mut plain = Activation::new(&own.env).with("self", data.clone());
        if let Some(before) = &before {
            plain.set("oldSelf", before.clone());
        }
        let optional = Activation::new(&own.optional_env)
            .with("self", data)
            .with("oldSelf", before.map_or(Val::NONE, Val::some));
        for compiled in &own.rules {
            self.rule(compiled, node, new, old.is_some(), (&plain, &optional), ratchet, at)?;
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one rule's run")]
    fn rule<'a>(
        &mut self,
        compiled: &'a CompiledRule,
        node: &SchemaNode,
        new: &Value,
        has_old: bool,
        (plain, optional): (&Activation<'a>, &Activation<'a>),
        ratchet: Ratchet<'_, '_>,
        at: &At<'_>,
    ) -> Result<(), Exhausted> {
        let rule = &compiled.rule;
        if rule.rule.trim().is_empty() {
            return Ok(());
        }
        let kind = || Value::from(node.kind.clone());
        let program = match &compiled.program {
            Ok(program) => program,
            Err(error) => {
                self.found.errors.invalid(at, kind(), format!("rule compile error: {error}"));
                return self.go_on();
            }
        };
        let is_optional = rule.optional_old_self == Some(true);
        if compiled.uses_old_self && !has_old && !is_optional {
            return Ok(());
        }
        let activation = if is_optional { optional } else { plain };
        let evaluation = program.run(activation, self.call_limit());
        let cost = i64::try_from(evaluation.cost).unwrap_or(i64::MAX);
        if cost > self.budget {
            self.found.errors.invalid(at, kind(), OUT_OF_BUDGET);
            return Err(self.exhausted());
        }
        self.budget -= cost;
        self.spend(steps(&evaluation), at)?;
        let said = said(rule);
        match evaluation.outcome {
            Ok(value) if value.as_bool() == Some(true) => return Ok(()),
            Ok(_) => {}
            Err(error) => {
                let text = error.to_string();
                let limit = matches!(error.kind(), ErrorKind::CostLimit | ErrorKind::PatternLimit(_));
                let detail = if text.starts_with("no such overload") {
                    format!(
                        "'{text}': call arguments did not match a supported operator, function or macro signature for rule: {said}"
                    )
                } else if limit {
                    format!(
                        "'{text}': no further validation rules will be run due to call cost exceeds limit for rule: {said}"
                    )
                } else {
                    format!("{text} evaluating rule: {said}")
                };
                self.found.errors.invalid(at, kind(), detail);
                return if limit { Err(self.exhausted()) } else { self.go_on() };
            }
        }
        let field = match compiled.field_path.as_str() {
            "" => at.to_string(),
            path => at.field(path).to_string(),
        };
        let passes = !compiled.uses_old_self && ratchet.lets_pass();
        let detail = match &compiled.message {
            Some(Ok(program)) => match self.message(program, rule, plain) {
                Ok(message) => message,
                Err(problem) => {
                    let error = FieldError {
                        kind: FieldErrorKind::Invalid,
                        field,
                        bad_value: Some(kind()),
                        detail: problem,
                    };
                    self.add(error, passes);
                    return Err(self.exhausted());
                }
            },
            _ => None,
        };
        let detail = detail.unwrap_or_else(|| {
            if rule.message.is_empty() {
                format!("failed rule: {said}")
            } else {
                rule.message.trim().to_owned()
            }
        });
        let bad_value = (!matches!(node.kind.as_str(), "object" | "array")).then(|| new.clone());
        let (kind, bad_value, detail) = match rule.reason.as_str() {
            "FieldValueForbidden" => (FieldErrorKind::Forbidden, None, detail),
            "FieldValueRequired" => (FieldErrorKind::Required, None, detail),
            "FieldValueDuplicate" => (FieldErrorKind::Duplicate, bad_value, String::new()),
            _ => (FieldErrorKind::Invalid, bad_value, detail),
        };
        self.add(FieldError { kind, field, bad_value, detail }, passes);
        self.go_on()
    }

    /// Stops when the limit of reported errors is reached: each of a million items may break a rule.
    fn go_on(&mut self) -> Result<(), Exhausted> {
        if is_full(&self.found.errors) { Err(self.exhausted()) } else { Ok(()) }
    }

    fn add(&mut self, error: FieldError, as_warning: bool) {
        if as_warning {
            let bytes: usize = self.found.warnings.iter().map(String::len).sum();
            if self.found.warnings.len() < MAX_PROBLEMS && bytes < MAX_TOLD {
                self.found.warnings.push(error.to_string());
            }
        } else {
            self.found.errors.push(error);
        }
    }

    /// The message computed by `messageExpression`; `None` if the rule's `message` applies. An error ends the evaluation of all rules.
    fn message(
        &mut self,
        program: &Program,
        rule: &ValidationRule,
        activation: &Activation<'_>,
    ) -> Result<Option<String>, String> {
        let evaluation = program.run(activation, self.call_limit());
        // If this uses up the budget, the next rule does not run.
        let _ = self.bounds.budget.spend(steps(&evaluation));
        let cost = i64::try_from(evaluation.cost).unwrap_or(i64::MAX);
        if cost > self.budget {
            return Err("messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run".to_owned());
        }
        let value = match evaluation.outcome {
            Ok(value) => value,
            Err(error) if matches!(error.kind(), ErrorKind::CostLimit | ErrorKind::PatternLimit(_)) => {
                return Err(format!(
                    "no further validation rules will be run due to call cost exceeds limit for messageExpression: {}",
                    quote(&rule.message_expression)
                ));
            }
            Err(_) => {
                self.budget -= cost;
                return Ok(None);
            }
        };
        self.budget -= cost;
        let text = value.as_str().map(str::trim).unwrap_or_default();
        let usable = !text.is_empty() && text.len() <= LONGEST_MESSAGE && !text.contains('\n');
        Ok(usable.then(|| text.to_owned()))
    }
}

/// The cost of an evaluation in steps of the request's budget.
fn steps(evaluation: &cel::Evaluation<'_>) -> u64 {
    evaluation.cost.saturating_add(evaluation.pattern_work)
}

/// The text that identifies a rule in errors: its message, or else its expression.
fn said(rule: &ValidationRule) -> &str {
    if rule.message.is_empty() { rule.rule.trim() } else { rule.message.trim() }
}

fn inside<'p, 'a>(outer: Ratchet<'p, 'a>, pair: Option<&'p Pair<'a>>) -> Ratchet<'p, 'a> {
    match outer.current {
        None => outer,
        Some(current) => Ratchet { current: pair, nearest: Some(current) },
    }
}

/// Runs the rules on a default of a CRD. Returns the errors and the CEL budget that is left.
pub fn check_default(
    node: &SchemaNode,
    schema: &Value,
    resource: bool,
    default: &Value,
    at: &At<'_>,
    budget: i64,
    bounds: Bounds<'_>,
) -> (FieldErrors, i64) {
    let mut found = ValidationFindings::default();
    if bounds.budget.spend(STEPS_TO_COMPILE.saturating_mul(node.count_rules())).is_err() {
        found.errors.forbidden(at, TOO_MANY_STEPS);
        return (found.errors, budget);
    }
    let Some(rules) = Rules::of(node, schema, resource, bounds.watch) else { return (found.errors, budget) };
    // Rules must hold both when the value is unchanged and when it is new.
    let left = rules.run_at(node, default, Some(default), None, at, budget, bounds, &mut found);
    if !found.errors.is_empty() {
        return (found.errors, left);
    }
    let alone = rules.run_at(node, default, None, None, at, budget, bounds, &mut found);
    (found.errors, left.min(alone))
}
