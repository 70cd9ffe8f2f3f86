//! The quantity library: exact decimal arithmetic with Kubernetes' formats.

use std::cmp::Ordering;

use value::Str;

use super::{Ext, ext, int, refuse, string};
use crate::env::Builder;
use crate::eval::{CallContext, Error, EvalResult};
use crate::val::Val;

/// An exact decimal number with the format that it prints in.
#[derive(Clone, Debug)]
pub struct Quantity {
    amount: Amount,
    form: Form,
    /// The text as written, if Kubernetes keeps it although it is not canonical (`+5`, `1.000000001`).
    written: Option<Str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Decimal suffixes: `1500m`, `2k`.
    Decimal,
    /// Binary suffixes such as `1Ki`.
    Binary,
    /// Decimal exponents such as `1e3`.
    Exponent,
}

/// The number. Only small numbers convert to integers, as in Kubernetes.
#[derive(Clone, Debug)]
enum Amount {
    /// The number `value * 10^scale`.
    Small {
        value: i64,
        scale: i32,
    },
    Big(Decimal),
}

/// An arbitrarily large number: digits (least significant first) times `10^scale`.
#[derive(Clone, Debug)]
struct Decimal {
    negative: bool,
    /// INVARIANT: no zeros at the end; empty for zero.
    digits: Vec<u8>,
    scale: i32,
}

const WRONG_FORMAT: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const WRONG_SUFFIX: &str = "unable to parse quantity's suffix";
const NOT_NUMERIC: &str = "unable to parse numeric part of quantity";
/// Longer numbers are refused, to bound the time of arithmetic.
const MAX_DIGITS: usize = 2000;
/// Exponent of the smallest quantity, a billionth.
const NANO: i32 = -9;

/// Declares `quantity`, `isQuantity` and the methods of quantities.
pub(crate) fn add(b: &mut Builder) {
    b.function(
        "quantity",
        &[("string_to_quantity", "(string) -> kubernetes.Quantity", |_, args| {
            let quantity = Quantity::parse(string(args, 0)?).map_err(Error::new)?;
            Ok(Val::ext(Ext::Quantity { quantity, computed: false }))
        })],
    );
    b.function(
        "isQuantity",
        &[("is_quantity_string", "(string) -> bool", |_, args| {
            Ok(Val::Bool(Quantity::parse(string(args, 0)?).is_ok()))
        })],
    );
    b.function(
        "sign",
        &[("quantity_sign", "(kubernetes.Quantity) -> int", |_, args| {
            Ok(Val::Int(at(args, 0)?.sign() as i64))
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
            Ok(Val::Double(at(args, 0)?.approximate()))
        })],
    );
    b.function(
        "asInteger",
        &[("quantity_get_int", "kubernetes.Quantity.() -> int", |_, args| match at(args, 0)?.integer() {
            Some(i) => Ok(Val::Int(i)),
            None => Err(Error::new("cannot convert value to integer")),
        })],
    );
    b.function(
        "isInteger",
        &[("quantity_is_integer", "kubernetes.Quantity.() -> bool", |_, args| {
            Ok(Val::Bool(at(args, 0)?.integer().is_some()))
        })],
    );
    b.function(
        "add",
        &[
            (
                "quantity_add",
                "kubernetes.Quantity.(kubernetes.Quantity) -> kubernetes.Quantity",
                |_, args| Ok(computed(at(args, 0)?.plus(at(args, 1)?))),
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
                |_, args| Ok(computed(at(args, 0)?.minus(at(args, 1)?))),
            ),
            ("quantity_sub_int", "kubernetes.Quantity.(int) -> kubernetes.Quantity", minus_int),
        ],
    );
}

