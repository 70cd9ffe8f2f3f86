//! The pages under `spec/`: each line of their CEL blocks is an expression and what it gives.
//!
//! `EXPR  // TYPE VALUE` evaluates to the value, `EXPR  // fails: MESSAGE` fails when it runs, and
//! `EXPR  // does not compile: MESSAGE` is refused before.
//!
//! A YAML block with a name sets the variable of that name for the rest of the page; one called `schema` is the schema of
//! `self` and `oldSelf`. What stands after `cel` says which environment an expression is in: `mutation` has the types of
//! mutating policies, `authorizer` a caller who may `get` and nothing else, `rule` the schema.

#![expect(clippy::panic, clippy::unwrap_used, reason = "these are tests")]

use std::collections::BTreeMap;
use std::sync::Arc;

use cel::authz::{self, Authorizer, Check, Decision};
use cel::batch::{Batch, VARIABLES, show};
use cel::schema::{Schema, SchemaTypes};
use cel::{Activation, Env, PER_CALL_LIMIT, Type, Val, Version};
use value::{Value, json, yaml};

const OBJECT: &str = r#"{
  "metadata": {"name": "web", "labels": {"app": "web"}},
  "spec": {"replicas": 3, "containers": [{"name": "a", "image": "nginx:1.2"}, {"name": "b", "image": "redis"}]}
}"#;

/// Allows `get`, fails at `fail`, and denies everything else.
struct OnlyGet;

impl Authorizer for OnlyGet {
    fn check(&self, check: &Check) -> Option<Decision> {
        let error = (check.verb == "fail").then(|| "the authorizer is down".into());
        Some(Decision { allowed: check.verb == "get", reason: "only get".into(), error })
    }
}

/// What a page has said so far.
struct Page {
    variables: BTreeMap<String, Value>,
    schema: Option<Arc<Schema>>,
}

impl Page {
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
        if environment == "rule" {
            let schema = self.schema.clone().unwrap();
            env = env
                .with_variables(["self", "oldSelf"].map(|name| (name, schema.declared_type())))
                .with_types(Arc::new(SchemaTypes::new([schema])));
        }
        env
    }

    /// What an expression gives, in the words of the pages.
    fn answer(&self, environment: &str, expr: &str) -> String {
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
        let schema = self.schema.as_deref().filter(|_| environment == "rule");
        for name in VARIABLES {
            activation.set(name, Val::Null);
        }
        for (name, value) in &self.variables {
            let schema = schema.filter(|_| matches!(name.as_str(), "self" | "oldSelf"));
            activation.set(name, Val::typed(value, schema));
        }
        match program.run(&activation, PER_CALL_LIMIT).outcome {
            Ok(val) => show(&val),
            Err(error) => format!("fails: {error}"),
        }
    }
}

fn page(name: &str, text: &str) {
    let mut page = Page {
        variables: BTreeMap::from([
            ("object".to_owned(), json::parse(OBJECT.as_bytes()).unwrap()),
            ("x".to_owned(), Value::list([3i64, 1, 2])),
        ]),
        schema: None,
    };
    let mut block = None;
    let mut data = String::new();
    let mut examples = 0;
    let mut wrong = Vec::new();
    for line in text.lines() {
        if let Some(info) = line.strip_prefix("```") {
            match block {
                None => block = Some(info),
                Some(kind) => {
                    if let Some(name) = kind.strip_prefix("yaml ") {
                        let value = yaml::document(data.as_bytes()).unwrap().value;
                        if name == "schema" {
                            page.schema = Some(Schema::from_openapi(&value, "selfType", true).unwrap());
                        } else {
                            page.variables.insert(name.to_owned(), value);
                        }
                    }
                    data.clear();
                    block = None;
                }
            }
            continue;
        }
        let Some(kind) = block else { continue };
        let Some(environment) = kind.strip_prefix("cel") else {
            data.push_str(line);
            data.push('\n');
            continue;
        };
        if line.trim().is_empty() {
            continue;
        }
        let (expr, wanted) = line.split_once("  // ").unwrap_or_else(|| panic!("{name}: no result: {line}"));
        examples += 1;
        let got = page.answer(environment.trim(), expr);
        if got != wanted {
            wrong.push(format!("{expr}\n  gave   {got}\n  wanted {wanted}"));
        }
    }
    assert!(examples > 0, "{name} has no examples");
    assert!(wrong.is_empty(), "{name}:\n{}", wrong.join("\n"));
}

macro_rules! pages {
    ($($name:ident),* $(,)?) => {$(
        #[test]
        fn $name() {
            page(stringify!($name), include_str!(concat!("../spec/", stringify!($name), ".md")));
        }
    )*};
}

pages!(
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
fn a_batch_answers_line_by_line() {
    let batch = Batch::new(Version::CURRENT);
    assert_eq!(
        batch.line(r#"{"id": "a", "expr": "object.n + 1", "vars": {"object": {"n": 2}}}"#),
        r#"{"cost":3,"estMax":2,"estMin":2,"id":"a","type":"int","value":"int 3"}"#
    );
    assert_eq!(
        batch.line(r#"{"id": 1, "expr": "foo"}"#),
        r#"{"compileError":"ERROR: \u003cinput\u003e:1:1: undeclared reference to 'foo' (in container '')\n | foo\n | ^","id":1}"#
    );
    assert_eq!(
        batch.line(r#"{"id": 2, "expr": "{}.a"}"#),
        r#"{"cost":2,"estMax":31,"estMin":31,"evalError":"no such key: a","id":2,"type":"dyn"}"#
    );
}
