//! The facts of a stored CRD that routing, discovery and names need.

use std::fmt;
use std::sync::{Arc, OnceLock};

use api::gvk::compare_versions;
use api::validation::fields::Read;
use value::{Str, Value};

use super::OverlappingBuiltIn;
use super::columns::MAX_COLUMNS;
use super::compiled::Compiled;
use super::stopwatch::Stopwatch;

/// Where the whole CRD is when a schema has to be compiled.
pub trait Source: Send + Sync + fmt::Debug {
    /// The CRD, decoded anew.
    fn load(&self) -> Option<Value>;
}

/// What a CRD says, without its schemas.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that do not depend on each other")]
pub struct CustomResourceDefinition {
    /// `plural.group`.
    pub name: Str,
    /// The uid of the CRD.
    pub uid: Str,
    /// When the CRD was created.
    pub created: Str,
    /// The API group.
    pub group: Str,
    /// The names that have been accepted.
    pub names: Names,
    /// How often the spec changed.
    pub generation: i64,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Every version, in the order of the CRD.
    pub versions: Vec<Arc<Version>>,
    /// About how many bytes of JSON the versions are, with their schemas.
    pub size: usize,
    /// How versions become each other.
    pub conversion: Conversion,
    /// `spec.preserveUnknownFields`: nothing is pruned.
    pub preserve_unknown_fields: bool,
    /// Whether it is served: its condition says so, no other resource has its storage directory, and no other CRD its kind.
    pub established: bool,
    /// Whether its names have been accepted.
    pub names_accepted: bool,
    /// Whether it is on its way out: nothing can be created.
    pub terminating: bool,
    /// Set when the schemas of all versions are compiled.
    ready: OnceLock<()>,
}

/// The names of a kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// `crontabs`.
    pub plural: Str,
    /// `crontab`.
    pub singular: Str,
    /// `CronTab`.
    pub kind: Str,
    /// `CronTabList`.
    pub list_kind: Str,
    /// What kubectl also accepts.
    pub short_names: Vec<Str>,
    /// The sets it belongs to.
    pub categories: Vec<Str>,
}

/// How the versions of a kind become each other.
#[derive(Clone, Debug, PartialEq)]
pub enum Conversion {
    /// Only `apiVersion` changes.
    None,
    /// A webhook is asked; this is `spec.conversion.webhook`.
    Webhook(Value),
}

/// A version of a kind.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that do not depend on each other")]
pub struct Version {
    /// `v1`.
    pub name: Str,
    /// Whether it is served.
    pub served: bool,
    /// Whether objects are stored in it.
    pub storage: bool,
    /// The warning that use of it brings.
    pub deprecation: Option<String>,
    /// Whether it has a `status` subresource.
    pub status: bool,
    /// Where its `scale` subresource finds the replicas.
    pub scale: Option<ScalePaths>,
    /// The fields that selectors know besides name and namespace, without the dot in front.
    pub selectable: Vec<Str>,
    /// How many printer columns it has.
    pub columns: usize,
    position: usize,
    preserve_unknown_fields: bool,
    group: Str,
    kind: Str,
    namespaced: bool,
    source: Arc<dyn Source>,
    compiled: OnceLock<Arc<Compiled>>,
}

/// The paths of a `scale` subresource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    /// The wanted number of replicas.
    pub spec_replicas: Str,
    /// The current one.
    pub status_replicas: Str,
    /// The selector of what is counted.
    pub label_selector: Option<Str>,
}

impl ScalePaths {
    /// Of a version, if it has the subresource.
    pub(super) fn read(version: &Value) -> Option<Self> {
        version.part("subresources").part("scale").map(|scale| ScalePaths {
            spec_replicas: scale.text("specReplicasPath").into(),
            status_replicas: scale.text("statusReplicasPath").into(),
            label_selector: scale.text_if_set("labelSelectorPath").map(Str::from),
        })
    }
}

/// The selectable fields of a version: what selectors call them, and their paths.
pub(super) fn selectable(version: Option<&Value>) -> impl Iterator<Item = (&str, &str)> {
    version.items("selectableFields").iter().map(|field| {
        let path = field.text("jsonPath");
        (path.strip_prefix('.').unwrap_or(path), path)
    })
}

impl Names {
    /// From `spec.names` or `status.acceptedNames`.
    pub fn read(names: Option<&Value>) -> Self {
        Names {
            plural: names.text("plural").into(),
            singular: names.text("singular").into(),
            kind: names.text("kind").into(),
            list_kind: names.text("listKind").into(),
            short_names: names.texts("shortNames").map(Str::from).collect(),
            categories: names.texts("categories").map(Str::from).collect(),
        }
    }
}

/// Whether a condition of a CRD is `True`.
pub(super) fn is_true(crd: &Value, condition: &str) -> bool {
    let mut conditions = crd.list_at(&["status", "conditions"]).iter();
    conditions.any(|found| found.text("type") == condition && found.text("status") == "True")
}

/// Whether the objects of a CRD are stored where no other resource's are. The directory is made of the accepted plural
/// name, which comes from the status and must therefore be the one that the spec and the name, which never change, have.
fn has_own_directory(crd: &Value, accepted: &str, overlapping: OverlappingBuiltIn) -> bool {
    let spec = crd.part("spec");
    let (group, plural) = (spec.text("group"), spec.part("names").text("plural"));
    accepted == plural
        && api::meta::name(crd).strip_suffix(group).and_then(|name| name.strip_suffix('.')) == Some(plural)
        && overlapping(group, plural).is_none()
}

