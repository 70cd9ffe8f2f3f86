//! Load measurements of authorization: the cost of role bindings for a review, and of match conditions and webhooks for a
//! request.

use std::fs;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::measure::{Figures, MeasuredServer};
use super::requests::{LoadConnections, LoadLimit};
use crate::client::{Trust, tls};
use crate::hook::{Hook, HookReply};
use crate::server::Server;
use crate::{Problem, Result};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
/// The numbers of bindings in the namespace of the reviews, with the names of their figures.
const ROUNDS: [(u64, &str); 3] =
    [(10, "SAR, 10 bindings /s"), (10_000, "SAR, 10,000 bindings /s"), (100_000, "SAR, 100,000 bindings /s")];
/// A user without full access, because the authorization chain is not asked about system:masters.
const CALLER: (&str, &str) = ("alicetoken", "alice");
/// Realistic match conditions. All but the last are true for the measured requests.
const CONDITIONS: [&str; 8] = [
    "has(request.resourceAttributes)",
    "request.resourceAttributes.namespace == 'default'",
    "request.resourceAttributes.verb in ['get', 'list', 'watch']",
    "!('system:serviceaccounts:kube-system' in request.groups)",
    "!request.user.startsWith('system:')",
    "request.resourceAttributes.group == '' || request.resourceAttributes.group == 'apps'",
    "request.groups.exists(group, group == 'system:authenticated')",
    "request.resourceAttributes.resource == 'secrets'",
];

