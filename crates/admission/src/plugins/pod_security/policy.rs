//! Levels, versions, and the policy that a namespace's labels select.

use std::fmt;

use api::FieldError;
use value::{Path, Value};

/// The prefix of labels and audit annotations.
pub(crate) const PREFIX: &str = "pod-security.kubernetes.io/";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodSecurityLevel {
    /// Allows everything; no checks run.
    Privileged,
    /// Prevents known privilege escalations.
    Baseline,
    /// Enforces hardening best practices.
    Restricted,
}

impl PodSecurityLevel {
    /// The error is kube-apiserver's message.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        match text {
            "privileged" => Ok(PodSecurityLevel::Privileged),
            "baseline" => Ok(PodSecurityLevel::Baseline),
            "restricted" => Ok(PodSecurityLevel::Restricted),
            _ => Err("must be one of privileged, baseline, restricted"),
        }
    }

    /// The value of labels.
    pub fn as_str(self) -> &'static str {
        match self {
            PodSecurityLevel::Privileged => "privileged",
            PodSecurityLevel::Baseline => "baseline",
            PodSecurityLevel::Restricted => "restricted",
        }
    }
}

/// A Kubernetes version. `Latest` is greater than all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodSecurityVersion {
    /// The Kubernetes version `v1.N`.
    Minor(u32),
    Latest,
}

impl PodSecurityVersion {
    /// The error is kube-apiserver's message.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text == "latest" {
            return Ok(PodSecurityVersion::Latest);
        }
        let digits = text.strip_prefix("v1.").unwrap_or_default();
        let plain = digits.bytes().all(|b| b.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
        match digits.parse::<i64>() {
            // Numbers beyond `u32` are all alike: far in the future.
            Ok(minor) if plain => Ok(PodSecurityVersion::Minor(u32::try_from(minor).unwrap_or(u32::MAX))),
            _ => Err("must be \"latest\" or \"v1.x\""),
        }
    }
}

impl fmt::Display for PodSecurityVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PodSecurityVersion::Minor(minor) => write!(f, "v1.{minor}"),
            PodSecurityVersion::Latest => f.write_str("latest"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LevelVersion {
    pub level: PodSecurityLevel,
    pub version: PodSecurityVersion,
}

impl LevelVersion {
    pub const PRIVILEGED: LevelVersion =
        LevelVersion { level: PodSecurityLevel::Privileged, version: PodSecurityVersion::Latest };

    fn is_equivalent(self, other: LevelVersion) -> bool {
        self == other
            || (self.level == PodSecurityLevel::Privileged && other.level == PodSecurityLevel::Privileged)
    }
}

impl fmt::Display for LevelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.level.as_str(), self.version)
    }
}

/// The levels of the three modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespacePolicy {
    /// Pods that violate this level are rejected.
    pub enforce: LevelVersion,
    /// Violations of this level are added to the audit event.
    pub audit: LevelVersion,
    /// Violations of this level cause warnings.
    pub warn: LevelVersion,
}

impl Default for NamespacePolicy {
    fn default() -> Self {
        let all = LevelVersion::PRIVILEGED;
        NamespacePolicy { enforce: all, audit: all, warn: all }
    }
}

impl NamespacePolicy {
    /// Whether all modes are at the privileged level.
    pub fn is_privileged(&self) -> bool {
        [self.enforce, self.audit, self.warn].iter().all(|mode| mode.level == PodSecurityLevel::Privileged)
    }

    /// Whether both have the same effect.
    pub fn is_equivalent(&self, other: &NamespacePolicy) -> bool {
        self.enforce.is_equivalent(other.enforce)
            && self.audit.is_equivalent(other.audit)
            && self.warn.is_equivalent(other.warn)
    }

    /// The policy of a namespace, and an error for each invalid label. An invalid level counts as `restricted` for `enforce`
    /// and as `privileged` for the other modes, an invalid version as `latest`.
    pub fn of(namespace: &Value, defaults: &NamespacePolicy) -> (NamespacePolicy, Vec<FieldError>) {
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
            match PodSecurityLevel::parse(text) {
                Ok(level) => (policy.enforce.level, enforced) = (level, true),
                Err(why) => {
                    policy.enforce.level = PodSecurityLevel::Restricted;
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
                // An invalid label of an informational mode must not block pods.
                mode.level = PodSecurityLevel::parse(text).unwrap_or_else(|why| {
                    wrong(name, text, why);
                    PodSecurityLevel::Privileged
                });
            }
            let name = format!("{name}-version");
            if let Some(text) = get(&name) {
                mode.version = PodSecurityVersion::parse(text).unwrap_or_else(|why| {
                    wrong(&name, text, why);
                    PodSecurityVersion::Latest
                });
            }
        }
        // If `enforce` is stricter than the default of `warn`, violations cause warnings, too.
        if enforced && get("warn").is_none() && policy.enforce.level > policy.warn.level {
            policy.warn.level = policy.enforce.level;
            if get("warn-version").is_none() {
                policy.warn.version = policy.enforce.version;
            }
        }
        (policy, errors)
    }
}
