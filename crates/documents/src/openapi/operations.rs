//! The paths and operations of built-in resources, from which both versions of OpenAPI are written.

mod parameters;
mod resource_paths;

use kinds::table::{self, Served, Verb};

pub(super) use self::parameters::Parameter;
use self::resource_paths::OperationScope;

#[derive(Debug)]
pub(super) struct PathItem {
    pub(super) path: String,
    pub(super) operations: Vec<OpenApiOperation>,
    /// The parameters that all operations share.
    pub(super) parameters: Vec<Parameter>,
}

#[derive(Debug)]
pub(super) struct OpenApiOperation {
    pub(super) method: &'static str,
    pub(super) id: String,
    pub(super) tag: String,
    /// Value of the extension `x-kubernetes-action`.
    pub(super) action: Option<&'static str>,
    /// Value of the extension `x-kubernetes-group-version-kind`.
    pub(super) kind: Option<(String, String, String)>,
    pub(super) parameters: Vec<Parameter>,
    pub(super) body: Option<RequestContent>,
    /// The status codes, except 401, with their content.
    pub(super) responses: Vec<(&'static str, ResponseContent)>,
    pub(super) produces: &'static [&'static str],
}

#[derive(Debug)]
pub(super) enum RequestContent {
    /// An object of this definition.
    Object(String),
    /// A patch in one of these media types.
    Patch(&'static [&'static str]),
    /// The optional `DeleteOptions` of a delete.
    DeleteOptions,
}

#[derive(Clone, Debug)]
pub(super) enum ResponseContent {
    /// An object of this definition.
    Object(String),
    Text,
}

/// The supported patch media types.
const PATCHES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];
/// The patch media types of custom resources. kubectl selects the patch type from this list.
const CUSTOM_PATCHES: &[&str] =
    &["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];
/// Response media types of single objects.
const OBJECTS: &[&str] = &["application/json", "application/yaml"];

/// The paths of the token issuer's documents.
pub(super) const ISSUER: [&str; 2] = [".well-known/openid-configuration", "openid/v1/jwks"];

/// The paths of the version 3 document at `path`, such as `api`, `apis/apps` or `apis/apps/v1`.
pub(super) fn of_document(path: &str, served: &Served) -> Option<Vec<PathItem>> {
    let parts: Vec<&str> = path.split('/').collect();
    Some(match *parts.as_slice() {
        ["api"] => vec![plain("/api/", "getCoreAPIVersions", "core", "meta.v1.APIVersions")],
        ["apis"] => vec![plain("/apis/", "getAPIVersions", "apis", "meta.v1.APIGroupList")],
        ["version"] => {
            let mut item = plain("/version/", "getCodeVersion", "version", "version.Info");
            item.operations.iter_mut().for_each(|operation| operation.produces = &["application/json"]);
            vec![item]
        }
        [".well-known", "openid-configuration"] => {
            let id = "getServiceAccountIssuerOpenIDConfiguration";
            vec![text("/.well-known/openid-configuration/", id, "WellKnown", &["application/json"])]
        }
        ["openid", "v1", "jwks"] => {
            let id = "getServiceAccountIssuerOpenIDKeyset";
            vec![text("/openid/v1/jwks/", id, "openid", &["application/jwk-set+json"])]
        }
        ["api", version] => of_version("", version, served)?,
        ["apis", group] => {
            let id = format!("get{}APIGroup", capitalized(&tag(group)));
            vec![plain(&format!("/apis/{group}/"), &id, &tag(group), "meta.v1.APIGroup")]
        }
        ["apis", group, version] => of_version(group, version, served)?,
        _ => return None,
    })
}

fn of_version(group: &str, version: &str, served: &Served) -> Option<Vec<PathItem>> {
    let found = table::group(group)?;
    let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    let at = OperationScope { group, version, root, patches: PATCHES };
    let id = format!("get{}APIResources", at.prefix());
    let mut items = vec![plain(&format!("{}/", at.root), &id, &at.tag(), "meta.v1.APIResourceList")];
    for row in found.resources.iter().filter(|row| served.is_resource_served(row, version)) {
        at.row(row, &mut items);
    }
    items.sort_by(|a, b| a.path.cmp(&b.path));
    Some(items)
}

/// A path that only supports GET and returns one object.
fn plain(path: &str, id: &str, tag: &str, answer: &str) -> PathItem {
    let operation = OpenApiOperation {
        method: "get",
        id: id.to_owned(),
        tag: tag.to_owned(),
        action: None,
        kind: None,
        parameters: Vec::new(),
        body: None,
        responses: vec![("200", ResponseContent::Object(answer.to_owned()))],
        produces: OBJECTS,
    };
    PathItem { path: path.to_owned(), operations: vec![operation], parameters: Vec::new() }
}

/// A path that only supports GET and returns text.
fn text(path: &str, id: &str, tag: &str, produces: &'static [&'static str]) -> PathItem {
    let mut item = plain(path, id, tag, "");
    for operation in &mut item.operations {
        operation.responses = vec![("200", ResponseContent::Text)];
        operation.produces = produces;
    }
    item
}

/// Converts `rbac.authorization.k8s.io` to `rbacAuthorization`; the core group becomes `core`.
fn tag(group: &str) -> String {
    let group = group.strip_suffix(".k8s.io").unwrap_or(group);
    let mut parts = group.split('.').filter(|part| !part.is_empty());
    let first = parts.next().unwrap_or("core").to_owned();
    parts.fold(first, |tag, part| tag + &capitalized(part))
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// The properties of a resource that determine its paths.
pub(super) struct DocumentedResource<'a> {
    pub(super) kind: &'a str,
    pub(super) plural: &'a str,
    pub(super) namespaced: bool,
    pub(super) verbs: &'a [Verb],
    pub(super) returns_deleted: bool,
    /// The names of the definitions of an object and of a list.
    pub(super) object: String,
    pub(super) list: String,
}

/// The properties of a subresource that determine its path.
pub(super) struct DocumentedSubresource<'a> {
    pub(super) name: &'a str,
    /// Group, version and kind.
    pub(super) kind: (&'a str, &'a str, &'a str),
    pub(super) object: String,
    pub(super) verbs: &'a [Verb],
}

/// Adds the paths of a custom resource.
pub(super) fn add(
    group: &str,
    version: &str,
    resource: &DocumentedResource<'_>,
    subresources: &[DocumentedSubresource<'_>],
    items: &mut Vec<PathItem>,
) {
    let root = format!("/apis/{group}/{version}");
    let at = OperationScope { group, version, root, patches: CUSTOM_PATCHES };
    let path = at.resource(resource, items);
    for sub in subresources {
        at.subresource(resource, sub, &path, items);
    }
}
