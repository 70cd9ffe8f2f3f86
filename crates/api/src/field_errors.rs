//! [`FieldErrors`]: the errors of one object, limited in number and bytes.

use std::ops::{Deref, DerefMut};

use value::{Value, steps};

use crate::field::FieldError;

/// Maximum number of errors recorded for one object. Responses contain far fewer.
pub const MAX_ERRORS: usize = 10_000;

/// Bytes of recorded errors, as JSON, after which no error is added. The last one may exceed it, so that one error is
/// recorded whatever its length. Responses contain fewer bytes.
pub const MAX_ERROR_BYTES: usize = 2 << 20;

/// Bytes of an error that count as one access ([`steps::count`]).
const BYTES_PER_ACCESS: usize = 64;

/// The errors of an object, in the order in which they were found.
///
/// An error can quote a value that is much larger than the one it is about. So that the errors about a list do not take
/// memory proportional to its square, errors beyond [`MAX_ERRORS`] or [`MAX_ERROR_BYTES`] are dropped. Code that builds
/// expensive errors in a loop ends it when the list [is full](FieldErrors::is_full).
#[derive(Clone, Debug, Default)]
pub struct FieldErrors {
    errors: Vec<FieldError>,
    bytes: usize,
}

impl FieldErrors {
    /// Creates a collection without errors.
    pub const fn new() -> Self {
        FieldErrors { errors: Vec::new(), bytes: 0 }
    }

    /// Whether further errors are dropped.
    pub fn is_full(&self) -> bool {
        self.errors.len() >= MAX_ERRORS || self.bytes >= MAX_ERROR_BYTES
    }

    /// Approximate length of the errors as JSON, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds an error unless the list is full.
    pub fn push(&mut self, error: FieldError) {
        let bytes = bytes(&error);
        steps::count(1 + bytes / BYTES_PER_ACCESS);
        if !self.is_full() {
            self.bytes += bytes;
            self.errors.push(error);
        }
    }

    /// Moves the errors of `other` to the end of this list.
    pub fn append(&mut self, other: &mut FieldErrors) {
        self.extend(std::mem::take(other));
    }

    /// Removes the errors for which `keep` returns false.
    pub fn retain(&mut self, keep: impl FnMut(&FieldError) -> bool) {
        self.errors.retain(keep);
        self.bytes = self.errors.iter().map(bytes).sum();
    }
}

/// Approximate length of an error as JSON.
fn bytes(error: &FieldError) -> usize {
    let value = error.bad_value.as_ref().map_or(0, |value| Value::size_up_to(value, MAX_ERROR_BYTES));
    error.field.len() + error.detail.len() + value
}

impl Deref for FieldErrors {
    type Target = [FieldError];

    fn deref(&self) -> &[FieldError] {
        &self.errors
    }
}

impl DerefMut for FieldErrors {
    fn deref_mut(&mut self) -> &mut [FieldError] {
        &mut self.errors
    }
}

impl PartialEq for FieldErrors {
    fn eq(&self, other: &Self) -> bool {
        self.errors == other.errors
    }
}

impl Extend<FieldError> for FieldErrors {
    fn extend<I: IntoIterator<Item = FieldError>>(&mut self, errors: I) {
        errors.into_iter().for_each(|error| self.push(error));
    }
}

impl FromIterator<FieldError> for FieldErrors {
    fn from_iter<I: IntoIterator<Item = FieldError>>(errors: I) -> Self {
        let mut list = FieldErrors::new();
        list.extend(errors);
        list
    }
}

impl<const N: usize> From<[FieldError; N]> for FieldErrors {
    fn from(errors: [FieldError; N]) -> Self {
        errors.into_iter().collect()
    }
}

impl From<Vec<FieldError>> for FieldErrors {
    fn from(errors: Vec<FieldError>) -> Self {
        errors.into_iter().collect()
    }
}

impl IntoIterator for FieldErrors {
    type Item = FieldError;
    type IntoIter = std::vec::IntoIter<FieldError>;

    fn into_iter(self) -> Self::IntoIter {
        self.errors.into_iter()
    }
}

impl<'a> IntoIterator for &'a FieldErrors {
    type Item = &'a FieldError;
    type IntoIter = std::slice::Iter<'a, FieldError>;

    fn into_iter(self) -> Self::IntoIter {
        self.errors.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validation::fields::{At, Report};

    #[test]
    fn errors_are_limited_in_number() {
        let mut errors = FieldErrors::new();
        for i in 0..MAX_ERRORS + 5 {
            errors.invalid(&At::new("spec").index(i), "x", "wrong");
        }
        assert_eq!(errors.len(), MAX_ERRORS);
    }

    #[test]
    fn errors_that_quote_a_long_list_are_limited_in_bytes() {
        let list = Value::list((0..10_000).map(|i| format!("item-{i}")));
        let mut errors = FieldErrors::new();
        errors.extend((0..1000).map(|_| FieldError::invalid(&value::Path::root(), list.clone(), "wrong")));
        let one = list.size_up_to(usize::MAX);
        assert!(errors.is_full());
        assert!(errors.len() > 10 && errors.bytes() <= MAX_ERROR_BYTES + 2 * one, "{}", errors.bytes());
        // A single error is never dropped or shortened.
        let long = "x".repeat(2 * MAX_ERROR_BYTES);
        let mut errors = FieldErrors::new();
        errors.invalid(&At::new("spec"), long.as_str(), "wrong");
        assert_eq!(errors.first().and_then(|error| error.bad_value.clone()), Some(Value::from(long)));
        errors.invalid(&At::new("spec"), "x", "wrong");
        assert_eq!(errors.len(), 1);
    }

    #[test]
    fn removed_errors_make_room() {
        let mut errors = FieldErrors::new();
        errors.invalid(&At::new("spec"), "x".repeat(MAX_ERROR_BYTES), "wrong");
        assert!(errors.is_full());
        errors.retain(|_| false);
        assert!(!errors.is_full());
        assert_eq!(errors.bytes(), 0);
    }
}
