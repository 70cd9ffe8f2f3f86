//! Selects the webhooks that are called for a request.

use api::Status;

use crate::expression::{Activations, AuthorizerDecisions, ExpressionInput};
use crate::matching::{ConditionResult, MatchedResource, RequestContext};
use crate::webhook::Webhook;
use crate::webhook::call::WebhookCaller;
use crate::webhook::object_versions::ObjectVersions;
use crate::{AdmissionPhase, MatchConditionLabels};

/// A request that webhooks are matched with.
pub(super) struct WebhookSelector<'a> {
    pub(super) phase: AdmissionPhase,
    pub(super) context: &'a RequestContext<'a>,
    pub(super) checks: &'a AuthorizerDecisions,
    pub(super) caller: &'a WebhookCaller,
}

impl WebhookSelector<'_> {
    /// Returns the matched resource; `None` if the webhook is not called. On a match, both objects have been
    /// converted to the version of that resource.
    pub(super) async fn select(
        &self,
        webhook: &Webhook,
        versions: &mut ObjectVersions<'_>,
        old_versions: &mut ObjectVersions<'_>,
    ) -> Result<Option<MatchedResource>, Status> {
        let Some(matched) = webhook.criteria.matches(self.context)? else { return Ok(None) };
        let cluster = self.context.cluster;
        self.context.yield_if_due().await?;
        versions.convert(&matched.kind, cluster).await?;
        old_versions.convert(&matched.kind, cluster).await?;
        if self.meets_conditions(webhook, &matched, versions, old_versions).await? {
            Ok(Some(matched.into_owned()))
        } else {
            Ok(None)
        }
    }

    async fn meets_conditions(
        &self,
        webhook: &Webhook,
        matched: &MatchedResource,
        versions: &ObjectVersions<'_>,
        old_versions: &ObjectVersions<'_>,
    ) -> Result<bool, Status> {
        let Some(conditions) = &webhook.conditions else { return Ok(true) };
        let WebhookSelector { phase, context, checks, caller } = self;
        let (attributes, metrics) = (context.attributes, &*caller.metrics);
        let mut labels = MatchConditionLabels {
            name: &webhook.name,
            kind: "webhook",
            phase: phase.webhook_label(),
            operation: attributes.operation,
        };
        let object = versions.get(&matched.kind, context.cluster).await?;
        let old = old_versions.get(&matched.kind, context.cluster).await?;
        loop {
            let outcome = {
                let input = ExpressionInput::new(context, matched, object, old, None, checks);
                conditions.evaluate(&Activations::new(&input), &labels, metrics)
            };
            match outcome {
                Err(pause) => checks.resume(pause, context).await?,
                Ok(ConditionResult::Include) => return Ok(true),
                Ok(ConditionResult::Exclude) => {
                    labels.phase = phase.as_str();
                    metrics.conditions_excluded(&labels);
                    return Ok(false);
                }
                Ok(ConditionResult::Failed(why)) => return Err(attributes.forbidden(why)),
            }
        }
    }
}