fn at<'v>(args: &'v [Val<'_>], position: usize) -> Result<&'v Quantity, Error> {
    match ext(args, position)? {
        Ext::Quantity { quantity, .. } => Ok(quantity),
        _ => Err(Error::no_such_overload()),
    }
}

fn compared(args: &[Val<'_>]) -> Result<Ordering, Error> {
    Ok(at(args, 0)?.compare(at(args, 1)?))
}

fn computed<'a>(quantity: Quantity) -> Val<'a> {
    Val::ext(Ext::Quantity { quantity, computed: true })
}

fn plus_int<'a>(_: &CallContext<'a>, args: &[Val<'a>]) -> EvalResult<'a> {
    let other = Quantity::of(int(args, 1)?);
    match args {
        [Val::Ext(_), _] => Ok(computed(at(args, 0)?.plus(&other))),
        _ => refuse(),
    }
}

fn minus_int<'a>(_: &CallContext<'a>, args: &[Val<'a>]) -> EvalResult<'a> {
    let other = Quantity::of(int(args, 1)?);
    match args {
        [Val::Ext(_), _] => Ok(computed(at(args, 0)?.minus(&other))),
        _ => refuse(),
    }
}

/// Base, exponent and format of a suffix.
fn suffix(text: &str) -> Option<(u32, i32, Form)> {
    let decimal = |exponent| Some((10, exponent, Form::Decimal));
    let binary = |exponent| Some((2, exponent, Form::Binary));
    match text {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let exponent: i64 = text.strip_prefix(['e', 'E'])?.parse().ok()?;
            #[expect(clippy::cast_possible_truncation, reason = "Kubernetes truncates too")]
            let exponent = exponent as i32;
            Some((10, exponent, Form::Exponent))
        }
    }
}

impl Quantity {
    fn of(value: i64) -> Quantity {
        Quantity { amount: Amount::Small { value, scale: 0 }, form: Form::Exponent, written: None }
    }

    /// Parses a quantity; the error text is Kubernetes'.
    pub(crate) fn parse(text: &str) -> Result<Quantity, &'static str> {
        if text.is_empty() {
            return Err(WRONG_FORMAT);
        }
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let negative = text.starts_with('-');
        let whole_end = unsigned.bytes().take_while(u8::is_ascii_digit).count();
        let whole = unsigned.get(..whole_end).unwrap_or_default().trim_start_matches('0');
        let rest = unsigned.get(whole_end..).unwrap_or_default();
        let (fraction, rest) = match rest.strip_prefix('.') {
            Some(after) => {
                let end = after.bytes().take_while(u8::is_ascii_digit).count();
                (after.get(..end).unwrap_or_default(), after.get(end..).unwrap_or_default())
            }
            None => ("", rest),
        };
        // The suffix: letters, a sign, digits, and nothing else.
        let letters = rest.bytes().take_while(|b| b"eEinumkKMGTP".contains(b)).count();
        let after = rest.get(letters..).unwrap_or_default();
        let digits = after.strip_prefix(['+', '-']).unwrap_or(after);
        if !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(WRONG_FORMAT);
        }
        // A number without trailing characters has the empty suffix.
        let (base, exponent, form) = suffix(rest).ok_or(WRONG_SUFFIX)?;
        if whole.len() + fraction.len() > MAX_DIGITS {
            return Err(NOT_NUMERIC);
        }
        let whole = if whole.is_empty() { "0" } else { whole };
        let places = i32::try_from(fraction.len()).unwrap_or(i32::MAX);
        let length = i32::try_from(whole.len()).unwrap_or(i32::MAX);
        // As in Kubernetes, numbers that fit are stored as small ones.
        let (precision, mantissa, scale) = match form {
            Form::Decimal | Form::Exponent => (18 - length - places, 1i64, exponent),
            Form::Binary if fraction.is_empty() => {
                (15 - length - exponent * 3 / 10 - 1, 1i64 << exponent.clamp(0, 62), 0)
            }
            Form::Binary => (-1, 1, 0),
        };
        let scale = scale.saturating_sub(places);
        if precision >= 0 && scale >= NANO {
            let value = whole
                .bytes()
                .chain(fraction.bytes())
                .try_fold(0i64, |value, digit| value.checked_mul(10)?.checked_add(i64::from(digit - b'0')));
            let value = value.ok_or(NOT_NUMERIC)?;
            if let Some(product) = value.checked_mul(mantissa) {
                let canonical = match form {
                    Form::Binary => value & 7 != 0,
                    Form::Decimal | Form::Exponent => {
                        let zeros =
                            fraction.bytes().rev().chain(whole.bytes().rev()).take_while(|b| *b == b'0');
                        scale % 3 == 0 && zeros.count() < 3 && !whole.starts_with('0')
                    }
                };
                let value = if negative { -product } else { product };
                let written = canonical.then(|| text.into());
                return Ok(Quantity { amount: Amount::Small { value, scale }, form, written });
            }
        }
        // Only numbers that are not small must have a digit, as in Kubernetes.
        if whole_end + fraction.len() == 0 {
            return Err(NOT_NUMERIC);
        }
        let mut number = Decimal::read(negative, whole, fraction);
        if base == 10 {
            number.scale = number.scale.saturating_add(exponent);
        } else {
            number = number.times(1u64 << exponent.clamp(0, 62));
        }
        number.round_up_to_nano();
        let mut form = form;
        if form == Form::Binary {
            let most = Decimal::read(false, "9223372036854775807", "");
            if number.compare_magnitude(&most).is_gt() {
                number = Decimal { negative: number.negative, ..most };
            }
            let one = Decimal::read(false, "1", "");
            if !number.digits.is_empty() && !number.negative && number.compare_magnitude(&one).is_lt() {
                form = Form::Decimal;
            }
        }
        Ok(Quantity { amount: Amount::Big(number), form, written: None })
    }

    fn decimal(&self) -> Decimal {
        match &self.amount {
            Amount::Small { value, scale } => {
                let mut number = Decimal::read(*value < 0, &value.unsigned_abs().to_string(), "");
                number.scale = number.scale.saturating_add(*scale);
                number
            }
            Amount::Big(number) => number.clone(),
        }
    }

    /// Compares the amounts, ignoring formats.
    pub(crate) fn compare(&self, other: &Quantity) -> Ordering {
        if let (Amount::Small { value: a, scale: s }, Amount::Small { value: b, scale: t }) =
            (&self.amount, &other.amount)
            && s == t
        {
            return a.cmp(b);
        }
        self.decimal().compare(&other.decimal())
    }

    fn sign(&self) -> Ordering {
        match &self.amount {
            Amount::Small { value, .. } => value.cmp(&0),
            Amount::Big(number) if number.digits.is_empty() => Ordering::Equal,
            Amount::Big(number) if number.negative => Ordering::Less,
            Amount::Big(_) => Ordering::Greater,
        }
    }

    fn integer(&self) -> Option<i64> {
        match self.amount {
            Amount::Small { value, scale: 0 } => Some(value),
            Amount::Small { value, scale } if scale > 0 => scaled(value, scale),
            _ => None,
        }
    }

    fn approximate(&self) -> f64 {
        let (base, exponent) = match &self.amount {
            Amount::Small { value, scale } => (crate::val::convert::int_to_double(*value), *scale),
            Amount::Big(number) => {
                let base: f64 = number.digits_text().parse().unwrap_or(f64::INFINITY);
                (if number.negative { -base } else { base }, number.scale)
            }
        };
        if exponent == 0 {
            return base;
        }
        base * format!("1e{exponent}").parse::<f64>().unwrap_or(0.0)
    }

    fn plus(&self, other: &Quantity) -> Quantity {
        let form = if self.sign().is_eq() { other.form } else { self.form };
        if let (Amount::Small { value: a, scale: s }, Amount::Small { value: b, scale: t }) =
            (&self.amount, &other.amount)
        {
            let sum = match (*a, *b) {
                (_, 0) => Some((*a, *s)),
                (0, _) => Some((*b, *t)),
                _ if s >= t => scaled(*a, s - t).and_then(|a| a.checked_add(*b)).map(|sum| (sum, *t)),
                _ => scaled(*b, t - s).and_then(|b| b.checked_add(*a)).map(|sum| (sum, *s)),
            };
            if let Some((value, scale)) = sum {
                return Quantity { amount: Amount::Small { value, scale }, form, written: None };
            }
        }
        Quantity { amount: Amount::Big(self.decimal().plus(&other.decimal())), form, written: None }
    }

    fn minus(&self, other: &Quantity) -> Quantity {
        let amount = match &other.amount {
            Amount::Small { value, scale } if *value != i64::MIN => {
                Amount::Small { value: -value, scale: *scale }
            }
            _ => {
                let number = other.decimal();
                Amount::Big(Decimal { negative: !number.negative, ..number })
            }
        };
        self.plus(&Quantity { amount, form: other.form, written: None })
    }

    /// The text as Kubernetes prints it: canonical, or as written.
    pub(crate) fn text(&self) -> String {
        if let Some(written) = &self.written {
            return written.to_string();
        }
        let number = self.decimal();
        if number.digits.is_empty() {
            return "0".to_owned();
        }
        let sign = if number.negative { "-" } else { "" };
        if self.form == Form::Binary && number.scale >= 0 {
            let digits = number.digits_text() + &"0".repeat(usize::try_from(number.scale).unwrap_or(0));
            if let Ok(mut value) = digits.parse::<u128>()
                && value >= 1024
            {
                let mut step = 0;
                while value % 1024 == 0 && step < 6 {
                    value /= 1024;
                    step += 1;
                }
                let suffix = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].get(step).copied().unwrap_or("");
                return format!("{sign}{value}{suffix}");
            }
        }
        // The largest multiple of three that the trailing zeros allow.
        let zeros = number.scale.rem_euclid(3);
        let digits = number.digits_text() + &"0".repeat(usize::try_from(zeros).unwrap_or(0));
        let exponent = number.scale - zeros;
        let suffix = match (self.form, exponent) {
            (_, 0) => String::new(),
            (Form::Exponent, _) => format!("e{exponent}"),
            (_, -9) => "n".to_owned(),
            (_, -6) => "u".to_owned(),
            (_, -3) => "m".to_owned(),
            (_, 3) => "k".to_owned(),
            (_, 6) => "M".to_owned(),
            (_, 9) => "G".to_owned(),
            (_, 12) => "T".to_owned(),
            (_, 15) => "P".to_owned(),
            (_, 18) => "E".to_owned(),
            _ => String::new(),
        };
        format!("{sign}{digits}{suffix}")
    }
}

