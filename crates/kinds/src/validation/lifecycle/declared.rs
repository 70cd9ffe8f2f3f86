//! The declared rules of `lifecycle.k8s.io`, and of the eviction responders of pods.

use crate::validation::declared::Check::{
    LongName, MaxLength, Maximum, Minimum, Monotonic, OneOf, PrefixedLabelKey, UnreservedDomain,
    UnreservedPriority, Uuid,
};
use crate::validation::declared::UpdateRule::{NoModify, NoUnset};
use crate::validation::declared::{DeclaredField, DeclaredList, DeclaredType};

pub(super) static EVICTION_REQUEST_OBJECT: DeclaredType = DeclaredType {
    union: &[],
    fields: &[
        DeclaredField::structure("metadata", &METADATA),
        DeclaredField::structure("spec", &REQUEST),
        DeclaredField::structure("status", &REQUEST_STATUS),
    ],
};

pub(super) static EVICTION_OBJECT: DeclaredType = DeclaredType {
    union: &[],
    fields: &[
        DeclaredField::structure("metadata", &METADATA),
        DeclaredField::structure("spec", &EVICTION),
        DeclaredField::structure("status", &EVICTION_STATUS),
    ],
};

/// The field `evictionResponders` of a pod's spec.
pub(in crate::validation) static EVICTION_RESPONDERS: DeclaredType = DeclaredType {
    union: &[],
    fields: &[DeclaredField::list(
        "evictionResponders",
        10,
        &DeclaredList { key: Some("name"), kind: "v1.EvictionResponder", items: &POD_RESPONDER },
    )],
};

const MAX_CONDITIONS: usize = 100;
const MAX_REQUESTERS: usize = 100;
/// Maximum number of responders: those of a pod, and one of Kubernetes' own.
pub(super) const MAX_RESPONDERS: usize = 11;
const MAX_PRIORITY: i64 = 100_000;
/// Maximum length of a responder's message, in characters.
const MAX_MESSAGE: usize = 4000;
const INTENTS: &[&str] = &["Eviction", "Withdrawn"];

static METADATA: DeclaredType =
    DeclaredType { union: &[], fields: &[DeclaredField::plain("name", &[LongName])] };

static REQUEST: DeclaredType = DeclaredType {
    union: &[],
    fields: &[
        DeclaredField::structure("target", &TARGET).immutable(),
        DeclaredField::plain("requester", &[UnreservedDomain, PrefixedLabelKey]).required().immutable(),
        DeclaredField::plain("intent", &[OneOf(INTENTS)]).required(),
    ],
};

static EVICTION: DeclaredType =
    DeclaredType { union: &[], fields: &[DeclaredField::structure("target", &TARGET).immutable()] };

static TARGET: DeclaredType =
    DeclaredType { union: &["pod"], fields: &[DeclaredField::pointer_to("pod", &POD_REFERENCE)] };

static POD_REFERENCE: DeclaredType = DeclaredType {
    union: &[],
    fields: &[
        DeclaredField::plain("name", &[LongName]).required(),
        DeclaredField::plain("uid", &[Uuid]).required(),
    ],
};

/// The rules about conditions are not declared, except for their number.
const CONDITIONS: DeclaredField = DeclaredField::list("conditions", MAX_CONDITIONS, &CONDITION_LIST);

static CONDITION_LIST: DeclaredList = DeclaredList { key: None, kind: "v1.Condition", items: &CONDITION };

static CONDITION: DeclaredType = DeclaredType { union: &[], fields: &[] };

const OBSERVED_GENERATION: DeclaredField =
    DeclaredField::pointer("observedGeneration", &[Minimum(1), Monotonic]).updates(&[NoUnset]);

static REQUEST_STATUS: DeclaredType = DeclaredType { union: &[], fields: &[CONDITIONS, OBSERVED_GENERATION] };

static EVICTION_STATUS: DeclaredType = DeclaredType {
    union: &[],
    fields: &[
        CONDITIONS,
        OBSERVED_GENERATION,
        DeclaredField::list(
            "requesters",
            MAX_REQUESTERS,
            &DeclaredList { key: Some("name"), kind: "lifecycle.v1alpha1.Requester", items: &REQUESTER },
        ),
        DeclaredField::list(
            "targetResponders",
            MAX_RESPONDERS,
            &DeclaredList {
                key: Some("name"),
                kind: "lifecycle.v1alpha1.TargetResponder",
                items: &TARGET_RESPONDER,
            },
        ),
        DeclaredField::list(
            "responders",
            MAX_RESPONDERS,
            &DeclaredList {
                key: Some("name"),
                kind: "lifecycle.v1alpha1.ResponderStatus",
                items: &RESPONDER_STATUS,
            },
        ),
    ],
};

static REQUESTER: DeclaredType = DeclaredType {
    union: &[],
    fields: &[
        DeclaredField::plain("name", &[PrefixedLabelKey]).required(),
        DeclaredField::plain("intent", &[OneOf(INTENTS)]).required(),
    ],
};

static TARGET_RESPONDER: DeclaredType = DeclaredType {
    union: &[],
    fields: &[
        DeclaredField::plain("name", &[PrefixedLabelKey]).required(),
        DeclaredField::pointer("priority", &[Maximum(MAX_PRIORITY), Minimum(0)])
            .required()
            .updates(&[NoUnset, NoModify]),
        DeclaredField::plain(
            "state",
            &[OneOf(&["Active", "Canceled", "Completed", "Inactive", "Interrupted"])],
        )
        .required(),
    ],
};

static RESPONDER_STATUS: DeclaredType = DeclaredType {
    union: &[],
    fields: &[
        DeclaredField::plain("name", &[PrefixedLabelKey]).required(),
        DeclaredField::pointer("startTime", &[]).updates(&[NoUnset, NoModify]),
        DeclaredField::pointer("completionTime", &[]).updates(&[NoUnset, NoModify]),
        DeclaredField::pointer("message", &[MaxLength(MAX_MESSAGE)]),
    ],
};

static POD_RESPONDER: DeclaredType = DeclaredType {
    union: &[],
    fields: &[
        DeclaredField::plain("name", &[UnreservedDomain, PrefixedLabelKey]).required(),
        DeclaredField::pointer("priority", &[UnreservedPriority, Maximum(MAX_PRIORITY), Minimum(0)])
            .required(),
    ],
};
