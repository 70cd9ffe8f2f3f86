//! Converts objects to `Table` and `PartialObjectMetadata`.

use std::borrow::Cow;

use api::Status;
use catalog::ServedResource;
use crd::columns::{Columns, TableAllowance};
use kinds::print::{self, TableDef};
use requests::request_info::Query;
use value::{Map, Value};

/// Options of a table besides its cells.
#[derive(Clone, Copy, Debug)]
pub struct TableOptions {
    /// Includes `columnDefinitions`; watch events after the first omit them.
    pub headers: bool,
    pub include: IncludeObject,
    pub of: TableScope,
}

/// Distinguishes a list from a single object: some kinds print them differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableScope {
    One,
    List,
}

/// The part of its object that each row carries (`includeObject`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IncludeObject {
    None,
    Metadata,
    Object,
}

impl TableOptions {
    /// Reads `includeObject` from the query.
    pub fn parse(query: &Query) -> Result<Self, Status> {
        let include = match query.get("includeObject").unwrap_or_default() {
            "" | "Metadata" => IncludeObject::Metadata,
            "None" => IncludeObject::None,
            "Object" => IncludeObject::Object,
            other => {
                return Err(Status::bad_request(format!(
                    "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', 'Object', 'None', or empty",
                    api::field::quote(other)
                )));
            }
        };
        Ok(TableOptions { headers: true, include, of: TableScope::One })
    }
}

/// Warning for clients when cells are empty because computing all of them would cost too much.
pub const INCOMPLETE: &str = "some cells of the table are empty because the printer columns of the CustomResourceDefinition take too much work for so many or so large objects; ask for fewer objects, or for the objects themselves";

/// Estimated work, in bytes, to make the row of a stored object of `size` bytes.
pub fn work(kind: &ServedResource, size: usize) -> usize {
    kind.as_custom().map_or(size, |custom| size.saturating_mul(custom.version.columns))
}

#[derive(Clone, Copy)]
pub struct TableRequest<'a> {
    /// Version of `meta.k8s.io`: `v1` or `v1beta1`.
    pub version: &'a str,
    pub options: TableOptions,
    /// Seconds since the Unix epoch, to compute the ages of objects.
    pub now: i64,
    /// Limits the work of printer columns.
    pub allowance: &'a TableAllowance,
}

/// Makes a table of `objects`, which are in the version of the request. Cells are empty once the allowance is used up.
pub fn table(kind: &ServedResource, objects: &[Value], metadata: Value, request: TableRequest<'_>) -> Value {
    let columns = TableColumns::of(kind, objects.first());
    let rows = columns.rows(kind, objects, request);
    let mut document = columns.document(request, rows, metadata);
    if objects.is_empty() && kind.row().is_some() && NULL_ROWS.contains(&kind.gvk.kind.as_str()) {
        document.set_at(&["rows"], Value::Null);
    }
    document
}

