//! Validates a decoded configuration and reports all violations.

use std::sync::Arc;
use std::time::Duration;

use api::field::{FieldError, FieldErrorKind, aggregate};
use api::names::is_dns1123_subdomain;
use api::time::format_duration;
use value::yaml::Spans;
use value::{Path, Str, Value, write};

use crate::conditions::{AuthorizerMatchCondition, ConditionCompileError, Conditions};
use crate::config::decode::{RawAuthorizer, RawConfiguration, RawWebhook};
use crate::config::flags::WEBHOOK_NAME;
use crate::config::{
    AuthorizationConfigError, AuthorizationConfiguration, AuthorizerType, CheckedConfiguration,
    ConfigProblem, ConfiguredAuthorizer, Environment, FailurePolicy, SubjectAccessReviewVersion,
    WebhookConfiguration,
};

/// The `connectionInfo.type` for a webhook behind the server's own API, which is not supported here.
const IN_CLUSTER: &str = "InClusterConfig";
const MAX_CONDITIONS: usize = 64;
const MAX_TIMEOUT: i64 = 30_000_000_000;

pub(super) fn configuration(
    raw: RawConfiguration,
    spans: Option<&Spans>,
    environment: &Environment<'_>,
) -> Result<CheckedConfiguration, AuthorizationConfigError> {
    let webhooks = raw.authorizers.iter().filter(|a| a.kind == AuthorizerType::Webhook.as_str()).count();
    let mut check = ConfigValidator {
        environment,
        alpha: raw.alpha,
        single_webhook: webhooks == 1,
        errors: Vec::new(),
        warnings: Vec::new(),
    };
    let root = Path::root().field("authorizers");
    if raw.authorizers.is_empty() {
        check.errors.push(ConfigViolation::at(
            FieldError::required(&root, "at least one authorization mode must be defined"),
            &root,
        ));
    }
    let mut authorizers: Vec<ConfiguredAuthorizer> = Vec::new();
    let mut types: Vec<AuthorizerType> = Vec::new();
    let mut names: Vec<Str> = Vec::new();
    for (i, authorizer) in raw.authorizers.into_iter().enumerate() {
        let path = root.index(i);
        authorizers.extend(check.authorizer(&path, authorizer, &mut types, &mut names));
    }
    if !check.errors.is_empty() {
        return Err(check.refused(spans));
    }
    names_and_types(&authorizers, environment.required)?;
    let warning = |(path, message, hint): (String, String, String)| ConfigProblem {
        message,
        position: spans.map(|spans| spans.nearest(&path).key),
        hint: Some(hint),
    };
    let warnings = check.warnings.into_iter().map(warning).collect();
    Ok(CheckedConfiguration { configuration: AuthorizationConfiguration { authorizers }, warnings })
}

/// Rules about names and required types, which kube-apiserver checks separately.
fn names_and_types(
    authorizers: &[ConfiguredAuthorizer],
    required: &[AuthorizerType],
) -> Result<(), AuthorizationConfigError> {
    let fixed = || authorizers.iter().filter(|a| a.kind != AuthorizerType::Webhook);
    let mut messages: Vec<String> = fixed()
        .filter(|a| a.name != a.kind.step_name())
        .map(|a| {
            format!(
                "expected name {} for authorizer {} instead of {}",
                a.kind.step_name(),
                a.kind.as_str(),
                a.name
            )
        })
        .collect();
    let mut missing: Vec<&str> =
        required.iter().filter(|kind| !fixed().any(|a| a.kind == **kind)).map(|kind| kind.as_str()).collect();
    if !missing.is_empty() {
        missing.sort_unstable();
        messages.push(format!("missing required types: [{}]", missing.join(" ")));
    }
    if messages.is_empty() {
        return Ok(());
    }
    let summary = aggregate(&messages);
    let problem = |message| ConfigProblem { message, position: None, hint: None };
    Err(AuthorizationConfigError { summary, problems: messages.into_iter().map(problem).collect() })
}

/// A violation: kube-apiserver's error, the full field path, and a hint.
struct ConfigViolation {
    error: FieldError,
    path: String,
    hint: Option<String>,
    /// Whether the rule is not one of kube-apiserver's.
    ours: bool,
}

impl ConfigViolation {
    fn at(error: FieldError, path: &Path) -> Self {
        ConfigViolation { error, path: path.to_string(), hint: None, ours: false }
    }
}

