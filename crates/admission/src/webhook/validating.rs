//! `ValidatingAdmissionWebhook`: calls the webhooks from manifest files concurrently, and if all admit the
//! request, those of the API concurrently. If several reject it, the first in order determines the response.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use api::Status;
use value::format_smolstr;

use crate::expression::AuthorizerDecisions;
use crate::matching::{Exemption, MatchedResource, RequestContext, exemption};
use crate::webhook::call::{WebhookCaller, WebhookInvocation};
use crate::webhook::object_versions::ObjectVersions;
use crate::webhook::selection::WebhookSelector;
use crate::webhook::{Transport, Webhook, WebhookSet};
use crate::{
    AdmissionAttributes, AdmissionFuture, AdmissionMetrics, AdmissionNotes, AdmissionPhase,
    AdmissionSnapshot, AsyncPlugin, ClusterView, VersionedObject,
};

/// The admission plugin `ValidatingAdmissionWebhook`.
pub struct ValidatingWebhooks {
    set: Arc<WebhookSet>,
    caller: WebhookCaller,
}

impl ValidatingWebhooks {
    pub fn new(
        set: Arc<WebhookSet>,
        transport: Arc<dyn Transport>,
        metrics: Arc<dyn AdmissionMetrics>,
    ) -> Self {
        ValidatingWebhooks { set, caller: WebhookCaller { transport, metrics } }
    }
}

impl AsyncPlugin for ValidatingWebhooks {
    fn pin_snapshot(&self, snapshot: &AdmissionSnapshot) {
        snapshot.validating_webhooks(|| self.set.webhooks());
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'_>,
        object: &'a VersionedObject<'_>,
        cluster: &'a dyn ClusterView,
        notes: &'a mut AdmissionNotes,
    ) -> AdmissionFuture<'a, Result<(), Status>> {
        let webhooks = attributes.snapshot.validating_webhooks(|| self.set.webhooks());
        let exemption = exemption(attributes, cluster);
        let none = webhooks.is_empty() || exemption == Exemption::Total;
        if none || exemption != Exemption::None && !webhooks.iter().any(|webhook| webhook.is_static) {
            return Box::pin(std::future::ready(Ok(())));
        }
        Box::pin(async move {
            let context = RequestContext::new(attributes, object.stored(), cluster);
            self.run(&webhooks, exemption, &context, object, notes).await
        })
    }
}

/// A webhook that selects the request. `index` counts the calls of the request.
struct WebhookCall<'a> {
    webhook: &'a Webhook,
    matched: MatchedResource,
    index: usize,
}

impl ValidatingWebhooks {
    async fn run(
        &self,
        webhooks: &[Arc<Webhook>],
        exemption: Exemption,
        context: &RequestContext<'_>,
        object: &VersionedObject<'_>,
        notes: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        let attributes = context.attributes;
        let mut versions = ObjectVersions::new(object, &attributes.kind);
        let mut old_versions = ObjectVersions::new(&attributes.old_object, &attributes.kind);
        let checks = AuthorizerDecisions::default();
        let selection = WebhookSelector {
            phase: AdmissionPhase::Validating,
            context,
            checks: &checks,
            caller: &self.caller,
        };
        // Requests that a static webhook rejects are not sent to webhooks of the API.
        let mut called = 0;
        for is_static in [true, false] {
            if !is_static && exemption != Exemption::None {
                break;
            }
            let mut calls: Vec<WebhookCall<'_>> = Vec::new();
            for webhook in webhooks.iter().filter(|webhook| webhook.is_static == is_static) {
                if let Some(matched) = selection.select(webhook, &mut versions, &mut old_versions).await? {
                    calls.push(WebhookCall { webhook, matched, index: called + calls.len() });
                }
            }
            if calls.is_empty() {
                continue;
            }
            context.check_deadline()?;
            let (versions, old_versions) = (&versions, &old_versions);
            let futures = calls.iter().map(|call| {
                let future: AdmissionFuture<'_, (Result<(), Status>, AdmissionNotes)> =
                    Box::pin(async move {
                        let mut notes = AdmissionNotes::default();
                        let outcome = self.call_one(call, context, versions, old_versions, &mut notes).await;
                        (outcome, notes)
                    });
                future
            });
            let mut first = Ok(());
            for (outcome, call_notes) in join_all(futures.collect()).await {
                notes.extend(call_notes);
                first = first.and(outcome);
            }
            // After the client's deadline the calls were cut off. They count neither as failed nor as
            // admitted.
            first.and_then(|()| context.check_deadline())?;
            called += calls.len();
        }
        Ok(())
    }

    async fn call_one(
        &self,
        WebhookCall { webhook, matched, index }: &WebhookCall<'_>,
        context: &RequestContext<'_>,
        versions: &ObjectVersions<'_>,
        old_versions: &ObjectVersions<'_>,
        notes: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        let invocation = WebhookInvocation {
            object: versions.get(&matched.kind, context.cluster).await?,
            old_object: old_versions.get(&matched.kind, context.cluster).await?,
            matched,
        };
        let started = self.caller.metrics.now();
        let outcome =
            self.caller.call(webhook, AdmissionPhase::Validating, context, &invocation, notes).await;
        let took = self.caller.metrics.now().saturating_sub(started);
        self.caller.record(
            webhook,
            AdmissionPhase::Validating,
            context.attributes,
            outcome.as_ref().err(),
            took,
        );
        match outcome {
            Ok(_) => Ok(()),
            Err(failure) => {
                self.caller.apply_failure_policy(webhook, AdmissionPhase::Validating, failure, || {
                    let key = format_smolstr!(
                        "failed-open.validating.webhook.admission.k8s.io/round_0_index_{index}"
                    );
                    notes.annotate(key, webhook.name.as_str());
                })
            }
        }
    }
}

/// Waits for all futures concurrently. Results are in the order of `futures`.
async fn join_all<T: Send>(futures: Vec<AdmissionFuture<'_, T>>) -> Vec<T> {
    enum PendingCall<'a, T> {
        Waiting(AdmissionFuture<'a, T>),
        Done(Option<T>),
    }
    let mut calls: Vec<PendingCall<'_, T>> = futures.into_iter().map(PendingCall::Waiting).collect();
    poll_fn(|context| {
        let mut waiting = false;
        for call in &mut calls {
            if let PendingCall::Waiting(future) = call {
                match future.as_mut().poll(context) {
                    Poll::Ready(result) => *call = PendingCall::Done(Some(result)),
                    Poll::Pending => waiting = true,
                }
            }
        }
        if waiting {
            return Poll::Pending;
        }
        Poll::Ready(
            calls
                .iter_mut()
                .filter_map(|call| if let PendingCall::Done(result) = call { result.take() } else { None })
                .collect(),
        )
    })
    .await
}

impl std::fmt::Debug for ValidatingWebhooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ValidatingWebhooks").field(&self.set).finish()
    }
}
