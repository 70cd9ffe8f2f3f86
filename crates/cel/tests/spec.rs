//! Tests the pages under `spec/`: each line of their CEL blocks is an expression with its result.
//!
//! `EXPR  // TYPE VALUE` evaluates to the value, `EXPR  // fails: MESSAGE` fails at run time, and `EXPR  // does not
//! compile: MESSAGE` is a compile error.
//!
//! A YAML block with a name sets the variable of that name for the rest of the page; a block named `schema` is the
//! schema of `self` and `oldSelf`. The words after `cel` select the environment: `mutation` has the types of mutating
//! policies, `authorizer` a caller who may only `get`, `rule` the schema.

#![expect(clippy::panic, clippy::unwrap_used, reason = "these are tests")]

use std::collections::BTreeMap;
use std::sync::Arc;

use cel::authz::{self, AuthorizerCheck, CheckDecision, RecordedDecisions};
use cel::batch::{ExpressionBatch, VARIABLES, show};
use cel::device::{DeviceSelector, DeviceSelectorError, SelectableDevice};
use cel::schema::{CelSchema, SchemaTypes};
use cel::{Activation, Env, PER_CALL_LIMIT, Type, Val, Version};
use pages::{Page, pages};
use value::{Value, json, yaml};

const OBJECT: &str = r#"{
  "metadata": {"name": "web", "labels": {"app": "web"}},
  "spec": {"replicas": 3, "containers": [{"name": "a", "image": "nginx:1.2"}, {"name": "b", "image": "redis"}]}
}"#;

/// Allows `get`, fails at `fail`, and denies everything else.
struct OnlyGet;

impl RecordedDecisions for OnlyGet {
    fn check(&self, check: &AuthorizerCheck) -> Option<CheckDecision> {
        let error = (check.verb == "fail").then(|| "the authorizer is down".into());
        Some(CheckDecision { allowed: check.verb == "get", reason: "only get".into(), error })
    }
}

/// Variables and schema that the page has declared so far.
struct PageDeclarations {
    variables: BTreeMap<String, Value>,
    schema: Option<Arc<CelSchema>>,
}

impl PageDeclarations {
    fn env(&self, environment: &str) -> Env {
        let base = match environment {
            "mutation" => Env::kubernetes_mutation(Version::CURRENT),
            _ => Env::kubernetes(Version::CURRENT),
        };
        let mut env = base
            .with_variables(VARIABLES.map(|name| (name, Type::Dyn)))
            .with_variables(self.variables.keys().map(|name| (name.as_str(), Type::Dyn)));
        if environment == "authorizer" {
            env = env.with_variables([("authorizer", authz::authorizer_type())]);
        }
        if environment.starts_with("rule") {
            let schema = self.schema.clone().unwrap();
            let old = match environment {
                "rule" => schema.declared_type(),
                _ => Type::optional(schema.declared_type()),
            };
            env = env
                .with_variables([("self", schema.declared_type()), ("oldSelf", old)])
                .with_types(Arc::new(SchemaTypes::new([schema])));
        }
        env
    }

    /// Evaluates a device selector for the page's device.
    fn selected(&self, expr: &str) -> String {
        let device = self.variables.get("device").unwrap();
        let driver = device.get("driver").and_then(Value::as_str).unwrap();
        let device = SelectableDevice::read(driver, device).unwrap();
        match DeviceSelector::check(expr).and_then(|()| DeviceSelector::compile(expr)) {
            Err(DeviceSelectorError::Invalid(why)) => {
                format!("is no selector: {}", why.lines().next().unwrap_or_default())
            }
            Err(error) => format!("is no selector: {error}"),
            Ok(selector) => match selector.matches(&device) {
                Ok(selected) => format!("bool {selected}"),
                Err(error) => format!("fails: {error}"),
            },
        }
    }

    /// The expected text of a line.
    fn example(&self, environment: &str, line: &str) -> String {
        if line.trim().is_empty() {
            return format!("{line}\n");
        }
        let (expr, _) = line.split_once("  // ").unwrap_or_else(|| panic!("no result: {line}"));
        format!("{expr}  // {}\n", self.answer(environment, expr))
    }

