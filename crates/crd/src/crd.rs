//! [`CustomResourceDefinition`]: the parts of a stored CRD that routing, discovery and naming need.

use std::fmt;
use std::sync::{Arc, OnceLock};

use api::gvk::compare_versions;
use api::validation::fields::Read;
use value::{Str, Value, steps};

use super::OverlappingBuiltIn;
use super::columns::MAX_COLUMNS;
use super::compiled::CompiledVersion;
use super::stopwatch::Stopwatch;

/// Loads the whole CRD when a schema has to be compiled.
pub trait CrdSource: Send + Sync + fmt::Debug {
    /// The CRD, decoded on every call; `None` if it cannot be read.
    fn load(&self) -> Option<Value>;
}

/// A CRD without its schemas.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that do not depend on each other")]
pub struct CustomResourceDefinition {
    pub name: Str,
    pub uid: Str,
    /// The creation timestamp as stored.
    pub created: Str,
    pub group: Str,
    /// The accepted names from the status, not those of the spec.
    pub names: CrdNames,
    /// `metadata.generation`, which every change of the spec increments.
    pub generation: i64,
    pub namespaced: bool,
    /// All versions in the order of `spec.versions`.
    pub versions: Vec<Arc<CrdVersion>>,
    /// Approximate size of all versions, with their schemas, in bytes of JSON.
    pub size: usize,
    pub conversion: CrdConversion,
    /// `spec.preserveUnknownFields`: disables pruning and defaulting.
    pub preserve_unknown_fields: bool,
    /// Whether it is served: its `Established` condition is true, no other resource uses its storage directory and no other CRD has its
    /// kind.
    pub established: bool,
    pub names_accepted: bool,
    /// Whether the CRD is being deleted; no objects can be created.
    pub terminating: bool,
    /// Set once the schemas of all versions are compiled.
    ready: OnceLock<()>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CrdNames {
    pub plural: Str,
    pub singular: Str,
    pub kind: Str,
    pub list_kind: Str,
    pub short_names: Vec<Str>,
    pub categories: Vec<Str>,
}

/// `spec.conversion` of a CRD.
#[derive(Clone, Debug, PartialEq)]
pub enum CrdConversion {
    /// Conversion changes only `apiVersion`.
    None,
    /// Calls a webhook; holds `spec.conversion.webhook`.
    Webhook(Value),
}

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that do not depend on each other")]
pub struct CrdVersion {
    pub name: Str,
    pub served: bool,
    /// Whether this is the storage version.
    pub storage: bool,
    /// The warning sent with each response if the version is deprecated.
    pub deprecation: Option<String>,
    pub status: bool,
    /// The paths of the `scale` subresource, if the version has one.
    pub scale: Option<ScalePaths>,
    /// The fields that field selectors support besides name and namespace, without the leading dot.
    pub selectable: Vec<Str>,
    /// Number of declared printer columns.
    pub columns: usize,
    position: usize,
    preserve_unknown_fields: bool,
    group: Str,
    kind: Str,
    namespaced: bool,
    source: Arc<dyn CrdSource>,
    compiled: OnceLock<Arc<CompiledVersion>>,
}

/// The JSON paths of a `scale` subresource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    pub spec_replicas: Str,
    pub status_replicas: Str,
    pub label_selector: Option<Str>,
}

impl ScalePaths {
    /// Returns `None` if the version has no `scale` subresource.
    pub(super) fn read(version: &Value) -> Option<Self> {
        version.part("subresources").part("scale").map(|scale| ScalePaths {
            spec_replicas: scale.text("specReplicasPath").into(),
            status_replicas: scale.text("statusReplicasPath").into(),
            label_selector: scale.text_if_set("labelSelectorPath").map(Str::from),
        })
    }
}

/// The selectable fields of a version as pairs of selector name and JSON path.
pub(super) fn selectable(version: Option<&Value>) -> impl Iterator<Item = (&str, &str)> {
    version.items("selectableFields").iter().map(|field| {
        let path = field.text("jsonPath");
        (path.strip_prefix('.').unwrap_or(path), path)
    })
}

