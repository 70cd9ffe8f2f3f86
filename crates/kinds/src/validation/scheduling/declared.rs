//! The declared rules of `scheduling.k8s.io`. Both versions have the same.

use api::features::Feature::{CompositePodGroup, TopologyAwareWorkloadScheduling};

use crate::validation::declared::Check::{
    LabelKey, LongName, Maximum, Minimum, OneOf, PathSegment, ShortName,
};
use crate::validation::declared::UpdateRule::{NoAddItem, NoRemoveItem, NoSet, NoUnset};
use crate::validation::declared::{DeclaredField, DeclaredList, DeclaredType};

pub(super) static WORKLOAD_OBJECT: DeclaredType =
    DeclaredType { union: &[], fields: &[DeclaredField::structure("spec", &WORKLOAD)] };

pub(super) static POD_GROUP_OBJECT: DeclaredType = DeclaredType {
    union: &[],
    fields: &[
        DeclaredField::structure("spec", &POD_GROUP),
        DeclaredField::structure("status", &POD_GROUP_STATUS),
    ],
};

pub(super) static COMPOSITE_POD_GROUP_OBJECT: DeclaredType =
    DeclaredType { union: &[], fields: &[DeclaredField::structure("spec", &COMPOSITE_POD_GROUP)] };

/// Highest priority of classes that users create (`HighestUserDefinablePriority`).
const MAX_PRIORITY: i64 = 1_000_000_000;
const MAX_TEMPLATES: usize = 8;
const MAX_CLAIMS: usize = 4;

static WORKLOAD: DeclaredType = DeclaredType {
    union: &["podGroupTemplates", "compositePodGroupTemplates"],
    fields: &[
        DeclaredField::pointer_to("controllerRef", &CONTROLLER).immutable(),
        DeclaredField::list("podGroupTemplates", MAX_TEMPLATES, &TEMPLATES)
            .updates(&[NoAddItem, NoRemoveItem]),
        DeclaredField::list("compositePodGroupTemplates", MAX_TEMPLATES, &COMPOSITE_TEMPLATES)
            .with(CompositePodGroup)
            .updates(&[NoAddItem, NoRemoveItem]),
    ],
};

static TEMPLATES: DeclaredList =
    DeclaredList { key: Some("name"), kind: "scheduling.v1alpha3.PodGroupTemplate", items: &TEMPLATE };
static COMPOSITE_TEMPLATES: DeclaredList = DeclaredList {
    key: Some("name"),
    kind: "scheduling.v1alpha3.CompositePodGroupTemplate",
    items: &COMPOSITE_TEMPLATE,
};
static CLAIMS: DeclaredList =
    DeclaredList { key: Some("name"), kind: "scheduling.v1alpha3.PodGroupResourceClaim", items: &CLAIM };
static CLAIM_STATUSES: DeclaredList = DeclaredList {
    key: Some("name"),
    kind: "scheduling.v1alpha3.PodGroupResourceClaimStatus",
    items: &CLAIM_STATUS,
};
static TOPOLOGY: DeclaredList =
    DeclaredList { key: None, kind: "scheduling.v1alpha3.TopologyConstraint", items: &TOPOLOGY_CONSTRAINT };

static CONTROLLER: DeclaredType = DeclaredType {
    union: &[],
    fields: &[
        DeclaredField::plain("apiGroup", &[LongName]),
        DeclaredField::plain("kind", &[PathSegment]).required(),
        DeclaredField::plain("name", &[PathSegment]).required(),
    ],
};

static TEMPLATE: DeclaredType = DeclaredType {
    union: &[],
    fields: &[
        DeclaredField::plain("name", &[ShortName]).required(),
        DeclaredField::structure("schedulingPolicy", &POLICY),
        DeclaredField::pointer_to("schedulingConstraints", &CONSTRAINTS)
            .with(TopologyAwareWorkloadScheduling)
            .immutable(),
        DeclaredField::list("resourceClaims", MAX_CLAIMS, &CLAIMS).immutable(),
        DeclaredField::pointer_to("disruptionMode", &DISRUPTION).immutable(),
        DeclaredField::plain("priorityClassName", &[LongName]).immutable(),
        DeclaredField::pointer("priority", &[Maximum(MAX_PRIORITY)]).immutable(),
        PREEMPTION_POLICY,
    ],
};

static COMPOSITE_TEMPLATE: DeclaredType = DeclaredType {
    union: &[],
    fields: &[
        DeclaredField::plain("name", &[ShortName]).required(),
        DeclaredField::structure("schedulingPolicy", &COMPOSITE_POLICY),
        DeclaredField::pointer_to("schedulingConstraints", &CONSTRAINTS).immutable(),
        DeclaredField::pointer_to("disruptionMode", &DISRUPTION).immutable(),
        DeclaredField::plain("priorityClassName", &[LongName]).immutable(),
        DeclaredField::pointer("priority", &[Maximum(MAX_PRIORITY)]).immutable(),
        PREEMPTION_POLICY,
        DeclaredField::list("podGroupTemplates", MAX_TEMPLATES, &TEMPLATES)
            .updates(&[NoAddItem, NoRemoveItem]),
        DeclaredField::list("compositePodGroupTemplates", MAX_TEMPLATES, &COMPOSITE_TEMPLATES)
            .updates(&[NoAddItem, NoRemoveItem]),
    ],
};

