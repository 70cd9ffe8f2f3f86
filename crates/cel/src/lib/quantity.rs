//! The quantity library: functions on [`value::quantity::Quantity`].

use std::cmp::Ordering;

use value::quantity::{Quantity, QuantityError, QuantityFormat};

use super::{Ext, ext, int, refuse, string};
use crate::env::Builder;
use crate::eval::{CallContext, Error, EvalResult};
use crate::val::Val;

/// More digits than this are refused: the cost of arithmetic does not depend on them, but its time does.
const MAX_DIGITS: usize = 2000;

/// Declares `quantity`, `isQuantity` and the methods of quantities.
pub(crate) fn add(b: &mut Builder) {
    b.function(
        "quantity",
        &[("string_to_quantity", "(string) -> kubernetes.Quantity", |_, args| {
            let quantity = parse(string(args, 0)?).map_err(|error| Error::new(error.to_string()))?;
            Ok(Val::ext(Ext::Quantity { quantity, computed: false }))
        })],
    );
    b.function(
        "isQuantity",
        &[("is_quantity_string", "(string) -> bool", |_, args| {
            Ok(Val::Bool(parse(string(args, 0)?).is_ok()))
        })],
    );
    b.function(
        "sign",
        &[("quantity_sign", "(kubernetes.Quantity) -> int", |_, args| {
            Ok(Val::Int(i64::from(at(args, 0)?.sign())))
        })],
    );
    b.function(
        "isGreaterThan",
        &[("quantity_is_greater_than", "kubernetes.Quantity.(kubernetes.Quantity) -> bool", |_, args| {
            Ok(Val::Bool(compared(args)?.is_gt()))
        })],
    );
    b.function(
        "isLessThan",
        &[("quantity_is_less_than", "kubernetes.Quantity.(kubernetes.Quantity) -> bool", |_, args| {
            Ok(Val::Bool(compared(args)?.is_lt()))
        })],
    );
    b.function(
        "compareTo",
        &[("quantity_compare_to", "kubernetes.Quantity.(kubernetes.Quantity) -> int", |_, args| {
            Ok(Val::Int(compared(args)? as i64))
        })],
    );
    b.function(
        "asApproximateFloat",
        &[("quantity_get_float", "kubernetes.Quantity.() -> double", |_, args| {
            Ok(Val::Double(at(args, 0)?.as_approximate_f64()))
        })],
    );
    b.function(
        "asInteger",
        &[("quantity_get_int", "kubernetes.Quantity.() -> int", |_, args| match at(args, 0)?.as_i64() {
            Some(i) => Ok(Val::Int(i)),
            None => Err(Error::new("cannot convert value to integer")),
        })],
    );
    b.function(
        "isInteger",
        &[("quantity_is_integer", "kubernetes.Quantity.() -> bool", |_, args| {
            Ok(Val::Bool(at(args, 0)?.is_integer()))
        })],
    );
    b.function(
        "add",
        &[
            (
                "quantity_add",
                "kubernetes.Quantity.(kubernetes.Quantity) -> kubernetes.Quantity",
                |_, args| Ok(computed(at(args, 0)?.add(at(args, 1)?))),
            ),
            ("quantity_add_int", "kubernetes.Quantity.(int) -> kubernetes.Quantity", plus_int),
        ],
    );
    b.function(
        "sub",
        &[
            (
                "quantity_sub",
                "kubernetes.Quantity.(kubernetes.Quantity) -> kubernetes.Quantity",
                |_, args| Ok(computed(at(args, 0)?.sub(at(args, 1)?))),
            ),
            ("quantity_sub_int", "kubernetes.Quantity.(int) -> kubernetes.Quantity", minus_int),
        ],
    );
}

/// Parses a quantity of at most [`MAX_DIGITS`] digits.
pub(crate) fn parse(text: &str) -> Result<Quantity, QuantityError> {
    let quantity = Quantity::parse(text)?;
    let digits = text.trim_start_matches(['+', '-', '0']).bytes().take_while(|b| b"0123456789.".contains(b));
    if digits.filter(|b| *b != b'.').count() > MAX_DIGITS {
        return Err(QuantityError::Numeric);
    }
    Ok(quantity)
}

fn at<'v>(args: &'v [Val<'_>], position: usize) -> Result<&'v Quantity, Error> {
    match ext(args, position)? {
        Ext::Quantity { quantity, .. } => Ok(quantity),
        _ => Err(Error::no_such_overload()),
    }
}

fn compared(args: &[Val<'_>]) -> Result<Ordering, Error> {
    Ok(at(args, 0)?.cmp(at(args, 1)?))
}

fn computed<'a>(quantity: Quantity) -> Val<'a> {
    Val::ext(Ext::Quantity { quantity, computed: true })
}

fn plus_int<'a>(_: &CallContext<'a>, args: &[Val<'a>]) -> EvalResult<'a> {
    let other = Quantity::new(int(args, 1)?, QuantityFormat::DecimalExponent);
    match args {
        [Val::Ext(_), _] => Ok(computed(at(args, 0)?.add(&other))),
        _ => refuse(),
    }
}

fn minus_int<'a>(_: &CallContext<'a>, args: &[Val<'a>]) -> EvalResult<'a> {
    let other = Quantity::new(int(args, 1)?, QuantityFormat::DecimalExponent);
    match args {
        [Val::Ext(_), _] => Ok(computed(at(args, 0)?.sub(&other))),
        _ => refuse(),
    }
}
