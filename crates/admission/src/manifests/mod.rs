//! Static manifests (KEP-5793): the files of a folder → the admission objects in force, or every reason why not.
//!
//! The same loader serves start-up, reload and the offline check. It takes paths and bytes; reading the folder is the caller's.
//! Everything that is wrong is reported, each with file, line, column and field; [`Refused`]'s own text is what kube-apiserver
//! says, which stops at the first.

mod decode;
mod expected;
mod problem;
mod restrictions;
mod warnings;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use kinds::validation::Context;
use sha2::{Digest, Sha256};
use value::{Str, Value};

use crate::policy::Kinds;
pub use expected::EXPECTED_OBJECTS;
pub use problem::{Problem, Refused};
pub use restrictions::STATIC_SUFFIX;

/// A file of the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its path, as messages show it.
    pub path: String,
    /// What is in it, or why that cannot be read, in the words of Go's `os` package.
    pub content: Result<Vec<u8>, String>,
}

/// What a folder is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Set {
    /// `ValidatingAdmissionWebhook`.
    ValidatingWebhooks,
    /// `MutatingAdmissionWebhook`.
    MutatingWebhooks,
    /// `ValidatingAdmissionPolicy`.
    ValidatingPolicies,
    /// `MutatingAdmissionPolicy`.
    MutatingPolicies,
    /// All six kinds, to be sorted to their plugins.
    Mixed,
}

impl Set {
    /// The kinds that may be in the folder.
    pub fn kinds(self) -> &'static [&'static str] {
        match self {
            Set::ValidatingWebhooks => &["ValidatingWebhookConfiguration"],
            Set::MutatingWebhooks => &["MutatingWebhookConfiguration"],
            Set::ValidatingPolicies => &["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"],
            Set::MutatingPolicies => &["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"],
            Set::Mixed => &[
                "ValidatingWebhookConfiguration",
                "MutatingWebhookConfiguration",
                "ValidatingAdmissionPolicy",
                "ValidatingAdmissionPolicyBinding",
                "MutatingAdmissionPolicy",
                "MutatingAdmissionPolicyBinding",
            ],
        }
    }

    /// The plugin, as flags and metrics spell it.
    pub fn plugin(self) -> &'static str {
        match self {
            Set::ValidatingWebhooks => "ValidatingAdmissionWebhook",
            Set::MutatingWebhooks => "MutatingAdmissionWebhook",
            Set::ValidatingPolicies => "ValidatingAdmissionPolicy",
            Set::MutatingPolicies => "MutatingAdmissionPolicy",
            Set::Mixed => "",
        }
    }

    fn is_webhooks(self) -> bool {
        matches!(self, Set::ValidatingWebhooks | Set::MutatingWebhooks)
    }
}

/// One object of a folder, in force: decoded, defaulted and valid.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// The object.
    pub object: Arc<Value>,
    /// The file it comes from.
    pub file: Str,
    /// The line on which it begins.
    pub line: usize,
}

/// What a folder holds.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// The objects by kind, each sorted by name.
    pub objects: BTreeMap<&'static str, Vec<Manifest>>,
    /// `sha256:` over the files; empty for a folder without any content.
    pub hash: String,
    /// Valid, but probably not what the author meant.
    pub warnings: Vec<Problem>,
}

/// How a folder is judged.
#[derive(Clone, Copy)]
pub struct Rules<'a> {
    /// Whether warnings are errors.
    pub strict: bool,
    /// The kinds that expressions are checked against.
    pub kinds: &'a dyn Kinds,
}

