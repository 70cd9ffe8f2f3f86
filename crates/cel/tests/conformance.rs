//! Runs the official conformance data of the npm package `@bufbuild/cel-spec`.
//!
//! `cargo xtask setup` fetches the data into `cel-spec/cel-spec.json` of the target folder, where these tests find it;
//! `CEL_SPEC_JSON` names another file. It is one JSON object with the test suites `conformance`, `parsing`, `comprehension`
//! and `checking`. Without the data the tests fail. `CEL_SPEC_JSON=left-out` passes them without running anything;
//! `cargo xtask test` sets it where the data cannot be fetched, and reports that.
//!
//! `conformance_skips.txt` lists the skipped tests with reasons: protocol-buffer messages, and extensions that Kubernetes does
//! not have. Where Kubernetes' result differs from the data, Kubernetes' result is expected: see [`KUBERNETES`].

#![expect(clippy::panic, clippy::unwrap_used, clippy::float_cmp, reason = "these are tests")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cel::{Activation, Env, Type, Val, Version};
use value::{Str, Value, json};

const SKIPS: &str = include_str!("conformance_skips.txt");

/// Results of Kubernetes 1.37 that differ from the data. cel-go rejects constant keys of types that no map has when it plans an
/// expression, lets the last of several equal keys win, accepts double keys, and treats a selection from an optional scalar as
/// absent.
const KUBERNETES: [(&str, &str); 10] = [
    ("conformance/fields/map_fields/map_bad_key_type", "invalid qualifier type: types.Bytes"),
    ("conformance/fields/map_fields/map_bad_key_type_or_false", "invalid qualifier type: types.Bytes"),
    ("conformance/fields/map_fields/map_bad_key_type_or_true", "invalid qualifier type: types.Bytes"),
    ("conformance/fields/map_fields/map_bad_key_type_and_false", "invalid qualifier type: types.Bytes"),
    ("conformance/fields/map_fields/map_bad_key_type_and_true", "invalid qualifier type: types.Bytes"),
    ("conformance/fields/qualified_identifier_resolution/map_value_repeat_key", "int 3"),
    (
        "conformance/fields/qualified_identifier_resolution/map_value_repeat_key_heterogeneous",
        "ERROR: <input>:1:8: expected type 'int' but found 'uint'\n | {0: 1, 0u: 2}[0.0]\n | .......^",
    ),
    (
        "conformance/fields/qualified_identifier_resolution/map_key_float",
        "ERROR: <input>:1:18: expected type 'double' but found 'int'\n | {3.3:15.15, 1.0: 5}[1.0]\n | .................^",
    ),
    ("conformance/optionals/optionals/map_null_entry_no_such_key", "bool false"),
    ("conformance/optionals/optionals/map_present_key_invalid_field", "bool false"),
];

/// The test data; `None` if `CEL_SPEC_JSON` is `left-out`. Panics if the data is missing or incomplete.
fn data() -> Option<Value> {
    let path = match std::env::var_os("CEL_SPEC_JSON") {
        Some(value) if value == "left-out" => {
            eprintln!("left out: the CEL conformance data was not fetched");
            return None;
        }
        Some(path) => PathBuf::from(path),
        None => Path::new(env!("CARGO_TARGET_TMPDIR")).join("../cel-spec/cel-spec.json"),
    };
    let bytes = std::fs::read(&path).unwrap_or_else(|error| {
        panic!(
            "no CEL conformance data in {}: {error}; run `cargo xtask setup` or set CEL_SPEC_JSON",
            path.display()
        )
    });
    let data = json::parse(&bytes)
        .unwrap_or_else(|error| panic!("{} is not JSON: {}", path.display(), error.message));
    for suite in ["conformance", "parsing", "comprehension", "checking"] {
        assert!(data.get(suite).is_some(), "{} has no suite `{suite}`", path.display());
    }
    Some(data)
}

/// Calls `each` for all tests of a suite, with the test's path.
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

