//! [`Quantity`]: exact decimal numbers with suffixes (`100m`, `1.5Gi`, `3e6`), with the arithmetic and the texts of
//! Kubernetes' `resource.Quantity`.
//!
//! A quantity has no digits below a billionth; parsing rounds smaller digits away from zero. It prints with the family of
//! suffixes that it was written with, in the one canonical form that Kubernetes has for it.

use std::cmp::Ordering;
use std::fmt;

use crate::Str;

mod decimal;
mod parse;

use decimal::Decimal;

/// The family of suffixes that a quantity prints with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantityFormat {
    /// Powers of ten as exponents: `12e6`.
    DecimalExponent,
    /// Powers of 1024: `12Mi`.
    BinarySi,
    /// Powers of 1000: `12M`.
    DecimalSi,
}

/// Why a text is not a quantity, in Kubernetes' words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantityError {
    Format,
    Numeric,
    Suffix,
}

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QuantityError::Format => {
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            }
            QuantityError::Numeric => "unable to parse numeric part of quantity",
            QuantityError::Suffix => "unable to parse quantity's suffix",
        })
    }
}

impl std::error::Error for QuantityError {}

/// An amount and the format it prints in. Equality and order compare the amounts alone.
#[derive(Clone, Debug)]
pub struct Quantity {
    amount: Amount,
    format: QuantityFormat,
    /// The text as written, where Kubernetes prints it again although it may not be canonical (`+1`, `1.500`, `1E3`).
    written: Option<Str>,
}

/// Kubernetes says that an amount is an integer only if it holds it as [`Amount::Small`], so the two cases are kept apart
/// even where the numbers are equal.
#[derive(Clone, Debug)]
enum Amount {
    /// `value * 10^scale`; parsing makes no scale below [`NANO`].
    Small { value: i64, scale: i32 },
    /// An amount of arbitrary size.
    Big {
        number: Decimal,
        /// The power of ten that Kubernetes' unscaled integer counts in; it decides how the approximate float is rounded.
        unscaled_at: i32,
    },
}

