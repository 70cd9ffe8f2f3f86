//! Static policies work when the store is full.

use conformance::client::HttpResponse;
use conformance::{Server, accepts, rejects};
use serde_json::json;

use crate::folder::{Folders, MAPS, NO_ACCOUNTS, denied, map, refusing};

/// Limits the size of files, which looks like a full disk to the server, and ignores the signal for it.
const SMALL_DISK: &str = "trap '' XFSZ; ulimit -f 8192";

#[tokio::test]
async fn policies_deny_and_allowed_writes_fail_when_the_disk_is_full() {
    let folders = Folders::new();
    folders.write("guard.yaml", &refusing("guard", "bad"));
    let server = Server::serve_after(SMALL_DISK, &[&folders.flag(), NO_ACCOUNTS]).await.unwrap();
    let client = server.client().unwrap();
    let denied = |answer| denied(answer, "guard", "guard-binding", "no bad");
    denied(client.post(MAPS, &map("bad")).await);
    let stored = accepts(client.post(MAPS, &map("good")).await).unwrap();

    let filler = "x".repeat(500_000);
    let mut failed: Option<HttpResponse> = None;
    for number in 0..100 {
        let body = json!({"metadata": {"name": format!("filler-{number}")}, "data": {"k": filler}});
        let answer = client.post(MAPS, &body).await.unwrap();
        if answer.code != 201 {
            failed = Some(answer);
            break;
        }
    }
    let failed = failed.unwrap();
    assert!((500..600).contains(&failed.code), "{} {}", failed.code, failed.text());
    for round in 0..3 {
        denied(client.post(MAPS, &map("bad")).await);
        denied(client.post(&format!("{MAPS}?dryRun=All"), &map("bad")).await);
        let body = json!({"metadata": {"name": format!("clean-{round}")}, "data": {"k": filler}});
        let clean = client.post(MAPS, &body).await.unwrap();
        assert!((500..600).contains(&clean.code), "{} {}", clean.code, clean.text());
        rejects(client.get(&format!("{MAPS}/clean-{round}")).await, 404, "NotFound").unwrap();
        // Acknowledged writes are still there.
        let read = accepts(client.get(&format!("{MAPS}/good")).await).unwrap();
        assert_eq!(read["metadata"]["uid"], stored["metadata"]["uid"]);
    }
    // Policies from files can still be changed.
    folders.write("guard.yaml", &refusing("guard", "worse"));
    crate::reload::refuses(&client, "guard", "worse").await;
}
