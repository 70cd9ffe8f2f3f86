//! One question, put to every authorizer of a chain in turn.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use authn::{User, names};
use authz::config::{
    AuthorizerType, Configuration, ConfiguredAuthorizer, ReviewVersion, WebhookConfiguration,
};
use authz::webhook::{BoxFuture, ReviewTransport, SendError, WebhookResponse};
use authz::{
    Attributes, AuthorizerDecision, ConditionsResult, Decision, NoObserver, Selector, SharedAuthorizers,
    assemble,
};
use value::Str;

use super::{FileArgs, load, manifests};

/// The flags of `can-i`.
#[derive(Debug, Default, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    file: FileArgs,
    /// Whom the question is about.
    #[arg(long = "as", value_name = "USER")]
    user: String,
    /// A group of theirs; may be repeated. system:authenticated is added, unless they are system:anonymous.
    #[arg(long = "as-group", value_name = "GROUP")]
    groups: Vec<String>,
    /// Their unique id.
    #[arg(long = "as-uid", value_name = "UID", default_value = "")]
    uid: String,
    /// Something else that is known of them: KEY=VALUE; may be repeated.
    #[arg(long = "as-user-extra", value_name = "KEY=VALUE")]
    extra: Vec<String>,
    /// The namespace; without it the question is about the cluster, or all namespaces.
    #[arg(short, long, default_value = "")]
    namespace: String,
    /// The subresource, as `log`.
    #[arg(long, default_value = "")]
    subresource: String,
    /// The label selector of a list, watch or deletecollection.
    #[arg(long, default_value = "")]
    label_selector: String,
    /// The field selector of a list, watch or deletecollection.
    #[arg(long, default_value = "")]
    field_selector: String,
    /// Roles, bindings and what else authorizers know: a file, or a folder of files; may be repeated.
    #[arg(short = 'f', long = "filename", value_name = "PATH")]
    manifests: Vec<PathBuf>,
    /// Leave out the roles and bindings that every cluster begins with.
    #[arg(long)]
    without_bootstrap: bool,
    /// What a webhook is taken to answer: NAME=allow|deny|no-opinion|fail; may be repeated.
    #[arg(long, value_name = "NAME=ANSWER")]
    assume: Vec<String>,
    /// The verb.
    verb: String,
    /// RESOURCE[.GROUP][/NAME], or a path that begins with a slash.
    resource: String,
    /// The name of one object.
    name: Option<String>,
}

/// Runs the command.
pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<ExitCode> {
    let loaded = load(&args.file)?;
    let known = manifests::read(&args.manifests, !args.without_bootstrap)?;
    let standing = SharedAuthorizers {
        rbac: Some(known.roles),
        node: Some(known.nodes),
        abac: loaded.policies.map(Arc::new),
        observer: Arc::new(NoObserver),
    };
    let assumed = assumptions(&args.assume, &loaded.configuration)?;
    let (user, attributes) = (user(args)?, attributes(args));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let asked = Question { configuration: &loaded.configuration, standing: &standing, assumed: &assumed };
    let told = runtime.block_on(asked.put(&user, &attributes, out))?;
    let (answer, code) = match (told.answer.decision, &told.open) {
        (Decision::Allow, None) => ("yes", ExitCode::SUCCESS),
        (_, None) => ("no", ExitCode::FAILURE),
        (decision, Some(webhook)) => {
            let otherwise = if decision == Decision::Allow { "yes" } else { "no" };
            writeln!(
                out,
                "it depends on the webhook `{webhook}`: without its opinion {otherwise} (--assume {webhook}=allow|deny|no-opinion|fail)"
            )?;
            return Ok(ExitCode::from(3));
        }
    };
    writeln!(out, "{answer}")?;
    if code == ExitCode::FAILURE {
        let reason = told.answer.reason.to_string();
        match &told.answer.error {
            Some(error) => writeln!(out, "the server would answer 500: {error}")?,
            None => writeln!(out, "{}", authz::forbidden(&user.name, &attributes, &reason).message())?,
        }
    }
    Ok(code)
}

/// What came of a question.
struct Told {
    answer: AuthorizerDecision,
    /// The first webhook whose answer is not known.
    open: Option<Str>,
}

struct Question<'a> {
    configuration: &'a Configuration,
    standing: &'a SharedAuthorizers,
    assumed: &'a [(Str, Assumed)],
}

