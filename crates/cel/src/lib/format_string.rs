//! `format`: parses format strings, validates literal arguments, and formats values.

use data_encoding::HEXLOWER;
use value::go::quote;

use super::check_text_length;
use crate::check::CheckedAst;
use crate::eval::{CallContext, Error, EvalResult};
use crate::syntax::ast::{Expr, ExprKind, NodeId};
use crate::types::Type;
use crate::val::convert;
use crate::val::{ListVal, MapVal, Val, fixed, scientific};

/// A clause of a format string, such as `%d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FormatClause {
    String,
    Decimal,
    Fixed(usize),
    Scientific(usize),
    Binary,
    Hex { upper: bool },
    Octal,
}

/// Digits of `%f` and `%e` if the clause has no precision.
const DEFAULT_PRECISION: usize = 6;
/// Upper bound of the precision. A double has no more digits, and this bounds memory.
const MAX_PRECISION: usize = 2000;

impl FormatClause {
    fn refuses(self, type_name: &str) -> String {
        let what = match self {
            FormatClause::String => {
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, \
                 durations, and timestamps"
            }
            FormatClause::Decimal => "decimal clause can only be used on integers",
            FormatClause::Fixed(_) => "fixed-point clause can only be used on doubles",
            FormatClause::Scientific(_) => "scientific clause can only be used on doubles",
            FormatClause::Binary => "only integers and bools can be formatted as binary",
            FormatClause::Hex { .. } => "only integers, byte buffers, and strings can be formatted as hex",
            FormatClause::Octal => "octal clause can only be used on integers",
        };
        format!("{what}, was given {type_name}")
    }
}

/// The message, with the argument it is about.
type FormatFailure = (Option<NodeId>, String);

/// Walks through a format string; calls `fill` for the text of each clause.
fn interpolate(
    format: &str,
    size: usize,
    // At run time a missing argument is reported before an invalid clause.
    missing_first: bool,
    mut fill: impl FnMut(FormatClause, usize) -> Result<String, FormatFailure>,
) -> Result<String, FormatFailure> {
    let mut out = String::with_capacity(format.len());
    let mut index = 0;
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        out.push_str(rest.get(..at).unwrap_or_default());
        rest = rest.get(at + 1..).unwrap_or_default();
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        let missing = || (None, format!("index {index} out of range"));
        if missing_first && index >= size {
            return Err(missing());
        }
        if rest.is_empty() {
            return Err((None, "unexpected end of string".to_owned()));
        }
        if index >= size {
            return Err(missing());
        }
        let (clause, length) =
            clause(rest).map_err(|error| (None, format!("could not parse formatting clause: {error}")))?;
        let text =
            fill(clause, index).map_err(|(id, error)| (id, format!("error during formatting: {error}")))?;
        check_text_length(out.len() + text.len()).map_err(|error| (None, error.to_string()))?;
        out.push_str(&text);
        rest = rest.get(length..).unwrap_or_default();
        index += 1;
    }
    out.push_str(rest);
    Ok(out)
}

/// Parses the clause after a percent sign; returns it with its length.
fn clause(text: &str) -> Result<(FormatClause, usize), String> {
    let (precision, start) = match text.strip_prefix('.') {
        None => (DEFAULT_PRECISION, 0),
        Some(after) => {
            let digits = after.bytes().take_while(u8::is_ascii_digit).count();
            if digits == after.len() {
                return Err(
                    "error while parsing precision: could not find end of precision specifier".to_owned()
                );
            }
            let digits = after.get(..digits).unwrap_or_default();
            let precision = digits.parse::<i64>().map_err(|_| {
                let why = if digits.is_empty() { "invalid syntax" } else { "value out of range" };
                format!(
                    "error while parsing precision: error while converting precision to integer: \
                     strconv.Atoi: parsing {}: {why}",
                    quote(digits)
                )
            })?;
            (usize::try_from(precision).unwrap_or(MAX_PRECISION).min(MAX_PRECISION), digits.len() + 1)
        }
    };
    let byte = text.as_bytes().get(start).copied().unwrap_or(0);
    let clause = match byte {
        b's' => FormatClause::String,
        b'd' => FormatClause::Decimal,
        b'f' => FormatClause::Fixed(precision),
        b'e' => FormatClause::Scientific(precision),
        b'b' => FormatClause::Binary,
        b'x' => FormatClause::Hex { upper: false },
        b'X' => FormatClause::Hex { upper: true },
        b'o' => FormatClause::Octal,
        other => return Err(format!("unrecognized formatting clause \"{}\"", char::from(other))),
    };
    Ok((clause, start + 1))
}

