use value::{Value, json, write};

use super::{decoded_duplicates, fill, normalize, strict_errors};
use crate::Schema;

fn kind(kind: &str) -> &'static Schema {
    let (group_version, kind) = kind.rsplit_once('/').unwrap();
    let (group, version) = group_version.rsplit_once('/').unwrap_or(("", group_version));
    crate::of(group, version, kind).unwrap()
}

fn decode(of: &str, text: &str) -> (Value, super::NormalizeOutcome) {
    let mut value = json::parse(text.as_bytes()).unwrap();
    let outcome = normalize(&mut value, kind(of));
    (value, outcome)
}

/// Asserts the normalized form of a valid object.
fn becomes(of: &str, text: &str, expected: &str) {
    let (value, outcome) = decode(of, text);
    assert_eq!(outcome, super::NormalizeOutcome::default(), "{text}");
    assert_eq!(write::to_string(&value), expected);
}

fn refused(of: &str, text: &str, expected: &str) {
    assert_eq!(decode(of, text).1.type_error(text.as_bytes()).as_deref(), Some(expected), "{text}");
}

#[test]
fn values_of_the_wrong_type_are_rejected_with_gos_messages() {
    let cases = [
        (
            r#"{"spec":{"containers":"x"}}"#,
            "string into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
        (
            r#"{"spec":{"containers":["x"]}}"#,
            "string into Go struct field PodSpec.spec.containers of type v1.Container",
        ),
        (
            r#"{"spec":{"containers":[{"ports":[{"containerPort":"80"}]}]}}"#,
            "string into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32",
        ),
        (
            r#"{"spec":{"containers":[{"ports":[{"containerPort":80.5}]}]}}"#,
            "number 80.5 into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32",
        ),
        (
            r#"{"spec":{"containers":[{"ports":[{"containerPort":99999999999}]}]}}"#,
            "number 99999999999 into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32",
        ),
        (
            r#"{"spec":{"hostNetwork":"yes"}}"#,
            "string into Go struct field PodSpec.spec.hostNetwork of type bool",
        ),
        (
            r#"{"spec":{"automountServiceAccountToken":1}}"#,
            "number into Go struct field PodSpec.spec.automountServiceAccountToken of type bool",
        ),
        (
            r#"{"metadata":{"labels":{"a":1}}}"#,
            "number into Go struct field ObjectMeta.metadata.labels of type string",
        ),
        (
            r#"{"spec":{"volumes":[{"emptyDir":"x"}]}}"#,
            "string into Go struct field Volume.spec.volumes.VolumeSource.emptyDir of type v1.EmptyDirVolumeSource",
        ),
        (
            r#"{"spec":{"containers":[{"imagePullPolicy":3}]}}"#,
            "number into Go struct field Container.spec.containers.imagePullPolicy of type v1.PullPolicy",
        ),
        (
            r#"{"spec":{"containers":[{"resources":{"limits":[]}}]}}"#,
            "array into Go struct field ResourceRequirements.spec.containers.resources.limits of type v1.ResourceList",
        ),
        (
            r#"{"spec":{"nodeSelector":"x"}}"#,
            "string into Go struct field PodSpec.spec.nodeSelector of type map[string]string",
        ),
        (r#"{"spec":"x"}"#, "string into Go struct field Pod.spec of type v1.PodSpec"),
        (r#"{"metadata":[]}"#, "array into Go struct field Pod.metadata of type v1.ObjectMeta"),
        (
            r#"{"metadata":{"creationTimestamp":5}}"#,
            "number into Go struct field ObjectMeta.metadata.creationTimestamp of type string",
        ),
        (
            r#"{"spec":{"containers":[{"livenessProbe":{"httpGet":{"port":true}}}]}}"#,
            "bool into Go struct field HTTPGetAction.spec.containers.livenessProbe.ProbeHandler.httpGet.port of type int32",
        ),
        (
            r#"{"spec":{"ephemeralContainers":[{"name":5}]}}"#,
            "number into Go struct field EphemeralContainer.spec.ephemeralContainers.EphemeralContainerCommon.name of type string",
        ),
        (r#"{"kind":5}"#, "number into Go struct field Pod.TypeMeta.kind of type string"),
        (r"[]", "array into Go value of type v1.Pod"),
    ];
    for (text, expected) in cases {
        refused("v1/Pod", text, &format!("json: cannot unmarshal {expected}"));
    }
    refused(
        "apps/v1/ControllerRevision",
        r#"{"revision":1.0}"#,
        "json: cannot unmarshal number 1.0 into Go struct field ControllerRevision.revision of type int64",
    );
}

#[test]
fn an_error_of_a_types_own_decoder_beats_an_earlier_one() {
    const QUANTITY: &str =
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    refused("v1/Pod", r#"{"spec":{"overhead":{"cpu":"abc"}}}"#, QUANTITY);
    refused("v1/Pod", r#"{"spec":{"overhead":{"cpu":true}}}"#, QUANTITY);
    refused("v1/Pod", r#"{"metadata":{"labels":{"a":1}},"spec":{"overhead":{"cpu":"q"}}}"#, QUANTITY);
    refused(
        "v1/Pod",
        r#"{"metadata":{"creationTimestamp":"q"},"spec":{"containers":"x"}}"#,
        r#"parsing time "q" as "2006-01-02T15:04:05Z07:00": cannot parse "q" as "2006""#,
    );
    refused(
        "v1/Pod",
        r#"{"metadata":{"labels":{"a":1}},"spec":{"containers":"x"}}"#,
        "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
    );
}

#[test]
fn the_first_type_error_in_the_text_is_reported() {
    let kind = "json: cannot unmarshal number into Go struct field Pod.TypeMeta.kind of type string";
    let host = "json: cannot unmarshal number into Go struct field PodSpec.spec.hostname of type string";
    refused("v1/Pod", r#"{"kind":1,"spec":{"hostname":2}}"#, kind);
    refused("v1/Pod", r#"{"spec":{"hostname":2},"kind":1}"#, host);
    // Without a text, as for YAML, the first error by name is reported.
    let (_, outcome) = decode("v1/Pod", r#"{"spec":{"hostname":2},"kind":1}"#);
    assert_eq!(outcome.type_error(&[]).as_deref(), Some(kind));
    refused(
        "v1/Pod",
        r#"{"spec":{"overhead":{"cpu":"q"}},"metadata":{"creationTimestamp":"q"}}"#,
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
    );
}

#[test]
fn a_number_of_the_wrong_type_is_quoted_as_written() {
    for number in ["6e2", "9223372036854775808", "1.50", "-0.0", "1E+2", "4294967296"] {
        for text in [
            format!(r#"{{"spec":{{"priority":{number}}}}}"#),
            format!(r#"{{"spec": {{"priority" : {number} }}}}"#),
        ] {
            let into = "Go struct field PodSpec.spec.priority of type int32";
            refused("v1/Pod", &text, &format!("json: cannot unmarshal number {number} into {into}"));
        }
    }
    // The number of recorded errors is limited.
    let many = vec![r#"{"name":1}"#; 5_000].join(",");
    let (_, outcome) = decode("v1/Pod", &format!(r#"{{"spec":{{"containers":[{many}]}}}}"#));
    assert_eq!(outcome.mismatches.len(), 100);
}

#[test]
fn unknown_fields_are_named_by_path_and_dropped() {
    let (value, outcome) = decode(
        "v1/Pod",
        r#"{"metadata":{"lables":{}},"spec":{"bar":2,"containers":[{"foo":1,"name":"c"}],"volumes":[{"emptyDir":{"x":1},"name":"v"}]}}"#,
    );
    assert_eq!(outcome.type_error(&[]), None);
    assert_eq!(
        outcome.unknown,
        ["metadata.lables", "spec.bar", "spec.containers[0].foo", "spec.volumes[0].emptyDir.x"]
    );
    assert_eq!(
        write::to_string(&value),
        r#"{"metadata":{},"spec":{"containers":[{"name":"c"}],"volumes":[{"emptyDir":{},"name":"v"}]}}"#
    );
}

#[test]
fn field_names_are_case_sensitive() {
    assert_eq!(decode("v1/ConfigMap", r#"{"Data":{"a":"b"}}"#).1.unknown, ["Data"]);
}

#[test]
fn each_strict_error_is_reported_once() {
    let text = r#"{"metadata":{"name":"a","name":"x","labels":{"a":"b","a":"c"}},"spec":{"containers":[{"name":"c","name":"d"}],"zzz":{"a":1,"a":2}}}"#;
    let read = json::read(text.as_bytes()).unwrap();
    let mut value = read.value;
    let outcome = normalize(&mut value, kind("v1/Pod"));
    let mut duplicates = decoded_duplicates(kind("v1/Pod"), read.duplicates);
    duplicates.sort();
    assert_eq!(
        strict_errors(&outcome.unknown, &duplicates),
        [
            r#"unknown field "spec.zzz""#,
            r#"duplicate field "metadata.labels.a""#,
            r#"duplicate field "metadata.name""#,
            r#"duplicate field "spec.containers[0].name""#,
        ]
    );
    let raw =
        decoded_duplicates(kind("apps/v1/ControllerRevision"), vec!["data.x".into(), "revision".into()]);
    assert_eq!(raw, ["revision"]);
    assert_eq!(strict_errors(&["a".into(), "a".into()], &[]).len(), 1);
}

#[test]
fn empty_plain_fields_vanish_and_pointers_stay() {
    becomes(
        "v1/Pod",
        r#"{"spec":{"hostNetwork":false,"hostPID":true,"securityContext":{},"nodeName":"","priority":0,"tolerations":[],"nodeSelector":{},"enableServiceLinks":false,"affinity":null}}"#,
        r#"{"spec":{"enableServiceLinks":false,"hostPID":true,"priority":0,"securityContext":{}}}"#,
    );
    becomes(
        "v1/ConfigMap",
        r#"{"data":{"a":null,"b":""},"immutable":false}"#,
        r#"{"data":{"a":"","b":""},"immutable":false}"#,
    );
    becomes("rbac.authorization.k8s.io/v1/ClusterRole", r#"{"rules":[]}"#, "{}");
    becomes(
        "apiextensions.k8s.io/v1/CustomResourceDefinition",
        r#"{"status":{"acceptedNames":{},"conditions":[],"storedVersions":[]}}"#,
        r#"{"status":{"acceptedNames":{},"conditions":[],"storedVersions":[]}}"#,
    );
    becomes(
        "v1/Pod",
        r#"{"spec":{"containers":[null],"imagePullSecrets":[null]}}"#,
        r#"{"spec":{"containers":[{}],"imagePullSecrets":[{}]}}"#,
    );
}

#[test]
fn quantities_times_and_bytes_become_canonical() {
    becomes(
        "v1/Pod",
        r#"{"spec":{"overhead":{"a":"1000m","b":1,"c":0.5,"d":"0.5Gi","e":null," f":" 1 "}}}"#,
        r#"{"spec":{"overhead":{" f":"1","a":"1","b":"1","c":"500m","d":"512Mi","e":"0"}}}"#,
    );
    becomes(
        "v1/Pod",
        r#"{"metadata":{"creationTimestamp":"2026-01-02T03:04:05.678+01:00","deletionTimestamp":"2026-01-02T03:04:05Z"}}"#,
        r#"{"metadata":{"creationTimestamp":"2026-01-02T02:04:05Z","deletionTimestamp":"2026-01-02T03:04:05Z"}}"#,
    );
    becomes("v1/Pod", r#"{"metadata":{"creationTimestamp":null}}"#, r#"{"metadata":{}}"#);
    becomes("v1/Pod", r#"{"metadata":{"creationTimestamp":"0001-01-01T00:00:00Z"}}"#, r#"{"metadata":{}}"#);
    becomes(
        "coordination.k8s.io/v1/Lease",
        r#"{"spec":{"renewTime":"2026-01-02T03:04:05.000000+00:00"}}"#,
        r#"{"spec":{"renewTime":"2026-01-02T03:04:05.000000Z"}}"#,
    );
    becomes(
        "v1/Secret",
        r#"{"data":{"a":"YWJj\nZA==","b":"YR==","c":[97,98]}}"#,
        r#"{"data":{"a":"YWJjZA==","b":"YQ==","c":"YWI="}}"#,
    );
}

#[test]
fn bytes_that_are_not_base64_are_refused_with_the_offset() {
    for (text, at) in
        [("abc", 0), ("!!!!", 0), ("YQ=", 3), ("YQ==x", 4), ("Y", 0), ("YWJjYQ", 4), ("YWJj=", 4)]
    {
        let body = format!(r#"{{"data":{{"k":"{text}"}}}}"#);
        refused("v1/Secret", &body, &format!("illegal base64 data at input byte {at}"));
    }
    refused(
        "v1/Secret",
        r#"{"data":{"k":5}}"#,
        "json: cannot unmarshal number into Go struct field Secret.data of type []uint8",
    );
    refused(
        "v1/Secret",
        r#"{"data":{"k":["a"]}}"#,
        "json: cannot unmarshal string into Go struct field Secret.data of type uint8",
    );
}

#[test]
fn raw_json_is_preserved() {
    becomes(
        "apps/v1/ControllerRevision",
        r#"{"data":{"x":null,"y":[],"z":{"spec":{}}},"revision":3}"#,
        r#"{"data":{"x":null,"y":[],"z":{"spec":{}}},"revision":3}"#,
    );
}

#[test]
fn crd_schema_unions_accept_both_of_their_forms() {
    let of = "apiextensions.k8s.io/v1/CustomResourceDefinition";
    let wrap = |props: &str| {
        format!(r#"{{"spec":{{"versions":[{{"name":"v1","schema":{{"openAPIV3Schema":{props}}}}}]}}}}"#)
    };
    for props in [
        r#"{"additionalProperties":true}"#,
        r#"{"additionalProperties":{"type":"string"}}"#,
        r#"{"items":{"type":"string"}}"#,
        r#"{"items":[{"type":"string"}]}"#,
        r#"{"dependencies":{"a":["b"]}}"#,
    ] {
        becomes(of, &wrap(props), &wrap(props));
    }
    refused(of, &wrap(r#"{"additionalProperties":5}"#), "boolean or JSON schema expected");
    refused(
        of,
        &wrap(r#"{"items":{"minimum":"x"}}"#),
        "json: cannot unmarshal string into Go struct field JSONSchemaProps.spec.versions.schema.openAPIV3Schema.items.minimum of type float64",
    );
    // A type's own decoder is not strict.
    assert!(decode(of, &wrap(r#"{"items":{"foo":1}}"#)).1.unknown.is_empty());
    assert_eq!(decode(of, &wrap(r#"{"foo":1}"#)).1.unknown, ["spec.versions[0].schema.openAPIV3Schema.foo"]);
}

#[test]
fn empty_parts_of_a_crd_schema_are_validated_but_not_written() {
    let of = "apiextensions.k8s.io/v1/CustomResourceDefinition";
    let text = |schema: &str| {
        format!(r#"{{"spec":{{"versions":[{{"name":"v1","schema":{{"openAPIV3Schema":{schema}}}}}]}}}}"#)
    };
    let sent = text(r#"{"allOf":[],"items":{"properties":{}},"not":{"items":[]},"required":[],"type":"x"}"#);
    let (mut value, _) = decode(of, &sent);
    assert!(write::to_string(&value).contains(r#"{"allOf":[],"items":{"properties":{}}"#));
    fill(&mut value, kind(of));
    assert!(write::to_string(&value).contains(r#"{"openAPIV3Schema":{"items":{},"not":{},"type":"x"}}"#));
}

#[test]
fn a_number_that_is_converted_keeps_its_lower_bits() {
    let converted = |number: &str| {
        let mut value = json::parse(format!(r#"{{"spec":{{"replicas":{number}}}}}"#).as_bytes()).unwrap();
        let outcome = super::convert(&mut value, kind("apps/v1/Deployment"));
        outcome.type_error(&[]).unwrap_or_else(|| write::to_string(value.at(&["spec", "replicas"]).unwrap()))
    };
    assert_eq!(converted("3000000000"), "-1294967296");
    assert_eq!(converted("4294967297"), "1");
    assert_eq!(converted("3.0"), "3");
    assert_eq!(converted("1e30"), "0");
    assert_eq!(converted("18446744073709551615"), "0");
    assert_eq!(converted("1.5"), "cannot convert float64 to int32");
    let mut value = json::parse(br#"{"spec":{"ports":[{"port":1,"targetPort":3000000000}]}}"#).unwrap();
    assert_eq!(
        super::convert(&mut value, kind("v1/Service")).type_error(&[]).as_deref(),
        Some("json: cannot unmarshal number 3000000000 into Go value of type int32")
    );
    refused(
        "apps/v1/Deployment",
        r#"{"spec":{"replicas":3000000000}}"#,
        "json: cannot unmarshal number 3000000000 into Go struct field DeploymentSpec.spec.replicas of type int32",
    );
}

#[test]
fn fill_adds_fields_that_go_never_omits() {
    let filled = |of: &str, text: &str| {
        let (mut value, _) = decode(of, text);
        fill(&mut value, kind(of));
        write::to_string(&value)
    };
    assert_eq!(
        filled("v1/Pod", r#"{"spec":{"containers":[{"name":"c"}]}}"#),
        r#"{"metadata":{},"spec":{"containers":[{"name":"c","resources":{}}]},"status":{}}"#
    );
    assert_eq!(filled("v1/Pod", "{}"), r#"{"metadata":{},"spec":{"containers":null},"status":{}}"#);
    assert_eq!(
        filled("rbac.authorization.k8s.io/v1/ClusterRole", r#"{"rules":[]}"#),
        r#"{"metadata":{},"rules":null}"#
    );
    assert_eq!(
        filled("apps/v1/Deployment", r#"{"spec":{"replicas":0}}"#),
        r#"{"metadata":{},"spec":{"replicas":0,"selector":null,"strategy":{},"template":{"metadata":{},"spec":{"containers":null}}},"status":{}}"#
    );
    assert_eq!(
        filled("v1/Service", r#"{"spec":{"ports":[{"port":1}]}}"#),
        r#"{"metadata":{},"spec":{"ports":[{"port":1,"targetPort":0}]},"status":{"loadBalancer":{}}}"#
    );
}

#[test]
fn empty_lists_that_validation_rejects_are_preserved() {
    let slice = "resource.k8s.io/v1/ResourceSlice";
    becomes(
        slice,
        r#"{"spec":{"devices":[],"sharedCounters":[{"name":"c"}]}}"#,
        r#"{"spec":{"devices":[],"sharedCounters":[{"name":"c"}]}}"#,
    );
    becomes(slice, r#"{"spec":{"devices":[],"nodeName":"n"}}"#, r#"{"spec":{"nodeName":"n"}}"#);
    let claim = "resource.k8s.io/v1beta1/ResourceClaim";
    let wrapped = |request: &str| format!(r#"{{"spec":{{"devices":{{"requests":[{request}]}}}}}}"#);
    for (sent, expected) in [
        (
            r#"{"firstAvailable":[{"name":"s"}],"selectors":[]}"#,
            r#"{"firstAvailable":[{"name":"s"}],"selectors":[]}"#,
        ),
        (r#"{"name":"r","tolerations":[]}"#, r#"{"name":"r","tolerations":[]}"#),
        (r#"{"deviceClassName":"c","selectors":[]}"#, r#"{"deviceClassName":"c"}"#),
        (r#"{"deviceClassName":"c","firstAvailable":[],"selectors":[]}"#, r#"{"deviceClassName":"c"}"#),
    ] {
        becomes(claim, &wrapped(sent), &wrapped(expected));
    }
}

#[test]
fn zero_values_are_absent_until_fill_adds_them() {
    let pod = |field: &str| {
        format!(
            r#"{{"spec":{{"containers":[{{"env":[{{"name":"E","valueFrom":{{"resourceFieldRef":{{"resource":"limits.cpu"{field}}}}}}}],"name":"c"}}]}}}}"#
        )
    };
    for divisor in ["", r#","divisor":"0""#] {
        becomes("v1/Pod", &pod(divisor), &pod(""));
    }
    let header = |value: &str| {
        format!(
            r#"{{"spec":{{"containers":[{{"livenessProbe":{{"httpGet":{{"httpHeaders":[{{"name":"E"{value}}}],"port":1}}}},"name":"c"}}]}}}}"#
        )
    };
    for value in ["", r#","value":"""#] {
        becomes("v1/Pod", &header(value), &header(""));
    }
}
