//! The official conformance data, from the file that `CEL_SPEC_JSON` names.
//!
//! The file holds the four test suites of the npm package `@bufbuild/cel-spec` as one JSON object: `conformance`, `parsing`,
//! `comprehension` and `checking`. Without the variable the tests are left out, and say so; with it, a file that cannot be
//! used fails them. What is skipped is listed with its reason in `conformance_skips.txt`.

#![expect(clippy::panic, clippy::unwrap_used, clippy::float_cmp, reason = "these are tests")]

use std::collections::BTreeMap;
use std::sync::Arc;

use cel::{Activation, Env, Type, Val};
use value::{Str, Value, json};

const SKIPS: &str = include_str!("conformance_skips.txt");

/// The data, or `None` if it is not there to be used.
fn data() -> Option<Value> {
    let Some(path) = std::env::var_os("CEL_SPEC_JSON") else {
        eprintln!("left out: CEL_SPEC_JSON is not set");
        return None;
    };
    let bytes =
        std::fs::read(&path).unwrap_or_else(|error| panic!("CEL_SPEC_JSON {}: {error}", path.display()));
    let data = json::parse(&bytes).unwrap_or_else(|error| panic!("CEL_SPEC_JSON: {}", error.message));
    for suite in ["conformance", "parsing", "comprehension", "checking"] {
        assert!(data.get(suite).is_some(), "CEL_SPEC_JSON has no suite `{suite}`");
    }
    Some(data)
}

/// Calls `each` for all tests of a suite, with the path of its name.
fn walk<'d>(suite: &'d Value, path: &str, each: &mut impl FnMut(&str, &'d Value)) {
    let name = suite.str_at(&["name"]).unwrap_or_default();
    let path = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
    for test in suite.list_at(&["tests"]) {
        let name = test.str_at(&["original", "name"]).unwrap_or_default();
        each(&format!("{path}/{name}"), test);
    }
    for inner in suite.list_at(&["suites"]) {
        walk(inner, &path, each);
    }
}

/// Why a test is skipped, if it is.
fn skipped(path: &str, original: &Value) -> Option<&'static str> {
    let text = value::write::to_string(original);
    for line in SKIPS.lines() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (pattern, reason) = line.split_once(": ").unwrap_or((line, "no reason"));
        let hit = match pattern.strip_prefix("mentions ") {
            Some(word) => text.contains(word),
            None => path.starts_with(pattern),
        };
        if hit {
            return Some(reason);
        }
    }
    None
}

fn read_type(ty: &Value) -> Option<Type> {
    if let Some(primitive) = ty.str_at(&["primitive"]) {
        return Some(match primitive {
            "BOOL" => Type::Bool,
            "INT64" => Type::Int,
            "UINT64" => Type::Uint,
            "DOUBLE" => Type::Double,
            "STRING" => Type::String,
            "BYTES" => Type::Bytes,
            _ => return None,
        });
    }
    if let Some(known) = ty.str_at(&["wellKnown"]) {
        return Some(match known {
            "DURATION" => Type::Duration,
            "TIMESTAMP" => Type::Timestamp,
            _ => Type::Any,
        });
    }
    if let Some(list) = ty.get("listType") {
        return Some(Type::list(list.get("elemType").map_or(Some(Type::Dyn), read_type)?));
    }
    if let Some(map) = ty.get("mapType") {
        let part = |name| map.get(name).map_or(Some(Type::Dyn), read_type);
        return Some(Type::map(part("keyType")?, part("valueType")?));
    }
    if let Some(inner) =
        ty.get("wrapper").and_then(|inner| read_type(&Value::map([("primitive", inner.clone())])))
    {
        return Some(Type::Wrapper(Arc::new(inner)));
    }
    if ty.get("dyn").is_some() {
        return Some(Type::Dyn);
    }
    if ty.get("null").is_some() {
        return Some(Type::Null);
    }
    if let Some(inner) = ty.get("type") {
        return Some(Type::Type(read_type(inner).map(Arc::new)));
    }
    if let Some("optional_type") = ty.str_at(&["abstractType", "name"]) {
        let inner = ty.list_at(&["abstractType", "parameterTypes"]).first().and_then(read_type);
        return Some(Type::optional(inner.unwrap_or(Type::Dyn)));
    }
    None
}

