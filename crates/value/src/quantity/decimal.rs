//! [`Decimal`]: exact decimal numbers of any size. Every operation takes time in proportion to the digits.

use std::cmp::Ordering;

/// A sum has at most this many digits, or as many as its longer operand; digits below are dropped. Without the bound, adding
/// 1 to `1e1000000000` would write a billion digits.
const MAX_SUM_DIGITS: usize = 10_000;

/// An exact decimal number: `digits * 10^scale`.
#[derive(Clone, Debug)]
pub(super) struct Decimal {
    negative: bool,
    /// From the least significant digit up.
    // INVARIANT: no zero at either end; empty, not negative and at scale 0 for zero.
    digits: Vec<u8>,
    scale: i32,
}

impl Decimal {
    /// `digits` from the least significant one up; zeros at either end are removed.
    pub(super) fn new(negative: bool, mut digits: Vec<u8>, scale: i32) -> Decimal {
        while digits.last() == Some(&0) {
            digits.pop();
        }
        let zeros = digits.iter().take_while(|digit| **digit == 0).count();
        digits.drain(..zeros);
        if digits.is_empty() {
            return Decimal { negative: false, digits, scale: 0 };
        }
        Decimal { negative, digits, scale: scale.saturating_add(i32::try_from(zeros).unwrap_or(i32::MAX)) }
    }

    pub(super) fn from_i64(value: i64, scale: i32) -> Decimal {
        let mut rest = value.unsigned_abs();
        let mut digits = Vec::with_capacity(19);
        while rest > 0 {
            digits.push(u8::try_from(rest % 10).unwrap_or(0));
            rest /= 10;
        }
        Decimal::new(value < 0, digits, scale)
    }

    pub(super) fn sign(&self) -> i32 {
        match (self.digits.is_empty(), self.negative) {
            (true, _) => 0,
            (_, true) => -1,
            (_, false) => 1,
        }
    }

    /// The power of ten that the least significant digit counts.
    pub(super) fn scale(&self) -> i32 {
        self.scale
    }

    pub(super) fn digit_count(&self) -> usize {
        self.digits.len()
    }

    /// The digits without sign, the most significant one first.
    pub(super) fn digits(&self) -> String {
        self.digits.iter().rev().map(|digit| char::from(b'0' + digit)).collect()
    }

    /// The number in units of `10^unit`, rounded to the nearest float.
    pub(super) fn unscaled_f64(&self, unit: i32) -> f64 {
        let sign = if self.negative { "-" } else { "" };
        let exponent = i64::from(self.scale) - i64::from(unit);
        format!("{sign}{}e{exponent}", self.digits()).parse().unwrap_or(0.0)
    }

    /// The number in units of `10^unit`, rounded away from zero and clamped to `i128`.
    pub(super) fn scaled(&self, unit: i32) -> i128 {
        let mut rounded = self.clone();
        rounded.round_away_from_zero(unit);
        let zeros = u32::try_from(i64::from(rounded.scale) - i64::from(unit)).unwrap_or(0);
        let magnitude = rounded
            .digits
            .iter()
            .rev()
            .try_fold(0_i128, |number, digit| number.checked_mul(10)?.checked_add(i128::from(*digit)));
        match magnitude {
            Some(0) => 0,
            Some(magnitude) => {
                let magnitude = 10_i128.checked_pow(zeros).and_then(|power| magnitude.checked_mul(power));
                match (magnitude, self.negative) {
                    (Some(magnitude), false) => magnitude,
                    (Some(magnitude), true) => -magnitude,
                    (None, false) => i128::MAX,
                    (None, true) => i128::MIN,
                }
            }
            None if self.negative => i128::MIN,
            None => i128::MAX,
        }
    }

    pub(super) fn neg(mut self) -> Decimal {
        self.negative = !self.negative && !self.digits.is_empty();
        self
    }

    /// The power of ten above the most significant digit.
    fn magnitude(&self) -> i64 {
        i64::from(self.scale) + i64::try_from(self.digits.len()).unwrap_or(i64::MAX)
    }

    pub(super) fn cmp_magnitude(&self, other: &Decimal) -> Ordering {
        match (self.digits.is_empty(), other.digits.is_empty()) {
            (false, false) => {}
            (a, b) => return b.cmp(&a),
        }
        // With equal magnitudes, the missing digits of the shorter number are zeros, so the shorter one is less.
        let by_digits = || self.digits.iter().rev().cmp(other.digits.iter().rev());
        self.magnitude().cmp(&other.magnitude()).then_with(by_digits)
    }

    pub(super) fn times(&self, factor: u64) -> Decimal {
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
        Decimal::new(self.negative, digits, self.scale)
    }

    pub(super) fn plus(&self, other: &Decimal) -> Decimal {
        if self.digits.is_empty() {
            return other.clone();
        }
        if other.digits.is_empty() {
            return self.clone();
        }
        let most = MAX_SUM_DIGITS.max(self.digits.len()).max(other.digits.len());
        let top = self.magnitude().max(other.magnitude());
        let lowest = i32::try_from(top - i64::try_from(most).unwrap_or(i64::MAX)).unwrap_or(i32::MIN);
        let scale = self.scale.min(other.scale).max(lowest);
        let (a, b) = (self.digits_from(scale), other.digits_from(scale));
        if self.negative == other.negative {
            return Decimal::new(self.negative, sum(&a, &b), scale);
        }
        if self.cmp_magnitude(other).is_ge() {
            Decimal::new(self.negative, difference(&a, &b), scale)
        } else {
            Decimal::new(other.negative, difference(&b, &a), scale)
        }
    }

    /// The digits from `10^scale` up: with zeros below them, or without the lowest ones.
    fn digits_from(&self, scale: i32) -> Vec<u8> {
        let shift = i64::from(self.scale) - i64::from(scale);
        let mut digits = vec![0; usize::try_from(shift).unwrap_or(0)];
        digits.extend(self.digits.iter().skip(usize::try_from(-shift).unwrap_or(0)));
        digits
    }

    /// Removes digits below `10^unit`; if there were any, adds one unit to the magnitude.
    pub(super) fn round_away_from_zero(&mut self, unit: i32) {
        if self.scale >= unit || self.digits.is_empty() {
            return;
        }
        // The least significant digit is not zero, so something is always dropped.
        let digits = self.digits_from(unit);
        *self = Decimal::new(self.negative, sum(&digits, &[1]), unit);
    }

    pub(super) fn cmp(&self, other: &Decimal) -> Ordering {
        match (self.negative, other.negative) {
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
            (false, false) => self.cmp_magnitude(other),
            (true, true) => other.cmp_magnitude(self),
        }
    }
}

fn sum(a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut digits = Vec::with_capacity(a.len().max(b.len()) + 1);
    let mut carry = 0;
    for at in 0..a.len().max(b.len()) {
        let sum = a.get(at).unwrap_or(&0) + b.get(at).unwrap_or(&0) + carry;
        digits.push(sum % 10);
        carry = sum / 10;
    }
    digits.push(carry);
    digits
}

/// Decimal subtraction: `larger - smaller`, which must not be negative.
fn difference(larger: &[u8], smaller: &[u8]) -> Vec<u8> {
    let mut digits = Vec::with_capacity(larger.len());
    let mut borrow = 0;
    for (at, digit) in larger.iter().enumerate() {
        let taken = smaller.get(at).unwrap_or(&0) + borrow;
        borrow = u8::from(*digit < taken);
        digits.push(digit + 10 * borrow - taken);
    }
    digits
}
