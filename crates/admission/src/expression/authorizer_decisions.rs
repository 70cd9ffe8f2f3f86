//! The authorizer's decisions, cached for one request.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use api::Status;
use authn::User;
use authz::{AuthorizationAttributes, Decision, SelectorAttributes};
use cel::authz::{AuthorizerCheck, CheckDecision, CheckTarget, RecordedDecisions};
use value::Str;

use super::EvaluationPause;
use crate::ClusterView;
use crate::matching::RequestContext;

/// Answers the authorizer checks of CEL expressions from memory.
#[derive(Debug, Default)]
pub struct AuthorizerDecisions {
    decisions: Mutex<HashMap<AuthorizerCheck, CheckDecision>>,
}

impl RecordedDecisions for AuthorizerDecisions {
    fn check(&self, check: &AuthorizerCheck) -> Option<CheckDecision> {
        self.decisions.lock().unwrap_or_else(PoisonError::into_inner).get(check).cloned()
    }
}

impl AuthorizerDecisions {
    /// Does what evaluation paused for, so that it can be repeated. Fails if the deadline has passed.
    pub async fn resume(&self, pause: EvaluationPause, context: &RequestContext<'_>) -> Result<(), Status> {
        match pause {
            EvaluationPause::Late => Err(RequestContext::deadline_exceeded()),
            EvaluationPause::Long => {
                context.pacer().leave_main_runtime().await;
                context.check_deadline()
            }
            EvaluationPause::Check(check) => {
                context.check_deadline()?;
                self.authorize(*check, context.attributes.user, context.cluster).await;
                Ok(())
            }
        }
    }

    async fn authorize(&self, check: AuthorizerCheck, user: &User, cluster: &dyn ClusterView) {
        let account = check.service_account.as_ref();
        let account = account.map(|(namespace, name)| authn::service_account::user(namespace, name, ""));
        let authorized = cluster.authorize(account.as_ref().unwrap_or(user), &attributes(&check)).await;
        let decision = CheckDecision {
            allowed: authorized.decision == Decision::Allow,
            reason: authorized.reason.to_string().into(),
            error: authorized.error.map(Str::from),
        };
        self.decisions.lock().unwrap_or_else(PoisonError::into_inner).insert(check, decision);
    }
}

fn attributes(check: &AuthorizerCheck) -> AuthorizationAttributes {
    match &check.target {
        CheckTarget::Path(path) => AuthorizationAttributes::path(check.verb.clone(), path.clone()),
        CheckTarget::Resource(target) => AuthorizationAttributes {
            fields: target.field_selector.as_deref().map(SelectorAttributes::of_fields).unwrap_or_default(),
            labels: target.label_selector.as_deref().map(SelectorAttributes::of_labels).unwrap_or_default(),
            ..AuthorizationAttributes::resource(
                check.verb.clone(),
                target.group.clone(),
                target.resource.clone(),
            )
            .subresource(target.subresource.clone())
            .in_namespace(target.namespace.clone())
            .named(target.name.clone())
        },
    }
}
