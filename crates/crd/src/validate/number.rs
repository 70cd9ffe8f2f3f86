//! Validates numbers: their range, `multipleOf`, `minimum` and `maximum`.

use api::field::{FieldErrorKind, float as go_text};
use value::Value;

use crate::node::SchemaNode;
use crate::validation_result::{ValidationResult, ValuePath};

/// Whether a number has no fraction and lies within the integers that floats represent exactly.
pub(super) fn is_integral(number: f64) -> bool {
    const LARGEST: f64 = 9_007_199_254_740_991.0;
    number.fract() == 0.0 && number.abs() <= LARGEST
}

/// The error if a number does not fit the type and format of the schema.
fn out_of_range(number: &Value, node: &SchemaNode, what: &str, path: &ValuePath<'_>) -> Option<String> {
    if node.int_or_string || node.kind != "integer" {
        let narrow = node.kind == "number"
            && node.checks.as_ref().is_some_and(|checks| checks.format == "float")
            && matches!(number, Value::Float(f) if f.abs() > f64::from(f32::MAX));
        return narrow.then(|| format!("{what} value must be of type number with format float in {path}"));
    }
    let format = node.checks.as_ref().map_or("", |checks| checks.format.as_str());
    let whole = match number {
        Value::Int(number) => Some(*number),
        Value::UInt(number) => i64::try_from(*number).ok(),
        #[expect(clippy::cast_possible_truncation, reason = "the range is checked first")]
        Value::Float(f) if f.fract() == 0.0 && f.abs() < 9.2e18 => Some(*f as i64),
        _ => None,
    };
    let fits = whole.is_some_and(|number| format != "int32" || i32::try_from(number).is_ok());
    if fits {
        return None;
    }
    Some(if format.is_empty() {
        format!("{what} value must be of type integer (default format) in {path}")
    } else {
        format!("{what} value must be of type integer with format {format} in {path}")
    })
}

/// A number that is validated. The library compares integers as integers if the limit fits the type of the schema as well, and all
/// other numbers as floats.
struct NumberCheck<'v> {
    float: f64,
    whole: Option<i64>,
    node: &'v SchemaNode,
    path: &'v ValuePath<'v>,
}

#[expect(clippy::cast_precision_loss, reason = "Go converts between these types in the same way")]
pub(super) fn number(
    value: &Value,
    node: &SchemaNode,
    path: &ValuePath<'_>,
    result: &mut ValidationResult<'_>,
) {
    if let Some(error) = out_of_range(value, node, "Checked", path) {
        result.add_object_problem(format_args!("{error}"));
    }
    let Some(checks) = node.checks.as_deref() else { return };
    let float = match value {
        Value::Int(number) => *number as f64,
        Value::UInt(number) => *number as f64,
        Value::Float(number) => *number,
        _ => return,
    };
    let number = NumberCheck { float, whole: value.as_int(), node, path };
    if let Some(factor) = checks.multiple_of {
        number.multiple_of(factor, result);
    }
    if let Some(min) = checks.minimum {
        number.minimum(min, checks.exclusive_minimum, result);
    }
    if let Some(max) = checks.maximum {
        number.maximum(max, checks.exclusive_maximum, result);
    }
}

#[expect(clippy::cast_possible_truncation, reason = "Go converts between these types in the same way")]
impl NumberCheck<'_> {
    /// The number as an integer, if it is compared with `limit` as one. Reports a limit that does not fit the type of the schema.
    fn as_whole(&self, limit: f64, what: &str, result: &mut ValidationResult<'_>) -> Option<i64> {
        let Some(error) = out_of_range(&Value::Float(limit), self.node, what, self.path) else {
            return self.whole;
        };
        result.add_object_problem(format_args!("{error}"));
        None
    }

    fn multiple_of(&self, factor: f64, result: &mut ValidationResult<'_>) {
        let path = self.path;
        match self.as_whole(factor, "MultipleOf", result) {
            Some(number) => {
                let factor = factor as i64;
                if factor <= 0 {
                    let message =
                        format_args!("factor MultipleOf declared for {path} must be positive: {factor}");
                    result.add_problem(path, FieldErrorKind::Invalid, factor, message);
                } else if number % factor != 0 {
                    result.invalid(path, number, format_args!("should be a multiple of {factor}"));
                }
            }
            None if factor <= 0.0 => {
                let shown = go_text(factor);
                let message = format_args!("factor MultipleOf declared for {path} must be positive: {shown}");
                result.add_problem(path, FieldErrorKind::Invalid, factor, message);
            }
            None => {
                let times = if factor < 1.0 { 1.0 / factor * self.float } else { self.float / factor };
                if !is_integral(times) {
                    let factor = go_text(factor);
                    result.invalid(path, self.float, format_args!("should be a multiple of {factor}"));
                }
            }
        }
    }

    fn minimum(&self, min: f64, exclusive: bool, result: &mut ValidationResult<'_>) {
        let text = if exclusive { "should be greater than" } else { "should be greater than or equal to" };
        match self.as_whole(min, "Minimum boundary", result) {
            Some(number) if number < min as i64 || (exclusive && number == min as i64) => {
                result.invalid(self.path, number, format_args!("{text} {}", min as i64));
            }
            None if self.float < min || (exclusive && self.float <= min) => {
                result.invalid(self.path, self.float, format_args!("{text} {}", go_text(min)));
            }
            _ => {}
        }
    }

    fn maximum(&self, max: f64, exclusive: bool, result: &mut ValidationResult<'_>) {
        let text = if exclusive { "should be less than" } else { "should be less than or equal to" };
        match self.as_whole(max, "Maximum boundary", result) {
            Some(number) if number > max as i64 || (exclusive && number == max as i64) => {
                result.invalid(self.path, number, format_args!("{text} {}", max as i64));
            }
            None if self.float > max || (exclusive && self.float >= max) => {
                result.invalid(self.path, self.float, format_args!("{text} {}", go_text(max)));
            }
            _ => {}
        }
    }
}
