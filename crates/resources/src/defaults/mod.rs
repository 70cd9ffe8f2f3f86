//! Defaults: what an object that leaves a field out means.
//!
//! One ordered table, one function per kind. A function changes the decoded object in place and is idempotent.

pub mod apps;
pub mod autoscaling;
pub mod batch;
pub(crate) mod fields;
pub(crate) mod image;
pub mod pod;
pub(crate) mod quantities;

use api::GroupKind;
use value::Value;

/// Fills in the defaults of one kind.
pub type Defaults = fn(&mut Value);

/// Every kind with defaults, at the version it is stored in.
const TABLE: &[(&str, &str, Defaults)] = &[
    ("", "Pod", pod::pod),
    ("", "PodTemplate", pod::pod_template),
    ("", "ReplicationController", apps::replication_controller),
    ("apps", "DaemonSet", apps::daemon_set),
    ("apps", "Deployment", apps::deployment),
    ("apps", "ReplicaSet", apps::replica_set),
    ("apps", "StatefulSet", apps::stateful_set),
    ("autoscaling", "HorizontalPodAutoscaler", autoscaling::horizontal_pod_autoscaler),
    ("batch", "CronJob", batch::cron_job),
    ("batch", "Job", batch::job),
];

/// Fills in the defaults of `object`, which is of `kind` at its stored version.
pub fn apply(kind: &GroupKind, object: &mut Value) {
    if let Some((_, _, defaults)) = TABLE.iter().find(|(g, k, _)| *g == kind.group && *k == kind.kind) {
        defaults(object);
    }
}