/// Computes `value * 10^scale`; `None` on overflow.
fn scaled(value: i64, scale: i32) -> Option<i64> {
    if value == 0 {
        return Some(0);
    }
    value.checked_mul(10i64.checked_pow(u32::try_from(scale).ok()?)?)
}

impl Decimal {
    fn read(negative: bool, whole: &str, fraction: &str) -> Decimal {
        let digits = whole.bytes().chain(fraction.bytes()).rev().map(|b| b - b'0').collect();
        let scale = -i32::try_from(fraction.len()).unwrap_or(i32::MAX);
        Decimal { negative, digits, scale }.trimmed()
    }

    /// Removes zeros at both ends.
    fn trimmed(mut self) -> Decimal {
        while self.digits.last() == Some(&0) {
            self.digits.pop();
        }
        let zeros = self.digits.iter().take_while(|digit| **digit == 0).count();
        self.digits.drain(..zeros);
        self.scale = self.scale.saturating_add(i32::try_from(zeros).unwrap_or(i32::MAX));
        if self.digits.is_empty() {
            return Decimal { negative: false, digits: Vec::new(), scale: 0 };
        }
        self
    }

    fn digits_text(&self) -> String {
        self.digits.iter().rev().map(|digit| char::from(b'0' + digit)).collect()
    }