/// A value of the data, owned.
fn read_value(value: &Value) -> Option<Val<'static>> {
    let text = |name: &str| {
        value.get(name).map(|v| v.as_str().map_or_else(|| value::write::to_string(v), str::to_owned))
    };
    if let Some(b) = value.get("boolValue") {
        return b.as_bool().map(Val::Bool);
    }
    if let Some(i) = text("int64Value") {
        return i.parse().ok().map(Val::Int);
    }
    if let Some(u) = text("uint64Value") {
        return u.parse().ok().map(Val::Uint);
    }
    if let Some(d) = text("doubleValue") {
        return Some(Val::Double(match d.as_str() {
            "NaN" => f64::NAN,
            "Infinity" => f64::INFINITY,
            "-Infinity" => f64::NEG_INFINITY,
            number => number.parse().ok()?,
        }));
    }
    if let Some(s) = value.str_at(&["stringValue"]) {
        return Some(Val::string(s));
    }
    if let Some(b) = value.str_at(&["bytesValue"]) {
        return Some(Val::Bytes(base64(b)?.into()));
    }
    if value.get("nullValue").is_some() {
        return Some(Val::Null);
    }
    if let Some(name) = value.str_at(&["typeValue"]) {
        return Some(Val::Type(name.into()));
    }
    if value.get("listValue").is_some() {
        let items = value.list_at(&["listValue", "values"]).iter().map(read_value);
        return Some(Val::list(items.collect::<Option<_>>()?));
    }
    if value.get("mapValue").is_some() {
        // Built by an expression, as programs build them.
        let env = Env::standard().with_variables([("k", Type::Dyn), ("v", Type::Dyn), ("m", Type::Dyn)]);
        let empty = env.compile("{}").ok()?.program().ok()?;
        let add = env.compile("cel.@mapInsert(m, k, v)").ok();
        assert!(add.is_none(), "the name cannot be written");
        let join = env.compile("[0].transformMapEntry(i, e, {k: v})").ok()?.program().ok()?;
        let both = env.compile("[m, v].transformMapEntry(i, e, e)").ok()?.program().ok()?;
        let mut map = empty.run(&Activation::new(&env), u64::MAX).outcome.ok()?.own();
        for entry in value.list_at(&["mapValue", "entries"]) {
            let activation = Activation::new(&env)
                .with("k", read_value(entry.get("key")?)?)
                .with("v", read_value(entry.get("value")?)?);
            let single = join.run(&activation, u64::MAX).outcome.ok()?.own();
            let activation = Activation::new(&env).with("m", map.clone()).with("v", single);
            map = both.run(&activation, u64::MAX).outcome.ok()?.own();
        }
        return Some(map);
    }
    None
}

fn base64(text: &str) -> Option<Vec<u8>> {
    const DIGITS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Vec::new();
    let mut bits = 0u32;
    let mut count = 0;
    for c in text.trim_end_matches('=').chars() {
        bits = bits << 6 | u32::try_from(DIGITS.find(c)?).ok()?;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).ok()?);
        }
    }
    Some(bytes)
}

fn same(got: &Val<'_>, want: &Val<'_>) -> bool {
    if let (Val::Double(a), Val::Double(b)) = (got, want) {
        return a == b || a.is_nan() && b.is_nan();
    }
    if got.tag() != want.tag() {
        return false;
    }
    let env = Env::standard().with_variables([("a", Type::Dyn), ("b", Type::Dyn)]);
    let equal = env.compile("a == b").unwrap().program().unwrap();
    let activation = Activation::new(&env).with("a", got.own()).with("b", want.own());
    matches!(equal.run(&activation, u64::MAX).outcome, Ok(Val::Bool(true)))
}

fn environment(original: &Value) -> Option<Env> {
    // What the checker's own suite declares for all its tests.
    let mut variables: Vec<(Str, Type)> = [
        ("is", Type::String),
        ("ii", Type::Int),
        ("iu", Type::Uint),
        ("iz", Type::Bool),
        ("id", Type::Double),
        ("ix", Type::Null),
        ("ib", Type::Bytes),
    ]
    .map(|(name, ty)| (name.into(), ty))
    .into();
    for declared in original.list_at(&["typeEnv"]) {
        let name = declared.str_at(&["name"])?;
        variables.push((name.into(), read_type(declared.at(&["ident", "type"])?)?));
    }
    let env = Env::standard().with_variables(variables);
    Some(match original.str_at(&["container"]) {
        Some(container) => env.with_container(container),
        None => env,
    })
}

