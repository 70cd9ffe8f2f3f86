//! The compiled schema of one CRD version: [`CompiledVersion`].

use std::sync::{Arc, OnceLock};

use api::validation::fields::{At, Read};
use api::{FieldErrors, GroupVersionKind};
use schema::Schema;
use value::{Str, Value};

use super::columns::Columns;
use super::crd::selectable;
use super::defaults::{DefaultsAllowance, TooLarge};
use super::json_path::JsonPath;
use super::node::SchemaNode;
use super::prune::UnknownFields;
use super::rules::{RuleSource, Rules};
use super::stopwatch::Stopwatch;
use super::strategy::ValidationBounds;
use super::{defaults, metadata, prune, typed_schema};

/// Everything derived from the schema of one version. Parts that only some requests need are computed on first use.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that do not depend on each other")]
pub struct CompiledVersion {
    pub(super) gvk: GroupVersionKind,
    pub(super) namespaced: bool,
    pub(super) node: SchemaNode,
    /// `spec.preserveUnknownFields`: disables pruning and defaulting.
    preserve: bool,
    has_embedded: bool,
    has_defaults: bool,
    pub(super) has_status: bool,
    pub(super) scale: Option<super::ScalePaths>,
    columns: Columns,
    selectable: Vec<(Str, Option<JsonPath>)>,
    schema: Value,
    rules: OnceLock<Option<Rules>>,
    compiles_data: OnceLock<bool>,
    typed_schema: OnceLock<Arc<Schema>>,
}

/// Errors and warnings of one validation.
#[derive(Debug, Default)]
pub struct ValidationFindings {
    pub errors: FieldErrors,
    /// Sent to the client as `Warning` headers, also if there are errors: violations of rules in parts that an update does not change.
    pub warnings: Vec<String>,
    /// Sent to the client as `Warning` headers if there are no errors.
    pub warnings_if_valid: Vec<String>,
}

impl CompiledVersion {
    /// Compiles a version of a CRD's spec; `preserve` is `spec.preserveUnknownFields`.
    pub(super) fn new(
        version: Option<&Value>,
        preserve: bool,
        group: &Str,
        name: &Str,
        kind: &Str,
        namespaced: bool,
    ) -> Self {
        let schema = version.part("schema").part("openAPIV3Schema").cloned().unwrap_or_default();
        let mut node = SchemaNode::read(&schema);
        if !preserve {
            super::prune_defaults::prune_defaults(&mut node);
        }
        let subresources = version.part("subresources");
        let selectable = selectable(version).map(|(label, path)| (label.into(), JsonPath::parse(path)));
        CompiledVersion {
            gvk: GroupVersionKind::new(group.clone(), name.clone(), kind.clone()),
            namespaced,
            has_embedded: metadata::has_embedded(&node),
            has_defaults: node.has_defaults(),
            has_status: subresources.part("status").is_some(),
            scale: version.and_then(super::ScalePaths::read),
            columns: Columns::read(version.items("additionalPrinterColumns")),
            selectable: selectable.collect(),
            preserve,
            // Only compiling the rules reads the schema again, for its declared types.
            schema: if node.has_rules() { schema } else { Value::Null },
            node,
            rules: OnceLock::new(),
            compiles_data: OnceLock::new(),
            typed_schema: OnceLock::new(),
        }
    }

    /// Schema of a version that does not exist, in which every field is unknown.
    pub fn of_nothing() -> Self {
        let nothing = Str::default();
        CompiledVersion::new(None, false, &nothing, &nothing, &nothing, false)
    }

    pub fn columns(&self) -> &Columns {
        &self.columns
    }

    /// The schema in the form that patches and server-side apply use, built on first use.
    pub fn schema(&self) -> &Arc<Schema> {
        self.typed_schema.get_or_init(|| Arc::new(typed_schema::resource(&self.node, self.preserve)))
    }

    /// Whether a rule compiles regular expressions taken from objects, so that validating even a small object may be expensive.
    pub fn compiles_data(&self, bounds: ValidationBounds<'_>) -> bool {
        *self.compiles_data.get_or_init(|| self.rules(bounds.watch).is_some_and(Rules::compile_data))
    }

    /// Builds everything that is otherwise built on first use.
    pub(super) fn prepare(&self, watch: Option<&dyn Stopwatch>) {
        self.schema();
        self.rules(watch);
    }

    /// The rules, compiled on first use; `None` if the schema has none.
    pub(super) fn rules(&self, watch: Option<&dyn Stopwatch>) -> Option<&Rules> {
        let source = RuleSource { node: &self.node, schema: &self.schema, is_resource: true };
        self.rules.get_or_init(|| Rules::compile(source, watch)).as_ref()
    }

