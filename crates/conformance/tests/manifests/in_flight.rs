//! A request is decided by the policies that were active when its admission began.

use std::sync::Arc;

use conformance::hook::{Hook, HookReply};
use conformance::{accepts, eventually};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::folder::{Folders, counted, denied, refusing, tries};
use crate::reload::{RELOADS, SOON};
use crate::webhooks::configuration;

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_waits_for_a_webhook_uses_the_policies_of_its_start() {
    let (asked, answer) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let hook = {
        let (asked, answer) = (Arc::clone(&asked), Arc::clone(&answer));
        Hook::start_slow(move |review| {
            let (asked, answer) = (Arc::clone(&asked), Arc::clone(&answer));
            async move {
                asked.add_permits(1);
                answer.acquire().await.unwrap().forget();
                let response = json!({"uid": review.body["request"]["uid"], "allowed": true});
                HookReply::Json(200, json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
            }
        })
        .await
        .unwrap()
    };
    let folders = Folders::new();
    let slow = configuration("MutatingWebhookConfiguration", "slow", &hook, "timeoutSeconds: 30");
    folders.write_for("MutatingAdmissionWebhook", "slow.yaml", &slow);
    let server = folders.server().await;
    let client = server.client().unwrap();

    let early = {
        let client = server.client().unwrap();
        tokio::spawn(async move { tries(&client, "late").await })
    };
    asked.acquire().await.unwrap().forget();
    // The request waits for the webhook while the policies change.
    let loads = counted(&client, RELOADS, &["\"ValidatingAdmissionPolicy\"", "\"success\""]).await;
    folders.write("guard.yaml", &refusing("guard", "late"));
    eventually(SOON, async || {
        match counted(&client, RELOADS, &["\"ValidatingAdmissionPolicy\"", "\"success\""]).await {
            now if now > loads => Ok(()),
            _ => Err(conformance::Problem::new("the change is not in force yet")),
        }
    })
    .await
    .unwrap();
    answer.add_permits(1);
    accepts(early.await.unwrap()).unwrap();
    // The next request uses the new policies.
    answer.add_permits(1);
    denied(tries(&client, "late").await, "guard", "guard-binding", "no late");
}
