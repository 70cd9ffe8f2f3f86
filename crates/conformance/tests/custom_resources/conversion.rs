//! Conversion by a webhook over TLS: in `v1` a host is `name:port`, in `v2` it is two fields.

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use conformance::server::free_port;
use conformance::{Client, Hook, HookReply, HookRequest, Problem, Server, accepts, eventually, rejects};
use http::Method;
use serde_json::{Value, json};

use super::{CRDS, PATIENCE, crd, define};

pub(super) const V1: &str = "/apis/convert.example.com/v1/namespaces/default/hosts";
pub(super) const V2: &str = "/apis/convert.example.com/v2/namespaces/default/hosts";
const APPLY: [(&str, &str); 1] = [("content-type", "application/apply-patch+yaml")];

/// Changes that the webhook makes to the converted objects.
type ConversionReply = Arc<dyn Fn(&HookRequest, Vec<Value>) -> HookReply + Send + Sync>;

pub(super) fn convert_host(object: &Value, wanted: &str) -> Value {
    let mut object = object.clone();
    let spec = object["spec"].clone();
    object["apiVersion"] = json!(wanted);
    let mut made = serde_json::Map::new();
    if wanted.ends_with("/v2") {
        if let Some((name, port)) = spec["hostPort"].as_str().and_then(|text| text.split_once(':')) {
            made.insert("host".to_owned(), json!(name));
            made.insert("port".to_owned(), json!(port));
        }
    } else if let (Some(host), Some(port)) = (spec["host"].as_str(), spec["port"].as_str()) {
        made.insert("hostPort".to_owned(), json!(format!("{host}:{port}")));
    }
    if let Some(note) = spec.get("note") {
        made.insert("note".to_owned(), note.clone());
    }
    object["spec"] = Value::Object(made);
    object
}

#[expect(clippy::needless_pass_by_value, reason = "a `ConversionReply`, as the others are")]
pub(super) fn answer(asked: &HookRequest, objects: Vec<Value>) -> HookReply {
    let review = json!({
        "apiVersion": asked.body["apiVersion"],
        "kind": "ConversionReview",
        "response": {"uid": asked.body["request"]["uid"], "result": {"status": "Success"}, "convertedObjects": objects},
    });
    HookReply::Json(200, review)
}

/// A webhook, a server that calls it, and the switch for its answers.
pub(super) struct ConversionSetup {
    pub(super) client: Client,
    hook: Hook,
    twist: Arc<Mutex<ConversionReply>>,
    _server: Server,
}

impl ConversionSetup {
    pub(super) async fn start() -> ConversionSetup {
        let twist: Arc<Mutex<ConversionReply>> = Arc::new(Mutex::new(Arc::new(answer)));
        let twisted = Arc::clone(&twist);
        let hook = Hook::start(move |asked| {
            let wanted = asked.body["request"]["desiredAPIVersion"].as_str().unwrap_or_default().to_owned();
            let objects = asked.body["request"]["objects"].as_array().cloned().unwrap_or_default();
            let objects = objects.iter().map(|object| convert_host(object, &wanted)).collect();
            let twist = Arc::clone(&twisted.lock().unwrap());
            twist(asked, objects)
        })
        .await
        .unwrap();
        let server = Server::serve(&[]).await.unwrap();
        let client = server.client().unwrap();
        define(&client, &hosts(&hook, "v1")).await;
        ConversionSetup { client, hook, twist, _server: server }
    }

    pub(super) fn replies(&self, by: impl Fn(&HookRequest, Vec<Value>) -> HookReply + Send + Sync + 'static) {
        *self.twist.lock().unwrap() = Arc::new(by);
    }

    async fn apply(
        &self,
        path: &str,
        manager: &str,
        config: &Value,
    ) -> conformance::Result<conformance::HttpResponse> {
        let path = format!("{path}?fieldManager={manager}");
        self.client.send(Method::PATCH, &path, &APPLY, config.to_string().into()).await
    }
}

