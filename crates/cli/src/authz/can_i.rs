//! `authz can-i`: evaluates one request with every authorizer of a chain in order.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use authn::{User, names};
use authz::config::{
    AuthorizationConfiguration, AuthorizerType, ConfiguredAuthorizer, SubjectAccessReviewVersion,
    WebhookConfiguration,
};
use authz::webhook::{AuthorizationFuture, ReviewTransport, SendError, WebhookResponse};
use authz::{
    AuthorizationAttributes, AuthorizerDecision, ConditionsResult, Decision, NoObserver, SelectorAttributes,
    SharedAuthorizers, assemble,
};
use value::Str;

use super::{FileArgs, load, manifests};

#[derive(Debug, Default, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    file: FileArgs,
    /// Name of the user.
    #[arg(long = "as", value_name = "USER")]
    user: String,
    /// Group of the user; may be repeated. system:authenticated is added, or system:unauthenticated for system:anonymous.
    #[arg(long = "as-group", value_name = "GROUP")]
    groups: Vec<String>,
    /// UID of the user.
    #[arg(long = "as-uid", value_name = "UID", default_value = "")]
    uid: String,
    /// Extra attribute of the user as KEY=VALUE; may be repeated.
    #[arg(long = "as-user-extra", value_name = "KEY=VALUE")]
    extra: Vec<String>,
    /// Namespace of the request. Without it, the request is cluster-scoped or for all namespaces.
    #[arg(short, long, default_value = "")]
    namespace: String,
    /// Subresource, such as log.
    #[arg(long, default_value = "")]
    subresource: String,
    /// Label selector of a list, watch or deletecollection request.
    #[arg(long, default_value = "")]
    label_selector: String,
    /// Field selector of a list, watch or deletecollection request.
    #[arg(long, default_value = "")]
    field_selector: String,
    /// File or directory with roles, bindings and the objects that the Node authorizer uses; may be repeated.
    #[arg(short = 'f', long = "filename", value_name = "PATH")]
    manifests: Vec<PathBuf>,
    /// Do not add the bootstrap roles and bindings of Kubernetes.
    #[arg(long)]
    without_bootstrap: bool,
    /// Assume the response of a webhook: NAME=allow, deny, no-opinion or fail; may be repeated.
    #[arg(long, value_name = "NAME=ANSWER")]
    assume: Vec<String>,
    /// Verb of the request, such as get.
    verb: String,
    /// RESOURCE[.GROUP][/NAME], or a path that begins with /.
    resource: String,
    /// Name of the object.
    name: Option<String>,
}

/// Prints every authorizer's decision, then `yes` or `no`. The exit code is 3 if the decision depends on a webhook without `--assume`.
pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<ExitCode> {
    let loaded = load(&args.file)?;
    let data = manifests::read(&args.manifests, !args.without_bootstrap)?;
    let sources = SharedAuthorizers {
        rbac: Some(data.roles),
        node: Some(data.nodes),
        abac: loaded.policies.map(Arc::new),
        observer: Arc::new(NoObserver),
    };
    let assumed = assumptions(&args.assume, &loaded.configuration)?;
    let (user, attributes) = (user(args)?, attributes(args));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let evaluation =
        CanIEvaluation { configuration: &loaded.configuration, sources: &sources, assumed: &assumed };
    let result = runtime.block_on(evaluation.run(&user, &attributes, out))?;
    let (answer, code) = match (result.answer.decision, &result.unknown_webhook) {
        (Decision::Allow, None) => ("yes", ExitCode::SUCCESS),
        (_, None) => ("no", ExitCode::FAILURE),
        (decision, Some(webhook)) => {
            let otherwise = if decision == Decision::Allow { "yes" } else { "no" };
            writeln!(
                out,
                "the decision depends on the webhook `{webhook}`; if it has no opinion: {otherwise} (use --assume {webhook}=allow|deny|no-opinion|fail)"
            )?;
            return Ok(ExitCode::from(3));
        }
    };
    writeln!(out, "{answer}")?;
    if code == ExitCode::FAILURE {
        let reason = result.answer.reason.to_string();
        match &result.answer.error {
            Some(error) => writeln!(out, "the server would respond with 500: {error}")?,
            None => writeln!(out, "{}", authz::forbidden(&user.name, &attributes, &reason).message())?,
        }
    }
    Ok(code)
}

struct EvaluationResult {
    answer: AuthorizerDecision,
    /// The first webhook that would be called and has no assumed response.
    unknown_webhook: Option<Str>,
}