    /// Pads the digits with zeros so that they count from `10^scale`. The result is bounded, because scales are.
    fn aligned(&self, scale: i32) -> Vec<u8> {
        let zeros = usize::try_from(self.scale.saturating_sub(scale)).unwrap_or(0).min(4 * MAX_DIGITS);
        let mut digits = vec![0; zeros];
        digits.extend(&self.digits);
        digits
    }

    /// Power of ten of the first digit.
    fn magnitude(&self) -> i64 {
        i64::from(self.scale) + i64::try_from(self.digits.len()).unwrap_or(i64::MAX)
    }

    fn compare_magnitude(&self, other: &Decimal) -> Ordering {
        match (self.digits.is_empty(), other.digits.is_empty()) {
            (true, true) => return Ordering::Equal,
            (true, false) => return Ordering::Less,
            (false, true) => return Ordering::Greater,
            _ => {}
        }
        self.magnitude().cmp(&other.magnitude()).then_with(|| {
            let longest = self.digits.len().max(other.digits.len());
            let padded = |number: &Decimal| {
                number
                    .digits
                    .iter()
                    .rev()
                    .copied()
                    .chain(std::iter::repeat(0))
                    .take(longest)
                    .collect::<Vec<u8>>()
            };
            padded(self).cmp(&padded(other))
        })
    }

