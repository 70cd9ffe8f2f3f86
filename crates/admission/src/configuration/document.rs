//! A strictly decoded configuration document: first apiVersion and kind, then the fields.

use api::GroupVersionKind;
use api::field::quote;
use value::{Map, Str, Value, yaml};

/// A document whose kind has not been checked yet.
pub(crate) struct ConfigDocument {
    root: Map,
    kind: Result<GroupVersionKind, String>,
    strict: Vec<String>,
}

impl ConfigDocument {
    /// Parses YAML or JSON.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, String> {
        let document = yaml::document(bytes).map_err(|error| error.to_string())?;
        let mut strict: Vec<String> = document.strict.into_iter().collect();
        if strict.is_empty() {
            strict = schema::decode::strict_errors(&[], &document.duplicates);
        }
        let kind = api::type_meta::require(&document.value, bytes).map_err(|error| error.message);
        let root = match document.value {
            Value::Map(map) => map,
            _ => Map::new(),
        };
        Ok(ConfigDocument { root, kind, strict })
    }

    /// The top-level fields, before the kind is checked.
    pub(crate) fn root(&self) -> &Map {
        &self.root
    }

    /// Checks for `kind` in one of `versions` of `group`. `scheme` is the location of Go's scheme, for the
    /// message.
    pub(crate) fn expect_kind(
        &self,
        group: &str,
        versions: &[&str],
        kind: &str,
        scheme: &str,
    ) -> Result<(), String> {
        let sent = self.kind.clone()?;
        if sent.kind == kind && sent.group == group && versions.contains(&sent.version.as_str()) {
            return Ok(());
        }
        Err(format!(
            "no kind {} is registered for version {} in scheme {}",
            quote(&sent.kind),
            quote(&sent.api_version()),
            quote(scheme)
        ))
    }

    /// Starts decoding the fields.
    pub(crate) fn fields(self) -> (Map, StrictFields) {
        (self.root, StrictFields { mismatch: None, strict: self.strict })
    }
}

/// Errors found while decoding fields.
pub(crate) struct StrictFields {
    mismatch: Option<String>,
    strict: Vec<String>,
}

impl StrictFields {
    /// A string; empty if absent. `owner` is the Go type of the struct, `dotted` the path to it without
    /// indexes.
    pub(crate) fn text(&mut self, map: &Map, owner: &str, dotted: &str, name: &str) -> Str {
        match map.get(name) {
            Some(Value::String(text)) => text.clone(),
            None | Some(Value::Null) => Str::default(),
            Some(other) => {
                self.type_mismatch(other, owner, dotted, name, "string");
                Str::default()
            }
        }
    }

    /// A list; empty if absent.
    pub(crate) fn list<'v>(&mut self, map: &'v Map, owner: &str, name: &str, go_type: &str) -> &'v [Value] {
        match map.get(name) {
            Some(Value::List(list)) => list,
            None | Some(Value::Null) => &[],
            Some(other) => {
                self.type_mismatch(other, owner, "", name, go_type);
                &[]
            }
        }
    }

    /// A nested object; `None` if absent.
    pub(crate) fn object<'v>(
        &mut self,
        map: &'v Map,
        owner: &str,
        name: &str,
        go_type: &str,
    ) -> Option<&'v Map> {
        match map.get(name) {
            Some(Value::Map(object)) => Some(object),
            None | Some(Value::Null) => None,
            Some(other) => {
                self.type_mismatch(other, owner, "", name, go_type);
                None
            }
        }
    }

    /// A list of strings; empty if absent.
    pub(crate) fn texts(&mut self, map: &Map, owner: &str, dotted: &str, name: &str) -> Vec<Str> {
        let list = match map.get(name) {
            Some(Value::List(list)) => list.as_slice(),
            None | Some(Value::Null) => &[],
            Some(other) => {
                self.type_mismatch(other, owner, dotted, name, "[]string");
                &[]
            }
        };
        let mut texts = Vec::with_capacity(list.len());
        for item in list {
            match item {
                Value::String(text) => texts.push(text.clone()),
                Value::Null => texts.push(Str::default()),
                other => self.type_mismatch(other, owner, dotted, name, "string"),
            }
        }
        texts
    }

    /// An integer; 0 if absent.
    pub(crate) fn number(&mut self, map: &Map, owner: &str, dotted: &str, name: &str, go_type: &str) -> i64 {
        match map.get(name) {
            None | Some(Value::Null) => 0,
            Some(other) => {
                let fits = |number: &i64| go_type != "int32" || i32::try_from(*number).is_ok();
                other.as_int().filter(fits).unwrap_or_else(|| {
                    self.type_mismatch(other, owner, dotted, name, go_type);
                    0
                })
            }
        }
    }

    /// A boolean; false if absent.
    pub(crate) fn flag(&mut self, map: &Map, owner: &str, dotted: &str, name: &str) -> bool {
        match map.get(name) {
            None | Some(Value::Null) => false,
            Some(Value::Bool(flag)) => *flag,
            Some(other) => {
                self.type_mismatch(other, owner, dotted, name, "bool");
                false
            }
        }
    }

    /// Records a value of the wrong type. Only the first is reported.
    pub(crate) fn type_mismatch(
        &mut self,
        found: &Value,
        owner: &str,
        dotted: &str,
        name: &str,
        go_type: &str,
    ) {
        let path = if dotted.is_empty() { name.to_owned() } else { format!("{dotted}.{name}") };
        self.mismatch.get_or_insert_with(|| {
            format!(
                "json: cannot unmarshal {} into Go struct field {owner}.{path} of type {go_type}",
                found.json_type()
            )
        });
    }

    /// Records fields that are not in `known`. `path` leads to them, with indexes.
    pub(crate) fn reject_unknown(&mut self, map: &Map, path: &str, known: &[&str]) {
        let unknown: Vec<String> = map
            .keys()
            .filter(|name| !known.contains(&name.as_str()))
            .map(|name| if path.is_empty() { name.to_string() } else { format!("{path}.{name}") })
            .collect();
        self.strict.extend(schema::decode::strict_errors(&unknown, &[]));
    }

    /// Returns the first type error, or all strict decoding errors.
    pub(crate) fn finish(self) -> Result<(), String> {
        match self.mismatch {
            Some(mismatch) => Err(mismatch),
            None if self.strict.is_empty() => Ok(()),
            None => Err(format!("strict decoding error: {}", self.strict.join(", "))),
        }
    }
}
