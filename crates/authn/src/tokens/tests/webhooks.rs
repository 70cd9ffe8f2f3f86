//! Tokens for webhooks: which requests are granted, the order of the checks, and how long a token stays valid.

use api::attestation::WebhookConfigurationKind;

use super::*;

const ROBOT: &str = "system:serviceaccount:ns:robot";
const MAY: Attests = Attests(&[
    (ROBOT, "admissionReviewAPIGroups", "apps"),
    (ROBOT, "admissionReviewAPIGroups", "batch"),
    (ROBOT, "admissionReviewAPIGroups", "*"),
    (ROBOT, "apigroups", "apps"),
    (ROBOT, "apigroups", "core"),
    (ROBOT, "apigroups", "gone.example.com"),
    (ROBOT, "apigroups", "*"),
]);

const HOOKS: &str = r#"{"metadata":{"name":"hooks","uid":"hooks-uid"},"webhooks":[
    {"clientConfig":{"url":"https://apps.example/a"},"rules":[{"apiGroups":["apps"]},{"apiGroups":["gone.example.com"]}]},
    {"clientConfig":{"service":{"name":"svc","namespace":"ns","port":443}},"rules":[{"apiGroups":["batch","policy"]}]},
    {"clientConfig":{"url":"https://all.example/"},"rules":[{"apiGroups":["*"]}]},
    {"clientConfig":{"url":"https://none.example/"},"rules":[]}]}"#;

fn with_hooks() -> Arc<FakeObjects> {
    let store = store();
    for kind in WebhookConfigurationKind::ALL {
        store.put(BoundKind::Webhooks(kind), "", "hooks", HOOKS);
    }
    let going =
        r#"{"metadata":{"name":"going","uid":"u","deletionTimestamp":"2027-01-15T08:00:00Z"},"webhooks":[]}"#;
    store.put(BoundKind::Webhooks(WebhookConfigurationKind::Validating), "", "going", going);
    for group in ["apps", ""] {
        store.objects.lock().unwrap().insert(format!("APIService/{group}"), Arc::default());
    }
    store
}

fn on() -> RequestRules {
    RequestRules { webhooks: true, ..rules() }
}

struct Ask<'a> {
    kind: &'a str,
    name: &'a str,
    uid: &'a str,
    audience: &'a str,
    field: AttestationDialect,
    group: &'a str,
    seconds: i64,
}

impl Default for Ask<'_> {
    fn default() -> Self {
        Ask {
            kind: "ValidatingWebhookConfiguration",
            name: "hooks",
            uid: "",
            audience: "https://apps.example/a",
            field: AttestationDialect::Kubernetes,
            group: "apps",
            seconds: 600,
        }
    }
}

fn ask(
    store: &Arc<FakeObjects>,
    rules: &RequestRules,
    attester: &Attests,
    ask: &Ask<'_>,
) -> Result<TokenGrant, TokenRequestRefusal> {
    let Ask { kind, name, uid, audience, field, group, seconds } = ask;
    let spec = format!(
        r#"{{"spec":{{"audiences":["{audience}"],"expirationSeconds":{seconds},"{}":{{"{}":["{group}"]}},
            "boundObjectRef":{{"apiVersion":"admissionregistration.k8s.io/v1","kind":"{kind}","name":"{name}","uid":"{uid}"}}}}}}"#,
        field.field(),
        field.key()
    );
    let account = store.objects.lock().unwrap()["ServiceAccount/ns/robot"].clone();
    let object = value::json::parse(spec.as_bytes()).unwrap();
    let request = TokenRequest::new(object, &account, rules, Timestamp::from_seconds(NOW))?;
    run(request.grant(rules, &**store, attester, "the-id"))
}

fn refusal(attester: &Attests, asked: &Ask<'_>) -> String {
    let status = ask(&with_hooks(), &on(), attester, asked).unwrap_err().status;
    format!("{} {}", status.code(), status.message())
}

