use std::collections::BTreeSet;

use api::gvk::GroupVersionKind;
use data_encoding::HEXLOWER_PERMISSIVE;
use fuzz::Dice;
use value::{Value, json, push_varint, write};

use super::layout::{self, Layout, ProtobufType};
use super::{MAX_BYTES, encode, read, read_as};
use crate::decode::{NormalizeOutcome, normalize};

/// Protobuf bodies, each with the JSON of the object.
fn samples() -> Vec<(Vec<u8>, Value)> {
    let lines: Vec<&str> =
        include_str!("samples.txt").lines().filter(|line| !line.starts_with('#')).collect();
    let samples = lines.chunks(2).map(|pair| (hex(pair[0]), json::parse(pair[1].as_bytes()).unwrap()));
    samples.collect()
}

fn hex(text: &str) -> Vec<u8> {
    HEXLOWER_PERMISSIVE.decode(text.replace(' ', "").as_bytes()).unwrap()
}

fn varint(number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    push_varint(&mut bytes, number);
    bytes
}

fn low_byte(number: u64) -> u8 {
    number.to_le_bytes()[0]
}

/// Encodes a field of bytes.
fn field(number: u64, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    [varint(number << 3 | 2), varint(content.len() as u64), content.to_vec()].concat()
}

/// Encodes a field of an integer.
fn int(number: u64, value: u64) -> Vec<u8> {
    [varint(number << 3), varint(value)].concat()
}

/// Encodes a complete body.
fn body(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let type_meta = [field(1, api_version), field(2, kind)].concat();
    [b"k8s\0".to_vec(), field(1, type_meta), field(2, raw), field(3, ""), field(4, "")].concat()
}

/// Decodes a message of a kind and removes its version and kind.
fn tree(api_version: &str, kind: &str, raw: &[u8]) -> Result<String, String> {
    let mut value = read(&body(api_version, kind, raw))?;
    assert_eq!(value.remove_at(&["apiVersion"]), Some(api_version.into()));
    assert_eq!(value.remove_at(&["kind"]), Some(kind.into()));
    Ok(write::to_string(&value))
}

#[track_caller]
fn becomes(api_version: &str, kind: &str, raw: &[u8], expected: &str) {
    assert_eq!(tree(api_version, kind, raw).as_deref(), Ok(expected));
}

#[track_caller]
fn refused(raw: &[u8], expected: &str) {
    assert_eq!(read(&body("v1", "ConfigMap", raw)), Err(expected.to_owned()));
}

#[test]
fn encoding_a_decoded_object_gives_the_same_bytes() {
    for (bytes, _) in samples() {
        let mut object = read(&bytes).unwrap();
        let gvk = api::meta::gvk(&object);
        let schema = crate::of(&gvk.group, &gvk.version, &gvk.kind).unwrap();
        normalize(&mut object, schema);
        assert_eq!(encode(&gvk, &object).as_ref(), Ok(&bytes), "{gvk}");
    }
}

#[test]
fn fields_that_are_not_pointers_are_encoded_even_if_they_are_zero() {
    // Name, generateName, namespace, selfLink, uid, resourceVersion, generation and creationTimestamp of the metadata.
    let metadata = [
        field(1, ""),
        field(2, ""),
        field(3, ""),
        field(4, ""),
        field(5, ""),
        field(6, ""),
        int(7, 0),
        field(8, ""),
    ];
    let expected = body("v1", "ConfigMap", &field(1, metadata.concat()));
    let gvk = GroupVersionKind::new("", "v1", "ConfigMap");
    assert_eq!(encode(&gvk, &json::parse(b"{}").unwrap()), Ok(expected));
}

