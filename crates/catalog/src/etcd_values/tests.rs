use std::collections::BTreeSet;
use std::sync::Arc;

use api::{GroupVersionKind, meta};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use etcd::ValueCodec as _;
use kinds::strategy::service::Family;
use kinds::table;
use storage::Record;
use value::{Value, json};

use super::{BUILT_IN, KubernetesValues, StorageMediaType};

use crate::{ServedResource, encode, keys};

/// A value that kube-apiserver 1.37 stored, with its answer to GET; `null` for keys that are not served.
struct RecordedValue {
    key: String,
    value: Vec<u8>,
    answer: Value,
}

fn recorded() -> Vec<RecordedValue> {
    parsed(include_str!("recorded.jsonl"))
}

fn parsed(lines: &str) -> Vec<RecordedValue> {
    lines
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let row = json::parse(line.as_bytes()).unwrap();
            let value = BASE64_STANDARD.decode(row.str_at(&["value"]).unwrap()).unwrap();
            let answer = row.at(&["answer"]).cloned().unwrap_or_default();
            RecordedValue { key: row.str_at(&["key"]).unwrap().to_owned(), value, answer }
        })
        .collect()
}

/// JSON that clients sent is stored as they sent it in these objects; this server stores equal JSON in canonical form
/// (`docs/decisions/0036-canonical-raw-json.md`).
const WITH_RAW_JSON: [&str; 3] = [
    "/registry/controllerrevisions/harbor/ferry-7d9",
    "/registry/deviceclasses/crane",
    "/registry/resourceclaims/harbor/lift",
];

fn codec() -> KubernetesValues {
    KubernetesValues {
        media_type: StorageMediaType::Protobuf,
        primary_family: Family::V6,
        failures: Arc::default(),
    }
}

fn decode(key: &str, value: &[u8]) -> Record {
    codec().decode(key, 7, &value.to_vec().into()).unwrap()
}

/// The object of a record, or the message for a value that cannot be decoded.
fn object(key: &str, record: &Record) -> Result<Value, String> {
    let mut object = encode::parse_body(key, &record.body).map_err(|status| status.message().to_owned())?;
    object.remove_at(&["metadata", "resourceVersion"]);
    Ok(object)
}

/// Kinds that only alpha and beta versions have, which the recorded server did not serve. Upstream's golden files cover them.
const NOT_RECORDED: [&str; 8] = [
    "/registry/compositepodgroups/",
    "/registry/evictionrequests/",
    "/registry/evictions/",
    "/registry/leasecandidates/",
    "/registry/podgroups/",
    "/registry/resourcepoolstatusrequests/",
    "/registry/storageversions/",
    "/registry/workloads/",
];

#[test]
fn every_stored_kind_is_recorded() {
    let recorded: BTreeSet<String> = recorded()
        .iter()
        .filter_map(|row| row.key.get(..keys::prefix_end(&row.key)?).map(str::to_owned))
        .collect();
    let mut missing: Vec<&str> =
        BUILT_IN.keys().map(String::as_str).filter(|prefix| !recorded.contains(*prefix)).collect();
    missing.sort_unstable();
    assert_eq!(missing, NOT_RECORDED);
}

/// The object of a value in the version of an answer.
fn object_as_answered(key: &str, value: &[u8], answer: &Value) -> Value {
    let object = object(key, &decode(key, value)).unwrap();
    let (stored, wanted) = (meta::gvk(&object), meta::gvk(answer));
    match table::find_kind(&wanted.group, &wanted.version, &wanted.kind) {
        Some(row) if stored != wanted => {
            let kind = ServedResource::of_row(row, &wanted.version).unwrap();
            let shapes = kind.shapes();
            shapes.to_sent(shapes.in_stored_version(&object).unwrap()).into_value()
        }
        _ => object,
    }
}

#[test]
fn values_of_kube_apiserver_are_read_as_it_answers_them() {
    for RecordedValue { key, value, mut answer } in recorded() {
        let object = object_as_answered(&key, &value, &answer);
        if answer.is_null() {
            continue;
        }
        answer.remove_at(&["metadata", "resourceVersion"]);
        // A custom resource is converted to the version of the request when it is read.
        if key.contains(".example.com/") {
            answer.set_at(&["apiVersion"], object.str_at(&["apiVersion"]).unwrap());
        }
        let text = value::write::to_string;
        assert_eq!(text(&object), text(&answer), "{key}");
    }
}