    /// The value of a selectable field as text, empty if the object has none. `None` if `label` is not a selectable field.
    pub fn selectable(&self, label: &str, object: &Value) -> Option<String> {
        let (_, path) = self.selectable.iter().find(|(name, _)| name == label)?;
        let value = path.as_ref().and_then(|path| path.first(object));
        Some(match value.as_deref() {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.to_string(),
            Some(other) => value::write::to_string(other),
        })
    }

    /// Converts an object as sent by a client into the form of the schema: types its metadata and drops unknown fields and nulls of
    /// fields that are not nullable. Returns the paths of the unknown fields in the order in which Kubernetes reports them.
    pub fn coerce(&self, object: &mut Value, strict: bool) -> Result<Vec<String>, String> {
        self.shape(object, strict, prune::nulls)
    }

    /// Converts the result of a server-side apply into the form of the schema. That result was never decoded as a whole, so nulls of
    /// fields that are not nullable stay, and validation rejects them.
    pub fn coerce_applied(&self, object: &mut Value) -> Result<(), String> {
        self.shape(object, false, |_, _| {}).map(drop)
    }

    fn shape(
        &self,
        object: &mut Value,
        strict: bool,
        nulls: fn(&mut Value, Option<&SchemaNode>),
    ) -> Result<Vec<String>, String> {
        let mut unknown = Vec::new();
        for field in ["kind", "apiVersion"] {
            if let Some(value) = object.get(field)
                && !matches!(value, Value::String(_))
            {
                return Err(format!(
                    ".{field} accessor error: {} is of the type {}, expected string",
                    value::write::to_string(value),
                    value.json_type()
                ));
            }
        }
        if let Value::Map(map) = object {
            let read = metadata::type_metadata(map, "");
            if let Some(error) = read.error {
                return Err(error);
            }
            unknown.extend(read.unknown);
        }
        if !self.preserve {
            let mut unknown_fields = UnknownFields::new(strict);
            prune::resource(object, &self.node, &mut unknown_fields);
            unknown.extend(unknown_fields.into_unknown());
            nulls(object, Some(&self.node));
        }
        if self.has_embedded {
            let mut embedded = Vec::new();
            metadata::coerce(object, &self.node, &At::ROOT, &mut embedded)
                .map_err(|error| error.to_string())?;
            embedded.sort();
            unknown.extend(embedded);
        }
        if !strict {
            unknown.clear();
        }
        Ok(unknown)
    }

    /// Whether objects of this version get defaults.
    pub fn has_defaults(&self) -> bool {
        self.has_defaults && !self.preserve
    }

    /// Approximate JSON size of an object with its defaults; 0 if the schema has no defaults and the object is as sent.
    pub fn size_with_defaults(&self, object: &Value) -> usize {
        if self.has_defaults { defaults::size(object) } else { 0 }
    }

    pub fn default(&self, object: &mut Value) -> Result<(), TooLarge> {
        self.default_within(object, &mut DefaultsAllowance::for_object())
    }

    fn default_within(&self, object: &mut Value, allowance: &mut DefaultsAllowance) -> Result<(), TooLarge> {
        if self.has_defaults && !self.preserve {
            return defaults::apply(object, &self.node, allowance);
        }
        Ok(())
    }

    /// Drops nulls of fields that are not nullable and fills in the defaults, as for every object that is read.
    pub fn drop_nulls_and_default(&self, object: &mut Value) -> Result<(), TooLarge> {
        self.fill_within(object, &mut DefaultsAllowance::for_object())
    }

    fn fill_within(&self, object: &mut Value, allowance: &mut DefaultsAllowance) -> Result<(), TooLarge> {
        if !self.preserve {
            prune::nulls(object, Some(&self.node));
        }
        self.default_within(object, allowance)
    }

    /// Drops unknown fields, and nulls of fields that are not nullable, from a converted object.
    pub fn prune(&self, object: &mut Value) {
        if !self.preserve {
            prune::resource(object, &self.node, &mut UnknownFields::new(false));
            prune::nulls(object, Some(&self.node));
        }
    }

    /// Converts a stored object into the form of the current schema and fills in its defaults. An object whose defaults exceed `allowance`
    /// is returned without the rest of them, so that it can still be read and deleted.
    pub fn refresh(&self, object: &mut Value, allowance: &mut DefaultsAllowance) {
        if !self.preserve {
            prune::resource(object, &self.node, &mut UnknownFields::new(false));
        }
        let mut share = allowance.share();
        let _ = self.fill_within(object, &mut share);
        allowance.deduct(&share);
        if object.int_at(&["metadata", "generation"]).unwrap_or(0) == 0 {
            api::meta::set(object, "generation", 1);
        }
    }
}