#[test]
fn values_of_another_type_and_kinds_without_protobuf_are_not_encoded() {
    let gvk = GroupVersionKind::new("apps", "v1", "Deployment");
    let object = json::parse(br#"{"spec":{"template":{"spec":{"nodeName":1}}}}"#).unwrap();
    assert_eq!(
        encode(&gvk, &object),
        Err("spec.template.spec.nodeName: number cannot be encoded".to_owned())
    );
    let unknown = GroupVersionKind::new("example.com", "v1", "Foo");
    assert_eq!(
        encode(&unknown, &object),
        Err("example.com/v1, Kind=Foo has no protobuf encoding".to_owned())
    );
}

#[test]
fn protobuf_objects_decode_to_the_same_tree_as_their_json() {
    for (bytes, mut expected) in samples() {
        let gvk = api::meta::gvk(&expected);
        let schema = crate::of(&gvk.group, &gvk.version, &gvk.kind).unwrap();
        let mut found = read(&bytes).unwrap();
        assert_eq!(normalize(&mut found, schema), NormalizeOutcome::default(), "{gvk}");
        assert_eq!(normalize(&mut expected, schema), NormalizeOutcome::default(), "{gvk}");
        assert_eq!(write::to_string(&found), write::to_string(&expected));
        assert_eq!(found, expected, "{gvk}: numbers are of the same kind");
    }
}

/// A KEP-6060 field that has another name in Kubernetes, and therefore no number.
const OURS: (&str, &str) = ("authentication.v1.TokenRequestSpec", "attestationClaims");

#[test]
fn every_field_of_every_type_has_a_number() {
    // The server only sends this type, and protobuf does not have it.
    let without_message = ["version.Info"];
    for name in crate::all() {
        let Some(object) = crate::named(name).unwrap().object() else { continue };
        if without_message.contains(&name) {
            continue;
        }
        let layout = layout::of(crate::named(name).unwrap()).unwrap_or_else(|| panic!("{name} has no line"));
        let mut numbered = BTreeSet::new();
        collect(layout, &mut numbered);
        // The version and the kind are in the envelope.
        let expected: BTreeSet<&str> = (object.properties.iter())
            .filter(|property| property.embedded != Some("TypeMeta"))
            .filter(|property| (name, property.name.as_str()) != OURS)
            .map(|property| property.name.as_str())
            .collect();
        assert_eq!(numbered, expected, "{name}");
    }
}

fn collect<'a>(layout: &'a Layout, names: &mut BTreeSet<&'a str>) {
    for field in layout.fields() {
        match &field.shape {
            ProtobufType::Embedded(layout) => collect(layout, names),
            _ => assert!(names.insert(&field.name), "{} twice in {}", field.name, layout.message),
        }
    }
}

#[test]
fn every_entry_of_the_protobuf_table_is_a_schema_field() {
    let lines = include_str!("../../data/protobuf.txt").lines().filter(|line| !line.starts_with('#'));
    for line in lines {
        let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
        let Some(schema) = crate::named(name) else { continue };
        let words = rest.split(' ').filter(|word| !word.is_empty());
        assert_eq!(layout::of(schema).unwrap().fields().count(), words.count(), "{name}");
    }
    assert!(layout::names().is_sorted(), "lines are found by binary search");
}

#[test]
fn bodies_that_are_not_protobuf_are_rejected_with_kubernetes_messages() {
    let prefix = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]";
    for (bytes, expected) in [
        ("", "empty data"),
        ("6b3873", prefix),
        ("7b7d0a0a0a", prefix),
        ("6b387300", "empty body"),
        ("6b387300 0a", "unexpected EOF"),
        ("6b387300 0c", "proto: Unknown: wiretype end group for non-group"),
        ("6b387300 00", "proto: Unknown: illegal tag 0 (wire type 0)"),
        ("6b387300 0801", "proto: wrong wireType = 0 for field TypeMeta"),
        ("6b387300 0affffffffffffffffffff01", "proto: integer overflow"),
        ("6b387300 0affffffffffffffffff01", "proto: negative length found during unmarshaling"),
        ("6b387300 1200", r#"Object 'Kind' is missing in 'runtime.TypeMeta{APIVersion:"", Kind:""}'"#),
        (
            "6b387300 0a05 1203506f64",
            r#"Object 'apiVersion' is missing in 'runtime.TypeMeta{APIVersion:"", Kind:"Pod"}'"#,
        ),
    ] {
        assert_eq!(read(&hex(bytes)), Err(expected.to_owned()), "{bytes}");
    }
    let unknown = r#"no kind "Widget" is registered for version "x.io/v1" in scheme "pkg/api/legacyscheme/scheme.go:30""#;
    assert_eq!(read(&body("x.io/v1", "Widget", b"")), Err(unknown.to_owned()));
    let huge = [b"k8s\0".to_vec(), vec![0; MAX_BYTES]].concat();
    assert_eq!(read(&huge), Err("Request entity too large: limit is 3145728".to_owned()));
}

