//! A version's schema, ready for use.

use std::sync::{Arc, OnceLock};

use api::validation::fields::{At, Read};
use api::{FieldErrors, GroupVersionKind};
use schema::Schema;
use value::{Str, Value};

use super::columns::Columns;
use super::crd::selectable;
use super::defaults::{Room, TooLarge};
use super::json_path::JsonPath;
use super::node::Node;
use super::prune::Trail;
use super::rules::Rules;
use super::stopwatch::Stopwatch;
use super::strategy::Bounds;
use super::{defaults, facts, metadata, prune};

/// Everything that is made of a version's schema. The parts that not every request needs are made when they are.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that do not depend on each other")]
pub struct Compiled {
    pub(super) gvk: GroupVersionKind,
    pub(super) namespaced: bool,
    pub(super) node: Node,
    /// Nothing is pruned and nothing defaulted.
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
    facts: OnceLock<Arc<Schema>>,
}

/// What validation found.
#[derive(Debug, Default)]
pub struct Found {
    /// What is wrong.
    pub errors: FieldErrors,
    /// What a client is told besides.
    pub warnings: Vec<String>,
}

impl Compiled {
    /// Of a version of a CRD's spec.
    pub(super) fn new(
        version: Option<&Value>,
        preserve: bool,
        group: &Str,
        name: &Str,
        kind: &Str,
        namespaced: bool,
    ) -> Self {
        let schema = version.part("schema").part("openAPIV3Schema").cloned().unwrap_or_default();
        let mut node = Node::read(&schema);
        if !preserve {
            super::validate_defaults::prune_defaults(&mut node);
        }
        let subresources = version.part("subresources");
        let selectable = selectable(version).map(|(label, path)| (label.into(), JsonPath::parse(path)));
        Compiled {
            gvk: GroupVersionKind::new(group.clone(), name.clone(), kind.clone()),
            namespaced,
            has_embedded: metadata::has_embedded(&node),
            has_defaults: node.has_defaults(),
            has_status: subresources.part("status").is_some(),
            scale: version.and_then(super::ScalePaths::read),
            columns: Columns::read(version.items("additionalPrinterColumns")),
            selectable: selectable.collect(),
            preserve,
            // Rules are compiled with the types that the schema declares; nothing else reads it again.
            schema: if node.has_rules() { schema } else { Value::Null },
            node,
            rules: OnceLock::new(),
            compiles_data: OnceLock::new(),
            facts: OnceLock::new(),
        }
    }

    /// Of a version that does not exist: every field is unknown.
    pub fn of_nothing() -> Self {
        let nothing = Str::default();
        Compiled::new(None, false, &nothing, &nothing, &nothing, false)
    }

    /// The printer columns.
    pub fn columns(&self) -> &Columns {
        &self.columns
    }

    /// The facts that patches and apply walk.
    pub fn schema(&self) -> &Arc<Schema> {
        self.facts.get_or_init(|| Arc::new(facts::resource(&self.node, self.preserve)))
    }

    /// Whether its rules take regular expressions from objects, so that validating a small one may be much work.
    pub fn compiles_data(&self, bounds: Bounds<'_>) -> bool {
        *self.compiles_data.get_or_init(|| self.rules(bounds.watch).is_some_and(Rules::compile_data))
    }

    /// Makes all that is made when it is needed.
    pub(super) fn prepare(&self, watch: Option<&dyn Stopwatch>) {
        self.schema();
        self.rules(watch);
    }

    /// The rules, compiled when they are first needed; `None` where there are none.
    pub(super) fn rules(&self, watch: Option<&dyn Stopwatch>) -> Option<&Rules> {
        self.rules.get_or_init(|| Rules::compile(&self.node, &self.schema, watch)).as_ref()
    }

    /// The text of a selectable field; empty where the object has none.
    pub fn selectable(&self, label: &str, object: &Value) -> Option<String> {
        let (_, path) = self.selectable.iter().find(|(name, _)| name == label)?;
        let value = path.as_ref().and_then(|path| path.first(object));
        Some(match value.as_deref() {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.to_string(),
            Some(other) => value::write::to_string(other),
        })
    }

    /// Brings an object as a client sent it into the form of the schema: types its metadata, drops what is unknown and nulls
    /// that mean nothing. Answers the paths of what is unknown, in the order Kubernetes names them.
    pub fn coerce(&self, object: &mut Value, strict: bool) -> Result<Vec<String>, String> {
        self.shape(object, strict, prune::nulls)
    }

    /// Brings what a configuration was merged into into the form of the schema. It was never decoded as a whole: a null that
    /// means nothing is still there, and validation refuses it.
    pub fn coerce_applied(&self, object: &mut Value) -> Result<(), String> {
        self.shape(object, false, |_, _| {}).map(drop)
    }

    fn shape(
        &self,
        object: &mut Value,
        strict: bool,
        nulls: fn(&mut Value, Option<&Node>),
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
            let mut trail = Trail::new(strict);
            prune::resource(object, &self.node, &mut trail);
            unknown.extend(trail.into_unknown());
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

    /// About how long an object is with its defaults; 0 where there are none and it is what was sent.
    pub fn size_with_defaults(&self, object: &Value) -> usize {
        if self.has_defaults { defaults::size(object) } else { 0 }
    }

    /// Fills in the defaults.
    pub fn default(&self, object: &mut Value) -> Result<(), TooLarge> {
        self.default_within(object, &mut Room::for_object())
    }

    fn default_within(&self, object: &mut Value, room: &mut Room) -> Result<(), TooLarge> {
        if self.has_defaults && !self.preserve {
            return defaults::apply(object, &self.node, room);
        }
        Ok(())
    }

    /// Drops the nulls that mean nothing and fills in the defaults: what is read of an object, however it was written.
    pub fn settle(&self, object: &mut Value) -> Result<(), TooLarge> {
        self.settle_within(object, &mut Room::for_object())
    }

    fn settle_within(&self, object: &mut Value, room: &mut Room) -> Result<(), TooLarge> {
        if !self.preserve {
            prune::nulls(object, Some(&self.node));
        }
        self.default_within(object, room)
    }

    /// Drops what the schema does not know from an object that was converted.
    pub fn prune(&self, object: &mut Value) {
        if !self.preserve {
            prune::resource(object, &self.node, &mut Trail::new(false));
            prune::nulls(object, Some(&self.node));
        }
    }

    /// Brings an object that was stored into the form of the schema as it is now, with its defaults. Where there is no room for
    /// them it is shown without: it must be possible to read it, and to delete it.
    pub fn refresh(&self, object: &mut Value, room: &mut Room) {
        if !self.preserve {
            prune::resource(object, &self.node, &mut Trail::new(false));
        }
        let mut share = room.share();
        let _ = self.settle_within(object, &mut share);
        room.settle(&share);
        if object.int_at(&["metadata", "generation"]).unwrap_or(0) == 0 {
            api::meta::set(object, "generation", 1);
        }
    }
}
