//! Token requests: permissions, validation, and the order of checks.

use conformance::{accepts, rejects};
use http::Method;
use serde_json::{Value, json};

use crate::token_requests::{
    ACCOUNTS, KEP, KINDS, KUBERNETES, MUTATING, ON, VALIDATING, account, claims, grant,
    register_unused_webhooks, request, review, serve, token_of,
};

const APPS: &str = "https://apps.example/a";
const DENIED: &str = "serviceaccounts/token \"robot\" is forbidden: token request denied";

fn message(status: &Value) -> &str {
    status["message"].as_str().unwrap()
}

#[tokio::test]
async fn a_token_is_valid_for_one_webhook_and_group_and_can_be_reviewed() {
    let (_server, client) = serve(&[ON]).await;
    let made = register_unused_webhooks(&client).await;
    account(&client, "robot", KUBERNETES, &["apps", "batch", "*"]).await;
    grant(&client, "robot", [KEP[2], KEP[3]], &["apps", "batch", "core", "*"]).await;
    for dialect in [KUBERNETES, KEP] {
        for (kind, configuration) in KINDS.into_iter().zip(&made) {
            let mut token_request = request(kind, dialect, "apps", APPS);
            token_request["spec"]["expirationSeconds"] = json!(7200);
            let answer = client.post(&token_of("robot"), &token_request).await.unwrap();
            let warned = answer.header("warning").contains("KEP-6060");
            assert_eq!(warned, dialect == KEP, "{}", answer.header("warning"));
            let got = accepts(Ok(answer)).unwrap();
            assert_eq!(got["spec"]["expirationSeconds"], 600);
            assert_eq!(got["spec"][dialect[0]], json!({dialect[1]: ["apps"]}));
            let token = got["status"]["token"].as_str().unwrap();
            let said = claims(token);
            assert_eq!(said["aud"], json!([APPS]));
            assert_eq!(said["sub"], "system:serviceaccount:default:robot");
            assert_eq!(said["exp"].as_i64().unwrap() - said["iat"].as_i64().unwrap(), 600);
            let uid = &configuration["metadata"]["uid"];
            let bound = json!({"name": "hooks", "uid": uid});
            let own = &said["kubernetes.io"];
            let (camel, other) =
                if kind == VALIDATING { ("validating", "mutating") } else { ("mutating", "validating") };
            assert_eq!(own[format!("{camel}WebhookConfiguration")], bound);
            assert_eq!(own[format!("{camel}webhookconfiguration")], bound);
            assert!(own.get(format!("{other}webhookconfiguration")).is_none());
            for [field, key, ..] in [KUBERNETES, KEP] {
                assert_eq!(own[field], json!({key: ["apps"]}));
            }

            let status = review(&client, token, APPS).await;
            assert_eq!(status["authenticated"], true, "{status}");
            let mut extra = status["user"]["extra"].clone();
            extra.as_object_mut().unwrap().remove("authentication.kubernetes.io/credential-id");
            assert_eq!(
                extra,
                json!({
                    "attestation.authentication.kubernetes.io/admissionReviewAPIGroups": ["apps"],
                    format!("authentication.kubernetes.io/{camel}webhookconfiguration-name"): ["hooks"],
                    format!("authentication.kubernetes.io/{camel}webhookconfiguration-uid"): [uid],
                })
            );
            // The token is valid for no other webhook, and not for the server itself.
            for audience in ["https://svc.ns.svc:443/", "https://kubernetes.default.svc"] {
                assert_ne!(review(&client, token, audience).await["authenticated"], true);
            }
            assert_eq!(client.as_token(Some(token)).get("/api").await.unwrap().code, 401);
        }
        for (group, audience) in [("batch", "https://svc.ns.svc:443/"), ("*", APPS)] {
            let token_request = request(VALIDATING, dialect, group, audience);
            let got = accepts(client.post(&token_of("robot"), &token_request).await).unwrap();
            let token = got["status"]["token"].as_str().unwrap();
            assert_eq!(review(&client, token, audience).await["authenticated"], true);
        }
    }
    // Only the KEP's names have a name for the core group.
    let core = "https://core.example/";
    accepts(client.post(&token_of("robot"), &request(VALIDATING, KEP, "", core)).await).unwrap();
    let token_request = request(VALIDATING, KUBERNETES, "", core);
    rejects(client.post(&token_of("robot"), &token_request).await, 422, "Invalid").unwrap();
}

