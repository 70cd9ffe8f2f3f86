//! Evaluates expressions line by line, for differential tests against cel-go.
//!
//! Each input line is `{"id": …, "expr": …, "vars": {…}}`. Each output line is a JSON object with the type, the value
//! or error, the cost and the cost estimate. Expressions run in the base environment with the variables
//! [`VARIABLES`]. A line that is not a valid request is answered with `error`, so that there are always as many
//! output lines as input lines.

use value::{Value, json, write};

use crate::cost::estimate::NoHints;
use crate::env::{Env, Version};
use crate::eval::Activation;
use crate::types::Type;
use crate::val::{Val, convert};

/// The declared variables, all of type dyn; null if the request does not set them.
pub const VARIABLES: [&str; 7] = ["object", "oldObject", "request", "params", "namespaceObject", "self", "x"];

/// An environment for batch evaluation.
#[derive(Clone, Debug)]
pub struct ExpressionBatch {
    env: Env,
}

impl ExpressionBatch {
    /// A batch in Kubernetes' base environment of `version`.
    pub fn new(version: Version) -> Self {
        let env = Env::kubernetes(version).with_variables(VARIABLES.map(|name| (name, Type::Dyn)));
        ExpressionBatch { env }
    }

    /// Like [`ExpressionBatch::new`], with the types of mutating policies.
    pub fn mutation(version: Version) -> Self {
        let env = Env::kubernetes_mutation(version).with_variables(VARIABLES.map(|name| (name, Type::Dyn)));
        ExpressionBatch { env }
    }

    /// Evaluates one request line and returns the response line.
    pub fn answer_line(&self, line: impl AsRef<[u8]>) -> String {
        write::to_string(&self.answer(line.as_ref()))
    }

    /// The response to a line that could not be read.
    pub fn error_line(reason: &str) -> String {
        write::to_string(&Value::map([("error", Value::from(reason)), ("id", Value::Null)]))
    }

    fn answer(&self, line: &[u8]) -> Value {
        let request = match json::parse(line) {
            Ok(request) => request,
            Err(error) => {
                return Value::map([("error", Value::from(error.message)), ("id", Value::Null)]);
            }
        };
        let mut answer = Value::map([("id", request.get("id").cloned().unwrap_or_default())]);
        let Some(expr) = request.get("expr").and_then(Value::as_str) else {
            answer.set_at(&["error"], "`expr` must be a string");
            return answer;
        };
        let checked = match self.env.compile(expr) {
            Ok(checked) => checked,
            Err(issues) => {
                answer.set_at(&["compileError"], issues.to_string());
                return answer;
            }
        };
        answer.set_at(&["type"], checked.output_type().to_string());
        let estimate = checked.estimate(&NoHints);
        answer.set_at(&["estMin"], number(estimate.min));
        answer.set_at(&["estMax"], number(estimate.max));
        let program = match checked.program() {
            Ok(program) => program,
            Err(error) => {
                answer.set_at(&["evalError"], format!("program: {error}"));
                return answer;
            }
        };
        let mut activation = Activation::new(&self.env);
        for name in VARIABLES {
            match request.at(&["vars", name]) {
                Some(given) => activation.set(name, Val::data(given)),
                None => activation.set_absent(name),
            }
        }
        let evaluation = program.run(&activation, crate::PER_CALL_LIMIT);
        answer.set_at(&["cost"], number(evaluation.cost));
        match evaluation.outcome {
            Ok(val) => answer.set_at(&["value"], show(&val)),
            Err(error) => answer.set_at(&["evalError"], error.to_string()),
        }
        answer
    }
}

fn number(n: u64) -> Value {
    i64::try_from(n).map_or(Value::UInt(n), Value::Int)
}

/// Formats a value as `TYPE TEXT`: JSON for lists, maps and objects, CEL's string conversion for everything else.
pub fn show(val: &Val<'_>) -> String {
    let name = val.type_name();
    match val {
        Val::Object(object) if object.type_name == "google.protobuf.Empty" => format!("{name} "),
        Val::List(_) | Val::Map(_) | Val::Object(_) => match convert::to_json(val) {
            Ok(json) => format!("{name} {}", write::to_string(&json)),
            Err(error) => format!("{name} !{error}"),
        },
        Val::Optional(None) => format!("{name} <nil>"),
        Val::Optional(Some(inner)) => match convert::to_value(inner) {
            Err(error) if error == convert::TOO_LARGE => format!("{name} !{error}"),
            _ => format!("{name} {}", native(inner)),
        },
        _ => match convert::text(val) {
            Ok(Some(text)) => format!("{name} {text}"),
            _ => format!("{name} {val}"),
        },
    }
}

/// Formats the Go value behind an optional as `%v` prints it.
fn native(val: &Val<'_>) -> String {
    match val {
        Val::Null => "NULL_VALUE".to_owned(),
        Val::List(list) => {
            let items: Vec<String> = list.iter().map(|item| native(&item)).collect();
            format!("[{}]", items.join(" "))
        }
        Val::Map(map) => {
            let mut entries: Vec<String> =
                map.iter().map(|(key, val)| format!("{}:{}", native(&key), native(&val))).collect();
            entries.sort();
            format!("map[{}]", entries.join(" "))
        }
        Val::Optional(None) => "<nil>".to_owned(),
        Val::Optional(Some(inner)) => native(inner),
        other => other.to_string(),
    }
}
