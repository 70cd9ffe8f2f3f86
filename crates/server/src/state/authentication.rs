//! Authentication: client certificates, tokens, the front proxy, impersonation, and the issuer of service account tokens.

use arc_swap::ArcSwap;
use authn::Authenticator;
use authn::impersonation::LastModes;

use crate::tokens::Tokens;
use crate::trust::Trust;

/// The authentication subsystem. Its swappable parts are replaced when the files behind them change.
pub struct Authenticators {
    pub authenticator: ArcSwap<Authenticator>,
    /// The authorities of client certificates and of front proxies.
    pub trust: ArcSwap<Trust>,
    /// Remembers by which mode each caller was last allowed to impersonate, to try that one first.
    pub impersonations: LastModes,
    /// The issuer of service account tokens, if there is one.
    pub tokens: Option<Tokens>,
}