/// A CRD of hosts with this storage version.
fn hosts(hook: &Hook, stored: &str) -> Value {
    let version = |name: &str, properties: Value, selectable: &str| {
        json!({"name": name, "served": true, "storage": name == stored, "subresources": {"status": {}},
            "selectableFields": [{"jsonPath": selectable}],
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": properties},
                "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}})
    };
    let text = json!({"type": "string"});
    let versions = json!([
        version("v1", json!({"hostPort": text, "note": text}), ".spec.hostPort"),
        version("v2", json!({"host": text, "port": text, "note": text}), ".spec.port"),
    ]);
    let mut body = crd("convert.example.com", "hosts", "Host", &versions);
    body["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
        "conversionReviewVersions": ["v1"],
        "clientConfig": {"url": format!("{}/convert", hook.url), "caBundle": BASE64_STANDARD.encode(&hook.authority)},
    }});
    body
}

pub(super) fn v1(name: &str, host_port: &str) -> Value {
    json!({"apiVersion": "convert.example.com/v1", "kind": "Host", "metadata": {"name": name}, "spec": {"hostPort": host_port}})
}

fn v2(name: &str, host: &str, port: &str) -> Value {
    json!({"apiVersion": "convert.example.com/v2", "kind": "Host", "metadata": {"name": name}, "spec": {"host": host, "port": port}})
}