/// The scale of a billionth, the smallest fraction of a quantity.
const NANO: i32 = -9;
/// The exponent of the largest decimal suffix, `E`.
const MAX_SUFFIX_EXPONENT: i32 = 18;
/// How many zeros are written before the suffix `E`; a larger amount is written with an exponent.
const MAX_WRITTEN_ZEROS: i32 = 1024;
const DECIMAL_SUFFIXES: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY_SUFFIXES: [(&str, u32); 6] =
    [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

impl Quantity {
    pub const ZERO: Quantity = Quantity::new(0, QuantityFormat::DecimalSi);

    pub const fn new(value: i64, format: QuantityFormat) -> Self {
        Quantity { amount: Amount::Small { value, scale: 0 }, format, written: None }
    }

    /// An amount in thousandths.
    pub const fn from_milli(value: i64, format: QuantityFormat) -> Self {
        Quantity { amount: Amount::Small { value, scale: -3 }, format, written: None }
    }

    /// Parses a quantity. White space is an error; [`Quantity::parse_json`] ignores it.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        parse::quantity(text)
    }

    /// Parses the text of a JSON string or number: as [`Quantity::parse`], but ignores white space around it.
    pub fn parse_json(text: &str) -> Result<Self, QuantityError> {
        Self::parse(text.trim())
    }

    /// The family of suffixes it prints with.
    pub fn format(&self) -> QuantityFormat {
        self.format
    }

    pub fn is_zero(&self) -> bool {
        self.sign() == 0
    }

    /// Number of digits that arithmetic works on; 0 if a machine word holds them.
    pub fn digit_count(&self) -> usize {
        match &self.amount {
            Amount::Small { .. } => 0,
            Amount::Big { number, .. } => number.digit_count(),
        }
    }

    /// -1, 0 or 1.
    pub fn sign(&self) -> i32 {
        match &self.amount {
            Amount::Small { value, .. } => i32::from(*value > 0) - i32::from(*value < 0),
            Amount::Big { number, .. } => number.sign(),
        }
    }

    /// The amount as an integer, if Kubernetes calls it one: written without a fraction, small enough for its fast path,
    /// and within `i64`. `1.0` and `1Pi` are none.
    pub fn as_i64(&self) -> Option<i64> {
        match self.amount {
            Amount::Small { value, scale } => scale_up(value, scale),
            Amount::Big { .. } => None,
        }
    }

    /// Whether [`Quantity::as_i64`] returns an integer.
    pub fn is_integer(&self) -> bool {
        self.as_i64().is_some()
    }

    /// The amount in billionths, clamped to `i128`.
    pub fn nanos(&self) -> i128 {
        self.scaled(NANO)
    }

    /// The amount as an integer, rounded away from zero and clamped to `i64`.
    pub fn value(&self) -> i64 {
        clamp_to_i64(self.scaled(0))
    }

    /// The amount in thousandths, rounded away from zero and clamped to `i64`.
    pub fn milli_value(&self) -> i64 {
        clamp_to_i64(self.scaled(-3))
    }

    /// The amount in units of `10^unit`, rounded away from zero and clamped to `i128`.
    fn scaled(&self, unit: i32) -> i128 {
        match &self.amount {
            Amount::Small { value, scale } => {
                let value = i128::from(*value);
                match (scale.saturating_sub(unit), value) {
                    (_, 0) => 0,
                    (0.., _) => power_of_ten(scale.saturating_sub(unit))
                        .and_then(|factor| value.checked_mul(factor))
                        .unwrap_or(if value < 0 { i128::MIN } else { i128::MAX }),
                    _ => match power_of_ten(unit.saturating_sub(*scale)) {
                        Some(divisor) => {
                            value / divisor + if value % divisor == 0 { 0 } else { value.signum() }
                        }
                        None => value.signum(),
                    },
                }
            }
            Amount::Big { number, .. } => number.scaled(unit),
        }
    }

    /// The amount as a float, rounded as Kubernetes' `AsApproximateFloat64` rounds it: the unscaled integer first, then
    /// its product with the power of ten.
    #[expect(clippy::cast_precision_loss, reason = "Kubernetes rounds here, too")]
    pub fn as_approximate_f64(&self) -> f64 {
        let (unscaled, exponent) = match &self.amount {
            Amount::Small { value, scale } => (*value as f64, *scale),
            Amount::Big { number, unscaled_at } => (number.unscaled_f64(*unscaled_at), *unscaled_at),
        };
        if exponent == 0 {
            return unscaled;
        }
        unscaled * go_pow10(exponent)
    }

    /// The sum. Zero takes on the other quantity's format.
    #[must_use]
    pub fn add(&self, other: &Quantity) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        let amount = match (&self.amount, &other.amount) {
            (Amount::Small { value: a, scale: s }, Amount::Small { value: b, scale: t }) => match (*a, *b) {
                (_, 0) => Some((*a, *s)),
                (0, _) => Some((*b, *t)),
                _ if s >= t => {
                    scale_up(*a, s.saturating_sub(*t)).and_then(|a| a.checked_add(*b)).map(|sum| (sum, *t))
                }
                _ => scale_up(*b, t.saturating_sub(*s)).and_then(|b| b.checked_add(*a)).map(|sum| (sum, *s)),
            }
            .map(|(value, scale)| Amount::Small { value, scale }),
            _ => None,
        };
        let amount = amount.unwrap_or_else(|| Amount::Big {
            number: self.decimal().plus(&other.decimal()),
            unscaled_at: self.unscaled_at().min(other.unscaled_at()),
        });
        Quantity { amount, format, written: None }
    }

    /// The difference. Zero takes on the other quantity's format.
    #[must_use]
    pub fn sub(&self, other: &Quantity) -> Self {
        self.add(&other.neg())
    }

    fn neg(&self) -> Self {
        let amount = match &self.amount {
            Amount::Small { value, scale } if *value != i64::MIN => {
                Amount::Small { value: -value, scale: *scale }
            }
            _ => Amount::Big { number: self.decimal().neg(), unscaled_at: self.unscaled_at() },
        };
        Quantity { amount, format: self.format, written: None }
    }

    /// Compares with an integer.
    pub fn cmp_i64(&self, other: i64) -> Ordering {
        self.cmp(&Quantity::new(other, QuantityFormat::DecimalSi))
    }

    fn decimal(&self) -> Decimal {
        match &self.amount {
            Amount::Small { value, scale } => Decimal::from_i64(*value, *scale),
            Amount::Big { number, .. } => number.clone(),
        }
    }

    fn unscaled_at(&self) -> i32 {
        match &self.amount {
            Amount::Small { scale, .. } => *scale,
            Amount::Big { unscaled_at, .. } => *unscaled_at,
        }
    }

    /// The canonical text, even where Kubernetes prints the text as written (see [`fmt::Display`]).
    ///
    /// Where no suffix is large enough, Kubernetes prints the digits without one, which is another amount; this writes zeros
    /// before the suffix `E`, or an exponent.
    pub fn canonical(&self) -> String {
        let (digits, exponent) = match &self.amount {
            Amount::Small { value: 0, .. } => return "0".to_owned(),
            Amount::Small { value, scale } => {
                let (mut digits, mut exponent) = (value.unsigned_abs(), *scale);
                while digits % 10 == 0 {
                    digits /= 10;
                    exponent = exponent.saturating_add(1);
                }
                (digits.to_string(), exponent)
            }
            Amount::Big { number, .. } if number.sign() == 0 => return "0".to_owned(),
            Amount::Big { number, .. } => (number.digits(), number.scale()),
        };
        let sign = if self.sign() < 0 { "-" } else { "" };
        if self.format == QuantityFormat::BinarySi
            && let Some(text) = binary(&digits, exponent)
        {
            return format!("{sign}{text}");
        }
        let mut with_exponent = self.format == QuantityFormat::DecimalExponent;
        let mut suffix_exponent = exponent - exponent.rem_euclid(3);
        if !with_exponent && suffix_exponent > MAX_SUFFIX_EXPONENT {
            with_exponent = exponent - MAX_SUFFIX_EXPONENT > MAX_WRITTEN_ZEROS;
            if !with_exponent {
                suffix_exponent = MAX_SUFFIX_EXPONENT;
            }
        }
        let zeros = usize::try_from(exponent - suffix_exponent).unwrap_or(0);
        if with_exponent && suffix_exponent != 0 {
            return format!("{sign}{digits}{:0<zeros$}e{suffix_exponent}", "");
        }
        let suffix = DECIMAL_SUFFIXES.iter().find(|(_, e)| *e == suffix_exponent).map_or("", |(s, _)| s);
        format!("{sign}{digits}{:0<zeros$}{suffix}", "")
    }
}

