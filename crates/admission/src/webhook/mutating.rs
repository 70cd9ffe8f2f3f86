//! `MutatingAdmissionWebhook`: calls webhooks one after the other, each with the object as patched by the
//! previous ones.

use std::sync::Arc;

use api::Status;
use value::{Value, format_smolstr};

use crate::expression::AuthorizerDecisions;
use crate::matching::{Exemption, RequestContext, exemption};
use crate::webhook::call::{CallFailure, WebhookCaller, WebhookInvocation};
use crate::webhook::object_versions::ObjectVersions;
use crate::webhook::response::{JSON_PATCH, ReviewResponse};
use crate::webhook::selection::WebhookSelector;
use crate::webhook::{Transport, Webhook, WebhookSet, patch};
use crate::{
    AdmissionFuture, AdmissionMetrics, AdmissionNotes, AdmissionPhase, AdmissionSnapshot, AsyncPlugin,
    AuditLevel, MutatingRequest, VersionedObject,
};

/// The admission plugin `MutatingAdmissionWebhook`.
pub struct MutatingWebhooks {
    set: Arc<WebhookSet>,
    caller: WebhookCaller,
}

impl MutatingWebhooks {
    pub fn new(
        set: Arc<WebhookSet>,
        transport: Arc<dyn Transport>,
        metrics: Arc<dyn AdmissionMetrics>,
    ) -> Self {
        MutatingWebhooks { set, caller: WebhookCaller { transport, metrics } }
    }
}

impl AsyncPlugin for MutatingWebhooks {
    fn pin_snapshot(&self, snapshot: &AdmissionSnapshot) {
        snapshot.mutating_webhooks(|| self.set.webhooks());
    }

    fn mutate<'a>(
        &'a self,
        request: &'a mut MutatingRequest<'_, '_>,
        object: Option<&'a mut Value>,
    ) -> AdmissionFuture<'a, Result<(), Status>> {
        let webhooks = request.attributes.snapshot.mutating_webhooks(|| self.set.webhooks());
        let exemption = exemption(request.attributes, request.cluster);
        let none = webhooks.is_empty() || exemption == Exemption::Total;
        if none || exemption != Exemption::None && !webhooks.iter().any(|webhook| webhook.is_static) {
            return Box::pin(std::future::ready(Ok(())));
        }
        let is_first = !request.reinvocation.is_second();
        Box::pin(self.run(WebhookRound { webhooks, exemption, next: 0, is_first }, request, object))
    }
}

/// The webhooks of a request that are still to be called. Each patch starts a new round, because the webhooks
/// after it see the patched object.
struct WebhookRound {
    webhooks: Arc<[Arc<Webhook>]>,
    exemption: Exemption,
    /// Index of the webhook to call next.
    next: usize,
    /// Whether this is the request's first round.
    is_first: bool,
}

struct AppliedPatch {
    object: Value,
    /// Index of the webhook to call next.
    next: usize,
}

impl MutatingWebhooks {
    async fn run(
        &self,
        mut round: WebhookRound,
        request: &mut MutatingRequest<'_, '_>,
        mut object: Option<&mut Value>,
    ) -> Result<(), Status> {
        if let Some(object) = object.as_deref()
            && request.reinvocation.is_second()
            && request.reinvocation.webhooks.is_output_changed(object)
        {
            // A plugin or policy changed the object after the webhooks: those with `IfNeeded` run again.
            request.reinvocation.webhooks.require_reinvocation();
        }
        while let Some(patch) = self.call_until_patched(&round, request, object.as_deref()).await? {
            (round.next, round.is_first) = (patch.next, false);
            if let Some(object) = object.as_deref_mut() {
                *object = patch.object;
            }
        }
        if let Some(object) = object {
            request.reinvocation.webhooks.set_last_output(object);
        }
        Ok(())
    }