impl Question<'_> {
    /// Asks the authorizers one by one, and the chain as a whole for the answer.
    async fn put(&self, user: &User, attributes: &Attributes, out: &mut dyn Write) -> Result<Told> {
        let mut open = None;
        if user.is_in(names::MASTERS) {
            writeln!(out, "0. members of {} may do everything", names::MASTERS)?;
        } else {
            for (i, authorizer) in self.configuration.authorizers.iter().enumerate() {
                writeln!(out, "{}. {} ({})", i + 1, authorizer.name, authorizer.kind.as_str())?;
                let asks = conditions(authorizer, user, attributes, out)?;
                if asks && self.assumption(&authorizer.name).is_none() {
                    writeln!(out, "   would be asked; its answer is not known here")?;
                    open.get_or_insert(authorizer.name.clone());
                    continue;
                }
                let alone = Configuration { authorizers: vec![authorizer.clone()] };
                let chain = self.chain(&alone)?;
                let begun = Instant::now();
                let answer = chain.decide(user, attributes).await;
                let took = begun.elapsed();
                show(authorizer, &answer, took, out)?;
                if answer.decision != Decision::NoOpinion {
                    break;
                }
            }
        }
        let answer = self.chain(self.configuration)?.decide(user, attributes).await;
        Ok(Told { answer, open })
    }

    fn chain(&self, configuration: &Configuration) -> Result<authz::Chain> {
        let sender = |name: &str, webhook: &WebhookConfiguration| {
            let answer = self.assumption(name).unwrap_or(Assumed::NoOpinion);
            Ok(Arc::new(Pretend { answer, version: webhook.version }) as Arc<dyn ReviewTransport>)
        };
        assemble(configuration, self.standing, &sender).map_err(|why| anyhow!("{why}"))
    }

    fn assumption(&self, name: &str) -> Option<Assumed> {
        self.assumed.iter().find(|(known, _)| known == name).map(|(_, assumed)| *assumed)
    }
}

/// Shows the conditions of a webhook with their values, and whether it is asked.
fn conditions(
    authorizer: &ConfiguredAuthorizer,
    user: &User,
    attributes: &Attributes,
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

fn show(
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

/// What a webhook is taken to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Assumed {
    Allow,
    Deny,
    NoOpinion,
    Fail,
}

fn assumptions(texts: &[String], configuration: &Configuration) -> Result<Vec<(Str, Assumed)>> {
    let mut all = Vec::new();
    for text in texts {
        let (name, answer) = text
            .split_once('=')
            .ok_or_else(|| anyhow!("--assume {text}: write NAME=allow, deny, no-opinion or fail"))?;
        let is_webhook = |a: &&ConfiguredAuthorizer| a.name == name && a.kind == AuthorizerType::Webhook;
        if !configuration.authorizers.iter().any(|a| is_webhook(&a)) {
            bail!("--assume {text}: the configuration has no webhook called `{name}`");
        }
        let answer = match answer {
            "allow" => Assumed::Allow,
            "deny" => Assumed::Deny,
            "no-opinion" => Assumed::NoOpinion,
            "fail" => Assumed::Fail,
            other => bail!("--assume {text}: `{other}` is none of allow, deny, no-opinion and fail"),
        };
        all.push((Str::from(name), answer));
    }
    Ok(all)
}

/// Answers in place of a webhook.
struct Pretend {
    answer: Assumed,
    version: ReviewVersion,
}

impl ReviewTransport for Pretend {
    fn send<'a>(&'a self, _review: &'a [u8]) -> BoxFuture<'a, Result<WebhookResponse, SendError>> {
        let status = match self.answer {
            Assumed::Allow => r#"{"allowed":true,"reason":"assumed"}"#,
            Assumed::Deny => r#"{"allowed":false,"denied":true,"reason":"assumed"}"#,
            Assumed::NoOpinion => r#"{"allowed":false,"reason":"assumed"}"#,
            Assumed::Fail => {
                let failure = SendError::Other("assumed to fail".to_owned());
                return Box::pin(std::future::ready(Err(failure)));
            }
        };
        let version = super::review(self.version);
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

    fn pause(&self, how_long: Duration) -> BoxFuture<'_, ()> {
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

/// What is asked. A resource that Kubernetes knows may be named by its kind or a short name, and without its group.
fn attributes(args: &Args) -> Attributes {
    if args.resource.starts_with('/') {
        return Attributes::path(args.verb.as_str(), args.resource.as_str());
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
    let mut attributes = Attributes::resource(args.verb.as_str(), group, plural)
        .in_namespace(args.namespace.as_str())
        .named(name)
        .subresource(args.subresource.as_str());
    attributes.version =
        found.and_then(|row| row.versions.first()).map_or("*", |version| version.name).into();
    if !args.label_selector.is_empty() {
        attributes.labels = Selector::of_labels(&args.label_selector);
    }
    if !args.field_selector.is_empty() {
        attributes.fields = Selector::of_fields(&args.field_selector);
    }
    attributes
}
