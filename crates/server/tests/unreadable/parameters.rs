//! Policy parameters that cannot be decoded, and parameters whose CRD cannot be decoded.

use server::offline;

use super::{
    ADMISSION, BrokenObjectCase, DEFINITIONS, MAP, MAPS, OTHER_MAPS, SERVICE, SERVICES, Server, VOLUME,
    VOLUMES, break_object, break_offline, check, filled, private_directory,
};

/// Creates a policy for ConfigMaps and PersistentVolumes with parameters from ConfigMaps in the namespace `rules`, and its binding.
async fn create_policy(server: &Server, family: &str, name: &str, reference: &str) {
    let rules = r#""matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],
        "resources":["configmaps","persistentvolumes"]}]},"paramKind":{"apiVersion":"v1","kind":"ConfigMap"}"#;
    let does = match family {
        "validating" => r#""validations":[{"expression":"object.metadata.name != params.data.deny"}]"#,
        _ => {
            r#""reinvocationPolicy":"Never","mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":
                "[JSONPatch{op: 'add', path: '/metadata/labels', value: {'deny': params.data.deny}}]"}}]"#
        }
    };
    let policy =
        format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{{"failurePolicy":"Ignore",{rules},{does}}}}}"#);
    server.create(&format!("{ADMISSION}/{family}admissionpolicies"), &policy).await;
    let actions = if family == "validating" { r#""validationActions":["Deny"],"# } else { "" };
    let binding = format!(
        r#"{{"metadata":{{"name":"{name}"}},"spec":{{"policyName":"{name}",{actions}
        "paramRef":{{"namespace":"rules","parameterNotFoundAction":"Allow",{reference}}}}}}}"#
    );
    server.create(&format!("{ADMISSION}/{family}admissionpolicybindings"), &binding).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_with_an_unreadable_parameter_refuses_matching_writes_in_every_namespace() {
    let by_name = r#""name":"p""#;
    let by_label = r#""selector":{"matchLabels":{"rule":"deny"}}"#;
    for (family, reference) in
        [("validating", by_name), ("validating", by_label), ("mutating", by_name), ("mutating", by_label)]
    {
        let directory = private_directory();
        filled(directory.path()).await;
        let server = Server::start(directory.path()).await;
        server.create("/api/v1/namespaces", r#"{"metadata":{"name":"rules"}}"#).await;
        let param = r#"{"metadata":{"name":"p","labels":{"rule":"deny"}},"data":{"deny":"evil"}}"#;
        server.create("/api/v1/namespaces/rules/configmaps", param).await;
        create_policy(&server, family, "by-param", reference).await;
        for (path, object) in [(MAPS, MAP), (OTHER_MAPS, MAP), (VOLUMES, VOLUME)] {
            assert_eq!(server.tries(path, object).await, (200, String::new()), "{family} {reference}");
        }
        server.stop().await;
        let key = break_offline(directory.path(), &["configmaps", "rules", "p"]).await;
        let server = Server::start(directory.path()).await;
        let asked = BrokenObjectCase {
            segments: &[],
            refused: &[(MAPS, MAP), (OTHER_MAPS, MAP), (VOLUMES, VOLUME)],
            allowed: &[(SERVICES, SERVICE)],
        };
        check(&server, &asked, &key).await;
        server.stop().await;
        offline::delete_key(directory.path(), &key).await.unwrap();
        let server = Server::start(directory.path()).await;
        assert_eq!(server.tries(OTHER_MAPS, MAP).await, (200, String::new()), "{family} {reference}");
        server.stop().await;
    }
}

/// A CRD with the kind `Limit`.
fn limit_crd(plural: &str, group: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"{plural}.{group}"}},"spec":{{"group":"{group}","scope":"Cluster",
        "names":{{"plural":"{plural}","singular":"{plural}-one","kind":"Limit","listKind":"LimitList"}},
        "versions":[{{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":{{"type":"object",
        "x-kubernetes-preserve-unknown-fields":true}}}}}}]}}}}"#
    )
}

