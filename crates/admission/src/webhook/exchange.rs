//! One webhook is asked, once: what may go wrong, and what counts for it.

use std::sync::Arc;
use std::time::Duration;

use api::Status;
use api::field::quote;
use value::Value;

use crate::matching::{Asked, Match};
use crate::meter::counters;
use crate::webhook::denial::{denial, dry_run_unsupported};
use crate::webhook::hook::SideEffects;
use crate::webhook::response::{Response, verify};
use crate::webhook::review::{Question, review};
use crate::webhook::{Hook, NoReply, Outgoing, Transport, reply};
use crate::{Attributes, Meter, Notes, Phase, Rejection};

/// What both kinds of webhooks need.
#[derive(Clone)]
pub(super) struct Means {
    pub(super) transport: Arc<dyn Transport>,
    pub(super) meter: Arc<dyn Meter>,
}

/// Why a webhook did not let a request pass.
#[derive(Debug)]
pub(super) enum Failure {
    /// It could not be asked, or did not answer as it must: its failure policy decides.
    Calling {
        /// In Kubernetes' words.
        reason: String,
        /// The code that is counted.
        code: u16,
    },
    /// It said no.
    Denied(Status),
    /// What it asks for cannot be done; no policy helps.
    Internal(Status),
}

impl Failure {
    fn calling(reason: impl Into<String>, code: u16) -> Self {
        Failure::Calling { reason: reason.into(), code }
    }
}

/// A request that a webhook's rules matched, with the objects in the version that they name.
pub(super) struct Invocation<'a> {
    pub(super) matched: &'a Match,
    pub(super) object: Option<&'a Value>,
    pub(super) old_object: Option<&'a Value>,
}

impl Means {
    /// Asks a webhook, and takes what it says besides into `notes`. A refusal is a failure.
    pub(super) async fn ask(
        &self,
        hook: &Hook,
        phase: Phase,
        asked: &Asked<'_>,
        invocation: &Invocation<'_>,
        notes: &mut Notes,
    ) -> Result<Response, Failure> {
        if hook.is_static {
            notes.manifests.webhook(&hook.configuration);
        }
        let attributes = asked.attributes;
        if attributes.dry_run {
            match hook.side_effects {
                SideEffects::Safe => {}
                SideEffects::Unsaid => return Err(Failure::calling("Webhook SideEffects is nil", 400)),
                SideEffects::Unsafe => return Err(Failure::Internal(dry_run_unsupported(&hook.name))),
            }
        }
        let version = hook.version.ok_or_else(|| {
            let why = "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)";
            Failure::calling(why, 400)
        })?;
        let uid = self.transport.uid();
        let question = Question {
            kind: &invocation.matched.kind,
            resource: &invocation.matched.resource,
            version: &invocation.matched.version,
            namespace: asked.namespace(),
            object: invocation.object,
            old_object: invocation.old_object,
        };
        let outgoing = Outgoing {
            target: &hook.target,
            // A webhook that sees requests for tokens is asked about the server's own without one: it would wait for itself.
            recipient: hook.recipient.as_ref().filter(|_| !attributes.is_for_own_token()),
            body: review(version, &uid, attributes, &question),
            timeout: hook.timeout,
            deadline: attributes.deadline,
        };
        let reply = self.transport.send(outgoing).await.map_err(|error| match error {
            NoReply::Unusable(why) => Failure::calling(format!("could not get REST client: {why}"), 500),
            NoReply::Failed(why) => Failure::calling(format!("failed to call webhook: {why}"), 503),
        })?;
        let review = reply::read(&reply, version).map_err(|unread| {
            Failure::calling(format!("failed to call webhook: {}", unread.message), unread.code)
        })?;
        let response = verify(version, &uid, phase == Phase::Mutating, &review)
            .map_err(|why| Failure::calling(format!("received invalid webhook response: {why}"), 503))?;
        for (key, value) in &response.annotations {
            let key = format!("{}/{key}", hook.name);
            if is_annotation_key(&key) {
                notes.annotate(key, value.clone());
            }
        }
        notes.warnings.extend(response.warnings.iter().cloned());
        if response.allowed {
            Ok(response)
        } else {
            Err(Failure::Denied(denial(&hook.name, response.result.as_ref())))
        }
    }

    /// Counts what came of asking a webhook.
    pub(super) fn count(
        &self,
        hook: &Hook,
        phase: Phase,
        attributes: &Attributes<'_>,
        failure: Option<&Failure>,
        took: Duration,
    ) {
        let operation = attributes.operation;
        let (code, rejection) = match failure {
            None => (200, None),
            Some(Failure::Calling { code, .. }) if hook.ignores_failures => (*code, None),
            Some(Failure::Calling { code, .. }) => (*code, Some(Rejection::Calling)),
            Some(Failure::Denied(status)) => (status.code(), Some(Rejection::Denied)),
            Some(Failure::Internal(_)) => (0, Some(Rejection::Internal)),
        };
        hook.account.called();
        if rejection.is_some() {
            hook.account.denied();
        }
        match failure {
            Some(Failure::Calling { reason, .. }) => hook.account.failed(reason, self.meter.now()),
            Some(Failure::Internal(status)) => hook.account.failed(status.message(), self.meter.now()),
            Some(Failure::Denied(_)) | None => {}
        }
        for meter in counters(&*self.meter, hook.is_static) {
            if let Some(why) = rejection {
                meter.webhook_rejected(&hook.name, phase, operation, why, code);
            }
            meter.webhook(&hook.name, phase, operation, code, rejection.is_some(), took);
        }
    }

    /// What a failure means for the request: nothing if the webhook's failures are ignored.
    pub(super) fn judge(
        &self,
        hook: &Hook,
        phase: Phase,
        failure: Failure,
        failed_open: impl FnOnce(),
    ) -> Result<(), Status> {
        match failure {
            Failure::Denied(status) | Failure::Internal(status) => Err(status),
            Failure::Calling { .. } if hook.ignores_failures => {
                for meter in counters(&*self.meter, hook.is_static) {
                    meter.webhook_failed_open(&hook.name, phase);
                }
                failed_open();
                Ok(())
            }
            Failure::Calling { reason, .. } => {
                let name = quote(&hook.name);
                Err(Status::internal(format!("failed calling webhook {name}: {reason}")))
            }
        }
    }
}

/// A key of an audit annotation: a qualified name with a prefix.
fn is_annotation_key(key: &str) -> bool {
    key.split('/').count() == 2 && api::names::is_qualified_name(key).is_empty()
}
