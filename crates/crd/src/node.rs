//! [`SchemaNode`]: a CRD schema (`JSONSchemaProps`) parsed into a tree.

use std::collections::HashSet;
use std::sync::OnceLock;

use cel::pattern::Pattern;
use value::{Map, Str, Value};

use api::validation::fields::Read;

/// Limit on the depth of schemas, equal to the depth limit of parsed JSON.
const DEEPEST: usize = value::json::MAX_DEPTH;

#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "the fields of a schema, each of them a fact of its own")]
pub struct SchemaNode {
    /// `object`, `array`, `string`, `integer`, `number` or `boolean`; empty if any type is allowed.
    pub kind: Str,
    pub nullable: bool,
    pub default: Option<Value>,
    /// The fields of an object, sorted by name.
    pub properties: Vec<(Str, SchemaNode)>,
    pub additional: Option<Additional>,
    pub items: Option<Box<SchemaNode>>,
    /// Schema extension `x-kubernetes-preserve-unknown-fields` is true.
    pub preserve: bool,
    /// Schema extension `x-kubernetes-embedded-resource` is true.
    pub embedded: bool,
    /// Schema extension `x-kubernetes-int-or-string` is true.
    pub int_or_string: bool,
    /// Value of `x-kubernetes-list-type`: `atomic`, `set` or `map`.
    pub list_type: Option<Str>,
    /// Value of `x-kubernetes-list-map-keys`, for lists of type `map`.
    pub list_map_keys: Vec<Str>,
    /// Value of `x-kubernetes-map-type`: `granular` or `atomic`.
    pub map_type: Option<Str>,
    /// CEL rules from `x-kubernetes-validations`.
    pub rules: Vec<ValidationRule>,
    pub required: Vec<Str>,
    /// Value validations such as `pattern` and `anyOf`; `None` if there are none.
    pub checks: Option<Box<Checks>>,
}

/// `additionalProperties`, either a boolean or a schema.
#[derive(Debug)]
pub struct Additional {
    /// Whether additional properties are allowed.
    pub allows: bool,
    pub node: Option<Box<SchemaNode>>,
}

/// Value validations, as opposed to the structural part of a schema.
#[derive(Debug, Default)]
pub struct Checks {
    /// The format as written; empty if Kubernetes does not recognize it.
    pub format: Str,
    pub(crate) maximum: Option<f64>,
    pub(crate) exclusive_maximum: bool,
    pub(crate) minimum: Option<f64>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) max_length: Option<i64>,
    pub(crate) min_length: Option<i64>,
    pub(crate) max_items: Option<i64>,
    pub(crate) min_items: Option<i64>,
    pub(crate) max_properties: Option<i64>,
    pub(crate) min_properties: Option<i64>,
    pub(crate) unique_items: bool,
    pub(crate) pattern: Option<LazyPattern>,
    pub(crate) enumeration: Enumeration,
    pub(crate) all_of: Vec<SchemaNode>,
    pub(crate) any_of: Vec<SchemaNode>,
    pub(crate) one_of: Vec<SchemaNode>,
    pub(crate) not: Option<Box<SchemaNode>>,
}

/// The allowed values with an index of the strings. A CRD may have as many values as fit into it, and every item of a list is looked
/// up.
#[derive(Debug, Default)]
pub(crate) struct Enumeration {
    values: Vec<Value>,
    texts: HashSet<Str>,
    /// The number of parts of all values, which bounds the work of comparing with them.
    parts: usize,
}

impl Enumeration {
    fn new(values: &[Value]) -> Self {
        let texts = values.iter().filter_map(|value| match value {
            Value::String(text) => Some(text.clone()),
            _ => None,
        });
        let parts = values.iter().map(parts).sum();
        Enumeration { texts: texts.collect(), values: values.to_vec(), parts }
    }

    /// The cost of looking up a value.
    pub(crate) fn steps(&self, value: &Value) -> usize {
        match value {
            Value::String(_) => 1,
            Value::List(_) | Value::Map(_) => self.parts,
            _ => self.values.len(),
        }
    }

    /// Whether there is no `enum`, so that every value is allowed.
    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The allowed values in the order of the CRD.
    pub(crate) fn values(&self) -> &[Value] {
        &self.values
    }

    /// Whether `value` is allowed. `same` compares values that are not strings.
    pub(crate) fn has(&self, value: &Value, same: impl Fn(&Value, &Value) -> bool) -> bool {
        match value {
            Value::String(text) => self.texts.contains(text),
            other => self.values.iter().any(|allowed| same(other, allowed)),
        }
    }
}

