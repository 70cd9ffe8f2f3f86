//! [`Quantity`]: fixed-point numbers with suffixes (`100m`, `1.5Gi`, `3e6`), as in Kubernetes' `resource.Quantity`.
//!
//! The finest unit is a billionth; finer amounts round away from zero. A quantity remembers the suffix family it was
//! written with, and prints in the canonical form of that family.

use std::cmp::Ordering;
use std::fmt;

/// The family of suffixes a quantity is written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Decimal exponents such as `12e6`.
    DecimalExponent,
    /// Binary suffixes such as `12Mi`.
    BinarySi,
    /// Decimal suffixes such as `12M`.
    DecimalSi,
}

/// Why a text is not a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantityError {
    /// The text does not have the form of a quantity.
    Format,
    /// The digits cannot be parsed.
    Numeric,
    /// The suffix is unknown.
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

/// The amount `mantissa * 10^scale`. Equality and order compare amounts and ignore formats.
#[derive(Clone, Debug)]
pub struct Quantity {
    mantissa: i128,
    // INVARIANT: not below NANO.
    scale: i32,
    format: Format,
    /// Set if Kubernetes stores the amount in arbitrary precision: then it does not count as an integer, whatever its
    /// value.
    wide: bool,
    /// The text as written, if Kubernetes keeps it although it is not canonical (`+1`, `1.500`, `1E3`).
    written: Option<Box<str>>,
}

