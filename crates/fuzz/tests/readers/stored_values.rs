//! Values that other API servers have stored in etcd: protobuf, JSON, YAML and base64, in all versions.

use bytes::Bytes;
use catalog::encode;
use catalog::etcd_values::KubernetesValues;
use etcd::ValueCodec as _;
use fuzz::Corpus;
use value::go::base64::STD;
use value::json;

use crate::seeds;

const TOKENS: &[&str] = &[
    "k8s\0",
    "k8s:enc:aescbc:v1:k:",
    "\n\0",
    "\x12\0",
    "\x1a\0",
    "\"\0",
    "\n\x02v1",
    "\x12\x03Pod",
    "\x08\x01",
    "\n\x7f",
    "\x0b",
    "\x0c",
    "{",
    "}",
    "[",
    "]",
    "\"apiVersion\":\"v1\",",
    "\"kind\":\"Secret\",",
    "\"metadata\":{\"name\":\"a\"},",
    "null",
    "- ",
    ": ",
    "/registry/pods/a/b\n",
    "/registry/apiextensions.k8s.io/customresourcedefinitions/a\n",
    "/registry/a.example/things/a\n",
    "/registry/ranges/serviceips\n",
];

/// Recorded values, each after a line with its key.
fn corpus() -> Corpus {
    let mut found = Vec::new();
    for file in ["recorded.jsonl", "recorded_old_versions.jsonl"] {
        let text = String::from_utf8(seeds::file(&format!("catalog/src/etcd_values/{file}"))).unwrap();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let row = json::parse(line.as_bytes()).unwrap();
            let value = STD.decode(row.str_at(&["value"]).unwrap()).unwrap();
            found.push([row.str_at(&["key"]).unwrap().as_bytes(), b"\n", &value].concat());
        }
    }
    assert!(found.len() > 80, "only {} values", found.len());
    // Shortest first, so that a failure shows a short one.
    found.sort_by_key(Vec::len);
    found.truncate(80);
    Corpus::new(found, TOKENS)
}

#[test]
fn stored_values_are_read_within_bounds_or_reported_as_unreadable() {
    let codec = KubernetesValues::default();
    let readable = |key: &str, body: &[u8]| encode::parse_body(key, body).is_ok();
    fuzz::run(&corpus().inputs(), |input| {
        let Some(line) = input.iter().position(|byte| *byte == b'\n') else { return Ok(()) };
        let (key, value) = input.split_at(line);
        let (key, value) = (String::from_utf8_lossy(key), Bytes::copy_from_slice(&value[1..]));
        // `None` is a key of another program.
        let Some(record) = codec.decode(&key, 7, &value) else { return Ok(()) };
        if record.revision_at as usize > record.body.len() {
            return Err(format!("the revision is at {} of {} bytes", record.revision_at, record.body.len()));
        }
        // One byte may be an element of a list, which gets its defaults.
        if record.body.len() > value.len() * 1024 + 16 * 1024 {
            return Err(format!("{} bytes became {}", value.len(), record.body.len()));
        }
        if !readable(&key, &record.body) {
            return Ok(());
        }
        // What can be read may still have a form that cannot be written, which is an error and no panic.
        if let Ok(written) = codec.encode(&key, &record) {
            codec.decode(&key, 8, &written).ok_or("the key has no owner any more")?;
        }
        Ok(())
    });
}