#[test]
fn the_expected_kind_is_used_if_the_body_names_none() {
    let expected = GroupVersionKind::new("", "v1", "ConfigMap");
    let written = |bytes: &[u8]| read_as(bytes, Some(&expected)).map(|value| write::to_string(&value));
    let unnamed = [b"k8s\0".to_vec(), field(2, field(1, field(1, "a")))].concat();
    let config_map = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#;
    assert_eq!(written(&unnamed).as_deref(), Ok(config_map));
    let named = body("v1", "Secret", b"");
    assert_eq!(written(&named).as_deref(), Ok(r#"{"apiVersion":"v1","kind":"Secret"}"#));
}

#[test]
fn malformed_messages_are_refused() {
    refused(&hex("0a05"), "unexpected EOF");
    refused(&hex("0a04 0a05"), "unexpected EOF");
    refused(&hex("0c"), "proto: ConfigMap: wiretype end group for non-group");
    refused(&hex("0000"), "proto: ConfigMap: illegal tag 0 (wire type 0)");
    refused(&hex("0a02 080a"), "proto: wrong wireType = 0 for field Name");
    refused(&hex("1001"), "proto: wrong wireType = 0 for field Data");
    refused(&hex("2201 01"), "proto: wrong wireType = 2 for field Immutable");
    refused(&hex("1207 0a0161120162"), "unexpected EOF");
    refused(&hex("0f"), "proto: illegal wireType 7");
    // Groups are rejected whether or not their number is known.
    refused(&hex("0b0c"), "proto: illegal wireType 3");
    refused(&hex("db3edc3e"), "proto: illegal wireType 3");
    // A message may be split into parts, but not inside a field.
    refused(&[field(1, hex("0a03 61")), field(1, hex("6263"))].concat(), "unexpected EOF");
}

#[test]
fn unknown_fields_are_skipped_whatever_they_carry() {
    let raw = [
        int(1000, u64::MAX),
        field(1000, "text"),
        [varint(1000 << 3 | 1), vec![0; 8]].concat(),
        [varint(1000 << 3 | 5), vec![0; 4]].concat(),
        field(1, [int(77, 1), field(1, "a")].concat()),
        field(2, [field(1, "k"), int(3, 1), field(2, "v")].concat()),
    ]
    .concat();
    becomes("v1", "ConfigMap", &raw, r#"{"data":{"k":"v"},"metadata":{"name":"a"}}"#);
}

#[test]
fn repeated_messages_are_merged_and_of_repeated_scalars_the_last_counts() {
    let raw = [
        field(1, [field(1, "a"), field(11, [field(1, "x"), field(2, "1")].concat())].concat()),
        field(2, [field(1, "k"), field(2, "v")].concat()),
        field(
            1,
            [field(3, "ns"), field(1, "b"), field(11, [field(1, "y"), field(2, "2")].concat())].concat(),
        ),
        field(2, [field(2, "w"), field(1, "k")].concat()),
    ]
    .concat();
    let expected =
        r#"{"data":{"k":"w"},"metadata":{"labels":{"x":"1","y":"2"},"name":"b","namespace":"ns"}}"#;
    becomes("v1", "ConfigMap", &raw, expected);
}

#[test]
fn protobuf_map_entries_without_key_or_value_decode_to_zero_values() {
    let raw = [field(2, field(1, "k")), field(2, field(2, "v"))].concat();
    becomes("v1", "ConfigMap", &raw, r#"{"data":{"":"v","k":""}}"#);
    let quota = field(2, field(1, field(1, "pods")));
    becomes("v1", "ResourceQuota", &quota, r#"{"spec":{"hard":{"pods":"0"}}}"#);
}

#[test]
fn packed_and_unpacked_protobuf_numbers_decode_alike() {
    let groups = |groups: Vec<u8>| field(2, field(14, groups));
    let expected = r#"{"spec":{"securityContext":{"supplementalGroups":[1,300]}}}"#;
    becomes("v1", "Pod", &groups(field(4, [varint(1), varint(300)].concat())), expected);
    becomes("v1", "Pod", &groups([int(4, 1), int(4, 300)].concat()), expected);
    assert_eq!(tree("v1", "Pod", &groups(field(4, [0x80]))), Err("unexpected EOF".to_owned()));
}

#[test]
fn bytes_that_are_not_utf8_become_replacement_characters() {
    let raw = field(2, [field(1, b"k\xff"), field(2, b"a\xe2\x82b")].concat());
    becomes("v1", "ConfigMap", &raw, "{\"data\":{\"k\u{fffd}\":\"a\u{fffd}\u{fffd}b\"}}");
}

#[test]
fn protobuf_times_decode_to_rfc3339_text() {
    let created = |time: &[u8]| tree("v1", "ConfigMap", &field(1, field(8, time)));
    let text = |text: &str| Ok(format!(r#"{{"metadata":{{"creationTimestamp":"{text}"}}}}"#));
    assert_eq!(created(b""), text("0001-01-01T00:00:00Z"));
    assert_eq!(created(&int(2, 5)), text("1970-01-01T00:00:00Z"));
    assert_eq!(created(&[int(1, 1), int(2, 999_999_999)].concat()), text("1970-01-01T00:00:01Z"));
    assert_eq!(created(&int(1, (-1_i64).cast_unsigned())), text("1969-12-31T23:59:59Z"));
    assert_eq!(created(&int(1, 253_402_300_799)), text("9999-12-31T23:59:59Z"));
    for seconds in [253_402_300_800, i64::MAX, i64::MIN, -62_135_596_801] {
        let error = "proto: Time: year is outside of range [1,9999]".to_owned();
        assert_eq!(created(&int(1, seconds.cast_unsigned())), Err(error));
    }
}

#[test]
fn micro_times_have_six_digits() {
    let renewed = |time: &[u8]| tree("coordination.k8s.io/v1", "Lease", &field(2, field(4, time)));
    let text = |text: &str| Ok(format!(r#"{{"spec":{{"renewTime":"{text}"}}}}"#));
    assert_eq!(renewed(b""), text("0001-01-01T00:00:00.000000Z"));
    assert_eq!(renewed(&[int(1, 1), int(2, 1_999)].concat()), text("1970-01-01T00:00:01.000001Z"));
    let negative = int(2, (-1_000_i64).cast_unsigned());
    assert_eq!(renewed(&[int(1, 1), negative].concat()), text("1970-01-01T00:00:00.999999Z"));
}

#[test]
fn invalid_protobuf_quantities_are_rejected() {
    let quota = |quantity: &[u8]| {
        let entry = [field(1, "pods"), field(2, quantity)].concat();
        tree("v1", "ResourceQuota", &field(2, field(1, entry)))
    };
    assert_eq!(quota(&field(1, "0.5")).as_deref(), Ok(r#"{"spec":{"hard":{"pods":"0.5"}}}"#));
    for text in ["", "x", " 1"] {
        assert!(quota(&field(1, text)).is_err_and(|error| error.contains("quantit")), "{text}");
    }
}

#[test]
fn int_or_string_is_decoded_by_its_type() {
    let port = |target: &[u8]| tree("v1", "Service", &field(2, field(1, field(4, target))));
    let spec = |target: &str| Ok(format!(r#"{{"spec":{{"ports":[{{"targetPort":{target}}}]}}}}"#));
    assert_eq!(port(b""), spec("0"));
    assert_eq!(port(&[int(2, 80), field(3, "http")].concat()), spec("80"));
    assert_eq!(port(&[int(1, 1), int(2, 80), field(3, "http")].concat()), spec(r#""http""#));
    assert_eq!(port(&int(1, 2)), Err("impossible IntOrString.Type".to_owned()));
}

#[test]
fn raw_extensions_in_protobuf_are_parsed_as_json() {
    let data = |raw: &[u8]| tree("apps/v1", "ControllerRevision", &field(2, raw));
    assert_eq!(data(b"").as_deref(), Ok(r#"{"data":null}"#));
    assert_eq!(data(&field(1, r#"{"a":[1]}"#)).as_deref(), Ok(r#"{"data":{"a":[1]}}"#));
    assert!(data(&field(1, "{")).is_err_and(|error| error.starts_with("json parse error: ")));
    assert!(data(&field(1, b"k8s\0")).is_err());
    // The value starts at the second level of the object.
    let deep = |depth: usize| field(1, [vec![b'['; depth], vec![b']'; depth]].concat());
    assert!(data(&deep(127)).is_ok());
    assert_eq!(data(&deep(128)), Err("exceeded max depth".to_owned()));
}

#[test]
fn protobuf_doubles_decode_to_json_numbers() {
    let minimum = |number: f64| {
        let schema = [varint(11 << 3 | 1), number.to_le_bytes().to_vec()].concat();
        let raw = field(2, field(7, field(4, field(1, schema))));
        read(&body("apiextensions.k8s.io/v1", "CustomResourceDefinition", &raw)).map(|value| {
            let version = &value.list_at(&["spec", "versions"])[0];
            version.at(&["schema", "openAPIV3Schema", "minimum"]).unwrap().clone()
        })
    };
    assert_eq!(minimum(0.5), Ok(Value::Float(0.5)));
    assert_eq!(minimum(-3.0), Ok(Value::Int(-3)));
    assert_eq!(minimum(1e300), Ok(Value::Float(1e300)));
    assert_eq!(minimum(f64::NAN), Err("json: unsupported value: NaN".to_owned()));
    assert_eq!(minimum(f64::NEG_INFINITY), Err("json: unsupported value: -Inf".to_owned()));
}

#[test]
fn protobuf_objects_have_the_same_depth_limit_as_json() {
    let nested = |levels: usize| {
        // Nests `not` in `not` in `not`…
        let schema = (1..levels).fold(Vec::new(), |inner, _| field(28, inner));
        field(2, field(7, field(4, field(1, schema))))
    };
    // Levels above the schema: the object, `spec`, `versions`, its item, `schema`.
    let of = |levels| {
        read(&body("apiextensions.k8s.io/v1", "CustomResourceDefinition", &nested(levels)))
            .map(|value| value.depth())
    };
    assert_eq!(of(123), Ok(128));
    assert_eq!(of(124), Err("exceeded max depth".to_owned()));
    assert_eq!(of(20_000), Err("exceeded max depth".to_owned()));
}

#[test]
fn many_repeated_fields_are_read_in_linear_time() {
    // Each entry sorts before all others and arrives in a part of its own.
    let labels: Vec<u8> = (0..150_000_u32)
        .rev()
        .flat_map(|number| field(1, field(11, field(1, format!("{number:06}")))))
        .collect();
    let value = read(&body("v1", "ConfigMap", &labels)).unwrap();
    assert_eq!(value.at(&["metadata", "labels"]).unwrap().as_map().unwrap().len(), 150_000);
}

#[test]
fn damaged_bodies_never_panic_and_what_is_read_is_bounded() {
    let mut dice = Dice::new(0x9e37_79b9_7f4a_7c15);
    let samples = samples();
    for round in 0..4_000 {
        let (bytes, _) = &samples[round % samples.len()];
        let mut bytes = bytes.clone();
        for _ in 0..=dice.index(4) {
            let at = dice.index(bytes.len());
            match dice.index(4) {
                0 => bytes[at] = low_byte(dice.word()),
                1 => bytes[at] ^= 1 << dice.index(8),
                2 => bytes.insert(at, low_byte(dice.word())),
                _ => drop(bytes.remove(at)),
            }
        }
        if dice.index(4) == 0 {
            bytes.truncate(dice.index(bytes.len()));
        }
        if let Ok(mut value) = read(&bytes) {
            assert!(value.depth() <= json::MAX_DEPTH);
            let gvk = api::meta::gvk(&value);
            let schema = crate::of(&gvk.group, &gvk.version, &gvk.kind).unwrap();
            let outcome = normalize(&mut value, schema);
            assert_eq!(outcome.unknown, Vec::<String>::new(), "only fields of the schema are made");
        }
    }
}

#[test]
fn random_messages_of_every_kind_never_panic() {
    let mut dice = Dice::new(0x2545_f491_4f6c_dd1d);
    for name in crate::all() {
        let Some(object) = crate::named(name).unwrap().object() else { continue };
        if object.group_version.is_empty() || object.group_version == "*" {
            continue;
        }
        let kind = name.rsplit('.').next().unwrap();
        for _ in 0..20 {
            let raw = random(&mut dice, 6);
            let _ = read(&body(object.group_version, kind, &raw));
        }
    }
}

/// Fields of any wire type with small numbers, which many messages have; some contain nested messages.
fn random(dice: &mut Dice, depth: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..dice.index(6) {
        let number = 1 + dice.index(12) as u64;
        bytes.extend(match dice.index(12) {
            0 => int(number, dice.word()),
            1 => [varint(number << 3 | 1), dice.word().to_le_bytes().to_vec()].concat(),
            2 => field(number, dice.word().to_le_bytes()),
            3 => field(number, "text"),
            _ if depth > 0 => field(number, random(dice, depth - 1)),
            _ => Vec::new(),
        });
    }
    bytes
}
