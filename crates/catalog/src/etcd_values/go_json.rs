//! JSON with the fields in the order of Kubernetes' Go structs, for the two kinds that it stores as typed JSON.

use value::{Value, write};

/// A field of a struct, in the order in which Go writes them.
type GoField = (&'static str, FieldType);

/// How a field is written.
#[derive(Clone, Copy)]
enum FieldType {
    /// Maps with sorted keys.
    Plain,
    Struct(&'static [GoField]),
    ListOf(&'static [GoField]),
    /// A list that Go writes as `null` if it is empty.
    NullableListOf(&'static [GoField]),
    /// A struct that Go writes even if it is empty.
    Always(&'static [GoField]),
    /// Text that Go writes even if it is empty.
    AlwaysText,
    /// The schema of a custom resource, or a union of it and another type.
    Schema,
    /// A list, or a map, of schemas.
    Schemas,
}

use FieldType::{Always, AlwaysText, ListOf, NullableListOf, Plain, Schema, Schemas, Struct};

const METADATA: &[GoField] = &[
    ("name", Plain),
    ("generateName", Plain),
    ("namespace", Plain),
    ("selfLink", Plain),
    ("uid", Plain),
    ("resourceVersion", Plain),
    ("generation", Plain),
    ("creationTimestamp", Plain),
    ("deletionTimestamp", Plain),
    ("deletionGracePeriodSeconds", Plain),
    ("labels", Plain),
    ("annotations", Plain),
    (
        "ownerReferences",
        ListOf(&[
            ("apiVersion", Plain),
            ("kind", Plain),
            ("name", Plain),
            ("uid", Plain),
            ("controller", Plain),
            ("blockOwnerDeletion", Plain),
        ]),
    ),
    ("finalizers", Plain),
    (
        "managedFields",
        ListOf(&[
            ("manager", Plain),
            ("operation", Plain),
            ("apiVersion", Plain),
            ("time", Plain),
            ("fieldsType", Plain),
            ("fieldsV1", Plain),
            ("subresource", Plain),
        ]),
    ),
];

const CONDITION: &[GoField] = &[
    ("type", Plain),
    ("status", Plain),
    ("lastTransitionTime", Plain),
    ("reason", Plain),
    ("message", Plain),
];

/// The condition of a CRD, which also has the generation it was observed at.
const CRD_CONDITION: &[GoField] = &[
    ("type", Plain),
    ("status", Plain),
    ("lastTransitionTime", Plain),
    ("reason", Plain),
    ("message", Plain),
    ("observedGeneration", Plain),
];

const API_SERVICE: &[GoField] = &[
    ("kind", Plain),
    ("apiVersion", Plain),
    ("metadata", Struct(METADATA)),
    (
        "spec",
        Struct(&[
            ("service", Struct(&[("namespace", Plain), ("name", Plain), ("port", Plain)])),
            ("group", Plain),
            ("version", Plain),
            ("insecureSkipTLSVerify", Plain),
            ("caBundle", Plain),
            ("groupPriorityMinimum", Plain),
            ("versionPriority", Plain),
        ]),
    ),
    ("status", Always(&[("conditions", ListOf(CONDITION))])),
];

const NAMES: &[GoField] = &[
    ("plural", AlwaysText),
    ("singular", Plain),
    ("shortNames", Plain),
    ("kind", AlwaysText),
    ("listKind", Plain),
    ("categories", Plain),
];

const SUBRESOURCES: &[GoField] = &[
    ("status", Plain),
    (
        "scale",
        Struct(&[("specReplicasPath", Plain), ("statusReplicasPath", Plain), ("labelSelectorPath", Plain)]),
    ),
];

const COLUMN: &[GoField] = &[
    ("name", Plain),
    ("type", Plain),
    ("format", Plain),
    ("description", Plain),
    ("priority", Plain),
    ("JSONPath", AlwaysText),
];

const CRD: &[GoField] = &[
    ("kind", Plain),
    ("apiVersion", Plain),
    ("metadata", Struct(METADATA)),
    (
        "spec",
        Struct(&[
            ("group", Plain),
            ("version", Plain),
            ("names", Struct(NAMES)),
            ("scope", Plain),
            ("validation", Struct(&[("openAPIV3Schema", Schema)])),
            ("subresources", Struct(SUBRESOURCES)),
            (
                "versions",
                ListOf(&[
                    ("name", Plain),
                    ("served", Plain),
                    ("storage", Plain),
                    ("deprecated", Plain),
                    ("deprecationWarning", Plain),
                    ("schema", Struct(&[("openAPIV3Schema", Schema)])),
                    ("subresources", Struct(SUBRESOURCES)),
                    ("additionalPrinterColumns", ListOf(COLUMN)),
                    ("selectableFields", Plain),
                ]),
            ),
            ("additionalPrinterColumns", ListOf(COLUMN)),
            ("selectableFields", Plain),
            (
                "conversion",
                Struct(&[
                    ("strategy", Plain),
                    (
                        "webhookClientConfig",
                        Struct(&[
                            ("url", Plain),
                            (
                                "service",
                                Struct(&[
                                    ("namespace", Plain),
                                    ("name", Plain),
                                    ("path", Plain),
                                    ("port", Plain),
                                ]),
                            ),
                            ("caBundle", Plain),
                        ]),
                    ),
                    ("conversionReviewVersions", Plain),
                ]),
            ),
            ("preserveUnknownFields", Plain),
        ]),
    ),
    (
        "status",
        Always(&[
            ("conditions", NullableListOf(CRD_CONDITION)),
            ("acceptedNames", Always(NAMES)),
            ("storedVersions", Plain),
            ("observedGeneration", Plain),
        ]),
    ),
];

const SCHEMA: &[GoField] = &[
    ("id", Plain),
    ("$schema", Plain),
    ("$ref", Plain),
    ("description", Plain),
    ("type", Plain),
    ("format", Plain),
    ("title", Plain),
    ("default", Plain),
    ("maximum", Plain),
    ("exclusiveMaximum", Plain),
    ("minimum", Plain),
    ("exclusiveMinimum", Plain),
    ("maxLength", Plain),
    ("minLength", Plain),
    ("pattern", Plain),
    ("maxItems", Plain),
    ("minItems", Plain),
    ("uniqueItems", Plain),
    ("multipleOf", Plain),
    ("enum", Plain),
    ("maxProperties", Plain),
    ("minProperties", Plain),
    ("required", Plain),
    ("items", Schema),
    ("allOf", Schemas),
    ("oneOf", Schemas),
    ("anyOf", Schemas),
    ("not", Schema),
    ("properties", Schemas),
    ("additionalProperties", Schema),
    ("patternProperties", Schemas),
    ("dependencies", Schemas),
    ("additionalItems", Schema),
    ("definitions", Schemas),
    ("externalDocs", Struct(&[("description", Plain), ("url", Plain)])),
    ("example", Plain),
    ("nullable", Plain),
    ("x-kubernetes-preserve-unknown-fields", Plain),
    ("x-kubernetes-embedded-resource", Plain),
    ("x-kubernetes-int-or-string", Plain),
    ("x-kubernetes-list-map-keys", Plain),
    ("x-kubernetes-list-type", Plain),
    ("x-kubernetes-map-type", Plain),
    (
        "x-kubernetes-validations",
        ListOf(&[
            ("rule", Plain),
            ("message", Plain),
            ("messageExpression", Plain),
            ("reason", Plain),
            ("fieldPath", Plain),
            ("optionalOldSelf", Plain),
        ]),
    ),
];

/// Encodes a CRD in v1beta1.
pub(super) fn crd(crd: &Value) -> Vec<u8> {
    encoded(crd, CRD)
}

pub(super) fn api_service(service: &Value) -> Vec<u8> {
    encoded(service, API_SERVICE)
}

fn encoded(object: &Value, fields: &[GoField]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    structure(&mut out, Some(object), fields);
    out.push(b'\n');
    out
}

fn structure(out: &mut Vec<u8>, object: Option<&Value>, fields: &[GoField]) {
    out.push(b'{');
    let mut is_first = true;
    for (name, form) in fields {
        let value = object.and_then(|object| object.at(&[name]));
        if value.is_none() && !matches!(form, Always(_) | AlwaysText | NullableListOf(_)) {
            continue;
        }
        if !std::mem::take(&mut is_first) {
            out.push(b',');
        }
        write::string(out, name);
        out.push(b':');
        field(out, value, *form);
    }
    out.push(b'}');
}

fn field(out: &mut Vec<u8>, value: Option<&Value>, form: FieldType) {
    match (form, value) {
        (Always(fields) | Struct(fields), _) => structure(out, value, fields),
        (AlwaysText, None) => out.extend_from_slice(b"\"\""),
        (_, None) => out.extend_from_slice(b"null"),
        (ListOf(fields) | NullableListOf(fields), Some(Value::List(items))) => {
            write::list(out, items, |out, item| structure(out, Some(item), fields));
        }
        (Schema, Some(schema @ Value::Map(_))) => structure(out, Some(schema), SCHEMA),
        (Schema | Schemas, Some(Value::List(items))) => {
            write::list(out, items, |out, item| field(out, Some(item), Schema));
        }
        (Schemas, Some(Value::Map(map))) => write::map(out, map, |out, item| field(out, Some(item), Schema)),
        (_, Some(other)) => write::write(out, other),
    }
}
