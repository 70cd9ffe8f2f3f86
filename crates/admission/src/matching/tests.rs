use std::borrow::Cow;

use api::{GroupResource, GroupVersionKind};
use authn::User;
use value::{Value, yaml};

use super::exemption::exemption_of_built_in;
use super::{Exemption, MatchCriteria, MatchedResource, RequestContext};
use crate::fake_cluster::FakeCluster;
use crate::{AdmissionAttributes, AdmissionSnapshot, Operation, VersionedObject};

/// A cluster with the namespace `team`, labeled `env: prod`.
fn fake_cluster() -> FakeCluster {
    let team = "{apiVersion: v1, kind: Namespace, metadata: {name: team, labels: {env: prod}}}";
    [yaml::read(team.as_bytes()).unwrap().value].into_iter().collect()
}

/// Matches a request, written like `CREATE apps/v1/deployments/scale team/web`, with `-` for no namespace.
fn decide(criteria: &str, request: &str, object: &str, old: &str) -> Result<Option<MatchedResource>, String> {
    let words: Vec<&str> = request.split(' ').collect();
    let [operation, path, object_name] = words.as_slice() else { panic!("{request}") };
    let mut path = path.split('/');
    let (group, version, resource) = (path.next().unwrap(), path.next().unwrap(), path.next().unwrap());
    let (namespace, name) = object_name.split_once('/').unwrap();
    let read = |text: &str| (!text.is_empty()).then(|| yaml::read(text.as_bytes()).unwrap().value);
    let (object, old) = (read(object), read(old));
    let (user, options) = (User::named("u"), Value::Null);
    let kind = GroupVersionKind::new(group, version, resource);
    let attributes = AdmissionAttributes {
        user: &user,
        operation: match *operation {
            "CREATE" => Operation::Create,
            "UPDATE" => Operation::Update,
            "DELETE" => Operation::Delete,
            _ => Operation::Connect,
        },
        kind: kind.clone(),
        stored_kind: kind,
        resource: GroupResource::new(group, resource),
        version: version.into(),
        subresource: path.next().unwrap_or_default().into(),
        namespace: namespace.trim_matches('-').into(),
        name: name.into(),
        old_object: VersionedObject::new(old.as_ref()),
        options: &options,
        dry_run: false,
        now: 0,
        deadline: None,
        budget: value::Budget::UNLIMITED,
        snapshot: AdmissionSnapshot::default(),
    };
    let mut criteria = yaml::read(criteria.as_bytes()).unwrap().value;
    for field in ["namespaceSelector", "objectSelector"] {
        if criteria.get(field).is_none() {
            criteria.set_at(&[field], value::Map::new());
        }
    }
    let criteria = MatchCriteria::of_policy(&criteria).unwrap();
    let cluster = fake_cluster();
    let context = RequestContext::new(&attributes, object.as_ref(), &cluster);
    let matched = criteria.matches(&context).map_err(|status| status.to_string())?;
    Ok(matched.map(Cow::into_owned))
}

fn rule(resources: &str) -> String {
    format!(
        "resourceRules: [{{apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: {resources}}}]"
    )
}

fn matches(criteria: &str, request: &str) -> bool {
    decide(criteria, request, "metadata: {}", "").unwrap().is_some()
}

#[test]
fn subresources_match_only_rules_that_name_them_or_have_a_wildcard() {
    let cases = [
        ("[pods]", "pods", true),
        ("[pods]", "pods/status", false),
        ("[pods/status]", "pods", false),
        ("[pods/*]", "pods/status", true),
        // As in Kubernetes, `*` also matches requests without a subresource.
        ("[pods/*]", "pods", true),
        ("['*']", "services", true),
        ("['*']", "pods/status", false),
        ("['*/*']", "pods/status", true),
        ("['*/status']", "nodes/status", true),
        ("[services, pods]", "pods", true),
    ];
    for (resources, context, expected) in cases {
        let request = format!("CREATE /v1/{context} team/a");
        assert_eq!(matches(&rule(resources), &request), expected, "{resources} {context}");
    }
}

#[test]
fn rule_matches_only_if_operation_group_version_and_resource_name_match() {
    let criteria = "resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments], resourceNames: [web]}]";
    assert!(matches(criteria, "CREATE apps/v1/deployments team/web"));
    assert!(!matches(criteria, "CREATE apps/v1/deployments team/api"));
    assert!(!matches(criteria, "DELETE apps/v1/deployments team/web"));
    assert!(!matches(criteria, "CREATE apps/v2/deployments team/web"));
    assert!(!matches(criteria, "CREATE /v1/deployments team/web"));
}

