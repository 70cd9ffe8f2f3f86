//! Reports why a pod is pending, in its `PodScheduled` condition and in an event.

use api::time::Timestamp;
use api::{Status, meta};
use value::Value;

use super::{SCHEDULER_NAME, Scheduler};
use crate::api::{Api, PatchBody, TypedObjectRef};

impl<A: Api> Scheduler<A> {
    /// Sets the `PodScheduled` condition and emits an event, unless the condition already has this message.
    pub(super) async fn report_unschedulable(
        &self,
        object_ref: &TypedObjectRef,
        pod: &Value,
        why: &str,
    ) -> Result<(), Status> {
        self.report_condition(object_ref, pod, "Unschedulable", why).await
    }

    /// Like [`Self::report_unschedulable`], with a given reason for the condition.
    pub(super) async fn report_condition(
        &self,
        object_ref: &TypedObjectRef,
        pod: &Value,
        reason: &str,
        why: &str,
    ) -> Result<(), Status> {
        let conditions = pod.list_at(&["status", "conditions"]);
        let is_reported = conditions.iter().any(|one| {
            one.str_at(&["type"]) == Some("PodScheduled")
                && one.str_at(&["status"]) == Some("False")
                && one.str_at(&["message"]) == Some(why)
        });
        if is_reported {
            return Ok(());
        }
        let now = Timestamp::from_seconds(self.api.now()).time();
        let condition = Value::map([
            ("type", Value::from("PodScheduled")),
            ("status", Value::from("False")),
            ("reason", Value::from(reason)),
            ("message", Value::from(why)),
            ("lastTransitionTime", Value::from(now)),
        ]);
        let mut patch = Value::default();
        patch.set_at(&["metadata", "uid"], meta::uid(pod));
        patch.set_at(&["status", "conditions"], Value::List(vec![condition]));
        match self.api.patch(object_ref, "status", &PatchBody::Strategic(patch)).await {
            Err(status) if status.code() == 404 => Ok(()),
            outcome => outcome.map(drop),
        }?;
        crate::events::warn(&*self.api, pod, "FailedScheduling", why, SCHEDULER_NAME).await;
        Ok(())
    }
}