impl Loaded {
    /// The objects of a kind.
    pub fn of_kind(&self, kind: &str) -> &[Manifest] {
        self.objects.get(kind).map(Vec::as_slice).unwrap_or_default()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.objects.values().map(Vec::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The text of [`EXPECTED_OBJECTS`] for exactly these objects.
    pub fn expected_objects(&self) -> String {
        expected::write(&self.objects)
    }
}

/// Whether a file of this name is read: a manifest, or the list of the objects that there must be.
pub fn is_read(name: &str) -> bool {
    is_manifest(name) || name == EXPECTED_OBJECTS
}

/// Whether a file of this name is a manifest.
fn is_manifest(name: &str) -> bool {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    matches!(extension.as_deref(), Some("yaml" | "yml" | "json"))
}

/// The hash over the files: each that has content, followed by a zero byte.
pub fn hash(files: &[File]) -> String {
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
    let digest = hasher.finalize();
    let mut text = String::from("sha256:");
    for byte in digest {
        use std::fmt::Write as _;
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// What was found good in a folder, by file: a file that has not changed need not be judged again. It is of one [`Set`].
#[derive(Debug, Default)]
pub struct Judged {
    files: HashMap<String, Good>,
    /// Whether the last folder that was accepted had a list of expected objects. Then the next one must have it, too: deleting
    /// the list must not take away what it protects.
    listed: bool,
}

/// A file without any problem.
#[derive(Debug)]
struct Good {
    digest: [u8; 32],
    objects: Vec<(&'static str, Manifest)>,
    warnings: Vec<Problem>,
}

impl Judged {
    /// What is in a file, if that is known and none of its names has been seen elsewhere.
    fn of(&self, path: &str, digest: &[u8; 32], names: &restrictions::Names) -> Option<&Good> {
        let good = self.files.get(path).filter(|good| good.digest == *digest)?;
        let fresh = good.objects.iter().all(|(kind, m)| !names.is_taken(kind, api::meta::name(&m.object)));
        fresh.then_some(good)
    }
}

/// Loads the files of a folder, which must be in the order of their names.
pub fn load(set: Set, folder: &str, files: &[File], rules: Rules<'_>) -> Result<Loaded, Refused> {
    load_changes(set, folder, files, rules, &mut Judged::default())
}

/// The same, where most files are known from before.
pub fn load_changes(
    set: Set,
    folder: &str,
    files: &[File],
    rules: Rules<'_>,
    judged: &mut Judged,
) -> Result<Loaded, Refused> {
    let mut known = Judged { files: std::mem::take(&mut judged.files), ..Judged::default() };
    let context = &Context { static_names: true, ..Context::default() };
    let mut problems = problem::Problems::new(set, folder);
    let mut names = restrictions::Names::default();
    let mut objects: BTreeMap<&'static str, Vec<Manifest>> = BTreeMap::new();
    let mut warnings = Vec::new();
    let (lists, manifests): (Vec<&File>, Vec<&File>) =
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
        let good = if let Some(good) = known.of(&file.path, &digest, &names) {
            for (kind, manifest) in &good.objects {
                names.take(kind, api::meta::name(&manifest.object), &file.path);
            }
            known.files.remove(&file.path)
        } else {
            let before = problems.len();
            let mut good = Good { digest, objects: Vec::new(), warnings: Vec::new() };
            decode::items(set, file, content, &mut problems, &mut |items, problems| {
                accept(file, items, context, rules.kinds, &mut names, problems, &mut good);
            });
            (problems.len() == before).then_some(good)
        };
        if let Some(good) = good {
            for (kind, manifest) in &good.objects {
                objects.entry(kind).or_default().push(manifest.clone());
            }
            warnings.extend(good.warnings.iter().cloned());
            judged.files.insert(file.path.clone(), good);
        }
    }
    // A policy that is refused itself is no reason to complain about its binding, or about what is missing.
    if problems.len() == 0 {
        restrictions::references(&objects, &mut problems);
    }
    if problems.len() == 0 {
        match lists.first() {
            Some(list) => expected::check(list, &objects, &mut problems),
            None if judged.listed => problems.list_is_gone(),
            None => {}
        }
    }
    warnings.extend(warnings::of_folder(folder, &objects));
    if rules.strict && problems.len() == 0 {
        for warning in warnings.drain(..) {
            let said = warning.one_line();
            problems.push(|| said, warning);
        }
    }
    problems.finish()?;
    warnings.truncate(problem::MAX_PROBLEMS);
    judged.listed = !lists.is_empty();
    for list in objects.values_mut() {
        list.sort_by(|a, b| api::meta::name(&a.object).cmp(api::meta::name(&b.object)));
    }
    Ok(Loaded { objects, hash: hash(files), warnings })
}

/// Decoded objects → those in force: defaults and the rules of the API for all of them, then the rules of static manifests.
fn accept(
    file: &File,
    items: Vec<decode::Item>,
    context: &Context,
    known: &dyn Kinds,
    names: &mut restrictions::Names,
    problems: &mut problem::Problems<'_>,
    good: &mut Good,
) {
    let mut valid = Vec::with_capacity(items.len());
    for mut item in items {
        let kind = api::GroupKind::new("admissionregistration.k8s.io", item.kind);
        kinds::table::behavior(&kind).apply_defaults(&mut item.object);
        let checks = kinds::table::behavior(&kind).rules.as_ref();
        let errors = checks.map(|rules| (rules.create)(&item.object, context)).unwrap_or_default();
        if errors.is_empty() {
            valid.push(item);
        } else {
            problems.invalid(file, item.kind, api::meta::name(&item.object), &item.place, &errors);
        }
    }
    valid.retain(|item| {
        let before = problems.len();
        names.check(file, item.kind, &item.object, &item.place, problems);
        restrictions::check(file, item.kind, &item.object, &item.place, problems);
        problems.len() == before
    });
    for item in valid {
        good.warnings.extend(warnings::of_object(file, item.kind, &item.object, &item.place, known));
        let line = item.place.line();
        let manifest = Manifest { object: Arc::new(item.object), file: file.path.as_str().into(), line };
        good.objects.push((item.kind, manifest));
    }
}

#[cfg(test)]
mod tests;