struct CanIEvaluation<'a> {
    configuration: &'a AuthorizationConfiguration,
    sources: &'a SharedAuthorizers,
    assumed: &'a [(Str, AssumedResponse)],
}

impl CanIEvaluation<'_> {
    /// Evaluates the authorizers one by one to print each decision, then the whole chain for the result.
    async fn run(
        &self,
        user: &User,
        attributes: &AuthorizationAttributes,
        out: &mut dyn Write,
    ) -> Result<EvaluationResult> {
        let mut unknown_webhook = None;
        if user.is_in(names::MASTERS) {
            writeln!(out, "0. members of {} may do everything", names::MASTERS)?;
        } else {
            for (i, authorizer) in self.configuration.authorizers.iter().enumerate() {
                writeln!(out, "{}. {} ({})", i + 1, authorizer.name, authorizer.kind.as_str())?;
                let is_called = print_conditions(authorizer, user, attributes, out)?;
                if is_called && self.assumption(&authorizer.name).is_none() {
                    writeln!(out, "   would be called; set its response with --assume")?;
                    unknown_webhook.get_or_insert(authorizer.name.clone());
                    continue;
                }
                let alone = AuthorizationConfiguration { authorizers: vec![authorizer.clone()] };
                let chain = self.chain(&alone)?;
                let begun = Instant::now();
                let answer = chain.decide(user, attributes).await;
                let took = begun.elapsed();
                print_decision(authorizer, &answer, took, out)?;
                if answer.decision != Decision::NoOpinion {
                    break;
                }
            }
        }
        let answer = self.chain(self.configuration)?.decide(user, attributes).await;
        Ok(EvaluationResult { answer, unknown_webhook })
    }

    fn chain(&self, configuration: &AuthorizationConfiguration) -> Result<authz::AuthorizerChain> {
        let sender = |name: &str, webhook: &WebhookConfiguration| {
            let response = self.assumption(name).unwrap_or(AssumedResponse::NoOpinion);
            Ok(Arc::new(AssumedWebhook { response, version: webhook.version }) as Arc<dyn ReviewTransport>)
        };
        assemble(configuration, self.sources, &sender).map_err(|why| anyhow!("{why}"))
    }

    fn assumption(&self, name: &str) -> Option<AssumedResponse> {
        self.assumed.iter().find(|(webhook, _)| webhook == name).map(|(_, assumed)| *assumed)
    }
}

/// Prints the match conditions of a webhook with their values. Returns whether the webhook is called.
fn print_conditions(
    authorizer: &ConfiguredAuthorizer,
    user: &User,
    attributes: &AuthorizationAttributes,
    out: &mut dyn Write,
) -> Result<bool> {
    let Some(webhook) = &authorizer.webhook else { return Ok(false) };
    for (expression, value) in webhook.conditions.values(user, attributes) {
        let shown = match value {
            Ok(value) => value.to_string(),
            Err(error) => format!("error: {error}"),
        };
        writeln!(out, "   {}: {shown}", expression.trim())?;
    }
    Ok(webhook.conditions.evaluate(user, attributes) == ConditionsResult::Yes)
}

fn print_decision(
    authorizer: &ConfiguredAuthorizer,
    answer: &AuthorizerDecision,
    took: Duration,
    out: &mut dyn Write,
) -> Result<()> {
    let skipped = authorizer.kind == AuthorizerType::Webhook
        && *answer
            == AuthorizerDecision {
                reason: authz::DecisionReason::None,
                ..AuthorizerDecision::no_opinion("")
            };
    let decision = match answer.decision {
        Decision::Allow => "allows",
        Decision::Deny => "denies",
        Decision::NoOpinion if skipped => "is skipped",
        Decision::NoOpinion => "has no opinion",
    };
    write!(out, "   {decision}")?;
    if !answer.reason.is_empty() {
        write!(out, ": {}", answer.reason)?;
    }
    if let Some(error) = &answer.error {
        write!(out, " (error: {error})")?;
    }
    writeln!(out, " [{took:?}]")?;
    Ok(())
}

/// The response that `--assume` sets for a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AssumedResponse {
    Allow,
    Deny,
    NoOpinion,
    Fail,
}