    /// The result of an expression in the notation of the pages.
    fn answer(&self, environment: &str, expr: &str) -> String {
        if environment == "device" {
            return self.selected(expr);
        }
        let env = self.env(environment);
        let checked = match env.compile(expr) {
            Ok(checked) => checked,
            Err(issues) => return format!("does not compile: {}", issues.sorted().first().unwrap().message),
        };
        let program = match checked.program() {
            Ok(program) => program,
            Err(error) => return format!("fails: {error}"),
        };
        let mut activation = Activation::new(&env).with("authorizer", authz::authorizer());
        activation.set_authorizer(&OnlyGet);
        let schema = self.schema.as_deref().filter(|_| environment.starts_with("rule"));
        for name in VARIABLES {
            activation.set(name, Val::Null);
        }
        for (name, value) in &self.variables {
            let schema = schema.filter(|_| matches!(name.as_str(), "self" | "oldSelf"));
            let val = match (name.as_str(), environment) {
                ("oldSelf", "rule with optional oldSelf") if value.is_null() => Val::NONE,
                ("oldSelf", "rule with optional oldSelf") => Val::some(Val::typed(value, schema)),
                _ => Val::typed(value, schema),
            };
            activation.set(name, val);
        }
        match program.run(&activation, PER_CALL_LIMIT).outcome {
            Ok(val) => show(&val),
            Err(error) => format!("fails: {error}"),
        }
    }
}

fn check(page: &Page) {
    let mut said = PageDeclarations {
        variables: BTreeMap::from([
            ("object".to_owned(), json::parse(OBJECT.as_bytes()).unwrap()),
            ("x".to_owned(), Value::list([3i64, 1, 2])),
        ]),
        schema: None,
    };
    page.check(|info, body| {
        if let Some(environment) = info.strip_prefix("cel") {
            return Some(body.lines().map(|line| said.example(environment.trim(), line)).collect());
        }
        if let Some(name) = info.strip_prefix("yaml ") {
            let value = yaml::document(body.as_bytes()).unwrap().value;
            if name == "schema" {
                said.schema = Some(CelSchema::from_openapi(&value, "selfType", true).unwrap());
            } else {
                said.variables.insert(name.to_owned(), value);
            }
        }
        None
    });
}

pages!(
    check, "":
    authorizer,
    cidr,
    comprehensions,
    documentation,
    format,
    ip,
    lists,
    mutation,
    optional,
    quantity,
    regex,
    rules,
    semver,
    sets,
    standard,
    strings,
    url,
);

#[test]
fn every_function_has_accepting_and_failing_examples() {
    let here = env!("CARGO_MANIFEST_DIR");
    let pages: Vec<Page> = pages::page_names(here, "").iter().map(|name| Page::read(here, name)).collect();
    let lines = pages.iter().flat_map(|page| page.text.lines());
    let examples: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once("  // ")).collect();
    let calls = |expr: &str, function: &str| {
        expr.match_indices(function).any(|(at, _)| {
            let is_name = |c: char| c.is_alphanumeric() || c == '_';
            expr.get(at + function.len()..).is_some_and(|after| after.starts_with('('))
                && !expr.get(..at).is_some_and(|before| before.ends_with(is_name))
        })
    };
    let mut missing = Vec::new();
    let env = Env::kubernetes_mutation(Version::CURRENT);
    for function in env.function_names().filter(|name| name.starts_with(|c: char| c.is_ascii_lowercase())) {
        if function.contains('@') || function == "in" {
            continue;
        }
        let fails = |result: &str| result.starts_with("does not compile") || result.starts_with("fails");
        let of_it = || examples.iter().filter(|(expr, _)| calls(expr, function));
        let accepting = of_it().filter(|(_, result)| !fails(result)).count();
        let failing = of_it().filter(|(_, result)| fails(result)).count();
        if accepting == 0 || failing == 0 {
            missing.push(format!("{function}: {accepting} accepting, {failing} failing"));
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn expression_batch_gives_one_json_result_per_input_line() {
    let batch = ExpressionBatch::new(Version::CURRENT);
    assert_eq!(
        batch.answer_line(r#"{"id": "a", "expr": "object.n + 1", "vars": {"object": {"n": 2}}}"#),
        r#"{"cost":3,"estMax":2,"estMin":2,"id":"a","type":"int","value":"int 3"}"#
    );
    assert_eq!(
        batch.answer_line(r#"{"id": 1, "expr": "foo"}"#),
        r#"{"compileError":"ERROR: \u003cinput\u003e:1:1: undeclared reference to 'foo' (in container '')\n | foo\n | ^","id":1}"#
    );
    assert_eq!(
        batch.answer_line(r#"{"id": 2, "expr": "{}.a"}"#),
        r#"{"cost":2,"estMax":31,"estMin":31,"evalError":"no such key: a","id":2,"type":"dyn"}"#
    );
}