/// Validates a literal format string against literal arguments; returns how many it uses.
pub(crate) fn check(format: &str, args: &[Expr], checked: &CheckedAst) -> Result<usize, FormatFailure> {
    let mut used = 0;
    let mut requested = 0;
    let outcome = interpolate(format, args.len(), false, |clause, index| {
        used += 1;
        let Some(arg) = args.get(index) else { return Ok(String::new()) };
        let fine = |id: NodeId, allowed: fn(&Type) -> bool| {
            let ty = checked.type_of(id);
            matches!(ty, Type::Dyn) || allowed(ty)
        };
        let bad = match clause {
            FormatClause::String => bad_string(arg, checked),
            FormatClause::Decimal | FormatClause::Octal => {
                (!fine(arg.id, |ty| matches!(ty, Type::Int | Type::Uint))).then_some(arg.id)
            }
            FormatClause::Fixed(_) | FormatClause::Scientific(_) => {
                (!fine(arg.id, |ty| matches!(ty, Type::Double | Type::String))).then_some(arg.id)
            }
            FormatClause::Binary => {
                (!fine(arg.id, |ty| matches!(ty, Type::Int | Type::Uint | Type::Bool))).then_some(arg.id)
            }
            FormatClause::Hex { .. } => {
                (!fine(arg.id, |ty| matches!(ty, Type::Int | Type::Uint | Type::String | Type::Bytes)))
                    .then_some(arg.id)
            }
        };
        match bad {
            Some(id) => Err((Some(id), clause.refuses(checked.type_of(id).name()))),
            None => Ok(String::new()),
        }
    });
    requested += used;
    outcome.map(|_| requested)
}

/// The first part of an argument that `%s` cannot format.
fn bad_string(arg: &Expr, checked: &CheckedAst) -> Option<NodeId> {
    let ty = checked.type_of(arg.id);
    let fine = matches!(
        ty,
        Type::Dyn
            | Type::List(_)
            | Type::Map(_)
            | Type::Int
            | Type::Uint
            | Type::Double
            | Type::Bool
            | Type::String
            | Type::Timestamp
            | Type::Bytes
            | Type::Duration
            | Type::Type(_)
            | Type::Null
    );
    if !fine {
        return Some(arg.id);
    }
    match &arg.kind {
        ExprKind::List { elements, .. } => elements.iter().find_map(|element| bad_string(element, checked)),
        ExprKind::Map(entries) => entries
            .iter()
            .find_map(|entry| bad_string(&entry.key, checked).or_else(|| bad_string(&entry.value, checked))),
        _ => None,
    }
}

/// The method `format`, as in `'%s'.format([arg])`.
pub(crate) fn format<'a>(_: &CallContext<'a>, args: &[Val<'a>]) -> EvalResult<'a> {
    let [Val::String(format), Val::List(list)] = args else { return Err(Error::no_such_overload()) };
    let text = interpolate(format, list.len(), true, |clause, index| {
        let arg = list.get(index).unwrap_or(Val::Null);
        fill(clause, &arg).map_err(|message| (None, message))
    });
    text.map(Val::string).map_err(|(_, message)| Error::new(message))
}

fn fill(clause: FormatClause, arg: &Val<'_>) -> Result<String, String> {
    let refuse = || Err(clause.refuses(arg.type_name()));
    match clause {
        FormatClause::String => string(arg),
        FormatClause::Decimal => match arg {
            Val::Int(i) => Ok(i.to_string()),
            Val::Uint(u) => Ok(u.to_string()),
            _ => refuse(),
        },
        FormatClause::Fixed(precision) => match double(arg) {
            Some(d) if d.is_finite() => Ok(grouped(&fixed(d, precision))),
            Some(d) => Ok(not_finite(d).to_owned()),
            None => refuse(),
        },
        FormatClause::Scientific(precision) => match double(arg) {
            Some(d) if d.is_finite() => Ok(localized_exponent(&scientific(d, DEFAULT_PRECISION), precision)),
            // cel-go uses the precision as the width here.
            Some(d) => Ok(format!("{:>precision$}", not_finite(d))),
            None => refuse(),
        },
        FormatClause::Binary => match arg {
            Val::Int(i) => Ok(signed(*i, |u| format!("{u:b}"))),
            Val::Uint(u) => Ok(format!("{u:b}")),
            Val::Bool(b) => Ok(if *b { "1" } else { "0" }.to_owned()),
            _ => refuse(),
        },
        FormatClause::Hex { upper } => {
            let hex = match arg {
                Val::Int(i) => signed(*i, |u| format!("{u:x}")),
                Val::Uint(u) => format!("{u:x}"),
                Val::String(s) => HEXLOWER.encode(s.as_bytes()),
                Val::Bytes(b) => HEXLOWER.encode(b),
                _ => return refuse(),
            };
            Ok(if upper { hex.to_uppercase() } else { hex })
        }
        FormatClause::Octal => match arg {
            Val::Int(i) => Ok(signed(*i, |u| format!("{u:o}"))),
            Val::Uint(u) => Ok(format!("{u:o}")),
            _ => refuse(),
        },
    }
}

fn signed(i: i64, write: impl Fn(u64) -> String) -> String {
    let digits = write(i.unsigned_abs());
    if i < 0 { format!("-{digits}") } else { digits }
}

fn double(arg: &Val<'_>) -> Option<f64> {
    match arg {
        Val::Double(d) => Some(*d),
        Val::String(s) => match s.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

/// Formats infinities and NaN as the locale en-US does.
fn not_finite(d: f64) -> &'static str {
    if d.is_nan() {
        "NaN"
    } else if d > 0.0 {
        "∞"
    } else {
        "-∞"
    }
}

/// Groups the integer digits in threes, as the locale en-US does.
fn grouped(text: &str) -> String {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text),
    };
    let (whole, fraction) = match digits.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (digits, None),
    };
    let mut out = sign.to_owned();
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// Formats `1.5e+03` as the locale en-US does: `1.500000×10⁰³`.
fn localized_exponent(text: &str, width: usize) -> String {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "+00"));
    let raised: String = exponent
        .chars()
        .filter_map(|c| match c {
            '-' => Some('⁻'),
            '0'..='9' => "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().nth(c.to_digit(10)? as usize),
            _ => None,
        })
        .collect();
    let text = format!("{mantissa}×10{raised}");
    let missing = width.saturating_sub(text.chars().count());
    format!("{}{text}", " ".repeat(missing))
}

