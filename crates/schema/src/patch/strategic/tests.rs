use value::{json, write};

use super::*;

/// The type used by the cases: an item that contains itself in lists and maps of every strategy.
#[derive(Clone, Copy)]
enum Toy {
    Item,
    Map,
    Raw,
    Number,
}

fn rule(schema: Toy, merge: bool, merge_key: Option<&str>) -> MergeRule<Toy> {
    MergeRule { schema, merge, replace: false, merge_key: merge_key.map(Str::from) }
}

impl MergeSchema for Toy {
    fn object_field(self, name: &str) -> Result<MergeRule<Self>, String> {
        let name_of = match self {
            Toy::Item => "MergeItem",
            Toy::Raw => "",
            Toy::Map | Toy::Number => {
                return Err(format!(
                    "merging an object in json but data type is not struct, instead is: {}",
                    self.go_kind()
                ));
            }
        };
        Ok(match (self, name) {
            (Toy::Item, "mergingList" | "retainKeysMergingList" | "mergeItemPtr") => {
                rule(Toy::Item, true, Some("name"))
            }
            (Toy::Item, "nonMergingList" | "retainKeysMap") => rule(Toy::Item, false, None),
            (Toy::Item, "mergingIntList") => rule(Toy::Number, true, None),
            (Toy::Item, "nonMergingIntList") => rule(Toy::Number, false, None),
            (Toy::Item, "simpleMap") => rule(Toy::Map, false, None),
            (Toy::Item, "replacingItem") => MergeRule { replace: true, ..rule(Toy::Raw, false, None) },
            (Toy::Item, "jsonItem") => rule(Toy::Raw, false, None),
            _ => {
                return Err(format!(
                    "unable to find api field in struct {name_of} for the json field \"{name}\""
                ));
            }
        })
    }

    fn list_field(self, name: &str) -> Result<MergeRule<Self>, String> {
        match self.object_field(name)? {
            rule if name == "simpleMap" => {
                let _ = rule;
                Err(format!("expected slice or array type, but got: {}", self.go_kind()))
            }
            rule => Ok(rule),
        }
    }

    fn go_kind(self) -> &'static str {
        match self {
            Toy::Item | Toy::Raw => "struct",
            Toy::Map => "map",
            Toy::Number => "int",
        }
    }
}

fn map(text: &str) -> Map {
    json::parse(text.as_bytes()).unwrap().as_map().unwrap().clone()
}

/// Each case has three lines: the object, the patch, and Kubernetes' output (`=` for a result, `!` for an error).
#[test]
fn patches_merge_as_kubernetes_merges_them() {
    let lines: Vec<&str> = include_str!("cases.txt").lines().collect();
    assert_eq!(lines.len() % 3, 0);
    for case in lines.chunks(3) {
        let (original, patch, expected) = (case[0], case[1], case[2]);
        let actual = match merge(map(original), map(patch), Toy::Item) {
            Ok(result) => format!("= {}", write::to_string(&Value::Map(result))),
            Err(error) => format!("! {}", api::field::quote(&error.to_string())),
        };
        assert_eq!(actual, expected, "\n{original}\n{patch}");
    }
}

#[track_caller]
fn pods(original: &str, patch: &str, expected: &str) {
    let schema = crate::of("", "v1", "Pod").unwrap();
    let actual = match merge(map(original), map(patch), schema) {
        Ok(result) => write::to_string(&Value::Map(result)),
        Err(error) => error.to_string(),
    };
    assert_eq!(actual, expected);
}

#[test]
fn containers_merge_by_name_and_ports_by_number() {
    pods(
        r#"{"spec":{"containers":[{"name":"a","image":"x","ports":[{"containerPort":1}]},{"name":"b"}]}}"#,
        r#"{"spec":{"containers":[{"name":"a","image":"y","ports":[{"containerPort":2}]}]}}"#,
        r#"{"spec":{"containers":[{"image":"y","name":"a","ports":[{"containerPort":2},{"containerPort":1}]},{"name":"b"}]}}"#,
    );
    pods(
        r#"{"spec":{"tolerations":[{"key":"a"}]}}"#,
        r#"{"spec":{"tolerations":[{"key":"b"}]}}"#,
        r#"{"spec":{"tolerations":[{"key":"b"}]}}"#,
    );
    pods(
        r#"{"metadata":{"finalizers":["a","b"],"labels":{"x":"1"}}}"#,
        r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":["a"],"labels":{"x":null,"y":"2"}}}"#,
        r#"{"metadata":{"finalizers":["b"],"labels":{"y":"2"}}}"#,
    );
    pods(
        r#"{"spec":{"containers":[{"name":"a"}]}}"#,
        r#"{"spec":{"containers":[{"image":"y"}]}}"#,
        "map: map[image:y] does not contain declared merge key: name",
    );
}

#[test]
fn long_lists_merge_in_time_proportional_to_their_length() {
    let list = |from: usize| {
        Value::list(
            (from..from + 20_000).map(|i| Value::map([("name", format!("n{i}"))])).collect::<Vec<_>>(),
        )
    };
    let containers =
        |list| Value::map([("spec", Value::map([("containers", list)]))]).as_map().unwrap().clone();
    let schema = crate::of("", "v1", "Pod").unwrap();
    let merged = merge(containers(list(0)), containers(list(10_000)), schema).unwrap();
    assert_eq!(Value::Map(merged).list_at(&["spec", "containers"]).len(), 30_000);
}

#[test]
fn errors_have_the_codes_kubernetes_gives_them() {
    assert_eq!(Error::BAD_RETAIN_KEYS.into_status().code(), 400);
    assert_eq!(Error::LIST_OF_LISTS.into_status().code(), 422);
    assert_eq!(Error::Other("x".to_owned()).into_status().code(), 500);
}