/// The number of parts that comparing a value may visit. A long string counts as several.
fn parts(value: &Value) -> usize {
    const TEXT: usize = 64;
    match value {
        Value::String(text) => 1 + text.len() / TEXT,
        Value::List(items) => 1 + items.iter().map(parts).sum::<usize>(),
        Value::Map(map) => {
            1 + map.iter().map(|(key, value)| 1 + key.len() / TEXT + parts(value)).sum::<usize>()
        }
        _ => 1,
    }
}

/// A pattern that is compiled on first use.
#[derive(Debug)]
pub(crate) struct LazyPattern {
    pub(crate) text: Str,
    compiled: OnceLock<Result<Pattern, String>>,
}

impl LazyPattern {
    /// The compiled pattern, or the error in Go's wording.
    pub(crate) fn get(&self) -> &Result<Pattern, String> {
        self.compiled.get_or_init(|| Pattern::compile(&self.text).map_err(|error| error.to_string()))
    }
}

/// One entry of `x-kubernetes-validations`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValidationRule {
    pub rule: Str,
    pub message: Str,
    /// Expression that computes the message.
    pub message_expression: Str,
    /// The kind of error; empty means `FieldValueInvalid`.
    pub reason: Str,
    /// The field that the error reports, relative to the value of the rule.
    pub field_path: Str,
    /// Whether `oldSelf` is an optional value.
    pub optional_old_self: Option<bool>,
}

impl ValidationRule {
    pub fn read(rule: &Value) -> Self {
        ValidationRule {
            rule: rule.text("rule").into(),
            message: rule.text("message").into(),
            message_expression: rule.text("messageExpression").into(),
            reason: rule.text("reason").into(),
            field_path: rule.text("fieldPath").into(),
            optional_old_self: rule.flag_if_set("optionalOldSelf"),
        }
    }
}

impl SchemaNode {
    pub fn read(schema: &Value) -> SchemaNode {
        read(schema, 0)
    }

    /// The schema as Kubernetes validates defaults with it: without `x-kubernetes-int-or-string` at any depth and with every format,
    /// whether or not it is recognized for the type.
    pub fn for_defaults(schema: &Value) -> SchemaNode {
        let mut node = SchemaNode::read(schema);
        node.adapt_for_defaults(schema);
        node
    }

    fn adapt_for_defaults(&mut self, schema: &Value) {
        self.int_or_string = false;
        if let Some(checks) = &mut self.checks {
            checks.format = schema.text("format").into();
        }
        for (name, node) in &mut self.properties {
            if let Some(schema) = schema.at(&["properties", name]) {
                node.adapt_for_defaults(schema);
            }
        }
        let values = self.additional.as_mut().and_then(|additional| additional.node.as_deref_mut());
        for (node, field) in [(self.items.as_deref_mut(), "items"), (values, "additionalProperties")] {
            if let (Some(node), Some(schema)) = (node, schema.get(field)) {
                node.adapt_for_defaults(schema);
            }
        }
    }

    pub fn property(&self, name: &str) -> Option<&SchemaNode> {
        let at = self.properties.binary_search_by(|(known, _)| known.as_str().cmp(name)).ok()?;
        self.properties.get(at).map(|(_, node)| node)
    }

    /// The schema of `additionalProperties`, if there is one.
    pub fn values(&self) -> Option<&SchemaNode> {
        self.additional.as_ref()?.node.as_deref()
    }

    /// The schema of the value at `key`: its property, or else `additionalProperties`.
    pub fn at_key(&self, key: &str) -> Option<&SchemaNode> {
        self.property(key).or_else(|| self.values())
    }

    pub fn has_defaults(&self) -> bool {
        self.default.is_some()
            || self.items.as_deref().is_some_and(SchemaNode::has_defaults)
            || self.values().is_some_and(SchemaNode::has_defaults)
            || self.properties.iter().any(|(_, node)| node.has_defaults())
    }

    pub fn has_rules(&self) -> bool {
        !self.rules.is_empty()
            || self.items.as_deref().is_some_and(SchemaNode::has_rules)
            || self.values().is_some_and(SchemaNode::has_rules)
            || self.properties.iter().any(|(_, node)| node.has_rules())
    }

    pub(super) fn count_rules(&self) -> u64 {
        let below = self.items.as_deref().into_iter().chain(self.values());
        let below = below.chain(self.properties.iter().map(|(_, node)| node));
        self.rules.len() as u64 + below.map(SchemaNode::count_rules).sum::<u64>()
    }

