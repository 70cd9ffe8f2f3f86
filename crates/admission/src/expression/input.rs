//! The variables that expressions of policies and webhooks see.

use std::sync::{LazyLock, OnceLock};

use api::{GroupResource, GroupVersionKind};
use cel::authz::ResourceTarget;
use cel::{Activation, Env, Val};
use kinds::expressions::{Age, Compiler, OptionalVariables};
use value::{Map, Str, Value};

use super::{AuthorizerDecisions, YieldPacer};
use crate::AdmissionAttributes;
use crate::matching::{MatchedResource, RequestContext};

/// A matched request as input of expressions.
pub struct ExpressionInput<'a> {
    context: &'a RequestContext<'a>,
    matched: &'a MatchedResource,
    object: Option<&'a Value>,
    old: Option<&'a Value>,
    namespace: Option<&'a Value>,
    checks: &'a AuthorizerDecisions,
    /// Returns true when evaluation must stop: after the request's deadline, and when it takes too long for the main runtime.
    must_stop: Box<dyn Fn() -> bool + Send + Sync + 'a>,
    request: OnceLock<Value>,
    request_of_conditions: OnceLock<Value>,
}

impl<'a> ExpressionInput<'a> {
    /// `object` and `old` are in the version of `matched`; `namespace` comes from [`visible_namespace`].
    pub fn new(
        context: &'a RequestContext<'a>,
        matched: &'a MatchedResource,
        object: Option<&'a Value>,
        old: Option<&'a Value>,
        namespace: Option<&'a Value>,
        checks: &'a AuthorizerDecisions,
    ) -> Self {
        let (request, request_of_conditions) = (OnceLock::new(), OnceLock::new());
        let deadline = context.attributes.deadline;
        let is_late = move || deadline.is_some_and(|deadline| context.cluster.is_past(deadline));
        let must_stop = Box::new(move || context.pacer().interrupts() || is_late());
        ExpressionInput {
            context,
            matched,
            object,
            old,
            namespace,
            checks,
            must_stop,
            request,
            request_of_conditions,
        }
    }

    fn request(&self) -> &Value {
        self.request.get_or_init(|| {
            let MatchedResource { resource, version, kind } = self.matched;
            request(self.context, resource, version, kind)
        })
    }

    /// In match conditions, `request.resource` is the requested resource even if an equivalent one matched.
    fn request_of_conditions(&self) -> &Value {
        let AdmissionAttributes { resource, version, .. } = self.context.attributes;
        if self.matched.resource == *resource && self.matched.version == *version {
            return self.request();
        }
        self.request_of_conditions
            .get_or_init(|| request(self.context, resource, version, &self.matched.kind))
    }
}

/// The variables that an expression may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is one thing that expressions have or lack")]
pub struct DeclaredVariables {
    pub params: bool,
    /// The policy's `variables` are declared.
    pub composed: bool,
    /// For match conditions, which do not see `namespaceObject`.
    pub conditions: bool,
    /// Whether `authorizer` has a value.
    pub authorizer: bool,
}

impl DeclaredVariables {
    const COUNT: usize = 16;

    fn position(self) -> usize {
        [self.params, self.composed, self.conditions, self.authorizer]
            .into_iter()
            .enumerate()
            .map(|(bit, set)| usize::from(set) << bit)
            .sum()
    }
}

/// The environments with the most variables, by the first two bits of [`DeclaredVariables::position`].
static ENVS: LazyLock<Vec<Env>> = LazyLock::new(|| {
    (0..4)
        .map(|bits| {
            let offered = OptionalVariables { params: bits & 1 != 0, authorizer: true, patches: false };
            let compiler = if bits & 2 != 0 { Compiler::composed() } else { Compiler::PLAIN };
            compiler.env(offered, Age::Stored)
        })
        .collect()
});

/// CEL activations for a request, created once for each set of declared variables.
pub struct Activations<'a> {
    input: &'a ExpressionInput<'a>,
    activations: [OnceLock<Activation<'a>>; DeclaredVariables::COUNT],
}

impl<'a> Activations<'a> {
    pub fn new(input: &'a ExpressionInput<'a>) -> Self {
        Activations { input, activations: [const { OnceLock::new() }; DeclaredVariables::COUNT] }
    }

    /// The activation for a set of variables, with `params` null.
    pub fn activation(&self, declared: DeclaredVariables) -> &Activation<'a> {
        #[expect(clippy::indexing_slicing, reason = "there is one for every shape")]
        self.activations[declared.position()].get_or_init(|| self.make(declared))
    }

    /// The request's cooperative scheduling state.
    pub fn pacer(&self) -> &'a YieldPacer {
        self.input.context.pacer()
    }

    fn make(&self, declared: DeclaredVariables) -> Activation<'a> {
        let input = self.input;
        let data = |value: Option<&'a Value>| value.map_or(Val::Null, Val::data);
        #[expect(clippy::indexing_slicing, reason = "two bits are below four")]
        let mut activation = Activation::new(&ENVS[declared.position() & 3]);
        activation.set_interrupt(&*input.must_stop);
        activation.set("object", data(input.object));
        activation.set("oldObject", data(input.old));
        activation
            .set("namespaceObject", if declared.conditions { Val::Null } else { data(input.namespace) });
        let request = if declared.conditions { input.request_of_conditions() } else { input.request() };
        activation.set("request", Val::data(request));
        activation.set("params", Val::Null);
        if declared.authorizer {
            let AdmissionAttributes { resource, subresource, name, .. } = input.context.attributes;
            activation.set_authorizer(input.checks);
            activation.set("authorizer", cel::authz::authorizer());
            activation.set(
                "authorizer.requestResource",
                cel::authz::request_resource(ResourceTarget {
                    group: resource.group.clone(),
                    resource: resource.resource.clone(),
                    subresource: subresource.clone(),
                    namespace: input.context.namespace().into(),
                    name: name.clone(),
                    ..ResourceTarget::default()
                }),
            );
        }
        activation
    }
}

/// The variable `request`. Empty fields are absent, except inside kinds and resources.
fn request(
    context: &RequestContext<'_>,
    resource: &GroupResource,
    version: &Str,
    kind: &GroupVersionKind,
) -> Value {
    let attributes = context.attributes;
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
    text("namespace", context.namespace());
    text("operation", attributes.operation.as_str());
    text("requestSubResource", &attributes.subresource);
    text("subResource", &attributes.subresource);
    // Null, because the objects have variables of their own.
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

fn user(attributes: &AdmissionAttributes<'_>) -> Value {
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

/// The variable `namespaceObject`: the parts of a namespace that expressions may see. `None` if the request
/// is for a namespace.
pub fn visible_namespace(context: &RequestContext<'_>) -> Option<Value> {
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
    let kind = &context.attributes.kind;
    if kind.group.is_empty() && kind.version == "v1" && kind.kind == "Namespace" {
        return None;
    }
    let namespace = context.namespace_object()?;
    let mut metadata = namespace.get("metadata").cloned().unwrap_or_default();
    metadata.make_map().retain(|key, _| SHOWN.contains(&key.as_str()));
    let mut shown = Map::with_capacity(3);
    shown.insert("metadata", metadata);
    for part in ["spec", "status"] {
        shown.insert(part, namespace.get(part).cloned().unwrap_or_else(|| Value::Map(Map::new())));
    }
    Some(Value::Map(shown))
}
