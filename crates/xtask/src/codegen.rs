//! `cargo xtask codegen`: published OpenAPI definitions + hand-written facts → `crates/schema/data/schema.txt`.
//!
//! The definitions are the file `_definitions.json` of the newest version in PyPI's `kubernetes-validate` (`pip download
//! kubernetes-validate==1.37.0` and unzip). They carry types, formats, required fields, list types, map keys, patch merge keys and
//! group-version-kinds. `crates/schema/data/facts.txt` adds facts that they lack and lists the packages to read.
//! `crates/schema/src/text.rs`, which reads the output, describes its format.

mod facts;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use facts::{FieldFacts, OmitRule, SchemaFacts};

/// The hand-written facts and the generated table, from the workspace root.
const FACTS: &str = "crates/schema/data/facts.txt";
const SCHEMA: &str = "crates/schema/data/schema.txt";

/// The prefixes of definition names that the short names leave out, longest first where one contains the other.
const PREFIXES: [&str; 5] = [
    "io.k8s.apimachinery.pkg.apis.",
    "io.k8s.apiextensions-apiserver.pkg.apis.",
    "io.k8s.kube-aggregator.pkg.apis.",
    "io.k8s.apimachinery.pkg.",
    "io.k8s.api.",
];

/// Runs the command with its arguments: `--definitions PATH`, and `--check` to compare instead of write.
pub(crate) fn run(root: &Path, args: impl Iterator<Item = String>) -> Result<()> {
    let (mut definitions, mut check) = (None, false);
    let mut args = args;
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--definitions" => definitions = args.next().map(PathBuf::from),
            "--check" => check = true,
            other => {
                bail!("unknown argument `{other}`; usage: cargo xtask codegen --definitions PATH [--check]")
            }
        }
    }
    let path = definitions
        .context("--definitions PATH is required: `_definitions.json` of PyPI's kubernetes-validate")?;
    let definitions = fs::read(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
    let facts = fs::read_to_string(root.join(FACTS)).with_context(|| format!("cannot read `{FACTS}`"))?;
    let text = generate(&serde_json::from_slice(&definitions)?, &facts)?;
    let target = root.join(SCHEMA);
    if check {
        if fs::read_to_string(&target).unwrap_or_default() != text {
            bail!(
                "`{SCHEMA}` is not what the definitions and facts give; run `cargo xtask codegen --definitions PATH`"
            );
        }
        return Ok(());
    }
    fs::write(&target, &text).with_context(|| format!("cannot write `{SCHEMA}`"))?;
    println!(
        "{SCHEMA}: {} types, {} bytes",
        text.lines().filter(|line| !line.starts_with('#')).count(),
        text.len()
    );
    Ok(())
}

