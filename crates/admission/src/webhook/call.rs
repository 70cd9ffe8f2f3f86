//! One call of one webhook: its errors, metrics and failure policy.

use std::sync::Arc;
use std::time::Duration;

use api::Status;
use api::field::quote;
use value::Value;

use crate::matching::{MatchedResource, RequestContext};
use crate::metrics::metrics_for;
use crate::webhook::compiled::SideEffects;
use crate::webhook::denial::{denial, dry_run_unsupported};
use crate::webhook::response::{ReviewResponse, verify};
use crate::webhook::review::{ReviewInput, review};
use crate::webhook::{OutgoingReview, Transport, TransportError, Webhook, reply};
use crate::{
    AdmissionAttributes, AdmissionMetrics, AdmissionNotes, AdmissionPhase, WebhookLabels, WebhookRejection,
};

#[derive(Clone)]
pub(super) struct WebhookCaller {
    pub(super) transport: Arc<dyn Transport>,
    pub(super) metrics: Arc<dyn AdmissionMetrics>,
}

/// A webhook call that did not admit the request.
#[derive(Debug)]
pub(super) enum CallFailure {
    /// The call failed or the response is invalid; the failure policy applies.
    Calling {
        /// The message that kube-apiserver returns.
        reason: String,
        /// The status code in metrics.
        code: u16,
    },
    /// The webhook denied the request.
    Denied(Status),
    /// The response cannot be applied, or the webhook does not support dry run. Rejects the request regardless of the
    /// failure policy.
    Internal(Status),
}

impl CallFailure {
    fn calling(reason: impl Into<String>, code: u16) -> Self {
        CallFailure::Calling { reason: reason.into(), code }
    }
}

/// A request as a webhook sees it: objects are in the version that the webhook's rules name.
pub(super) struct WebhookInvocation<'a> {
    pub(super) matched: &'a MatchedResource,
    pub(super) object: Option<&'a Value>,
    pub(super) old_object: Option<&'a Value>,
}

impl WebhookCaller {
    /// Calls a webhook and adds its warnings and audit annotations to `notes`. A denial is an error.
    pub(super) async fn call(
        &self,
        webhook: &Webhook,
        phase: AdmissionPhase,
        context: &RequestContext<'_>,
        invocation: &WebhookInvocation<'_>,
        notes: &mut AdmissionNotes,
    ) -> Result<ReviewResponse, CallFailure> {
        if webhook.is_static {
            notes.manifests.record_webhook(&webhook.configuration);
        }
        let attributes = context.attributes;
        if attributes.dry_run {
            match webhook.side_effects {
                SideEffects::NoneOnDryRun => {}
                SideEffects::Unset => return Err(CallFailure::calling("Webhook SideEffects is nil", 400)),
                SideEffects::Possible => {
                    return Err(CallFailure::Internal(dry_run_unsupported(&webhook.name)));
                }
            }
        }
        let version = webhook.version.ok_or_else(|| {
            let why = "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)";
            CallFailure::calling(why, 400)
        })?;
        let uid = self.transport.new_uid();
        let question = ReviewInput {
            kind: &invocation.matched.kind,
            resource: &invocation.matched.resource,
            version: &invocation.matched.version,
            namespace: context.namespace(),
            object: invocation.object,
            old_object: invocation.old_object,
        };
        let outgoing = OutgoingReview {
            target: &webhook.target,
            // A webhook for TokenRequests is called without a token about the server's own TokenRequest,
            // which would otherwise wait for itself.
            recipient: webhook.recipient.as_ref().filter(|_| !attributes.is_for_own_token()),
            body: review(version, &uid, attributes, &question),
            timeout: webhook.timeout,
            deadline: attributes.deadline,
        };
        let reply = self.transport.send(outgoing).await.map_err(|error| match error {
            TransportError::Unusable(why) => {
                CallFailure::calling(format!("could not get REST client: {why}"), 500)
            }
            TransportError::Failed(why) => {
                CallFailure::calling(format!("failed to call webhook: {why}"), 503)
            }
        })?;
        let review = reply::read(&reply, version).map_err(|unread| {
            CallFailure::calling(format!("failed to call webhook: {}", unread.message), unread.code)
        })?;
        let response = verify(version, &uid, phase == AdmissionPhase::Mutating, &review)
            .map_err(|why| CallFailure::calling(format!("received invalid webhook response: {why}"), 503))?;
        for (key, value) in &response.annotations {
            let key = format!("{}/{key}", webhook.name);
            if is_annotation_key(&key) {
                notes.annotate(key, value.clone());
            }
        }
        response.warnings.iter().for_each(|text| notes.warn(text.as_str()));
        if response.allowed {
            Ok(response)
        } else {
            Err(CallFailure::Denied(denial(&webhook.name, response.result.as_ref())))
        }
    }

    /// Records the metrics and the inventory counters of a call.
    pub(super) fn record(
        &self,
        webhook: &Webhook,
        phase: AdmissionPhase,
        attributes: &AdmissionAttributes<'_>,
        failure: Option<&CallFailure>,
        took: Duration,
    ) {
        let (code, rejection) = match failure {
            None => (200, None),
            Some(CallFailure::Calling { code, .. }) if webhook.ignores_failures => (*code, None),
            Some(CallFailure::Calling { code, .. }) => (*code, Some(WebhookRejection::Calling)),
            Some(CallFailure::Denied(status)) => (status.code(), Some(WebhookRejection::Denied)),
            Some(CallFailure::Internal(_)) => (0, Some(WebhookRejection::Internal)),
        };
        webhook.inventory.count_call();
        if rejection.is_some() {
            webhook.inventory.count_denial();
        }
        match failure {
            Some(CallFailure::Calling { reason, .. }) => {
                webhook.inventory.record_error(reason, self.metrics.now());
            }
            Some(CallFailure::Internal(status)) => {
                webhook.inventory.record_error(status.message(), self.metrics.now());
            }
            Some(CallFailure::Denied(_)) | None => {}
        }
        let labels = WebhookLabels { name: &webhook.name, phase, operation: attributes.operation };
        for metrics in metrics_for(&*self.metrics, webhook.is_static) {
            if let Some(why) = rejection {
                metrics.webhook_rejected(&labels, why, code);
            }
            metrics.webhook(&labels, code, rejection.is_some(), took);
        }
    }

    /// Applies the failure policy: admits the request and calls `failed_open` if failures are ignored.
    pub(super) fn apply_failure_policy(
        &self,
        webhook: &Webhook,
        phase: AdmissionPhase,
        failure: CallFailure,
        failed_open: impl FnOnce(),
    ) -> Result<(), Status> {
        match failure {
            CallFailure::Denied(status) | CallFailure::Internal(status) => Err(status),
            CallFailure::Calling { .. } if webhook.ignores_failures => {
                for metrics in metrics_for(&*self.metrics, webhook.is_static) {
                    metrics.webhook_failed_open(&webhook.name, phase);
                }
                failed_open();
                Ok(())
            }
            CallFailure::Calling { reason, .. } => {
                let name = quote(&webhook.name);
                Err(Status::internal(format!("failed calling webhook {name}: {reason}")))
            }
        }
    }
}

/// Whether a key of an audit annotation is a qualified name with a prefix.
fn is_annotation_key(key: &str) -> bool {
    key.split('/').count() == 2 && api::names::is_qualified_name(key).is_empty()
}
