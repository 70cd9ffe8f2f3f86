//! Row of the `node.k8s.io` group.

use super::{KindBehavior, Resource};
use crate::strategy::table as strategy;
use crate::{print, validation, warnings};

pub(super) const RESOURCES: &[Resource] = &[Resource {
    group: "node.k8s.io",
    kind: "RuntimeClass",
    plural: "runtimeclasses",
    singular: "runtimeclass",
    ..Resource::cluster(KindBehavior {
        defaults: None,
        rules: Some(validation::cluster::RUNTIME_CLASS),
        strategy: Some(strategy::RUNTIME_CLASS),
        warnings: Some(warnings::runtime_class),
        status_warnings: None,
        columns: Some(print::node::RUNTIME_CLASS),
    })
}];
