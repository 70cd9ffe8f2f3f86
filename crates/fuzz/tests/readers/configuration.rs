//! Configuration files, static manifests and objects that configure authorization and admission.

use std::time::Duration;

use admission::configuration::{AdmissionConfiguration, WebhookAdmission};
use admission::manifests::{self, LoadOptions, ManifestFile, ManifestSet};
use admission::plugins::image_policy::ImagePolicy;
use admission::plugins::resource_quota::LimitedResource;
use admission::plugins::{PodNodeSelector, PodTolerationRestriction};
use admission::policy::BuiltInKinds;
use audit::AuditPolicy;
use authn::StaticTokens;
use authz::abac::AbacPolicies;
use authz::config::Environment;
use fuzz::Corpus;

const YAML: &[&str] = &[
    "\n",
    "\n  ",
    "\n- ",
    "- ",
    ": ",
    "{",
    "}",
    "[",
    "]",
    "name: a\n",
    "apiVersion: v1\n",
    "kind: ",
    "level: None",
    "level: RequestResponse",
    "omitStages: [RequestReceived]",
    "resources: ",
    "nonResourceURLs: ['*']",
    "users: ",
    "type: Webhook",
    "type: RBAC",
    "timeout: 3s",
    "failurePolicy: Deny",
    "matchConditions: ",
    "expression: ",
    "'true'",
    "request.user",
    "---\n",
    "&a ",
    "*a",
    "<<: *a",
    "!!binary ",
    "~",
    "y",
    "static.k8s.io",
    "plugins: ",
    "configuration: ",
    "path: ",
    "# ",
];

const PLUGIN_TOKENS: &[&str] = &[
    "imagePolicy: ",
    "allowTTL: ",
    "retryBackoff: ",
    "9223372036854775807",
    "-1",
    "0",
    "1e3",
    "podNodeSelectorPluginConfig: ",
    "a=b,",
    "default: ",
    "whitelist: ",
    "tolerationSeconds: ",
    "operator: Exists",
    "limitedResources: ",
    "matchContains: ",
    "matchScopes: ",
    "scopeName: ",
    "values: ",
];

#[test]
fn reading_configuration_files_never_panics() {
    let audit = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- level: RequestResponse\n  resources: [{group: '', resources: [pods, 'pods/*'], resourceNames: [a]}]\n  verbs: [create]\n  users: [u]\n  userGroups: [g]\n  namespaces: [ns]\n- level: None\n  nonResourceURLs: ['/healthz*', '/version']\n- level: Metadata\n";
    let authorization = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n- type: Webhook\n  name: w\n  webhook:\n    timeout: 3s\n    subjectAccessReviewVersion: v1\n    matchConditionSubjectAccessReviewVersion: v1\n    failurePolicy: Deny\n    authorizedTTL: 5m\n    unauthorizedTTL: 30s\n    connectionInfo: {type: KubeConfigFile, kubeConfigFile: /k}\n    matchConditions:\n    - expression: \"has(request.resourceAttributes) && request.user != 'x'\"\n- type: Node\n  name: node\n- type: RBAC\n  name: rbac\n";
    let plugins = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n- name: PodSecurity\n  configuration: {apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration, defaults: {enforce: baseline}}\n- name: ValidatingAdmissionWebhook\n  path: /p\n";
    let webhook = "apiVersion: apiserver.config.k8s.io/v1\nkind: WebhookAdmissionConfiguration\nkubeConfigFile: /k\nstaticManifestsDir: /d\n";
    let pod_security = "apiVersion: pod-security.admission.config.k8s.io/v1\nkind: PodSecurityConfiguration\ndefaults: {enforce: baseline, enforce-version: latest, audit: restricted}\nexemptions: {usernames: [u], namespaces: [ns]}\n";
    let abac = r#"{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"u","namespace":"*","resource":"pods","readonly":true}}"#;
    let tokens = "t,u,uid,\"a,b\"\nt2,u2,uid2\n\"t\"\"3\",u,uid\n";
    let seeds = [audit, authorization, plugins, webhook, pod_security, abac, tokens];
    let environment =
        Environment { compiler: &authz::ReviewCompiler::default(), kubeconfig: &|_| Ok(()), required: &[] };
    authz::config::load(authorization.as_bytes(), &environment).unwrap();
    AuditPolicy::parse(audit.as_bytes()).unwrap();
    fuzz::run(&Corpus::new(seeds, YAML).inputs(), |input| {
        let text = input.text();
        let _ = AuditPolicy::parse(input);
        let _ = AdmissionConfiguration::parse(input);
        let _ = WebhookAdmission::parse(input);
        let _ = admission::plugins::pod_security::PodSecurityConfiguration::parse(input);
        let _ = AbacPolicies::parse("/p", &text);
        let _ = StaticTokens::parse("/t", &text);
        match authz::config::load(input, &environment) {
            Ok(checked) if checked.configuration.authorizers.is_empty() => {
                Err("no authorizer at all".to_owned())
            }
            Err(refused) if refused.problems().is_empty() => Err("refused without a reason".to_owned()),
            Ok(_) | Err(_) => Ok(()),
        }
    });
}