#[test]
fn objects_are_encoded_to_the_bytes_of_kube_apiserver() {
    for RecordedValue { key, value, .. } in recorded() {
        let record = decode(&key, &value);
        let again = codec().encode(&key, &record).unwrap();
        if WITH_RAW_JSON.contains(&key.as_str()) {
            assert_eq!(decode(&key, &again), record, "{key}");
        } else {
            assert_eq!(again, value, "{key}: {}", String::from_utf8_lossy(&again));
        }
    }
}

#[test]
fn json_inside_of_objects_is_stored_in_canonical_form() {
    let key = "/registry/controllerrevisions/harbor/a";
    let revision = |data: &str| {
        let text = format!(
            r#"{{"apiVersion":"apps/v1","kind":"ControllerRevision","metadata":{{"name":"a","namespace":"harbor"}},"data":{data},"revision":1}}"#
        );
        let record = decode(key, text.as_bytes());
        let value = codec().encode(key, &record);
        value.map(|value| String::from_utf8_lossy(&value).into_owned())
    };
    for (data, expected) in [
        (r#"{"b":1,"a":2}"#, r#"{"a":2,"b":1}"#),
        (r#"{"a": [1.0, 1e0]}"#, r#"{"a":[1,1]}"#),
        (r#"{"a":12345678901234567890123}"#, r#"{"a":1.2345678901234568e+22}"#),
        (r#"{"a":"\u0061<"}"#, r#"{"a":"a\u003c"}"#),
        (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
    ] {
        let value = revision(data).unwrap();
        assert!(value.contains(expected), "{data}: {value:?}");
    }
    assert!(object(key, &decode(key, br#"{"apiVersion":"apps/v1","kind":"ControllerRevision","metadata":{"name":"a"},"data":{"a":1e999}}"#)).is_err());
}

#[test]
fn every_media_type_is_read() {
    for RecordedValue { key, value, .. } in recorded() {
        let record = decode(&key, &value);
        for media_type in [StorageMediaType::Json, StorageMediaType::Yaml] {
            let codec = KubernetesValues { media_type, ..codec() };
            let other = codec.encode(&key, &record).unwrap();
            assert_eq!(decode(&key, &other).body, record.body, "{key} as {media_type:?}");
        }
        if !key.contains(".example.com/") {
            let text = BASE64_STANDARD.encode(&value);
            assert_eq!(decode(&key, text.as_bytes()).body, record.body, "{key} as base64");
        }
    }
}

/// The strategy of kube-apiserver clears the status of a new claim, and only reading adds the default phase.
#[test]
fn a_new_claim_is_stored_without_a_phase() {
    let key = "/registry/persistentvolumeclaims/n/c";
    let claim = |status: &str| {
        let text = format!(
            r#"{{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{{"name":"c","namespace":"n"}},"spec":{{"accessModes":["ReadWriteOnce"],"resources":{{"requests":{{"storage":"1Gi"}}}},"volumeMode":"Filesystem"}},"status":{status}}}"#
        );
        text.into_bytes()
    };
    let phase =
        |record: &Record| object(key, record).unwrap().str_at(&["status", "phase"]).map(str::to_owned);
    for media_type in [StorageMediaType::Protobuf, StorageMediaType::Json, StorageMediaType::Yaml] {
        let codec = KubernetesValues { media_type, ..codec() };
        let read = |value: bytes::Bytes| codec.decode(key, 7, &value).unwrap();
        let claim = |status| read(claim(status).into());
        let pending = read(codec.encode(key, &claim(r#"{"phase":"Pending"}"#)).unwrap());
        let created = codec.encode_new(key, &pending).unwrap();
        assert!(!String::from_utf8_lossy(&created).contains("Pending"));
        let created = read(created);
        assert_eq!(phase(&created).as_deref(), Some("Pending"));
        // An update that changes nothing else stores the phase, as in kube-apiserver.
        assert_eq!(created.body, pending.body);
        assert_ne!(created, pending, "{media_type:?}");
        assert_eq!(read(codec.encode(key, &created).unwrap()), pending);
        let bound = read(codec.encode(key, &claim(r#"{"phase":"Bound"}"#)).unwrap());
        assert_eq!(phase(&read(codec.encode_new(key, &bound).unwrap())).as_deref(), Some("Bound"));
    }
}

/// Kubernetes migrates stored objects with updates that change nothing.
#[test]
fn values_in_another_form_differ_from_what_is_written() {
    let key = "/registry/networkpolicies/n/p";
    let value = |version: &str| {
        let text = format!(
            r#"{{"apiVersion":"{version}","kind":"NetworkPolicy","metadata":{{"name":"p","namespace":"n"}},"spec":{{"podSelector":{{}},"policyTypes":["Ingress"]}}}}"#
        );
        text.into_bytes()
    };
    let read = |media_type, value: &[u8]| {
        let codec = KubernetesValues { media_type, ..codec() };
        codec.decode(key, 7, &value.to_vec().into()).unwrap()
    };
    let json = |value: &[u8]| read(StorageMediaType::Json, value);
    let current = json(&value("networking.k8s.io/v1"));
    let old = json(&value("extensions/v1beta1"));
    assert_eq!(old.body, current.body);
    assert_ne!(old, current, "another version");
    let json_to_be_protobuf = decode(key, &value("networking.k8s.io/v1"));
    assert_eq!(json_to_be_protobuf.body, current.body);
    assert_ne!(json_to_be_protobuf, current, "another media type");
    let encoded = codec().encode(key, &json_to_be_protobuf).unwrap();
    assert_eq!(decode(key, &encoded), current, "what is written is current");
    assert_ne!(json(&encoded), current);
    let yaml =
        KubernetesValues { media_type: StorageMediaType::Yaml, ..codec() }.encode(key, &current).unwrap();
    assert_eq!(read(StorageMediaType::Yaml, &yaml), current);
    assert_ne!(decode(key, BASE64_STANDARD.encode(&encoded).as_bytes()), current);

    let key = "/registry/apiextensions.k8s.io/customresourcedefinitions/ships.harbor.example.com";
    let recorded = recorded().into_iter().find(|recorded| recorded.key == key).unwrap();
    let crd = decode(key, &recorded.value);
    assert_eq!(codec().encode(key, &crd).unwrap(), recorded.value);
    let mut v1 = object(key, &crd).unwrap();
    v1.set_at(&["apiVersion"], "apiextensions.k8s.io/v1");
    let v1 = decode(key, value::write::to_string(&v1).as_bytes());
    assert_eq!(v1.body, crd.body);
    assert_ne!(v1, crd);
}

#[test]
fn values_in_versions_that_are_not_served_are_read() {
    let key = "/registry/endpointslices/n/s";
    let old = json::parse(
        br#"{"metadata":{"name":"s","namespace":"n"},"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"],"nodeName":"a","topology":{"topology.kubernetes.io/zone":"z"},"hints":{"forZones":[{"name":"z"}]}}]}"#,
    )
    .unwrap();
    let gvk = GroupVersionKind::new("discovery.k8s.io", "v1beta1", "EndpointSlice");
    let value = schema::protobuf::encode(&gvk, &old).unwrap();
    let slice = object(key, &decode(key, &value)).unwrap();
    assert_eq!(slice.str_at(&["apiVersion"]), Some("discovery.k8s.io/v1"));
    let endpoint = &slice.list_at(&["endpoints"])[0];
    assert_eq!(endpoint.str_at(&["zone"]), Some("z"));
    assert_eq!(endpoint.list_at(&["hints", "forZones"]).len(), 1);

    let key = "/registry/ipaddresses/10.0.0.9";
    let spec = r#""spec":{"parentRef":{"resource":"services","namespace":"n","name":"s"}}"#;
    let text = format!(
        r#"{{"apiVersion":"networking.k8s.io/v1beta1","kind":"IPAddress","metadata":{{"name":"10.0.0.9"}},{spec}}}"#
    );
    let address = object(key, &decode(key, text.as_bytes())).unwrap();
    assert_eq!(address.str_at(&["apiVersion"]), Some("networking.k8s.io/v1"));
    let current = GroupVersionKind::new("networking.k8s.io", "v1", "IPAddress");
    let old = GroupVersionKind::new("networking.k8s.io", "v1beta1", "IPAddress");
    let value = schema::protobuf::encode_as(&old, &current, &address).unwrap();
    assert_eq!(object(key, &decode(key, &value)).unwrap(), address);
}

#[test]
fn values_in_old_versions_are_read_as_kube_apiserver_answers_them() {
    let recorded = parsed(include_str!("recorded_old_versions.jsonl"));
    assert_eq!(recorded.len(), 76);
    for RecordedValue { key, value, answer } in recorded {
        let text = value::write::to_string;
        let object = object_as_answered(&key, &value, &answer);
        assert_eq!(text(&object), text(&answer), "{key}: {}", String::from_utf8_lossy(&value));
    }
}

#[test]
fn fields_that_only_v1beta1_has_survive_a_write_and_are_not_shown_in_v1() {
    let key = "/registry/podcertificaterequests/n/r";
    let text = r#"{"apiVersion":"certificates.k8s.io/v1beta1","kind":"PodCertificateRequest","metadata":{"name":"r","namespace":"n"},"spec":{"signerName":"a.b/c","pkixPublicKey":"eA==","proofOfPossession":"eQ=="}}"#;
    let record = decode(key, text.as_bytes());
    let written = codec().encode(key, &record).unwrap();
    let again = object(key, &decode(key, &written)).unwrap();
    assert_eq!(again.str_at(&["spec", "pkixPublicKey"]), Some("eA=="));
    assert_eq!(again.str_at(&["spec", "proofOfPossession"]), Some("eQ=="));

    let v1 = value::json::parse(br#"{"apiVersion":"certificates.k8s.io/v1","kind":"PodCertificateRequest"}"#);
    let shown = object_as_answered(key, &written, &v1.unwrap());
    assert_eq!(shown.str_at(&["apiVersion"]), Some("certificates.k8s.io/v1"));
    assert_eq!(shown.str_at(&["spec", "signerName"]), Some("a.b/c"));
    assert_eq!(shown.at(&["spec", "pkixPublicKey"]), None);
}

#[test]
fn values_that_lack_newer_defaults_get_them() {
    let key = "/registry/pods/n/p";
    let text = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"n"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;
    let pod = object(key, &decode(key, text.as_bytes())).unwrap();
    assert_eq!(pod.str_at(&["spec", "restartPolicy"]), Some("Always"));
    assert_eq!(pod.str_at(&["spec", "schedulerName"]), Some("default-scheduler"));
}

#[test]
fn services_of_old_servers_get_their_families() {
    let key = "/registry/services/specs/n/s";
    let read = |spec: &str| {
        let text = format!(
            r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"name":"s","namespace":"n"}},"spec":{spec}}}"#
        );
        let service = object(key, &decode(key, text.as_bytes())).unwrap();
        ["clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"]
            .map(|field| service.at(&["spec", field]).map(value::write::to_string).unwrap_or_default())
    };
    assert_eq!(
        read(r#"{"clusterIP":"10.0.0.7"}"#),
        [r#"["10.0.0.7"]"#, r#"["IPv4"]"#, r#""SingleStack""#, r#""Cluster""#]
    );
    assert_eq!(
        read(r#"{"clusterIP":"None","selector":{"a":"b"}}"#),
        [r#"["None"]"#, r#"["IPv6"]"#, r#""SingleStack""#, r#""Cluster""#]
    );
    assert_eq!(
        read(r#"{"type":"ExternalName","externalName":"a.example","internalTrafficPolicy":"Cluster"}"#),
        ["", "", "", ""]
    );
    let own = r#"{"clusterIP":"fd00::1","clusterIPs":["fd00::1"],"ipFamilies":["IPv6"],"ipFamilyPolicy":"PreferDualStack"}"#;
    assert_eq!(read(own), [r#"["fd00::1"]"#, r#"["IPv6"]"#, r#""PreferDualStack""#, r#""Cluster""#]);
}

#[test]
fn daemon_sets_have_the_generation_of_their_template() {
    let key = "/registry/daemonsets/n/d";
    let read = |version: &str, metadata: &str, spec: &str| {
        let text = format!(
            r#"{{"apiVersion":"{version}","kind":"DaemonSet","metadata":{{"name":"d","namespace":"n"{metadata}}},"spec":{spec}}}"#
        );
        let set = object(key, &decode(key, text.as_bytes())).unwrap();
        let annotation = &["metadata", "annotations", "deprecated.daemonset.template.generation"];
        set.str_at(annotation).map(str::to_owned)
    };
    assert_eq!(read("apps/v1", "", "{}").as_deref(), Some("0"));
    let annotation = r#","annotations":{"deprecated.daemonset.template.generation":"7"}"#;
    assert_eq!(read("apps/v1", annotation, "{}").as_deref(), Some("7"));
    assert_eq!(read("extensions/v1beta1", "", r#"{"templateGeneration":3}"#).as_deref(), Some("3"));
}

#[test]
fn values_that_cannot_be_decoded_say_why() {
    let secret = "/registry/secrets/n/s";
    let why = |key: &str, value: &[u8]| object(key, &decode(key, value)).unwrap_err();
    assert_eq!(
        why(secret, b"k8s:enc:aescbc:v1:key1:\x00\x01"),
        "Internal error occurred: StorageError: corrupt object, Code: 7, Key: /secrets/n/s, ResourceVersion: 0, \
         AdditionalErrorMsg: data from the storage is not transformable revision=0: identity transformer tried to read encrypted data"
    );
    for (value, reason) in [
        (&b""[..], "neither protobuf nor JSON nor YAML"),
        (b"{", "unexpected end"),
        (b"k8s\0", "empty body"),
        (b"k8s\0\x0a\xff", "unexpected EOF"),
        (b"{\"metadata\":{}}", "Object 'Kind' or 'apiVersion' is missing"),
        (br#"{"apiVersion":"v1","kind":"ConfigMap"}"#, "no conversion from"),
        (br#"{"apiVersion":"v9","kind":"Secret"}"#, "no conversion from"),
        (br#"{"apiVersion":"v1","kind":"Secret","metadata":7}"#, "cannot unmarshal number"),
    ] {
        let error = why(secret, value);
        assert!(error.contains("object not decodable revision=7: "), "{error}");
        assert!(error.contains(reason), "{error} does not contain {reason}");
    }
    let custom = "/registry/example.com/things/n/t";
    for value in
        [&b"k8s:enc:kms:v2:a:"[..], b"[]", b"{}", br#"{"apiVersion":"example.com/v1","kind":"Thing"}"#]
    {
        why(custom, value);
    }
}

#[test]
fn keys_of_other_programs_are_ignored() {
    let codec = codec();
    for key in ["/registry/gadgets/n/a", "/registry/evictionpolicies/n/a", "/registry/x", "/registry/pods"] {
        assert_eq!(codec.decode(key, 1, &b"{}".to_vec().into()), None, "{key}");
        let record = decode(
            "/registry/configmaps/n/c",
            br#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}"#,
        );
        assert!(codec.encode(key, &record).is_err(), "{key}");
    }
}

#[test]
fn crds_in_v1beta1_are_read_as_kubernetes_does() {
    let key = "/registry/apiextensions.k8s.io/customresourcedefinitions/things.example.com";
    let text = r#"{"apiVersion":"apiextensions.k8s.io/v1beta1","kind":"CustomResourceDefinition","metadata":{"name":"things.example.com"},
        "spec":{"group":"example.com","version":"v1","names":{"plural":"things","kind":"Thing"},
        "validation":{"openAPIV3Schema":{"type":"object","description":"top"}},
        "additionalPrinterColumns":[{"name":"A","type":"string","JSONPath":".a"}],
        "conversion":{"strategy":"Webhook","webhookClientConfig":{"url":"https://a.example/"}}}}"#;
    let crd = object(key, &decode(key, text.as_bytes())).unwrap();
    assert_eq!(crd.str_at(&["apiVersion"]), Some("apiextensions.k8s.io/v1"));
    assert_eq!(crd.str_at(&["spec", "scope"]), Some("Namespaced"));
    assert_eq!(crd.at(&["spec", "preserveUnknownFields"]), Some(&Value::from(true)));
    assert_eq!(
        crd.list_at(&["spec", "conversion", "webhook", "conversionReviewVersions"]),
        ["v1beta1".into()]
    );
    let version = &crd.list_at(&["spec", "versions"])[0];
    assert_eq!(version.str_at(&["name"]), Some("v1"));
    assert_eq!(version.str_at(&["schema", "openAPIV3Schema", "description"]), Some("top"));
    assert_eq!(version.list_at(&["additionalPrinterColumns"])[0].str_at(&["jsonPath"]), Some(".a"));
}