impl CrdNames {
    pub fn read(names: Option<&Value>) -> Self {
        CrdNames {
            plural: names.text("plural").into(),
            singular: names.text("singular").into(),
            kind: names.text("kind").into(),
            list_kind: names.text("listKind").into(),
            short_names: names.texts("shortNames").map(Str::from).collect(),
            categories: names.texts("categories").map(Str::from).collect(),
        }
    }
}

/// Whether the status condition named `condition` is `True`.
pub(super) fn is_true(crd: &Value, condition: &str) -> bool {
    let mut conditions = crd.list_at(&["status", "conditions"]).iter();
    conditions.any(|found| found.text("type") == condition && found.text("status") == "True")
}

/// Whether the CRD's objects do not share a storage directory with another resource. The directory is named after the accepted plural
/// name. That name comes from the status, which others can write, so it must equal the plural name in the immutable spec and CRD name.
fn has_own_directory(crd: &Value, accepted: &str, overlapping: OverlappingBuiltIn) -> bool {
    let spec = crd.part("spec");
    let (group, plural) = (spec.text("group"), spec.part("names").text("plural"));
    accepted == plural
        && api::meta::name(crd).strip_suffix(group).and_then(|name| name.strip_suffix('.')) == Some(plural)
        && overlapping(group, plural).is_none()
}

impl CustomResourceDefinition {
    /// Reads a stored CRD. `source` loads it again when a schema has to be compiled.
    pub fn read(crd: &Value, source: &Arc<dyn CrdSource>, overlapping: OverlappingBuiltIn) -> Self {
        let spec = crd.part("spec");
        let group: Str = spec.text("group").into();
        let names = CrdNames::read(crd.part("status").part("acceptedNames"));
        let namespaced = spec.text("scope") == "Namespaced";
        let preserve_unknown_fields = spec.flag("preserveUnknownFields");
        let conversion = match spec.part("conversion").text("strategy") {
            "Webhook" => {
                CrdConversion::Webhook(spec.part("conversion").part("webhook").cloned().unwrap_or_default())
            }
            _ => CrdConversion::None,
        };
        let listed = spec.items("versions");
        let size = listed.iter().map(super::defaults::size).sum();
        let best = recommended(listed);
        let kind = spec.part("names").text("kind");
        let versions = listed
            .iter()
            .enumerate()
            .map(|(position, version)| {
                Arc::new(CrdVersion {
                    name: version.text("name").into(),
                    served: version.flag("served"),
                    storage: version.flag("storage"),
                    deprecation: deprecation(version, best, &group, kind),
                    status: version.part("subresources").part("status").is_some(),
                    scale: ScalePaths::read(version),
                    selectable: selectable(Some(version)).map(|(label, _)| label.into()).collect(),
                    columns: version.items("additionalPrinterColumns").len().clamp(1, MAX_COLUMNS),
                    position,
                    preserve_unknown_fields,
                    group: group.clone(),
                    kind: names.kind.clone(),
                    namespaced,
                    source: Arc::clone(source),
                    compiled: OnceLock::new(),
                })
            })
            .collect();
        CustomResourceDefinition {
            name: api::meta::name(crd).into(),
            uid: api::meta::uid(crd).into(),
            created: crd.part("metadata").text("creationTimestamp").into(),
            generation: crd.part("metadata").number("generation"),
            namespaced,
            versions,
            size,
            conversion,
            preserve_unknown_fields,
            established: is_true(crd, "Established") && has_own_directory(crd, &names.plural, overlapping),
            names_accepted: is_true(crd, "NamesAccepted"),
            terminating: api::meta::is_deleting(crd) || is_true(crd, "Terminating"),
            names,
            group,
            ready: OnceLock::new(),
        }
    }

    /// How many bytes compiling its schemas has to read; 0 if all schemas are compiled.
    pub fn uncompiled(&self) -> usize {
        if self.ready.get().is_some() { 0 } else { self.size }
    }

    /// Compiles the schemas and rules of all versions so that later requests need not wait for it.
    pub fn compile(&self, watch: Option<&dyn Stopwatch>) {
        self.ready.get_or_init(|| {
            let Some(first) = self.versions.first() else { return };
            let crd = first.load();
            for version in &self.versions {
                version.compiled.get_or_init(|| version.compile(crd.as_ref())).prepare(watch);
            }
        });
    }

