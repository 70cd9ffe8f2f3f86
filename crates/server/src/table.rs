//! Objects as rows of a `Table`, or as `PartialObjectMetadata`.

use api::Status;
use crd::columns::{Columns, TableAllowance};
use kinds::print;
use value::{Map, Value};

use crate::catalog::ServedResource;
use crate::request_info::Query;

/// What a table shows besides its cells.
#[derive(Clone, Copy, Debug)]
pub struct TableOptions {
    /// Whether the columns are described; events after the first leave that out.
    pub headers: bool,
    /// What each row carries of its object.
    pub include: Include,
    /// What the rows are of.
    pub of: Of,
}

/// What the rows of a table are of: some kinds print a list otherwise than its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// One object.
    One,
    /// A list.
    List,
}

/// What each row carries of its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Include {
    /// Nothing.
    None,
    /// Its metadata.
    Metadata,
    /// All of it.
    Object,
}

impl TableOptions {
    /// From the query's `includeObject`.
    pub fn parse(query: &Query) -> Result<Self, Status> {
        let include = match query.get("includeObject").unwrap_or_default() {
            "" | "Metadata" => Include::Metadata,
            "None" => Include::None,
            "Object" => Include::Object,
            other => {
                return Err(Status::bad_request(format!(
                    "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', 'Object', 'None', or empty",
                    api::field::quote(other)
                )));
            }
        };
        Ok(TableOptions { headers: true, include, of: Of::One })
    }
}

/// What is told to clients if cells of a table are empty because all of them would cost too much.
pub const INCOMPLETE: &str = "some cells of the table are empty because the printer columns of the CustomResourceDefinition take too much work for so many or so large objects; ask for fewer objects, or for the objects themselves";

/// How many bytes are looked at to make a row of a stored object of so many bytes.
pub fn work(kind: &ServedResource, size: usize) -> usize {
    kind.as_custom().map_or(size, |custom| size.saturating_mul(custom.version.columns))
}

/// A table as a client requested it.
#[derive(Clone, Copy)]
pub struct TableRequest<'a> {
    /// The version of `meta.k8s.io`.
    pub version: &'a str,
    pub options: TableOptions,
    /// In seconds since the epoch, for the ages of objects.
    pub now: i64,
    /// Bounds the work of printer columns.
    pub allowance: &'a TableAllowance,
}

/// `objects` are in the version of the request. Cells are empty where the allowance is used up.
pub fn table(kind: &ServedResource, objects: &[Value], metadata: Value, request: TableRequest<'_>) -> Value {
    let TableRequest { version, options, now, allowance } = request;
    if let Some(custom) = kind.as_custom() {
        let is_scale = objects.first().is_some_and(|o| o.str_at(&["apiVersion"]) == Some("autoscaling/v1"));
        let scale;
        let columns = if is_scale {
            scale = Columns::of_scale();
            &scale
        } else {
            custom.version.compiled().columns()
        };
        let rows = objects.iter().map(|object| {
            let cells = columns.cells(object, now, allowance);
            row(object, cells, Vec::new(), version, options)
        });
        let rows = rows.collect();
        return document(options.headers.then(|| columns.headers()), version, rows, metadata);
    }
    // What is shown through `scale` is another kind than the path's.
    let shown = objects.first().map(api::meta::gvk).filter(|gvk| !gvk.kind.is_empty());
    let crd = match &shown {
        Some(gvk) => kinds::table::behavior(&gvk.group_kind()).table(),
        None => kind.table(),
    };
    // Rows are made of what is stored: the first version of an autoscaler has most of its metrics in an annotation.
    let stored: Option<Vec<Value>> = (kind.gvk.kind == "HorizontalPodAutoscaler" && kind.gvk.version == "v1")
        .then(|| objects.iter().map(kinds::convert::autoscaling::v1_to_v2).collect());
    let inside = stored.as_deref().unwrap_or(objects);
    let printed = match options.of {
        Of::List => crd.rows(&inside.iter().collect::<Vec<_>>(), now),
        Of::One => {
            let cells = inside.iter().map(|object| crd.row(object, now));
            cells.enumerate().map(|(index, cells)| print::Row { index, cells }).collect()
        }
    };
    let rows: Vec<Value> = printed
        .into_iter()
        .filter_map(|printed| {
            let shown = if options.include == Include::Object { objects } else { inside };
            let object = shown.get(printed.index)?;
            let conditions = print::row_conditions(&kind.gvk.group, &kind.gvk.kind, object);
            Some(row(object, printed.cells, conditions, version, options))
        })
        .collect();
    let headers = crd.columns().iter().map(|column| column.to_value()).collect();
    let mut document = document(options.headers.then_some(headers), version, rows, metadata);
    if objects.is_empty() && NULL_ROWS.contains(&kind.gvk.kind.as_str()) {
        document.set_at(&["rows"], Value::Null);
    }
    document
}

/// The kinds whose tables Kubernetes makes in its simplest way: without objects they have no list of rows.
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
        Include::None => Value::Null,
        Include::Metadata => partial(object, version),
        Include::Object => object.clone(),
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

/// The metadata alone of many objects.
pub fn partial_list(objects: &[Value], version: &str, metadata: Value) -> Value {
    let items: Vec<Value> = objects.iter().map(|object| partial(object, version)).collect();
    Value::map([
        ("kind", Value::from("PartialObjectMetadataList")),
        ("apiVersion", Value::from(format!("meta.k8s.io/{version}"))),
        ("metadata", metadata),
        ("items", if items.is_empty() { Value::Null } else { Value::List(items) }),
    ])
}

/// An object's metadata alone.
pub fn partial(object: &Value, version: &str) -> Value {
    let mut metadata = object.at(&["metadata"]).cloned().unwrap_or(Value::Map(Map::new()));
    // Kubernetes writes this one only when it converts the whole object.
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

/// The annotation in which a DaemonSet carries a field that its first version had.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";
