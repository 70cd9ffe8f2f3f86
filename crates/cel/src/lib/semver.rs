//! The semver library: parsing and comparing semantic versions.

use std::cmp::Ordering;
use std::fmt;

use value::go::quote;

use super::{Ext, bool, ext, string};
use crate::env::Builder;
use crate::eval::{Error, EvalResult};
use crate::val::Val;

/// A parsed semantic version; 0.0.0 by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Semver {
    numbers: [u64; 3],
    pre: Vec<PreReleasePart>,
    build: Vec<String>,
    /// Length of the text it was parsed from.
    bytes: usize,
}

/// A pre-release identifier; numbers sort before words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PreReleasePart {
    Number(u64),
    Word(String),
}

/// Declares `semver`, `isSemver` and the methods of versions.
pub(crate) fn add(b: &mut Builder) {
    b.function(
        "semver",
        &[
            ("string_to_semver", "(string) -> kubernetes.Semver", |_, args| make(string(args, 0)?, false)),
            ("string_bool_to_semver", "(string, bool) -> kubernetes.Semver", |_, args| {
                make(string(args, 0)?, bool(args, 1)?)
            }),
        ],
    );
    b.function(
        "isSemver",
        &[
            ("is_semver_string", "(string) -> bool", |_, args| {
                Ok(Val::Bool(Semver::read(string(args, 0)?, false).is_ok()))
            }),
            ("is_semver_string_bool", "(string, bool) -> bool", |_, args| {
                Ok(Val::Bool(Semver::read(string(args, 0)?, bool(args, 1)?).is_ok()))
            }),
        ],
    );
    b.function(
        "isGreaterThan",
        &[("semver_is_greater_than", "kubernetes.Semver.(kubernetes.Semver) -> bool", |_, args| {
            Ok(Val::Bool(compared(args)?.is_gt()))
        })],
    );
    b.function(
        "isLessThan",
        &[("semver_is_less_than", "kubernetes.Semver.(kubernetes.Semver) -> bool", |_, args| {
            Ok(Val::Bool(compared(args)?.is_lt()))
        })],
    );
    b.function(
        "compareTo",
        &[("semver_compare_to", "kubernetes.Semver.(kubernetes.Semver) -> int", |_, args| {
            Ok(Val::Int(compared(args)? as i64))
        })],
    );
    b.function("major", &[("semver_major", "kubernetes.Semver.() -> int", |_, args| number(args, 0))]);
    b.function("minor", &[("semver_minor", "kubernetes.Semver.() -> int", |_, args| number(args, 1))]);
    b.function("patch", &[("semver_patch", "kubernetes.Semver.() -> int", |_, args| number(args, 2))]);
}

fn make<'a>(text: &str, normalize: bool) -> EvalResult<'a> {
    Semver::read(text, normalize).map(|semver| Val::ext(Ext::Semver(semver))).map_err(Error::new)
}

fn semver_at<'v>(args: &'v [Val<'_>], at: usize) -> Result<&'v Semver, Error> {
    match ext(args, at)? {
        Ext::Semver(semver) => Ok(semver),
        _ => Err(Error::no_such_overload()),
    }
}

fn compared(args: &[Val<'_>]) -> Result<Ordering, Error> {
    Ok(semver_at(args, 0)?.compare(semver_at(args, 1)?))
}

#[expect(clippy::cast_possible_wrap, reason = "Kubernetes wraps numbers that do not fit")]
fn number<'a>(args: &[Val<'a>], at: usize) -> EvalResult<'a> {
    let number = semver_at(args, 0)?.numbers.get(at).copied().unwrap_or(0);
    Ok(Val::Int(number as i64))
}

fn only(text: &str, allowed: fn(u8) -> bool) -> bool {
    text.bytes().all(allowed)
}

fn digits(text: &str) -> bool {
    only(text, |b| b.is_ascii_digit())
}

fn alphanumeric(text: &str) -> bool {
    only(text, |b| b.is_ascii_alphanumeric() || b == b'-')
}

fn unsigned(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| {
        let why = if text.is_empty() { "invalid syntax" } else { "value out of range" };
        format!("strconv.ParseUint: parsing {}: {why}", quote(text))
    })
}