/// `digits * 10^exponent` with the largest power of 1024 that divides it; `None` if it is no integer, below 1024 or past
/// `u128` (Kubernetes has no upper bound here).
fn binary(digits: &str, exponent: i32) -> Option<String> {
    let mut amount =
        digits.parse::<u128>().ok()?.checked_mul(10_u128.checked_pow(u32::try_from(exponent).ok()?)?)?;
    if amount < 1024 {
        return None;
    }
    let mut suffix = "";
    for (next, _) in BINARY_SUFFIXES {
        if amount % 1024 != 0 {
            break;
        }
        amount /= 1024;
        suffix = next;
    }
    Some(format!("{amount}{suffix}"))
}

/// `value * 10^exponent`, if it is an integer within `i64`.
fn scale_up(value: i64, exponent: i32) -> Option<i64> {
    match (value, exponent) {
        (_, ..0) => None,
        (0, _) => Some(0),
        _ => value.checked_mul(10_i64.checked_pow(u32::try_from(exponent).ok()?)?),
    }
}

/// Go's `math.Pow10`: the product of two powers of ten, each correctly rounded.
fn go_pow10(exponent: i32) -> f64 {
    let power = |exponent: i32| format!("1e{exponent}").parse::<f64>().unwrap_or(f64::INFINITY);
    let (thirty_twos, rest) = (exponent - exponent % 32, exponent % 32);
    match exponent {
        ..-323 => 0.0,
        309.. => f64::INFINITY,
        -323..0 => power(thirty_twos) / power(-rest),
        0..309 => power(thirty_twos) * power(rest),
    }
}

fn clamp_to_i64(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

fn power_of_ten(exponent: i32) -> Option<i128> {
    10_i128.checked_pow(u32::try_from(exponent).ok()?)
}

/// The text that Kubernetes sends: the text as written where it is nearly canonical, the canonical text otherwise.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.written {
            Some(text) => f.write_str(text),
            None => f.write_str(&self.canonical()),
        }
    }
}

impl std::str::FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        Self::parse(text)
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        if let (Amount::Small { value: a, scale: s }, Amount::Small { value: b, scale: t }) =
            (&self.amount, &other.amount)
        {
            // Multiplies the value with the larger scale, so that both count in the same unit.
            let common = s.min(t);
            let aligned = |value: i64, scale: i32| {
                power_of_ten(scale.saturating_sub(*common))
                    .and_then(|factor| i128::from(value).checked_mul(factor))
            };
            if let (Some(a), Some(b)) = (aligned(*a, *s), aligned(*b, *t)) {
                return a.cmp(&b);
            }
        }
        self.decimal().cmp(&other.decimal())
    }
}

#[cfg(test)]
mod tests;
