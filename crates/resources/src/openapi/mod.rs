//! OpenAPI: the table and the schemas as the documents that kubectl, client generators and `kubectl explain` read.
//!
//! Version 3 is an index and one document per group and version; version 2 is one document for everything, as JSON and in the
//! protobuf form that older kubectls ask for. Types and facts only: there are no descriptions. A document is made when it is first
//! asked for and kept; a server that is never asked pays nothing.

mod components;
mod operations;
mod protobuf;
#[cfg(test)]
mod tests;
mod v2;
mod v3;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use sha2::{Digest as _, Sha512};
use value::{Value, write};

use crate::table::{GROUPS, Served};

/// The media type of version 2 in protobuf.
pub const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// A document as it is sent.
#[derive(Debug)]
pub struct Document {
    /// The body.
    pub body: Vec<u8>,
    /// SHA-512 of the body in upper-case hex: the `hash` of the index, and the ETag.
    pub hash: String,
}

impl Document {
    fn new(body: Vec<u8>) -> Self {
        let mut hash = String::with_capacity(128);
        for byte in Sha512::digest(&body) {
            let _ = write!(hash, "{byte:02X}");
        }
        Document { body, hash }
    }
}

/// The documents of one server.
#[derive(Debug)]
pub struct OpenApi {
    served: Served,
    version: String,
    index: OnceLock<Arc<Document>>,
    v3: Mutex<BTreeMap<String, Arc<Document>>>,
    v2_json: OnceLock<Arc<Document>>,
    v2_protobuf: OnceLock<Arc<Document>>,
    /// Whether there is an issuer of tokens whose keys are published.
    issuer: bool,
}

impl OpenApi {
    /// The documents of a server that serves these versions and calls itself `version` (`1.37`). Nothing is made yet.
    pub fn new(served: Served, version: impl Into<String>) -> Self {
        OpenApi {
            served,
            version: version.into(),
            index: OnceLock::new(),
            v3: Mutex::default(),
            v2_json: OnceLock::new(),
            v2_protobuf: OnceLock::new(),
            issuer: false,
        }
    }

    /// These documents, with the two about an issuer of tokens if there is one.
    #[must_use]
    pub fn with_issuer(self, issuer: bool) -> Self {
        OpenApi { issuer, ..self }
    }

    /// `/openapi/v3`: the paths of all documents with their hashes.
    pub fn v3_index(&self) -> Arc<Document> {
        let make = || {
            let paths = self.v3_paths().into_iter().map(|path| {
                // The hash is the content's, so every document is made here; only those asked for are kept.
                let hash = match self.kept(&path) {
                    Some(document) => document.hash.clone(),
                    None => self.make_v3(&path).map(|document| document.hash).unwrap_or_default(),
                };
                let url = format!("/openapi/v3/{path}?hash={hash}");
                (path, Value::map([("serverRelativeURL", url)]))
            });
            Arc::new(Document::new(write::to_vec(&Value::map([("paths", Value::map(paths))]))))
        };
        Arc::clone(self.index.get_or_init(make))
    }

    /// `/openapi/v3/PATH`, where the path is one of the index's: `api/v1`, `apis/apps/v1`.
    pub fn v3(&self, path: &str) -> Option<Arc<Document>> {
        if let Some(document) = self.kept(path) {
            return Some(document);
        }
        let document = Arc::new(self.make_v3(path)?);
        let mut kept = self.v3.lock().unwrap_or_else(PoisonError::into_inner);
        Some(Arc::clone(kept.entry(path.to_owned()).or_insert(document)))
    }

    /// `/openapi/v2` as JSON.
    pub fn v2_json(&self) -> Arc<Document> {
        let make = || {
            Arc::new(Document::new(write::to_vec(&v2::document(&self.served, &self.version, self.issuer))))
        };
        Arc::clone(self.v2_json.get_or_init(make))
    }

    /// `/openapi/v2` in protobuf.
    pub fn v2_protobuf(&self) -> Arc<Document> {
        let make = || {
            let document = v2::document(&self.served, &self.version, self.issuer);
            Arc::new(Document::new(protobuf::document(&document)))
        };
        Arc::clone(self.v2_protobuf.get_or_init(make))
    }

    fn kept(&self, path: &str) -> Option<Arc<Document>> {
        self.v3.lock().unwrap_or_else(PoisonError::into_inner).get(path).map(Arc::clone)
    }

    /// The paths of the version 3 documents.
    fn v3_paths(&self) -> Vec<String> {
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
        paths
    }

    fn make_v3(&self, path: &str) -> Option<Document> {
        if !self.v3_paths().iter().any(|known| known == path) {
            return None;
        }
        let items = operations::of_document(path)?;
        let parts: Vec<&str> = path.split('/').collect();
        let group_version = match *parts.as_slice() {
            ["api", version] => Some(("", version)),
            ["apis", group, version] => Some((group, version)),
            _ => None,
        };
        Some(Document::new(write::to_vec(&v3::document(&items, group_version, &self.version))))
    }
}