const NANO: i32 = -9;
/// Leaves room to align two amounts by a few digits without overflow.
const MAX_MANTISSA: i128 = 10_i128.pow(36);
/// Number of digits of [`MAX_MANTISSA`].
const MAX_DIGITS: i32 = 36;
/// Largest power of ten of a quantity written without an exponent; larger ones are read as if they had this one.
const MAX_ZEROS: i32 = 1024;
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY: [(&str, u8); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

enum Suffix {
    Decimal(i32, Format),
    Binary(u8),
}

impl Quantity {
    /// The quantity 0 in decimal format.
    pub const ZERO: Quantity = Quantity::new(0, Format::DecimalSi);

    /// A quantity of whole units.
    pub const fn new(value: i64, format: Format) -> Self {
        Quantity { mantissa: value as i128, scale: 0, format, wide: false, written: None }
    }

    /// A quantity of thousandths.
    pub const fn from_milli(value: i64, format: Format) -> Self {
        Quantity { mantissa: value as i128, scale: -3, format, wide: false, written: None }
    }

    /// Parses a quantity. Surrounding white space is an error; see [`Quantity::parse_json`] for the JSON form.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let parts = Parts::split(text)?;
        let suffix = interpret(parts.suffix).ok_or(QuantityError::Suffix)?;
        let digits = parts.whole.len().max(1) + parts.fraction.len();
        let digits = i32::try_from(digits).unwrap_or(i32::MAX);
        let fraction = i32::try_from(parts.fraction.len()).unwrap_or(i32::MAX);
        match suffix {
            Suffix::Decimal(exponent, format) => {
                let scale = exponent.saturating_sub(fraction);
                if digits <= 18 && scale >= NANO {
                    let mantissa = parts.mantissa().ok_or(QuantityError::Numeric)?;
                    let mut quantity = Quantity { mantissa, scale, format, wide: false, written: None };
                    let shifted_zero = parts.whole.is_empty();
                    if scale % 3 == 0 && !shifted_zero && !parts.ends_with_thousand() {
                        quantity.keep(text);
                    }
                    return Ok(quantity);
                }
            }
            Suffix::Binary(exponent) => {
                let shift = i32::from(exponent) * 3 / 10;
                if parts.fraction.is_empty() && 15 - digits - shift > 0 {
                    let mantissa = parts.mantissa().ok_or(QuantityError::Numeric)?;
                    let format = Format::BinarySi;
                    let mut quantity = Quantity {
                        mantissa: mantissa << exponent,
                        scale: 0,
                        format,
                        wide: false,
                        written: None,
                    };
                    if mantissa & 7 != 0 {
                        quantity.keep(text);
                    }
                    return Ok(quantity);
                }
            }
        }
        parts.wide(&suffix)
    }

    /// Like [`Quantity::parse`], for the text of a JSON string or number: surrounding white space is ignored.
    pub fn parse_json(text: &str) -> Result<Self, QuantityError> {
        Self::parse(text.trim())
    }

    fn keep(&mut self, text: &str) {
        if self.canonical() != text {
            self.written = Some(text.into());
        }
    }

    /// The suffix family that the quantity prints with.
    pub fn format(&self) -> Format {
        self.format
    }

    /// True if the amount is 0.
    pub fn is_zero(&self) -> bool {
        self.mantissa == 0
    }

    /// Sign of the amount: -1, 0 or 1.
    pub fn sign(&self) -> i32 {
        i32::from(self.mantissa > 0) - i32::from(self.mantissa < 0)
    }

    /// The amount as an integer, if Kubernetes treats it as one: written without a fraction and within `i64`.
    pub fn as_i64(&self) -> Option<i64> {
        if self.wide || self.scale < 0 {
            return None;
        }
        let factor = power_of_ten(self.scale)?;
        i64::try_from(self.mantissa.checked_mul(factor)?).ok()
    }

    /// True if [`Quantity::as_i64`] returns a value.
    pub fn is_integer(&self) -> bool {
        self.as_i64().is_some()
    }

    /// The amount in billionths, saturating at the bounds of `i128`.
    pub fn nanos(&self) -> i128 {
        let factor = power_of_ten(self.scale.saturating_sub(NANO)).unwrap_or(i128::MAX);
        self.mantissa.saturating_mul(factor)
    }

    /// The amount rounded away from zero to an integer, saturating at the bounds of `i64`.
    pub fn value(&self) -> i64 {
        self.scaled(0)
    }

    /// The amount in thousandths, rounded away from zero, saturating at the bounds of `i64`.
    pub fn milli_value(&self) -> i64 {
        self.scaled(-3)
    }

    fn scaled(&self, scale: i32) -> i64 {
        let value = if self.scale < scale {
            divide_away_from_zero(self.mantissa, scale - self.scale)
        } else {
            let factor = power_of_ten(self.scale - scale).unwrap_or(i128::MAX);
            self.mantissa.saturating_mul(factor)
        };
        i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
    }

    /// The nearest `f64` to the amount.
    #[expect(clippy::cast_precision_loss, reason = "an approximation is what is asked for")]
    pub fn as_approximate_f64(&self) -> f64 {
        let base = self.mantissa as f64;
        if self.scale == 0 {
            return base;
        }
        // Parsing gives the correctly rounded power; `powi` does not.
        base * format!("1e{}", self.scale).parse::<f64>().unwrap_or(f64::INFINITY)
    }

    /// Adds two quantities. Zero takes the other's format.
    #[must_use]
    pub fn add(&self, other: &Quantity) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        if !self.wide && !other.wide {
            if other.is_zero() {
                return Quantity { written: None, format, ..self.clone() };
            }
            if self.is_zero() {
                return Quantity { written: None, format, ..other.clone() };
            }
        }
        let scale = self.scale.min(other.scale);
        let aligned = |q: &Quantity| q.mantissa.checked_mul(power_of_ten(q.scale - scale)?);
        let sum = aligned(self).zip(aligned(other)).and_then(|(a, b)| a.checked_add(b));
        if let Some(mantissa) = sum {
            let wide = self.wide || other.wide || i64::try_from(mantissa).is_err();
            return Quantity { mantissa, scale, format, wide, written: None };
        }
        // The smaller one is below the last digit that the larger one keeps.
        let larger = if self.scale > other.scale { self } else { other };
        Quantity { format, wide: true, written: None, ..larger.clone() }
    }

    /// Subtracts `other`. Zero takes the other's format.
    #[must_use]
    pub fn sub(&self, other: &Quantity) -> Self {
        self.add(&other.neg())
    }

    /// The amount with the opposite sign.
    #[must_use]
    pub fn neg(&self) -> Self {
        Quantity { mantissa: self.mantissa.saturating_neg(), written: None, ..self.clone() }
    }

    /// Multiplies by an integer; `None` if the product is too large.
    #[must_use]
    pub fn mul(&self, factor: i64) -> Option<Self> {
        let mantissa = self.mantissa.checked_mul(i128::from(factor))?;
        let wide = self.wide || i64::try_from(mantissa).is_err();
        Some(Quantity { mantissa, wide, written: None, ..self.clone() })
    }

    /// Compares the amount with an integer.
    pub fn cmp_i64(&self, other: i64) -> Ordering {
        self.cmp(&Quantity::new(other, Format::DecimalSi))
    }

    /// The canonical text, even if another text was written.
    pub fn canonical(&self) -> String {
        if self.is_zero() {
            return "0".to_owned();
        }
        if self.format == Format::BinarySi
            && (self.cmp_i64(1024).is_ge() || self.cmp_i64(-1024).is_le())
            && let Some(text) = self.binary()
        {
            return text;
        }
        let (mut mantissa, mut exponent) = (self.mantissa, self.scale);
        while mantissa % 10 == 0 {
            mantissa /= 10;
            exponent += 1;
        }
        let format = if self.format == Format::BinarySi { Format::DecimalSi } else { self.format };
        let whole = exponent - exponent.rem_euclid(3);
        let (suffix, largest) = ("E", 18);
        // Larger than the largest suffix: write the zeros.
        if format == Format::DecimalSi && exponent > largest && exponent <= MAX_ZEROS + MAX_DIGITS {
            return format!(
                "{mantissa}{:0<1$}{suffix}",
                "",
                usize::try_from(exponent - largest).unwrap_or(0)
            );
        }
        let whole = if format == Format::DecimalSi { whole.min(largest) } else { whole };
        while exponent > whole {
            mantissa = mantissa.saturating_mul(10);
            exponent -= 1;
        }
        if format == Format::DecimalExponent {
            return if exponent == 0 { mantissa.to_string() } else { format!("{mantissa}e{exponent}") };
        }
        let suffix = DECIMAL.iter().find(|(_, e)| *e == exponent).map_or("", |(s, _)| s);
        format!("{mantissa}{suffix}")
    }

    /// The text with a binary suffix, if the amount is whole.
    fn binary(&self) -> Option<String> {
        let mut amount = if self.scale < 0 {
            let divisor = power_of_ten(-self.scale)?;
            (self.mantissa % divisor == 0).then_some(self.mantissa / divisor)?
        } else {
            self.mantissa.checked_mul(power_of_ten(self.scale)?)?
        };
        let mut suffix = "";
        for (next, _) in BINARY {
            if amount % 1024 != 0 {
                break;
            }
            amount /= 1024;
            suffix = next;
        }
        Some(format!("{amount}{suffix}"))
    }
}

