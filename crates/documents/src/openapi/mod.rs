//! Builds the OpenAPI documents that kubectl and client generators read.
//!
//! Version 3 has an index and one document per group and version; version 2 has one document for everything, as JSON and in the
//! protobuf form that older versions of kubectl request. Documents contain types but no descriptions. They are built on first use and
//! cached.

mod as_v3;
mod components;
mod custom;
mod operations;
mod paths;
mod protobuf;
mod remote;
#[cfg(test)]
mod tests;
mod v2;
mod v3;

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use data_encoding::HEXUPPER;
use sha2::{Digest as _, Sha512};
use value::{LruCache, Str, Value, write};

use crd::CustomResourceDefinition;
use kinds::table::{GROUPS, Served};

pub use remote::below;

/// Media type of version 2 in protobuf.
pub const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// A document as sent to clients.
#[derive(Debug)]
pub struct OpenApiDocument {
    pub body: Vec<u8>,
    /// SHA-512 in upper-case hex: the `hash` in the index, and the ETag.
    pub hash: String,
}

impl OpenApiDocument {
    fn new(body: Vec<u8>) -> Self {
        let hash = hash(&body);
        OpenApiDocument { body, hash }
    }
}

fn lock<T>(documents: &Mutex<T>) -> MutexGuard<'_, T> {
    documents.lock().unwrap_or_else(PoisonError::into_inner)
}

fn hash(bytes: &[u8]) -> String {
    HEXUPPER.encode(&Sha512::digest(bytes))
}

/// The OpenAPI documents of one server.
#[derive(Debug)]
pub struct OpenApi {
    served: Served,
    version: String,
    /// Documents about built-in resources only, which never change.
    own: Mutex<BTreeMap<String, Arc<OpenApiDocument>>>,
    /// Dropped when custom resources or aggregated API servers change.
    custom: Mutex<CustomDocuments>,
    /// How often `custom` has been dropped.
    generation: AtomicU64,
    /// Whether the server publishes the keys of a token issuer.
    issuer: bool,
}

/// Limit on the cached bytes of version 3 documents that can change. A CRD may have thousands of versions.
const MAX_CACHED_BYTES: usize = 64 * 1024 * 1024;

/// Documents that include custom resources or aggregated API servers.
#[derive(Debug)]
struct CustomDocuments {
    /// The index and the documents of version 2, which are not evicted.
    whole: BTreeMap<String, Arc<OpenApiDocument>>,
    /// The documents of version 3, weighted by their bytes.
    by_path: LruCache<String, Arc<OpenApiDocument>>,
}

impl Default for CustomDocuments {
    fn default() -> Self {
        let by_path = LruCache::weighted(usize::MAX, MAX_CACHED_BYTES as u64);
        CustomDocuments { whole: BTreeMap::new(), by_path }
    }
}

impl CustomDocuments {
    fn get(&mut self, name: &str) -> Option<Arc<OpenApiDocument>> {
        let whole = self.whole.get(name).cloned();
        whole.or_else(|| self.by_path.get(name).cloned())
    }

    fn insert(&mut self, name: &str, document: &Arc<OpenApiDocument>) {
        let (name, document) = (name.to_owned(), Arc::clone(document));
        if [INDEX, V2_JSON, V2_BINARY].contains(&name.as_str()) {
            self.whole.insert(name, document);
        } else {
            // A document that exceeds the limit is cached alone.
            let weight = document.body.len().min(MAX_CACHED_BYTES) as u64;
            self.by_path.insert_weighted(name, document, weight);
        }
    }
}

type ServedCrds<'a> = &'a [Arc<CustomResourceDefinition>];

/// The inputs of documents besides built-in resources.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenApiInputs<'a> {
    /// The value of [`OpenApi::generation`], which must be read before the other fields.
    pub generation: u64,
    /// The CRDs that are served.
    pub custom: &'a [Arc<CustomResourceDefinition>],
    /// The version 3 documents of aggregated API servers: paths in the index and URLs.
    pub remote_v3: &'a [(String, String)],
    /// The version 2 documents of aggregated API servers, reduced by [`below`].
    pub remote_v2: &'a [Arc<Value>],
    /// The aggregated API servers without version 3 documents: paths in the index and reduced version 2 documents.
    pub only_v2: &'a [(String, Arc<Value>)],
}