    /// Whether this is a list of type `map`, with items identified by keys.
    pub fn is_keyed_list(&self) -> bool {
        self.list_type.as_deref() == Some("map")
    }
}

fn read(schema: &Value, depth: usize) -> SchemaNode {
    if depth > DEEPEST {
        // No value has this type: a schema that is too deep must reject everything rather than accept it.
        return SchemaNode { kind: Str::new_static("none"), ..SchemaNode::default() };
    }
    let below = |schema: &Value| read(schema, depth + 1);
    let text = |field: &str| -> Str { schema.text(field).into() };
    let texts = |field: &str| schema.texts(field).map(Str::from).collect::<Vec<_>>();
    let properties: Vec<(Str, SchemaNode)> = schema
        .map_of("properties")
        .into_iter()
        .flat_map(Map::iter)
        .map(|(name, property)| (name.clone(), below(property)))
        .collect();
    let additional = match schema.part("additionalProperties") {
        None => None,
        Some(Value::Bool(allows)) => Some(Additional { allows: *allows, node: None }),
        Some(node) => Some(Additional { allows: true, node: Some(Box::new(below(node))) }),
    };
    SchemaNode {
        kind: text("type"),
        nullable: schema.flag("nullable"),
        default: schema.part("default").cloned(),
        properties,
        additional,
        items: schema
            .part("items")
            .filter(|items| items.as_map().is_some())
            .map(|items| Box::new(below(items))),
        preserve: schema.flag("x-kubernetes-preserve-unknown-fields"),
        embedded: schema.flag("x-kubernetes-embedded-resource"),
        int_or_string: schema.flag("x-kubernetes-int-or-string"),
        list_type: schema.text_if_set("x-kubernetes-list-type").map(Str::from),
        list_map_keys: texts("x-kubernetes-list-map-keys"),
        map_type: schema.text_if_set("x-kubernetes-map-type").map(Str::from),
        rules: schema.items("x-kubernetes-validations").iter().map(ValidationRule::read).collect(),
        required: texts("required"),
        checks: checks(schema, depth),
    }
}

/// The fields of a schema that are parsed into [`Checks`].
const CHECKS: &[&str] = &[
    "format",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "multipleOf",
    "maxLength",
    "minLength",
    "maxItems",
    "minItems",
    "maxProperties",
    "minProperties",
    "uniqueItems",
    "pattern",
    "enum",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
];

fn checks(schema: &Value, depth: usize) -> Option<Box<Checks>> {
    let map = schema.as_map()?;
    if !map.keys().any(|key| CHECKS.contains(&key.as_str())) {
        return None;
    }
    let nodes =
        |field: &str| schema.items(field).iter().map(|node| read(node, depth + 1)).collect::<Vec<_>>();
    let pattern = schema.text("pattern");
    let format = schema.text("format");
    Some(Box::new(Checks {
        format: if super::formats::ignored(schema) { Str::default() } else { format.into() },
        maximum: number(schema, "maximum"),
        exclusive_maximum: schema.flag("exclusiveMaximum"),
        minimum: number(schema, "minimum"),
        exclusive_minimum: schema.flag("exclusiveMinimum"),
        multiple_of: number(schema, "multipleOf"),
        max_length: schema.number_if_set("maxLength"),
        min_length: schema.number_if_set("minLength"),
        max_items: schema.number_if_set("maxItems"),
        min_items: schema.number_if_set("minItems"),
        max_properties: schema.number_if_set("maxProperties"),
        min_properties: schema.number_if_set("minProperties"),
        unique_items: schema.flag("uniqueItems"),
        pattern: (!pattern.is_empty())
            .then(|| LazyPattern { text: pattern.into(), compiled: OnceLock::new() }),
        enumeration: Enumeration::new(schema.items("enum")),
        all_of: nodes("allOf"),
        any_of: nodes("anyOf"),
        one_of: nodes("oneOf"),
        not: schema.part("not").map(|not| Box::new(read(not, depth + 1))),
    }))
}

#[expect(clippy::cast_precision_loss, reason = "Go reads these fields as float64, too")]
fn number(schema: &Value, field: &str) -> Option<f64> {
    match schema.part(field)? {
        Value::Int(number) => Some(*number as f64),
        Value::UInt(number) => Some(*number as f64),
        Value::Float(number) => Some(*number),
        _ => None,
    }
}
