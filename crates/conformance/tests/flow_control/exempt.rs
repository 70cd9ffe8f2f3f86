//! An exempt level: its shares, and its requests, which never wait and are never rejected.

use conformance::{Problem, Server, accepts, eventually, rejects};
use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{GROUP, MAPS, SEATS, SOON, allow_maps, create, flood, gate, level, metric, reaches, schema};

#[tokio::test]
async fn an_exempt_level_reserves_its_shares_and_lends_a_part_of_them() {
    let server = Server::serve(&SEATS).await.unwrap();
    let client = server.client().unwrap();
    let path = format!("{GROUP}/prioritylevelconfigurations/exempt");
    let merge = [("content-type", "application/merge-patch+json")];
    let patch = async |spec: Value| {
        client.send(Method::PATCH, &path, &merge, json!({"spec": spec}).to_string().into()).await
    };
    let limits = async |level: &'static str| {
        let of = async |name: &str| metric(&client, name, &[("priority_level", level)]).await;
        (of("nominal_limit_seats").await, of("lower_limit_seats").await, of("upper_limit_seats").await)
    };
    // Of 100 seats; all levels together have 245 shares.
    assert_eq!(limits("exempt").await, (0.0, 0.0, 100.0));
    let others = async || limits("workload-low").await.0;
    assert!((others().await - 41.0).abs() < 0.5);
    let lends = json!({"exempt": {"nominalConcurrencyShares": 10, "lendablePercent": 50}});
    accepts(patch(lends).await).unwrap();
    eventually(SOON, async || {
        let found = limits("exempt").await;
        // 10 of 255 shares, rounded up; half of them are lent.
        if found == (4.0, 2.0, 104.0) { Ok(()) } else { Err(Problem::new(format!("{found:?}"))) }
    })
    .await
    .unwrap();
    assert!((others().await - 40.0).abs() < 0.5, "the other levels have less");
    // An exempt level has no limits of its own, and no other fields of it can be set.
    let limited = json!({"exempt": null, "limited": {"nominalConcurrencyShares": 10}});
    rejects(patch(limited).await, 422, "Invalid").unwrap();
    let too_much = json!({"exempt": {"lendablePercent": 101}});
    rejects(patch(too_much).await, 422, "Invalid").unwrap();
}

#[tokio::test]
async fn requests_of_an_exempt_level_are_never_queued_or_rejected() {
    const MANY: usize = 40;
    // Two seats in all.
    let server =
        Server::serve(&["--max-requests-inflight=1", "--max-mutating-requests-inflight=1"]).await.unwrap();
    let client = server.client().unwrap();
    allow_maps(&client).await;
    let limited = level("one", 1, &json!({"type": "Reject"}));
    create(&client, "prioritylevelconfigurations", &limited).await;
    create(&client, "flowschemas", &schema("one", "one", 100, &["alice"])).await;
    let alice = client.as_token(Some("alicetoken"));
    let (_webhook, permits) = gate(&client).await;
    let mut requests = JoinSet::new();
    // The one seat of alice is taken.
    flood(&alice, &mut requests, 1);
    reaches(&client, "current_executing_seats", &[("flow_schema", "one")], 1).await;
    assert_eq!(alice.get(MAPS).await.unwrap().code, 429);
    // Requests of administrators run at once, however many there are.
    flood(&client, &mut requests, MANY);
    let exempt = [("priority_level", "exempt")];
    eventually(SOON, async || {
        let executing = metric(&client, "current_executing_requests", &exempt).await;
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        let wanted = MANY as f64;
        if executing >= wanted { Ok(()) } else { Err(Problem::new(format!("{executing} are executing"))) }
    })
    .await
    .unwrap();
    assert_eq!(client.get(MAPS).await.unwrap().code, 200);
    // The level still has no seats for others.
    assert_eq!(alice.get(MAPS).await.unwrap().code, 429);
    for name in ["current_inqueue_requests", "rejected_requests_total", "request_wait_duration_seconds_count"]
    {
        let found = metric(&client, name, &exempt).await;
        assert!(found < 0.5, "{name}: {found}");
    }
    permits.add_permits(MANY + 1);
    while let Some(code) = requests.join_next().await {
        assert_eq!(code.unwrap(), 201);
    }
}