/// The cause of a refusal as text, as in the log and the audit event.
fn cause(attester: &Attests, asked: &Ask<'_>) -> String {
    ask(&with_hooks(), &on(), attester, asked).unwrap_err().cause.unwrap().to_string()
}

const DENIED: &str = r#"403 serviceaccounts/token "robot" is forbidden: token request denied"#;

#[test]
fn webhook_token_has_the_same_claims_in_both_dialects() {
    for field in AttestationDialect::ALL {
        let grant = ask(&with_hooks(), &on(), &MAY, &Ask { field, seconds: 6000, ..Ask::default() }).unwrap();
        let issuer = issuer();
        let token = issuer.issue(&grant.claims).unwrap();
        let payload = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
        let payload = value::json::parse(&payload).unwrap();
        expect![[r#"{"attestationClaims":{"webhook-authentication.k8s.io/allowedAPIGroup":["apps"]},"attestations":{"admissionReviewAPIGroups":["apps"]},"namespace":"ns","serviceaccount":{"name":"robot","uid":"sa-uid"},"validatingWebhookConfiguration":{"name":"hooks","uid":"hooks-uid"},"validatingwebhookconfiguration":{"name":"hooks","uid":"hooks-uid"}}"#]]
            .assert_eq(&value::write::to_string(payload.at(&["kubernetes.io"]).unwrap()));
        assert_eq!(grant.claims.expires_at, Some(NOW + 600));
        let is_kep = field == AttestationDialect::Kep;
        assert_eq!(grant.warnings.len(), usize::from(is_kep));
        assert_eq!(grant.annotations.len(), 1 + usize::from(is_kep));
        let answer = grant.answer("TOKEN");
        assert_eq!(answer.int_at(&["spec", "expirationSeconds"]), Some(600));
        assert_eq!(answer.str_at(&["status", "expirationTimestamp"]), Some("2027-01-15T08:10:00Z"));
    }
}

#[test]
fn denied_webhook_token_request_does_not_reveal_the_configuration() {
    // Start with a request that breaks every rule, and fix one reported rule after the other.
    let attests_nothing = Attests(&[]);
    let mut wrong = Ask { name: "nope", uid: "other", audience: "api", ..Ask::default() };
    let off = ask(&with_hooks(), &rules(), &attests_nothing, &wrong).unwrap_err();
    assert_eq!(off.status.code(), 400);
    assert!(off.status.message().ends_with("(feature gate APIServerWebhookAuthenticationToken is disabled)"));
    assert_eq!(off.cause.unwrap().reason, RefusalReason::FeatureGateDisabled);
    let check = |attester: &Attests, asked: &Ask<'_>, expected: &str| {
        assert_eq!(refusal(attester, asked), expected);
    };
    check(&attests_nothing, &wrong, "400 api server audiences are invalid for webhook token requests");
    wrong.audience = "https://wrong.example/";
    check(&attests_nothing, &wrong, r#"403 admissionReviewAPIGroups "apps" is forbidden: may not attest"#);
    check(&MAY, &wrong, DENIED);
    wrong.name = "hooks";
    check(&MAY, &wrong, DENIED);
    wrong.audience = "https://apps.example/a";
    check(&MAY, &wrong, DENIED);
    wrong.uid = "hooks-uid";
    ask(&with_hooks(), &on(), &MAY, &wrong).unwrap();
}

#[test]
fn denied_webhook_token_request_has_a_cause_for_operators() {
    let check = |attester: &Attests, asked: &Ask<'_>, expected: expect_test::Expect| {
        expected.assert_eq(&cause(attester, asked));
    };
    let ask = Ask::default;
    check(
        &MAY,
        &Ask { audience: "api", ..ask() },
        expect!["APIServerAudience: api server audiences are invalid for webhook token requests"],
    );
    check(
        &Attests(&[]),
        &ask(),
        expect![[r#"NoAttestPermission: admissionReviewAPIGroups "apps" is forbidden: may not attest"#]],
    );
    check(
        &MAY,
        &Ask { name: "nope", ..ask() },
        expect![[r#"ConfigurationNotFound: ValidatingWebhookConfiguration "nope" does not exist"#]],
    );
    check(
        &MAY,
        &Ask { name: "going", group: "*", ..ask() },
        expect![[r#"ConfigurationDeleting: ValidatingWebhookConfiguration "going" is being deleted"#]],
    );
    check(
        &MAY,
        &Ask { uid: "other", ..ask() },
        expect![[r#"UIDMismatch: ValidatingWebhookConfiguration "hooks" has uid "hooks-uid", not "other""#]],
    );
    let gone = Ask { group: "gone.example.com", field: AttestationDialect::Kep, ..ask() };
    check(&MAY, &gone, expect![[r#"APIServiceNotFound: no APIService has API group "gone.example.com""#]]);
    check(
        &MAY,
        &Ask { audience: "https://apps.example/a/", ..ask() },
        expect![[
            r#"AudienceMismatch: ValidatingWebhookConfiguration "hooks": no webhook has audience "https://apps.example/a/"; its audiences are ["https://apps.example/a", "https://svc.ns.svc:443/", "https://all.example/", "https://none.example/"]"#
        ]],
    );
    check(
        &MAY,
        &Ask { group: "batch", ..ask() },
        expect![[
            r#"GroupNotInRules: ValidatingWebhookConfiguration "hooks": the webhooks with audience "https://apps.example/a" have no rule for API group "batch""#
        ]],
    );
    let long = "n".repeat(100_000);
    assert!(cause(&MAY, &Ask { name: &long, ..ask() }).len() < 1000);
}

#[test]
fn webhook_token_group_and_audience_must_match_the_same_webhook() {
    let fits = |asked: &Ask<'_>| ask(&with_hooks(), &on(), &MAY, asked).is_ok();
    for kind in ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"] {
        assert!(fits(&Ask { kind, ..Ask::default() }));
        assert!(fits(&Ask { kind, audience: "https://all.example/", ..Ask::default() }));
        assert!(fits(&Ask { kind, audience: "https://svc.ns.svc:443/", group: "batch", ..Ask::default() }));
        for (audience, group) in [
            ("https://svc.ns.svc:443/", "apps"),
            ("https://apps.example/a", "batch"),
            ("https://apps.example/a/", "apps"),
            ("https://svc.ns.svc:443", "batch"),
            ("https://none.example/", "apps"),
        ] {
            assert_eq!(refusal(&MAY, &Ask { kind, audience, group, ..Ask::default() }), DENIED);
        }
    }
    assert_eq!(refusal(&MAY, &Ask { name: "going", group: "*", ..Ask::default() }), DENIED);
}

#[test]
fn wildcard_group_needs_its_own_permission_and_in_the_kep_dialect_an_audience() {
    let anywhere = Ask { group: "*", audience: "https://elsewhere.example/", ..Ask::default() };
    assert!(ask(&with_hooks(), &on(), &MAY, &anywhere).is_ok());
    assert_eq!(refusal(&MAY, &Ask { field: AttestationDialect::Kep, ..anywhere }), DENIED);
    let here = Ask { group: "*", field: AttestationDialect::Kep, ..Ask::default() };
    assert!(ask(&with_hooks(), &on(), &MAY, &here).is_ok());
    let only_one = Attests(&[(ROBOT, "apigroups", "apps"), (ROBOT, "apigroups", "")]);
    assert_eq!(refusal(&only_one, &here), r#"403 apigroups "*" is forbidden: may not attest"#);
}

#[test]
fn kep_dialect_requires_an_api_service_and_supports_the_core_group() {
    let gone = Ask { group: "gone.example.com", field: AttestationDialect::Kep, ..Ask::default() };
    assert_eq!(refusal(&MAY, &gone), DENIED);
    let store = with_hooks();
    store.objects.lock().unwrap().insert("APIService/gone.example.com".to_owned(), Arc::default());
    assert!(ask(&store, &on(), &MAY, &gone).is_ok());
    let core =
        Ask { group: "", audience: "https://all.example/", field: AttestationDialect::Kep, ..Ask::default() };
    let grant = ask(&store, &on(), &MAY, &core).unwrap();
    let Some(BoundObject::Webhooks { group, .. }) = grant.claims.bound else { panic!() };
    assert_eq!(group.as_deref(), Some(""));
    let nameless = Attests(&[(ROBOT, "apigroups", ""), (ROBOT, "apigroups", "*")]);
    assert_eq!(refusal(&nameless, &core), r#"403 apigroups "core" is forbidden: may not attest"#);
}

fn bound(group: Option<&str>) -> TokenClaims {
    TokenClaims {
        audiences: vec!["https://hook".into()],
        bound: Some(BoundObject::Webhooks {
            kind: WebhookConfigurationKind::Mutating,
            configuration: ObjectReference { name: "hooks".into(), uid: "hooks-uid".into() },
            group: group.map(Into::into),
        }),
        ..claims()
    }
}

fn reviewed(claims: &TokenClaims, gate: bool, change: impl FnOnce(&FakeObjects)) -> String {
    let (issuer, store) = (issuer(), with_hooks());
    change(&store);
    let verifier = verifier(&issuer, &store);
    let verifier = if gate { verifier.with_webhooks() } else { verifier };
    let wanted = ["https://hook".into()];
    match run(verifier.verify(&issuer.issue(claims).unwrap(), Some(&wanted), at(NOW))) {
        Ok(Some(verified)) => format!("good {:?}", verified.user.extra),
        Ok(None) => "not mine".to_owned(),
        Err(error) => error,
    }
}

#[test]
fn token_review_of_a_webhook_token_shows_its_configuration_and_group() {
    expect![[r#"good {"attestation.authentication.kubernetes.io/admissionReviewAPIGroups": ["*"], "authentication.kubernetes.io/credential-id": ["JTI=some-id"], "authentication.kubernetes.io/mutatingwebhookconfiguration-name": ["hooks"], "authentication.kubernetes.io/mutatingwebhookconfiguration-uid": ["hooks-uid"]}"#]]
        .assert_eq(&reviewed(&bound(Some("*")), true, |_| {}));
    assert!(reviewed(&bound(Some("apps")), true, |_| {}).starts_with("good"));
    assert!(reviewed(&bound(Some("")), true, |_| {}).starts_with("good"));
}

#[test]
fn webhook_token_is_invalid_without_its_configuration_account_group_or_feature_gate() {
    let kind = BoundKind::Webhooks(WebhookConfigurationKind::Mutating);
    let check = |gate, change: fn(&FakeObjects), expected: expect_test::Expect| {
        expected.assert_eq(&reviewed(&bound(Some("apps")), gate, change));
    };
    check(
        false,
        |_| {},
        expect![[
            r#"feature gate "APIServerWebhookAuthenticationToken" is disabled, but token is webhook bound"#
        ]],
    );
    check(
        true,
        |store| store.remove(BoundKind::Webhooks(WebhookConfigurationKind::Mutating), "", "hooks"),
        expect!["service account token has been invalidated"],
    );
    check(
        true,
        |store| {
            let again = r#"{"metadata":{"name":"hooks","uid":"new"}}"#;
            store.put(BoundKind::Webhooks(WebhookConfigurationKind::Mutating), "", "hooks", again);
        },
        expect![
            "MutatingWebhookConfiguration UID (new) does not match service account validating ref claim (hooks-uid)"
        ],
    );
    check(
        true,
        |store| {
            let going = r#"{"metadata":{"name":"hooks","uid":"hooks-uid","deletionTimestamp":"2027-01-15T07:58:00Z"}}"#;
            store.put(BoundKind::Webhooks(WebhookConfigurationKind::Mutating), "", "hooks", going);
        },
        expect!["service account token has been invalidated"],
    );
    check(
        true,
        |store| drop(store.objects.lock().unwrap().remove("APIService/apps")),
        expect!["service account token has been invalidated"],
    );
    check(
        true,
        |store| store.remove(BoundKind::ServiceAccount, "ns", "robot"),
        expect![[r#"serviceaccounts "robot" not found"#]],
    );
    expect![[r#"bound object was a webhook config, but "admissionReviewAPIGroups" attestation is missing"#]]
        .assert_eq(&reviewed(&bound(None), true, |_| {}));
    // A configuration of the other kind with the same name does not keep the token valid.
    let only_other = |store: &FakeObjects| store.remove(kind, "", "hooks");
    assert_eq!(reviewed(&bound(Some("*")), true, only_other), "service account token has been invalidated");
}

#[test]
fn webhook_token_is_rejected_by_the_api_server_itself() {
    let (issuer, store) = (issuer(), with_hooks());
    let verifier = verifier(&issuer, &store).with_webhooks();
    let error = run(verifier.verify(&issuer.issue(&bound(Some("*"))).unwrap(), None, at(NOW))).unwrap_err();
    assert_eq!(error, r#"token audiences ["https://hook"] is invalid for the target audiences ["api"]"#);
}

/// A token with this claim `kubernetes.io`, signed with the issuer's key as another server with that key might.
fn foreign(kubernetes: &str) -> String {
    let (issuer, store) = (issuer(), with_hooks());
    let payload = format!(
        r#"{{"aud":["https://hook"],"iss":"https://issuer","exp":{},"kubernetes.io":{{"namespace":"ns","serviceaccount":{{"name":"robot","uid":"sa-uid"}},{kubernetes}}}}}"#,
        NOW + 600
    );
    let token = issuer.sign(&value::json::parse(payload.as_bytes()).unwrap()).unwrap();
    let wanted = ["https://hook".into()];
    let verified = run(verifier(&issuer, &store).with_webhooks().verify(&token, Some(&wanted), at(NOW)));
    verified.map_or_else(|error| error, |_| "good".to_owned())
}

#[test]
fn webhook_token_claims_of_either_dialect_are_accepted_unless_they_conflict() {
    let hooks = r#"{"name":"hooks","uid":"hooks-uid"}"#;
    let (apps, every) = (r#"{"admissionReviewAPIGroups":["apps"]}"#, r#"{"admissionReviewAPIGroups":["*"]}"#);
    let kep = r#"{"webhook-authentication.k8s.io/allowedAPIGroup":["apps"]}"#;
    for good in [
        format!(r#""validatingwebhookconfiguration":{hooks},"attestations":{apps}"#),
        format!(r#""validatingWebhookConfiguration":{hooks},"attestationClaims":{kep}"#),
        format!(
            r#""mutatingwebhookconfiguration":{hooks},"mutatingWebhookConfiguration":{hooks},"attestations":{apps},"attestationClaims":{kep}"#
        ),
    ] {
        assert_eq!(foreign(&good), "good", "{good}");
    }
    for bad in [
        format!(
            r#""validatingwebhookconfiguration":{hooks},"attestations":{every},"attestationClaims":{kep}"#
        ),
        format!(
            r#""validatingwebhookconfiguration":{hooks},"mutatingwebhookconfiguration":{hooks},"attestations":{apps}"#
        ),
        format!(
            r#""validatingwebhookconfiguration":{hooks},"mutatingWebhookConfiguration":{hooks},"attestations":{apps}"#
        ),
        format!(
            r#""validatingwebhookconfiguration":{hooks},"validatingWebhookConfiguration":{{"name":"hooks","uid":"x"}},"attestations":{apps}"#
        ),
        format!(
            r#""validatingwebhookconfiguration":{hooks},"pod":{{"name":"web","uid":"pod-uid"}},"attestations":{apps}"#
        ),
        format!(
            r#""validatingwebhookconfiguration":{hooks},"attestations":{{"admissionReviewAPIGroups":["apps","*"]}}"#
        ),
        format!(
            r#""validatingwebhookconfiguration":{hooks},"attestations":{{"admissionReviewAPIGroups":"apps"}}"#
        ),
        format!(r#""validatingwebhookconfiguration":{hooks}"#),
    ] {
        assert_ne!(foreign(&bad), "good", "{bad}");
    }
}