#[tokio::test]
async fn the_order_of_errors_does_not_reveal_stored_objects() {
    let (_server, client) = serve(&[ON]).await;
    register_unused_webhooks(&client).await;
    accepts(client.post(ACCOUNTS, &json!({"metadata": {"name": "robot"}})).await).unwrap();
    for dialect in [KUBERNETES, KEP] {
        // A request with every error; each step fixes the reported one.
        let mut wrong = request(VALIDATING, dialect, "apps", "https://kubernetes.default.svc");
        wrong["spec"]["boundObjectRef"]["name"] = json!("nope");
        wrong["spec"]["boundObjectRef"]["uid"] = json!("other");
        wrong["spec"]["expirationSeconds"] = json!(599);

        // Permission to create tokens is checked first.
        let bob = client.as_token(Some("bobtoken"));
        let status = rejects(bob.post(&token_of("robot"), &wrong).await, 403, "Forbidden").unwrap();
        assert!(message(&status).contains("cannot create resource \"serviceaccounts/token\""), "{status}");

        let status = rejects(client.post(&token_of("robot"), &wrong).await, 422, "Invalid").unwrap();
        assert!(message(&status).contains("may not specify a duration less than 10 minutes"), "{status}");
        wrong["spec"]["expirationSeconds"] = json!(600);
        let status = rejects(client.post(&token_of("robot"), &wrong).await, 400, "BadRequest").unwrap();
        assert_eq!(message(&status), "api server audiences are invalid for webhook token requests");
        wrong["spec"]["audiences"] = json!(["https://wrong.example/"]);
        let status = rejects(client.post(&token_of("robot"), &wrong).await, 403, "Forbidden").unwrap();
        let [.., group, resource] = dialect;
        let expected = format!(
            "{resource}.{group} \"apps\" is forbidden: User \"system:serviceaccount:default:robot\" cannot attest resource \"{resource}\" in API group \"{group}\" at the cluster scope"
        );
        assert_eq!(message(&status), expected);
        // The answer is the same whether the configuration exists or not.
        wrong["spec"]["boundObjectRef"]["name"] = json!("hooks");
        let status = rejects(client.post(&token_of("robot"), &wrong).await, 403, "Forbidden").unwrap();
        assert_eq!(message(&status), expected);
        wrong["spec"]["boundObjectRef"]["name"] = json!("nope");

        grant(&client, "robot", [group, resource], &["apps", "batch", "gone.example.com", "*"]).await;
        let status = rejects(client.post(&token_of("robot"), &wrong).await, 403, "Forbidden").unwrap();
        assert_eq!(message(&status), DENIED);
        assert_eq!(status["details"], json!({"kind": "serviceaccounts/token", "name": "robot"}));
        wrong["spec"]["boundObjectRef"]["name"] = json!("hooks");
        let status = rejects(client.post(&token_of("robot"), &wrong).await, 403, "Forbidden").unwrap();
        assert_eq!(message(&status), DENIED);
        wrong["spec"]["audiences"] = json!([APPS]);
        // A configuration with another uid and a missing one get the same answer.
        let other_uid = rejects(client.post(&token_of("robot"), &wrong).await, 403, "Forbidden").unwrap();
        assert_eq!(other_uid, status);
        wrong["spec"]["boundObjectRef"]["uid"] = json!("");
        accepts(client.post(&token_of("robot"), &wrong).await).unwrap();

        // A group and an audience of two different webhooks match none.
        for (group, audience) in
            [("batch", APPS), ("apps", "https://svc.ns.svc:443/"), ("apps", "https://apps.example/")]
        {
            let token_request = request(MUTATING, dialect, group, audience);
            let status =
                rejects(client.post(&token_of("robot"), &token_request).await, 403, "Forbidden").unwrap();
            assert_eq!(message(&status), DENIED);
        }
        // For all groups, Kubernetes does not check the audience; the KEP does.
        let token_request = request(MUTATING, dialect, "*", "https://elsewhere.example/");
        let answer = client.post(&token_of("robot"), &token_request).await;
        if dialect == KEP {
            assert_eq!(message(&rejects(answer, 403, "Forbidden").unwrap()), DENIED);
        } else {
            accepts(answer).unwrap();
        }
        // Kubernetes does not check that the group is served either.
        let token_request = request(MUTATING, dialect, "gone.example.com", APPS);
        let answer = client.post(&token_of("robot"), &token_request).await;
        if dialect == KEP {
            assert_eq!(message(&rejects(answer, 403, "Forbidden").unwrap()), DENIED);
        } else {
            accepts(answer).unwrap();
        }
    }
    // Permission for all groups does not include a single group, nor the reverse.
    account(&client, "star", KUBERNETES, &["*"]).await;
    account(&client, "one", KUBERNETES, &["apps"]).await;
    let token_request = |group| request(VALIDATING, KUBERNETES, group, APPS);
    accepts(client.post(&token_of("star"), &token_request("*")).await).unwrap();
    rejects(client.post(&token_of("star"), &token_request("apps")).await, 403, "Forbidden").unwrap();
    rejects(client.post(&token_of("one"), &token_request("*")).await, 403, "Forbidden").unwrap();
    // The group of a CRD has an APIService.
    let crd = json!({"metadata": {"name": "things.gone.example.com"}, "spec": {
        "group": "gone.example.com", "scope": "Cluster",
        "names": {"plural": "things", "kind": "Thing", "singular": "thing", "listKind": "ThingList"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    accepts(client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd).await).unwrap();
    let token_request = request(MUTATING, KEP, "gone.example.com", APPS);
    accepts(client.post(&token_of("robot"), &token_request).await).unwrap();
}

#[tokio::test]
async fn malformed_requests_are_rejected_with_and_without_the_gate() {
    let (_server, client) = serve(&[]).await;
    accepts(client.post(ACCOUNTS, &json!({"metadata": {"name": "robot"}})).await).unwrap();
    let refused = async |spec: Value, words: &str| {
        let mut body =
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
        if body["spec"].get("boundObjectRef").is_none() {
            body["spec"]["boundObjectRef"] =
                request(VALIDATING, KEP, "", "")["spec"]["boundObjectRef"].clone();
            body["spec"]["audiences"] = json!(["https://a"]);
        }
        let status = rejects(client.post(&token_of("robot"), &body).await, 422, "Invalid").unwrap();
        let expected = format!("TokenRequest.authentication.k8s.io \"\" is invalid: {words}");
        assert_eq!(message(&status), expected);
    };
    let key = KEP[1];
    let none = "spec.attestations: Invalid value: null: webhook bound requests require exactly one admissionReviewAPIGroups attestation";
    refused(json!({}), none).await;
    refused(json!({"attestations": {}}), &none.replace("null", "{}")).await;
    // Errors about empty fields use the field names of the request.
    let no_claim = format!(
        "spec.attestationClaims: Invalid value: {{}}: webhook bound requests require exactly one {key} claim"
    );
    refused(json!({"attestationClaims": {}}), &no_claim).await;
    refused(
        json!({"attestationClaims": {key: ["a"], "other": ["b"]}}),
        &format!("spec.attestationClaims: Invalid value: {{\"other\":[\"b\"],\"{key}\":[\"a\"]}}: webhook bound requests require exactly one {key} claim"),
    )
    .await;
    refused(
        json!({"attestationClaims": {"other": ["b"]}}),
        &format!("spec.attestationClaims[other]: Unsupported value: \"other\": supported values: \"{key}\""),
    )
    .await;
    refused(
        json!({"attestationClaims": {key: []}}),
        &format!("spec.attestationClaims[{key}]: Invalid value: []: must specify a single value"),
    )
    .await;
    refused(
        json!({"attestationClaims": {key: ["a", "b"]}}),
        &format!("spec.attestationClaims[{key}]: Invalid value: [\"a\",\"b\"]: must specify a single value"),
    )
    .await;
    refused(
        json!({"attestationClaims": {key: ["core"]}}),
        &format!("spec.attestationClaims[{key}][0]: Invalid value: \"core\": must specify a valid API Group: the core group is \"\""),
    )
    .await;
    refused(
        json!({"attestationClaims": {key: ["a"]}, "attestations": {KUBERNETES[1]: ["a"]}}),
        "spec.attestationClaims: Forbidden: may not be specified together with attestations",
    )
    .await;
    refused(
        json!({"boundObjectRef": null, "attestationClaims": {key: ["a"]}}),
        &format!("spec.attestationClaims: Invalid value: {{\"{key}\":[\"a\"]}}: attestationClaims may only be specified with a webhook bound object reference"),
    )
    .await;
    // The field is part of the kind: it causes no warning and passes strict field validation.
    let answer = client
        .json(
            Method::POST,
            &format!("{}?fieldValidation=Strict", token_of("robot")),
            &request(VALIDATING, KEP, "apps", APPS),
        )
        .await;
    let status = rejects(answer, 400, "BadRequest").unwrap();
    assert_eq!(
        message(&status),
        "cannot bind token to object of type admissionregistration.k8s.io/v1, Kind=ValidatingWebhookConfiguration (feature gate APIServerWebhookAuthenticationToken is disabled)"
    );
}

#[tokio::test]
async fn token_requests_cannot_be_answered_as_tables() {
    let (_server, client) = serve(&[]).await;
    accepts(client.post(ACCOUNTS, &json!({"metadata": {"name": "robot"}})).await).unwrap();
    let tables = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let ask = async |accept: &str, path: &str, body: Value| {
        let headers = [("accept", accept), ("content-type", "application/json")];
        client.send(Method::POST, path, &headers, body.to_string().into()).await
    };
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    for (path, body) in
        [(token_of("robot"), json!({"spec": {}})), (reviews.to_owned(), json!({"spec": {"token": "x"}}))]
    {
        let status = rejects(ask(tables, &path, body.clone()).await, 406, "NotAcceptable").unwrap();
        let message = status["message"].as_str().unwrap();
        assert!(message.starts_with("only the following media types are accepted:"), "{message}");
        accepts(ask(&format!("{tables},application/json"), &path, body).await).unwrap();
    }
}
