//! Priority levels lend the seats that they do not need, and get them back.

use std::time::Duration;

use conformance::webhook::{ReviewReply, ServingCertificate};
use conformance::{Client, Problem, Server, WebhookServer, accepts, eventually};
use http::Method;
use serde_json::json;
use tokio::task::JoinSet;

use crate::{GROUP, MAPS, SOON, allow_maps, create, level, metric, queue, reaches, register, schema};

/// Twelve seats in all, of which each level has its share, rounded up. Of the shares, forty belong to the lender, twenty to the borrower
/// and five to `catch-all`.
const SEATS: [&str; 2] = ["--max-requests-inflight=8", "--max-mutating-requests-inflight=4"];

/// Takes all seats from the suggested levels.
async fn without_suggested_levels(client: &Client) {
    let merge = [("content-type", "application/merge-patch+json")];
    for name in ["system", "node-high", "leader-election", "workload-high", "workload-low", "global-default"]
    {
        let patch = json!({
            "metadata": {"annotations": {"apf.kubernetes.io/autoupdate-spec": "false"}},
            "spec": {"limited": {"nominalConcurrencyShares": 0}},
        });
        let path = format!("{GROUP}/prioritylevelconfigurations/{name}");
        accepts(client.send(Method::PATCH, &path, &merge, patch.to_string().into()).await).unwrap();
    }
}

/// Creates a level whose requests wait in queues, for the requests of a user.
async fn level_of(client: &Client, name: &str, shares: u32, lendable: u32, borrowing: u32, user: &str) {
    let mut level = level(name, shares, &queue(50));
    level["spec"]["limited"]["lendablePercent"] = lendable.into();
    level["spec"]["limited"]["borrowingLimitPercent"] = borrowing.into();
    create(client, "prioritylevelconfigurations", &level).await;
    create(client, "flowschemas", &schema(name, name, 100, &[user])).await;
}

/// Keeps a number of dry-run creations in flight until the result is dropped.
fn keep_busy(client: &Client, requests: usize) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for _ in 0..requests {
        let client = client.as_token(client.token());
        tasks.spawn(async move {
            let map = json!({"metadata": {"generateName": "m-"}});
            loop {
                assert_eq!(client.post(&format!("{MAPS}?dryRun=All"), &map).await.unwrap().code, 201);
            }
        });
    }
    tasks
}

async fn seats(client: &Client, name: &str, level: &str) -> f64 {
    metric(client, name, &[("priority_level", level)]).await
}

#[tokio::test]
async fn a_busy_level_borrows_up_to_its_limit_and_gives_the_seats_back() {
    let server = Server::serve(&SEATS).await.unwrap();
    let client = server.client().unwrap();
    allow_maps(&client).await;
    without_suggested_levels(&client).await;
    level_of(&client, "lender", 40, 50, 0, "alice").await;
    level_of(&client, "borrower", 20, 0, 50, "bob").await;
    for (level, nominal, lower, upper) in [("lender", 8.0, 4.0, 8.0), ("borrower", 4.0, 4.0, 6.0)] {
        let found = (
            seats(&client, "nominal_limit_seats", level).await,
            seats(&client, "lower_limit_seats", level).await,
            seats(&client, "upper_limit_seats", level).await,
        );
        assert_eq!(found, (nominal, lower, upper), "{level}");
    }
    let webhook = WebhookServer::start(ServingCertificate::Signed, |_| {
        ReviewReply::AllowAfter(Duration::from_millis(100))
    })
    .await
    .unwrap();
    register(&client, &webhook).await;
    let (alice, bob) = (client.as_token(Some("alicetoken")), client.as_token(Some("bobtoken")));

    // The lender is idle. Four of its seats are lendable, of which the borrower may have two, however long its queues are.
    let borrowing = keep_busy(&bob, 20);
    reaches(&client, "current_limit_seats", &[("priority_level", "borrower")], 6).await;
    reaches(&client, "current_executing_seats", &[("priority_level", "borrower")], 6).await;
    let executing = seats(&client, "current_executing_seats", "borrower").await;
    assert!(executing <= 6.0, "{executing} seats are in use");

    // Both are busy: the borrower has only its own seats. Administrators, who are exempt, also use one or two.
    let lending = keep_busy(&alice, 20);
    eventually(SOON, async || {
        let lender = seats(&client, "current_limit_seats", "lender").await;
        let borrower = seats(&client, "current_limit_seats", "borrower").await;
        if lender >= 5.0 && (borrower - 4.0).abs() < 0.5 {
            return Ok(());
        }
        Err(Problem::new(format!("the lender has {lender} seats, the borrower {borrower}")))
    })
    .await
    .unwrap();
    reaches(&client, "current_executing_seats", &[("priority_level", "borrower")], 4).await;
    for level in ["lender", "borrower"] {
        let rejected = metric(&client, "rejected_requests_total", &[("priority_level", level)]).await;
        assert!(rejected < 0.5, "{level}: {rejected} rejected requests");
    }
    drop((borrowing, lending));
}
