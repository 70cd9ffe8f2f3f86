//! Answers of the authorizer, remembered for one request.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use api::Status;
use authn::User;
use authz::{Attributes, Decision as Verdict, Selector};
use cel::authz::{Authorizer, AuthorizerCheck, AuthorizerDecision, CheckTarget};
use value::Str;

use super::Pause;
use crate::Cluster;
use crate::matching::Asked;

/// What the authorizer has said so far.
#[derive(Debug, Default)]
pub struct Checks {
    answers: Mutex<HashMap<AuthorizerCheck, AuthorizerDecision>>,
}

impl Authorizer for Checks {
    fn check(&self, check: &AuthorizerCheck) -> Option<AuthorizerDecision> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).get(check).cloned()
    }
}

impl Checks {
    /// Does what is wanted before a request can be evaluated again; one that is late is refused.
    pub async fn resume(&self, pause: Pause, asked: &Asked<'_>) -> Result<(), Status> {
        match pause {
            Pause::Late => Err(Asked::too_late()),
            Pause::Check(check) => {
                asked.in_time()?;
                self.ask(*check, asked.attributes.user, asked.cluster).await;
                Ok(())
            }
        }
    }

    /// Gets an answer and remembers it.
    async fn ask(&self, check: AuthorizerCheck, user: &User, cluster: &dyn Cluster) {
        let account = check.service_account.as_ref();
        let account = account.map(|(namespace, name)| authn::service_account::user(namespace, name, ""));
        let answer = cluster.authorize(account.as_ref().unwrap_or(user), &attributes(&check)).await;
        let decision = AuthorizerDecision {
            allowed: answer.decision == Verdict::Allow,
            reason: answer.reason.to_string().into(),
            error: answer.error.map(Str::from),
        };
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).insert(check, decision);
    }
}

/// The question as authorizers get it.
fn attributes(check: &AuthorizerCheck) -> Attributes {
    match &check.target {
        CheckTarget::Path(path) => Attributes::path(check.verb.clone(), path.clone()),
        CheckTarget::Resource(target) => Attributes {
            fields: target.field_selector.as_deref().map(Selector::of_fields).unwrap_or_default(),
            labels: target.label_selector.as_deref().map(Selector::of_labels).unwrap_or_default(),
            ..Attributes::resource(check.verb.clone(), target.group.clone(), target.resource.clone())
                .subresource(target.subresource.clone())
                .in_namespace(target.namespace.clone())
                .named(target.name.clone())
        },
    }
}