/// Waits until the condition `NamesAccepted` of a CRD has the wanted status; returns the status of `Established`.
async fn names_become(server: &Server, name: &str, wanted: &str) -> String {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    loop {
        let found = server.admin.get(&format!("{DEFINITIONS}/{name}")).await.unwrap();
        let status = |name: &str| {
            let mut conditions = found.list_at(&["status", "conditions"]).iter();
            let condition = conditions.find(|condition| condition.str_at(&["type"]) == Some(name));
            condition.and_then(|condition| condition.str_at(&["status"])).unwrap_or_default().to_owned()
        };
        if status("NamesAccepted") == wanted {
            return status("Established");
        }
        assert!(std::time::Instant::now() < deadline, "{name}: {found:?}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// Asserts that no other CRD gets the kind of an unreadable one, and that policies do not run without their parameters.
async fn keeps_its_names(server: &Server, key: &str, other: &str) {
    server.create(DEFINITIONS, &limit_crd(other, "rules.example.com")).await;
    assert_eq!(names_become(server, &format!("{other}.rules.example.com"), "False").await, "False");
    assert_eq!(names_become(server, "alimits.rules.example.com", "False").await, "False");
    for name in ["any", "soft"] {
        let map = format!(r#"{{"metadata":{{"name":"{name}"}}}}"#);
        let (code, message) = server.tries(OTHER_MAPS, &map).await;
        assert!(code == 500 && message.contains(key), "{name}: {code} {message}");
    }
    assert_eq!(server.tries(SERVICES, SERVICE).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_names_of_an_unreadable_crd_are_not_given_to_another_crd() {
    let directory = private_directory();
    filled(directory.path()).await;
    let server = Server::start(directory.path()).await;
    server.create(DEFINITIONS, &limit_crd("limits", "rules.example.com")).await;
    assert_eq!(names_become(&server, "limits.rules.example.com", "True").await, "True");
    let limit = |name: &str| {
        format!(
            r#"{{"apiVersion":"rules.example.com/v1","kind":"Limit","metadata":{{"name":"l"}},"deny":"{name}"}}"#
        )
    };
    server.create("/apis/rules.example.com/v1/limits", &limit("evil")).await;
    server.create(DEFINITIONS, &limit_crd("alimits", "rules.example.com")).await;
    assert_eq!(names_become(&server, "alimits.rules.example.com", "False").await, "False");
    for (name, failure_policy, condition) in [
        ("hard", "Fail", "object.metadata.name != 'soft'"),
        ("soft", "Ignore", "object.metadata.name == 'soft'"),
    ] {
        let policy = format!(
            r#"{{"metadata":{{"name":"{name}"}},"spec":{{"failurePolicy":"{failure_policy}",
            "paramKind":{{"apiVersion":"rules.example.com/v1","kind":"Limit"}},
            "matchConstraints":{{"resourceRules":[{{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}}]}},
            "matchConditions":[{{"name":"c","expression":"{condition}"}}],
            "validations":[{{"expression":"object.metadata.name != params.deny"}}]}}}}"#
        );
        server.create(&format!("{ADMISSION}/validatingadmissionpolicies"), &policy).await;
        let binding = format!(
            r#"{{"metadata":{{"name":"{name}"}},"spec":{{"policyName":"{name}","validationActions":["Deny"],
            "paramRef":{{"name":"l","parameterNotFoundAction":"Deny"}}}}}}"#
        );
        server.create(&format!("{ADMISSION}/validatingadmissionpolicybindings"), &binding).await;
    }
    assert_eq!(server.tries(OTHER_MAPS, MAP).await, (200, String::new()));
    assert_eq!(server.tries(OTHER_MAPS, r#"{"metadata":{"name":"evil"}}"#).await.0, 422);

    // First while the server is running, then after a restart.
    let store = server.ephemeral.running.state().storage.store.clone();
    let key = break_object(&store, &["customresourcedefinitions", "limits.rules.example.com"]).await;
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while server.tries(OTHER_MAPS, MAP).await.0 != 500 {
        assert!(std::time::Instant::now() < deadline, "the policy is evaluated without its parameter");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    keeps_its_names(&server, &key, "blimits").await;
    drop(store);
    server.stop().await;
    let server = Server::start(directory.path()).await;
    keeps_its_names(&server, &key, "climits").await;
    // Other groups are not affected.
    server.create(DEFINITIONS, &limit_crd("limits", "other.example.com")).await;
    assert_eq!(names_become(&server, "limits.other.example.com", "True").await, "True");
    let (code, page) = server.health("/readyz");
    assert!(code == 500 && page.contains(&key), "{page}");
    server.stop().await;

    // After it is removed, another CRD gets the kind.
    offline::delete_key(directory.path(), &key).await.unwrap();
    let server = Server::start(directory.path()).await;
    assert_eq!(names_become(&server, "alimits.rules.example.com", "True").await, "True");
    server.stop().await;
}
