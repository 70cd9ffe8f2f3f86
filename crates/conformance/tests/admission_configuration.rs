//! `--admission-control-config-file` on a running server: every plugin uses its configuration, and a configuration that is not
//! supported stops the start.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::time::Duration;

use conformance::hook::{Hook, HookReply};
use conformance::server::run_to_end;
use conformance::webhook::{ReviewReply, ServingCertificate, WebhookServer};
use conformance::{Client, Server, accepts, rejects};
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

const SOON: Duration = Duration::from_secs(30);
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";

/// The flag with a file that configures these plugins.
fn file(folder: &TempDir, plugins: &str) -> String {
    let path = folder.path().join("admission.yaml");
    let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n";
    fs::write(&path, format!("{head}{plugins}")).unwrap();
    format!("--admission-control-config-file={}", path.display())
}

async fn assert_start_fails_with(plugins: &str, flags: &[&str], words: &str) {
    let folder = TempDir::new().unwrap();
    let flag = file(&folder, plugins);
    let data = format!("--data-dir={}", folder.path().join("data").display());
    let mut args = vec!["serve", &data, &flag, "--secure-port=0"];
    args.extend(flags);
    let (code, said) = run_to_end(&args, SOON).await.unwrap();
    assert!(code.is_some_and(|code| code != 0), "{code:?}: {said}");
    assert!(said.contains(words), "{words} in {said}");
}

#[tokio::test]
async fn unsupported_plugin_configuration_stops_the_start() {
    assert_start_fails_with(
        "- name: ValidatingAdmissionPolicies\n",
        &[],
        "there is no admission plugin of this name",
    )
    .await;
    assert_start_fails_with(
        "- name: PodSecurity\n- name: PodSecurity\n",
        &[],
        "plugins[1].name: Duplicate value",
    )
    .await;
    let pod_security = "- name: PodSecurity\n  configuration:\n    apiVersion: pod-security.admission.config.k8s.io/v1\n    kind: PodSecurityConfiguration\n    default: {enforce: restricted}\n";
    assert_start_fails_with(
        pod_security,
        &[],
        "couldn't init admission plugin \"PodSecurity\": strict decoding error: unknown field \"default\"",
    )
    .await;
    assert_start_fails_with(
        "  []\n",
        &["--enable-admission-plugins=EventRateLimit"],
        "couldn't init admission plugin \"EventRateLimit\": limits: Invalid value: null: must not be empty",
    )
    .await;
    assert_start_fails_with(
        "  []\n",
        &["--enable-admission-plugins=ImagePolicyWebhook"],
        "couldn't init admission plugin \"ImagePolicyWebhook\": no config specified",
    )
    .await;
    assert_start_fails_with(
        "- name: PodTolerationRestriction\n  configuration: {apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1, kind: Configuration, default: [{key: a, operator: Is}]}\n",
        &["--enable-admission-plugins=PodTolerationRestriction"],
        "invalid config: [podtolerationrestriction.default[0].operator",
    )
    .await;
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "registry.example.com/a:1"}]}})
}

async fn namespace(client: &Client, name: &str) {
    accepts(client.post("/api/v1/namespaces", &json!({"metadata": {"name": name}})).await).unwrap();
}

#[tokio::test]
async fn plugins_that_are_off_by_default_use_their_configuration() {
    let folder = TempDir::new().unwrap();
    let plugins = "\
- name: EventRateLimit
  configuration: {apiVersion: eventratelimit.admission.k8s.io/v1alpha1, kind: Configuration, limits: [{type: Namespace, qps: 1, burst: 2}]}
- name: PodNodeSelector
  configuration: {podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: 'zone=a', picky: 'zone=a,disk=ssd'}}
- name: PodTolerationRestriction
  configuration: {apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1, kind: Configuration, default: [{key: team, operator: Exists}]}
