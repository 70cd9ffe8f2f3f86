//! Estimates the work of parsing and compiling a pattern, in units of about 100 ns.

use regex_syntax::hir::{Class, Hir, HirKind};

/// Units charged for every pattern.
pub(super) const BASE_UNITS: u64 = 500;
/// Units of parsing a Unicode class, a table of hundreds of ranges.
pub(super) const CLASS_UNITS: u64 = 200;
/// Units of parsing a case-insensitive class, each of whose ranges is folded.
pub(super) const FOLDED_CLASS_UNITS: u64 = 2000;

/// Upper bound of the units for parsing a translated pattern.
pub(super) fn parsing(pattern: &str) -> u64 {
    let count = |part: &str| pattern.matches(part).count() as u64;
    let classes = if ignores_case(pattern) {
        (count("\\p") + count("\\P") + count("[")).saturating_mul(FOLDED_CLASS_UNITS)
    } else {
        (count("\\p") + count("\\P")).saturating_mul(CLASS_UNITS)
    };
    classes.saturating_add(pattern.len() as u64)
}

fn ignores_case(pattern: &str) -> bool {
    let mut groups = pattern.split("(?").skip(1);
    groups.any(|group| group.chars().take_while(|c| !matches!(c, ')' | ':')).any(|c| c == 'i'))
}

/// Units of compiling a pattern: about its number of transitions.
pub(super) fn compiling(hir: &Hir) -> u64 {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 1,
        HirKind::Literal(literal) => literal.0.len() as u64,
        HirKind::Class(Class::Bytes(class)) => class.iter().count() as u64 + 1,
        HirKind::Class(Class::Unicode(class)) => {
            let encoded = |c: char| c.len_utf8() as u64;
            let ranges = class.iter().map(|range| {
                let lengths = 1 + encoded(range.end()) - encoded(range.start());
                encoded(range.end()) * lengths
            });
            ranges.sum::<u64>() + 1
        }
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min.saturating_add(1)).max(1);
            compiling(&repetition.sub).saturating_add(1).saturating_mul(times.into())
        }
        HirKind::Capture(capture) => compiling(&capture.sub).saturating_add(2),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().map(compiling).fold(1, u64::saturating_add)
        }
    }
}