fn assumptions(
    texts: &[String],
    configuration: &AuthorizationConfiguration,
) -> Result<Vec<(Str, AssumedResponse)>> {
    let mut all = Vec::new();
    for text in texts {
        let (name, answer) = text.split_once('=').ok_or_else(|| {
            anyhow!("--assume {text}: write NAME=allow, NAME=deny, NAME=no-opinion or NAME=fail")
        })?;
        let is_webhook = |a: &&ConfiguredAuthorizer| a.name == name && a.kind == AuthorizerType::Webhook;
        if !configuration.authorizers.iter().any(|a| is_webhook(&a)) {
            bail!("--assume {text}: the configuration has no webhook called `{name}`");
        }
        let answer = match answer {
            "allow" => AssumedResponse::Allow,
            "deny" => AssumedResponse::Deny,
            "no-opinion" => AssumedResponse::NoOpinion,
            "fail" => AssumedResponse::Fail,
            other => bail!("--assume {text}: `{other}` is not allow, deny, no-opinion or fail"),
        };
        all.push((Str::from(name), answer));
    }
    Ok(all)
}

/// Responds instead of a webhook.
struct AssumedWebhook {
    response: AssumedResponse,
    version: SubjectAccessReviewVersion,
}

impl ReviewTransport for AssumedWebhook {
    fn send<'a>(&'a self, _review: &'a [u8]) -> AuthorizationFuture<'a, Result<WebhookResponse, SendError>> {
        let status = match self.response {
            AssumedResponse::Allow => r#"{"allowed":true,"reason":"assumed"}"#,
            AssumedResponse::Deny => r#"{"allowed":false,"denied":true,"reason":"assumed"}"#,
            AssumedResponse::NoOpinion => r#"{"allowed":false,"reason":"assumed"}"#,
            AssumedResponse::Fail => {
                let failure = SendError::Other("assumed to fail".to_owned());
                return Box::pin(std::future::ready(Err(failure)));
            }
        };
        let version = self.version.as_str();
        let body = format!(
            r#"{{"apiVersion":"authorization.k8s.io/{version}","kind":"SubjectAccessReview","status":{status}}}"#
        );
        let answered = WebhookResponse {
            status: 200,
            content_type: "application/json".to_owned(),
            retry_after: false,
            body: body.into_bytes(),
        };
        Box::pin(std::future::ready(Ok(answered)))
    }

    fn pause(&self, how_long: Duration) -> AuthorizationFuture<'_, ()> {
        Box::pin(tokio::time::sleep(how_long))
    }

    fn now(&self) -> Instant {
        Instant::now()
    }
}

fn user(args: &Args) -> Result<User> {
    let mut groups: Vec<Str> = args.groups.iter().map(Str::from).collect();
    let class = if args.user == names::ANONYMOUS { names::UNAUTHENTICATED } else { names::AUTHENTICATED };
    if !groups.iter().any(|group| group == class) {
        groups.push(Str::new_static(class));
    }
    let mut user =
        User { name: args.user.as_str().into(), uid: args.uid.as_str().into(), groups, ..User::named("") };
    for text in &args.extra {
        let (key, value) =
            text.split_once('=').ok_or_else(|| anyhow!("--as-user-extra {text}: write KEY=VALUE"))?;
        user.extra.entry(key.into()).or_default().push(value.into());
    }
    Ok(user)
}

/// The request attributes. A built-in resource can be given by plural or singular name, kind or short name, and without its group.
fn attributes(args: &Args) -> AuthorizationAttributes {
    if args.resource.starts_with('/') {
        return AuthorizationAttributes::path(args.verb.as_str(), args.resource.as_str());
    }
    let (typed, name) = args.resource.split_once('/').unwrap_or((&args.resource, ""));
    let name = args.name.as_deref().unwrap_or(name);
    let (word, group) = typed.split_once('.').unwrap_or((typed, ""));
    let found = kinds::table::all().find(|row| {
        (group.is_empty() || row.group == group)
            && (row.plural == word
                || row.singular == word
                || row.kind.eq_ignore_ascii_case(word)
                || row.short_names.contains(&word))
    });
    let (group, plural) = found.map_or((group, word), |row| (row.group, row.plural));
    let mut attributes = AuthorizationAttributes::resource(args.verb.as_str(), group, plural)
        .in_namespace(args.namespace.as_str())
        .named(name)
        .subresource(args.subresource.as_str());
    attributes.version =
        found.and_then(|row| row.versions.first()).map_or("*", |version| version.name).into();
    if !args.label_selector.is_empty() {
        attributes.labels = SelectorAttributes::of_labels(&args.label_selector);
    }
    if !args.field_selector.is_empty() {
        attributes.fields = SelectorAttributes::of_fields(&args.field_selector);
    }
    attributes
}
