//! Checks that the cost of every write stage grows linearly with the length of every list field.
//!
//! The test finds each list field of the schema table in a kind that has it, makes that list 1,000 and 10,000 items
//! long, and runs everything that a write runs: decoding, defaults, strategies, validation, warnings, patches and
//! server-side apply. It counts accesses to the value trees (`value::steps`), which do not depend on the machine. Ten
//! times as many items may take at most fifteen times as many steps. Loops over texts copied out of the tree do not
//! count as steps, so a second test searches the sources for their usual spellings.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::collections::{BTreeSet, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use api::{GroupKind, GroupVersion};
use kinds::table::{self, KindStorage, Resource};
use kinds::{strategy, validation};
use schema::apply::{FieldManagement, Reset, ServedVersions, Unconverted};
use schema::{Schema, StringEncoding, ValueType};
use schema::{decode, patch};
use value::{Budget, Map, Value, steps, write};

/// List lengths that are compared, and the highest allowed ratio of their steps.
const SHORT: usize = 1000;
const LONG: usize = 10_000;
const FACTOR: u64 = 15;

/// One step of the path from the root to a list.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(&'static str),
    Key,
    Item,
}

struct Case {
    /// Type and field, for example `core.v1.PodSpec.volumes`.
    name: String,
    row: &'static Resource,
    version: &'static str,
    /// Lists that grow together; each path ends in the field.
    paths: Vec<Vec<Step>>,
}

