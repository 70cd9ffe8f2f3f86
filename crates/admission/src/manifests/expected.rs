//! `expected-objects.txt`: the objects that a directory must contain, one `KIND/NAME` per line.
//!
//! A file that is cut off while it is written can still be valid: an empty one, or one that ends at `---`.
//! This list protects against losing policies that way: a directory that does not contain exactly these objects
//! is rejected like one with an invalid manifest. kube-apiserver ignores the file because of its extension.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use value::yaml::Position;

use super::problem::{ManifestProblem, Problems};
use super::{Manifest, ManifestFile};

pub const EXPECTED_OBJECTS: &str = "expected-objects.txt";

pub(super) fn is_list(path: &str) -> bool {
    path.rsplit('/').next() == Some(EXPECTED_OBJECTS)
}

/// The content of the file for these objects.
pub(super) fn write(objects: &BTreeMap<&'static str, Vec<Manifest>>) -> String {
    let mut text =
        String::from("# The objects of this directory. Written by `portcullis check --write-expected`.\n");
    for (kind, name, _) in identities(objects) {
        let _ = writeln!(text, "{kind}/{name}");
    }
    text
}

fn identities<'a>(
    objects: &'a BTreeMap<&'static str, Vec<Manifest>>,
) -> impl Iterator<Item = (&'static str, &'a str, &'a Manifest)> {
    let each = |(kind, list): (&&'static str, &'a Vec<Manifest>)| {
        let kind = *kind;
        list.iter().map(move |manifest| (kind, api::meta::name(&manifest.object), manifest))
    };
    objects.iter().flat_map(each)
}

/// Adds a problem for every difference between the list and the objects.
pub(super) fn check(
    list: &ManifestFile,
    objects: &BTreeMap<&'static str, Vec<Manifest>>,
    problems: &mut Problems<'_>,
) {
    let content = match &list.content {
        Ok(content) => String::from_utf8_lossy(content),
        Err(why) => return problems.unreadable(&list.path, why),
    };
    let mut add = |file: &ManifestFile, line: usize, message: String, hint: &str| {
        let report = message.clone();
        problems.error_loading(
            ManifestProblem::at(file, Position { line, column: 1 }, "", message, Some(hint)),
            || report,
        );
    };
    let found: BTreeSet<(&str, &str)> = identities(objects).map(|(kind, name, _)| (kind, name)).collect();
    let mut wanted = BTreeSet::new();
    for (index, line) in content.lines().enumerate() {
        let entry = line.split('#').next().unwrap_or_default().trim();
        if entry.is_empty() {
            continue;
        }
        let Some((kind, name)) = entry.split_once('/') else {
            let message = format!("`{entry}` is not KIND/NAME");
            add(list, index + 1, message, "as in `ValidatingAdmissionPolicy/example.static.k8s.io`");
            continue;
        };
        wanted.insert((kind.to_owned(), name.to_owned()));
        if !found.contains(&(kind, name)) {
            let message = format!("{kind} `{name}` is expected, but no file of the directory has it");
            add(list, index + 1, message, "restore the object, or remove this line if it is to go");
        }
    }
    if wanted.is_empty() {
        let message =
            format!("{EXPECTED_OBJECTS} lists no objects, as if it was cut off while it was written");
        add(list, 1, message, "list the objects of the directory with `portcullis check --write-expected`");
        return;
    }
    for (kind, name, manifest) in identities(objects) {
        if !wanted.contains(&(kind.to_owned(), name.to_owned())) {
            let file = ManifestFile { path: manifest.file.to_string(), content: Err(String::new()) };
            let message = format!("{kind} `{name}` is not listed in {EXPECTED_OBJECTS}");
            add(
                &file,
                manifest.line,
                message,
                &format!("add the line `{kind}/{name}` to {EXPECTED_OBJECTS}"),
            );
        }
    }
}