    fn compare(&self, other: &Decimal) -> Ordering {
        match (self.negative, other.negative) {
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
            (false, false) => self.compare_magnitude(other),
            (true, true) => other.compare_magnitude(self),
        }
    }

    fn times(&self, factor: u64) -> Decimal {
        let mut digits = Vec::with_capacity(self.digits.len() + 20);
        let mut carry: u128 = 0;
        for digit in &self.digits {
            carry += u128::from(*digit) * u128::from(factor);
            digits.push(u8::try_from(carry % 10).unwrap_or(0));
            carry /= 10;
        }
        while carry > 0 {
            digits.push(u8::try_from(carry % 10).unwrap_or(0));
            carry /= 10;
        }
        Decimal { digits, ..self.clone() }.trimmed()
    }

    fn plus(&self, other: &Decimal) -> Decimal {
        if self.digits.is_empty() {
            return other.clone();
        }
        if other.digits.is_empty() {
            return self.clone();
        }
        let scale = self.scale.min(other.scale);
        let (a, b) = (self.aligned(scale), other.aligned(scale));
        if self.negative == other.negative {
            let mut digits = Vec::with_capacity(a.len().max(b.len()) + 1);
            let mut carry = 0;
            for at in 0..a.len().max(b.len()) {
                let sum = a.get(at).unwrap_or(&0) + b.get(at).unwrap_or(&0) + carry;
                digits.push(sum % 10);
                carry = sum / 10;
            }
            digits.push(carry);
            return Decimal { negative: self.negative, digits, scale }.trimmed();
        }
        let (more, less, negative) = if self.compare_magnitude(other).is_ge() {
            (a, b, self.negative)
        } else {
            (b, a, other.negative)
        };
        let mut digits = Vec::with_capacity(more.len());
        let mut borrow = 0i8;
        for (at, digit) in more.iter().enumerate() {
            let taken = i8::try_from(*less.get(at).unwrap_or(&0)).unwrap_or(0) + borrow;
            let mut left = i8::try_from(*digit).unwrap_or(0) - taken;
            borrow = i8::from(left < 0);
            if left < 0 {
                left += 10;
            }
            digits.push(u8::try_from(left).unwrap_or(0));
        }
        Decimal { negative, digits, scale }.trimmed()
    }

    /// Rounds to billionths, away from zero.
    fn round_up_to_nano(&mut self) {
        if self.scale >= NANO || self.digits.is_empty() {
            return;
        }
        let dropped =
            usize::try_from(NANO.saturating_sub(self.scale)).unwrap_or(usize::MAX).min(self.digits.len());
        let inexact = self.digits.iter().take(dropped).any(|digit| *digit != 0);
        self.digits.drain(..dropped);
        self.scale = NANO;
        if inexact {
            let step = Decimal { negative: self.negative, digits: vec![1], scale: NANO };
            *self = std::mem::replace(self, step.clone()).trimmed().plus(&step);
        }
    }
}
