//! Discovery and OpenAPI documents of aggregated API servers.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use conformance::aggregated_server::{AggregatedReply, Received};
use conformance::{Client, Problem, Server, accepts, eventually};
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::both_servers::{
    AGGREGATED, FISCHERS, GROUP, NAME, PATIENCE, ROOT, SERVICES, resource_list, start_both,
    wait_for_condition, with_aggregated_discovery, without_aggregated_discovery,
};

pub(crate) fn group<'a>(list: &'a Value, name: &str) -> Option<&'a Value> {
    list["items"].as_array().unwrap().iter().find(|item| item["metadata"]["name"] == name)
}

pub(crate) async fn aggregated(client: &Client) -> Value {
    let answer = client.send(Method::GET, "/apis", &[("accept", AGGREGATED)], Bytes::new()).await;
    accepts(answer).unwrap()
}

async fn kubectl(server: &Server, args: &[&str]) -> String {
    let home = TempDir::new().unwrap();
    let program = std::env::var_os("PORTCULLIS_KUBECTL").unwrap_or("kubectl".into());
    let mut command = Command::new(program);
    command.env("KUBECONFIG", server.kubeconfig().unwrap()).env("HOME", home.path()).args(args);
    // kubectl runs on another thread, because the aggregated server runs in this process.
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resources_of_aggregated_servers_are_in_discovery() {
    for (reply, short) in [
        (without_aggregated_discovery as fn(&Received) -> AggregatedReply, false),
        (with_aggregated_discovery, true),
    ] {
        let (server, client, extension) = start_both(reply).await;
        let list = accepts(client.get("/apis").await).unwrap();
        let groups = list["groups"].as_array().unwrap();
        assert_eq!(groups[0]["name"], "apiregistration.k8s.io");
        assert_eq!(groups.last().unwrap()["name"], GROUP);
        let one = accepts(client.get(&format!("/apis/{GROUP}")).await).unwrap();
        assert_eq!(one["preferredVersion"]["groupVersion"], format!("{GROUP}/v1alpha1"));
        assert_eq!(accepts(client.get(ROOT).await).unwrap(), resource_list());
        eventually(PATIENCE, async || {
            let list = aggregated(&client).await;
            let version = group(&list, GROUP).map(|group| group["versions"][0].clone()).unwrap_or_default();
            if version["freshness"] == "Current" && version["resources"][0]["resource"] == "fischers" {
                Ok(())
            } else {
                Err(Problem::new(version.to_string()))
            }
        })
        .await
        .unwrap();
        assert!(kubectl(&server, &["api-resources", "--api-group", GROUP]).await.contains("Fischer"));
        let name = if short { "fi" } else { "fischers" };
        assert!(kubectl(&server, &["get", name]).await.contains("fritz"));
        assert!(kubectl(&server, &["get", "apiservices"]).await.contains("default/wardle"));

        // An unavailable group stays in discovery and is marked as stale.
        drop(extension);
        // The server notices within half a minute; a change of the service makes it sooner.
        let patch = json!({"metadata": {"labels": {"changed": "yes"}}});
        let merge = [("content-type", "application/merge-patch+json")];
        accepts(
            client
                .send(
                    Method::PATCH,
                    "/api/v1/namespaces/default/services/wardle",
                    &merge,
                    patch.to_string().into(),
                )
                .await,
        )
        .unwrap();
        wait_for_condition(&client, NAME, "False", "FailedDiscoveryCheck").await;
        let stale = json!({"version": "v1alpha1", "freshness": "Stale"});
        eventually(PATIENCE, async || {
            let list = aggregated(&client).await;
            let version = group(&list, GROUP).map(|group| group["versions"][0].clone()).unwrap_or_default();
            if version == stale { Ok(()) } else { Err(Problem::new(version.to_string())) }
        })
        .await
        .unwrap();
        assert!(
            accepts(client.get("/apis").await).unwrap()["groups"]
                .as_array()
                .unwrap()
                .iter()
                .any(|g| g["name"] == GROUP)
        );
        accepts(client.delete(&format!("{SERVICES}/{NAME}")).await).unwrap();
        eventually(PATIENCE, async || match group(&aggregated(&client).await, GROUP) {
            None => Ok(()),
            Some(group) => Err(Problem::new(group.to_string())),
        })
        .await
        .unwrap();
        assert_eq!(client.get(FISCHERS).await.unwrap().text(), "404 page not found\n");
    }
}

#[tokio::test]
async fn openapi_of_aggregated_servers_is_served_and_replaces_no_own_path() {
    let (_server, client, extension) = start_both(with_aggregated_discovery).await;
    let path = "apis/wardle.example.com/v1alpha1";
    eventually(PATIENCE, async || {
        let index = accepts(client.get("/openapi/v3").await)?;
        if index["paths"][path]["serverRelativeURL"] == format!("/openapi/v3/{path}?hash=1") {
            Ok(())
        } else {
            Err(Problem::new("not listed"))
        }
    })
    .await
    .unwrap();
    let index = accepts(client.get("/openapi/v3").await).unwrap();
    assert!(
        index["paths"]["api/v1"]["serverRelativeURL"]
            .as_str()
            .unwrap()
            .starts_with("/openapi/v3/api/v1?hash=")
    );
    let document = accepts(client.get(&format!("/openapi/v3/{path}?hash=1")).await).unwrap();
    assert_eq!(document["info"]["title"], "wardle");
    // The document of its own group is included, documents of other groups are not.
    assert_eq!(
        index["paths"]["apis/wardle.example.com"]["serverRelativeURL"],
        "/openapi/v3/apis/wardle.example.com?hash=2"
    );
    let document = accepts(client.get("/openapi/v3/apis/wardle.example.com").await).unwrap();
    assert_eq!(document["info"]["title"], "the group");
    assert_ne!(index["paths"]["apis/apps"]["serverRelativeURL"], "/openapi/v3/apis/apps?hash=3");
    assert_eq!(extension.received_for_others().last().unwrap().all("x-remote-user"), ["kubernetes-admin"]);

    let document = eventually(PATIENCE, async || {
        let document = accepts(
            client.send(Method::GET, "/openapi/v2", &[("accept", "application/json")], Bytes::new()).await,
        )?;
        if document["paths"].get(FISCHERS).is_some() { Ok(document) } else { Err(Problem::new("not merged")) }
    })
    .await
    .unwrap();
    let definitions = &document["definitions"];
    assert_eq!(
        definitions["com.example.Fischer"]["properties"]["metadata"]["$ref"],
        "#/definitions/io.k8s.api.core.v1.ConfigMap_v2"
    );
    assert_eq!(definitions["io.k8s.api.core.v1.ConfigMap_v2"]["type"], "string");
    assert_eq!(definitions["io.k8s.api.core.v1.ConfigMap"]["type"], "object");
    assert!(definitions.get("unused").is_none());
    assert!(document["paths"]["/api/v1/namespaces/{namespace}/configmaps"]["post"].is_object());
}

#[tokio::test]
async fn the_etag_of_an_unreadable_document_is_not_reused() {
    let asked = AtomicUsize::new(0);
    let (_server, client, _extension) = start_both(move |received: &Received| {
        if received.path() != "/openapi/v2" {
            return with_aggregated_discovery(received);
        }
        let tagged =
            |body: String| AggregatedReply::Raw(200, "application/json", vec![("etag", "\"one\"")], body);
        match asked.fetch_add(1, Ordering::SeqCst) {
            _ if !received.all("if-none-match").is_empty() => {
                AggregatedReply::Raw(304, "application/json", vec![("etag", "\"one\"")], String::new())
            }
            0 => tagged("{".to_owned()),
            _ => {
                let paths = json!({FISCHERS: {"get": {"responses": {"200": {"description": "OK"}}}}});
                tagged(json!({"swagger": "2.0", "info": {}, "paths": paths, "definitions": {}}).to_string())
            }
        }
    })
    .await;
    eventually(PATIENCE, async || {
        let accept = [("accept", "application/json")];
        let document = accepts(client.send(Method::GET, "/openapi/v2", &accept, Bytes::new()).await)?;
        let merged = document["paths"].get(FISCHERS).is_some();
        if merged { Ok(()) } else { Err(Problem::new("not merged")) }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn openapi_v3_is_made_for_servers_with_openapi_v2_only() {
    let (_server, client, _extension) = start_both(|received| match received.path() {
        path if path.starts_with("/openapi/v3") => AggregatedReply::Json(404, json!({})),
        _ => with_aggregated_discovery(received),
    })
    .await;
    let path = "apis/wardle.example.com/v1alpha1";
    let url = eventually(PATIENCE, async || {
        let index = accepts(client.get("/openapi/v3").await)?;
        let url = index["paths"][path]["serverRelativeURL"].as_str().map(str::to_owned);
        url.ok_or_else(|| Problem::new("not listed"))
    })
    .await
    .unwrap();
    let answer = client.get(&url).await.unwrap();
    let tag = answer.header("etag").trim_matches('"').to_owned();
    assert_eq!(url, format!("/openapi/v3/{path}?hash={tag}"));
    let document = answer.json();
    assert_eq!(document["paths"].as_object().unwrap().keys().collect::<Vec<_>>(), [FISCHERS]);
    assert_eq!(
        document["components"]["schemas"]["com.example.Fischer"]["properties"]["metadata"]["$ref"],
        "#/components/schemas/io.k8s.api.core.v1.ConfigMap"
    );
    // The document is removed together with the server.
    accepts(client.delete(&format!("{SERVICES}/{NAME}")).await).unwrap();
    eventually(PATIENCE, async || {
        let index = accepts(client.get("/openapi/v3").await)?;
        let gone = index["paths"].get(path).is_none();
        if gone { Ok(()) } else { Err(Problem::new("still listed")) }
    })
    .await
    .unwrap();
    assert_eq!(client.get(&format!("/openapi/v3/{path}")).await.unwrap().code, 404);
}

#[tokio::test]
async fn aggregated_discovery_documents_support_etags() {
    let (_server, client, _extension) = start_both(with_aggregated_discovery).await;
    let ask = async |path: &str, known: &str| {
        let headers = [("accept", AGGREGATED), ("if-none-match", known)];
        client.send(Method::GET, path, &headers, Bytes::new()).await.unwrap()
    };
    eventually(PATIENCE, async || {
        let list = aggregated(&client).await;
        let version = group(&list, GROUP).map(|group| group["versions"][0].clone()).unwrap_or_default();
        if version["freshness"] == "Current" { Ok(()) } else { Err(Problem::new(version.to_string())) }
    })
    .await
    .unwrap();
    for path in ["/api", "/apis"] {
        let first = ask(path, "").await;
        assert_eq!((first.code, first.header("content-type")), (200, AGGREGATED));
        assert_eq!((first.header("cache-control"), first.header("vary")), ("public", "Accept"));
        let tag = first.header("etag");
        assert!(tag.len() == 130 && tag.starts_with('"'), "{tag}");
        let again = ask(path, tag).await;
        assert_eq!((again.code, again.body.len(), again.header("etag")), (304, 0, tag));
        assert_eq!(ask(path, "\"another\"").await.code, 200);
    }
    let tag = ask("/apis", "").await.header("etag").to_owned();
    accepts(client.delete(&format!("{SERVICES}/{NAME}")).await).unwrap();
    eventually(PATIENCE, async || match ask("/apis", &tag).await.code {
        200 => Ok(()),
        code => Err(Problem::new(format!("{code}"))),
    })
    .await
    .unwrap();
    // These paths ignore the method, and only one path has the aggregated form.
    for path in ["/apis", "/apis/apps", "/healthz", "/openapi/v3"] {
        let shown = client.send(Method::POST, path, &[], Bytes::new()).await.unwrap();
        let got = client.get(path).await.unwrap();
        assert_eq!((shown.code, shown.body), (200, got.body), "{path}");
    }
    assert_eq!(ask("/apis/", "").await.code, 406);
    for path in ["/api", "/version"] {
        assert_eq!(client.delete(path).await.unwrap().code, 405, "{path}");
    }
}