fn stored_version(row: &'static Resource) -> Option<&'static str> {
    match row.storage {
        KindStorage::Own(version) => Some(version),
        _ => row.versions.first().map(|version| version.name),
    }
}

/// Lists each list field of each type once, at its position nearest to the root of a kind.
fn cases() -> Vec<Case> {
    let mut found = BTreeSet::new();
    let mut cases = Vec::new();
    let mut queue: VecDeque<(&'static Resource, &'static str, &'static Schema, Vec<Step>)> = VecDeque::new();
    for row in table::all() {
        // The storage version comes first because validation applies to it.
        let others = row.versions.iter().map(|version| version.name);
        for version in stored_version(row).into_iter().chain(others) {
            if let Some(schema) = row.schema(version) {
                queue.push_back((row, version, schema, Vec::new()));
            }
        }
    }
    let mut visited = BTreeSet::new();
    while let Some((row, version, schema, path)) = queue.pop_front() {
        let with = |step: Step| path.iter().cloned().chain([step]).collect::<Vec<_>>();
        match &schema.value_type {
            ValueType::Object(object) => {
                if !visited.insert(schema.name.as_str()) {
                    continue;
                }
                for property in &object.properties {
                    let below = with(Step::Field(property.name.as_str()));
                    let link: &'static Schema = property.schema.get();
                    if matches!(link.value_type, ValueType::List(_)) {
                        let name = format!("{}.{}", schema.name, property.name);
                        if found.insert(name.clone()) {
                            cases.push(Case { name, row, version, paths: vec![below.clone()] });
                        }
                    }
                    queue.push_back((row, version, link, below));
                }
            }
            ValueType::List(list) => queue.push_back((row, version, list.items.get(), with(Step::Item))),
            ValueType::Map(map) => queue.push_back((row, version, map.values.get(), with(Step::Key))),
            _ => {}
        }
    }
    cases.extend(pairs());
    cases
}

/// Cases with two lists where the items of one refer to those of the other.
fn pairs() -> Vec<Case> {
    use Step::{Field, Item};
    let pod = |name: &str, paths: Vec<Vec<Step>>| {
        let row = table::find("", "v1", "pods").unwrap();
        Case { name: name.to_owned(), row, version: "v1", paths }
    };
    let spec = |steps: &[Step]| [Field("spec")].iter().chain(steps).cloned().collect::<Vec<_>>();
    let container = |field: &'static str| spec(&[Field("containers"), Item, Field(field)]);
    let claims = spec(&[Field("containers"), Item, Field("resources"), Field("claims")]);
    let spread = |steps: &[Step]| {
        let mut path = spec(&[Field("topologySpreadConstraints"), Item]);
        path.extend_from_slice(steps);
        path
    };
    vec![
        pod("volumes and their mounts", vec![spec(&[Field("volumes")]), container("volumeMounts")]),
        pod("volumes and their devices", vec![spec(&[Field("volumes")]), container("volumeDevices")]),
        pod("mounts and devices", vec![container("volumeMounts"), container("volumeDevices")]),
        pod("volumes and variables", vec![spec(&[Field("volumes")]), container("env")]),
        pod("claims and their users", vec![spec(&[Field("resourceClaims")]), claims]),
        pod(
            "containers of both kinds",
            vec![
                spec(&[Field("containers")]),
                spec(&[Field("initContainers")]),
                spec(&[Field("ephemeralContainers")]),
            ],
        ),
        pod(
            "keys and expressions of a spread constraint",
            vec![
                spread(&[Field("matchLabelKeys")]),
                spread(&[Field("labelSelector"), Field("matchExpressions")]),
            ],
        ),
        pod(
            "claims and their statuses",
            vec![spec(&[Field("resourceClaims")]), vec![Field("status"), Field("resourceClaimStatuses")]],
        ),
        pod(
            "containers and their statuses",
            vec![spec(&[Field("containers")]), vec![Field("status"), Field("containerStatuses")]],
        ),
    ]
}

/// A value of a field that differs for each `i` and is valid for most fields.
fn sample(name: &str, schema: &Schema, i: usize, deep: bool) -> Value {
    let number = i64::try_from(i).unwrap() + 1;
    let lower = name.to_ascii_lowercase();
    match &schema.value_type {
        ValueType::String(format) => match format {
            StringEncoding::Plain if !schema.values.is_empty() => {
                let chosen =
                    schema.values.iter().filter(|value| !value.is_empty()).nth(i % schema.values.len());
                chosen.or(schema.values.first()).cloned().unwrap_or_default().into()
            }
            StringEncoding::Plain if lower.contains("cidr") || lower == "except" => {
                format!("10.{}.{}.0/24", i / 250 % 250, i % 250).into()
            }
            StringEncoding::Plain
                if lower == "ip" || lower.ends_with("ips") || lower.ends_with("addresses") =>
            {
                format!("10.1.{}.{}", i / 250 % 250, i % 250).into()
            }
            StringEncoding::Plain if lower.contains("path") => format!("/p/{i}").into(),
            StringEncoding::Plain if name == "operator" => "Exists".into(),
            StringEncoding::Plain if name == "effect" => "NoExecute".into(),
            StringEncoding::Plain if name == "protocol" => "TCP".into(),
            StringEncoding::Plain => format!("n{i}").into(),
            StringEncoding::Bytes => "eA==".into(),
            StringEncoding::Time => "2026-01-01T00:00:00Z".into(),
            StringEncoding::MicroTime => "2026-01-01T00:00:00.000000Z".into(),
            StringEncoding::IntOrString => (number % 60_000 + 1).into(),
            StringEncoding::Quantity => format!("{number}").into(),
        },
        ValueType::Int32 | ValueType::Int64 if lower.contains("port") => (number % 60_000 + 1).into(),
        ValueType::Int32 | ValueType::Int64 => number.into(),
        ValueType::Float => 0.5.into(),
        ValueType::Bool => Value::Bool(false),
        ValueType::Any => Value::map([("n", number)]),
        ValueType::SchemaOr(_) => Value::map([("type", "string")]),
        ValueType::Map(map) => Value::map([(format!("k{i}"), sample("value", map.values.get(), i, false))]),
        ValueType::List(list) if deep => Value::list([sample(name, list.items.get(), i, false)]),
        ValueType::List(_) => Value::List(Vec::new()),
        ValueType::Object(object) => {
            let wanted = |property: &&schema::Property| match property.schema.get().value_type {
                ValueType::Object(_) => deep && (property.required || property.name == "metadata"),
                ValueType::List(_) | ValueType::Map(_) | ValueType::Any | ValueType::SchemaOr(_) => false,
                ValueType::Bool | ValueType::Float => property.required,
                _ => !matches!(property.name.as_str(), "managedFields" | "deletionTimestamp"),
            };
            let fields = object.properties.iter().filter(wanted);
            let fields = fields.map(|property| {
                (property.name.clone(), sample(&property.name, property.schema.get(), i, false))
            });
            Value::Map(fields.collect())
        }
    }
}

/// Inserts a list of `length` items at a path below a value.
fn grow(value: &mut Value, schema: &Schema, path: &[Step], length: usize) {
    match (&schema.value_type, path) {
        (ValueType::Object(object), [Step::Field(name), rest @ ..]) => {
            let property = object.property(name).unwrap();
            let slot = value.make_map().entry_or_insert_with(name, || Value::Null);
            let schema = property.schema.get();
            if let (ValueType::List(list), []) = (&schema.value_type, rest) {
                let items = list.items.get();
                *slot = Value::List((0..length).map(|i| sample(name, items, i, true)).collect());
            } else {
                grow(slot, schema, rest, length);
            }
        }
        (ValueType::List(list), [Step::Item, rest @ ..]) => {
            if value.as_list().is_none() {
                *value = Value::List(vec![sample("item", list.items.get(), 0, true)]);
            }
            let first = value.as_list_mut().and_then(|list| list.first_mut()).unwrap();
            grow(first, list.items.get(), rest, length);
        }
        (ValueType::Map(map), [Step::Key, rest @ ..]) => {
            let slot = value.make_map().entry_or_insert_with("key", || Value::Null);
            grow(slot, map.values.get(), rest, length);
        }
        // A list at the end of a path through a map or a list of lists.
        (ValueType::List(list), []) => {
            *value = Value::List((0..length).map(|i| sample("item", list.items.get(), i, true)).collect());
        }
        (kind, path) => panic!("{path:?} does not go through {kind:?}"),
    }
}

fn object(case: &Case, length: usize) -> Value {
    let schema = case.row.schema(case.version).unwrap();
    let mut object = Value::Map(Map::new());
    object.set_at(&["apiVersion"], GroupVersion::new(case.row.group, case.version).to_string());
    object.set_at(&["kind"], case.row.kind);
    object.set_at(&["metadata", "name"], "thing");
    object.set_at(&["metadata", "uid"], "11111111-1111-1111-1111-111111111111");
    if case.row.is_namespaced() {
        object.set_at(&["metadata", "namespace"], "default");
    }
    for path in &case.paths {
        grow(&mut object, schema, path, length);
    }
    object
}

struct Alone;

impl ServedVersions for Alone {
    fn schema(&self, _: &str) -> Option<&Schema> {
        None
    }

    fn convert(&self, _: &Value, _: &str) -> Result<Value, Unconverted> {
        Err(Unconverted::NoSuchVersion)
    }
}

/// An operation on an object whose steps are counted.
type MeasuredStage = fn(&Case, &Value);

const STAGES: [(&str, MeasuredStage); 5] =
    [("read", read), ("write", written), ("validate", validated), ("patch", patched), ("apply", applied)];

fn read_object(case: &Case, object: &Value) -> Value {
    let schema = case.row.schema(case.version).unwrap();
    let mut object = object.clone();
    let _ = decode::empty_lists(&object, schema);
    decode::normalise(&mut object, schema);
    table::behavior(&GroupKind::new(case.row.group, case.row.kind)).apply_defaults(&mut object);
    object
}

fn read(case: &Case, object: &Value) {
    let bytes = write::to_vec(object);
    let parsed = value::json::parse(&bytes).unwrap();
    let object = read_object(case, &parsed);
    let mut unknown = Vec::new();
    for i in 0..10 {
        unknown.push(format!("unknown field {i}"));
    }
    let _ = decode::strict_errors(&unknown, &[]);
    let schema = case.row.schema(case.version).unwrap();
    let mut shown = object;
    decode::fill(&mut shown, schema);
}

fn written(case: &Case, object: &Value) {
    let kind = GroupKind::new(case.row.group, case.row.kind);
    let context = strategy::StrategyContext::default();
    let old = read_object(case, object);
    let mut new = old.clone();
    new.set_at(&["metadata", "labels", "changed"], "yes");
    strategy::stamp(table::behavior(&kind).strategy.as_ref(), &mut new, &context);
    let mut created = new.clone();
    strategy::prepare_create(table::behavior(&kind).strategy.as_ref(), &mut created, &context);
    let mut updated = new.clone();
    strategy::prepare_update(table::behavior(&kind).strategy.as_ref(), &mut updated, &old, &context);
    strategy::prepare_update_status(table::behavior(&kind).strategy.as_ref(), &mut new, &old, &context);
    strategy::canonicalize(table::behavior(&kind).strategy.as_ref(), &mut updated);
    let _ = table::behavior(&GroupKind::new(case.row.group, case.row.kind)).table().rows(&[&updated], 0);
}

fn validated(case: &Case, object: &Value) {
    let kind = GroupKind::new(case.row.group, case.row.kind);
    let Some(rules) = table::behavior(&kind).rules.as_ref() else { return };
    if stored_version(case.row) != Some(case.version) {
        return;
    }
    let context = validation::ValidationContext {
        budget: Budget::new(u64::MAX),
        ..validation::ValidationContext::default()
    };
    let object = read_object(case, object);
    let mut old = object.clone();
    old.set_at(&["metadata", "labels", "changed"], "yes");
    let _ = (rules.create)(&object, &context);
    let _ = (rules.update)(&object, &old, &context);
    let _ = (rules.update_status)(&object, &old, &context);
    // Updates that add or remove the whole list.
    let bare = self::object(&Case { paths: Vec::new(), name: String::new(), ..*case }, 0);
    let _ = (rules.update)(&object, &bare, &context);
    let _ = (rules.update)(&bare, &object, &context);
    let _ = (rules.update_status)(&object, &bare, &context);
    let _ = table::behavior(&kind).warnings_on_write(&object, None);
    let _ = table::behavior(&kind).warnings_on_write(&object, Some(&bare));
}

fn patched(case: &Case, object: &Value) {
    let schema = case.row.schema(case.version).unwrap();
    let bytes = write::to_vec(object);
    let _ = patch::apply(patch::PatchType::StrategicMerge(schema), object, &bytes, true);
    let _ = patch::apply(patch::PatchType::<&Schema>::Merge, object, &bytes, true);
}

fn applied(case: &Case, object: &Value) {
    let schema = case.row.schema(case.version).unwrap();
    let api_version = GroupVersion::new(case.row.group, case.version).to_string();
    let reset = Reset::without(&["status"]);
    let field_management = FieldManagement {
        api_version: &api_version,
        schema,
        subresource: "",
        reset: &reset,
        versions: &Alone,
        now: 1_800_000_000,
    };
    let mut empty = Value::map([("apiVersion", api_version.as_str()), ("kind", case.row.kind)]);
    decode::fill(&mut empty, schema);
    let mut live = object.clone();
    if let Some(managed) = field_management.track(&empty, object, "creator") {
        live.set_at(&["metadata", "managedFields"], managed);
    }
    let mut config = object.clone();
    config.remove_at(&["metadata", "uid"]);
    config.remove_at(&["metadata", "managedFields"]);
    let _ = field_management.apply(&live, &empty, &config, "applier", true);
}

/// Steps and duration of a stage for a list of the given length.
fn measure(case: &Case, stage: MeasuredStage, length: usize) -> (u64, Duration) {
    let object = object(case, length);
    let start = Instant::now();
    let steps = steps::of(|| stage(case, &object));
    (steps, start.elapsed())
}

#[test]
fn ten_times_as_many_items_take_at_most_fifteen_times_as_many_steps() {
    let cases = cases();
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    // Durations help to find loops that steps do not show. They do not affect the result.
    let prints_times = std::env::var_os("PORTCULLIS_PRINT_TIMES").is_some();
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    for (name, stage) in STAGES {
                        let (short, short_time) = measure(case, stage, SHORT);
                        let (long, long_time) = measure(case, stage, LONG);
                        if prints_times {
                            let (kind, case) = (case.row.kind, &case.name);
                            eprintln!("{long_time:?} {short_time:?} {long} {short} {name} {kind} {case}");
                        }
                        if long > short.saturating_mul(FACTOR) {
                            let kind = case.row.kind;
                            let line = format!("{} in {kind}, {name}: {short} steps, then {long}", case.name);
                            wrong.lock().unwrap().push(line);
                        }
                    }
                }
            });
        }
    });
    let mut wrong = wrong.into_inner().unwrap();
    wrong.sort_unstable();
    assert!(wrong.is_empty(), "{} lists take too many steps:\n{}", wrong.len(), wrong.join("\n"));
}

