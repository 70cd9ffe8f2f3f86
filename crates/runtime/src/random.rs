//! Unpredictable uids, name suffixes and numbers from the system's random number generator.

use std::cell::RefCell;

use value::{Str, format_smolstr};

pub fn uid() -> Str {
    let mut b = bytes::<16>();
    b[6] = (b[6] & 0x0f) | 0x40;
    b[8] = (b[8] & 0x3f) | 0x80;
    let h = u128::from_be_bytes(b);
    format_smolstr!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        h >> 96,
        (h >> 80) & 0xffff,
        (h >> 64) & 0xffff,
        (h >> 48) & 0xffff,
        h & 0xffff_ffff_ffff
    )
}

/// The five characters appended to a `generateName`: without vowels, so that no words appear, and without look-alikes.
pub fn suffix() -> String {
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    bytes::<5>()
        .iter()
        .map(|b| char::from(LETTERS.get(usize::from(*b) % LETTERS.len()).copied().unwrap_or(b'x')))
        .collect()
}

pub fn number() -> usize {
    usize::from_ne_bytes(bytes())
}

/// A number in `0.0..1.0`.
pub fn fraction() -> f64 {
    f64::from(u32::from_ne_bytes(bytes())) / (f64::from(u32::MAX) + 1.0)
}

/// Maximum length of the base that a suffix is appended to; together they have at most 63 bytes.
pub const MAX_BASE: usize = 58;

thread_local! {
    /// Random bytes not yet used by this thread. Every request needs some, and a system call for each would cost more than the rest.
    static SUPPLY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Number of bytes requested from the system at once.
const SUPPLIED: usize = 1024;

fn bytes<const N: usize>() -> [u8; N] {
    SUPPLY.with_borrow_mut(|supply| {
        if supply.len() < N {
            supply.resize(SUPPLIED.max(N), 0);
            if getrandom::fill(supply).is_err() {
                // Predictable uids and tokens would be a security hole, so there is no fallback.
                std::process::abort();
            }
        }
        let mut out = [0; N];
        out.iter_mut()
            .zip(supply.drain(supply.len().saturating_sub(N)..))
            .for_each(|(out, byte)| *out = byte);
        out
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn uids_have_the_form_of_version_four() {
        let uid = super::uid();
        assert_eq!(uid.len(), 36);
        assert_eq!(uid.as_bytes()[14], b'4');
        assert!(b"89ab".contains(&uid.as_bytes()[19]));
        assert_ne!(uid, super::uid());
    }

    #[test]
    fn uids_are_unique() {
        let many: std::collections::HashSet<_> = (0..10_000).map(|_| super::uid()).collect();
        assert_eq!(many.len(), 10_000);
    }

    #[test]
    fn suffixes_are_five_letters_of_the_alphabet() {
        let suffix = super::suffix();
        assert!(suffix.len() == 5 && suffix.chars().all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c)));
    }
}