#[tokio::test]
async fn all_verbs_work_in_both_versions() {
    let world = ConversionSetup::start().await;
    let client = &world.client;
    let mut events = client.events(&format!("{V2}?watch=true"), &[]).await.unwrap();
    let made = accepts(client.post(V1, &v1("a", "one.example:80")).await).unwrap();
    assert_eq!(made["spec"], json!({"hostPort": "one.example:80"}));
    let made = accepts(client.post(V2, &v2("b", "two.example", "443")).await).unwrap();
    assert_eq!(
        (&made["apiVersion"], &made["spec"]),
        (&json!("convert.example.com/v2"), &json!({"host": "two.example", "port": "443"}))
    );

    let read = accepts(client.get(&format!("{V2}/a")).await).unwrap();
    assert_eq!(read["spec"], json!({"host": "one.example", "port": "80"}));
    let read = accepts(client.get(&format!("{V1}/b")).await).unwrap();
    assert_eq!(read["spec"], json!({"hostPort": "two.example:443"}));

    // Afterwards the watch has no more to convert, so that the calls counted below are those of the lists.
    let event = events.within(PATIENCE).await.unwrap().unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["spec"]),
        (&json!("ADDED"), &json!({"host": "one.example", "port": "80"}))
    );
    let event = events.within(PATIENCE).await.unwrap().unwrap();
    assert_eq!((&event["type"], &event["object"]["spec"]["port"]), (&json!("ADDED"), &json!("443")));

    world.hook.take();
    let listed = accepts(client.get(V2).await).unwrap();
    assert_eq!(listed["kind"], "HostList");
    assert_eq!(listed["items"][1]["spec"]["port"], "443");
    assert_eq!(world.hook.take().len(), 1, "a list is converted at once");
    accepts(client.get(V1).await).unwrap();
    assert_eq!(world.hook.take().len(), 0, "what is stored as it is asked for is not converted");

    // Selectable fields are those of the request's version.
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().cloned().unwrap_or_default();
        items.iter().map(|item| item["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let selected = accepts(client.get(&format!("{V2}?fieldSelector=spec.port%3D443")).await).unwrap();
    assert_eq!(names(&selected), ["b"]);
    let selected =
        accepts(client.get(&format!("{V1}?fieldSelector=spec.hostPort%3Done.example%3A80")).await).unwrap();
    assert_eq!(names(&selected), ["a"]);
    rejects(client.get(&format!("{V1}?fieldSelector=spec.port%3D443")).await, 400, "BadRequest").unwrap();

    let mut changed = accepts(client.get(&format!("{V2}/a")).await).unwrap();
    changed["spec"]["port"] = json!("8080");
    accepts(client.json(Method::PUT, &format!("{V2}/a"), &changed).await).unwrap();
    let read = accepts(client.get(&format!("{V1}/a")).await).unwrap();
    assert_eq!(read["spec"]["hostPort"], "one.example:8080");
    assert_eq!(read["metadata"]["generation"], 2);
    let event = events.within(PATIENCE).await.unwrap().unwrap();
    assert_eq!((&event["type"], &event["object"]["spec"]["port"]), (&json!("MODIFIED"), &json!("8080")));
    let merge = [("content-type", "application/merge-patch+json")];
    let patch = json!({"status": {"seen": true}}).to_string();
    let patched = client.send(Method::PATCH, &format!("{V2}/a/status"), &merge, patch.into()).await;
    assert_eq!(accepts(patched).unwrap()["status"], json!({"seen": true}));

    // After a change of the storage version, stored objects are shown as before.
    let mut stored = accepts(client.get(&format!("{CRDS}/hosts.convert.example.com")).await).unwrap();
    stored["spec"]["versions"] = hosts(&world.hook, "v2")["spec"]["versions"].clone();
    accepts(client.json(Method::PUT, &format!("{CRDS}/hosts.convert.example.com"), &stored).await).unwrap();
    let both = eventually(PATIENCE, async || {
        let stored = accepts(client.get(&format!("{CRDS}/hosts.convert.example.com")).await)?;
        match &stored["status"]["storedVersions"] {
            versions if *versions == json!(["v1", "v2"]) => Ok(versions.clone()),
            versions => Err(conformance::Problem::new(versions.to_string())),
        }
    });
    both.await.unwrap();
    accepts(client.post(V1, &v1("c", "three.example:1")).await).unwrap();
    let listed = accepts(client.get(V1).await).unwrap();
    let specs: Vec<&Value> =
        listed["items"].as_array().unwrap().iter().map(|item| &item["spec"]["hostPort"]).collect();
    assert_eq!(specs, ["one.example:8080", "two.example:443", "three.example:1"]);

    world.hook.take();
    accepts(client.delete(V1).await).unwrap();
    assert!(world.hook.take().len() <= 3, "a collection is not converted one by one");
    assert_eq!(names(&accepts(client.get(V2).await).unwrap()), Vec::<String>::new());
}

#[tokio::test]
async fn applied_fields_are_owned_in_every_version() {
    let world = ConversionSetup::start().await;
    let (in_v1, in_v2) = (format!("{V1}/a"), format!("{V2}/a"));
    accepts(world.apply(&in_v1, "first", &v1("a", "one.example:80")).await).unwrap();
    // A field that it applies in the other version is the one that the other manager owns.
    let status =
        rejects(world.apply(&in_v2, "second", &v2("a", "one.example", "81")).await, 409, "Conflict").unwrap();
    assert_eq!(status["message"], "Apply failed with 1 conflict: conflict with \"first\": .spec.hostPort");
    // Managers share a field with the same value in any version.
    accepts(world.apply(&in_v2, "second", &v2("a", "one.example", "80")).await).unwrap();
    let mut forced = v2("a", "one.example", "82");
    forced["spec"]["note"] = json!("mine");
    let path = format!("{in_v2}?fieldManager=second&force=true");
    let answer = world.client.send(Method::PATCH, &path, &APPLY, forced.to_string().into()).await;
    let object = accepts(answer).unwrap();
    assert_eq!(object["spec"], json!({"host": "one.example", "port": "82", "note": "mine"}));
    let managers: Vec<&Value> = object["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| &entry["manager"])
        .collect();
    assert_eq!(managers, ["second"], "what was taken over is no longer the other's");
    // An update in the other version takes the fields from the manager that applied them.
    let mut updated = accepts(world.client.get(&in_v1).await).unwrap();
    updated["spec"]["hostPort"] = json!("other.example:1");
    accepts(world.client.json(Method::PUT, &format!("{in_v1}?fieldManager=updater"), &updated).await)
        .unwrap();
    let status = rejects(world.apply(&in_v2, "second", &forced).await, 409, "Conflict").unwrap();
    let message = status["message"].as_str().unwrap();
    assert!(
        message.contains("conflict with \"updater\" using convert.example.com/v1: .spec.hostPort"),
        "{message}"
    );
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a list of cases")]
async fn errors_of_a_conversion_webhook_name_it_and_store_nothing() {
    let world = ConversionSetup::start().await;
    let client = &world.client;
    accepts(client.post(V1, &v1("a", "one.example:80")).await).unwrap();
    let before = accepts(client.get(&format!("{V1}/a")).await).unwrap();
    let first = |objects: &mut Vec<Value>, path: [&str; 2], value: Value| {
        objects[0][path[0]][path[1]] = value;
    };
    let twists: Vec<(&str, ConversionReply)> = vec![
        (
            "returned invalid object: must have the same name: a != b",
            Arc::new(move |asked, mut objects| {
                first(&mut objects, ["metadata", "name"], json!("b"));
                answer(asked, objects)
            }),
        ),
        (
            "returned invalid object: must have the same UID",
            Arc::new(move |asked, mut objects| {
                first(&mut objects, ["metadata", "uid"], json!("11111111-1111-1111-1111-111111111111"));
                answer(asked, objects)
            }),
        ),
        (
            "returned invalid object: must have the same namespace: default != kube-system",
            Arc::new(move |asked, mut objects| {
                first(&mut objects, ["metadata", "namespace"], json!("kube-system"));
                answer(asked, objects)
            }),
        ),
        (
            "returned invalid object at index 0: invalid kind (expected Host, received Guest)",
            Arc::new(|asked, mut objects| {
                objects[0]["kind"] = json!("Guest");
                answer(asked, objects)
            }),
        ),
        (
            "returned invalid object at index 0: invalid groupVersion (expected convert.example.com/v2, received convert.example.com/v3)",
            Arc::new(|asked, mut objects| {
                objects[0]["apiVersion"] = json!("convert.example.com/v3");
                answer(asked, objects)
            }),
        ),
        (
            "returned invalid metadata: metadata.labels[a] must be a string, but is int64 in converted object",
            Arc::new(move |asked, mut objects| {
                first(&mut objects, ["metadata", "labels"], json!({"a": 1}));
                answer(asked, objects)
            }),
        ),
        (
            "returned 2 objects, expected 1",
            Arc::new(|asked, mut objects| {
                objects.push(objects[0].clone());
                answer(asked, objects)
            }),
        ),
        ("returned 0 objects, expected 1", Arc::new(|asked, _| answer(asked, Vec::new()))),
        (
            "failed: no response provided",
            Arc::new(|_, _| {
                HookReply::Json(
                    200,
                    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview"}),
                )
            }),
        ),
        (
            "failed: not today",
            Arc::new(|asked, _| {
                HookReply::Json(
                    200,
                    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
            "response": {"uid": asked.body["request"]["uid"], "result": {"status": "Failure", "message": "not today"}}}),
                )
            }),
        ),
        (
            "failed: expected response.uid=",
            Arc::new(|_, objects| {
                HookReply::Json(
                    200,
                    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
            "response": {"uid": "another", "result": {"status": "Success"}, "convertedObjects": objects}}),
                )
            }),
        ),
        ("failed: ", Arc::new(|_, _| HookReply::Raw(200, "application/json", b"}not json{".to_vec()))),
        ("failed: ", Arc::new(|_, _| HookReply::Raw(200, "application/json", vec![b'['; 100_000]))),
        ("failed: ", Arc::new(|_, _| HookReply::Raw(200, "application/json", vec![b' '; 80 << 20]))),
        ("failed: ", Arc::new(|_, _| HookReply::Raw(503, "text/plain", b"go away".to_vec()))),
    ];
    for (words, twist) in twists {
        *world.twist.lock().unwrap() = twist;
        for (method, path, body) in [
            (Method::GET, format!("{V2}/a"), Value::Null),
            (Method::GET, V2.to_owned(), Value::Null),
            (Method::POST, V2.to_owned(), v2("new", "two.example", "2")),
            (Method::DELETE, format!("{V2}/a"), Value::Null),
            (Method::DELETE, V2.to_owned(), Value::Null),
        ] {
            if words.contains("groupVersion") && method == Method::POST {
                continue; // the other way round it is another version
            }
            let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
            let headers = [("content-type", "application/json")];
            let answer = client.send(method.clone(), &path, &headers, body.into()).await;
            let status = rejects(answer, 500, "").unwrap();
            let message = status["message"].as_str().unwrap();
            assert!(
                message.contains("conversion webhook for convert.example.com/v"),
                "{method} {path}: {message}"
            );
            let words = if method == Method::POST { words.split(": ").next().unwrap() } else { words };
            assert!(message.contains(words), "{method} {path}: {message}\n  does not say\n{words}");
        }
    }
    world.replies(answer);
    assert_eq!(accepts(client.get(&format!("{V1}/a")).await).unwrap(), before, "nothing has changed");
    assert_eq!(accepts(client.get(&format!("{V2}/a")).await).unwrap()["spec"]["port"], "80");
    rejects(client.get(&format!("{V1}/new")).await, 404, "NotFound").unwrap();
    let path = format!("{CRDS}/hosts.convert.example.com");
    let mut stored = accepts(client.get(&path).await).unwrap();
    let (port, guard) = free_port().unwrap();
    drop(guard);
    stored["spec"]["conversion"]["webhook"]["clientConfig"]["url"] =
        json!(format!("https://127.0.0.1:{port}/convert"));
    accepts(client.json(Method::PUT, &path, &stored).await).unwrap();
    let status = rejects(client.get(&format!("{V2}/a")).await, 500, "").unwrap();
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .contains("conversion webhook for convert.example.com/v1, Kind=Host failed: "),
        "{status}"
    );
    let mut events = client.events(&format!("{V2}?watch=true"), &[]).await.unwrap();
    assert_eq!(events.within(PATIENCE).await.unwrap().unwrap()["type"], "ERROR");
    // Requests without conversion are served, and objects are deleted with their CRD.
    accepts(client.get(&format!("{V1}/a")).await).unwrap();
    accepts(client.delete(&format!("{CRDS}/hosts.convert.example.com")).await).unwrap();
    eventually(PATIENCE, async || {
        match client.get(&format!("{CRDS}/hosts.convert.example.com")).await?.code {
            404 => Ok(()),
            code => Err(conformance::Problem::new(format!("still there: {code}"))),
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_conversion_webhook_may_change_only_labels_and_annotations_of_metadata() {
    let world = ConversionSetup::start().await;
    let client = &world.client;
    accepts(client.post(V1, &v1("a", "one.example:80")).await).unwrap();
    world.replies(|asked, mut objects| {
        for object in &mut objects {
            object["metadata"]["labels"] = json!({"by": "webhook"});
            object["metadata"]["finalizers"] = json!(["example.com/forged"]);
            object["metadata"]["ownerReferences"] =
                json!([{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "y"}]);
            object["metadata"]["deletionTimestamp"] = json!("2020-01-01T00:00:00Z");
            object["spec"]["unknown"] = json!("pruned");
        }
        answer(asked, objects)
    });
    let read = accepts(client.get(&format!("{V2}/a")).await).unwrap();
    assert_eq!(read["metadata"]["labels"], json!({"by": "webhook"}));
    for field in ["finalizers", "ownerReferences", "deletionTimestamp"] {
        assert!(read["metadata"].get(field).is_none(), "{field}");
    }
    assert_eq!(read["spec"], json!({"host": "one.example", "port": "80"}));
}

#[tokio::test]
async fn a_list_error_names_every_object_that_failed_to_convert() {
    let world = ConversionSetup::start().await;
    let client = &world.client;
    for name in ["a", "b"] {
        accepts(client.post(V1, &v1(name, "one.example:80")).await).unwrap();
    }
    world.replies(|asked, _| answer(asked, Vec::new()));
    let status = rejects(client.get(V2).await, 500, "StorageReadError").unwrap();
    assert_eq!(
        (&status["details"]["name"], &status["details"]["kind"], &status["details"]["group"]),
        (&json!("list"), &json!("hosts"), &json!("convert.example.com"))
    );
    let causes = status["details"]["causes"].as_array().unwrap();
    let fields: Vec<&str> = causes.iter().map(|cause| cause["field"].as_str().unwrap()).collect();
    let keys = ["a", "b"].map(|name| format!("/registry/convert.example.com/hosts/default/{name}"));
    assert_eq!(fields, keys);
    assert!(causes.iter().all(|cause| cause["reason"] == "UnexpectedServerResponse"), "{causes:?}");
    let message = status["message"].as_str().unwrap();
    let start = "failed to read one or more hosts.convert.example.com from the storage: StorageError: corrupt object, Code: 7";
    let end = "conversion webhook for convert.example.com/v1, Kind=Host returned 0 objects, expected 1 (and 1 more)";
    assert!(message.starts_with(start) && message.ends_with(end), "{message}");
    // An object that is converted alone does not help the other one.
    world.replies(|asked, objects| {
        let good =
            objects.first().is_some_and(|object| object["metadata"]["name"] == "a") && objects.len() == 1;
        answer(asked, if good { objects } else { Vec::new() })
    });
    let status = rejects(client.get(V2).await, 500, "StorageReadError").unwrap();
    assert_eq!(status["details"]["causes"].as_array().map(Vec::len), Some(1));
    assert!(accepts(client.get(&format!("{V2}/a")).await).is_ok());
}

/// Policies are evaluated on the object as it is stored, if the storage version has defaults.
#[tokio::test]
async fn the_conversion_that_admission_has_seen_is_stored() {
    let world = ConversionSetup::start().await;
    let client = &world.client;
    let path = format!("{CRDS}/hosts.convert.example.com");
    let mut crd = accepts(client.get(&path).await).unwrap();
    let schema = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["spec"]["properties"]["note"]["default"] = json!("by default");
    accepts(client.json(Method::PUT, &path, &crd).await).unwrap();
    let calls = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&calls);
    world.replies(move |asked, mut objects| {
        if asked.body["request"]["desiredAPIVersion"] == "convert.example.com/v1" {
            let mut calls = counted.lock().unwrap();
            *calls += 1;
            for object in &mut objects {
                object["spec"]["hostPort"] = json!(format!("call{calls}:80"));
            }
        }
        answer(asked, objects)
    });
    let body = v2("c", "one.example", "80");
    eventually(PATIENCE, async || {
        let dry = accepts(client.post(&format!("{V2}?dryRun=All"), &body).await)?;
        if dry["spec"]["note"] == "by default" { Ok(()) } else { Err(Problem::new(dry.to_string())) }
    })
    .await
    .unwrap();
    *calls.lock().unwrap() = 0;
    let dry = accepts(client.post(&format!("{V2}?dryRun=All"), &body).await).unwrap();
    assert_eq!((dry["spec"]["host"].as_str(), *calls.lock().unwrap()), (Some("call1"), 1));
    let made = accepts(client.post(V2, &body).await).unwrap();
    assert_eq!((made["spec"]["host"].as_str(), *calls.lock().unwrap()), (Some("call2"), 2));
    let stored = accepts(client.get(&format!("{V1}/c")).await).unwrap();
    assert_eq!(stored["spec"], json!({"hostPort": "call2:80", "note": "by default"}));
}

#[tokio::test]
async fn a_dry_run_shows_the_object_after_conversion_to_storage_and_back() {
    let world = ConversionSetup::start().await;
    let client = &world.client;
    world.replies(|asked, mut objects| {
        for object in &mut objects {
            object["metadata"]["labels"] = json!({"by": "webhook"});
        }
        answer(asked, objects)
    });
    let body = v2("c", "one.example", "80");
    let dry = accepts(client.post(&format!("{V2}?dryRun=All"), &body).await).unwrap();
    assert_eq!(dry["metadata"]["labels"], json!({"by": "webhook"}));
    let stored = accepts(client.post(V2, &body).await).unwrap();
    assert_eq!((&dry["spec"], &dry["metadata"]["labels"]), (&stored["spec"], &stored["metadata"]["labels"]));
}

#[tokio::test]
async fn conversion_webhooks_may_redirect_and_are_counted() {
    let world = ConversionSetup::start().await;
    let client = &world.client;
    accepts(client.post(V1, &v1("a", "one.example:80")).await).unwrap();
    world.replies(|asked, objects| match asked.path.as_str() {
        "/moved" => answer(asked, objects),
        _ => HookReply::SendOn("/moved"),
    });
    let shown = accepts(client.get(&format!("{V2}/a")).await).unwrap();
    assert_eq!(shown["spec"]["host"], "one.example");
    world.replies(|_, _| HookReply::SendOn("/"));
    let refused = client.get(&format!("{V2}/a")).await.unwrap().text();
    assert!(refused.contains("stopped after 10 redirects"), "{refused}");
    world.replies(|asked, _| answer(asked, Vec::new()));
    let refused = client.get(&format!("{V2}/a")).await.unwrap().text();
    assert!(refused.contains("returned 0 objects, expected 1"), "{refused}");
    let page = client.get("/metrics").await.unwrap().text();
    for (labels, count) in [
        (r#"failure_type="",result="success""#, None),
        (r#"failure_type="conversion_webhook_call_failure",result="failure""#, Some(1)),
        (r#"failure_type="conversion_webhook_partial_response_failure",result="failure""#, Some(1)),
    ] {
        let line = format!("apiserver_conversion_webhook_request_total{{{labels}}} ");
        let found = page.lines().find_map(|l| l.strip_prefix(&line)).unwrap_or_else(|| panic!("{page}"));
        assert!(count.is_none_or(|count: u32| found == count.to_string()), "{line}{found}");
    }
    let conversion = "apiserver_crd_conversion_webhook_duration_seconds_count{crd_name=";
    let line = page.lines().find(|l| l.starts_with(conversion) && l.contains("\"false\"")).unwrap();
    assert!(line.contains(r#"from_version="v1",succeeded="false",to_version="v2"} 2"#), "{line}");
}