/// The reason for skipping a test, or `None`.
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
    if let Some(name) = ty.str_at(&["typeParam"]) {
        return Some(Type::Param(name.into()));
    }
    let name = ty.str_at(&["abstractType", "name"])?;
    let parameters = ty.list_at(&["abstractType", "parameterTypes"]).iter().map(read_type);
    let parameters = parameters.collect::<Option<Vec<_>>>()?;
    if name == "optional_type" {
        return Some(Type::optional(parameters.into_iter().next().unwrap_or(Type::Dyn)));
    }
    Some(Type::Opaque(name.into(), parameters.into()))
}

/// Converts a value of the test data.
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
        // Maps are built by expressions, the only way to build them outside the crate.
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
    if got.kind() != want.kind() {
        return false;
    }
    let env = Env::standard().with_variables([("a", Type::Dyn), ("b", Type::Dyn)]);
    let equal = env.compile("a == b").unwrap().program().unwrap();
    let activation = Activation::new(&env).with("a", got.own()).with("b", want.own());
    matches!(equal.run(&activation, u64::MAX).outcome, Ok(Val::Bool(true)))
}

fn environment(original: &Value) -> Option<Env> {
    // Variables that the checker suite declares for all its tests.
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
    let mut env = Env::standard()
        .with_declaration("fg_s", "fg_s_0", false, vec![], Type::String)
        .with_declaration("fi_s_s", "fi_s_s_0", true, vec![Type::String], Type::String);
    for declared in original.list_at(&["typeEnv"]) {
        let name = declared.str_at(&["name"])?;
        if let Some(ty) = declared.at(&["ident", "type"]) {
            variables.push((name.into(), read_type(ty)?));
        }
        for overload in declared.list_at(&["function", "overloads"]) {
            let member = overload.bool_at(&["isInstanceFunction"]).unwrap_or(false);
            let args = overload.list_at(&["params"]).iter().map(read_type).collect::<Option<_>>()?;
            let result = read_type(overload.get("resultType")?)?;
            env = env.with_declaration(name, overload.str_at(&["overloadId"])?, member, args, result);
        }
    }
    let env = env.with_variables(variables);
    Some(match original.str_at(&["container"]) {
        Some(container) => env.with_container(container),
        None => env,
    })
}

/// Runs one test of the conformance suite; the error describes the mismatch.
fn run(original: &Value) -> Result<(), String> {
    let expr = original.str_at(&["expr"]).unwrap_or_default();
    let env = environment(original).ok_or("a declaration that is not understood")?;
    let wants_error = original.get("evalError").is_some();
    let program = if original.bool_at(&["disableCheck"]) == Some(true) {
        let parsed = env.parse(expr).map_err(|issues| issues.to_string())?;
        env.unchecked_program(parsed)
    } else {
        let checked = match env.compile(expr) {
            Ok(checked) => checked,
            // cel-go's own test runner also accepts a compile error here.
            Err(_) if wants_error => return Ok(()),
            Err(issues) => return Err(issues.to_string()),
        };
        if original.bool_at(&["checkOnly"]) == Some(true) {
            return Ok(());
        }
        checked.program()
    };
    let program = match program {
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

/// The result or error of an expression in Kubernetes' environment.
fn answer(expr: &str) -> String {
    let env = Env::kubernetes(Version::CURRENT);
    let checked = match env.compile(expr) {
        Ok(checked) => checked,
        Err(issues) => return issues.to_string(),
    };
    let program = match checked.program() {
        Ok(program) => program,
        Err(error) => return error.to_string(),
    };
    match program.run(&Activation::new(&env), u64::MAX).outcome {
        Ok(val) => cel::batch::show(&val),
        Err(error) => error.to_string(),
    }
}

#[test]
fn conformance_expressions_give_the_documented_results() {
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
        let known = KUBERNETES.iter().find(|(known, _)| *known == path);
        let outcome = match known {
            Some((_, wanted)) => {
                let got = answer(original.str_at(&["expr"]).unwrap_or_default());
                if got == *wanted { Ok(()) } else { Err(format!("gave {got}, wanted {wanted}")) }
            }
            None => run(original),
        };
        match outcome {
            Ok(()) => passed += 1,
            Err(why) => {
                failures.push(format!("{path}: {} | {why}", original.str_at(&["expr"]).unwrap_or_default()));
            }
        }
    });
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
    let skips: Vec<(&str, usize)> = skips.into_iter().collect();
    assert_eq!(passed, 1480);
    assert_eq!(
        skips,
        [
            ("a version of an extension Kubernetes does not have", 20),
            ("an extension Kubernetes does not have", 233),
            ("protocol-buffer messages", 611),
        ]
    );
}

