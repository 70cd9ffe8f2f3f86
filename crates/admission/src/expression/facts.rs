//! What expressions see of a request.

use std::sync::{LazyLock, OnceLock};

use api::{GroupResource, GroupVersionKind};
use cel::authz::ResourceTarget;
use cel::{Activation, Env, Val};
use kinds::expressions::{Age, Compiler, Offered};
use value::{Map, Str, Value};

use super::{Checks, Pace};
use crate::Attributes;
use crate::matching::{Asked, Match};

/// A request as the expressions of what it matched see it.
pub struct Facts<'a> {
    asked: &'a Asked<'a>,
    matched: &'a Match,
    object: Option<&'a Value>,
    old: Option<&'a Value>,
    namespace: Option<&'a Value>,
    checks: &'a Checks,
    /// Whether the time of the request is up.
    late: Option<Box<dyn Fn() -> bool + Send + Sync + 'a>>,
    request: OnceLock<Value>,
    request_of_conditions: OnceLock<Value>,
}

impl<'a> Facts<'a> {
    /// A request that matched as `matched`, with both objects in the shape of its kind, and the namespace as
    /// [`namespace_shown`] makes it.
    pub fn new(
        asked: &'a Asked<'a>,
        matched: &'a Match,
        object: Option<&'a Value>,
        old: Option<&'a Value>,
        namespace: Option<&'a Value>,
        checks: &'a Checks,
    ) -> Self {
        let (request, request_of_conditions) = (OnceLock::new(), OnceLock::new());
        let late = asked.attributes.deadline.map(|deadline| -> Box<dyn Fn() -> bool + Send + Sync + 'a> {
            Box::new(move || asked.cluster.is_past(deadline))
        });
        Facts { asked, matched, object, old, namespace, checks, late, request, request_of_conditions }
    }

    fn request(&self) -> &Value {
        self.request.get_or_init(|| {
            let Match { resource, version, kind } = self.matched;
            request(self.asked, resource, version, kind)
        })
    }

    /// Match conditions are told the resource of the request, also where an equivalent one matched.
    fn request_of_conditions(&self) -> &Value {
        let Attributes { resource, version, .. } = self.asked.attributes;
        if self.matched.resource == *resource && self.matched.version == *version {
            return self.request();
        }
        self.request_of_conditions.get_or_init(|| request(self.asked, resource, version, &self.matched.kind))
    }
}

/// Which variables an activation has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is one thing that expressions have or lack")]
pub struct Shape {
    /// `params` is declared.
    pub params: bool,
    /// `variables` is declared.
    pub composed: bool,
    /// It is for match conditions, which do not see the namespace.
    pub conditions: bool,
    /// The authorizer can be asked; where it cannot, `authorizer` has no value.
    pub may_ask: bool,
}

impl Shape {
    const COUNT: usize = 16;

    fn position(self) -> usize {
        [self.params, self.composed, self.conditions, self.may_ask]
            .into_iter()
            .enumerate()
            .map(|(bit, set)| usize::from(set) << bit)
            .sum()
    }
}

/// The environments with the most variables, by the first two bits of a shape.
static ENVS: LazyLock<Vec<Env>> = LazyLock::new(|| {
    (0..4)
        .map(|bits| {
            let offered = Offered { params: bits & 1 != 0, authorizer: true, patches: false };
            let compiler = if bits & 2 != 0 { Compiler::composed() } else { Compiler::PLAIN };
            compiler.env(offered, Age::Stored)
        })
        .collect()
});

/// CEL's variables for a request, made once for each shape.
pub struct Scope<'a> {
    facts: &'a Facts<'a>,
    activations: [OnceLock<Activation<'a>>; Shape::COUNT],
}

impl<'a> Scope<'a> {
    /// The variables for these facts.
    pub fn new(facts: &'a Facts<'a>) -> Self {
        Scope { facts, activations: [const { OnceLock::new() }; Shape::COUNT] }
    }