/// The generated table as text: one line per type, sorted by name.
fn generate(definitions: &Value, facts: &str) -> Result<String> {
    let facts = SchemaFacts::parse(facts)?;
    let definitions = definitions
        .get("$defs")
        .or_else(|| definitions.get("definitions"))
        .and_then(Value::as_object)
        .context("no `$defs` in the definitions")?;

    let mut lines = BTreeMap::new();
    let mut aliases = BTreeMap::new();
    let mut used = BTreeSet::new();
    // The packages of the facts file, and the types of other packages that they refer to.
    let mut wanted: Vec<&str> = Vec::new();
    for full in definitions.keys() {
        if short(full)?.rsplit_once('.').is_some_and(|(package, _)| facts.packages.contains(package)) {
            wanted.push(full);
        }
    }
    while let Some(full) = wanted.pop() {
        let name = short(full)?;
        if lines.contains_key(name) {
            continue;
        }
        let definition = definitions.get(full).with_context(|| format!("no definition `{full}`"))?;
        let (package, kind) =
            name.rsplit_once('.').with_context(|| format!("definition `{full}` has no package"))?;
        let line = SchemaType { facts: &facts, package, name, kind, aliases: &mut aliases, used: &mut used }
            .line(definition)
            .with_context(|| format!("in definition `{full}`"))?;
        lines.insert(name.to_owned(), line);
        references(definition, &mut wanted);
    }
    // Named scalars, lists and maps get a line each.
    for (name, shape) in aliases {
        let mut line = format!("{name} = {shape}");
        for value in facts.enums.get(&name).into_iter().flatten() {
            write!(line, " {value}")?;
        }
        lines.insert(name, line);
    }
    for (name, line) in &facts.types {
        if lines.insert(name.clone(), format!("{name} {line}")).is_some() {
            bail!("type `{name}`, which the definitions have");
        }
    }
    if let Some(unused) = facts.fields.keys().find(|field| !used.contains(*field)) {
        bail!("fact about `{unused}`, which no definition has");
    }
    if let Some(unused) = facts.enums.keys().find(|name| !lines.contains_key(*name)) {
        bail!("enum `{unused}`, which no field uses");
    }

    let mut text = String::from(
        "# Written by `cargo xtask codegen` from the published Kubernetes 1.37 definitions and facts.txt. Do not edit.\n\
         # One line per type, sorted; the form is described in src/schema/text.rs.\n",
    );
    for line in lines.values() {
        text.push_str(line);
        text.push('\n');
    }
    Ok(text)
}

/// A definition's name without its prefix, such as `io.k8s.api.`.
fn short(full: &str) -> Result<&str> {
    PREFIXES
        .iter()
        .find_map(|prefix| full.strip_prefix(prefix))
        .with_context(|| format!("definition `{full}` has an unknown prefix"))
}

/// Collects one definition while its line is written.
struct SchemaType<'a> {
    facts: &'a SchemaFacts,
    package: &'a str,
    name: &'a str,
    kind: &'a str,
    aliases: &'a mut BTreeMap<String, String>,
    used: &'a mut BTreeSet<String>,
}