    /// Clears the kind that the status claims because another CRD has it. The CRD is no longer served.
    pub fn lose_kind(&mut self) {
        (self.names.kind, self.names.list_kind) = (Str::default(), Str::default());
        (self.established, self.names_accepted) = (false, false);
    }

    /// Stops serving the versions for which `is_taken` returns true: their group version is served by something else. Returns whether
    /// there are any. Must be called before the versions are shared.
    pub fn withdraw(&mut self, is_taken: impl Fn(&str) -> bool) -> bool {
        let mut any = false;
        for version in self.versions.iter_mut().filter_map(Arc::get_mut) {
            if version.served && is_taken(&version.name) {
                version.served = false;
                any = true;
            }
        }
        any
    }

    /// The version with `storage: true`.
    pub fn stored(&self) -> Option<&Arc<CrdVersion>> {
        self.versions.iter().find(|version| version.storage)
    }

    pub fn version(&self, name: &str) -> Option<&Arc<CrdVersion>> {
        let is_named = |version: &&Arc<CrdVersion>| {
            steps::count(1);
            version.name == name
        };
        self.versions.iter().find(is_named)
    }

    /// Whether both have the same uid and generation, and therefore the same spec.
    pub fn has_spec_of(&self, former: &CustomResourceDefinition) -> bool {
        (&self.uid, self.generation) == (&former.uid, former.generation)
    }

    /// Reuses the schemas compiled for an earlier reading of the same CRD if its spec did not change.
    pub fn reuse(&self, former: &CustomResourceDefinition) {
        if !self.has_spec_of(former) {
            return;
        }
        if former.ready.get().is_some() {
            let _ = self.ready.set(());
        }
        // Both have the same versions in the same order, because they have the same spec.
        for (version, former) in self.versions.iter().zip(&former.versions) {
            if let Some(compiled) = former.compiled.get().filter(|_| former.name == version.name) {
                let _ = version.compiled.set(Arc::clone(compiled));
            }
        }
    }
}

impl CrdVersion {
    /// The schema, compiled on first use.
    pub fn compiled(&self) -> &Arc<CompiledVersion> {
        self.compiled.get_or_init(|| self.compile(self.source.load().as_ref()))
    }

    fn compile(&self, crd: Option<&Value>) -> Arc<CompiledVersion> {
        let versions = crd.part("spec").items("versions");
        let version = versions.get(self.position).filter(|version| version.text("name") == self.name);
        Arc::new(CompiledVersion::new(
            version,
            self.preserve_unknown_fields,
            &self.group,
            &self.name,
            &self.kind,
            self.namespaced,
        ))
    }

    pub fn load(&self) -> Option<Value> {
        self.source.load()
    }

    /// The schema as written in the CRD, which [`CrdVersion::load`] of any of its versions returns; null if there is none.
    pub fn openapi(&self, crd: Option<&Value>) -> Value {
        let versions = crd.part("spec").items("versions");
        let version = versions.get(self.position).filter(|version| version.text("name") == self.name);
        version.part("schema").part("openAPIV3Schema").cloned().unwrap_or_default()
    }

    pub fn is_compiled(&self) -> bool {
        self.compiled.get().is_some()
    }
}

/// The version that the warnings of deprecated versions recommend: of those served and not deprecated, the one with the highest
/// priority.
fn recommended(versions: &[Value]) -> Option<&str> {
    let current = versions.iter().filter(|version| version.flag("served") && !version.flag("deprecated"));
    current.map(|version| version.text("name")).min_by(|a, b| compare_versions(a, b))
}

/// The warning for a deprecated version: `deprecationWarning`, or a default that recommends `best` if its priority is higher.
fn deprecation(version: &Value, best: Option<&str>, group: &str, kind: &str) -> Option<String> {
    if !version.flag("deprecated") {
        return None;
    }
    if let Some(warning) = version.text_if_set("deprecationWarning") {
        return Some(warning.to_owned());
    }
    let name = version.text("name");
    let warning = format!("{group}/{name} {kind} is deprecated");
    Some(match best.filter(|best| compare_versions(best, name).is_lt()) {
        Some(best) => format!("{warning}; use {group}/{best} {kind}"),
        None => warning,
    })
}