/// Prints the text that Kubernetes sends: as written where it keeps that, else the canonical form.
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
        let signs = self.sign().cmp(&other.sign());
        if signs.is_ne() || self.is_zero() {
            return signs;
        }
        if self.scale < other.scale {
            return other.cmp(self).reverse();
        }
        let aligned = power_of_ten(self.scale - other.scale).and_then(|p| self.mantissa.checked_mul(p));
        match aligned {
            Some(mantissa) => mantissa.cmp(&other.mantissa),
            // The other's digits cannot express it, so it is larger in magnitude.
            None => self.mantissa.cmp(&0),
        }
    }
}

/// The parts of a quantity's text.
struct Parts<'a> {
    negative: bool,
    /// Digits before the point, without leading zeros.
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
    /// True if the text contains a digit.
    digits: bool,
}

impl<'a> Parts<'a> {
    fn split(text: &'a str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        let not_digit = |c: char| !c.is_ascii_digit();
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let (whole, rest) = cut(unsigned, not_digit);
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => cut(rest, not_digit),
            None => ("", rest),
        };
        let (_, exponent) = cut(suffix, |c| !"eEinumkKMGTP".contains(c));
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        if exponent.contains(not_digit) {
            return Err(QuantityError::Format);
        }
        Ok(Parts {
            negative: text.starts_with('-'),
            whole: whole.trim_start_matches('0'),
            fraction,
            suffix,
            digits: !(whole.is_empty() && fraction.is_empty()),
        })
    }

    /// All digits as one number; `None` on overflow.
    fn mantissa(&self) -> Option<i128> {
        let mut mantissa = 0_i128;
        for digit in self.bytes() {
            mantissa = mantissa.checked_mul(10)?.checked_add(digit)?;
        }
        Some(if self.negative { -mantissa } else { mantissa })
    }

    fn bytes(&self) -> impl Iterator<Item = i128> {
        self.whole.bytes().chain(self.fraction.bytes()).map(|b| i128::from(b - b'0'))
    }

    /// True if the digits end with three zeros.
    fn ends_with_thousand(&self) -> bool {
        let digits = self.whole.bytes().chain(self.fraction.bytes());
        let zeros = digits.fold(0, |zeros, b| if b == b'0' { zeros + 1 } else { 0 });
        zeros >= 3
    }

    /// The general case: any number of digits and any exponent.
    fn wide(&self, suffix: &Suffix) -> Result<Quantity, QuantityError> {
        if !self.digits {
            return Err(QuantityError::Numeric);
        }
        let (exponent, mut format) = match suffix {
            Suffix::Decimal(exponent, format) => (*exponent, *format),
            Suffix::Binary(_) => (0, Format::BinarySi),
        };
        let mut scale = exponent.saturating_sub(i32::try_from(self.fraction.len()).unwrap_or(i32::MAX));
        // Digits beyond the precision only decide the rounding.
        let (mut mantissa, mut more) = (0_i128, false);
        for digit in self.bytes() {
            if mantissa >= MAX_MANTISSA / 10 {
                more |= digit != 0;
                scale = scale.saturating_add(1);
            } else {
                mantissa = mantissa * 10 + digit;
            }
        }
        if let Suffix::Binary(exponent) = suffix {
            // 10^36 * 2^60 overflows: drop digits first.
            while mantissa > i128::MAX >> exponent {
                more |= mantissa % 10 != 0;
                mantissa /= 10;
                scale = scale.saturating_add(1);
            }
            mantissa <<= exponent;
        }
        if scale < NANO {
            let by = NANO.saturating_sub(scale);
            let rounded = divide_away_from_zero(mantissa, by);
            let exact = power_of_ten(by).is_some_and(|p| mantissa % p == 0);
            mantissa = if exact && more { rounded.saturating_add(1) } else { rounded };
            more = false;
            scale = NANO;
        } else {
            while scale > NANO && mantissa < MAX_MANTISSA / 10 {
                mantissa *= 10;
                scale -= 1;
            }
        }
        if more {
            mantissa = mantissa.saturating_add(1);
        }
        if format == Format::DecimalSi {
            scale = scale.min(MAX_ZEROS);
        }
        let mut quantity = Quantity { mantissa, scale, format, wide: true, written: None };
        if format == Format::BinarySi {
            if quantity.cmp_i64(i64::MAX).is_gt() {
                quantity.mantissa = i128::from(i64::MAX);
                quantity.scale = 0;
            }
            if quantity.cmp_i64(1).is_lt() && !quantity.is_zero() {
                format = Format::DecimalSi;
            }
        }
        quantity.format = format;
        if self.negative {
            quantity.mantissa = -quantity.mantissa;
        }
        Ok(quantity)
    }
}

