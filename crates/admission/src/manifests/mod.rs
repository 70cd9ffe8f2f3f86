//! Static manifests (KEP-5793): the files of a folder → the admission objects in force, or every reason why not.
//!
//! The same loader serves start-up, reload and the offline check. It takes paths and bytes; reading the folder is the caller's.
//! Everything that is wrong is reported, each with file, line, column and field; [`Refused`]'s own text is what kube-apiserver
//! says, which stops at the first.

mod decode;
mod problem;
mod restrictions;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use resources::validation::Context;
use sha2::{Digest, Sha256};
use value::{Str, Value};

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
}

/// Whether a file of this name is read.
pub fn is_manifest(name: &str) -> bool {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    matches!(extension.as_deref(), Some("yaml" | "yml" | "json"))
}

/// The hash over the files: each that has content, followed by a zero byte.
pub fn hash(files: &[File]) -> String {
    let mut hasher = Sha256::new();
    let mut any = false;
    for content in files.iter().filter_map(|file| file.content.as_ref().ok()).filter(|c| !c.is_empty()) {
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
pub struct Judged(HashMap<String, Good>);

/// A file without any problem.
#[derive(Debug)]
struct Good {
    digest: [u8; 32],
    objects: Vec<(&'static str, Manifest)>,
}

impl Judged {
    /// What is in a file, if that is known and none of its names has been seen elsewhere.
    fn of(&self, path: &str, digest: &[u8; 32], names: &restrictions::Names) -> Option<&Good> {
        let good = self.0.get(path).filter(|good| good.digest == *digest)?;
        let fresh = good.objects.iter().all(|(kind, m)| !names.is_taken(kind, api::meta::name(&m.object)));
        fresh.then_some(good)
    }
}

/// Loads the files of a folder, which must be in the order of their names.
pub fn load(set: Set, folder: &str, files: &[File]) -> Result<Loaded, Refused> {
    load_changes(set, folder, files, &mut Judged::default())
}

/// The same, where most files are known from before.
pub fn load_changes(set: Set, folder: &str, files: &[File], judged: &mut Judged) -> Result<Loaded, Refused> {
    let mut known = std::mem::take(judged);
    let context = &Context { static_names: true, ..Context::default() };
    let mut problems = problem::Problems::new(set, folder);
    let mut names = restrictions::Names::default();
    let mut objects: BTreeMap<&'static str, Vec<Manifest>> = BTreeMap::new();
    for file in files {
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
            known.0.remove(&file.path)
        } else {
            let before = problems.len();
            let mut found = Vec::new();
            decode::items(set, file, content, &mut problems, &mut |items, problems| {
                found.extend(accept(file, items, context, &mut names, problems));
            });
            (problems.len() == before).then_some(Good { digest, objects: found })
        };
        if let Some(good) = good {
            for (kind, manifest) in &good.objects {
                objects.entry(kind).or_default().push(manifest.clone());
            }
            judged.0.insert(file.path.clone(), good);
        }
    }
    // A policy that is refused itself is no reason to complain about its binding.
    if problems.len() == 0 {
        restrictions::references(&objects, &mut problems);
    }
    problems.finish()?;
    for list in objects.values_mut() {
        list.sort_by(|a, b| api::meta::name(&a.object).cmp(api::meta::name(&b.object)));
    }
    Ok(Loaded { objects, hash: hash(files) })
}

/// Decoded objects → those in force: defaults and the rules of the API for all of them, then the rules of static manifests.
fn accept(
    file: &File,
    items: Vec<decode::Item>,
    context: &Context,
    names: &mut restrictions::Names,
    problems: &mut problem::Problems<'_>,
) -> Vec<(&'static str, Manifest)> {
    let mut valid = Vec::with_capacity(items.len());
    for mut item in items {
        let known = api::GroupKind::new("admissionregistration.k8s.io", item.kind);
        resources::defaults::apply(&known, &mut item.object);
        let rules = resources::validation::rules(&known);
        let errors = rules.map(|rules| (rules.create)(&item.object, context)).unwrap_or_default();
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
    let in_force = |item: decode::Item| {
        let line = item.place.line();
        (item.kind, Manifest { object: Arc::new(item.object), file: file.path.as_str().into(), line })
    };
    valid.into_iter().map(in_force).collect()
}

#[cfg(test)]
mod tests;