/// `PodGroupPreemptionPolicy` is off in 1.37.
const PREEMPTION_POLICY: DeclaredField =
    DeclaredField::pointer("preemptionPolicy", &[OneOf(&["Never", "PreemptLowerPriority"])])
        .never()
        .immutable();

static POD_GROUP: DeclaredType = DeclaredType {
    union: &[],
    fields: &[
        DeclaredField::pointer("parentCompositePodGroupName", &[LongName])
            .with(CompositePodGroup)
            .immutable(),
        DeclaredField::pointer_to("workloadRef", &WORKLOAD_REFERENCE).immutable(),
        DeclaredField::structure("schedulingPolicy", &POLICY),
        DeclaredField::pointer_to("schedulingConstraints", &CONSTRAINTS)
            .with(TopologyAwareWorkloadScheduling)
            .immutable_if_enabled(),
        DeclaredField::list("resourceClaims", MAX_CLAIMS, &CLAIMS).immutable(),
        DeclaredField::pointer_to("disruptionMode", &DISRUPTION).required().immutable(),
        DeclaredField::plain("priorityClassName", &[LongName]).immutable(),
        DeclaredField::pointer("priority", &[Maximum(MAX_PRIORITY)]).immutable(),
        PREEMPTION_POLICY,
    ],
};

static COMPOSITE_POD_GROUP: DeclaredType = DeclaredType {
    union: &[],
    fields: &[
        DeclaredField::pointer("parentCompositePodGroupName", &[LongName]).immutable(),
        DeclaredField::pointer_to("workloadRef", &WORKLOAD_REFERENCE).required().immutable(),
        DeclaredField::structure("schedulingPolicy", &COMPOSITE_POLICY).immutable(),
        DeclaredField::pointer_to("schedulingConstraints", &CONSTRAINTS).immutable(),
        DeclaredField::pointer_to("disruptionMode", &DISRUPTION).required().immutable(),
        DeclaredField::plain("priorityClassName", &[LongName]).immutable(),
        DeclaredField::pointer("priority", &[Maximum(MAX_PRIORITY)]).immutable(),
        PREEMPTION_POLICY,
    ],
};

static POD_GROUP_STATUS: DeclaredType = DeclaredType {
    union: &[],
    fields: &[DeclaredField::list("resourceClaimStatuses", MAX_CLAIMS, &CLAIM_STATUSES)],
};

static WORKLOAD_REFERENCE: DeclaredType = DeclaredType {
    union: &[],
    fields: &[
        DeclaredField::plain("workloadName", &[LongName]).required(),
        DeclaredField::plain("templateName", &[ShortName]).required(),
    ],
};

static POLICY: DeclaredType = DeclaredType {
    union: &["basic", "gang"],
    fields: &[
        DeclaredField::pointer_to("basic", &EMPTY).immutable(),
        DeclaredField::pointer_to("gang", &GANG).updates(&[NoSet, NoUnset]),
    ],
};

static COMPOSITE_POLICY: DeclaredType = DeclaredType {
    union: &["basic", "gang"],
    fields: &[
        DeclaredField::pointer_to("basic", &EMPTY).immutable(),
        DeclaredField::pointer_to("gang", &COMPOSITE_GANG).updates(&[NoSet, NoUnset]),
    ],
};

static EMPTY: DeclaredType = DeclaredType { union: &[], fields: &[] };

static GANG: DeclaredType =
    DeclaredType { union: &[], fields: &[DeclaredField::plain("minCount", &[Minimum(1)]).required()] };

static COMPOSITE_GANG: DeclaredType =
    DeclaredType { union: &[], fields: &[DeclaredField::plain("minGroupCount", &[Minimum(1)]).required()] };

static CONSTRAINTS: DeclaredType =
    DeclaredType { union: &[], fields: &[DeclaredField::list("topology", 1, &TOPOLOGY)] };

static TOPOLOGY_CONSTRAINT: DeclaredType =
    DeclaredType { union: &[], fields: &[DeclaredField::plain("key", &[LabelKey]).required()] };

static DISRUPTION: DeclaredType = DeclaredType {
    union: &["single", "all"],
    fields: &[DeclaredField::pointer_to("single", &EMPTY), DeclaredField::pointer_to("all", &EMPTY)],
};

static CLAIM: DeclaredType = DeclaredType {
    union: &["resourceClaimName", "resourceClaimTemplateName"],
    fields: &[
        DeclaredField::plain("name", &[ShortName]).required(),
        DeclaredField::pointer("resourceClaimName", &[LongName]),
        DeclaredField::pointer("resourceClaimTemplateName", &[LongName]),
    ],
};

static CLAIM_STATUS: DeclaredType =
    DeclaredType { union: &[], fields: &[DeclaredField::pointer("resourceClaimName", &[LongName])] };