struct ConfigValidator<'a> {
    environment: &'a Environment<'a>,
    alpha: bool,
    /// Whether the chain has exactly one webhook, whose name is optional in `v1alpha1`.
    single_webhook: bool,
    errors: Vec<ConfigViolation>,
    /// Path, message and hint.
    warnings: Vec<(String, String, String)>,
}

impl ConfigValidator<'_> {
    fn refused(self, spans: Option<&Spans>) -> AuthorizationConfigError {
        // Rules that kube-apiserver does not have appear in the summary only if there are no other errors.
        let theirs: Vec<&FieldError> =
            self.errors.iter().filter(|broken| !broken.ours).map(|broken| &broken.error).collect();
        let summary = if theirs.is_empty() {
            aggregate(self.errors.iter().map(|broken| &broken.error))
        } else {
            aggregate(theirs)
        };
        let problem = |broken: ConfigViolation| ConfigProblem {
            message: broken.error.to_string(),
            position: spans.map(|spans| spans.nearest(&broken.path).key),
            hint: broken.hint,
        };
        AuthorizationConfigError { summary, problems: self.errors.into_iter().map(problem).collect() }
    }

    fn authorizer(
        &mut self,
        path: &Path,
        mut raw: RawAuthorizer,
        types: &mut Vec<AuthorizerType>,
        names: &mut Vec<Str>,
    ) -> Option<ConfiguredAuthorizer> {
        let errors = &mut self.errors;
        let mut fail = |error: FieldError, field: &str, hint: Option<String>| {
            errors.push(ConfigViolation { error, path: path.field(field).to_string(), hint, ours: false });
        };
        let type_path = path.field("type");
        if raw.kind.is_empty() {
            fail(FieldError::required(&type_path, ""), "type", None);
            return None;
        }
        let Some(kind) = AuthorizerType::parse(&raw.kind) else {
            let known = AuthorizerType::ALL.map(AuthorizerType::as_str);
            fail(FieldError::not_supported(&type_path, raw.kind, &known), "type", None);
            return None;
        };
        if types.contains(&kind) && kind != AuthorizerType::Webhook {
            fail(FieldError::duplicate(&type_path, raw.kind), "type", None);
            return None;
        }
        types.push(kind);

        let name_path = path.field("name");
        if raw.name.is_empty() && self.alpha {
            raw.name = match kind {
                AuthorizerType::Webhook if !self.single_webhook => Str::default(),
                // In KEP-3221 the name may be missing. The webhook then gets the name of the one that flags
                // configure.
                AuthorizerType::Webhook => Str::new_static(WEBHOOK_NAME),
                _ => kind.step_name(),
            };
        }
        if raw.name.is_empty() {
            let hint = match kind {
                AuthorizerType::Webhook if self.alpha => {
                    "where a chain has several webhooks, each needs a name of its own".to_owned()
                }
                AuthorizerType::Webhook => "every webhook needs a name of its own".to_owned(),
                _ => format!("add `name: {}`", kind.step_name()),
            };
            fail(FieldError::required(&name_path, ""), "name", Some(hint));
        } else if names.contains(&raw.name) {
            fail(FieldError::duplicate(&name_path, raw.name.clone()), "name", None);
        } else {
            let errors = is_dns1123_subdomain(&raw.name);
            if !errors.is_empty() {
                let detail = format!("authorizer name is invalid: {}", errors.join(", "));
                fail(FieldError::invalid(&name_path, raw.name.clone(), detail), "name", None);
            }
        }
        names.push(raw.name.clone());

        let webhook_path = path.field("webhook");
        match (kind, raw.webhook) {
            (AuthorizerType::Webhook, None) => {
                fail(FieldError::required(&webhook_path, "required when type=Webhook"), "webhook", None);
                None
            }
            (AuthorizerType::Webhook, Some(webhook)) => {
                let webhook = self.webhook(path, &webhook)?;
                Some(ConfiguredAuthorizer { kind, name: raw.name, webhook: Some(webhook) })
            }
            (_, Some(_)) => {
                let detail = "may only be specified when type=Webhook";
                fail(FieldError::invalid(&webhook_path, "non-null", detail), "webhook", None);
                None
            }
            (_, None) => Some(ConfiguredAuthorizer { kind, name: raw.name, webhook: None }),
        }
    }

    /// kube-apiserver omits `webhook` from the paths in the errors of these fields.
    fn webhook(&mut self, path: &Path, raw: &RawWebhook) -> Option<WebhookConfiguration> {
        let before = self.errors.len();
        self.warn_of_zero_ttls(path, raw);
        self.durations(path, raw);
        let version = self.review_version(path, raw);
        self.condition_version(path, raw);
        let failure_policy = self.failure_policy(path, raw);
        let kubeconfig = self.connection(path, raw);
        let conditions = self.conditions(path, &raw.conditions);
        if self.errors.len() > before {
            return None;
        }
        let cached = |cached: bool, nanos: i64| cached.then(|| Duration::from_nanos(nanos.unsigned_abs()));
        Some(WebhookConfiguration {
            authorized_ttl: cached(raw.cache_authorized, raw.authorized_ttl),
            unauthorized_ttl: cached(raw.cache_unauthorized, raw.unauthorized_ttl),
            timeout: Duration::from_nanos(raw.timeout.unsigned_abs()),
            version: version?,
            failure_policy: failure_policy?,
            kubeconfig: kubeconfig?,
            conditions: Conditions::new(conditions),
        })
    }

    fn warn_of_zero_ttls(&mut self, path: &Path, raw: &RawWebhook) {
        for (field, cache) in &raw.zero_ttls {
            let (used, flag) = if *field == "authorizedTTL" {
                (raw.authorized_ttl, "authorization-webhook-cache-authorized-ttl")
            } else {
                (raw.unauthorized_ttl, "authorization-webhook-cache-unauthorized-ttl")
            };
            self.warnings.push((
                format!("{}.{field}", path.field("webhook")),
                format!(
                    "{}: 0s is the default of {}, it does not turn caching off",
                    path.field(*field),
                    format_duration(used)
                ),
                format!("`{cache}: false` turns it off; only the flag --{flag} takes 0s for that"),
            ));
        }
    }

    fn durations(&mut self, path: &Path, raw: &RawWebhook) {
        let field = "timeout";
        if raw.timeout == 0 {
            self.webhook_error(path, field, FieldError::required(&path.field(field), ""));
        } else if raw.timeout > MAX_TIMEOUT || raw.timeout < 0 {
            let shown = format_duration(raw.timeout);
            let error = FieldError::invalid(&path.field(field), shown, "must be > 0s and <= 30s");
            self.webhook_error(path, field, error);
        }
        for (field, ttl) in [("authorizedTTL", raw.authorized_ttl), ("unauthorizedTTL", raw.unauthorized_ttl)]
        {
            if ttl < 0 {
                let error = FieldError::invalid(&path.field(field), format_duration(ttl), "must be > 0s");
                self.webhook_error(path, field, error);
            }
        }
    }

    fn review_version(&mut self, path: &Path, raw: &RawWebhook) -> Option<SubjectAccessReviewVersion> {
        let field = "subjectAccessReviewVersion";
        let error = match raw.review_version.as_str() {
            "v1" => return Some(SubjectAccessReviewVersion::V1),
            "v1beta1" => return Some(SubjectAccessReviewVersion::V1Beta1),
            "" => FieldError::required(&path.field(field), ""),
            other => FieldError::not_supported(&path.field(field), other, &["v1", "v1beta1"]),
        };
        self.webhook_error(path, field, error);
        None
    }

    fn condition_version(&mut self, path: &Path, raw: &RawWebhook) {
        let field = "matchConditionSubjectAccessReviewVersion";
        let error = match raw.condition_version.as_str() {
            "v1" => return,
            "" if raw.conditions.is_empty() || self.alpha => return,
            "" => FieldError::required(&path.field(field), "required if match conditions are specified"),
            other => FieldError::not_supported(&path.field(field), other, &["v1"]),
        };
        self.webhook_error(path, field, error);
    }

    fn failure_policy(&mut self, path: &Path, raw: &RawWebhook) -> Option<FailurePolicy> {
        let field = "failurePolicy";
        let error = match raw.failure_policy.as_str() {
            "NoOpinion" => return Some(FailurePolicy::NoOpinion),
            "Deny" => return Some(FailurePolicy::Deny),
            "" if self.alpha => return Some(FailurePolicy::NoOpinion),
            "" => FieldError::required(&path.field(field), ""),
            other => FieldError::not_supported(&path.field(field), other, &["NoOpinion", "Deny"]),
        };
        self.webhook_error(path, field, error);
        None
    }

    fn webhook_error(&mut self, path: &Path, field: &str, error: FieldError) {
        let path = format!("{}.{field}", path.field("webhook"));
        self.errors.push(ConfigViolation { error, path, hint: None, ours: false });
    }

    fn connection(&mut self, path: &Path, raw: &RawWebhook) -> Option<Str> {
        let shown = path.field("connectionInfo");
        let real = path.field("webhook").field("connectionInfo");
        let mut fail = |error: FieldError, field: &str, hint: Option<&str>| {
            let hint = hint.map(str::to_owned);
            let ours = error.bad_value.as_ref().and_then(Value::as_str) == Some(IN_CLUSTER);
            self.errors.push(ConfigViolation { error, path: real.field(field).to_string(), hint, ours });
        };
        let (type_path, file_path) = (shown.field("type"), shown.field("kubeConfigFile"));
        let file = raw.kubeconfig.clone().unwrap_or_default();
        match raw.connection_type.as_str() {
            "" => fail(FieldError::required(&type_path, ""), "type", None),
            IN_CLUSTER => {
                if raw.kubeconfig.is_some() {
                    let error =
                        FieldError::invalid(&file_path, file, "can only be set when type=KubeConfigFile");
                    fail(error, "kubeConfigFile", None);
                }
                let detail =
                    "the API server cannot use its own SubjectAccessReview API to authorize requests";
                let hint = Some("use type KubeConfigFile with a kubeConfigFile");
                fail(FieldError::invalid(&type_path, IN_CLUSTER, detail), "type", hint);
            }
            "KubeConfigFile" => return self.kubeconfig(&file_path, &real, file),
            // The type's name in KEP-3221.
            "KubeConfig" if self.alpha => return self.kubeconfig(&file_path, &real, file),
            other => {
                // Go prints the whole struct here, with fields in declaration order.
                let text = |text: &str| write::to_string(&Value::from(text));
                let file = raw.kubeconfig.as_ref().map_or_else(|| "null".to_owned(), |file| text(file));
                let error = FieldError {
                    kind: FieldErrorKind::NotSupported,
                    field: type_path.to_string(),
                    bad_value: None,
                    detail: format!(
                        r#"{{"Type":{},"KubeConfigFile":{file}}}: supported values: "InClusterConfig", "KubeConfigFile""#,
                        text(other)
                    ),
                };
                fail(error, "type", (other == "KubeConfig").then_some("it is called KubeConfigFile"));
            }
        }
        None
    }

    fn kubeconfig(&mut self, path: &Path, connection: &Path, file: Str) -> Option<Str> {
        let error = if file.is_empty() {
            FieldError::required(path, "")
        } else if !file.starts_with('/') {
            FieldError::invalid(path, file, "must be an absolute path")
        } else if let Err(why) = (self.environment.kubeconfig)(&file) {
            FieldError::invalid(path, file, why)
        } else {
            return Some(file);
        };
        self.errors.push(ConfigViolation::at(error, &connection.field("kubeConfigFile")));
        None
    }

    fn conditions(&mut self, path: &Path, expressions: &[Str]) -> Vec<Arc<dyn AuthorizerMatchCondition>> {
        let shown = path.field("matchConditions");
        let real = path.field("webhook").field("matchConditions");
        let mut conditions = Vec::new();
        if expressions.len() > MAX_CONDITIONS {
            let error = FieldError::too_many(&shown, expressions.len(), MAX_CONDITIONS);
            self.errors.push(ConfigViolation::at(error, &real));
            return conditions;
        }
        for (i, expression) in expressions.iter().enumerate() {
            let field = shown.index(i).field("expression");
            let mut hint = None;
            let error = if expression.trim().is_empty() {
                FieldError::required(&field, "")
            } else if expressions.iter().take(i).any(|earlier| earlier == expression) {
                FieldError::duplicate(&field, expression.clone())
            } else {
                match self.environment.compiler.compile(expression) {
                    Ok(condition) => {
                        conditions.push(condition);
                        continue;
                    }
                    Err(ConditionCompileError::Invalid(detail)) => {
                        hint = expression
                            .contains("request.user.groups")
                            .then(|| "the groups are request.groups; request.user is a string".to_owned());
                        FieldError::invalid(&field, expression.clone(), detail)
                    }
                    Err(ConditionCompileError::Internal(detail)) => FieldError::internal(&field, detail),
                }
            };
            let path = real.index(i).field("expression").to_string();
            self.errors.push(ConfigViolation { error, path, hint, ours: false });
        }
        conditions
    }
}