    /// Calls webhooks until one returns a patch. `None` if none of them does.
    async fn call_until_patched(
        &self,
        round: &WebhookRound,
        request: &mut MutatingRequest<'_, '_>,
        object: Option<&Value>,
    ) -> Result<Option<AppliedPatch>, Status> {
        let attributes = request.attributes;
        let context = RequestContext::new(attributes, object, request.cluster);
        let seen = VersionedObject::new(object);
        let mut versions = ObjectVersions::new(&seen, &attributes.kind);
        let mut old_versions = ObjectVersions::new(&attributes.old_object, &attributes.kind);
        let checks = AuthorizerDecisions::default();
        let selection = WebhookSelector {
            phase: AdmissionPhase::Mutating,
            context: &context,
            checks: &checks,
            caller: &self.caller,
        };
        for (index, webhook) in round.webhooks.iter().enumerate().skip(round.next) {
            if round.exemption != Exemption::None && !webhook.is_static {
                continue;
            }
            let Some(matched) = selection.select(webhook, &mut versions, &mut old_versions).await? else {
                continue;
            };
            if request.reinvocation.is_second()
                && !request.reinvocation.webhooks.should_reinvoke(&webhook.uid)
            {
                continue;
            }
            let invocation = WebhookInvocation {
                object: versions.get(&matched.kind, request.cluster).await?,
                old_object: old_versions.get(&matched.kind, request.cluster).await?,
                matched: &matched,
            };
            let audit_round = u8::from(request.reinvocation.is_second());
            let audit_key = format!("round_{audit_round}_index_{index}");
            let started = self.caller.metrics.now();
            let mut outcome =
                self.call_and_patch(webhook, &context, &invocation, &audit_key, request.notes).await;
            let took = self.caller.metrics.now().saturating_sub(started);
            self.caller.record(webhook, AdmissionPhase::Mutating, attributes, outcome.as_ref().err(), took);
            if let Ok(Some(patched)) = &mut outcome {
                patched.changed |= round.is_first
                    && object.is_some_and(|object| patch::sets_managed_time(attributes, object));
            }
            let changed = outcome.as_ref().is_ok_and(|patched| patched.as_ref().is_some_and(|p| p.changed));
            let key = format_smolstr!("mutation.webhook.admission.k8s.io/{audit_key}");
            request
                .notes
                .annotate(key, patch::mutation_annotation(&webhook.configuration, &webhook.name, changed));
            if changed {
                request.reinvocation.webhooks.require_reinvocation();
                request.reinvocation.request_second_pass();
            }
            if webhook.reinvoke_if_needed {
                request.reinvocation.webhooks.add_reinvocable(webhook.uid.clone());
            }
            match outcome {
                Ok(None) => {}
                Ok(Some(patched)) => {
                    return Ok(Some(AppliedPatch { object: patched.object, next: index + 1 }));
                }
                Err(failure) => {
                    self.apply_failure_policy(webhook, failure, &audit_key, request.notes)?;
                    context.check_deadline()?;
                }
            }
        }
        Ok(None)
    }

    fn apply_failure_policy(
        &self,
        webhook: &Webhook,
        failure: CallFailure,
        audit_key: &str,
        notes: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        self.caller.apply_failure_policy(webhook, AdmissionPhase::Mutating, failure, || {
            let key = format_smolstr!("failed-open.mutation.webhook.admission.k8s.io/{audit_key}");
            notes.annotate(key, webhook.name.as_str());
        })
    }

    async fn call_and_patch(
        &self,
        webhook: &Webhook,
        context: &RequestContext<'_>,
        invocation: &WebhookInvocation<'_>,
        audit_key: &str,
        notes: &mut AdmissionNotes,
    ) -> Result<Option<patch::PatchedObject>, CallFailure> {
        let kind = &invocation.matched.kind;
        let response =
            self.caller.call(webhook, AdmissionPhase::Mutating, context, invocation, notes).await?;
        let ReviewResponse { patch, patch_type, .. } = &response;
        if patch.is_empty() {
            return Ok(None);
        }
        let operations = patch::decode(patch).map_err(|why| CallFailure::Calling {
            reason: format!("received undecodable patch in webhook response: {why}"),
            code: 503,
        })?;
        if operations.is_empty() {
            return Ok(None);
        }
        let Some(shown) = invocation.object else {
            return Err(CallFailure::Internal(Status::internal(format!(
                "admission webhook {} attempted to modify the object, which is not supported for this operation",
                api::field::quote(&webhook.name)
            ))));
        };
        if patch_type != JSON_PATCH {
            return Err(CallFailure::Calling {
                reason: format!("unsupported patch type {}", api::field::quote(patch_type)),
                code: 400,
            });
        }
        let patched = patch::apply(shown, kind, &operations, context.attributes, context.cluster).await;
        let patched = patched.map_err(CallFailure::Internal)?;
        let key = format_smolstr!("patch.webhook.admission.k8s.io/{audit_key}");
        notes.annotate_at_level(
            AuditLevel::Request,
            key,
            patch::patch_annotation(&webhook.configuration, &webhook.name, patch),
        );
        Ok(Some(patched))
    }
}

impl std::fmt::Debug for MutatingWebhooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("MutatingWebhooks").field(&self.set).finish()
    }
}