#[test]
fn checked_expressions_have_the_documented_type() {
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
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
    assert_eq!(passed, 1387);
}

#[test]
fn syntax_errors_have_the_documented_messages() {
    let Some(data) = data() else { return };
    let mut passed = 0;
    let mut failures = Vec::new();
    walk(data.get("parsing").unwrap(), "", &mut |path, test| {
        let original = test.get("original").unwrap();
        let Some(wanted) = test.str_at(&["error"]) else { return };
        // The suite was recorded with an empty source name.
        let wanted = wanted.replace("ERROR: :", "ERROR: <input>:");
        let expr = original.str_at(&["expr"]).unwrap_or_default();
        if skipped(path, original).is_some() {
            return;
        }
        // The suite was recorded with lower limits than cel-go's defaults; errors up to those limits must still be
        // found.
        let limited = wanted.contains("limit exceeded");
        if !wanted.contains("Syntax error") {
            if limited && let Err(issues) = Env::standard().parse(expr) {
                failures.push(format!("{expr} | got {issues}"));
            }
            return;
        }
        match Env::standard().parse(expr) {
            Ok(_) => failures.push(format!("{expr} | parses, wanted {wanted}")),
            Err(issues) => {
                // Only syntax errors are compared, not the semantic errors in the recovered tree.
                let syntax = |text: &str| -> Vec<String> {
                    let lines = text.lines().filter(|line| line.contains("Syntax error"));
                    lines.filter(|line| !line.contains("limit exceeded")).map(str::to_owned).collect()
                };
                let got = issues.to_string();
                let (found, wanted_lines) = (syntax(&got), syntax(&wanted));
                let agree = if limited {
                    wanted_lines.iter().all(|line| found.contains(line))
                } else {
                    found == wanted_lines
                };
                if agree {
                    passed += 1;
                } else {
                    failures.push(format!("{expr} | got {got}, wanted {wanted}"));
                }
            }
        }
    });
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
    assert_eq!(passed, 29);
}

#[test]
fn two_variable_comprehensions_evaluate_as_in_kubernetes() {
    let Some(data) = data() else { return };
    // The suite has no expected results. It consists of true statements, of misuses that fail to compile, and of two
    // others.
    let mut answers: BTreeMap<&str, usize> = BTreeMap::new();
    let mut failures = Vec::new();
    walk(data.get("comprehension").unwrap(), "", &mut |path, test| {
        let original = test.get("original").unwrap();
        if skipped(path, original).is_some() {
            return;
        }
        let expr = original.str_at(&["expr"]).unwrap_or_default();
        let got = answer(expr);
        let sort = match got.as_str() {
            "bool true" => "true",
            "insert failed: key 1 already exists" => "repeated key",
            r#"map {"a":"WORLD","b":"hello"}"# => "map",
            text if text.starts_with("ERROR: <input>:") => "refused",
            _ => {
                failures.push(format!("{expr} | {got}"));
                return;
            }
        };
        *answers.entry(sort).or_default() += 1;
    });
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
    let counted: Vec<(&str, usize)> = answers.into_iter().collect();
    assert_eq!(counted, [("map", 1), ("refused", 41), ("repeated key", 1), ("true", 39)]);
}
