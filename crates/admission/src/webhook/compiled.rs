//! A webhook, compiled from its configuration when that changes.

use std::collections::HashMap;
use std::time::Duration;

use api::attestation::WebhookConfigurationKind;
use api::{GroupVersion, GroupVersionKind, meta};
use value::{Str, Value, format_smolstr};

use crate::inventory::{InventoryEntry, ZERO_COST, sum_estimates};
use crate::matching::{MatchConditions, MatchCriteria};
use crate::webhook::{TokenRecipient, WebhookTarget};

#[derive(Debug)]
pub struct Webhook {
    pub name: Str,
    /// The name of its configuration object.
    pub configuration: Str,
    /// Unique among all webhooks, even if a name occurs twice in a configuration.
    pub uid: Str,
    /// Whether it comes from a manifest file. Such webhooks also intercept kinds that are exempt from those
    /// of the API.
    pub is_static: bool,
    pub target: WebhookTarget,
    pub inventory: InventoryEntry,
    /// The recipient of tokens that are sent to the webhook. INVARIANT: `None` for a webhook from a manifest
    /// file, which uses the credentials of a kubeconfig, if any.
    pub recipient: Option<TokenRecipient>,
    pub(super) criteria: MatchCriteria,
    pub(super) conditions: Option<MatchConditions>,
    /// Whether the webhook has `failurePolicy: Ignore`.
    pub ignores_failures: bool,
    pub(super) side_effects: SideEffects,
    pub(super) timeout: Option<Duration>,
    /// The first of its `admissionReviewVersions` that this server supports.
    pub(super) version: Option<AdmissionReviewVersion>,
    /// Whether the webhook has `reinvocationPolicy: IfNeeded`.
    pub(super) reinvoke_if_needed: bool,
}

/// The value of `sideEffects`, as far as dry runs are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SideEffects {
    Unset,
    /// Either `None` or `NoneOnDryRun`.
    NoneOnDryRun,
    /// Either `Some` or `Unknown`.
    Possible,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionReviewVersion {
    V1,
    V1beta1,
}

impl AdmissionReviewVersion {
    /// The API group of `AdmissionReview`.
    pub const GROUP: &'static str = "admission.k8s.io";

    fn parse(text: &str) -> Option<Self> {
        match text {
            "v1" => Some(AdmissionReviewVersion::V1),
            "v1beta1" => Some(AdmissionReviewVersion::V1beta1),
            _ => None,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            AdmissionReviewVersion::V1 => "v1",
            AdmissionReviewVersion::V1beta1 => "v1beta1",
        }
    }

    pub(super) fn api_version(self) -> &'static str {
        match self {
            AdmissionReviewVersion::V1 => "admission.k8s.io/v1",
            AdmissionReviewVersion::V1beta1 => "admission.k8s.io/v1beta1",
        }
    }

    pub(super) fn group_version(self) -> GroupVersion {
        GroupVersion::new(Self::GROUP, self.as_str())
    }

    pub(super) fn kind(self) -> GroupVersionKind {
        self.group_version().kind("AdmissionReview")
    }
}

/// The fields of a webhook that select requests.
const MATCHING: &[&str] = &["rules", "namespaceSelector", "objectSelector", "matchPolicy", "matchConditions"];

/// The webhooks of one configuration, in order. The configuration has been validated and defaulted. `stored` is the kind of a stored
/// configuration, and `None` for one of a manifest file.
pub(super) fn compile_webhooks(
    configuration: &Value,
    stored: Option<WebhookConfigurationKind>,
) -> Vec<Webhook> {
    let name = Str::from(meta::name(configuration));
    let mut times: HashMap<Str, usize> = HashMap::new();
    configuration
        .list_at(&["webhooks"])
        .iter()
        .map(|webhook| {
            let webhook_name = Str::from(webhook.str_at(&["name"]).unwrap_or_default());
            // Configurations from old versions can contain a name twice.
            let earlier = times.entry(webhook_name.clone()).or_default();
            let uid = format_smolstr!("{name}/{webhook_name}/{earlier}");
            *earlier += 1;
            let inventory = InventoryEntry::new(configuration, webhook, MATCHING, ZERO_COST);
            let recipient = stored.and_then(|kind| TokenRecipient::read(kind, configuration, webhook));
            let is_static = stored.is_none();
            Webhook { recipient, ..read(webhook, webhook_name, name.clone(), uid, inventory, is_static) }
        })
        .collect()
}

fn read(
    webhook: &Value,
    name: Str,
    configuration: Str,
    uid: Str,
    mut inventory: InventoryEntry,
    is_static: bool,
) -> Webhook {
    let conditions = MatchConditions::of_webhook(webhook);
    inventory.estimate = sum_estimates(conditions.iter().flat_map(MatchConditions::estimates));
    let text = |field: &str| webhook.str_at(&[field]);
    let seconds = webhook.int_at(&["timeoutSeconds"]).and_then(|seconds| u64::try_from(seconds).ok());
    let mut versions = webhook.list_at(&["admissionReviewVersions"]).iter().filter_map(Value::as_str);
    Webhook {
        name,
        configuration,
        uid,
        is_static,
        inventory,
        target: WebhookTarget::read(webhook.get("clientConfig")),
        recipient: None,
        criteria: MatchCriteria::of_webhook(webhook),
        conditions,
        ignores_failures: text("failurePolicy") == Some("Ignore"),
        side_effects: match text("sideEffects") {
            None => SideEffects::Unset,
            Some("None" | "NoneOnDryRun") => SideEffects::NoneOnDryRun,
            Some(_) => SideEffects::Possible,
        },
        timeout: seconds.map(Duration::from_secs),
        version: versions.find_map(AdmissionReviewVersion::parse),
        reinvoke_if_needed: text("reinvocationPolicy") == Some("IfNeeded"),
    }
}