fn part(text: &str, name: &str) -> Result<u64, String> {
    if !digits(text) {
        return Err(format!("Invalid character(s) found in {} number {}", name.to_lowercase(), quote(text)));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(format!("{name} number must not contain leading zeroes {}", quote(text)));
    }
    unsigned(text)
}

impl Semver {
    fn read(text: &str, normalize: bool) -> Result<Semver, String> {
        if normalize { Semver::parse(&normalized(text)?) } else { Semver::parse(text) }
    }

    /// Parses `MAJOR.MINOR.PATCH` with an optional pre-release and build, as blang/semver does.
    pub fn parse(text: &str) -> Result<Semver, String> {
        if text.is_empty() {
            return Err("Version string empty".to_owned());
        }
        let mut parts = text.splitn(3, '.');
        let (Some(major), Some(minor), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
            return Err("No Major.Minor.Patch elements found".to_owned());
        };
        let major = part(major, "Major")?;
        let minor = part(minor, "Minor")?;
        let (rest, build) = match rest.split_once('+') {
            Some((rest, build)) => (rest, Some(build)),
            None => (rest, None),
        };
        let (patch, pre) = match rest.split_once('-') {
            Some((patch, pre)) => (patch, Some(pre)),
            None => (rest, None),
        };
        let patch = part(patch, "Patch")?;
        let pre =
            pre.map_or(Ok(Vec::new()), |pre| pre.split('.').map(pre_release).collect::<Result<_, _>>())?;
        let mut builds = Vec::new();
        for word in build.into_iter().flat_map(|build| build.split('.')) {
            if word.is_empty() {
                return Err("Build meta data is empty".to_owned());
            }
            if !alphanumeric(word) {
                return Err(format!("Invalid character(s) found in build meta data {}", quote(word)));
            }
            builds.push(word.to_owned());
        }
        Ok(Semver { numbers: [major, minor, patch], pre, build: builds, bytes: text.len() })
    }

    pub(crate) fn byte_count(&self) -> usize {
        self.bytes
    }

    /// Compares by precedence, which ignores the build.
    pub fn compare(&self, other: &Semver) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| match (self.pre.is_empty(), other.pre.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => self.pre.cmp(&other.pre),
        })
    }
}

fn pre_release(text: &str) -> Result<PreReleasePart, String> {
    if text.is_empty() {
        return Err("Prerelease is empty".to_owned());
    }
    if digits(text) {
        if text.len() > 1 && text.starts_with('0') {
            return Err(format!(
                "Numeric PreRelease version must not contain leading zeroes {}",
                quote(text)
            ));
        }
        return unsigned(text).map(PreReleasePart::Number);
    }
    if alphanumeric(text) {
        return Ok(PreReleasePart::Word(text.to_owned()));
    }
    Err(format!("Invalid character(s) found in prerelease {}", quote(text)))
}

/// Normalizes a version: removes `v` and leading zeros, adds missing numbers.
fn normalized(text: &str) -> Result<String, String> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text
        .splitn(3, '.')
        .map(|part| {
            if part.len() <= 1 {
                return part.to_owned();
            }
            let trimmed = part.trim_start_matches('0');
            if trimmed.starts_with(|c: char| c.is_ascii_digit()) {
                trimmed.to_owned()
            } else {
                format!("0{trimmed}")
            }
        })
        .collect();
    if parts.len() < 3 {
        if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
            return Err("short version cannot contain PreRelease/Build meta data".to_owned());
        }
        parts.resize(3, "0".to_owned());
    }
    Ok(parts.join("."))
}

impl fmt::Display for Semver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.numbers;
        write!(f, "{major}.{minor}.{patch}")?;
        for (i, pre) in self.pre.iter().enumerate() {
            f.write_str(if i == 0 { "-" } else { "." })?;
            match pre {
                PreReleasePart::Number(number) => write!(f, "{number}")?,
                PreReleasePart::Word(word) => f.write_str(word)?,
            }
        }
        for (i, word) in self.build.iter().enumerate() {
            write!(f, "{}{word}", if i == 0 { "+" } else { "." })?;
        }
        Ok(())
    }
}
