//! Patches of all kinds, and field sets of server-side apply.

use fuzz::Corpus;
use schema::Schema;
use schema::apply::{check, fields_v1, merge};
use schema::patch::{self, PatchType};
use serde_json::Value as Other;
use value::{Value, json, write};

use crate::json as json_corpus;

const OBJECT: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","labels":{"a":"b"},"finalizers":["x","y"]},"spec":{"containers":[{"name":"a","image":"i","env":[{"name":"E","value":"1"}],"ports":[{"containerPort":80,"protocol":"TCP"}]},{"name":"b"}],"nodeSelector":{"c":"d"},"tolerations":[{"key":"k"}]}}"#;

/// A JSON patch may copy parts of an object, which makes it larger than the patch; the largest body is 3 MiB.
const MAX_PATCHED_BYTES: usize = 8 * 1024 * 1024;

fn tokens() -> Vec<&'static str> {
    let own = [
        "\"op\":\"add\"",
        "\"op\":\"copy\"",
        "\"op\":\"move\"",
        "\"op\":\"test\"",
        "\"op\":\"remove\"",
        "\"path\":\"/spec\"",
        "\"path\":\"\"",
        "\"path\":\"/-\"",
        "\"from\":\"/metadata\"",
        "/spec/containers/0",
        "/-",
        "/~1",
        "~0",
        "~2",
        "/00",
        "/-1",
        "/99999999999999999999",
        "\"$patch\":\"replace\"",
        "\"$patch\":\"delete\"",
        "\"$patch\":\"merge\"",
        "\"$retainKeys\":[\"a\"]",
        "\"$setElementOrder/containers\":[{\"name\":\"b\"},{\"name\":\"a\"}]",
        "\"$deleteFromPrimitiveList/finalizers\":[\"x\"]",
        "\"f:metadata\":{}",
        "\"k:{\\\"name\\\":\\\"a\\\"}\":{}",
        "\"v:1\":{}",
        "\"i:0\":{}",
        "\".\":{}",
    ];
    json_corpus::TOKENS.iter().copied().chain(own).collect()
}

fn schema() -> &'static Schema {
    schema::of("", "v1", "Pod").unwrap()
}

/// The algorithm of RFC 7386 as the RFC has it.
fn merged(target: Other, patch: Other) -> Other {
    let Other::Object(patch) = patch else { return patch };
    let mut target = match target {
        Other::Object(map) => map,
        _ => serde_json::Map::new(),
    };
    for (key, value) in patch {
        if value.is_null() {
            target.remove(&key);
        } else {
            let before = target.remove(&key).unwrap_or_default();
            target.insert(key, merged(before, value));
        }
    }
    Other::Object(target)
}

#[test]
fn patches_are_bounded_and_merge_as_the_rfc_says() {
    let seeds = [
        r#"{"metadata":{"labels":{"a":null,"c":"d"}},"spec":{"containers":[{"name":"c"}]}}"#,
        r#"[{"op":"test","path":"/metadata/name","value":"p"},{"op":"add","path":"/metadata/labels/x~1y","value":{"a":[1]}},{"op":"copy","from":"/spec","path":"/status"},{"op":"move","from":"/spec/containers/1","path":"/spec/containers/-"},{"op":"remove","path":"/metadata/finalizers/0"},{"op":"replace","path":"/spec","value":null}]"#,
        r#"{"spec":{"containers":[{"name":"a","env":[{"name":"E","$patch":"delete"}]},{"$patch":"replace"}],"$setElementOrder/containers":[{"name":"b"},{"name":"a"}],"tolerations":[{"key":"z"}],"$retainKeys":["containers"]},"metadata":{"$deleteFromPrimitiveList/finalizers":["x"]}}"#,
        r#"[{"op":"copy","from":"","path":"/a"},{"op":"copy","from":"","path":"/b"},{"op":"copy","from":"","path":"/c"}]"#,
    ];
    let tokens = tokens();
    let object = json::parse(OBJECT.as_bytes()).unwrap();
    let other: Other = serde_json::from_str(OBJECT).unwrap();
    fuzz::run(&Corpus::new(seeds, &tokens).inputs(), |input| {
        for strict in [false, true] {
            for kind in [PatchType::Json, PatchType::Merge, PatchType::StrategicMerge(schema())] {
                let is_merge = matches!(kind, PatchType::Merge);
                let Ok(patched) = patch::apply(kind, &object, input, strict) else { continue };
                let written = write::to_vec(&patched.object);
                if written.len() > MAX_PATCHED_BYTES {
                    return Err(format!("an object of {} bytes", written.len()));
                }
                if is_merge && let Ok(theirs) = serde_json::from_slice::<Other>(input) {
                    let theirs = serde_json::to_vec(&merged(other.clone(), theirs)).unwrap();
                    let theirs = json::parse(&theirs).map_err(|error| error.to_string())?;
                    if theirs != patched.object && theirs.as_map().is_some() {
                        return Err(format!(
                            "became {}, not {}",
                            write::to_string(&patched.object),
                            write::to_string(&theirs)
                        ));
                    }
                }
            }
        }
        Ok(())
    });
}

#[test]
fn field_sets_survive_a_round_trip() {
    let seeds = [
        r#"{"f:metadata":{"f:labels":{".":{},"f:a":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:image":{},"f:ports":{"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{}}}},"f:finalizers":{"v:\"x\"":{}},"f:list":{"i:3":{}}}}"#,
        OBJECT,
    ];
    let tokens = tokens();
    let live = json::parse(OBJECT.as_bytes()).unwrap();
    fuzz::run(&Corpus::new(seeds, &tokens).inputs(), |input| {
        let Ok(value) = json::parse(input) else { return Ok(()) };
        if let Ok(set) = fields_v1::decode(&value) {
            let written = fields_v1::encode(&set);
            let again = fields_v1::decode(&written)
                .map_err(|error| format!("{error}: {}", write::to_string(&written)))?;
            if fields_v1::encode(&again) != written {
                return Err(format!("{} changes", write::to_string(&written)));
            }
        }
        if let Value::Map(_) = &value
            && check(&value, schema(), false).is_ok()
            && let Ok(merged) = merge(&live, &value, schema())
            && write::to_vec(&merged).len() > input.len() * 32 + OBJECT.len() * 2
        {
            return Err("more than both".to_owned());
        }
        Ok(())
    });
}
