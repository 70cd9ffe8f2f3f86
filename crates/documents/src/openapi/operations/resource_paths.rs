//! The paths of resources and subresources.

use kinds::table::{Resource, SubresourceRow, Verb};

use super::parameters::{
    DELETE, DELETE_COLLECTION, LIST, LOG, NAME, NAMESPACE, PATCH, PRETTY, Parameter, STREAMS, WRITE, in_path,
    joined, query,
};
use super::{
    DocumentedResource, DocumentedSubresource, OBJECTS, OpenApiOperation, PathItem, RequestContent,
    ResponseContent, capitalized, tag,
};

/// Response media types of lists, including watches.
const LISTS: &[&str] = &["application/json", "application/yaml", "application/json;stream=watch"];
const LOGS: &[&str] = &["text/plain", "application/json", "application/yaml"];
const ANYTHING: &[&str] = &["*/*"];

/// Group, version and kind.
type OperationKind = (String, String, String);

/// A version of a group and its root path.
pub(super) struct OperationScope<'a> {
    pub(super) group: &'a str,
    pub(super) version: &'a str,
    pub(super) root: String,
    /// The supported patch media types.
    pub(super) patches: &'static [&'static str],
}

impl DocumentedResource<'_> {
    /// The resource in operation ids, such as `NamespacedPod`.
    fn subject(&self) -> String {
        let scope = if self.namespaced { "Namespaced" } else { "" };
        format!("{scope}{}", self.kind)
    }

    fn collection_parameters(&self) -> &'static [Parameter] {
        if self.namespaced { &[NAMESPACE, PRETTY] } else { &[PRETTY] }
    }

    fn object_parameters(&self) -> &'static [Parameter] {
        if self.namespaced { &[NAME, NAMESPACE, PRETTY] } else { &[NAME, PRETTY] }
    }
}

