//! Requests for tokens that are bound to a webhook configuration (KEP-6060).

use api::attestation::{self, AttestationDialect, WebhookConfigurationKind};
use api::field::quote;
use api::time::Timestamp;
use api::{GroupResource, Status, meta};
use value::text::first_chars;
use value::{Str, Value};

use crate::tokens::claims::{BoundKind, BoundObject, ObjectReference};
use crate::tokens::refusal::{RefusalReason, TokenRequestRefusal};
use crate::tokens::request::{Attester, RequestRules, find, unbindable};
use crate::tokens::verify::BoundObjects;
use crate::user::service_account;

/// Limits on a quoted client value in characters, and on the number of quoted audiences, in a cause.
const QUOTED_CHARACTERS: usize = 256;
const QUOTED_AUDIENCES: usize = 8;

/// A validated request for a token that is sent to webhooks.
pub(super) struct WebhookToken<'a> {
    pub(super) request: &'a Value,
    pub(super) reference: &'a Value,
    pub(super) kind: WebhookConfigurationKind,
    pub(super) now: Timestamp,
}

impl WebhookToken<'_> {
    /// Returns the bound object and the dialect of the request.
    ///
    /// INVARIANT: a response that depends on stored objects is given only to callers whose service account
    /// has the permission `attest`, and it is always the same: [`denied`]. The cause is for the log and the
    /// audit event.
    pub(super) async fn grant(
        &self,
        rules: &RequestRules,
        objects: &dyn BoundObjects,
        attester: &dyn Attester,
    ) -> Result<(BoundObject, AttestationDialect), TokenRequestRefusal> {
        let WebhookToken { request, reference, kind, now } = self;
        if !rules.webhooks {
            let gate = format!(" (feature gate {} is disabled)", attestation::GATE);
            let status = unbindable(kind.api_version(), kind.kind(), &gate);
            return Err(visible_refusal(status, RefusalReason::FeatureGateDisabled));
        }
        let spec = request.get("spec");
        let audiences = request.list_at(&["spec", "audiences"]);
        if audiences.iter().filter_map(Value::as_str).any(|one| rules.audiences.iter().any(|own| own == one))
        {
            let status = Status::bad_request("api server audiences are invalid for webhook token requests");
            return Err(visible_refusal(status, RefusalReason::ApiServerAudience));
        }
        let dialect = AttestationDialect::of(spec);
        // Validation guarantees exactly one of each; otherwise deny.
        let [Value::String(audience)] = audiences else { return Err(denied(request).into()) };
        let groups = request.list_at(&["spec", dialect.field(), dialect.key()]);
        let [Value::String(group)] = groups else { return Err(denied(request).into()) };
        let account =
            service_account::user(meta::namespace(request), meta::name(request), meta::uid(request));
        let attested = attester.attest(&account, dialect, group).await;
        attested.map_err(|status| visible_refusal(status, RefusalReason::NoAttestPermission))?;

        let name = reference.str_at(&["name"]).unwrap_or_default();
        let refused = |reason, detail| TokenRequestRefusal::new(denied(request), reason, detail);
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
        if let Err((reason, detail)) = check_configuration(&configuration, dialect, group, audience) {
            return Err(refused(reason, format!("{object}: {detail}")));
        }
        let configuration = ObjectReference { name: name.into(), uid: uid.into() };
        let bound = BoundObject::Webhooks { kind: *kind, configuration, group: Some(group.clone()) };
        Ok((bound, dialect))
    }
}

/// Checks that the configuration has a webhook with this audience and a rule for this group. The group `*` needs no rule.
fn check_configuration(
    configuration: &Value,
    dialect: AttestationDialect,
    group: &str,
    audience: &str,
) -> Result<(), (RefusalReason, String)> {
    let every = group == attestation::EVERY_GROUP;
    if every && dialect == AttestationDialect::Kubernetes {
        // As in kube-apiserver, the audience is not checked for `*`: only API servers have the permission to
        // attest every group.
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

/// The single response to everything that depends on stored objects, so that it reveals nothing about them.
fn denied(request: &Value) -> Status {
    let resource = GroupResource::new("", "serviceaccounts/token");
    Status::forbidden(&resource, meta::name(request), "token request denied")
}

/// A refusal whose cause may be shown to the client.
fn visible_refusal(status: Status, reason: RefusalReason) -> TokenRequestRefusal {
    let detail = status.message().to_owned();
    TokenRequestRefusal::new(status, reason, detail)
}

/// A quoted value of limited length.
fn excerpt(text: &str) -> String {
    let shown = first_chars(text, QUOTED_CHARACTERS);
    if shown.len() == text.len() { quote(text) } else { format!("{}…", quote(shown)) }
}

/// Whether deletion has begun. An invalid deletion time counts as begun.
fn is_deleting(object: &Value, now: Timestamp) -> bool {
    let text = meta::text(object, "deletionTimestamp");
    !text.is_empty() && Timestamp::parse(text).map_or(true, |time| time.seconds <= now.seconds)
}