const INDEX: &str = "index";
const V2_JSON: &str = "v2";
const V2_BINARY: &str = "v2 protobuf";

impl OpenApi {
    /// `version` is the version of the server, such as `1.37`. No document is built yet.
    pub fn new(served: Served, version: impl Into<String>) -> Self {
        OpenApi {
            served,
            version: version.into(),
            own: Mutex::default(),
            custom: Mutex::default(),
            generation: AtomicU64::new(0),
            issuer: false,
        }
    }

    /// Drops the documents that include custom resources or aggregated API servers, because those changed.
    pub fn forget_custom(&self) {
        let mut cached = lock(&self.custom);
        self.generation.fetch_add(1, Ordering::AcqRel);
        *cached = CustomDocuments::default();
    }

    /// The generation of custom resources and aggregated API servers. Read it before reading those: a document built from inputs that
    /// changed meanwhile is not cached.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns the cached document or builds it. `generation` is set for documents that can change.
    fn get_or_build(
        &self,
        name: &str,
        generation: Option<u64>,
        build: impl FnOnce() -> Option<OpenApiDocument>,
    ) -> Option<Arc<OpenApiDocument>> {
        // Documents are built without the locks, so that others stay available.
        let Some(generation) = generation else {
            if let Some(document) = lock(&self.own).get(name) {
                return Some(Arc::clone(document));
            }
            let document = Arc::new(build()?);
            return Some(Arc::clone(lock(&self.own).entry(name.to_owned()).or_insert(document)));
        };
        if let Some(document) = lock(&self.custom).get(name) {
            return Some(document);
        }
        let document = Arc::new(build()?);
        let mut cached = lock(&self.custom);
        if generation != self.generation() {
            return Some(document);
        }
        if let Some(document) = cached.get(name) {
            return Some(document);
        }
        cached.insert(name, &document);
        Some(document)
    }

    /// Adds the two documents about the token issuer if `issuer` is set.
    #[must_use]
    pub fn with_issuer(self, issuer: bool) -> Self {
        OpenApi { issuer, ..self }
    }

    /// The index at `/openapi/v3`: the paths and hashes of all documents; for aggregated API servers, the URLs they gave.
    pub fn v3_index(&self, current: OpenApiInputs<'_>) -> Arc<OpenApiDocument> {
        let custom = current.custom;
        let make = || {
            let versions = custom::by_version(custom);
            let paths = self.v3_paths(custom).into_iter().map(|path| {
                // The hash of a built-in document is that of its content, so the document is built here. The hash for custom resources
                // is derived from the state of their CRDs, because there may be thousands of documents and few are requested.
                let kinds = path.strip_prefix("apis/").and_then(|path| path.split_once('/'));
                let hash = if let Some(kinds) = kinds.and_then(|version| versions.get(&version)) {
                    Some(hash(custom::stamp(kinds).as_bytes()))
                } else {
                    let cached = lock(&self.own).get(&path).cloned();
                    match cached {
                        Some(document) => Some(document.hash.clone()),
                        None => self.make_v3(&path, custom).map(|document| document.hash),
                    }
                };
                let url = format!("/openapi/v3/{path}?hash={}", hash.unwrap_or_default());
                (path, Value::map([("serverRelativeURL", url)]))
            });
            let others = current
                .remote_v3
                .iter()
                .map(|(path, url)| (path.clone(), Value::map([("serverRelativeURL", url.as_str())])));
            let made = current.only_v2.iter().filter_map(|(path, _)| {
                let url = format!("/openapi/v3/{path}?hash={}", self.v3(path, current)?.hash);
                Some((path.clone(), Value::map([("serverRelativeURL", url)])))
            });
            let paths = Value::map(paths.chain(others).chain(made));
            Some(OpenApiDocument::new(write::to_vec(&Value::map([("paths", paths)]))))
        };
        self.get_or_build(INDEX, Some(current.generation), make)
            .unwrap_or_else(|| Arc::new(OpenApiDocument::new(Vec::new())))
    }