impl OperationScope<'_> {
    /// The group and version in operation ids, such as `CoreV1`.
    pub(super) fn prefix(&self) -> String {
        capitalized(&tag(self.group)) + &capitalized(self.version)
    }

    pub(super) fn tag(&self) -> String {
        format!("{}_{}", tag(self.group), self.version)
    }

    /// The short name of a kind's definition.
    fn definition(&self, group_version: Option<(&str, &str)>, kind: &str) -> String {
        let (group, version) = group_version.unwrap_or((self.group, self.version));
        schema::of(group, version, kind).map(|schema| schema.name.to_string()).unwrap_or_default()
    }

    /// Adds the paths of a table row.
    pub(super) fn row(&self, row: &Resource, items: &mut Vec<PathItem>) {
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
            if sub.connect {
                self.connect(&resource, sub, &path, items);
                continue;
            }
            let (group, version) = sub.group_version.unwrap_or((self.group, self.version));
            let sub = DocumentedSubresource {
                name: sub.name,
                kind: (group, version, sub.kind),
                object: self.definition(sub.group_version, sub.kind),
                verbs: sub.verbs,
            };
            self.subresource(&resource, &sub, &path, items);
        }
    }

    /// Adds the paths of a resource without its subresources. Returns the path of an object.
    pub(super) fn resource(&self, resource: &DocumentedResource<'_>, items: &mut Vec<PathItem>) -> String {
        let subject = resource.subject();
        let kind = (self.group.to_owned(), self.version.to_owned(), resource.kind.to_owned());
        let below = if resource.namespaced {
            format!("namespaces/{{namespace}}/{}", resource.plural)
        } else {
            resource.plural.to_owned()
        };
        let (many, one) = (resource.collection_parameters(), resource.object_parameters());

        let (mut of_collection, mut of_object) = (Vec::new(), Vec::new());
        for verb in resource.verbs {
            match verb {
                Verb::List => of_collection.push(self.list(&subject, &resource.list, many)),
                Verb::Create => of_collection.push(self.create(&subject, &resource.object, many)),
                Verb::DeleteCollection => of_collection.push(self.delete_collection(&subject, many)),
                Verb::Get => of_object.push(self.read(&subject, &resource.object, one)),
                Verb::Update => of_object.push(self.replace(&subject, &resource.object, one)),
                Verb::Patch => of_object.push(self.patch(&subject, &resource.object, one)),
                Verb::Delete => of_object.push(self.delete(&subject, resource, one)),
                Verb::Watch => self.watches(resource, &below, &kind, items),
            }
        }
        if resource.namespaced && resource.verbs.contains(&Verb::List) {
            let subject = format!("{}ForAllNamespaces", resource.kind);
            let everywhere = self.list(&subject, &resource.list, &[PRETTY]);
            items.push(finish(format!("{}/{}", self.root, resource.plural), vec![everywhere], &kind));
        }
        let collection = format!("{}/{below}", self.root);
        let object = format!("{collection}/{{name}}");
        for (path, operations) in [(collection, of_collection), (object.clone(), of_object)] {
            if !operations.is_empty() {
                items.push(finish(path, operations, &kind));
            }
        }
        object
    }

    /// Adds the deprecated paths below `/watch/`. `below` is the path of the collection below the root.
    fn watches(
        &self,
        resource: &DocumentedResource<'_>,
        below: &str,
        kind: &OperationKind,
        items: &mut Vec<PathItem>,
    ) {
        let watch = |action, subject: &str, parameters: &[Parameter]| OpenApiOperation {
            action: Some(action),
            parameters: joined(LIST, parameters),
            responses: vec![("200", ResponseContent::Object("meta.v1.WatchEvent".to_owned()))],
            produces: LISTS,
            ..self.operation("get", "watch", subject)
        };
        let subject = resource.subject();
        let path = format!("{}/watch/{below}", self.root);
        let list = watch("watchlist", &format!("{subject}List"), resource.collection_parameters());
        items.push(finish(path.clone(), vec![list], kind));
        let object = watch("watch", &subject, resource.object_parameters());
        items.push(finish(format!("{path}/{{name}}"), vec![object], kind));
        if resource.namespaced {
            let subject = format!("{}ListForAllNamespaces", resource.kind);
            let everywhere = watch("watchlist", &subject, &[PRETTY]);
            let path = format!("{}/watch/{}", self.root, resource.plural);
            items.push(finish(path, vec![everywhere], kind));
        }
    }

    /// Adds the path of a subresource of the object at `path`.
    pub(super) fn subresource(
        &self,
        resource: &DocumentedResource<'_>,
        sub: &DocumentedSubresource<'_>,
        path: &str,
        items: &mut Vec<PathItem>,
    ) {
        let subject = resource.subject() + &capitalized(sub.name);
        let (group, version, kind) = sub.kind;
        let kind = (group.to_owned(), version.to_owned(), kind.to_owned());
        let one = resource.object_parameters();
        let operations = sub.verbs.iter().map(|verb| match verb {
            Verb::Get if sub.name == "log" => OpenApiOperation {
                action: Some("get"),
                parameters: joined(LOG, &[NAME, NAMESPACE]),
                responses: vec![("200", ResponseContent::Text)],
                produces: LOGS,
                ..self.operation("get", "read", &subject)
            },
            Verb::Get => self.read(&subject, &sub.object, one),
            Verb::Update => self.replace(&subject, &sub.object, one),
            Verb::Patch => self.patch(&subject, &sub.object, one),
            _ => self.create(&subject, &sub.object, one),
        });
        items.push(finish(format!("{path}/{}", sub.name), operations.collect(), &kind));
    }

    /// Adds a CONNECT subresource of the object at `path`. All its methods behave alike.
    fn connect(
        &self,
        resource: &DocumentedResource<'_>,
        sub: &SubresourceRow,
        path: &str,
        items: &mut Vec<PathItem>,
    ) {
        const PROXY_METHODS: &[&str] = &["get", "put", "post", "delete", "options", "head", "patch"];
        let subject = resource.subject() + &capitalized(sub.name);
        let (group, version) = sub.group_version.unwrap_or((self.group, self.version));
        let kind = (group.to_owned(), version.to_owned(), sub.kind.to_owned());
        let path = format!("{path}/{}", sub.name);
        let one: &[Parameter] = if resource.namespaced { &[NAME, NAMESPACE] } else { &[NAME] };
        let (methods, own): (&[&str], Vec<Parameter>) = match sub.name {
            "proxy" => (PROXY_METHODS, vec![query("path", "string")]),
            "exec" => (&["get", "post"], joined(STREAMS, &[query("command", "string")])),
            "attach" => (&["get", "post"], STREAMS.to_vec()),
            _ => (&["get", "post"], vec![query("ports", "integer")]),
        };
        let at = |path: String, suffix: &str, parameters: &[Parameter]| {
            let operations = methods.iter().map(|method| OpenApiOperation {
                id: format!("connect{}{}{subject}{suffix}", self.prefix(), capitalized(method)),
                action: Some("connect"),
                parameters: parameters.to_vec(),
                responses: vec![("200", ResponseContent::Text)],
                produces: ANYTHING,
                ..self.operation(method, "connect", &subject)
            });
            finish(path, operations.collect(), &kind)
        };
        let parameters = joined(&own, one);
        items.push(at(path.clone(), "", &parameters));
        if sub.name == "proxy" {
            let with_path = joined(&parameters, &[in_path("path")]);
            items.push(at(format!("{path}/{{path}}"), "WithPath", &with_path));
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

    fn list(&self, subject: &str, list: &str, parameters: &[Parameter]) -> OpenApiOperation {
        OpenApiOperation {
            action: Some("list"),
            parameters: joined(LIST, parameters),
            responses: responses(&["200"], list),
            produces: LISTS,
            ..self.operation("get", "list", subject)
        }
    }

    fn create(&self, subject: &str, object: &str, parameters: &[Parameter]) -> OpenApiOperation {
        OpenApiOperation {
            action: Some("post"),
            parameters: joined(WRITE, parameters),
            body: Some(RequestContent::Object(object.to_owned())),
            responses: responses(&["200", "201", "202"], object),
            ..self.operation("post", "create", subject)
        }
    }

    fn delete_collection(&self, subject: &str, parameters: &[Parameter]) -> OpenApiOperation {
        OpenApiOperation {
            action: Some("deletecollection"),
            parameters: joined(DELETE_COLLECTION, parameters),
            body: Some(RequestContent::DeleteOptions),
            responses: responses(&["200"], "meta.v1.Status"),
            ..self.operation("delete", "delete", &format!("Collection{subject}"))
        }
    }

    fn read(&self, subject: &str, object: &str, one: &[Parameter]) -> OpenApiOperation {
        OpenApiOperation {
            action: Some("get"),
            parameters: one.to_vec(),
            responses: responses(&["200"], object),
            ..self.operation("get", "read", subject)
        }
    }

    fn replace(&self, subject: &str, object: &str, one: &[Parameter]) -> OpenApiOperation {
        OpenApiOperation {
            action: Some("put"),
            parameters: joined(WRITE, one),
            body: Some(RequestContent::Object(object.to_owned())),
            responses: responses(&["200", "201"], object),
            ..self.operation("put", "replace", subject)
        }
    }

    fn patch(&self, subject: &str, object: &str, one: &[Parameter]) -> OpenApiOperation {
        OpenApiOperation {
            action: Some("patch"),
            parameters: joined(PATCH, one),
            body: Some(RequestContent::Patch(self.patches)),
            responses: responses(&["200", "201"], object),
            ..self.operation("patch", "patch", subject)
        }
    }

    fn delete(&self, subject: &str, row: &DocumentedResource<'_>, one: &[Parameter]) -> OpenApiOperation {
        let deleted = if row.returns_deleted { row.object.as_str() } else { "meta.v1.Status" };
        OpenApiOperation {
            action: Some("delete"),
            parameters: joined(DELETE, one),
            body: Some(RequestContent::DeleteOptions),
            responses: responses(&["200", "202"], deleted),
            ..self.operation("delete", "delete", subject)
        }
    }
}

/// Responses that all return an object of this definition.
fn responses(codes: &[&'static str], object: &str) -> Vec<(&'static str, ResponseContent)> {
    codes.iter().map(|code| (*code, ResponseContent::Object(object.to_owned()))).collect()
}

/// Sets the kind of the operations and moves the parameters they share to the path.
fn finish(path: String, mut operations: Vec<OpenApiOperation>, kind: &OperationKind) -> PathItem {
    for operation in &mut operations {
        operation.kind = Some(kind.clone());
    }
    let mut parameters = operations.first().map(|first| first.parameters.clone()).unwrap_or_default();
    parameters
        .retain(|parameter| operations.iter().all(|operation| operation.parameters.contains(parameter)));
    for operation in &mut operations {
        operation.parameters.retain(|parameter| !parameters.contains(parameter));
    }
    PathItem { path, operations, parameters }
}
