//! One strict document: its version and kind, then its fields.

use api::GroupVersionKind;
use api::field::quote;
use value::{Map, Str, Value, yaml};

/// A document whose kind is not known yet.
pub(crate) struct Document {
    root: Map,
    kind: Result<GroupVersionKind, String>,
    strict: Vec<String>,
}

impl Document {
    /// Reads YAML or JSON.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, String> {
        let document = yaml::document(bytes).map_err(|error| error.to_string())?;
        let mut strict: Vec<String> = document.strict.into_iter().collect();
        if strict.is_empty() {
            strict = schema::decode::strict_errors(&[], &document.duplicates);
        }
        let kind = api::typed::version_kind(&document.value, bytes).map_err(|untyped| untyped.message);
        let root = match document.value {
            Value::Map(map) => map,
            _ => Map::new(),
        };
        Ok(Document { root, kind, strict })
    }

    /// The fields, whatever the kind.
    pub(crate) fn root(&self) -> &Map {
        &self.root
    }

    /// Whether this is `kind` of one of these versions of `group`; `scheme` is where Kubernetes declares those it knows.
    pub(crate) fn is(&self, group: &str, versions: &[&str], kind: &str, scheme: &str) -> Result<(), String> {
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

    /// Begins to read the fields.
    pub(crate) fn fields(self) -> (Map, Fields) {
        (self.root, Fields { mismatch: None, strict: self.strict })
    }
}

/// What was found wrong with the fields so far.
pub(crate) struct Fields {
    mismatch: Option<String>,
    strict: Vec<String>,
}

impl Fields {
    /// A text; absent is empty. `owner` is the Go type that has the field, `dotted` the way to it without positions.
    pub(crate) fn text(&mut self, map: &Map, owner: &str, dotted: &str, name: &str) -> Str {
        match map.get(name) {
            Some(Value::String(text)) => text.clone(),
            None | Some(Value::Null) => Str::default(),
            Some(other) => {
                self.wrong(other, owner, dotted, name, "string");
                Str::default()
            }
        }
    }

    /// A list; absent is empty.
    pub(crate) fn list<'v>(&mut self, map: &'v Map, owner: &str, name: &str, go_type: &str) -> &'v [Value] {
        match map.get(name) {
            Some(Value::List(list)) => list,
            None | Some(Value::Null) => &[],
            Some(other) => {
                self.wrong(other, owner, "", name, go_type);
                &[]
            }
        }
    }

    /// What is inside; `None` where it is absent.
    pub(crate) fn inside<'v>(
        &mut self,
        map: &'v Map,
        owner: &str,
        name: &str,
        go_type: &str,
    ) -> Option<&'v Map> {
        match map.get(name) {
            Some(Value::Map(inside)) => Some(inside),
            None | Some(Value::Null) => None,
            Some(other) => {
                self.wrong(other, owner, "", name, go_type);
                None
            }
        }
    }

    /// A list of texts; absent is empty.
    pub(crate) fn texts(&mut self, map: &Map, owner: &str, dotted: &str, name: &str) -> Vec<Str> {
        let list = match map.get(name) {
            Some(Value::List(list)) => list.as_slice(),
            None | Some(Value::Null) => &[],
            Some(other) => {
                self.wrong(other, owner, dotted, name, "[]string");
                &[]
            }
        };
        let mut texts = Vec::with_capacity(list.len());
        for item in list {
            match item {
                Value::String(text) => texts.push(text.clone()),
                Value::Null => texts.push(Str::default()),
                other => self.wrong(other, owner, dotted, name, "string"),
            }
        }
        texts
    }

    /// A whole number; absent is zero.
    pub(crate) fn number(&mut self, map: &Map, owner: &str, dotted: &str, name: &str, go_type: &str) -> i64 {
        match map.get(name) {
            None | Some(Value::Null) => 0,
            Some(other) => {
                let fits = |number: &i64| go_type != "int32" || i32::try_from(*number).is_ok();
                other.as_int().filter(fits).unwrap_or_else(|| {
                    self.wrong(other, owner, dotted, name, go_type);
                    0
                })
            }
        }
    }

    /// Yes or no; absent is no.
    pub(crate) fn flag(&mut self, map: &Map, owner: &str, dotted: &str, name: &str) -> bool {
        match map.get(name) {
            None | Some(Value::Null) => false,
            Some(Value::Bool(flag)) => *flag,
            Some(other) => {
                self.wrong(other, owner, dotted, name, "bool");
                false
            }
        }
    }

    /// A value of the wrong type; the first is reported.
    pub(crate) fn wrong(&mut self, found: &Value, owner: &str, dotted: &str, name: &str, go_type: &str) {
        let place = if dotted.is_empty() { name.to_owned() } else { format!("{dotted}.{name}") };
        self.mismatch.get_or_insert_with(|| {
            format!(
                "json: cannot unmarshal {} into Go struct field {owner}.{place} of type {go_type}",
                found.json_type()
            )
        });
    }

    /// Complains of fields that are not `known`; `path` is the way to them, with positions.
    pub(crate) fn only(&mut self, map: &Map, path: &str, known: &[&str]) {
        let unknown: Vec<String> = map
            .keys()
            .filter(|name| !known.contains(&name.as_str()))
            .map(|name| if path.is_empty() { name.to_string() } else { format!("{path}.{name}") })
            .collect();
        self.strict.extend(schema::decode::strict_errors(&unknown, &[]));
    }

    /// Whether everything was right.
    pub(crate) fn finish(self) -> Result<(), String> {
        match self.mismatch {
            Some(mismatch) => Err(mismatch),
            None if self.strict.is_empty() => Ok(()),
            None => Err(format!("strict decoding error: {}", self.strict.join(", "))),
        }
    }
}
