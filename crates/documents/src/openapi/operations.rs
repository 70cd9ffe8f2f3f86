//! The paths and operations of built-in resources, from which both versions of OpenAPI are written.

use kinds::table::{self, Resource, SubresourceRow, Verb};

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

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) in_path: bool,
    pub(super) kind: &'static str,
}

/// The request body of an operation.
#[derive(Debug)]
pub(super) enum RequestContent {
    /// An object of this definition.
    Object(String),
    /// A patch in one of these media types.
    Patch(&'static [&'static str]),
    /// The optional `DeleteOptions` of a delete.
    DeleteOptions,
}

/// The response content of an operation.
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
/// Response media types of lists, including watches.
const LISTS: &[&str] = &["application/json", "application/yaml", "application/json;stream=watch"];
const LOGS: &[&str] = &["text/plain", "application/json", "application/yaml"];
const ANYTHING: &[&str] = &["*/*"];

const fn query(name: &'static str, kind: &'static str) -> Parameter {
    Parameter { name, in_path: false, kind }
}

const fn in_path(name: &'static str) -> Parameter {
    Parameter { name, in_path: true, kind: "string" }
}

const NAME: Parameter = in_path("name");
const NAMESPACE: Parameter = in_path("namespace");
const PRETTY: Parameter = query("pretty", "string");

const LIST: &[Parameter] = &[
    query("allowWatchBookmarks", "boolean"),
    query("continue", "string"),
    query("fieldSelector", "string"),
    query("labelSelector", "string"),
    query("limit", "integer"),
    query("resourceVersion", "string"),
    query("resourceVersionMatch", "string"),
    query("sendInitialEvents", "boolean"),
    query("shardSelector", "string"),
    query("timeoutSeconds", "integer"),
    query("watch", "boolean"),
];
// kubectl looks for `fieldValidation` here to decide whether the server validates.
const WRITE: &[Parameter] =
    &[query("dryRun", "string"), query("fieldManager", "string"), query("fieldValidation", "string")];
const PATCH: &[Parameter] = &[
    query("dryRun", "string"),
    query("fieldManager", "string"),
    query("fieldValidation", "string"),
    query("force", "boolean"),
];
const DELETE: &[Parameter] = &[
    query("dryRun", "string"),
    query("gracePeriodSeconds", "integer"),
    query("ignoreStoreReadErrorWithClusterBreakingPotential", "boolean"),
    query("orphanDependents", "boolean"),
    query("propagationPolicy", "string"),
];
const DELETE_COLLECTION: &[Parameter] = &[
    query("continue", "string"),
    query("dryRun", "string"),
    query("fieldSelector", "string"),
    query("gracePeriodSeconds", "integer"),
    query("ignoreStoreReadErrorWithClusterBreakingPotential", "boolean"),
    query("labelSelector", "string"),
    query("limit", "integer"),
    query("orphanDependents", "boolean"),
    query("propagationPolicy", "string"),
    query("resourceVersion", "string"),
    query("resourceVersionMatch", "string"),
    query("sendInitialEvents", "boolean"),
    query("shardSelector", "string"),
    query("timeoutSeconds", "integer"),
];
const STREAMS: &[Parameter] = &[
    query("container", "string"),
    query("stderr", "boolean"),
    query("stdin", "boolean"),
    query("stdout", "boolean"),
    query("tty", "boolean"),
];
const LOG: &[Parameter] = &[
    query("container", "string"),
    query("follow", "boolean"),
    query("insecureSkipTLSVerifyBackend", "boolean"),
    query("limitBytes", "integer"),
    query("pretty", "string"),
    query("previous", "boolean"),
    query("sinceSeconds", "integer"),
    query("stream", "string"),
    query("tailLines", "integer"),
    query("timestamps", "boolean"),
];

/// The paths of the token issuer's documents.
pub(super) const ISSUER: [&str; 2] = [".well-known/openid-configuration", "openid/v1/jwks"];

/// The paths of the version 3 document at `path`, such as `api`, `apis/apps` or `apis/apps/v1`.
pub(super) fn of_document(path: &str) -> Option<Vec<PathItem>> {
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
        ["api", version] => of_version("", version)?,
        ["apis", group] => {
            let id = format!("get{}APIGroup", capitalised(&tag(group)));
            vec![plain(&format!("/apis/{group}/"), &id, &tag(group), "meta.v1.APIGroup")]
        }
        ["apis", group, version] => of_version(group, version)?,
        _ => return None,
    })
}

