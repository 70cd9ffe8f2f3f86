//! Formats parts of a CRD as Kubernetes prints them in errors: as its internal structs, with every field under its Go name.

use std::fmt::Write as _;

use value::{Value, write};

use api::validation::fields::Read;

pub(super) fn rule(rule: &Value) -> String {
    let text = |field| write::to_string(&Value::from(rule.text(field)));
    let or_null = |field: &str| rule.part(field).map_or_else(|| "null".to_owned(), write::to_string);
    format!(
        r#"{{"Rule":{},"Message":{},"MessageExpression":{},"Reason":{},"FieldPath":{},"OptionalOldSelf":{}}}"#,
        text("rule"),
        text("message"),
        text("messageExpression"),
        or_null("reason"),
        text("fieldPath"),
        or_null("optionalOldSelf")
    )
}

pub(super) fn versions(spec: &Value) -> String {
    list(spec, "versions", version)
}

/// Formats a list. Go prints an absent list as null and an empty one as `[]`.
fn list(of: &Value, name: &str, item: impl Fn(&Value) -> String) -> String {
    match of.part(name).and_then(Value::as_list) {
        None => "null".to_owned(),
        Some(items) => format!("[{}]", items.iter().map(item).collect::<Vec<_>>().join(",")),
    }
}

fn entries(of: &Value, name: &str, entry: impl Fn(&Value) -> String) -> String {
    let Some(map) = of.map_of(name) else { return "null".to_owned() };
    let entries: Vec<String> = map
        .iter()
        .map(|(key, value)| format!("{}:{}", write::to_string(&Value::from(key.clone())), entry(value)))
        .collect();
    format!("{{{}}}", entries.join(","))
}

