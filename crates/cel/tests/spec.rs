//! The pages under `spec/`: each line of their CEL blocks is an expression and what it gives.
//!
//! `EXPR  // TYPE VALUE` evaluates to the value, `EXPR  // fails: MESSAGE` fails when it runs, and
//! `EXPR  // does not compile: MESSAGE` is refused before.

#![expect(clippy::panic, clippy::unwrap_used, reason = "these are tests")]

use cel::batch::{Batch, show};
use cel::{Activation, Env, PER_CALL_LIMIT, Type, Val, Version};
use value::{Value, json};

const OBJECT: &str = r#"{
  "metadata": {"name": "web", "labels": {"app": "web"}},
  "spec": {"replicas": 3, "containers": [{"name": "a", "image": "nginx:1.2"}, {"name": "b", "image": "redis"}]}
}"#;

fn environment() -> Env {
    Env::kubernetes(Version::CURRENT).with_variables(cel::batch::VARIABLES.map(|name| (name, Type::Dyn)))
}

/// What an expression gives, in the words of the pages.
fn answer(env: &Env, object: &Value, list: &Value, expr: &str) -> String {
    let checked = match env.compile(expr) {
        Ok(checked) => checked,
        Err(issues) => return format!("does not compile: {}", issues.sorted().first().unwrap().message),
    };
    let program = match checked.program() {
        Ok(program) => program,
        Err(error) => return format!("fails: {error}"),
    };
    let activation = Activation::new(env).with("object", Val::data(object)).with("x", Val::data(list));
    match program.run(&activation, PER_CALL_LIMIT).outcome {
        Ok(val) => show(&val),
        Err(error) => format!("fails: {error}"),
    }
}

fn page(name: &str, text: &str) {
    let env = environment();
    let object = json::parse(OBJECT.as_bytes()).unwrap();
    let list = Value::list([3i64, 1, 2]);
    let mut inside = false;
    let mut examples = 0;
    let mut wrong = Vec::new();
    for line in text.lines() {
        if line.starts_with("```") {
            inside = line == "```cel";
            continue;
        }
        if !inside || line.trim().is_empty() {
            continue;
        }
        let (expr, wanted) = line.split_once("  // ").unwrap_or_else(|| panic!("{name}: no result: {line}"));
        examples += 1;
        let got = answer(&env, &object, &list, expr);
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
    cidr,
    comprehensions,
    format,
    ip,
    lists,
    optional,
    quantity,
    regex,
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
