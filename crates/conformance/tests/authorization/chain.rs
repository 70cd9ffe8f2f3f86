//! Shared setup: a server with an authorization configuration file and its webhooks.

use std::fmt::Write as _;
use std::path::PathBuf;

use conformance::{Hook, HookReply, HookRequest, Server, accepts};
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) const WITHOUT_CONTROLLERS: &str = "--enable-controllers=false";

/// A webhook authorizer of a configuration.
pub(crate) struct AuthorizerWebhook<'a> {
    pub(crate) name: &'a str,
    pub(crate) hook: &'a Hook,
    pub(crate) policy: &'a str,
    /// Further fields, each as a line of YAML.
    pub(crate) fields: &'a [&'a str],
    pub(crate) conditions: &'a [&'a str],
}

impl<'a> AuthorizerWebhook<'a> {
    pub(crate) fn new(name: &'a str, hook: &'a Hook) -> Self {
        AuthorizerWebhook { name, hook, policy: "NoOpinion", fields: &[], conditions: &[] }
    }
}

/// A folder with a configuration file and its kubeconfigs.
pub(crate) struct Files {
    pub(crate) folder: TempDir,
}

impl Files {
    pub(crate) fn new() -> Self {
        Files { folder: TempDir::new().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Replaces a file atomically by a rename.
    pub(crate) fn put(&self, name: &str, text: &str) {
        let new = self.path(&format!(".new-{name}"));
        std::fs::write(&new, text).unwrap();
        std::fs::rename(&new, self.path(name)).unwrap();
    }

    /// Writes a configuration with these webhooks followed by RBAC, and their kubeconfigs.
    pub(crate) fn configuration(&self, webhooks: &[AuthorizerWebhook<'_>]) -> String {
        let mut text =
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n"
                .to_owned();
        for webhook in webhooks {
            let AuthorizerWebhook { name, hook, policy, fields, conditions } = webhook;
            self.put(&format!("{name}.kubeconfig"), &hook.kubeconfig(&format!("/{name}"), "hook-token"));
            let kubeconfig = self.path(&format!("{name}.kubeconfig"));
            writeln!(text, "- type: Webhook\n  name: {name}\n  webhook:\n    subjectAccessReviewVersion: v1\n    failurePolicy: {policy}").unwrap();
            writeln!(
                text,
                "    connectionInfo: {{type: KubeConfigFile, kubeConfigFile: {}}}",
                kubeconfig.display()
            )
            .unwrap();
            if !fields.iter().any(|field| field.starts_with("timeout")) {
                writeln!(text, "    timeout: 10s").unwrap();
            }
            for field in *fields {
                writeln!(text, "    {field}").unwrap();
            }
            if !conditions.is_empty() {
                writeln!(text, "    matchConditionSubjectAccessReviewVersion: v1\n    matchConditions:")
                    .unwrap();
                for condition in *conditions {
                    writeln!(text, "    - expression: {}", json!(condition)).unwrap();
                }
            }
        }
        text + "- type: RBAC\n  name: rbac\n"
    }

    /// Starts a server with the file `authz.yaml`, without the built-in controllers, for which webhooks would be asked too.
    pub(crate) async fn serve(&self) -> Server {
        Server::serve(&[&self.flag(), WITHOUT_CONTROLLERS]).await.unwrap()
    }

    /// The flag with the file `authz.yaml`.
    pub(crate) fn flag(&self) -> String {
        format!("--authorization-config={}", self.path("authz.yaml").display())
    }

    /// Starts a server with these webhooks followed by RBAC.
    pub(crate) async fn serve_with(&self, webhooks: &[AuthorizerWebhook<'_>]) -> Server {
        self.put("authz.yaml", &self.configuration(webhooks));
        self.serve().await
    }
}

/// The answer to a SubjectAccessReview.
pub(crate) fn status(asked: &HookRequest, status: &Value) -> HookReply {
    let version = asked.body["apiVersion"].clone();
    HookReply::Json(200, json!({"apiVersion": version, "kind": "SubjectAccessReview", "status": status}))
}

/// Allows Alice, denies Carol, and has no opinion on other users.
pub(crate) async fn by_user(who: &'static str) -> Hook {
    let answer = move |asked: &HookRequest| match asked.body["spec"]["user"].as_str().unwrap_or_default() {
        user if user.starts_with("alice") => {
            status(asked, &json!({"allowed": true, "reason": format!("{who} likes alice")}))
        }
        "carol" => {
            status(asked, &json!({"allowed": false, "denied": true, "reason": format!("{who} knows carol")}))
        }
        _ => status(asked, &json!({"allowed": false, "reason": format!("{who} shrugs")})),
    };
    Hook::start(answer).await.unwrap()
}

/// A webhook with a constant answer.
pub(crate) async fn always(reply: HookReply) -> Hook {
    Hook::start(move |_| reply.clone()).await.unwrap()
}

/// The status of a SubjectAccessReview about getting pods in a namespace.
pub(crate) async fn review(server: &Server, user: &str, namespace: &str) -> Value {
    let review = json!({"spec": {"user": user, "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": namespace}}});
    let client = server.client().unwrap();
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    accepts(client.post(path, &review).await).unwrap()["status"].clone()
}

/// The lines of the metrics page that contain all of these words.
pub(crate) async fn metrics(server: &Server, words: &[&str]) -> Vec<String> {
    let page = server.client().unwrap().get("/metrics").await.unwrap().text();
    let lines =
        page.lines().filter(|line| !line.starts_with('#') && words.iter().all(|word| line.contains(word)));
    lines.map(str::to_owned).collect()
}