/// Runs a test of the conformance suite; says what is wrong.
fn run(original: &Value) -> Result<(), String> {
    let expr = original.str_at(&["expr"]).unwrap_or_default();
    let env = environment(original).ok_or("a declaration that is not understood")?;
    let wants_error = original.get("evalError").is_some();
    let checked = match env.compile(expr) {
        Ok(checked) => checked,
        // An expression that is not to be checked fails when it runs; here it fails before.
        Err(_) if wants_error => return Ok(()),
        Err(issues) => return Err(issues.to_string()),
    };
    if original.get("checkOnly").and_then(Value::as_bool) == Some(true) {
        return Ok(());
    }
    let program = match checked.program() {
        Ok(program) => program,
        Err(_) if wants_error => return Ok(()),
        Err(error) => return Err(error.to_string()),
    };
    let mut activation = Activation::new(&env);
    if let Some(Value::Map(bindings)) = original.get("bindings") {
        for (name, binding) in bindings.iter() {
            let val = binding.get("value").and_then(read_value).ok_or("a binding that is not understood")?;
            activation.set(name, val);
        }
    }
    let evaluation = program.run(&activation, u64::MAX);
    let want = original.get("value").or_else(|| original.at(&["typedResult", "result"]));
    match (evaluation.outcome, want) {
        (Err(_), None) => Ok(()),
        (Err(error), Some(_)) => Err(format!("failed: {error}")),
        (Ok(val), None) if wants_error => Err(format!("gave {val}")),
        (Ok(val), want) => {
            let want =
                want.map_or(Some(Val::Bool(true)), read_value).ok_or("a value that is not understood")?;
            if same(&val, &want) { Ok(()) } else { Err(format!("gave {val}, wanted {want}")) }
        }
    }
}

#[test]
fn the_conformance_suite_gives_the_documented_results() {
    let Some(data) = data() else { return };
    let mut passed = 0;
    let mut skips: BTreeMap<&str, usize> = BTreeMap::new();
    let mut failures = Vec::new();
    walk(data.get("conformance").unwrap(), "", &mut |path, test| {
        let original = test.get("original").unwrap();
        if let Some(reason) = skipped(path, original) {
            *skips.entry(reason).or_default() += 1;
            return;
        }
        match run(original) {
            Ok(()) => passed += 1,
            Err(why) => {
                failures.push(format!("{path}: {} | {why}", original.str_at(&["expr"]).unwrap_or_default()));
            }
        }
    });
    eprintln!("{passed} passed; skipped: {skips:?}");
    assert!(passed > 1000, "the data is not the suite: {passed} passed");
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn what_the_checker_suites_check_has_the_documented_type() {
    let Some(data) = data() else { return };
    let mut passed = 0;
    let mut failures = Vec::new();
    for suite in ["conformance", "checking", "parsing"] {
        walk(data.get(suite).unwrap(), "", &mut |path, test| {
            let original = test.get("original").unwrap();
            let Some(wanted) = test.str_at(&["type"]) else { return };
            if skipped(path, original).is_some() {
                return;
            }
            let Some(env) = environment(original) else { return };
            let expr = original.str_at(&["expr"]).unwrap_or_default();
            match env.compile(expr) {
                Ok(checked) if checked.output_type().in_messages().replace("null_type", "null") == wanted => {
                    passed += 1;
                }
                Ok(checked) => {
                    failures.push(format!(
                        "{path}: {expr} | {} wanted {wanted}",
                        checked.output_type().in_messages()
                    ));
                }
                Err(issues) => failures.push(format!("{path}: {expr} | {issues}")),
            }
        });
    }
    eprintln!("{passed} types agree");
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn what_the_parser_suite_refuses_is_refused_in_the_same_words() {
    let Some(data) = data() else { return };
    let mut passed = 0;
    let mut failures = Vec::new();
    walk(data.get("parsing").unwrap(), "", &mut |path, test| {
        let original = test.get("original").unwrap();
        let Some(wanted) = test.str_at(&["error"]) else { return };
        // The suite was recorded without names for its sources.
        let wanted = wanted.replace("ERROR: :", "ERROR: <input>:");
        if skipped(path, original).is_some() || !wanted.contains("Syntax error") {
            return;
        }
        let expr = original.str_at(&["expr"]).unwrap_or_default();
        match Env::standard().parse(expr) {
            Ok(_) => failures.push(format!("{expr} | parses, wanted {wanted}")),
            Err(issues) => {
                // Only the syntax errors are compared: what the recovered rest of a tree means is not looked into.
                let syntax = |text: &str| -> Vec<String> {
                    text.lines().filter(|line| line.contains("Syntax error")).map(str::to_owned).collect()
                };
                let got = issues.to_string();
                if syntax(&got) == syntax(&wanted) {
                    passed += 1;
                } else {
                    failures.push(format!("{expr} | got {got}, wanted {wanted}"));
                }
            }
        }
    });
    eprintln!("{passed} refusals agree");
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
}