#[test]
fn configurations_of_admission_plugins_are_read_or_refused_with_a_reason() {
    let images = "imagePolicy:\n  kubeConfigFile: /k\n  allowTTL: 50\n  denyTTL: -1\n  retryBackoff: 500\n  defaultAllow: true\n";
    let selectors =
        "podNodeSelectorPluginConfig:\n  clusterDefaultNodeSelector: a=b\n  ns: 'a=b,c=d'\n  other: ''\n";
    let tolerations = "apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1\nkind: Configuration\ndefault:\n- {key: a, operator: Equal, value: b, effect: NoExecute, tolerationSeconds: 5}\nwhitelist:\n- {key: c, operator: Exists}\n";
    let quota = "apiVersion: apiserver.config.k8s.io/v1\nkind: ResourceQuotaConfiguration\nlimitedResources:\n- apiGroup: ''\n  resource: pods\n  matchContains: [cpu, requests.memory]\n  matchScopes:\n  - {scopeName: PriorityClass, operator: In, values: [high]}\n- resource: persistentvolumeclaims\n  matchContains: [.storageclass.storage.k8s.io/requests.storage]\n";
    ImagePolicy::parse(images.as_bytes()).unwrap();
    PodNodeSelector::parse(selectors.as_bytes()).unwrap();
    PodTolerationRestriction::parse(tolerations.as_bytes()).unwrap();
    LimitedResource::parse(quota.as_bytes()).unwrap();
    let seeds = [images, selectors, tolerations, quota];
    let tokens: Vec<&str> = YAML.iter().chain(PLUGIN_TOKENS).copied().collect();
    fuzz::run(&Corpus::new(seeds, &tokens).inputs(), |input| {
        let images = ImagePolicy::parse(input);
        if let Ok(policy) = &images
            && (policy.allow_ttl.max(policy.deny_ttl) > Duration::from_mins(30)
                || policy.backoff > Duration::from_mins(5))
        {
            return Err(format!("out of range: {policy:?}"));
        }
        let refusals = [
            images.err(),
            PodNodeSelector::parse(input).err(),
            PodTolerationRestriction::parse(input).err(),
            LimitedResource::parse(input).err(),
        ];
        for why in refusals.iter().flatten() {
            if why.is_empty() {
                return Err("refused without a reason".to_owned());
            }
            if why.len() > input.len() * 64 + 64 * 1024 {
                return Err(format!("a reason of {} bytes for {} bytes", why.len(), input.len()));
            }
        }
        // A configuration names its kind, except for the two plugins whose files have none.
        if refusals[2].is_none() && refusals[3].is_none() {
            return Err("accepted as the configuration of two plugins".to_owned());
        }
        Ok(())
    });
}

#[test]
fn loading_static_manifests_never_panics() {
    let seeds = [
        "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: a.static.k8s.io}\nspec:\n  failurePolicy: Fail\n  matchConstraints:\n    resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]\n  variables: [{name: v, expression: 'object.metadata.name'}]\n  validations: [{expression: \"variables.v != 'x' && size(object.spec.containers) < 5\", message: m, messageExpression: \"'a' + variables.v\"}]\n---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {name: b.static.k8s.io}\nspec: {policyName: a.static.k8s.io, validationActions: [Deny, Audit]}\n",
        "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration\nmetadata: {name: c.static.k8s.io}\nwebhooks:\n- name: w.example.com\n  admissionReviewVersions: [v1]\n  sideEffects: None\n  clientConfig: {url: 'https://127.0.0.1:1/x'}\n  rules: [{apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*/*']}]\n  matchConditions: [{name: m, expression: \"request.userInfo.username != 'a'\"}]\n",
        r#"{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfigurationList","items":[{"metadata":{"name":"d.static.k8s.io"},"webhooks":[]}]}"#,
    ];
    let load = |bytes: &[u8]| {
        manifests::load(
            ManifestSet::Mixed,
            "/f",
            &[ManifestFile { path: "/f/a.yaml".to_owned(), content: Ok(bytes.to_vec()) }],
            LoadOptions { strict: false, kinds: &BuiltInKinds },
        )
    };
    load(seeds[0].as_bytes()).unwrap();
    fuzz::run(&Corpus::new(seeds, YAML).inputs(), |input| match load(input) {
        Ok(loaded) => {
            let named = |manifest: &manifests::Manifest| {
                api::meta::name(&manifest.object).ends_with(".static.k8s.io")
            };
            if loaded.objects.values().flatten().all(named) {
                Ok(())
            } else {
                Err("an object without the suffix".to_owned())
            }
        }
        Err(refused) if refused.problems().is_empty() => Err("refused without a reason".to_owned()),
        Err(_) => Ok(()),
    });
}