fn version(version: &Value) -> String {
    let or_null = |field: &str| version.part(field).map_or_else(|| "null".to_owned(), write::to_string);
    let validation = match version.part("schema") {
        None => "null".to_owned(),
        Some(validation) => {
            let inner = validation.part("openAPIV3Schema").map_or_else(|| "null".to_owned(), schema);
            format!(r#"{{"OpenAPIV3Schema":{inner}}}"#)
        }
    };
    let subresources = match version.part("subresources") {
        None => "null".to_owned(),
        Some(subresources) => {
            let status = if subresources.part("status").is_some() { "{}" } else { "null" };
            let scale = match subresources.part("scale") {
                None => "null".to_owned(),
                Some(scale) => {
                    let text = |field| write::to_string(&Value::from(scale.text(field)));
                    format!(
                        r#"{{"SpecReplicasPath":{},"StatusReplicasPath":{},"LabelSelectorPath":{}}}"#,
                        text("specReplicasPath"),
                        text("statusReplicasPath"),
                        scale.part("labelSelectorPath").map_or_else(|| "null".to_owned(), write::to_string)
                    )
                }
            };
            format!(r#"{{"Status":{status},"Scale":{scale}}}"#)
        }
    };
    let columns = list(version, "additionalPrinterColumns", |column| {
        let text = |field| write::to_string(&Value::from(column.text(field)));
        format!(
            r#"{{"Name":{},"Type":{},"Format":{},"Description":{},"Priority":{},"JSONPath":{}}}"#,
            text("name"),
            text("type"),
            text("format"),
            text("description"),
            column.number("priority"),
            text("jsonPath")
        )
    });
    let selectable = list(version, "selectableFields", |field| {
        format!(r#"{{"JSONPath":{}}}"#, write::to_string(&Value::from(field.text("jsonPath"))))
    });
    format!(
        r#"{{"Name":{},"Served":{},"Storage":{},"Deprecated":{},"DeprecationWarning":{},"Schema":{validation},"Subresources":{subresources},"AdditionalPrinterColumns":{columns},"SelectableFields":{selectable}}}"#,
        write::to_string(&Value::from(version.text("name"))),
        version.flag("served"),
        version.flag("storage"),
        version.flag("deprecated"),
        or_null("deprecationWarning"),
    )
}

/// The type of a `JSONSchemaProps` field.
enum GoFieldType {
    Text,
    Flag,
    /// Any value, printed as it is; null if absent.
    Plain,
    Schema,
    Schemas,
    SchemaMap,
    SchemaOrArray,
    SchemaOrBool,
    Dependencies,
    Documentation,
    Rules,
}

/// Every field in the order of the struct: Go name, JSON name and type.
const FIELDS: &[(&str, &str, GoFieldType)] = &[
    ("ID", "id", GoFieldType::Text),
    ("Schema", "$schema", GoFieldType::Text),
    ("Ref", "$ref", GoFieldType::Plain),
    ("Description", "description", GoFieldType::Text),
    ("Type", "type", GoFieldType::Text),
    ("Nullable", "nullable", GoFieldType::Flag),
    ("Format", "format", GoFieldType::Text),
    ("Title", "title", GoFieldType::Text),
    ("Default", "default", GoFieldType::Plain),
    ("Maximum", "maximum", GoFieldType::Plain),
    ("ExclusiveMaximum", "exclusiveMaximum", GoFieldType::Flag),
    ("Minimum", "minimum", GoFieldType::Plain),
    ("ExclusiveMinimum", "exclusiveMinimum", GoFieldType::Flag),
    ("MaxLength", "maxLength", GoFieldType::Plain),
    ("MinLength", "minLength", GoFieldType::Plain),
    ("Pattern", "pattern", GoFieldType::Text),
    ("MaxItems", "maxItems", GoFieldType::Plain),
    ("MinItems", "minItems", GoFieldType::Plain),
    ("UniqueItems", "uniqueItems", GoFieldType::Flag),
    ("MultipleOf", "multipleOf", GoFieldType::Plain),
    ("Enum", "enum", GoFieldType::Plain),
    ("MaxProperties", "maxProperties", GoFieldType::Plain),
    ("MinProperties", "minProperties", GoFieldType::Plain),
    ("Required", "required", GoFieldType::Plain),
    ("Items", "items", GoFieldType::SchemaOrArray),
    ("AllOf", "allOf", GoFieldType::Schemas),
    ("OneOf", "oneOf", GoFieldType::Schemas),
    ("AnyOf", "anyOf", GoFieldType::Schemas),
    ("Not", "not", GoFieldType::Schema),
    ("Properties", "properties", GoFieldType::SchemaMap),
    ("AdditionalProperties", "additionalProperties", GoFieldType::SchemaOrBool),
    ("PatternProperties", "patternProperties", GoFieldType::SchemaMap),
    ("Dependencies", "dependencies", GoFieldType::Dependencies),
    ("AdditionalItems", "additionalItems", GoFieldType::SchemaOrBool),
    ("Definitions", "definitions", GoFieldType::SchemaMap),
    ("ExternalDocs", "externalDocs", GoFieldType::Documentation),
    ("Example", "example", GoFieldType::Plain),
    ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields", GoFieldType::Plain),
    ("XEmbeddedResource", "x-kubernetes-embedded-resource", GoFieldType::Flag),
    ("XIntOrString", "x-kubernetes-int-or-string", GoFieldType::Flag),
    ("XListMapKeys", "x-kubernetes-list-map-keys", GoFieldType::Plain),
    ("XListType", "x-kubernetes-list-type", GoFieldType::Plain),
    ("XMapType", "x-kubernetes-map-type", GoFieldType::Plain),
    ("XValidations", "x-kubernetes-validations", GoFieldType::Rules),
];

/// The Go names of the `JSONSchemaProps` fields that are set, in the order of the struct.
pub(super) fn fields_set(schema: &Value) -> impl Iterator<Item = &'static str> {
    FIELDS.iter().filter(|(_, name, form)| is_set(schema, name, form)).map(|(go, _, _)| *go)
}

fn is_set(schema: &Value, name: &str, form: &GoFieldType) -> bool {
    match form {
        GoFieldType::Text => !schema.text(name).is_empty(),
        GoFieldType::Flag => schema.flag(name),
        // An empty list, which was decoded as null, counts as set.
        GoFieldType::SchemaOrArray => schema.get(name).is_some(),
        _ => schema.part(name).is_some(),
    }
}

pub(super) fn schema(value: &Value) -> String {
    let mut out = String::from("{");
    for (i, (go, name, form)) in FIELDS.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        let _ = write!(out, "\"{go}\":{}", field(value, name, form));
    }
    out.push('}');
    out
}

fn field(value: &Value, name: &str, form: &GoFieldType) -> String {
    let null = || "null".to_owned();
    match form {
        GoFieldType::Text => write::to_string(&Value::from(value.text(name))),
        GoFieldType::Flag => value.flag(name).to_string(),
        GoFieldType::Plain => value.part(name).map_or_else(null, write::to_string),
        GoFieldType::Schema => value.part(name).map_or_else(null, schema),
        GoFieldType::Schemas => list(value, name, schema),
        GoFieldType::SchemaMap => entries(value, name, schema),
        GoFieldType::Dependencies => entries(value, name, |dependency| match dependency {
            Value::List(_) => format!(r#"{{"Schema":null,"Property":{}}}"#, write::to_string(dependency)),
            Value::Map(_) => format!(r#"{{"Schema":{},"Property":null}}"#, schema(dependency)),
            _ => r#"{"Schema":null,"Property":null}"#.to_owned(),
        }),
        GoFieldType::Documentation => value.part(name).map_or_else(null, |docs| {
            let text = |field| write::to_string(&Value::from(docs.text(field)));
            format!(r#"{{"Description":{},"URL":{}}}"#, text("description"), text("url"))
        }),
        GoFieldType::SchemaOrArray => value.get(name).map_or_else(null, items),
        GoFieldType::SchemaOrBool => match value.part(name) {
            None => null(),
            Some(Value::Bool(allows)) => format!(r#"{{"Allows":{allows},"Schema":null}}"#),
            Some(inner) => format!(r#"{{"Allows":true,"Schema":{}}}"#, schema(inner)),
        },
        GoFieldType::Rules => list(value, name, rule),
    }
}

/// A schema or a list of schemas. An empty list was decoded as null.
pub(super) fn items(value: &Value) -> String {
    match value {
        Value::Null => r#"{"Schema":null,"JSONSchemas":[]}"#.to_owned(),
        Value::List(items) => {
            format!(
                r#"{{"Schema":null,"JSONSchemas":[{}]}}"#,
                items.iter().map(schema).collect::<Vec<_>>().join(",")
            )
        }
        inner => format!(r#"{{"Schema":{},"JSONSchemas":null}}"#, schema(inner)),
    }
}
