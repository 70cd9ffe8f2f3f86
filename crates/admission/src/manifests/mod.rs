//! Static manifests (KEP-5793): loads the admission objects of a directory, or reports everything that is wrong
//! with it.
//!
//! Startup, reload and the offline check share this loader. It takes paths and bytes; the caller reads the
//! directory. Every problem has file, line, column and field. The text of [`LoadError`] is kube-apiserver's,
//! which stops at the first problem.

mod decode;
mod expected;
mod problem;
mod restrictions;
mod warnings;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use data_encoding::HEXLOWER;
use kinds::validation::ValidationContext;
use sha2::{Digest, Sha256};
use value::{Str, Value};

use crate::policy::TypeCheckKinds;
pub use expected::EXPECTED_OBJECTS;
pub use problem::{LoadError, ManifestProblem};
pub use restrictions::STATIC_SUFFIX;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestFile {
    /// As shown in messages.
    pub path: String,
    /// The content, or the error of reading it, as Go's `os` package words it.
    pub content: Result<Vec<u8>, String>,
}

/// The plugin that a directory is configured for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ManifestSet {
    ValidatingWebhooks,
    MutatingWebhooks,
    ValidatingPolicies,
    MutatingPolicies,
    /// All plugins, by kind of the objects.
    Mixed,
}

impl ManifestSet {
    /// The kinds that the directory may contain.
    pub fn kinds(self) -> &'static [&'static str] {
        match self {
            ManifestSet::ValidatingWebhooks => &["ValidatingWebhookConfiguration"],
            ManifestSet::MutatingWebhooks => &["MutatingWebhookConfiguration"],
            ManifestSet::ValidatingPolicies => {
                &["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]
            }
            ManifestSet::MutatingPolicies => &["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"],
            ManifestSet::Mixed => &[
                "ValidatingWebhookConfiguration",
                "MutatingWebhookConfiguration",
                "ValidatingAdmissionPolicy",
                "ValidatingAdmissionPolicyBinding",
                "MutatingAdmissionPolicy",
                "MutatingAdmissionPolicyBinding",
            ],
        }
    }

    /// The plugin's name as in flags and metrics; empty for `Mixed`.
    pub fn plugin(self) -> &'static str {
        match self {
            ManifestSet::ValidatingWebhooks => "ValidatingAdmissionWebhook",
            ManifestSet::MutatingWebhooks => "MutatingAdmissionWebhook",
            ManifestSet::ValidatingPolicies => "ValidatingAdmissionPolicy",
            ManifestSet::MutatingPolicies => "MutatingAdmissionPolicy",
            ManifestSet::Mixed => "",
        }
    }

    fn is_webhooks(self) -> bool {
        matches!(self, ManifestSet::ValidatingWebhooks | ManifestSet::MutatingWebhooks)
    }
}

/// An accepted object: decoded, defaulted and valid.
#[derive(Clone, Debug)]
pub struct Manifest {
    pub object: Arc<Value>,
    pub file: Str,
    /// The line on which the object begins.
    pub line: usize,
}

/// The accepted content of a directory.
#[derive(Clone, Debug, Default)]
pub struct LoadedManifests {
    /// By kind, sorted by name.
    pub objects: BTreeMap<&'static str, Vec<Manifest>>,
    /// `sha256:` and the hex digest of the files; empty if the directory has no content.
    pub hash: String,
    /// Valid, but probably not intended.
    pub warnings: Vec<ManifestProblem>,
}

#[derive(Clone, Copy)]
pub struct LoadOptions<'a> {
    /// Whether warnings are errors.
    pub strict: bool,
    /// The kinds that expressions are type checked against.
    pub kinds: &'a dyn TypeCheckKinds,
}

impl LoadedManifests {
    pub fn of_kind(&self, kind: &str) -> &[Manifest] {
        self.objects.get(kind).map(Vec::as_slice).unwrap_or_default()
    }