/// The paths of one version of a group.
fn of_version(group: &str, version: &str) -> Option<Vec<PathItem>> {
    let found = table::group(group)?;
    let root = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    let at = OperationScope { group, version, root, patches: PATCHES };
    let id = format!("get{}APIResources", at.prefix());
    let mut items = vec![plain(&format!("{}/", at.root), &id, &at.tag(), "meta.v1.APIResourceList")];
    for row in found.resources.iter().filter(|row| row.version(version).is_some()) {
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
    parts.fold(first, |tag, part| tag + &capitalised(part))
}

fn capitalised(text: &str) -> String {
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

/// A version of a group and its root path.
struct OperationScope<'a> {
    group: &'a str,
    version: &'a str,
    root: String,
    patches: &'static [&'static str],
}

impl OperationScope<'_> {
    /// The group and version in operation ids, such as `CoreV1`.
    fn prefix(&self) -> String {
        capitalised(&tag(self.group)) + &capitalised(self.version)
    }

    fn tag(&self) -> String {
        format!("{}_{}", tag(self.group), self.version)
    }

    /// The short name of a kind's definition.
    fn definition(&self, group_version: Option<(&str, &str)>, kind: &str) -> String {
        let (group, version) = group_version.unwrap_or((self.group, self.version));
        schema::of(group, version, kind).map(|schema| schema.name.to_string()).unwrap_or_default()
    }

    /// Adds the paths of a table row.
    fn row(&self, row: &Resource, items: &mut Vec<PathItem>) {
        let resource = DocumentedResource {
            kind: row.kind,
            plural: row.plural,
            namespaced: row.is_namespaced(),
            verbs: row.verbs,
            returns_deleted: row.returns_deleted_in(self.version),
            object: self.definition(None, row.kind),
            list: self.definition(None, &format!("{}List", row.kind)),
        };
        let path = self.resource(&resource, items);
        for sub in row.subresources {
            let (group, version) = sub.group_version.unwrap_or((self.group, self.version));
            if sub.connect {
                let scope = if resource.namespaced { "Namespaced" } else { "" };
                let subject = format!("{scope}{}{}", row.kind, capitalised(sub.name));
                let kind = (group.to_owned(), version.to_owned(), sub.kind.to_owned());
                let path = format!("{path}/{}", sub.name);
                self.connect(resource.namespaced, sub, &subject, &path, Some(&kind), items);
                continue;
            }
            let sub = DocumentedSubresource {
                name: sub.name,
                kind: (group, version, sub.kind),
                object: self.definition(sub.group_version, sub.kind),
                verbs: sub.verbs,
            };
            self.subresource(&resource, &sub, &path, items);
        }
    }

    fn operation(&self, method: &'static str, verb: &str, subject: &str) -> OpenApiOperation {
        OpenApiOperation {
            method,
            id: format!("{verb}{}{subject}", self.prefix()),
            tag: self.tag(),
            action: None,
            kind: None,
            parameters: Vec::new(),
            body: None,
            responses: Vec::new(),
            produces: OBJECTS,
        }
    }

    fn resource(&self, row: &DocumentedResource<'_>, items: &mut Vec<PathItem>) -> String {
        let namespaced = row.namespaced;
        let scope = if namespaced { "Namespaced" } else { "" };
        let subject = format!("{scope}{}", row.kind);
        let kind = Some((self.group.to_owned(), self.version.to_owned(), row.kind.to_owned()));
        let (object, list) = (&row.object, &row.list);
        let (collection, watched) = if namespaced {
            let below = format!("namespaces/{{namespace}}/{}", row.plural);
            (format!("{}/{below}", self.root), format!("{}/watch/{below}", self.root))
        } else {
            (format!("{}/{}", self.root, row.plural), format!("{}/watch/{}", self.root, row.plural))
        };
        let scope: &[Parameter] = if namespaced { &[NAMESPACE, PRETTY] } else { &[PRETTY] };
        let one: &[Parameter] = if namespaced { &[NAME, NAMESPACE, PRETTY] } else { &[NAME, PRETTY] };

        let mut many = Vec::new();
        let mut single = Vec::new();
        for verb in row.verbs {
            match verb {
                Verb::List => many.push(OpenApiOperation {
                    action: Some("list"),
                    parameters: joined(LIST, scope),
                    responses: vec![("200", ResponseContent::Object(list.to_owned()))],
                    produces: LISTS,
                    ..self.operation("get", "list", &subject)
                }),
                Verb::Create => many.push(OpenApiOperation {
                    action: Some("post"),
                    parameters: joined(WRITE, scope),
                    body: Some(RequestContent::Object(object.to_owned())),
                    responses: created(object),
                    ..self.operation("post", "create", &subject)
                }),
                Verb::DeleteCollection => many.push(OpenApiOperation {
                    action: Some("deletecollection"),
                    parameters: joined(DELETE_COLLECTION, scope),
                    body: Some(RequestContent::DeleteOptions),
                    responses: vec![("200", ResponseContent::Object("meta.v1.Status".to_owned()))],
                    ..self.operation("delete", "delete", &format!("Collection{subject}"))
                }),
                Verb::Get => single.push(self.read(&subject, object, one)),
                Verb::Update => single.push(self.replace(&subject, object, one)),
                Verb::Patch => single.push(self.patch(&subject, object, one)),
                Verb::Delete => {
                    let answer = if row.returns_deleted { object } else { "meta.v1.Status" };
                    single.push(OpenApiOperation {
                        action: Some("delete"),
                        parameters: joined(DELETE, one),
                        body: Some(RequestContent::DeleteOptions),
                        responses: ["200", "202"]
                            .map(|code| (code, ResponseContent::Object(answer.to_owned())))
                            .into(),
                        ..self.operation("delete", "delete", &subject)
                    });
                }
                Verb::Watch => {
                    let watch = |action, verb_subject: &str, parameters| OpenApiOperation {
                        action: Some(action),
                        parameters,
                        responses: vec![("200", ResponseContent::Object("meta.v1.WatchEvent".to_owned()))],
                        produces: LISTS,
                        ..self.operation("get", "watch", verb_subject)
                    };
                    let all = watch("watchlist", &format!("{subject}List"), joined(LIST, scope));
                    items.push(finish(watched.clone(), vec![all], kind.as_ref()));
                    let each = watch("watch", &subject, joined(LIST, one));
                    items.push(finish(format!("{watched}/{{name}}"), vec![each], kind.as_ref()));
                    if namespaced {
                        let everywhere = format!("{}ListForAllNamespaces", row.kind);
                        let all = watch("watchlist", &everywhere, joined(LIST, &[PRETTY]));
                        let path = format!("{}/watch/{}", self.root, row.plural);
                        items.push(finish(path, vec![all], kind.as_ref()));
                    }
                }
            }
        }
        if namespaced && row.verbs.contains(&Verb::List) {
            let everywhere = OpenApiOperation {
                action: Some("list"),
                parameters: joined(LIST, &[PRETTY]),
                responses: vec![("200", ResponseContent::Object(list.to_owned()))],
                produces: LISTS,
                ..self.operation("get", "list", &format!("{}ForAllNamespaces", row.kind))
            };
            items.push(finish(format!("{}/{}", self.root, row.plural), vec![everywhere], kind.as_ref()));
        }
        let path = format!("{collection}/{{name}}");
        for (path, operations) in [(collection, many), (path.clone(), single)] {
            if !operations.is_empty() {
                items.push(finish(path, operations, kind.as_ref()));
            }
        }
        path
    }

    /// Adds the path of a subresource of the object at `path`.
    fn subresource(
        &self,
        row: &DocumentedResource<'_>,
        sub: &DocumentedSubresource<'_>,
        path: &str,
        items: &mut Vec<PathItem>,
    ) {
        let namespaced = row.namespaced;
        let scope = if namespaced { "Namespaced" } else { "" };
        let subject = format!("{scope}{}{}", row.kind, capitalised(sub.name));
        let (group, version, kind) = sub.kind;
        let kind = Some((group.to_owned(), version.to_owned(), kind.to_owned()));
        let path = format!("{path}/{}", sub.name);
        let object = sub.object.clone();
        let one: &[Parameter] = if namespaced { &[NAME, NAMESPACE, PRETTY] } else { &[NAME, PRETTY] };
        let mut operations = Vec::new();
        for verb in sub.verbs {
            operations.push(match verb {
                Verb::Get if sub.name == "log" => OpenApiOperation {
                    action: Some("get"),
                    parameters: joined(LOG, &[NAME, NAMESPACE]),
                    responses: vec![("200", ResponseContent::Text)],
                    produces: LOGS,
                    ..self.operation("get", "read", &subject)
                },
                Verb::Get => self.read(&subject, &object, one),
                Verb::Update => self.replace(&subject, &object, one),
                Verb::Patch => self.patch(&subject, &object, one),
                _ => OpenApiOperation {
                    action: Some("post"),
                    parameters: joined(WRITE, one),
                    body: Some(RequestContent::Object(object.clone())),
                    responses: created(&object),
                    ..self.operation("post", "create", &subject)
                },
            });
        }
        items.push(finish(path, operations, kind.as_ref()));
    }

    /// Adds a CONNECT subresource, whose methods all behave alike.
    fn connect(
        &self,
        namespaced: bool,
        sub: &SubresourceRow,
        subject: &str,
        path: &str,
        kind: Option<&(String, String, String)>,
        items: &mut Vec<PathItem>,
    ) {
        const PROXY_METHODS: &[&str] = &["get", "put", "post", "delete", "options", "head", "patch"];
        let one: &[Parameter] = if namespaced { &[NAME, NAMESPACE] } else { &[NAME] };
        let (methods, own): (&[&str], Vec<Parameter>) = match sub.name {
            "proxy" => (PROXY_METHODS, vec![query("path", "string")]),
            "exec" => (&["get", "post"], joined(STREAMS, &[query("command", "string")])),
            "attach" => (&["get", "post"], STREAMS.to_vec()),
            _ => (&["get", "post"], vec![query("ports", "integer")]),
        };
        let at = |path: &str, suffix: &str, parameters: &[Parameter]| {
            let operations = methods.iter().map(|method| OpenApiOperation {
                id: format!("connect{}{}{subject}{suffix}", self.prefix(), capitalised(method)),
                action: Some("connect"),
                parameters: parameters.to_vec(),
                responses: vec![("200", ResponseContent::Text)],
                produces: ANYTHING,
                ..self.operation(method, "connect", subject)
            });
            finish(path.to_owned(), operations.collect(), kind)
        };
        items.push(at(path, "", &joined(&own, one)));
        if sub.name == "proxy" {
            let with_path = joined(&joined(&own, one), &[in_path("path")]);
            items.push(at(&format!("{path}/{{path}}"), "WithPath", &with_path));
        }
    }

    fn read(&self, subject: &str, object: &str, one: &[Parameter]) -> OpenApiOperation {
        OpenApiOperation {
            action: Some("get"),
            parameters: one.to_vec(),
            responses: vec![("200", ResponseContent::Object(object.to_owned()))],
            ..self.operation("get", "read", subject)
        }
    }

    fn replace(&self, subject: &str, object: &str, one: &[Parameter]) -> OpenApiOperation {
        OpenApiOperation {
            action: Some("put"),
            parameters: joined(WRITE, one),
            body: Some(RequestContent::Object(object.to_owned())),
            responses: ["200", "201"].map(|code| (code, ResponseContent::Object(object.to_owned()))).into(),
            ..self.operation("put", "replace", subject)
        }
    }

    fn patch(&self, subject: &str, object: &str, one: &[Parameter]) -> OpenApiOperation {
        OpenApiOperation {
            action: Some("patch"),
            parameters: joined(PATCH, one),
            body: Some(RequestContent::Patch(self.patches)),
            responses: ["200", "201"].map(|code| (code, ResponseContent::Object(object.to_owned()))).into(),
            ..self.operation("patch", "patch", subject)
        }
    }
}

fn created(object: &str) -> Vec<(&'static str, ResponseContent)> {
    ["200", "201", "202"].map(|code| (code, ResponseContent::Object(object.to_owned()))).into()
}

/// Joins two lists of parameters, sorted by name; of the same name, path parameters come first.
fn joined(a: &[Parameter], b: &[Parameter]) -> Vec<Parameter> {
    let mut all: Vec<Parameter> = a.iter().chain(b).cloned().collect();
    all.sort_by(|a, b| a.name.cmp(b.name).then(b.in_path.cmp(&a.in_path)));
    all
}

/// Sets the kind of the operations and moves the parameters they share to the path.
fn finish(
    path: String,
    mut operations: Vec<OpenApiOperation>,
    kind: Option<&(String, String, String)>,
) -> PathItem {
    for operation in &mut operations {
        operation.kind = kind.cloned();
    }
    let mut parameters = operations.first().map(|first| first.parameters.clone()).unwrap_or_default();
    parameters
        .retain(|parameter| operations.iter().all(|operation| operation.parameters.contains(parameter)));
    for operation in &mut operations {
        operation.parameters.retain(|parameter| !parameters.contains(parameter));
    }
    PathItem { path, operations, parameters }
}
