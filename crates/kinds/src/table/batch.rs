//! `batch`.

use super::{Field, Fields, Resource, SubresourceRow};

pub(super) const RESOURCES: &[Resource] = &[
    Resource {
        kind: "CronJob",
        plural: "cronjobs",
        singular: "cronjob",
        short_names: &["cj"],
        subresources: &[SubresourceRow::status("CronJob")],
        ..WORKLOAD
    },
    Resource {
        kind: "Job",
        plural: "jobs",
        singular: "job",
        subresources: &[SubresourceRow::status("Job")],
        fields: Fields::These(&[
            Field::NAME,
            Field::NAMESPACE,
            Field { default: "0", ..Field::new("status.successful", &[&["status", "succeeded"]]) },
        ]),
        ..WORKLOAD
    },
];

const WORKLOAD: Resource = Resource { group: "batch", categories: &["all"], ..Resource::NAMESPACED };