impl SchemaType<'_> {
    fn line(mut self, definition: &Value) -> Result<String> {
        let mut line = self.name.to_owned();
        if let Some(own_form) = self.facts.kinds.get(self.name) {
            write!(line, " = {own_form}")?;
            return Ok(line);
        }
        let gvks = array(definition, "x-kubernetes-group-version-kind");
        match gvks {
            [] => {}
            [gvk] => {
                let (group, version) = (text(gvk, "group")?, text(gvk, "version")?);
                if text(gvk, "kind")? != self.kind {
                    bail!("kind and type name differ");
                }
                if group.is_empty() {
                    write!(line, " @{version}")?;
                } else {
                    write!(line, " @{group}/{version}")?;
                }
            }
            // DeleteOptions and WatchEvent are registered in every group and version.
            _ => line.push_str(" @*"),
        }
        match definition.get("x-kubernetes-map-type").and_then(Value::as_str) {
            None => {}
            Some(kind @ ("atomic" | "granular")) => write!(line, " ={kind}")?,
            Some(other) => bail!("map type `{other}`"),
        }
        if let Some(unions) = definition.get("x-kubernetes-unions") {
            write!(line, " %{}", compact(unions)?)?;
        }
        let required: BTreeSet<&str> =
            array(definition, "required").iter().filter_map(Value::as_str).collect();
        let properties = definition.get("properties").and_then(Value::as_object);
        // The fields are sorted by name, added ones included.
        let mut added = self.added().into_iter().peekable();
        for (name, property) in properties.into_iter().flatten() {
            while let Some((_, shape)) = added.next_if(|(own, _)| own < name) {
                write!(line, " {shape}")?;
            }
            self.property(&mut line, name, property, required.contains(name.as_str()), !gvks.is_empty())
                .with_context(|| format!("in property `{name}`"))?;
        }
        for (_, shape) in added {
            write!(line, " {shape}")?;
        }
        Ok(line)
    }

    /// The fields that Portcullis adds to the Kubernetes type, in the format of the table.
    fn added(&mut self) -> Vec<(String, String)> {
        let mut added = Vec::new();
        for (key, facts) in self.facts.fields.iter().filter(|(_, facts)| facts.added) {
            let Some(name) = key.strip_prefix(self.name).and_then(|rest| rest.strip_prefix('.')) else {
                continue;
            };
            self.used.insert(key.clone());
            let shape = facts.go_type.as_deref().unwrap_or("str");
            added.push((name.to_owned(), format!("{name}:{shape}")));
        }
        added
    }

    fn property(
        &mut self,
        line: &mut String,
        name: &str,
        property: &Value,
        required: bool,
        is_kind: bool,
    ) -> Result<()> {
        let key = format!("{}.{name}", self.name);
        let none = FieldFacts::default();
        let facts = self.facts.fields.get(&key).unwrap_or(&none);
        self.used.insert(key);

        // A value with its own JSON form behaves in Go as the struct it is; the two times are rarely pointers.
        let target = property.get("$ref").and_then(Value::as_str).map(referenced).transpose()?;
        let own_form = target.and_then(|target| self.facts.kinds.get(target)).map(String::as_str);
        let pointer = facts.pointer.unwrap_or(match target {
            None => false,
            Some(_) => {
                !required
                    && !matches!(name, "metadata" | "spec" | "status")
                    && !matches!(own_form, Some("time" | "micro-time"))
            }
        });
        let always = match facts.omit {
            Some(omit) => omit == OmitRule::Always,
            None => required,
        } || (target.is_some() && !pointer && facts.omit != Some(OmitRule::Zero));

        let shape = match &facts.go_type {
            Some(go_type) => self.named_shape(go_type, property)?,
            None => shape(property, self.package)?,
        };
        write!(line, " {name}:{shape}")?;
        if pointer {
            line.push('*');
        }
        match (required, always) {
            (true, true) => line.push('!'),
            (true, false) => line.push_str("!-"),
            (false, true) => line.push('+'),
            (false, false) => {}
        }
        if facts.omit == Some(OmitRule::Zero) {
            line.push('0');
        }

        match (
            text_or_none(property, "x-kubernetes-list-type"),
            text_or_none(property, "x-kubernetes-map-type"),
        ) {
            (None, None) => {}
            (Some(_), _) if !shape.starts_with("[]") && shape != "bytes" => {
                bail!("a list type on a named list")
            }
            (Some("map"), None) => {
                let keys: Vec<&str> =
                    array(property, "x-kubernetes-list-map-keys").iter().filter_map(Value::as_str).collect();
                write!(line, "=map({})", keys.join(","))?;
            }
            (Some(kind), None) | (None, Some(kind)) => write!(line, "={kind}")?,
            _ => bail!("both a list type and a map type"),
        }
        if let Some(strategy) = text_or_none(property, "x-kubernetes-patch-strategy") {
            write!(line, "^{strategy}")?;
            if let Some(key) = text_or_none(property, "x-kubernetes-patch-merge-key") {
                write!(line, "({key})")?;
            }
        }

        let declared_in = facts
            .embedded
            .as_deref()
            .unwrap_or(if is_kind && matches!(name, "kind" | "apiVersion") { "TypeMeta" } else { "-" });
        if declared_in != "-" {
            write!(line, "<{declared_in}")?;
        }

        let plain_scalar = !pointer
            && always
            && matches!(kind_of(property), Some("string" | "integer" | "boolean"))
            && text_or_none(property, "format") != Some("byte");
        let default = match (&facts.default, target) {
            (Some(default), _) => Some(default.as_str()),
            (None, Some(_)) if !pointer && own_form.is_none() => Some("{}"),
            (None, None) if plain_scalar => match kind_of(property) {
                Some("string") => Some("\"\""),
                Some("integer") => Some("0"),
                _ => Some("false"),
            },
            _ => None,
        };
        if let Some(default) = default {
            write!(line, "?{default}")?;
        }
        Ok(())
    }

    /// The shape of a property whose Go type is named, or is a list or map of a named type.
    fn named_shape(&mut self, go_type: &str, property: &Value) -> Result<String> {
        if let Some(item) = go_type.strip_prefix("[]") {
            return Ok(format!("[]{}", self.named_shape(item, items(property)?)?));
        }
        if let Some(rest) = go_type.strip_prefix("map[") {
            let (key, value) = rest.split_once(']').context("a map type without `]`")?;
            let key = if key == "string" { String::new() } else { self.alias(key, "str")? };
            return Ok(format!("{{{key}}}{}", self.named_shape(value, values(property)?)?));
        }
        let Some((package, _)) = go_type.rsplit_once('.').filter(|_| property.get("$ref").is_none()) else {
            return shape(property, self.package);
        };
        self.alias(go_type, &shape(property, package)?)
    }

    /// Records that `name` is a named `shape` with a line of its own, and returns how this line refers to it.
    fn alias(&mut self, name: &str, shape: &str) -> Result<String> {
        let known = self.aliases.entry(name.to_owned()).or_insert_with(|| shape.to_owned());
        if *known != shape {
            bail!("`{name}` is `{known}` elsewhere and `{shape}` here");
        }
        Ok(relative(name, self.package))
    }
}