impl CustomResourceDefinition {
    /// Reads a stored CRD. `source` brings the whole of it back when a schema is needed.
    pub fn read(crd: &Value, source: &Arc<dyn Source>, overlapping: OverlappingBuiltIn) -> Self {
        let spec = crd.part("spec");
        let group: Str = spec.text("group").into();
        let names = Names::read(crd.part("status").part("acceptedNames"));
        let namespaced = spec.text("scope") == "Namespaced";
        let preserve_unknown_fields = spec.flag("preserveUnknownFields");
        let conversion = match spec.part("conversion").text("strategy") {
            "Webhook" => {
                Conversion::Webhook(spec.part("conversion").part("webhook").cloned().unwrap_or_default())
            }
            _ => Conversion::None,
        };
        let listed = spec.items("versions");
        let size = listed.iter().map(super::defaults::size).sum();
        let versions = listed
            .iter()
            .enumerate()
            .map(|(position, version)| {
                Arc::new(Version {
                    name: version.text("name").into(),
                    served: version.flag("served"),
                    storage: version.flag("storage"),
                    deprecation: deprecation(version, listed, &group, spec.part("names").text("kind")),
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

    /// How many bytes have to be read to compile its schemas; 0 if nothing has to be compiled any more.
    pub fn uncompiled(&self) -> usize {
        if self.ready.get().is_some() { 0 } else { self.size }
    }

    /// Compiles the schemas and the rules of all versions, so that no request has to wait for that later.
    pub fn compile(&self, watch: Option<&dyn Stopwatch>) {
        self.ready.get_or_init(|| {
            let Some(first) = self.versions.first() else { return };
            let crd = first.load();
            for version in &self.versions {
                version.compiled.get_or_init(|| version.compile(crd.as_ref())).prepare(watch);
            }
        });
    }

    /// Takes the kind away that its status claims: another CRD has it. Without it, the CRD is not served.
    pub fn lose_kind(&mut self) {
        (self.names.kind, self.names.list_kind) = (Str::default(), Str::default());
        (self.established, self.names_accepted) = (false, false);
    }

    /// The version that objects are stored in.
    pub fn stored(&self) -> Option<&Arc<Version>> {
        self.versions.iter().find(|version| version.storage)
    }

    /// The version called `name`.
    pub fn version(&self, name: &str) -> Option<&Arc<Version>> {
        self.versions.iter().find(|version| version.name == name)
    }

    /// Whether this is the same CRD with the same spec: every change of the spec counts as a generation.
    pub fn has_spec_of(&self, former: &CustomResourceDefinition) -> bool {
        (&self.uid, self.generation) == (&former.uid, former.generation)
    }

    /// Takes over the schemas that were compiled for a former reading of the CRD, if its spec did not change.
    pub fn reuse(&self, former: &CustomResourceDefinition) {
        if !self.has_spec_of(former) {
            return;
        }
        if former.ready.get().is_some() {
            let _ = self.ready.set(());
        }
        for version in &self.versions {
            if let Some(compiled) = former.version(&version.name).and_then(|version| version.compiled.get()) {
                let _ = version.compiled.set(Arc::clone(compiled));
            }
        }
    }
}

impl Version {
    /// The schema, compiled when it is first needed.
    pub fn compiled(&self) -> &Arc<Compiled> {
        self.compiled.get_or_init(|| self.compile(self.source.load().as_ref()))
    }

    /// Compiles the schema from the CRD that the version is in.
    fn compile(&self, crd: Option<&Value>) -> Arc<Compiled> {
        let versions = crd.part("spec").items("versions");
        let version = versions.get(self.position).filter(|version| version.text("name") == self.name);
        Arc::new(Compiled::new(
            version,
            self.preserve_unknown_fields,
            &self.group,
            &self.name,
            &self.kind,
            self.namespaced,
        ))
    }

    /// The CRD that the version is in, read anew.
    pub fn load(&self) -> Option<Value> {
        self.source.load()
    }

    /// The schema as it is in the CRD, which [`Version::load`] gave for any of its versions; null where there is none.
    pub fn openapi(&self, crd: Option<&Value>) -> Value {
        let versions = crd.part("spec").items("versions");
        let version = versions.get(self.position).filter(|version| version.text("name") == self.name);
        version.part("schema").part("openAPIV3Schema").cloned().unwrap_or_default()
    }

    /// Whether the schema has been compiled.
    pub fn is_compiled(&self) -> bool {
        self.compiled.get().is_some()
    }
}

/// The warning for a deprecated version: its own, or one that names the best version that is not.
fn deprecation(version: &Value, versions: &[Value], group: &str, kind: &str) -> Option<String> {
    if !version.flag("deprecated") {
        return None;
    }
    if let Some(warning) = version.text_if_set("deprecationWarning") {
        return Some(warning.to_owned());
    }
    let name = version.text("name");
    let mut better: Vec<&str> = versions
        .iter()
        .filter(|other| other.flag("served") && !other.flag("deprecated"))
        .map(|other| other.text("name"))
        .filter(|other| compare_versions(other, name).is_lt())
        .collect();
    better.sort_by(|a, b| compare_versions(a, b));
    let warning = format!("{group}/{name} {kind} is deprecated");
    Some(match better.first() {
        Some(best) => format!("{warning}; use {group}/{best} {kind}"),
        None => warning,
    })
}
