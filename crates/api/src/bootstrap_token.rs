//! Bootstrap tokens: short-lived tokens with which new nodes join a cluster. Each is a Secret in `kube-system`.

use value::go::base64;
use value::{Str, Value};

use crate::time::Timestamp;
use crate::{field, meta};

/// The type of the Secrets that hold bootstrap tokens.
pub const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";
/// The group of all users with bootstrap tokens.
pub const GROUP: &str = "system:bootstrappers";
/// The prefix of their user names.
pub const USER_PREFIX: &str = "system:bootstrap:";

const NAME_PREFIX: &str = "bootstrap-token-";
const ID_LENGTH: usize = 6;
const SECRET_LENGTH: usize = 16;

const EXTRA_GROUP_PREFIX: &str = "system:bootstrappers:";
const EXTRA_GROUP_PATTERN: &str = r"\Asystem:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]\z";
/// Maximum number of characters that follow the prefix of an extra group.
const MAX_EXTRA_GROUP: usize = 256;

/// A bearer token of the form `ID.SECRET`.
#[derive(Clone, Copy)]
pub struct BootstrapToken<'a> {
    pub id: &'a str,
    pub secret: &'a str,
}

impl<'a> BootstrapToken<'a> {
    /// Recognizes a token by its form: six and sixteen lower-case letters or digits.
    pub fn parse(token: &'a str) -> Option<Self> {
        let (id, secret) = token.split_once('.')?;
        (is_part(id, ID_LENGTH) && is_part(secret, SECRET_LENGTH)).then_some(BootstrapToken { id, secret })
    }

    /// The name of the Secret that holds the token.
    pub fn secret_name(&self) -> String {
        format!("{NAME_PREFIX}{}", self.id)
    }
}

fn is_part(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

/// The content of a Secret that holds a bootstrap token.
#[derive(Clone, PartialEq, Eq)]
pub struct BootstrapTokenSecret {
    /// The ID in the name of the Secret; `None` if the name has another form.
    pub id_of_name: Option<Str>,
    /// The Secret waits for its finalizers.
    pub is_deleting: bool,
    pub id: Vec<u8>,
    pub secret: Vec<u8>,
    pub expiry: TokenExpiry,
    /// The token may be used as a bearer token.
    pub allows_authentication: bool,
    /// The ConfigMap `cluster-info` is signed with the token.
    pub allows_signing: bool,
    extra_groups: Vec<u8>,
}

/// The end of a token's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenExpiry {
    Never,
    At(Timestamp),
    /// The field is no time in RFC 3339; the token counts as expired.
    Unreadable,
}

impl TokenExpiry {
    fn parse(text: &[u8]) -> Self {
        if text.is_empty() {
            return TokenExpiry::Never;
        }
        let time = std::str::from_utf8(text).ok().and_then(|text| Timestamp::parse(text).ok());
        time.map_or(TokenExpiry::Unreadable, TokenExpiry::At)
    }

    /// Microseconds until the token expires, zero if it has expired, `None` if it never does. `now` is in microseconds since the Unix
    /// epoch.
    pub fn remaining(self, now: i64) -> Option<u64> {
        match self {
            TokenExpiry::Never => None,
            TokenExpiry::At(time) => Some(u64::try_from(time.micros().saturating_sub(now)).unwrap_or(0)),
            TokenExpiry::Unreadable => Some(0),
        }
    }

    /// Reports whether the token has expired at `now`, in microseconds since the Unix epoch.
    pub fn has_passed(self, now: i64) -> bool {
        self.remaining(now) == Some(0)
    }
}

impl BootstrapTokenSecret {
    /// Reads a Secret; `None` if it has another type.
    pub fn of(secret: &Value) -> Option<Self> {
        if secret.str_at(&["type"]) != Some(SECRET_TYPE) {
            return None;
        }
        let data = |key: &str| {
            let text = secret.str_at(&["data", key]).unwrap_or_default();
            base64::STD.decode(text).unwrap_or_default()
        };
        Some(BootstrapTokenSecret {
            id_of_name: meta::name(secret)
                .strip_prefix(NAME_PREFIX)
                .filter(|id| is_part(id, ID_LENGTH))
                .map(Str::from),
            is_deleting: meta::is_deleting(secret),
            id: data("token-id"),
            secret: data("token-secret"),
            expiry: TokenExpiry::parse(&data("expiration")),
            allows_authentication: data("usage-bootstrap-authentication") == b"true",
            allows_signing: data("usage-bootstrap-signing") == b"true",
            extra_groups: data("auth-extra-groups"),
        })
    }

