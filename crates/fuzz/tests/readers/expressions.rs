//! Compiling and evaluating expressions of the Common Expression Language.

use cel::{Activation, Env, Type, Val, Version};
use fuzz::Corpus;
use value::json;

use crate::seeds;

const TOKENS: &[&str] = &[
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "{'a': ",
    "}",
    "x.map(y, ",
    ")",
    ".exists(e, ",
    ")",
    "has(",
    ")",
    "!",
    "-",
    "?",
    " ? 1 : ",
    "&&",
    "||",
    "==",
    " in ",
    ".size()",
    ".matches('(a+)+$')",
    "b'",
    "'''",
    "r\"",
    "1u",
    "0x10",
    "1.0e3",
    "timestamp('2026-01-01T00:00:00Z')",
    "duration('1h')",
    "quantity('1Gi')",
    "ip('::1')",
    "cidr('10.0.0.0/8')",
    "semver('1.2.3')",
    "'%s %d'.format([",
    "])",
    ".split(',')",
    ".replace('', 'x')",
    "lists.range(1000)",
    "object.",
    "dyn(",
    "type(",
    "optional.of(",
    ".orValue(",
    "[?0]",
    "{?'a': ",
    "`",
    "cel.bind(v, ",
    ".transformList(i, v, ",
    "%",
    "9223372036854775807",
];

/// A fraction of Kubernetes' cost limit for one evaluation, so that a run tests many expressions.
const COST: u64 = 100_000;

#[test]
fn expressions_end_within_their_cost() {
    let env = Env::kubernetes(Version::CURRENT).with_variables([("object", Type::Dyn), ("x", Type::Dyn)]);
    let data = json::parse(br#"{"a":1,"b":[1,2,3,"x",null],"c":{"d":"e"},"s":"aaaaaaaaaaaaaaaa!","f":1.5}"#)
        .unwrap();
    let list = json::parse(b"[1,2,3,4,5,6,7,8,9,10]").unwrap();
    fuzz::run(&Corpus::new(seeds::expressions(), TOKENS).inputs(), |input| {
        let text = input.text();
        let Ok(checked) = env.compile(&text) else { return Ok(()) };
        let Ok(program) = checked.program() else { return Ok(()) };
        let run = || {
            let activation =
                Activation::new(&env).with("object", Val::data(&data)).with("x", Val::data(&list));
            let evaluation = program.run(&activation, COST);
            let outcome =
                evaluation.outcome.map(|value| format!("{value:?}")).map_err(|error| error.to_string());
            (outcome, evaluation.cost)
        };
        let (first, second) = (run(), run());
        if first != second {
            return Err(format!("{first:?} and then {second:?}"));
        }
        Ok(())
    });
}

#[test]
fn malformed_expressions_are_rejected_without_panicking() {
    let env = Env::kubernetes(Version::CURRENT).with_variables([("object", Type::Dyn)]);
    let seeds = seeds::expressions().into_iter().map(|text| format!("object.a == 1 && ({text})"));
    fuzz::run(&Corpus::new(seeds, TOKENS).inputs(), |input| {
        let text = input.text();
        match env.parse(&text) {
            Err(issues) if issues.to_string().len() > text.len() * 200 + 4096 => {
                Err(format!("an explanation of {} bytes", issues.to_string().len()))
            }
            Ok(_) | Err(_) => Ok(()),
        }
    });
}