/// List fields that no stored object contains: they occur in responses, in options and in bodies of subresource requests.
const NOT_STORED: [&str; 29] = [
    "authentication.v1.TokenRequestSpec.audiences",
    "core.v1.PodExecOptions.command",
    "core.v1.PodPortForwardOptions.ports",
    // Only read from etcd, and converted to v1.
    "discovery.v1beta1.Endpoint.addresses",
    "discovery.v1beta1.EndpointSlice.endpoints",
    "discovery.v1beta1.EndpointSlice.ports",
    "meta.v1.APIGroup.serverAddressByClientCIDRs",
    "meta.v1.APIGroup.versions",
    "meta.v1.APIGroupList.groups",
    "meta.v1.APIResource.categories",
    "meta.v1.APIResource.shortNames",
    "meta.v1.APIResource.verbs",
    "meta.v1.APIResourceList.resources",
    "meta.v1.APIVersions.serverAddressByClientCIDRs",
    "meta.v1.APIVersions.versions",
    "meta.v1.DeleteOptions.dryRun",
    "meta.v1.StatusDetails.causes",
    // Only read from etcd, and converted to v1.
    "networking.v1beta1.HTTPIngressRuleValue.paths",
    "networking.v1beta1.IngressSpec.rules",
    "networking.v1beta1.IngressSpec.tls",
    "rbac.v1alpha1.ClusterRole.rules",
    "rbac.v1alpha1.ClusterRoleBinding.subjects",
    "rbac.v1alpha1.PolicyRule.apiGroups",
    "rbac.v1alpha1.PolicyRule.nonResourceURLs",
    "rbac.v1alpha1.PolicyRule.resourceNames",
    "rbac.v1alpha1.PolicyRule.resources",
    "rbac.v1alpha1.PolicyRule.verbs",
    "rbac.v1alpha1.Role.rules",
    "rbac.v1alpha1.RoleBinding.subjects",
];

