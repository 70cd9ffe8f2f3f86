//! Which webhooks are asked about a request, and as what.

use api::Status;

use crate::expression::{Checks, Facts, Scope};
use crate::matching::{Asked, Match, Matched};
use crate::webhook::Hook;
use crate::webhook::exchange::Means;
use crate::webhook::views::Views;
use crate::{Conditions as Owner, Phase};

/// A request beside which webhooks are put.
pub(super) struct Selection<'a> {
    pub(super) phase: Phase,
    pub(super) asked: &'a Asked<'a>,
    /// What the authorizer has said so far.
    pub(super) checks: &'a Checks,
    pub(super) means: &'a Means,
}

impl Selection<'_> {
    /// As what the request matches a webhook; nothing if the webhook is not asked. The objects are there in that version then.
    pub(super) async fn select(
        &self,
        hook: &Hook,
        views: &mut Views<'_>,
        old_views: &mut Views<'_>,
    ) -> Result<Option<Match>, Status> {
        let Some(matched) = hook.criteria.matches(self.asked)? else { return Ok(None) };
        let cluster = self.asked.cluster;
        self.asked.rest().await?;
        views.make(&matched.kind, cluster).await?;
        old_views.make(&matched.kind, cluster).await?;
        if self.meets_conditions(hook, &matched, views, old_views).await? {
            Ok(Some(matched.into_owned()))
        } else {
            Ok(None)
        }
    }

    async fn meets_conditions(
        &self,
        hook: &Hook,
        matched: &Match,
        views: &Views<'_>,
        old_views: &Views<'_>,
    ) -> Result<bool, Status> {
        let Some(conditions) = &hook.conditions else { return Ok(true) };
        let Selection { phase, asked, checks, means } = self;
        let (attributes, meter) = (asked.attributes, &*means.meter);
        let mut owner = Owner {
            name: &hook.name,
            kind: "webhook",
            phase: phase.webhook_label(),
            operation: attributes.operation,
        };
        let object = views.get(&matched.kind, asked.cluster).await?;
        let old = old_views.get(&matched.kind, asked.cluster).await?;
        loop {
            let outcome = {
                let facts = Facts::new(asked, matched, object, old, None, checks);
                conditions.evaluate(&Scope::new(&facts), &owner, meter)
            };
            match outcome {
                Err(pause) => checks.resume(pause, asked).await?,
                Ok(Matched::Yes) => return Ok(true),
                Ok(Matched::No) => {
                    owner.phase = phase.as_str();
                    meter.conditions_excluded(&owner);
                    return Ok(false);
                }
                Ok(Matched::Failed(why)) => return Err(attributes.forbidden(why)),
            }
        }
    }
}
