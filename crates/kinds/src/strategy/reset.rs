//! Fields that a write cannot set through a given subresource, so no field manager comes to own them there.

use std::sync::LazyLock;

use schema::apply::Reset;

use super::{MetadataOnStatus, StatusHandling, Strategy};

/// Kinds whose reset fields do not follow from their [`Strategy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnReset {
    Pod,
    SigningRequest,
}

macro_rules! without {
    ($($name:ident: $paths:expr;)*) => {
        $(static $name: LazyLock<Reset> = LazyLock::new(|| Reset::without(&$paths));)*
    };
}

static NOTHING: Reset = Reset::Nothing;

without! {
    STATUS: ["status"];
    SPEC: ["spec"];
    SPEC_AND_STATUS: ["spec", "status"];
    SPEC_AND_LABELS: ["spec", "metadata.labels"];
    SPEC_AND_METADATA: ["spec", "metadata"];
    SPEC_AND_CONDITIONS: ["spec", "status.conditions"];
    SPEC_AND_CERTIFICATE: ["spec", "status.certificate"];
    POD_STATUS: ["spec", "metadata.deletionTimestamp", "metadata.ownerReferences"];
}

/// Returns the fields that a write through `subresource` (empty for the object itself) cannot set.
pub fn reset_fields(strategy: Option<&Strategy>, subresource: &str) -> &'static Reset {
    let Some(row) = strategy else { return &NOTHING };
    let is_signing_request = row.reset == Some(OwnReset::SigningRequest);
    match subresource {
        "" if is_signing_request => &SPEC_AND_STATUS,
        "" => match row.status {
            StatusHandling::AsSent => &NOTHING,
            StatusHandling::Reset | StatusHandling::UnchangedOnUpdate => &STATUS,
        },
        "status" if is_signing_request => &SPEC_AND_CONDITIONS,
        "status" if row.reset == Some(OwnReset::Pod) => &POD_STATUS,
        "status" => match row.metadata {
            MetadataOnStatus::AsSent => &SPEC,
            MetadataOnStatus::LabelsUnchanged => &SPEC_AND_LABELS,
            MetadataOnStatus::Unchanged
            | MetadataOnStatus::ApiServiceUnchanged
            | MetadataOnStatus::AllUnchanged => &SPEC_AND_METADATA,
        },
        "approval" => &SPEC_AND_CERTIFICATE,
        "finalize" => &STATUS,
        _ => &NOTHING,
    }
}

/// Counterpart of [`reset_fields`] for custom resources with a `status` subresource. Without it all fields can be set.
pub fn custom_reset_fields(subresource: &str) -> &'static Reset {
    match subresource {
        "" => &STATUS,
        "status" => &SPEC_AND_METADATA,
        _ => &NOTHING,
    }
}