/// The columns of the objects that a request returns.
pub enum TableColumns<'a> {
    Custom(Cow<'a, Columns>),
    BuiltIn(&'static TableDef),
}

impl<'a> TableColumns<'a> {
    /// `first` is the first object. The `scale` subresource returns another kind than the one in the path.
    pub fn of(kind: &'a ServedResource, first: Option<&Value>) -> Self {
        if let Some(custom) = kind.as_custom() {
            let is_scale = first.is_some_and(|o| o.str_at(&["apiVersion"]) == Some("autoscaling/v1"));
            return TableColumns::Custom(if is_scale {
                Cow::Owned(Columns::of_scale())
            } else {
                Cow::Borrowed(custom.version.compiled().columns())
            });
        }
        let shown = first.map(api::meta::gvk).filter(|gvk| !gvk.kind.is_empty());
        TableColumns::BuiltIn(match &shown {
            Some(gvk) => kinds::table::behavior(&gvk.group_kind()).table(),
            None => kind.table(),
        })
    }

    /// True if each row depends only on its object, so that the rows of a list can be made in parts.
    pub fn has_independent_rows(&self) -> bool {
        match self {
            TableColumns::Custom(_) => true,
            TableColumns::BuiltIn(table) => table.has_independent_rows(),
        }
    }

    /// The rows of `objects`, in their order unless the kind sorts them.
    pub fn rows(&self, kind: &ServedResource, objects: &[Value], request: TableRequest<'_>) -> Vec<Value> {
        let TableRequest { version, options, now, allowance } = request;
        let table = match self {
            TableColumns::Custom(columns) => {
                let cells = |object| columns.cells(object, now, allowance);
                return objects.iter().map(|o| row(o, cells(o), Vec::new(), version, options)).collect();
            }
            TableColumns::BuiltIn(table) => table,
        };
        // Rows are made of the storage version: `autoscaling/v1` has most of the metrics in an annotation.
        let stored: Option<Vec<Value>> = (kind.gvk.kind == "HorizontalPodAutoscaler"
            && kind.gvk.version == "v1")
            .then(|| objects.iter().map(kinds::convert::autoscaling::v1_to_v2).collect());
        let inside = stored.as_deref().unwrap_or(objects);
        let printed = match options.of {
            TableScope::List => table.rows(&inside.iter().collect::<Vec<_>>(), now),
            TableScope::One => {
                let cells = inside.iter().map(|object| table.row(object, now));
                cells.enumerate().map(|(index, cells)| print::TableRow { index, cells }).collect()
            }
        };
        let rows = printed.into_iter().filter_map(|printed| {
            let shown = if options.include == IncludeObject::Object { objects } else { inside };
            let object = shown.get(printed.index)?;
            let conditions = print::row_conditions(&kind.gvk.group, &kind.gvk.kind, object);
            Some(row(object, printed.cells, conditions, version, options))
        });
        rows.collect()
    }

    /// The table of these rows.
    pub fn document(&self, request: TableRequest<'_>, rows: Vec<Value>, metadata: Value) -> Value {
        let headers = request.options.headers.then(|| match self {
            TableColumns::Custom(columns) => columns.headers(),
            TableColumns::BuiltIn(table) => table.columns().iter().map(|column| column.to_value()).collect(),
        });
        document(headers, request.version, rows, metadata)
    }
}

/// Kinds whose empty table has `rows: null` in kube-apiserver.
const NULL_ROWS: [&str; 5] =
    ["LimitRange", "Role", "ClusterRole", "CSIStorageCapacity", "CustomResourceDefinition"];

fn row(
    object: &Value,
    cells: Vec<Value>,
    conditions: Vec<Value>,
    version: &str,
    options: TableOptions,
) -> Value {
    let mut row = Map::new();
    row.insert("cells", Value::List(cells));
    if !conditions.is_empty() {
        row.insert("conditions", Value::List(conditions));
    }
    let shown = match options.include {
        IncludeObject::None => Value::Null,
        IncludeObject::Metadata => partial(object, version),
        IncludeObject::Object => object.clone(),
    };
    row.insert("object", shown);
    Value::Map(row)
}

fn document(headers: Option<Vec<Value>>, version: &str, rows: Vec<Value>, metadata: Value) -> Value {
    Value::map([
        ("kind", Value::from("Table")),
        ("apiVersion", Value::from(format!("meta.k8s.io/{version}"))),
        ("metadata", metadata),
        ("columnDefinitions", headers.map_or(Value::Null, Value::List)),
        ("rows", Value::List(rows)),
    ])
}

pub fn partial_list(objects: &[Value], version: &str, metadata: Value) -> Value {
    let items: Vec<Value> = objects.iter().map(|object| partial(object, version)).collect();
    Value::map([
        ("kind", Value::from("PartialObjectMetadataList")),
        ("apiVersion", Value::from(format!("meta.k8s.io/{version}"))),
        ("metadata", metadata),
        ("items", if items.is_empty() { Value::Null } else { Value::List(items) }),
    ])
}

/// Reduces an object to its metadata.
pub fn partial(object: &Value, version: &str) -> Value {
    let mut metadata = object.at(&["metadata"]).cloned().unwrap_or(Value::Map(Map::new()));
    // kube-apiserver adds this annotation only when it converts the whole object.
    if metadata.remove_at(&["annotations", TEMPLATE_GENERATION]).is_some()
        && metadata.at(&["annotations"]).and_then(Value::as_map).is_some_and(Map::is_empty)
    {
        metadata.remove_at(&["annotations"]);
    }
    Value::map([
        ("kind", Value::from("PartialObjectMetadata")),
        ("apiVersion", Value::from(format!("meta.k8s.io/{version}"))),
        ("metadata", metadata),
    ])
}

/// Annotation that holds a DaemonSet field of `extensions/v1beta1`.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";