    /// The document at `/openapi/v3/PATH`, with a path of the index such as `api/v1` or `apis/apps/v1`.
    pub fn v3(&self, path: &str, current: OpenApiInputs<'_>) -> Option<Arc<OpenApiDocument>> {
        if let Some((_, theirs)) = current.only_v2.iter().find(|(own, _)| own == path) {
            let make = || as_v3::as_v3(theirs).map(|made| OpenApiDocument::new(write::to_vec(&made)));
            return self.get_or_build(path, Some(current.generation), make);
        }
        let is_custom = Self::custom_version(path, current.custom).is_some();
        self.get_or_build(path, is_custom.then_some(current.generation), || {
            self.make_v3(path, current.custom)
        })
    }

    /// The JSON document at `/openapi/v2`, including aggregated API servers. When it is built, `report` is called with the CRDs omitted
    /// because the document would be too large.
    pub fn v2_json(&self, current: OpenApiInputs<'_>, report: impl Fn(&[Str])) -> Arc<OpenApiDocument> {
        let make = || OpenApiDocument::new(write::to_vec(&self.v2(current, &report)));
        self.get_or_build(V2_JSON, Some(current.generation), || Some(make()))
            .unwrap_or_else(|| Arc::new(make()))
    }

    fn v2(&self, current: OpenApiInputs<'_>, report: impl Fn(&[Str])) -> Value {
        let (document, left_out) =
            v2::document(&self.served, &self.version, self.issuer, current.custom, v2::MAX_CUSTOM_BYTES);
        if !left_out.is_empty() {
            report(&left_out);
        }
        remote::merge(document, current.remote_v2)
    }

    /// Like [`OpenApi::v2_json`], in protobuf.
    pub fn v2_protobuf(&self, current: OpenApiInputs<'_>, report: impl Fn(&[Str])) -> Arc<OpenApiDocument> {
        let make = || OpenApiDocument::new(protobuf::document(&self.v2(current, &report)));
        self.get_or_build(V2_BINARY, Some(current.generation), || Some(make()))
            .unwrap_or_else(|| Arc::new(make()))
    }

    /// The group and version of the document at a path, if it includes custom resources.
    fn custom_version<'p>(path: &'p str, custom: ServedCrds<'_>) -> Option<(&'p str, &'p str)> {
        let (group, version) = path.strip_prefix("apis/")?.split_once('/')?;
        let mut versions = custom::served(custom, Some(group));
        versions.any(|(_, found)| found.name == version).then_some((group, version))
    }

    fn v3_paths(&self, custom: ServedCrds<'_>) -> Vec<String> {
        let mut paths = vec!["api".to_owned(), "apis".to_owned(), "version".to_owned()];
        if self.issuer {
            paths.extend(operations::ISSUER.iter().map(|path| (*path).to_owned()));
        }
        for group in GROUPS {
            let mut versions =
                group.versions.iter().filter(|version| self.served.is_served(group.name, version)).peekable();
            if versions.peek().is_some() && !group.name.is_empty() {
                paths.push(format!("apis/{}", group.name));
            }
            for version in versions {
                paths.push(match group.name {
                    "" => format!("api/{version}"),
                    name => format!("apis/{name}/{version}"),
                });
            }
        }
        let mut known: HashSet<String> = paths.iter().cloned().collect();
        for (definition, version) in custom::served(custom, None) {
            let path = format!("apis/{}/{}", definition.group, version.name);
            if known.insert(path.clone()) {
                paths.push(path);
            }
        }
        paths
    }

    fn make_v3(&self, path: &str, custom: ServedCrds<'_>) -> Option<OpenApiDocument> {
        if !self.v3_paths(custom).iter().any(|known| known == path) {
            return None;
        }
        let parts: Vec<&str> = path.split('/').collect();
        let group_version = match *parts.as_slice() {
            ["api", version] => Some(("", version)),
            ["apis", group, version] => Some((group, version)),
            _ => None,
        };
        let mut items = operations::of_document(path, &self.served).unwrap_or_default();
        let mut schemas = Vec::new();
        let own = Self::custom_version(path, custom);
        if let Some((group, version)) = own {
            items.extend(custom::items(group, &custom::of_version(custom, group, version)));
            schemas = custom::schemas(custom, group_version, components::OpenApiVersion::V3);
        }
        if items.is_empty() {
            return None;
        }
        let body = write::to_vec(&v3::document(&items, group_version, &self.version, schemas));
        Some(match own {
            None => OpenApiDocument::new(body),
            Some((group, version)) => OpenApiDocument {
                body,
                hash: hash(custom::stamp(&custom::of_version(custom, group, version)).as_bytes()),
            },
        })
    }
}
