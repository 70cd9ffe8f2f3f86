//! A webhook as its configuration describes it, read once when that changes.

use std::collections::HashMap;
use std::time::Duration;

use api::{GroupVersion, GroupVersionKind, meta};
use value::{Str, Value, format_smolstr};

use crate::account::{Account, FREE, together};
use crate::matching::{Conditions, Criteria};
use crate::webhook::{Recipient, Target};

/// A webhook.
#[derive(Debug)]
pub struct Hook {
    /// Its name.
    pub name: Str,
    /// The name of its configuration.
    pub configuration: Str,
    /// What tells it from all others, even from those of the same name in its configuration.
    pub uid: Str,
    /// Whether it comes from a manifest file and therefore sees what webhooks of the API must not.
    pub is_static: bool,
    /// Where it is.
    pub target: Target,
    /// What operators may know of it.
    pub account: Account,
    /// Whom tokens are for that are shown to it. INVARIANT: never for one of a manifest file, which has the credentials of a
    /// kubeconfig or none.
    pub recipient: Option<Recipient>,
    pub(super) criteria: Criteria,
    pub(super) conditions: Option<Conditions>,
    /// Whether a request goes on when the webhook cannot be asked.
    pub ignores_failures: bool,
    pub(super) side_effects: SideEffects,
    pub(super) timeout: Option<Duration>,
    /// The first version of reviews among those it takes that this server knows.
    pub(super) version: Option<ReviewVersion>,
    /// Whether it wants to see what later webhooks change.
    pub(super) sees_later_changes: bool,
}

/// What a webhook does besides answering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SideEffects {
    /// It does not say.
    Unsaid,
    /// Nothing that matters in a dry run.
    Safe,
    /// Something, perhaps.
    Unsafe,
}

/// A version of `AdmissionReview`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewVersion {
    /// `admission.k8s.io/v1`.
    V1,
    /// `admission.k8s.io/v1beta1`.
    V1beta1,
}

impl ReviewVersion {
    /// The group of reviews.
    pub const GROUP: &'static str = "admission.k8s.io";

    fn parse(text: &str) -> Option<Self> {
        match text {
            "v1" => Some(ReviewVersion::V1),
            "v1beta1" => Some(ReviewVersion::V1beta1),
            _ => None,
        }
    }

    /// The version's name.
    pub fn as_str(self) -> &'static str {
        match self {
            ReviewVersion::V1 => "v1",
            ReviewVersion::V1beta1 => "v1beta1",
        }
    }

    pub(super) fn api_version(self) -> &'static str {
        match self {
            ReviewVersion::V1 => "admission.k8s.io/v1",
            ReviewVersion::V1beta1 => "admission.k8s.io/v1beta1",
        }
    }

    pub(super) fn group_version(self) -> GroupVersion {
        GroupVersion::new(Self::GROUP, self.as_str())
    }

    pub(super) fn kind(self) -> GroupVersionKind {
        self.group_version().kind("AdmissionReview")
    }
}

/// The fields of a webhook that say what it is about.
const MATCHING: &[&str] = &["rules", "namespaceSelector", "objectSelector", "matchPolicy", "matchConditions"];

/// The webhooks of one configuration, in its order. The configuration has been validated and has its defaults.
pub(super) fn hooks(configuration: &Value, is_static: bool) -> Vec<Hook> {
    let name = Str::from(meta::name(configuration));
    let mut times: HashMap<Str, usize> = HashMap::new();
    configuration
        .list_at(&["webhooks"])
        .iter()
        .map(|hook| {
            let hook_name = Str::from(hook.str_at(&["name"]).unwrap_or_default());
            // Old configurations may hold one name twice.
            let earlier = times.entry(hook_name.clone()).or_default();
            let uid = format_smolstr!("{name}/{hook_name}/{earlier}");
            *earlier += 1;
            let account = Account::new(configuration, hook, MATCHING, FREE);
            let recipient = if is_static { None } else { Recipient::read(configuration, hook) };
            Hook { recipient, ..read(hook, hook_name, name.clone(), uid, account, is_static) }
        })
        .collect()
}

fn read(
    hook: &Value,
    name: Str,
    configuration: Str,
    uid: Str,
    mut account: Account,
    is_static: bool,
) -> Hook {
    let conditions = Conditions::of_webhook(hook);
    account.estimate = together(conditions.iter().flat_map(Conditions::estimates));
    let text = |field: &str| hook.str_at(&[field]);
    let seconds = hook.int_at(&["timeoutSeconds"]).and_then(|seconds| u64::try_from(seconds).ok());
    let mut versions = hook.list_at(&["admissionReviewVersions"]).iter().filter_map(Value::as_str);
    Hook {
        name,
        configuration,
        uid,
        is_static,
        account,
        target: Target::read(hook.get("clientConfig")),
        recipient: None,
        criteria: Criteria::of_webhook(hook),
        conditions,
        ignores_failures: text("failurePolicy") == Some("Ignore"),
        side_effects: match text("sideEffects") {
            None => SideEffects::Unsaid,
            Some("None" | "NoneOnDryRun") => SideEffects::Safe,
            Some(_) => SideEffects::Unsafe,
        },
        timeout: seconds.map(Duration::from_secs),
        version: versions.find_map(ReviewVersion::parse),
        sees_later_changes: text("reinvocationPolicy") == Some("IfNeeded"),
    }
}
