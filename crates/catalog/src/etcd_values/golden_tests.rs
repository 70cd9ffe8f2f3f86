//! Upstream's golden files: one object of every kind with all fields set, in JSON and in protobuf.
//!
//! They are not part of this repository. `PORTCULLIS_GOLDEN_FILES` names their directory in a source tree of Kubernetes 1.37,
//! `staging/src/k8s.io/api/testdata/HEAD`; without it the test is left out.

use std::path::{Path, PathBuf};

use api::GroupVersionKind;
use kinds::convert::stored::stored_version;
use value::{Value, json, write};

use super::layout_of;

/// Kinds without a schema: those of requests that have another form here, and those that this server does not serve.
const UNKNOWN: &[&str] = &[
    "admission.k8s.io.v1.AdmissionReview",
    "admission.k8s.io.v1beta1.AdmissionReview",
    "apidiscovery.k8s.io.v2.APIGroupDiscovery",
    "apidiscovery.k8s.io.v2beta1.APIGroupDiscovery",
    "apps.v1beta1.DeploymentRollback",
    "apps.v1beta1.Scale",
    "apps.v1beta2.Scale",
    "authentication.k8s.io.v1beta1.SelfSubjectReview",
    "authentication.k8s.io.v1beta1.TokenReview",
    "authorization.k8s.io.v1beta1.LocalSubjectAccessReview",
    "authorization.k8s.io.v1beta1.SelfSubjectAccessReview",
    "authorization.k8s.io.v1beta1.SelfSubjectRulesReview",
    "authorization.k8s.io.v1beta1.SubjectAccessReview",
    "core.v1.CreateOptions",
    "core.v1.GetOptions",
    "core.v1.ListOptions",
    "core.v1.PatchOptions",
    "core.v1.PodLogOptions",
    "core.v1.SerializedReference",
    "core.v1.UpdateOptions",
    "core.v1.WatchEvent",
    "extensions.v1beta1.DeploymentRollback",
    "extensions.v1beta1.Scale",
    "imagepolicy.k8s.io.v1alpha1.ImageReview",
    "policy.v1beta1.Eviction",
];

/// The base names of all files with protobuf, sorted.
fn base_names(directory: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
    let mut names: Vec<PathBuf> =
        files.filter(|file| file.extension().is_some_and(|extension| extension == "pb")).collect();
    names.sort();
    names
}

/// Decodes and encodes the object of one file.
fn check(file: &Path) -> Result<(), String> {
    let bytes = std::fs::read(file).unwrap();
    let text = std::fs::read(file.with_extension("json")).unwrap();
    let mut expected: Value = json::parse(&text).map_err(|error| error.to_string())?;
    let gvk: GroupVersionKind = api::meta::gvk(&expected);
    let of = layout_of(&gvk);
    let schema = schema::of(&of.group, &of.version, &of.kind).ok_or("no schema")?;
    let mut decoded = schema::protobuf::read_stored(&bytes, layout_of)?;
    for object in [&mut decoded, &mut expected] {
        if of != gvk
            && let Some(stored) = stored_version(&gvk.group, &gvk.version, &gvk.kind)
        {
            stored.convert(object);
        }
        if let Some(error) = schema::decode::normalize(object, schema).type_error(b"") {
            return Err(error);
        }
    }
    let (read, sent) = (write::to_string(&decoded), write::to_string(&expected));
    if read != sent {
        return Err(format!("decoded\n  {read}\ninstead of\n  {sent}"));
    }
    for (from, object) in [("protobuf", decoded), ("JSON", expected)] {
        let encoded = schema::protobuf::encode_as(&gvk, &of, &object)?;
        if encoded != bytes {
            let at = encoded.iter().zip(&bytes).take_while(|(a, b)| a == b).count();
            return Err(format!("the object from {from} is encoded differently from byte {at}"));
        }
    }
    Ok(())
}

#[test]
fn golden_files_of_kubernetes_are_encoded_to_the_same_bytes() {
    let Some(directory) = std::env::var_os("PORTCULLIS_GOLDEN_FILES") else {
        println!("left out: golden files of Kubernetes need PORTCULLIS_GOLDEN_FILES");
        return;
    };
    let files = base_names(Path::new(&directory));
    let (mut passed, mut unknown, mut failed) = (0, Vec::new(), Vec::new());
    for file in &files {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        match check(file) {
            Ok(()) => passed += 1,
            Err(reason) if reason == "no schema" => unknown.push(name),
            Err(reason) => failed.push(format!("{name}: {reason}")),
        }
    }
    println!("{passed} of {} golden files passed; no schema: {unknown:?}", files.len());
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert_eq!(unknown, UNKNOWN);
    assert_eq!(files.len(), 193);
}