/// Reviews per second with increasing numbers of bindings in their namespace; every second review is allowed. Rounds with more
/// than `most` bindings are left out.
pub async fn bindings(subject: &MeasuredServer, most: u64) -> Result<Figures> {
    let wires = LoadConnections::connect(&subject.url, &subject.tls, subject.token.as_deref()).await?;
    let nanoseconds =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |t| t.as_nanos());
    let namespace = format!("bindings-{:x}", nanoseconds & 0xffff_ffff);
    post(&wires, "/api/v1/namespaces", &json!({"metadata": {"name": namespace}})).await?;
    let role = json!({"metadata": {"name": namespace},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]});
    post(&wires, &format!("{RBAC}/clusterroles"), &role).await?;
    let mut figures = Figures::new();
    let mut there = 0;
    for (count, name) in ROUNDS.into_iter().filter(|(count, _)| *count <= most) {
        let path = format!("{RBAC}/namespaces/{namespace}/rolebindings");
        let (from, role) = (there, namespace.clone());
        let bind = move |number: u64| {
            let number = from + number;
            let object = json!({"metadata": {"name": format!("b{number:06}")},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": format!("user-{number}")}]});
            (Method::POST, path.clone(), Bytes::from(object.to_string()))
        };
        wires.flood(LoadLimit::Count(count - there), bind).await?;
        there = count;
        allowed_in_time(&wires, &review(&namespace, &format!("user-{}", count - 1))).await?;
        let namespace = namespace.clone();
        let ask = move |number: u64| {
            let user = if number.is_multiple_of(2) {
                format!("user-{}", number % count)
            } else {
                "nobody".to_owned()
            };
            (Method::POST, REVIEWS.to_owned(), Bytes::from(review(&namespace, &user).to_string()))
        };
        let rate = wires.flood(LoadLimit::Time(subject.time), ask).await?;
        figures.push((name, Some(rate.per_second)));
    }
    Ok(figures)
}

/// The cost of a chain for a request to the built binary: RBAC alone, a webhook whose conditions skip it, and a webhook whose
/// answer is cached.
pub async fn chains(time: Duration) -> Result<Figures> {
    let mut figures = Figures::new();
    let webhook = Hook::start(|asked| {
        let version = asked.body.get("apiVersion").cloned().unwrap_or_default();
        let status = json!({"allowed": true, "reason": "measured"});
        HookReply::Json(200, json!({"apiVersion": version, "kind": "SubjectAccessReview", "status": status}))
    })
    .await?;
    for (name, conditions, calls) in [
        ("get, RBAC alone /s", None, 0..=0),
        ("get, 8 match conditions /s", Some(CONDITIONS.as_slice()), 0..=0),
        ("get, webhook's kept answer /s", Some([].as_slice()), 1..=1),
    ] {
        let folder = TempDir::new().map_err(|e| Problem::at("a folder", e))?;
        let write = |file: &str, text: &str| {
            let path = folder.path().join(file);
            fs::write(&path, text).map_err(|e| Problem::at(file, e)).map(|()| path.display().to_string())
        };
        let kubeconfig = write("kubeconfig", &webhook.kubeconfig("/review", "token"))?;
        let file = write("authz.yaml", &configuration(conditions, &kubeconfig).to_string())?;
        let server = Server::serve(&[&format!("--authorization-config={file}")]).await?;
        let admin = LoadConnections::connect(
            &server.url,
            &tls(Trust::Anything, None)?,
            Some(crate::server::ADMIN_TOKEN),
        )
        .await?;
        let binding = json!({"metadata": {"name": "caller"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": CALLER.1}]});
        post(&admin, &format!("{RBAC}/clusterrolebindings"), &binding).await?;
        let map = json!({"metadata": {"name": "load"}, "data": {"key": "value"}});
        post(&admin, "/api/v1/namespaces/default/configmaps", &map).await?;
        allowed_in_time(&admin, &review("default", CALLER.1)).await?;
        webhook.take();
        let wires =
            LoadConnections::connect(&server.url, &tls(Trust::Anything, None)?, Some(CALLER.0)).await?;
        let path = "/api/v1/namespaces/default/configmaps/load";
        let get = move |_: u64| (Method::GET, path.to_owned(), Bytes::new());
        wires.once(&Method::GET, path, Bytes::new()).await?;
        let rate = wires.flood(LoadLimit::Time(time), get).await?;
        let asked = webhook.take().len();
        if !calls.contains(&asked) {
            return Err(Problem::new(format!("{name}: the webhook was asked {asked} times")));
        }
        figures.push((name, Some(rate.per_second)));
    }
    Ok(figures)
}

/// A configuration with RBAC, after a webhook if there are conditions for one.
fn configuration(conditions: Option<&[&str]>, kubeconfig: &str) -> Value {
    let rbac = json!({"type": "RBAC", "name": "rbac"});
    let authorizers = match conditions {
        None => vec![rbac],
        Some(conditions) => {
            let conditions: Vec<Value> = conditions.iter().map(|c| json!({"expression": c})).collect();
            let webhook = json!({"type": "Webhook", "name": "load", "webhook": {
                "timeout": "3s", "authorizedTTL": "1h", "unauthorizedTTL": "30s", "failurePolicy": "Deny",
                "subjectAccessReviewVersion": "v1", "matchConditionSubjectAccessReviewVersion": "v1",
                "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": kubeconfig},
                "matchConditions": conditions}});
            vec![webhook, rbac]
        }
    };
    json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration", "authorizers": authorizers})
}

fn review(namespace: &str, user: &str) -> Value {
    json!({"spec": {"user": user, "groups": ["some", "groups"],
        "resourceAttributes": {"namespace": namespace, "verb": "get", "resource": "pods", "name": "p"}}})
}

async fn post(wires: &LoadConnections, path: &str, object: &Value) -> Result<Bytes> {
    wires.once(&Method::POST, path, object.to_string().into()).await
}

/// Waits until the authorizer knows a new binding.
async fn allowed_in_time(wires: &LoadConnections, review: &Value) -> Result<()> {
    for _ in 0..3000 {
        let answer: Value = serde_json::from_slice(&post(wires, REVIEWS, review).await?).unwrap_or_default();
        if answer.pointer("/status/allowed") == Some(&json!(true)) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Err(Problem::new("a binding is not known half a minute later"))
}
