//! All scripts against one server, and the score.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::task::JoinSet;

use crate::client::{Client, Credentials, Trust};
use crate::compare::differences;
use crate::replay::replay;
use crate::script::{self, Admission, Observed, Script};
use crate::server::{ADMIN_TOKEN, Server};
use crate::{Problem, Result};

/// Every plugin that is on by default but NamespaceLifecycle: scripts about anything else are recorded without them.
const BARE: &[&str] = &[
    "CertificateApproval",
    "CertificateSigning",
    "CertificateSubjectRestriction",
    "ClusterTrustBundleAttest",
    "DefaultIngressClass",
    "DefaultStorageClass",
    "DefaultTolerationSeconds",
    "LimitRanger",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "NodeDeclaredFeatureValidator",
    "PersistentVolumeClaimResize",
    "PodGroupProtection",
    "PodResizeValidator",
    "PodSecurity",
    "PodTopologyLabels",
    "Priority",
    "ResourceQuota",
    "RuntimeClass",
    "ServiceAccount",
    "StorageObjectInUseProtection",
    "TaintNodesByCondition",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
];

/// How a run went.
#[derive(Debug, Default)]
pub struct Score {
    /// Steps that were answered as expected.
    pub passed: usize,
    /// All steps.
    pub total: usize,
    /// What differed, step by step.
    pub report: String,
}

/// The reference server that `REFERENCE_URL` and `REFERENCE_TOKEN` name, if they do.
pub fn reference() -> Result<Option<Client>> {
    let Ok(url) = env::var("REFERENCE_URL") else { return Ok(None) };
    let token = env::var("REFERENCE_TOKEN").unwrap_or_else(|_| ADMIN_TOKEN.to_owned());
    Client::new(&url, Trust::Anything, Credentials::Token(token)).map(Some)
}

/// Replays the scripts whose name contains `PORTCULLIS_SCRIPT` (all without it) against the built binary, and compares with the
/// reference if there is one, else with what was recorded.
pub async fn run() -> Result<Score> {
    let reference = reference()?;
    let scripts = chosen(reference.is_some())?;
    let bare = format!("--disable-admission-plugins={}", BARE.join(","));
    let (bare, full) = (Server::serve(&[&bare]).await?, Server::serve(&[]).await?);
    let mut runs = JoinSet::new();
    for script in scripts {
        let server = if script.admission == Admission::Default { &full } else { &bare };
        let (client, reference) = (server.client()?, reference.clone());
        runs.spawn(async move {
            let expected = match reference {
                Some(reference) => replay(&own_connection(&reference), &script, &unique()).await?,
                None => script.expected()?,
            };
            // An answer that never came is a step that failed, as are those after it.
            let (got, broken) = match replay(&own_connection(&client), &script, &unique()).await {
                Ok(got) => (got, None),
                Err(problem) => (Vec::new(), Some(problem)),
            };
            Ok::<_, Problem>(score(&script, &expected, &got, broken))
        });
    }
    let mut whole = Score::default();
    while let Some(run) = runs.join_next().await {
        let part = run.map_err(|e| Problem::at("a script", e))??;
        whole.passed += part.passed;
        whole.total += part.total;
        whole.report.push_str(&part.report);
    }
    let against = if reference.is_some() { "the reference" } else { "the recorded answers" };
    let line = format!("conformance score: {} of {} steps as {against}", whole.passed, whole.total);
    let _ = writeln!(whole.report, "{line}");
    if let Some(path) = env::var_os("PORTCULLIS_SCORE") {
        fs::write(path, format!("{line}\n")).map_err(|e| Problem::at("the score", e))?;
    }
    Ok(whole)
}

/// Records what the reference answers. Hands back how many steps there are.
pub async fn record() -> Result<usize> {
    let reference = reference()?.ok_or_else(|| Problem::new("REFERENCE_URL is not set"))?;
    let mut steps = 0;
    for script in chosen(true)? {
        let observed = replay(&own_connection(&reference), &script, &unique()).await?;
        script.record(&observed)?;
        println!("{}: {} steps", script.name, observed.len());
        steps += observed.len();
    }
    Ok(steps)
}

/// The scripts by name. A reference has either the default admission plugins (`REFERENCE_ADMISSION=default`) or the life of
/// namespaces alone, and answers only the scripts that are for it.
fn chosen(for_reference: bool) -> Result<Vec<Script>> {
    let wanted = env::var("PORTCULLIS_SCRIPT").unwrap_or_default();
    let default = env::var("REFERENCE_ADMISSION").is_ok_and(|plugins| plugins == "default");
    let admission = if default { Admission::Default } else { Admission::Bare };
    let fits =
        |script: &Script| script.name.contains(&wanted) && (!for_reference || script.admission == admission);
    Ok(script::all()?.into_iter().filter(fits).collect())
}

/// A client that shares no connection with others, so that scripts do not wait for each other.
fn own_connection(client: &Client) -> Client {
    client.as_token(client.token())
}

/// What tells this run from others on the same server.
fn unique() -> String {
    let nanoseconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
    format!("{:010x}", (nanoseconds >> 8) & 0xff_ffff_ffff)
}

fn score(script: &Script, expected: &[Observed], got: &[Observed], broken: Option<Problem>) -> Score {
    let mut score = Score { total: expected.len(), ..Score::default() };
    let report = &mut score.report;
    if let Some(problem) = broken {
        let _ = writeln!(report, "{}: broke off: {problem}", script.name);
    }
    for (at, wanted) in expected.iter().enumerate() {
        let Some(had) = got.get(at) else { continue };
        let found = differences(wanted, had);
        if found.is_empty() && wanted.step == had.step {
            score.passed += 1;
            continue;
        }
        let _ = writeln!(report, "{}: {}", script.name, wanted.step);
        for line in found {
            let _ = writeln!(report, "    {line}");
        }
    }
    let _ = writeln!(report, "{}: {} of {}", script.name, score.passed, score.total);
    score
}
