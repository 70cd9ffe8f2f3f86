//! Admission: the chain of plugins, with the policies, webhooks and quotas that it applies.

use std::sync::Arc;

use ::admission::{Chain, Meter};

use crate::admission::informers::Informers;
use crate::admission::quota::Quotas;
use crate::admission::registered::RegisteredWebhooks;
use crate::admission::webhooks::WebhookTokens;
use crate::cluster::{Parsed, Shown};
use crate::manifests::Standings;

/// The admission subsystem.
pub struct Admission {
    pub chain: Chain,
    pub(crate) quotas: Arc<Quotas>,
    /// The policies and bindings in force, stored and static.
    pub(crate) policies: Informers,
    /// The webhooks in force, stored and static.
    pub(crate) webhooks: RegisteredWebhooks,
    /// The tokens that authenticate this server to webhooks, if it sends any.
    pub(crate) webhook_tokens: Option<Arc<WebhookTokens>>,
    /// The state of each folder of static manifests.
    pub(crate) manifests: Arc<Standings>,
    /// The clock and the metrics of admission.
    pub(crate) meter: Arc<dyn Meter>,
    /// Decoded objects that plugins look up often.
    pub(crate) parsed: Parsed,
    /// Parameters of policies, converted to the version that the policy names.
    pub(crate) shown: Shown,
}
