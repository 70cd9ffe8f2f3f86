//! Replays request scripts against the built binary, and counts the steps that got the expected answer.

use std::env;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::task::JoinSet;

use crate::client::{Client, Credentials, Trust};
use crate::compare::differences;
use crate::etcd_process::EtcdProcess;
use crate::replay::replay;
use crate::script::{self, AdmissionSetup, Observed, Script};
use crate::server::{ADMIN_TOKEN, Server};
use crate::{Problem, Result};

/// The admission plugins to disable for [`AdmissionSetup::Bare`]: all that are enabled by default, except NamespaceLifecycle.
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

/// The outcome of one or more scripts.
#[derive(Debug, Default)]
pub struct Score {
    /// Steps that got the expected answer.
    pub passed: usize,
    pub total: usize,
    /// The differences, step by step, and a line for each script.
    pub report: String,
}

/// The reference server that `REFERENCE_URL` and `REFERENCE_TOKEN` name; `None` if the former is not set.
fn reference() -> Result<Option<Client>> {
    let Ok(url) = env::var("REFERENCE_URL") else { return Ok(None) };
    let token = env::var("REFERENCE_TOKEN").unwrap_or_else(|_| ADMIN_TOKEN.to_owned());
    Client::new(&url, Trust::Anything, Credentials::Token(token)).map(Some)
}

/// Replays one script against a server of its own, with the embedded store or on `etcd`, and compares with the recorded answers.
///
/// If `PORTCULLIS_SCORE` names a file, a line `PASSED of TOTAL SCRIPT` is appended to it.
pub async fn run_one(script: Script, etcd: Option<&EtcdProcess>) -> Result<Score> {
    let store = etcd.map(|etcd| format!("--etcd-servers={}", etcd.url));
    let server = start(script.admission, store.as_deref()).await?;
    let score = run_against(&server.client()?, None, &script).await?;
    if let Some(path) = env::var_os("PORTCULLIS_SCORE") {
        let store = if etcd.is_some() { " on etcd" } else { "" };
        let line = format!("{} of {} {}{store}\n", score.passed, score.total, script.name);
        let mut file = OpenOptions::new().create(true).append(true).open(path);
        let written = file.as_mut().map_err(|e| Problem::at("cannot open the score file", e))?;
        written.write_all(line.as_bytes()).map_err(|e| Problem::at("cannot write the score file", e))?;
    }
    Ok(score)
}

/// Replays the scripts whose name contains `PORTCULLIS_SCRIPT` (all if it is not set) against the built binary, and compares with
/// the reference server if there is one, else with the recorded answers.
pub async fn run() -> Result<Score> {
    let reference = reference()?;
    let scripts = selected(reference.is_some())?;
    let (bare, full) =
        (start(AdmissionSetup::Bare, None).await?, start(AdmissionSetup::Default, None).await?);
    let mut runs = JoinSet::new();
    for script in scripts {
        let server = if script.admission == AdmissionSetup::Default { &full } else { &bare };
        let (client, reference) = (server.client()?, reference.clone());
        runs.spawn(async move { run_against(&client, reference.as_ref(), &script).await });
    }
    let mut whole = Score::default();
    while let Some(run) = runs.join_next().await {
        let part = run.map_err(|e| Problem::at("a script panicked", e))??;
        whole.passed += part.passed;
        whole.total += part.total;
        whole.report.push_str(&part.report);
    }
    let against = if reference.is_some() { "the reference" } else { "the recorded answers" };
    let _ = writeln!(whole.report, "{} of {} steps equal {against}", whole.passed, whole.total);
    Ok(whole)
}

/// Starts a server; `store` is the flag that chooses another store than the embedded one.
async fn start(admission: AdmissionSetup, store: Option<&str>) -> Result<Server> {
    let disabled = match admission {
        AdmissionSetup::Default => None,
        AdmissionSetup::Bare => Some(format!("--disable-admission-plugins={}", BARE.join(","))),
    };
    let flags: Vec<&str> = disabled.as_deref().into_iter().chain(store).collect();
    Server::serve(&flags).await
}

async fn run_against(client: &Client, reference: Option<&Client>, script: &Script) -> Result<Score> {
    let expected = match reference {
        Some(reference) => replay(&own_connection(reference), script, &unique()).await?,
        None => script.expected()?,
    };
    // A replay that breaks off fails its remaining steps, but does not hide the results of other scripts.
    let (got, failure) = match replay(&own_connection(client), script, &unique()).await {
        Ok(got) => (got, None),
        Err(problem) => (Vec::new(), Some(problem)),
    };
    Ok(score(script, &expected, &got, failure))
}

/// Records the answers of the reference server and returns the number of steps.
pub async fn record() -> Result<usize> {
    let reference = reference()?.ok_or_else(|| Problem::new("REFERENCE_URL is not set"))?;
    let mut steps = 0;
    for script in selected(true)? {
        let observed = replay(&own_connection(&reference), &script, &unique()).await?;
        script.record(&observed)?;
        println!("{}: {} steps", script.name, observed.len());
        steps += observed.len();
    }
    Ok(steps)
}

/// The scripts whose name contains `PORTCULLIS_SCRIPT`. For a reference server, only those that were written for its admission
/// plugins: the default ones if `REFERENCE_ADMISSION=default`, else NamespaceLifecycle alone.
fn selected(for_reference: bool) -> Result<Vec<Script>> {
    let part = env::var("PORTCULLIS_SCRIPT").unwrap_or_default();
    let default = env::var("REFERENCE_ADMISSION").is_ok_and(|plugins| plugins == "default");
    let admission = if default { AdmissionSetup::Default } else { AdmissionSetup::Bare };
    let fits =
        |script: &Script| script.name.contains(&part) && (!for_reference || script.admission == admission);
    Ok(script::all()?.into_iter().filter(fits).collect())
}

/// A client with a connection of its own, so that scripts that run at the same time do not wait for each other.
fn own_connection(client: &Client) -> Client {
    client.as_token(client.token())
}

/// A text for names of objects that no other run on the same server uses.
fn unique() -> String {
    let nanoseconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
    format!("{:010x}", (nanoseconds >> 8) & 0xff_ffff_ffff)
}

fn score(script: &Script, expected: &[Observed], got: &[Observed], failure: Option<Problem>) -> Score {
    let mut score = Score { total: expected.len(), ..Score::default() };
    let report = &mut score.report;
    if let Some(problem) = failure {
        let _ = writeln!(report, "{}: the replay broke off: {problem}", script.name);
    }
    for (expected, got) in expected.iter().zip(got) {
        let mut found = differences(expected, got);
        if expected.step != got.step {
            found.push(format!("step name: recorded as `{}`, now `{}`", expected.step, got.step));
        }
        if found.is_empty() {
            score.passed += 1;
            continue;
        }
        let _ = writeln!(report, "{}: {}", script.name, expected.step);
        for line in found {
            let _ = writeln!(report, "    {line}");
        }
    }
    let _ = writeln!(report, "{}: {} of {}", script.name, score.passed, score.total);
    score
}