- name: ResourceQuota
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: ResourceQuotaConfiguration, limitedResources: [{resource: services, matchContains: [services.loadbalancers]}]}
";
    let flag = file(&folder, plugins);
    let server = Server::serve(&[
        &flag,
        "--enable-admission-plugins=EventRateLimit,NamespaceAutoProvision,PodNodeSelector,PodTolerationRestriction",
        "--disable-admission-plugins=ServiceAccount",
    ])
    .await
    .unwrap();
    let client = server.client().unwrap();

    // EventRateLimit: a burst of two, then one event per second.
    let event = |name: &str| json!({"metadata": {"name": name}, "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}, "reason": "r", "type": "Normal"});
    let events = "/api/v1/namespaces/default/events";
    let mut limited = None;
    for n in 0..20 {
        let answer = client.post(events, &event(&format!("e{n}"))).await.unwrap();
        if answer.code == 429 {
            limited = Some(answer.json());
            break;
        }
        assert_eq!(answer.code, 201);
    }
    let status = limited.unwrap();
    assert_eq!(status["message"], "Too many requests: limit reached on type Namespace for key default");
    assert_eq!(status["reason"], "TooManyRequests");

    // NamespaceAutoProvision creates the namespace of an object, but not in a dry run.
    let map = json!({"metadata": {"name": "m"}});
    rejects(client.post("/api/v1/namespaces/fresh/configmaps?dryRun=All", &map).await, 404, "NotFound")
        .unwrap();
    accepts(client.post("/api/v1/namespaces/fresh/configmaps", &map).await).unwrap();
    accepts(client.get("/api/v1/namespaces/fresh").await).unwrap();

    // PodNodeSelector merges the selectors of the cluster and of the namespace, within the namespace's whitelist.
    let made = accepts(client.post("/api/v1/namespaces/default/pods?dryRun=All", &pod("p")).await).unwrap();
    assert_eq!(made["spec"]["nodeSelector"], json!({"zone": "a"}));
    let tolerations = made["spec"]["tolerations"].as_array().unwrap();
    assert!(tolerations.contains(&json!({"key": "team", "operator": "Exists"})), "{tolerations:?}");
    namespace(&client, "picky").await;
    let mut strange = pod("q");
    strange["spec"]["nodeSelector"] = json!({"gpu": "yes"});
    let status =
        rejects(client.post("/api/v1/namespaces/picky/pods?dryRun=All", &strange).await, 403, "Forbidden")
            .unwrap();
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .ends_with("pod node label selector labels conflict with its namespace whitelist"),
        "{status}"
    );

    // A limited resource needs a quota.
    let service =
        json!({"metadata": {"name": "s"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
    let services = "/api/v1/namespaces/default/services?dryRun=All";
    let status = rejects(client.post(services, &service).await, 403, "Forbidden").unwrap();
    assert_eq!(
        status["message"],
        "services \"s\" is forbidden: insufficient quota to consume: services.loadbalancers"
    );
    let plain = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    accepts(client.post(services, &plain).await).unwrap();
}

#[tokio::test]
async fn image_policy_webhook_decides_about_images() {
    let hook = Hook::start(|asked| {
        let signed = asked.body["spec"]["containers"][0]["image"] != "registry.example.com/a:1";
        let status = json!({"allowed": signed, "reason": "not signed", "auditAnnotations": {"seen": "yes"}});
        HookReply::Json(
            200,
            json!({"apiVersion": "imagepolicy.k8s.io/v1alpha1", "kind": "ImageReview", "status": status}),
        )
    })
    .await
    .unwrap();
    let folder = TempDir::new().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    fs::write(&kubeconfig, hook.kubeconfig("/images", "token")).unwrap();
    let flag = file(
        &folder,
        &format!(
            "- name: ImagePolicyWebhook\n  configuration: {{imagePolicy: {{kubeConfigFile: {}, denyTTL: 1}}}}\n",
            kubeconfig.display()
        ),
    );
    let flags = [
        &flag,
        "--enable-admission-plugins=ImagePolicyWebhook",
        "--disable-admission-plugins=ServiceAccount",
    ];
    let server = Server::serve(&flags).await.unwrap();
    let client = server.client().unwrap();
    let pods = "/api/v1/namespaces/default/pods?dryRun=All";
    let status = rejects(client.post(pods, &pod("p")).await, 403, "Forbidden").unwrap();
    assert_eq!(
        status["message"],
        "pods \"p\" is forbidden: image policy webhook backend denied one or more images: not signed"
    );
    let mut signed = pod("p");
    signed["spec"]["containers"][0]["image"] = json!("registry.example.com/b:1");
    accepts(client.post(pods, &signed).await).unwrap();
    let asked = hook.asked();
    assert_eq!(asked[0].path, "/images");
    assert_eq!(asked[0].headers["authorization"], "Bearer token");
    assert_eq!(asked[0].body["spec"]["namespace"], "default");
}

#[tokio::test]
async fn the_request_timeout_limits_all_webhooks_together() {
    let webhook = WebhookServer::start(ServingCertificate::Signed, |_| ReviewReply::Silence).await.unwrap();
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]});
    let hook = |name: &str| json!({"name": name, "clientConfig": {"url": webhook.url("/review"), "caBundle": webhook.ca_bundle}, "rules": [rule], "failurePolicy": "Ignore", "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 10});
    let configuration = json!({"metadata": {"name": "slow"}, "webhooks": [hook("a.example.com"), hook("b.example.com"), hook("c.example.com")]});
    let configurations = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    accepts(client.post(configurations, &configuration).await).unwrap();
    let maps = "/api/v1/namespaces/default/configmaps";
    let map = json!({"metadata": {"name": "m"}});
    // The webhooks' own timeouts are longer, and failurePolicy Ignore would hide their failure.
    rejects(client.post(&format!("{maps}?timeout=1s"), &map).await, 504, "Timeout").unwrap();
    let status =
        rejects(client.post(&format!("{maps}?timeout=soon"), &map).await, 400, "BadRequest").unwrap();
    assert_eq!(
        status["message"],
        "invalid timeout specified in the request URL - time: invalid duration \"soon\""
    );
    accepts(client.delete(&format!("{configurations}/slow")).await).unwrap();
    accepts(client.post(&format!("{maps}?timeout=1s&dryRun=All"), &map).await).unwrap();
}

#[tokio::test]
async fn creating_a_policy_needs_permission_to_read_its_parameters() {
    let server = Server::serve(&[]).await.unwrap();
    let client = server.client().unwrap();
    let role = json!({"metadata": {"name": "policies"}, "rules": [{"apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["*"]}]});
    accepts(client.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await).unwrap();
    let bind = |name: &str, role: &str| json!({"metadata": {"name": name}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}, "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "eve"}]});
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    accepts(client.post(bindings, &bind("policies", "policies")).await).unwrap();
    let eve = async |path: &str, object: &Value| {
        let headers = [("impersonate-user", "eve"), ("content-type", "application/json")];
        client.send(Method::POST, path, &headers, bytes::Bytes::from(object.to_string())).await
    };
    let policy = |name: &str| {
        json!({"metadata": {"name": name}, "spec": {
            "paramKind": {"apiVersion": "v1", "kind": "Secret"},
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]},
            "validations": [{"expression": "true"}],
        }})
    };
    let who = "&{eve  [system:authenticated] map[]}";
    let status = rejects(eve(POLICIES, &policy("p")).await, 422, "Invalid").unwrap();
    assert_eq!(
        status["message"],
        format!(
            "ValidatingAdmissionPolicy.admissionregistration.k8s.io \"p\" is invalid: spec.paramKind: Forbidden: user {who} must have \"get\" permission on all objects of the referenced paramKind (kind=Secret, apiVersion=v1)"
        )
    );
    accepts(client.post(POLICIES, &policy("p")).await).unwrap();
    let binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"], "paramRef": {"name": "s", "namespace": "kube-system", "parameterNotFoundAction": "Allow"}}});
    let to = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
    let status = rejects(eve(to, &binding).await, 422, "Invalid").unwrap();
    assert_eq!(
        status["message"],
        format!(
            "ValidatingAdmissionPolicyBinding.admissionregistration.k8s.io \"b\" is invalid: spec.paramRef: Forbidden: user {who} does not have \"get\" permission on the object referenced by paramRef"
        )
    );
    let reader = json!({"metadata": {"name": "secrets"}, "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]});
    accepts(client.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &reader).await).unwrap();
    accepts(client.post(bindings, &bind("secrets", "secrets")).await).unwrap();
    accepts(eve(POLICIES, &policy("q")).await).unwrap();
    accepts(eve(to, &binding).await).unwrap();
}

#[tokio::test]
async fn mutating_policies_are_served_in_beta_if_runtime_config_enables_it() {
    let beta = "/apis/admissionregistration.k8s.io/v1beta1";
    let off = Server::serve(&[]).await.unwrap();
    rejects(off.client().unwrap().get(&format!("{beta}/mutatingadmissionpolicies")).await, 404, "NotFound")
        .unwrap();

    let server =
        Server::serve(&["--runtime-config=admissionregistration.k8s.io/v1beta1=true"]).await.unwrap();
    let client = server.client().unwrap();
    let policy = json!({"metadata": {"name": "p"}, "spec": {
        "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]},
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{metadata: Object.metadata{labels: {'seen': 'yes'}}}"}}],
    }});
    let answer = client.post(&format!("{beta}/mutatingadmissionpolicies"), &policy).await.unwrap();
    assert!(
        answer
            .header("warning")
            .contains("admissionregistration.k8s.io/v1beta1 MutatingAdmissionPolicy is deprecated"),
        "{}",
        answer.header("warning")
    );
    let made = accepts(Ok(answer)).unwrap();
    assert_eq!(made["apiVersion"], "admissionregistration.k8s.io/v1beta1");
    let binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "p"}});
    accepts(client.post(&format!("{beta}/mutatingadmissionpolicybindings"), &binding).await).unwrap();
    // It is the same object in the other version, and it is in force.
    let stored =
        accepts(client.get("/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies/p").await)
            .unwrap();
    assert_eq!(stored["spec"], made["spec"]);
    let maps = "/api/v1/namespaces/default/configmaps?dryRun=All";
    let made = accepts(client.post(maps, &json!({"metadata": {"name": "m"}})).await).unwrap();
    assert_eq!(made["metadata"]["labels"], json!({"seen": "yes"}));
    accepts(client.delete(&format!("{beta}/mutatingadmissionpolicybindings/b")).await).unwrap();
    let made = accepts(client.post(maps, &json!({"metadata": {"name": "m"}})).await).unwrap();
    assert_eq!(made["metadata"]["labels"], Value::Null);
}
