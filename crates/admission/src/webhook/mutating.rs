//! `MutatingAdmissionWebhook`: one webhook after the other, each sees what those before it made of the object.

use std::sync::Arc;

use api::Status;
use value::{Value, format_smolstr};

use crate::expression::Checks;
use crate::matching::{Asked, Exempt, exempt};
use crate::webhook::exchange::{Failure, Invocation, Means};
use crate::webhook::response::{JSON_PATCH, Response};
use crate::webhook::selection::Selection;
use crate::webhook::views::Views;
use crate::webhook::{Hook, Set, Transport, patch};
use crate::{InForce, Later, Level, Meter, Notes, Pass, Phase, Seen, Stage};

/// The stage.
pub struct MutatingWebhooks {
    set: Arc<Set>,
    means: Means,
}

impl MutatingWebhooks {
    /// Asks the webhooks of `set`.
    pub fn new(set: Arc<Set>, transport: Arc<dyn Transport>, meter: Arc<dyn Meter>) -> Self {
        MutatingWebhooks { set, means: Means { transport, meter } }
    }
}

impl Stage for MutatingWebhooks {
    fn begin(&self, in_force: &InForce) {
        in_force.mutating_webhooks(|| self.set.hooks());
    }

    fn mutate<'a>(
        &'a self,
        pass: &'a mut Pass<'_, '_>,
        object: Option<&'a mut Value>,
    ) -> Later<'a, Result<(), Status>> {
        let hooks = pass.attributes.in_force.mutating_webhooks(|| self.set.hooks());
        let reach = exempt(pass.attributes, pass.cluster);
        let none = hooks.is_empty() || reach == Exempt::Always;
        if none || reach != Exempt::No && !hooks.iter().any(|hook| hook.is_static) {
            return Box::pin(std::future::ready(Ok(())));
        }
        Box::pin(self.run(hooks, reach, pass, object))
    }
}

/// A patch that was applied.
struct Change {
    object: Value,
    /// Where the line of webhooks goes on.
    next: usize,
}

impl MutatingWebhooks {
    async fn run(
        &self,
        hooks: Arc<[Arc<Hook>]>,
        reach: Exempt,
        pass: &mut Pass<'_, '_>,
        mut object: Option<&mut Value>,
    ) -> Result<(), Status> {
        if let Some(object) = object.as_deref()
            && pass.passes.is_second()
            && pass.passes.webhooks.changed_since(object)
        {
            // A plugin or a policy changed what the webhooks left: whoever wants to see later changes sees these, too.
            pass.passes.webhooks.require_again();
        }
        let mut next = 0;
        let mut fresh = !pass.passes.is_second();
        while let Some(change) =
            self.until_changed(&hooks, reach, next, fresh, pass, object.as_deref()).await?
        {
            (next, fresh) = (change.next, false);
            if let Some(object) = object.as_deref_mut() {
                *object = change.object;
            }
        }
        if let Some(object) = object {
            pass.passes.webhooks.left(object);
        }
        Ok(())
    }

    /// Asks webhooks from a position on, until one patches the object. It is fresh until then.
    async fn until_changed(
        &self,
        hooks: &[Arc<Hook>],
        reach: Exempt,
        from: usize,
        fresh: bool,
        pass: &mut Pass<'_, '_>,
        object: Option<&Value>,
    ) -> Result<Option<Change>, Status> {
        let attributes = pass.attributes;
        let asked = Asked::new(attributes, object, pass.cluster);
        let seen = Seen::new(object);
        let mut views = Views::new(&seen, &attributes.kind);
        let mut old_views = Views::new(&attributes.old_object, &attributes.kind);
        let checks = Checks::default();
        let selection =
            Selection { phase: Phase::Mutating, asked: &asked, checks: &checks, means: &self.means };
        for (index, hook) in hooks.iter().enumerate().skip(from) {
            if reach != Exempt::No && !hook.is_static {
                continue;
            }
            let Some(matched) = selection.select(hook, &mut views, &mut old_views).await? else { continue };
            if pass.passes.is_second() && !pass.passes.webhooks.is_required(&hook.uid) {
                continue;
            }
            let invocation = Invocation {
                object: views.get(&matched.kind, pass.cluster).await?,
                old_object: old_views.get(&matched.kind, pass.cluster).await?,
                matched: &matched,
            };
            let round = u8::from(pass.passes.is_second());
            let place = format!("round_{round}_index_{index}");
            let begun = self.means.meter.now();
            let outcome = self.call(hook, &asked, &invocation, fresh, &place, pass.notes).await;
            let took = self.means.meter.now().saturating_sub(begun);
            self.means.count(hook, Phase::Mutating, attributes, outcome.as_ref().err(), took);
            let changed = outcome.as_ref().is_ok_and(|patched| patched.as_ref().is_some_and(|p| p.changed));
            let key = format_smolstr!("mutation.webhook.admission.k8s.io/{place}");
            pass.notes.annotate(key, patch::mutation_annotation(&hook.configuration, &hook.name, changed));
            if changed {
                pass.passes.webhooks.require_again();
                pass.passes.want();
            }
            if hook.sees_later_changes {
                pass.passes.webhooks.ran(hook.uid.clone());
            }
            match outcome {
                Ok(None) => {}
                Ok(Some(patched)) => return Ok(Some(Change { object: patched.object, next: index + 1 })),
                Err(failure) => {
                    let notes = &mut *pass.notes;
                    let failed_open = || {
                        let key = format_smolstr!("failed-open.mutation.webhook.admission.k8s.io/{place}");
                        notes.annotate(key, hook.name.as_str());
                    };
                    self.means.judge(hook, Phase::Mutating, failure, failed_open)?;
                    asked.in_time()?;
                }
            }
        }
        Ok(None)
    }

    /// Asks one webhook, and applies its patch.
    async fn call(
        &self,
        hook: &Hook,
        asked: &Asked<'_>,
        invocation: &Invocation<'_>,
        fresh: bool,
        place: &str,
        notes: &mut Notes,
    ) -> Result<Option<patch::Patched>, Failure> {
        let kind = &invocation.matched.kind;
        let response = self.means.ask(hook, Phase::Mutating, asked, invocation, notes).await?;
        let Response { patch, patch_type, .. } = &response;
        if patch.is_empty() {
            return Ok(None);
        }
        let operations = patch::decode(patch).map_err(|why| Failure::Calling {
            reason: format!("received undecodable patch in webhook response: {why}"),
            code: 503,
        })?;
        if operations.is_empty() {
            return Ok(None);
        }
        let Some(shown) = invocation.object else {
            return Err(Failure::Internal(Status::internal(format!(
                "admission webhook {} attempted to modify the object, which is not supported for this operation",
                api::field::quote(&hook.name)
            ))));
        };
        if patch_type != JSON_PATCH {
            return Err(Failure::Calling {
                reason: format!("unsupported patch type {}", api::field::quote(patch_type)),
                code: 400,
            });
        }
        let patched = patch::apply(shown, kind, &operations, asked.attributes, asked.cluster).await;
        let mut patched = patched.map_err(Failure::Internal)?;
        patched.changed |=
            fresh && asked.object.is_some_and(|object| patch::is_freshly_managed(asked.attributes, object));
        let key = format_smolstr!("patch.webhook.admission.k8s.io/{place}");
        notes.annotate_from(
            Level::Request,
            key,
            patch::patch_annotation(&hook.configuration, &hook.name, patch),
        );
        Ok(Some(patched))
    }
}

impl std::fmt::Debug for MutatingWebhooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("MutatingWebhooks").field(&self.set).finish()
    }
}