fn string(arg: &Val<'_>) -> Result<String, String> {
    match arg {
        Val::List(items) => list(items),
        Val::Map(entries) => map(entries),
        Val::Null => Ok("null".to_owned()),
        Val::Optional(_) | Val::Object(_) | Val::Ext(_) => Err(FormatClause::String.refuses(arg.type_name())),
        _ => match convert::text(arg) {
            Ok(Some(text)) => Ok(text),
            Ok(None) => Err(FormatClause::String.refuses(arg.type_name())),
            Err(error) => Err(format!("could not convert argument {} to string", quote(&error.to_string()))),
        },
    }
}

/// Formats a value inside a list or map.
fn nested(val: &Val<'_>) -> Result<String, String> {
    Ok(match val {
        Val::Int(_) | Val::Uint(_) | Val::Bool(_) | Val::Null | Val::Type(_) => string(val)?,
        Val::String(s) => quote(s),
        Val::Bytes(_) => format!("b{}", quote(&string(val)?)),
        Val::Timestamp(_) => format!("timestamp({})", quote(&string(val)?)),
        Val::Duration(_) => format!("duration({})", quote(&string(val)?)),
        Val::List(items) => list(items)?,
        Val::Map(entries) => map(entries)?,
        Val::Double(d) => {
            let text = fixed(*d, DEFAULT_PRECISION);
            if d.is_finite() { text } else { quote(&text) }
        }
        Val::Optional(_) | Val::Object(_) | Val::Ext(_) => {
            return Err(format!("no formatting function for {}", val.type_name()));
        }
    })
}

fn list(items: &ListVal<'_>) -> Result<String, String> {
    let mut texts = Vec::new();
    let mut length = 0;
    for item in items.iter() {
        let text = nested(&item)?;
        length += text.len();
        check_text_length(length).map_err(|error| error.to_string())?;
        texts.push(text);
    }
    Ok(format!("[{}]", texts.join(", ")))
}

fn map(entries: &MapVal<'_>) -> Result<String, String> {
    let mut pairs = Vec::new();
    let mut length = 0;
    for (key, val) in entries {
        let key = match key {
            Val::String(_) | Val::Bool(_) | Val::Int(_) | Val::Uint(_) => nested(&key)?,
            other => return Err(format!("no formatting function for map key of type {}", other.type_name())),
        };
        let val = nested(&val)?;
        length += key.len() + val.len();
        check_text_length(length).map_err(|error| error.to_string())?;
        pairs.push((key, val));
    }
    pairs.sort();
    let pairs: Vec<String> = pairs.into_iter().map(|(key, val)| format!("{key}:{val}")).collect();
    Ok(format!("{{{}}}", pairs.join(", ")))
}
