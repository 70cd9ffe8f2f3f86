use std::io::Write as _;

use expect_test::{Expect, expect};

use super::{Args, batch, evaluate};

fn args(expression: &str, vars: &[&str]) -> Args {
    Args {
        expression: Some(expression.to_owned()),
        vars: vars.iter().map(|var| (*var).to_owned()).collect(),
        ast: false,
        batch: false,
    }
}

fn check(args: &Args, expected: &Expect) {
    let mut out = Vec::new();
    let outcome = evaluate(args, &mut out);
    if let Err(error) = outcome {
        writeln!(out, "error: {error:#}").unwrap();
    }
    expected.assert_eq(&String::from_utf8(out).unwrap());
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

#[test]
fn prints_value_type_cost_and_estimate() {
    check(
        &args("[1, 2, 3].map(i, i * 2)", &[]),
        &expect![[r"
        value:    [2,4,6]
        type:     list(int)
        cost:     43
        estimate: 63 to 63
    "]],
    );
    check(
        &args("x + 1", &["x=3"]),
        &expect![[r"
        value:    4
        type:     int
        cost:     2
        estimate: 2 to 2
    "]],
    );
    check(
        &args("a + b == 'xz'", &["a=x", "b=z"]),
        &expect![[r"
            value:    true
            type:     bool
            cost:     4
            estimate: 3 to 1844674407370955267
        "]],
    );
}

#[test]
fn a_variable_can_be_read_from_a_file() {
    let pod = file("metadata:\n  name: web\nspec:\n  containers:\n  - image: nginx\n");
    let var = format!("object=@{}", pod.path().display());
    check(
        &args("object.spec.containers.all(c, c.image.startsWith('ng'))", &[&var]),
        &expect![[r"
        value:    true
        type:     bool
        cost:     10
        estimate: 2 to no bound
    "]],
    );
    check(
        &args("object.spec.replicas", &[&var]),
        &expect![[r"
        cost:     3
        estimate: 1 to 1
        error: the expression compiles, but it fails on these variables: no such key: replicas
    "]],
    );
}

#[test]
fn ast_prints_the_checked_tree_with_types() {
    let mut args = args("x.all(e, e > 1)", &[]);
    args.ast = true;
    check(
        &args,
        &expect![[r"
        __comprehension__(
          // Variable
          e,
          // Target
          x~dyn,
          // Accumulator
          @result,
          // Init
          true~bool,
          // LoopCondition
          @not_strictly_false(
            @result~bool
          )~bool^not_strictly_false,
          // LoopStep
          _&&_(
            @result~bool,
            _>_(
              e~dyn,
              1~int
            )~bool^greater_int64|greater_uint64_int64|greater_double_int64
          )~bool^logical_and,
          // Result
          @result~bool)~bool
    "]],
    );
}

#[test]
fn a_compile_error_is_underlined() {
    check(
        &args("obejct.spec == 1", &[]),
        &expect![[r"
        error: undeclared reference to 'obejct' (in container '')
         --> <expression>:1:1
          |
        1 | obejct.spec == 1
          | ^^^^^^
          |
          = help: did you mean `object`?
    "]],
    );
    check(
        &args("1 +", &[]),
        &expect![[r"
        error: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}
         --> <expression>:1:4
          |
        1 | 1 +
          |    ^
          |
          = help: the expression ends where a value is expected
    "]],
    );
}

#[test]
fn an_invalid_variable_is_an_error_that_names_the_flag() {
    check(
        &args("x", &["x"]),
        &expect![[r"
        error: --var x: write NAME=VALUE, or NAME=@FILE to read a file
    "]],
    );
    check(
        &args("x", &["1x=3"]),
        &expect![[r"
        error: --var 1x: a name consists of letters, digits and `_` and does not begin with a digit
    "]],
    );
    check(
        &args("x", &["x=1", "x=2"]),
        &expect![[r"
        error: --var x: the variable is set twice; remove one of them
    "]],
    );
    check(
        &args("x", &["x={"]),
        &expect![[r#"
        error: --var x: `{` is not YAML: unexpected end of JSON input; quote a string as "'TEXT'", or use x=@FILE
    "#]],
    );
    check(
        &args("x", &["x=@"]),
        &expect![[r"
        error: --var x: the file name after `@` is missing; write x=@FILE
    "]],
    );
    check(
        &args("x", &["x=@/does/not/exist.yaml"]),
        &expect![[r"
        error: --var x: cannot read `/does/not/exist.yaml`: No such file or directory (os error 2); give the path of a YAML or JSON file
    "]],
    );
    check(
        &args("object", &["obejct=1"]),
        &expect![[r"
        error: --var obejct: the expression does not read `obejct`; did you mean `object`?
    "]],
    );
    check(
        &args("object", &["unrelated=1"]),
        &expect![[r"
        error: --var unrelated: the expression does not read `unrelated`; remove the flag, or correct the name
    "]],
    );
}

#[test]
fn an_invalid_file_is_an_error_with_its_line() {
    for (text, wanted) in [
        ("a: 1\nb: [\n", ":3:1: not YAML: "),
        ("a: 1\nb: 2\na: 3\n", ":3:1: duplicate key `a`; remove one of them"),
        ("a: 1\n---\nb: 2\n", ":1:1: the file contains 2 documents; a variable must be one document"),
        ("{\"a\": }", ":1:7: not YAML: "),
    ] {
        let file = file(text);
        let path = file.path().display().to_string();
        let error = evaluate(&args("x", &[&format!("x=@{path}")]), &mut Vec::new()).unwrap_err().to_string();
        assert!(error.starts_with(&format!("--var x: {path}{wanted}")), "{error}");
    }
}

#[test]
fn every_input_line_of_a_batch_gets_one_output_line() {
    let long = vec![b'['; batch::MAX_LINE_BYTES + 1];
    let deep = format!("{{\"id\":\"deep\",\"expr\":\"{}\"}}", "(".repeat(5000));
    let nested = format!("{{\"id\":9,\"expr\":\"1\",\"vars\":{{\"x\":{}1}}}}", "[".repeat(100_000));
    let lines: [&[u8]; 10] = [
        b"{\"id\":\"a\",\"expr\":\"x + 1\",\"vars\":{\"x\":3}}",
        b"not JSON",
        b"",
        b"{\"id\":2}",
        b"{\"id\":3,\"expr\":7}",
        b"\xff\xfe",
        &long,
        deep.as_bytes(),
        nested.as_bytes(),
        b"[]",
    ];
    let mut out = Vec::new();
    batch::run(lines.join(&b'\n').as_slice(), &mut out).unwrap();
    expect![[r#"
        {"cost":2,"estMax":2,"estMin":2,"id":"a","type":"int","value":"int 4"}
        {"error":"invalid character 'o' in literal null (expecting 'u')","id":null}
        {"error":"unexpected end of JSON input","id":null}
        {"error":"`expr` must be a string","id":2}
        {"error":"`expr` must be a string","id":3}
        {"error":"invalid character 'ÿ' looking for beginning of value","id":null}
        {"error":"the line is longer than 16 MiB","id":null}
        {"compileError":"ERROR: \u003cinput\u003e:-1:0: expression recursion limit exceeded: 250","id":"deep"}
        {"error":"exceeded max depth","id":null}
        {"error":"`expr` must be a string","id":null}
    "#]]
    .assert_eq(&String::from_utf8(out).unwrap());
}
