//! `ValidatingAdmissionWebhook`: those of manifest files at once, and if none of them refuses, those of the API at once. The first in
//! their order that refuses is heard.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use api::Status;
use value::format_smolstr;

use crate::expression::Checks;
use crate::matching::{Asked, Exempt, Match, exempt};
use crate::webhook::exchange::{Invocation, Means};
use crate::webhook::selection::Selection;
use crate::webhook::views::Views;
use crate::webhook::{Hook, Set, Transport};
use crate::{Attributes, Cluster, InForce, Later, Meter, Notes, Phase, Seen, Stage};

/// The stage.
pub struct ValidatingWebhooks {
    set: Arc<Set>,
    means: Means,
}

impl ValidatingWebhooks {
    /// Asks the webhooks of `set`.
    pub fn new(set: Arc<Set>, transport: Arc<dyn Transport>, meter: Arc<dyn Meter>) -> Self {
        ValidatingWebhooks { set, means: Means { transport, meter } }
    }
}

impl Stage for ValidatingWebhooks {
    fn begin(&self, in_force: &InForce) {
        in_force.validating_webhooks(|| self.set.hooks());
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a Attributes<'_>,
        object: &'a Seen<'_>,
        cluster: &'a dyn Cluster,
        notes: &'a mut Notes,
    ) -> Later<'a, Result<(), Status>> {
        let hooks = attributes.in_force.validating_webhooks(|| self.set.hooks());
        let reach = exempt(attributes, cluster);
        let none = hooks.is_empty() || reach == Exempt::Always;
        if none || reach != Exempt::No && !hooks.iter().any(|hook| hook.is_static) {
            return Box::pin(std::future::ready(Ok(())));
        }
        Box::pin(self.run(hooks, reach, attributes, object, cluster, notes))
    }
}

impl ValidatingWebhooks {
    async fn run(
        &self,
        hooks: Arc<[Arc<Hook>]>,
        reach: Exempt,
        attributes: &Attributes<'_>,
        object: &Seen<'_>,
        cluster: &dyn Cluster,
        notes: &mut Notes,
    ) -> Result<(), Status> {
        let asked = Asked::new(attributes, object.stored(), cluster);
        let mut views = Views::new(object, &attributes.kind);
        let mut old_views = Views::new(&attributes.old_object, &attributes.kind);
        let checks = Checks::default();
        let selection =
            Selection { phase: Phase::Validating, asked: &asked, checks: &checks, means: &self.means };
        // What a static webhook refuses is not shown to webhooks that somebody registered in the API.
        let mut called = 0;
        for is_static in [true, false] {
            if !is_static && reach != Exempt::No {
                break;
            }
            let mut relevant: Vec<(&Hook, Match)> = Vec::new();
            for hook in hooks.iter().filter(|hook| hook.is_static == is_static) {
                if let Some(matched) = selection.select(hook, &mut views, &mut old_views).await? {
                    relevant.push((hook, matched));
                }
            }
            if relevant.is_empty() {
                continue;
            }
            asked.in_time()?;
            let (asked, views, old_views) = (&asked, &views, &old_views);
            let calls = relevant.iter().enumerate().map(|(position, (hook, matched))| {
                let index = called + position;
                let call: Later<'_, (Result<(), Status>, Notes)> = Box::pin(async move {
                    let mut notes = Notes::default();
                    let outcome = self.call(hook, matched, index, asked, views, old_views, &mut notes).await;
                    (outcome, notes)
                });
                call
            });
            let mut first = Ok(());
            for (outcome, said) in all(calls.collect()).await {
                notes.extend(said);
                first = first.and(outcome);
            }
            // A webhook whose call the client's own deadline has cut off has not failed: it has not been asked.
            first.and_then(|()| asked.in_time())?;
            called += relevant.len();
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "one webhook of several that share the rest")]
    async fn call(
        &self,
        hook: &Hook,
        matched: &Match,
        index: usize,
        asked: &Asked<'_>,
        views: &Views<'_>,
        old_views: &Views<'_>,
        notes: &mut Notes,
    ) -> Result<(), Status> {
        let invocation = Invocation {
            object: views.get(&matched.kind, asked.cluster).await?,
            old_object: old_views.get(&matched.kind, asked.cluster).await?,
            matched,
        };
        let begun = self.means.meter.now();
        let outcome = self.means.ask(hook, Phase::Validating, asked, &invocation, notes).await;
        let took = self.means.meter.now().saturating_sub(begun);
        self.means.count(hook, Phase::Validating, asked.attributes, outcome.as_ref().err(), took);
        match outcome {
            Ok(_) => Ok(()),
            Err(failure) => self.means.judge(hook, Phase::Validating, failure, || {
                let key =
                    format_smolstr!("failed-open.validating.webhook.admission.k8s.io/round_0_index_{index}");
                notes.annotate(key, hook.name.as_str());
            }),
        }
    }
}

/// Waits for all of them, at the same time; the results are in their order.
async fn all<T: Send>(calls: Vec<Later<'_, T>>) -> Vec<T> {
    enum Each<'a, T> {
        Waiting(Later<'a, T>),
        Done(Option<T>),
    }
    let mut calls: Vec<Each<'_, T>> = calls.into_iter().map(Each::Waiting).collect();
    poll_fn(|context| {
        let mut waiting = false;
        for call in &mut calls {
            if let Each::Waiting(future) = call {
                match future.as_mut().poll(context) {
                    Poll::Ready(result) => *call = Each::Done(Some(result)),
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
                .filter_map(|call| if let Each::Done(result) = call { result.take() } else { None })
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