#[test]
fn every_list_field_of_every_type_is_a_case() {
    let cases = cases();
    let covered: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    let mut missing = Vec::new();
    for name in schema::all() {
        let ValueType::Object(object) = &schema::named(name).unwrap().value_type else { continue };
        for property in &object.properties {
            let field = format!("{name}.{}", property.name);
            // Skips the items of list responses.
            let is_list_kind = name.ends_with("List") && property.name == "items";
            if matches!(property.schema.get().value_type, ValueType::List(_))
                && !is_list_kind
                && !covered.contains(field.as_str())
            {
                missing.push(field);
            }
        }
    }
    assert_eq!(missing, NOT_STORED);
    // The exact count detects lost cases.
    assert_eq!(cases.len(), 428);
}

#[test]
fn step_counts_detect_a_quadratic_list_search() {
    let case = cases().into_iter().find(|case| case.name == "core.v1.PodSpec.volumes").unwrap();
    let searched: MeasuredStage = |_, object| {
        let volumes = object.list_at(&["spec", "volumes"]);
        let repeats = |(i, volume): (usize, &Value)| {
            volumes.iter().take(i).any(|earlier| earlier.get("name") == volume.get("name"))
        };
        assert!(!volumes.iter().enumerate().any(repeats));
    };
    let (short, _) = measure(&case, searched, 100);
    let (long, _) = measure(&case, searched, 1000);
    assert!(long > short * FACTOR, "{short} steps, then {long}");
}

/// Common spellings of a search through a list for each of its items. Searching constant lists with `contains` is fine.
const SEARCHES: [&str; 5] =
    [".take(i).any(", ".skip(i + 1).any(", "seen: Vec<", "get(..i).is_some_and(", "seen.push("];

#[test]
fn no_rule_searches_a_list_for_each_of_its_items() {
    fn sources(folder: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                found.push(path);
            }
        }
    }
    let mut files = Vec::new();
    for folder in
        ["kinds/src/validation", "kinds/src/strategy", "kinds/src/defaults", "kinds/src/warnings", "crd/src"]
    {
        sources(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder), &mut files);
    }
    assert!(files.len() > 50, "the sources are read");
    let mut wrong = Vec::new();
    for file in files.iter().filter(|file| !file.to_string_lossy().contains("tests")) {
        for (number, line) in std::fs::read_to_string(file).unwrap().lines().enumerate() {
            if SEARCHES.iter().any(|search| line.contains(search)) {
                wrong.push(format!("{}:{}: {}", file.display(), number + 1, line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "use `Repeated` or a set instead:\n{}", wrong.join("\n"));
}