/// The shape of a property; types of `package` are named without their package.
fn shape(property: &Value, package: &str) -> Result<String> {
    if let Some(target) = property.get("$ref").and_then(Value::as_str) {
        return Ok(relative(referenced(target)?, package));
    }
    Ok(match (kind_of(property), text_or_none(property, "format")) {
        (Some("string"), None) => "str".to_owned(),
        (Some("string"), Some("byte")) => "bytes".to_owned(),
        (Some("boolean"), None) => "bool".to_owned(),
        (Some("integer"), Some("int32")) => "i32".to_owned(),
        (Some("integer"), None | Some("int64")) => "i64".to_owned(),
        (Some("number"), _) => "f64".to_owned(),
        (Some("array"), _) => format!("[]{}", shape(items(property)?, package)?),
        (Some("object"), _) => format!("{{}}{}", shape(values(property)?, package)?),
        (kind, format) => bail!("type {kind:?} with format {format:?}"),
    })
}

/// The name of a type in a line of `package`: without the package if it is the same.
fn relative(name: &str, package: &str) -> String {
    match name.rsplit_once('.') {
        Some((own, kind)) if own == package => format!(".{kind}"),
        _ => name.to_owned(),
    }
}

fn items(property: &Value) -> Result<&Value> {
    property.get("items").context("a list without items")
}

fn values(property: &Value) -> Result<&Value> {
    property.get("additionalProperties").context("a map without values")
}

/// The full names of the definitions that `value` refers to, at any depth.
fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(object) => {
            found.extend(text_or_none(value, "$ref").and_then(|reference| reference.rsplit('/').next()));
            object.values().for_each(|value| references(value, found));
        }
        Value::Array(list) => list.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

/// The short name a `$ref` points to.
fn referenced(reference: &str) -> Result<&str> {
    short(reference.rsplit('/').next().unwrap_or(reference))
}

/// The JSON type, which these definitions widen to `[type, "null"]`.
fn kind_of(property: &Value) -> Option<&str> {
    match property.get("type")? {
        Value::String(kind) => Some(kind),
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null"),
        _ => None,
    }
}

fn array<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text_or_none<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str> {
    text_or_none(value, key).with_context(|| format!("no `{key}`"))
}

/// JSON on one line without spaces, because the table separates its columns by spaces.
fn compact(value: &Value) -> Result<String> {
    let text = serde_json::to_string(value)?;
    if text.contains(' ') {
        bail!("JSON with a space: `{text}`");
    }
    Ok(text)
}