#[test]
fn rule_scope_treats_namespaces_as_cluster_scoped() {
    let scoped = |scope: &str| rule("['*']").replace("operations", &format!("scope: {scope}, operations"));
    assert!(matches(&scoped("Cluster"), "CREATE /v1/namespaces -/team"));
    assert!(!matches(&scoped("Namespaced"), "CREATE /v1/namespaces -/team"));
    assert!(matches(&scoped("Namespaced"), "CREATE /v1/pods team/a"));
    assert!(!matches(&scoped("Cluster"), "CREATE /v1/pods team/a"));
    assert!(matches(&scoped("Cluster"), "CREATE /v1/nodes -/a"));
}

#[test]
fn exclude_resource_rules_override_resource_rules() {
    let criteria = format!(
        "{}\nexcludeResourceRules: [{{apiGroups: [''], apiVersions: [v1], operations: [DELETE], resources: [pods]}}]",
        rule("[pods]")
    );
    assert!(matches(&criteria, "CREATE /v1/pods team/a"));
    assert!(!matches(&criteria, "DELETE /v1/pods team/a"));
}

#[test]
fn namespace_selector_matches_the_labels_of_the_namespace() {
    let criteria =
        |env: &str| format!("{}\nnamespaceSelector: {{matchLabels: {{env: {env}}}}}", rule("['*']"));
    assert!(matches(&criteria("prod"), "CREATE /v1/pods team/a"));
    assert!(!matches(&criteria("test"), "CREATE /v1/pods team/a"));
    // Cluster-scoped objects match every namespace selector.
    assert!(matches(&criteria("test"), "CREATE /v1/nodes -/a"));
    // A namespace that is created or updated is selected by its new labels.
    let written =
        decide(&criteria("test"), "UPDATE /v1/namespaces -/team", "metadata: {labels: {env: test}}", "");
    assert!(written.unwrap().is_some());
    // A namespace that is deleted is selected by its stored labels.
    assert!(!matches(&criteria("test"), "DELETE /v1/namespaces -/team"));
    assert!(matches(&criteria("prod"), "DELETE /v1/namespaces -/team"));
    let missing = decide(&criteria("prod"), "CREATE /v1/pods nowhere/a", "metadata: {}", "");
    assert_eq!(missing, Err("namespaces \"nowhere\" not found".to_owned()));
}

#[test]
fn object_selector_matches_the_labels_of_the_new_or_the_old_object() {
    let criteria = format!("{}\nobjectSelector: {{matchLabels: {{app: web}}}}", rule("['*']"));
    let ours = "metadata: {labels: {app: web}}";
    let other = "metadata: {labels: {app: api}}";
    let decide = |new, old| decide(&criteria, "UPDATE /v1/pods team/a", new, old).unwrap().is_some();
    assert!(decide(ours, other));
    assert!(decide(other, ours));
    assert!(decide("", ours));
    assert!(!decide(other, other));
    assert!(!decide("", ""));
}

#[test]
fn rule_for_another_version_matches_only_with_match_policy_equivalent() {
    let rule = "resourceRules: [{apiGroups: [autoscaling], apiVersions: [v1], operations: ['*'], resources: [horizontalpodautoscalers]}]";
    let request = "CREATE autoscaling/v2/horizontalpodautoscalers team/a";
    assert!(!matches(&format!("{rule}\nmatchPolicy: Exact"), request));
    let matched =
        decide(&format!("{rule}\nmatchPolicy: Equivalent"), request, "metadata: {}", "").unwrap().unwrap();
    assert_eq!(matched.version, "v1");
    assert_eq!(matched.kind.to_string(), "autoscaling/v1, Kind=HorizontalPodAutoscaler");
    let as_asked =
        decide(&format!("{rule}\nmatchPolicy: Equivalent"), &request.replace("v2", "v1"), "metadata: {}", "");
    assert_eq!(as_asked.unwrap().unwrap().version, "v1");
}

#[test]
fn missing_namespace_selector_is_an_error() {
    let error = MatchCriteria::of_policy(&Value::Null).unwrap_err();
    assert_eq!(
        error,
        "a nil namespace selector was passed, please ensure selectors are initialized properly"
    );
}

#[test]
fn reviews_and_admission_configuration_are_exempt_from_policies() {
    let of = |group, resource| exemption_of_built_in(&GroupResource::new(group, resource));
    assert_eq!(of("", "pods"), Exemption::None);
    assert_eq!(of("authentication.k8s.io", "tokenreviews"), Exemption::Total);
    assert_eq!(of("authorization.k8s.io", "subjectaccessreviews"), Exemption::Total);
    assert_eq!(of("admissionregistration.k8s.io", "validatingadmissionpolicies"), Exemption::FromApi);
    assert_eq!(
        of("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
        Exemption::FromApiWebhooks
    );
}
