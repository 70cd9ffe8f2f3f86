//! Levels, versions, and what the labels of a namespace ask for.

use std::fmt;

use api::FieldError;
use value::{Path, Value};

/// What the labels and the audit annotations begin with.
pub(crate) const PREFIX: &str = "pod-security.kubernetes.io/";

/// How strict a policy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Everything goes.
    Privileged,
    /// Nothing that is known to escalate.
    Baseline,
    /// What is recommended.
    Restricted,
}

impl Level {
    /// Reads a level. The error is Kubernetes'.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        match text {
            "privileged" => Ok(Level::Privileged),
            "baseline" => Ok(Level::Baseline),
            "restricted" => Ok(Level::Restricted),
            _ => Err("must be one of privileged, baseline, restricted"),
        }
    }

    /// The word in labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        }
    }
}

/// The Kubernetes version whose rules apply: a minor version of 1, or the latest, which comes after all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// `v1.N`.
    Minor(u32),
    /// `latest`.
    Latest,
}

impl Version {
    /// Reads a version. The error is Kubernetes'.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text == "latest" {
            return Ok(Version::Latest);
        }
        let digits = text.strip_prefix("v1.").unwrap_or_default();
        let plain = digits.bytes().all(|b| b.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
        match digits.parse::<i64>() {
            // Beyond what anybody releases all versions are alike.
            Ok(minor) if plain => Ok(Version::Minor(u32::try_from(minor).unwrap_or(u32::MAX))),
            _ => Err("must be \"latest\" or \"v1.x\""),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Version::Minor(minor) => write!(f, "v1.{minor}"),
            Version::Latest => f.write_str("latest"),
        }
    }
}

/// A level in a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Standard {
    /// The level.
    pub level: Level,
    /// The version.
    pub version: Version,
}

impl Standard {
    /// Everything goes.
    pub const PRIVILEGED: Standard = Standard { level: Level::Privileged, version: Version::Latest };

    fn is_equivalent(self, other: Standard) -> bool {
        self == other || (self.level == Level::Privileged && other.level == Level::Privileged)
    }
}

impl fmt::Display for Standard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.level.as_str(), self.version)
    }
}

/// What is refused, what is noted for the auditor and what the caller is warned of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Refused unless it meets this.
    pub enforce: Standard,
    /// Noted unless it meets this.
    pub audit: Standard,
    /// Warned of unless it meets this.
    pub warn: Standard,
}

impl Default for Policy {
    fn default() -> Self {
        let all = Standard::PRIVILEGED;
        Policy { enforce: all, audit: all, warn: all }
    }
}

impl Policy {
    /// Whether it asks for nothing at all.
    pub fn is_privileged(&self) -> bool {
        [self.enforce, self.audit, self.warn].iter().all(|mode| mode.level == Level::Privileged)
    }

    /// Whether both ask for the same.
    pub fn is_equivalent(&self, other: &Policy) -> bool {
        self.enforce.is_equivalent(other.enforce)
            && self.audit.is_equivalent(other.audit)
            && self.warn.is_equivalent(other.warn)
    }

    /// The policy of a namespace. There always is one: a label that cannot be read is an error, and enforces the strictest.
    pub fn of(namespace: &Value, defaults: &Policy) -> (Policy, Vec<FieldError>) {
        let mut policy = *defaults;
        let mut errors = Vec::new();
        let labels = namespace.at(&["metadata", "labels"]).and_then(Value::as_map);
        let Some(labels) = labels.filter(|labels| !labels.is_empty()) else { return (policy, errors) };
        let get = |name: &str| labels.get(&format!("{PREFIX}{name}")).and_then(Value::as_str);
        let mut wrong = |name: &str, text: &str, why: &str| {
            let path = Path::root().field("metadata").field("labels").key(format!("{PREFIX}{name}"));
            errors.push(FieldError::invalid(&path, text, why));
        };

        let mut enforced = false;
        if let Some(text) = get("enforce") {
            match Level::parse(text) {
                Ok(level) => (policy.enforce.level, enforced) = (level, true),
                Err(why) => {
                    policy.enforce.level = Level::Restricted;
                    wrong("enforce", text, why);
                }
            }
        }
        for (name, mode) in
            [("enforce", &mut policy.enforce), ("audit", &mut policy.audit), ("warn", &mut policy.warn)]
        {
            if name != "enforce"
                && let Some(text) = get(name)
            {
                // What only informs must not get in the way.
                mode.level = Level::parse(text).unwrap_or_else(|why| {
                    wrong(name, text, why);
                    Level::Privileged
                });
            }
            let name = format!("{name}-version");
            if let Some(text) = get(&name) {
                mode.version = Version::parse(text).unwrap_or_else(|why| {
                    wrong(&name, text, why);
                    Version::Latest
                });
            }
        }
        // Whoever tightens what is enforced wants to hear of it.
        if enforced && get("warn").is_none() && policy.enforce.level > policy.warn.level {
            policy.warn.level = policy.enforce.level;
            if get("warn-version").is_none() {
                policy.warn.version = policy.enforce.version;
            }
        }
        (policy, errors)
    }
}