/// Splits `text` before the first character for which `stop` is true.
fn cut(text: &str, stop: impl FnMut(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(stop).unwrap_or(text.len()))
}

fn interpret(suffix: &str) -> Option<Suffix> {
    if let Some((_, exponent)) = DECIMAL.iter().find(|(s, _)| *s == suffix) {
        return Some(Suffix::Decimal(*exponent, Format::DecimalSi));
    }
    if let Some((_, exponent)) = BINARY.iter().find(|(s, _)| *s == suffix) {
        return Some(Suffix::Binary(*exponent));
    }
    let exponent: i64 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    // Kubernetes wraps the exponent at i64; amounts that large are meaningless.
    let bounded = exponent.clamp(-1_000_000, 1_000_000);
    Some(Suffix::Decimal(i32::try_from(bounded).unwrap_or(0), Format::DecimalExponent))
}

fn power_of_ten(exponent: i32) -> Option<i128> {
    10_i128.checked_pow(u32::try_from(exponent).ok()?)
}

fn divide_away_from_zero(mantissa: i128, places: i32) -> i128 {
    let Some(divisor) = power_of_ten(places) else {
        return mantissa.signum();
    };
    let quotient = mantissa / divisor;
    if mantissa % divisor == 0 { quotient } else { quotient + mantissa.signum() }
}

#[cfg(test)]
mod tests;
