//! Text → [`Quantity`], with the decisions of Kubernetes' `ParseQuantity`.

use super::decimal::Decimal;
use super::{Amount, BINARY_SUFFIXES, DECIMAL_SUFFIXES, NANO, Quantity, QuantityError, QuantityFormat};

/// The most digits that Kubernetes' fast path takes.
const MAX_SMALL_DIGITS: i32 = 18;

pub(super) fn quantity(text: &str) -> Result<Quantity, QuantityError> {
    let parts = QuantityParts::split(text)?;
    let suffix = Suffix::read(parts.suffix).ok_or(QuantityError::Suffix)?;
    if let Some(quantity) = small(text, &parts, &suffix) {
        return Ok(quantity);
    }
    // Kubernetes' fast path takes a text without a digit (`m`) for zero; its general path does not.
    if !parts.has_digit {
        return Err(QuantityError::Numeric);
    }
    Ok(big(&parts, &suffix))
}

/// The sign, digits and suffix of a quantity's text.
struct QuantityParts<'a> {
    negative: bool,
    /// Digits before the point without leading zeros.
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
    has_digit: bool,
}

impl<'a> QuantityParts<'a> {
    fn split(text: &'a str) -> Result<Self, QuantityError> {
        if text.is_empty() {
            return Err(QuantityError::Format);
        }
        let not_digit = |c: char| !c.is_ascii_digit();
        let (whole, rest) = split_before(text.strip_prefix(['+', '-']).unwrap_or(text), not_digit);
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => split_before(rest, not_digit),
            None => ("", rest),
        };
        let (_, exponent) = split_before(suffix, |c| !"eEinumkKMGTP".contains(c));
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        if exponent.contains(not_digit) {
            return Err(QuantityError::Format);
        }
        Ok(QuantityParts {
            negative: text.starts_with('-'),
            whole: whole.trim_start_matches('0'),
            fraction,
            suffix,
            has_digit: !(whole.is_empty() && fraction.is_empty()),
        })
    }

    fn digits(&self) -> impl DoubleEndedIterator<Item = u8> {
        self.whole.bytes().chain(self.fraction.bytes()).map(|b| b - b'0')
    }
}

enum Suffix {
    /// A power of ten.
    Decimal(i32, QuantityFormat),
    /// A power of two.
    Binary(u32),
}

impl Suffix {
    fn read(text: &str) -> Option<Suffix> {
        if let Some((_, exponent)) = DECIMAL_SUFFIXES.iter().find(|(suffix, _)| *suffix == text) {
            return Some(Suffix::Decimal(*exponent, QuantityFormat::DecimalSi));
        }
        if let Some((_, exponent)) = BINARY_SUFFIXES.iter().find(|(suffix, _)| *suffix == text) {
            return Some(Suffix::Binary(*exponent));
        }
        let exponent: i64 = text.strip_prefix(['e', 'E'])?.parse().ok()?;
        #[expect(clippy::cast_possible_truncation, reason = "Kubernetes truncates, too")]
        let exponent = exponent as i32;
        Some(Suffix::Decimal(exponent, QuantityFormat::DecimalExponent))
    }
}

/// Kubernetes' fast path: `None` if there are too many digits, or digits below a billionth.
fn small(text: &str, parts: &QuantityParts<'_>, suffix: &Suffix) -> Option<Quantity> {
    let whole_digits = i32::try_from(parts.whole.len().max(1)).ok()?;
    let fraction_digits = i32::try_from(parts.fraction.len()).ok()?;
    let (factor, scale, format) = match suffix {
        Suffix::Decimal(exponent, format) => {
            let scale = exponent.saturating_sub(fraction_digits);
            (whole_digits.saturating_add(fraction_digits) <= MAX_SMALL_DIGITS && scale >= NANO)
                .then_some((1, scale, *format))?
        }
        Suffix::Binary(exponent) => {
            let about_digits = i32::try_from(exponent * 3 / 10).ok()?;
            (fraction_digits == 0 && whole_digits.saturating_add(about_digits) < 15).then_some((
                1_i64 << exponent,
                0,
                QuantityFormat::BinarySi,
            ))?
        }
    };
    let digits =
        parts.digits().try_fold(0_i64, |n, digit| n.checked_mul(10)?.checked_add(i64::from(digit)))?;
    let value = digits.checked_mul(factor)?;
    // Kubernetes prints the text again if this cheap check finds it canonical; it takes `+1` and `1.500` for canonical.
    let is_printed_again = match suffix {
        Suffix::Binary(_) => digits & 7 != 0,
        Suffix::Decimal(..) => {
            let trailing_zeros = parts.digits().rev().take_while(|digit| *digit == 0).count();
            scale % 3 == 0 && trailing_zeros < 3 && !parts.whole.is_empty()
        }
    };
    Some(Quantity {
        amount: Amount::Small { value: if parts.negative { -value } else { value }, scale },
        format,
        written: is_printed_again.then(|| text.into()),
    })
}

fn big(parts: &QuantityParts<'_>, suffix: &Suffix) -> Quantity {
    let (exponent, factor, mut format) = match suffix {
        Suffix::Decimal(exponent, format) => (*exponent, 1, *format),
        Suffix::Binary(exponent) => (0, 1 << exponent, QuantityFormat::BinarySi),
    };
    let scale = exponent.saturating_sub(i32::try_from(parts.fraction.len()).unwrap_or(i32::MAX));
    let mut number = Decimal::new(parts.negative, parts.digits().rev().collect(), scale).times(factor);
    let mut unscaled_at = if number.sign() == 0 { scale } else { NANO };
    number.round_away_from_zero(NANO);
    if format == QuantityFormat::BinarySi {
        let max = Decimal::from_i64(i64::MAX, 0);
        if number.cmp_magnitude(&max).is_gt() {
            number = if parts.negative { max.neg() } else { max };
            unscaled_at = 0;
        }
        if number.sign() != 0 && number.cmp_magnitude(&Decimal::from_i64(1, 0)).is_lt() {
            format = QuantityFormat::DecimalSi;
        }
    }
    Quantity { amount: Amount::Big { number, unscaled_at }, format, written: None }
}

/// Splits before the first character that `stop` accepts.
fn split_before(text: &str, stop: impl FnMut(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(stop).unwrap_or(text.len()))
}
