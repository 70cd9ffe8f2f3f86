//! Load measurements with hundreds of CRDs: the time until they are served, and the start time and memory of a server that has
//! them.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use serde_json::{Map, Value, json};

use super::Figures;
use super::requests::{LoadConnections, LoadLimit};
use crate::client::{Trust, tls};
use crate::server::{ADMIN_TOKEN, resident_kib};
use crate::{Problem, Result, Server};

/// The number of CRDs; operators install hundreds.
const MANY: u64 = 500;
/// The number of properties of each schema.
const PROPERTIES: usize = 100;
/// Starts that are timed. The fastest counts, because slower ones measure other work of the machine.
const STARTS: usize = 3;
const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const PATIENCE: Duration = Duration::from_mins(2);

/// Measures a server that is started for this.
pub async fn crds() -> Result<Figures> {
    let folder = tempfile::tempdir().map_err(|e| Problem::at("a folder", e))?;
    let mut server = Server::serve_at(folder.path(), &[]).await?;
    let wires =
        LoadConnections::connect(&server.url, &tls(Trust::Anything, None)?, Some(ADMIN_TOKEN)).await?;
    let begun = Instant::now();
    wires.flood(LoadLimit::Count(MANY), |number| (Method::POST, PATH.to_owned(), crd(number))).await?;
    loop {
        let listed = wires.once(&Method::GET, PATH, Bytes::new()).await?;
        let established = established(&serde_json::from_slice(&listed).unwrap_or_default());
        if established == MANY {
            break;
        }
        if begun.elapsed() > PATIENCE {
            return Err(Problem::new(format!("only {established} of {MANY} CRDs are established")));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let installed = begun.elapsed();
    let mut quickest: Option<Duration> = None;
    let mut memory = None;
    for _ in 0..STARTS {
        server.terminate()?;
        server.wait(PATIENCE).await?;
        server = Server::serve_at(folder.path(), &[]).await?;
        quickest = Some(quickest.map_or(server.took, |quickest| quickest.min(server.took)));
        memory = resident_kib(server.pid());
    }
    let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
    #[expect(clippy::cast_precision_loss, reason = "megabytes")]
    let memory = memory.map(|kib| kib as f64 * 1024.0 / 1e6);
    Ok(vec![
        ("500 CRDs established, ms", Some(milliseconds(installed))),
        ("start with 500 CRDs, ms", quickest.map(milliseconds)),
        ("memory with 500 CRDs, MB", memory),
    ])
}

fn established(list: &Value) -> u64 {
    let holds = |crd: &&Value| {
        let conditions = crd.pointer("/status/conditions").and_then(Value::as_array);
        conditions.is_some_and(|conditions| {
            conditions.iter().any(|c| c["type"] == "Established" && c["status"] == "True")
        })
    };
    list["items"].as_array().map_or(0, |items| items.iter().filter(holds).count() as u64)
}

fn crd(number: u64) -> Bytes {
    let property = |i: usize| {
        let words = format!(
            "The {i}th of many things that can be said about this kind, and what it means if left out."
        );
        (
            format!("property{i}"),
            json!({"type": "string", "description": words, "maxLength": 64, "pattern": "^[a-z0-9-]+$"}),
        )
    };
    let properties: Map<String, Value> = (0..PROPERTIES).map(property).collect();
    let group = format!("group{}.load.example.com", number % 50);
    let body = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("kinds{number}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": format!("kinds{number}"), "kind": format!("Kind{number}")},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": properties,
                        "x-kubernetes-validations": [{"rule": "!has(self.property0) || self.property0 != 'x'"}]},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}],
        },
    });
    body.to_string().into()
}