    pub fn len(&self) -> usize {
        self.objects.values().map(Vec::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The content of [`EXPECTED_OBJECTS`] for exactly these objects.
    pub fn expected_objects(&self) -> String {
        expected::write(&self.objects)
    }
}

/// Whether a file of this name is loaded: a manifest, or [`EXPECTED_OBJECTS`].
pub fn is_read(name: &str) -> bool {
    is_manifest(name) || name == EXPECTED_OBJECTS
}

fn is_manifest(name: &str) -> bool {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    matches!(extension.as_deref(), Some("yaml" | "yml" | "json"))
}

/// Hashes the content of all non-empty manifests, each followed by a zero byte.
pub fn hash(files: &[ManifestFile]) -> String {
    let mut hasher = Sha256::new();
    let mut any = false;
    let manifests = files.iter().filter(|file| !expected::is_list(&file.path));
    for content in manifests.filter_map(|file| file.content.as_ref().ok()).filter(|c| !c.is_empty()) {
        hasher.update(content);
        hasher.update([0]);
        any = true;
    }
    if !any {
        return String::new();
    }
    format!("sha256:{}", HEXLOWER.encode(&hasher.finalize()))
}

/// Accepted files of one directory, by path. Unchanged files are not checked again on reload. Use one value per
/// directory.
#[derive(Debug, Default)]
pub struct AcceptedFiles {
    files: HashMap<String, AcceptedFile>,
    /// Whether the last accepted directory contained [`EXPECTED_OBJECTS`]. If so, the next one must, too:
    /// deleting the list must not remove its protection.
    had_expected_objects: bool,
}

#[derive(Debug)]
struct AcceptedFile {
    digest: [u8; 32],
    objects: Vec<(&'static str, Manifest)>,
    warnings: Vec<ManifestProblem>,
}

impl AcceptedFiles {
    /// The objects of an unchanged file, unless one of their names also occurs in another file.
    fn of(&self, path: &str, digest: &[u8; 32], names: &restrictions::SeenNames) -> Option<&AcceptedFile> {
        let accepted_file = self.files.get(path).filter(|accepted_file| accepted_file.digest == *digest)?;
        let unique =
            accepted_file.objects.iter().all(|(kind, m)| !names.is_taken(kind, api::meta::name(&m.object)));
        unique.then_some(accepted_file)
    }
}

/// Loads a directory. `files` must be sorted by name.
pub fn load(
    set: ManifestSet,
    directory: &str,
    files: &[ManifestFile],
    rules: LoadOptions<'_>,
) -> Result<LoadedManifests, LoadError> {
    load_changed(set, directory, files, rules, &mut AcceptedFiles::default())
}

/// Like [`load`], but reuses the files that `accepted` knows from the last load.
pub fn load_changed(
    set: ManifestSet,
    directory: &str,
    files: &[ManifestFile],
    rules: LoadOptions<'_>,
    accepted: &mut AcceptedFiles,
) -> Result<LoadedManifests, LoadError> {
    let mut catalog =
        AcceptedFiles { files: std::mem::take(&mut accepted.files), ..AcceptedFiles::default() };
    let mut problems = problem::Problems::new(set, directory);
    let mut validator = ManifestValidator {
        context: ValidationContext { static_names: true, is_manifest: true, ..ValidationContext::default() },
        kinds: rules.kinds,
        names: restrictions::SeenNames::default(),
    };
    let mut objects: BTreeMap<&'static str, Vec<Manifest>> = BTreeMap::new();
    let mut warnings = Vec::new();
    let (lists, manifests): (Vec<&ManifestFile>, Vec<&ManifestFile>) =
        files.iter().partition(|file| expected::is_list(&file.path));
    for file in manifests {
        let content = match &file.content {
            Ok(content) => content,
            Err(why) => {
                problems.unreadable(&file.path, why);
                continue;
            }
        };
        let digest: [u8; 32] = Sha256::digest(content).into();
        let accepted_file = if let Some(accepted_file) = catalog.of(&file.path, &digest, &validator.names) {
            for (kind, manifest) in &accepted_file.objects {
                validator.names.record(kind, api::meta::name(&manifest.object), &file.path);
            }
            catalog.files.remove(&file.path)
        } else {
            let before = problems.len();
            let mut accepted_file = AcceptedFile { digest, objects: Vec::new(), warnings: Vec::new() };
            decode::items(set, file, content, &mut problems, &mut |items, problems| {
                validator.validate(file, items, problems, &mut accepted_file);
            });
            (problems.len() == before).then_some(accepted_file)
        };
        if let Some(accepted_file) = accepted_file {
            for (kind, manifest) in &accepted_file.objects {
                objects.entry(kind).or_default().push(manifest.clone());
            }
            warnings.extend(accepted_file.warnings.iter().cloned());
            accepted.files.insert(file.path.clone(), accepted_file);
        }
    }
    // Check references only if the objects themselves are valid: a binding of a rejected policy is not a
    // problem of its own.
    if problems.len() == 0 {
        restrictions::references(&objects, &mut problems);
    }
    if problems.len() == 0 {
        match lists.first() {
            Some(list) => expected::check(list, &objects, &mut problems),
            None if accepted.had_expected_objects => problems.expected_objects_missing(),
            None => {}
        }
    }
    warnings.extend(warnings::of_directory(directory, &objects));
    if rules.strict && problems.len() == 0 {
        for warning in warnings.drain(..) {
            let report = warning.one_line();
            problems.push(|| report, warning);
        }
    }
    problems.finish()?;
    warnings.truncate(problem::MAX_PROBLEMS);
    accepted.had_expected_objects = !lists.is_empty();
    for list in objects.values_mut() {
        list.sort_by(|a, b| api::meta::name(&a.object).cmp(api::meta::name(&b.object)));
    }
    Ok(LoadedManifests { objects, hash: hash(files), warnings })
}

/// Validates the objects of all files of a directory.
struct ManifestValidator<'a> {
    context: ValidationContext,
    kinds: &'a dyn TypeCheckKinds,
    names: restrictions::SeenNames,
}

impl ManifestValidator<'_> {
    /// Defaults and validates decoded objects, first by the API's rules, then by those for static manifests.
    fn validate(
        &mut self,
        file: &ManifestFile,
        items: Vec<decode::DecodedObject>,
        problems: &mut problem::Problems<'_>,
        accepted_file: &mut AcceptedFile,
    ) {
        let mut valid = Vec::with_capacity(items.len());
        for mut item in items {
            let kind = api::GroupKind::new(api::groups::ADMISSION_REGISTRATION, item.kind);
            kinds::table::behavior(&kind).apply_defaults(&mut item.object);
            let checks = kinds::table::behavior(&kind).rules.as_ref();
            let errors = checks.map(|rules| (rules.create)(&item.object, &self.context)).unwrap_or_default();
            if errors.is_empty() {
                valid.push(item);
            } else {
                problems.invalid(file, item.kind, api::meta::name(&item.object), &item.spans, &errors);
            }
        }
        valid.retain(|item| {
            let before = problems.len();
            self.names.check(file, item.kind, &item.object, &item.spans, problems);
            restrictions::check(file, item.kind, &item.object, &item.spans, problems);
            problems.len() == before
        });
        for item in valid {
            accepted_file.warnings.extend(warnings::of_object(
                file,
                item.kind,
                &item.object,
                &item.spans,
                self.kinds,
            ));
            let line = item.spans.line();
            let manifest = Manifest { object: Arc::new(item.object), file: file.path.as_str().into(), line };
            accepted_file.objects.push((item.kind, manifest));
        }
    }
}

#[cfg(test)]
mod tests;
