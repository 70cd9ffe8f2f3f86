//! Rows of the `batch` group.

use super::{KindBehavior, Resource, SelectableField, SelectableFields, SubresourceRow};
use crate::strategy::table as strategy;
use crate::{defaults, print, validation, warnings};

pub(super) const RESOURCES: &[Resource] = &[
    Resource {
        kind: "CronJob",
        plural: "cronjobs",
        singular: "cronjob",
        short_names: &["cj"],
        subresources: &[SubresourceRow::status("CronJob")],
        ..workload(KindBehavior {
            defaults: Some(defaults::batch::cron_job),
            rules: Some(validation::batch::CRON_JOB),
            strategy: Some(strategy::CRON_JOB),
            warnings: Some(warnings::cron_job),
            status_warnings: None,
            columns: Some(print::batch::CRON_JOB),
        })
    },
    Resource {
        kind: "Job",
        plural: "jobs",
        singular: "job",
        subresources: &[SubresourceRow::status("Job")],
        fields: SelectableFields::These(&[
            SelectableField::NAME,
            SelectableField::NAMESPACE,
            SelectableField {
                default: "0",
                ..SelectableField::new("status.successful", &[&["status", "succeeded"]])
            },
        ]),
        ..workload(KindBehavior {
            defaults: Some(defaults::batch::job),
            rules: Some(validation::batch::JOB),
            strategy: Some(strategy::JOB),
            warnings: Some(warnings::job),
            status_warnings: None,
            columns: Some(print::batch::JOB),
        })
    },
];

const fn workload(behavior: KindBehavior) -> Resource {
    Resource { group: "batch", categories: &["all"], ..Resource::namespaced(behavior) }
}