    /// The variables of a shape; `params` is null.
    pub fn activation(&self, shape: Shape) -> &Activation<'a> {
        #[expect(clippy::indexing_slicing, reason = "there is one for every shape")]
        self.activations[shape.position()].get_or_init(|| self.make(shape))
    }

    /// How far the request has come since others could run.
    pub fn pace(&self) -> &'a Pace {
        self.facts.asked.pace()
    }

    fn make(&self, shape: Shape) -> Activation<'a> {
        let facts = self.facts;
        let data = |value: Option<&'a Value>| value.map_or(Val::Null, Val::data);
        #[expect(clippy::indexing_slicing, reason = "two bits are below four")]
        let mut activation = Activation::new(&ENVS[shape.position() & 3]);
        if let Some(late) = &facts.late {
            activation.set_interrupt(&**late);
        }
        activation.set("object", data(facts.object));
        activation.set("oldObject", data(facts.old));
        activation.set("namespaceObject", if shape.conditions { Val::Null } else { data(facts.namespace) });
        let request = if shape.conditions { facts.request_of_conditions() } else { facts.request() };
        activation.set("request", Val::data(request));
        activation.set("params", Val::Null);
        if shape.may_ask {
            let Attributes { resource, subresource, name, .. } = facts.asked.attributes;
            activation.set_authorizer(facts.checks);
            activation.set("authorizer", cel::authz::authorizer());
            activation.set(
                "authorizer.requestResource",
                cel::authz::request_resource(ResourceTarget {
                    group: resource.group.clone(),
                    resource: resource.resource.clone(),
                    subresource: subresource.clone(),
                    namespace: facts.asked.namespace().into(),
                    name: name.clone(),
                    ..ResourceTarget::default()
                }),
            );
        }
        activation
    }
}

/// `request`: what is empty is absent, but for the parts of kinds and resources.
fn request(asked: &Asked<'_>, resource: &GroupResource, version: &Str, kind: &GroupVersionKind) -> Value {
    let attributes = asked.attributes;
    let resource_value = |resource: &GroupResource, version: &Str| {
        Value::map([
            ("group", resource.group.clone()),
            ("resource", resource.resource.clone()),
            ("version", version.clone()),
        ])
    };
    let kind_value = |kind: &GroupVersionKind| {
        Value::map([
            ("group", kind.group.clone()),
            ("kind", kind.kind.clone()),
            ("version", kind.version.clone()),
        ])
    };
    let mut map = Map::with_capacity(14);
    map.insert("dryRun", attributes.dry_run);
    map.insert("kind", kind_value(kind));
    let mut text = |key: &'static str, text: &str| {
        if !text.is_empty() {
            map.insert(key, text);
        }
    };
    text("name", &attributes.name);
    text("namespace", asked.namespace());
    text("operation", attributes.operation.as_str());
    text("requestSubResource", &attributes.subresource);
    text("subResource", &attributes.subresource);
    // Both are there and empty: the objects are variables of their own.
    map.insert("object", Value::Null);
    map.insert("oldObject", Value::Null);
    map.insert("options", attributes.options.clone());
    map.insert("requestKind", kind_value(&attributes.kind));
    map.insert("requestResource", resource_value(&attributes.resource, &attributes.version));
    map.insert("resource", resource_value(resource, version));
    map.insert("uid", "");
    map.insert("userInfo", user(attributes));
    Value::Map(map)
}

fn user(attributes: &Attributes<'_>) -> Value {
    let user = attributes.user;
    let mut map = Map::with_capacity(4);
    let strings = |list: &[Str]| Value::list(list.iter().cloned());
    if !user.extra.is_empty() {
        let extra = user.extra.iter().map(|(key, values)| (key.clone(), strings(values)));
        map.insert("extra", Value::Map(extra.collect()));
    }
    if !user.groups.is_empty() {
        map.insert("groups", strings(&user.groups));
    }
    if !user.uid.is_empty() {
        map.insert("uid", user.uid.clone());
    }
    if !user.name.is_empty() {
        map.insert("username", user.name.clone());
    }
    Value::Map(map)
}

/// `namespaceObject`: the parts of a namespace that expressions may see. A namespace has no namespace of its own.
pub fn namespace_shown(asked: &Asked<'_>) -> Option<Value> {
    const SHOWN: [&str; 12] = [
        "annotations",
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generateName",
        "generation",
        "labels",
        "name",
        "namespace",
        "resourceVersion",
        "uid",
    ];
    let kind = &asked.attributes.kind;
    if kind.group.is_empty() && kind.version == "v1" && kind.kind == "Namespace" {
        return None;
    }
    let namespace = asked.namespace_object()?;
    let mut metadata = namespace.get("metadata").cloned().unwrap_or_default();
    metadata.make_map().retain(|key, _| SHOWN.contains(&key.as_str()));
    let mut shown = Map::with_capacity(3);
    shown.insert("metadata", metadata);
    for part in ["spec", "status"] {
        shown.insert(part, namespace.get(part).cloned().unwrap_or_else(|| Value::Map(Map::new())));
    }
    Some(Value::Map(shown))
}