    /// The groups of the token's user, sorted and without duplicates. An error names the first invalid group.
    pub fn groups(&self) -> Result<Vec<Str>, String> {
        let mut groups = vec![Str::new_static(GROUP)];
        if !self.extra_groups.is_empty() {
            for group in self.extra_groups.split(|byte| *byte == b',') {
                groups.push(extra_group(group)?);
            }
        }
        groups.sort_unstable();
        groups.dedup();
        Ok(groups)
    }
}

/// Shows no part of the token but its ID.
impl std::fmt::Debug for BootstrapTokenSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BootstrapTokenSecret({})", String::from_utf8_lossy(&self.id))
    }
}

fn extra_group(name: &[u8]) -> Result<Str, String> {
    let is_allowed = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b":-".contains(byte);
    let rest = name.strip_prefix(EXTRA_GROUP_PREFIX.as_bytes()).unwrap_or_default();
    let is_valid = rest.len() <= MAX_EXTRA_GROUP
        && rest.last().is_some_and(u8::is_ascii_alphanumeric)
        && rest.iter().all(is_allowed);
    match std::str::from_utf8(name) {
        Ok(name) if is_valid => Ok(name.into()),
        _ => {
            let name = field::quote(&String::from_utf8_lossy(name));
            Err(format!("bootstrap group {name} is invalid (must match {EXTRA_GROUP_PATTERN})"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(data: &[(&str, &str)]) -> BootstrapTokenSecret {
        let mut object = value::json::parse(
            br#"{"metadata": {"name": "bootstrap-token-abcdef"}, "type": "bootstrap.kubernetes.io/token"}"#,
        )
        .unwrap();
        for (key, text) in data {
            object.set_at(&["data", key], base64::STD.encode(text));
        }
        BootstrapTokenSecret::of(&object).unwrap()
    }

    #[test]
    fn only_six_and_sixteen_letters_or_digits_are_a_bootstrap_token() {
        let token = BootstrapToken::parse("abc123.0123456789abcdef").unwrap();
        assert_eq!((token.id, token.secret), ("abc123", "0123456789abcdef"));
        assert_eq!(token.secret_name(), "bootstrap-token-abc123");
        for other in [
            "abc12.0123456789abcdef",
            "abc123.0123456789abcde",
            "abc123.0123456789abcdef0",
            "ABC123.0123456789abcdef",
            "abc123.0123456789abcde!",
            "abc123.0123456789abcdef\n",
            "abc123.0123456789.bcdef",
            "abc1230123456789abcdef",
            "",
        ] {
            assert!(BootstrapToken::parse(other).is_none(), "{other:?}");
        }
    }

    #[test]
    fn secrets_of_other_types_hold_no_bootstrap_token() {
        let other =
            value::json::parse(br#"{"metadata": {"name": "bootstrap-token-abcdef"}, "type": "Opaque"}"#);
        assert!(BootstrapTokenSecret::of(&other.unwrap()).is_none());
        assert_eq!(secret(&[]).id_of_name.as_deref(), Some("abcdef"));
    }

    #[test]
    fn a_token_expires_at_its_time_and_at_once_if_that_is_unreadable() {
        let at = |text: &str| secret(&[("expiration", text)]).expiry;
        assert_eq!(at("").remaining(0), None);
        assert_eq!(at("1970-01-01T00:00:02Z").remaining(500_000), Some(1_500_000));
        assert!(!at("1970-01-01T01:00:02+01:00").has_passed(1_999_999));
        assert!(at("1970-01-01T00:00:02Z").has_passed(2_000_000));
        assert!(at("tomorrow").has_passed(0));
    }

    #[test]
    fn extra_groups_are_sorted_and_must_have_the_prefix_of_bootstrappers() {
        let groups = |text: &str| secret(&[("auth-extra-groups", text)]).groups();
        assert_eq!(groups("").unwrap(), ["system:bootstrappers"]);
        assert_eq!(
            groups("system:bootstrappers:b:c,system:bootstrappers:a-1,system:bootstrappers:a-1").unwrap(),
            ["system:bootstrappers", "system:bootstrappers:a-1", "system:bootstrappers:b:c"]
        );
        let mut long = format!("system:bootstrappers:{}", "a".repeat(257));
        for invalid in [
            "system:masters",
            "system:bootstrappers",
            "system:bootstrappers:",
            "system:bootstrappers:a-",
            "system:bootstrappers:A",
            "system:bootstrappers:a,",
            &long,
        ] {
            let error = groups(invalid).unwrap_err();
            assert!(error.contains(EXTRA_GROUP_PATTERN), "{invalid}: {error}");
        }
        long.pop();
        assert!(groups(&long).is_ok());
    }

    #[test]
    fn debug_output_does_not_contain_the_secret() {
        let token = secret(&[("token-id", "abcdef"), ("token-secret", "0123456789abcdef")]);
        assert_eq!(format!("{token:?}"), "BootstrapTokenSecret(abcdef)");
    }
}
