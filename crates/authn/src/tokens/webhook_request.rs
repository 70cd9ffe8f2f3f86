//! Requests for tokens that are bound to a webhook configuration (KEP-6060): who gets one, and why others do not.

use api::attestation::{self, AttestationDialect, WebhookConfigurationKind};
use api::field::quote;
use api::time::Timestamp;
use api::{GroupResource, Status, meta};
use value::text::first_chars;
use value::{Str, Value};

use crate::tokens::claims::{Bound, BoundKind, Reference};
use crate::tokens::refusal::{Refusal, RefusalReason};
use crate::tokens::request::{Attester, RequestRules, find, unbindable};
use crate::tokens::verify::BoundObjects;
use crate::user::service_account;

/// How many characters of a value that a client sent, and how many audiences of a configuration, a cause quotes.
const QUOTED_CHARACTERS: usize = 256;
const QUOTED_AUDIENCES: usize = 8;

/// A request for a token that is shown to webhooks, its fields validated.
pub(super) struct WebhookToken<'a> {
    pub(super) request: &'a Value,
    pub(super) reference: &'a Value,
    pub(super) kind: WebhookConfigurationKind,
    pub(super) now: Timestamp,
}

impl WebhookToken<'_> {
    /// What the token will be bound to, and in which dialect it was asked for.
    ///
    /// INVARIANT: an answer that depends on stored objects is given only to a caller whose account has the permission `attest`, and
    /// it is always the same: [`denied`]. The cause is for the log and the audit event.
    pub(super) async fn grant(
        &self,
        rules: &RequestRules,
        objects: &dyn BoundObjects,
        attester: &dyn Attester,
    ) -> Result<(Bound, AttestationDialect), Refusal> {
        let WebhookToken { request, reference, kind, now } = self;
        if !rules.webhooks {
            let gate = format!(" (feature gate {} is disabled)", attestation::GATE);
            let status = unbindable(kind.api_version(), kind.kind(), &gate);
            return Err(told(status, RefusalReason::FeatureGateDisabled));
        }
        let spec = request.get("spec");
        let audiences = request.list_at(&["spec", "audiences"]);
        if audiences.iter().filter_map(Value::as_str).any(|one| rules.audiences.iter().any(|own| own == one))
        {
            let status = Status::bad_request("api server audiences are invalid for webhook token requests");
            return Err(told(status, RefusalReason::ApiServerAudience));
        }
        let dialect = AttestationDialect::of(spec);
        // Validation has made sure that there is one of each; should it not have, nothing fits.
        let [Value::String(audience)] = audiences else { return Err(denied(request).into()) };
        let groups = request.list_at(&["spec", dialect.field(), dialect.key()]);
        let [Value::String(group)] = groups else { return Err(denied(request).into()) };
        let account =
            service_account::user(meta::namespace(request), meta::name(request), meta::uid(request));
        let attested = attester.attest(&account, dialect, group).await;
        attested.map_err(|status| told(status, RefusalReason::NoAttestPermission))?;

        let name = reference.str_at(&["name"]).unwrap_or_default();
        let refused = |reason, detail| Refusal::new(denied(request), reason, detail);
        let object = format!("{} {}", kind.kind(), excerpt(name));
        let Some(configuration) = find(objects, BoundKind::Webhooks(*kind), "", name).await? else {
            return Err(refused(RefusalReason::ConfigurationNotFound, format!("{object} does not exist")));
        };
        if is_deleting(&configuration, *now) {
            return Err(refused(RefusalReason::ConfigurationDeleting, format!("{object} is being deleted")));
        }
        let (wanted, uid) = (reference.str_at(&["uid"]).unwrap_or_default(), meta::uid(&configuration));
        if !wanted.is_empty() && wanted != uid {
            let detail = format!("{object} has uid {}, not {}", quote(uid), excerpt(wanted));
            return Err(refused(RefusalReason::UidMismatch, detail));
        }
        if dialect == AttestationDialect::Kep
            && group != attestation::EVERY_GROUP
            && !objects.has_api_service(group)
        {
            let detail = format!("no APIService has API group {}", excerpt(group));
            return Err(refused(RefusalReason::ApiServiceNotFound, detail));
        }
        if let Err((reason, detail)) = fits(&configuration, dialect, group, audience) {
            return Err(refused(reason, format!("{object}: {detail}")));
        }
        let configuration = Reference { name: name.into(), uid: uid.into() };
        let bound = Bound::Webhooks { kind: *kind, configuration, group: Some(group.clone()) };
        Ok((bound, dialect))
    }
}

/// Whether a configuration has a webhook that a token with this group and audience is good for, or why not.
fn fits(
    configuration: &Value,
    dialect: AttestationDialect,
    group: &str,
    audience: &str,
) -> Result<(), (RefusalReason, String)> {
    let every = group == attestation::EVERY_GROUP;
    if every && dialect == AttestationDialect::Kubernetes {
        // Kubernetes does not look at the audience then; the permission to ask for every group is for API servers alone.
        return Ok(());
    }
    let audience_of = |hook: &Value| hook.get("clientConfig").and_then(attestation::audience);
    let hooks = configuration.list_at(&["webhooks"]);
    let addressed: Vec<&Value> =
        hooks.iter().filter(|hook| audience_of(hook).is_some_and(|own| own == audience)).collect();
    if addressed.is_empty() {
        let own: Vec<Str> = hooks.iter().filter_map(audience_of).collect();
        let mut known = own.iter().take(QUOTED_AUDIENCES).map(|own| excerpt(own)).collect::<Vec<_>>();
        if own.len() > QUOTED_AUDIENCES {
            known.push(format!("and {} more", own.len() - QUOTED_AUDIENCES));
        }
        let known = known.join(", ");
        let detail = format!("no webhook has audience {}; its audiences are [{known}]", excerpt(audience));
        return Err((RefusalReason::AudienceMismatch, detail));
    }
    let has_rule = |hook: &&Value| {
        let groups = hook.list_at(&["rules"]).iter().flat_map(|rule| rule.list_at(&["apiGroups"]));
        groups.filter_map(Value::as_str).any(|own| own == attestation::EVERY_GROUP || own == group)
    };
    if every || addressed.iter().any(has_rule) {
        return Ok(());
    }
    let (audience, group) = (excerpt(audience), excerpt(group));
    let detail = format!("the webhooks with audience {audience} have no rule for API group {group}");
    Err((RefusalReason::GroupNotInRules, detail))
}

/// The one answer to everything that depends on stored objects, so that it says nothing about them.
fn denied(request: &Value) -> Status {
    let resource = GroupResource::new("", "serviceaccounts/token");
    Status::forbidden(&resource, meta::name(request), "token request denied")
}

/// A refusal whose cause the client may know.
fn told(status: Status, reason: RefusalReason) -> Refusal {
    let detail = status.message().to_owned();
    Refusal::new(status, reason, detail)
}

/// A quoted value of bounded length.
fn excerpt(text: &str) -> String {
    let shown = first_chars(text, QUOTED_CHARACTERS);
    if shown.len() == text.len() { quote(text) } else { format!("{}…", quote(shown)) }
}

/// Whether deletion has begun. A time that cannot be read counts as begun.
fn is_deleting(object: &Value, now: Timestamp) -> bool {
    let text = meta::text(object, "deletionTimestamp");
    !text.is_empty() && Timestamp::parse(text).map_or(true, |time| time.seconds <= now.seconds)
}
