use std::sync::Arc;

use api::{GroupResource, GroupVersionKind};
use authn::User;
use value::Value;

use crate::{Attributes, Chain, ChainError, Cluster, Later, Notes, Operation, Seen, Served, Stages};

/// A cluster with namespace `here`, and `going` that is being deleted.
struct Two;

impl Cluster for Two {
    fn object(&self, _: &str, _: &str, _: &str, name: &str) -> Option<Arc<Value>> {
        let phase = match name {
            "here" => "Active",
            "going" => "Terminating",
            _ => return None,
        };
        let mut object = Value::Null;
        object.set_at(&["status", "phase"], phase);
        Some(Arc::new(object))
    }

    fn list(&self, _: &str, _: &str, _: &str) -> Vec<Arc<Value>> {
        Vec::new()
    }

    fn served(&self, _: &GroupVersionKind) -> Option<Served> {
        None
    }

    fn equivalents(&self, _: &GroupResource, _: &str) -> Vec<Served> {
        Vec::new()
    }

    fn convert<'a>(&'a self, object: &'a Value, _: &'a GroupVersionKind) -> Later<'a, Result<Value, String>> {
        Box::pin(std::future::ready(Ok(object.clone())))
    }

    fn adopt<'a>(
        &'a self,
        object: Value,
        _: &'a GroupVersionKind,
        _: bool,
    ) -> Later<'a, Result<Value, String>> {
        Box::pin(std::future::ready(Ok(object)))
    }

    fn schema(&self, _: &GroupVersionKind) -> Option<resources::schema::Link> {
        None
    }

    fn authorize<'a>(&'a self, _: &'a User, _: &'a authz::Attributes) -> Later<'a, authz::Answer> {
        Box::pin(std::future::ready(authz::Answer::no_opinion("")))
    }
}

/// Runs what never has to wait.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
        std::task::Poll::Ready(done) => done,
        std::task::Poll::Pending => panic!("it waits"),
    }
}

fn decide(
    operation: Operation,
    kind: &str,
    resource: &str,
    namespace: &str,
    name: &str,
) -> Result<(), String> {
    let user = User::named("u");
    let options = Value::Null;
    let attributes = Attributes {
        user: &user,
        operation,
        kind: GroupVersionKind::new("", "v1", kind),
        stored_kind: GroupVersionKind::new("", "v1", kind),
        resource: GroupResource::new("", resource),
        version: "v1".into(),
        subresource: "".into(),
        namespace: namespace.into(),
        name: name.into(),
        old_object: Seen::nothing(),
        options: &options,
        dry_run: false,
        now: 0,
        deadline: None,
    };
    let chain = Chain::new(&[], &[], &Stages::default()).unwrap();
    let (mut notes, mut object) = (Notes::default(), Value::Null);
    at_once(chain.mutate(&attributes, Some(&mut object), &Two, &mut notes))
        .map_err(|s| format!("{} {s}", s.code()))?;
    at_once(chain.validate(&attributes, None, &Two, &mut notes)).map_err(|s| format!("{} {s}", s.code()))
}

#[test]
fn creation_needs_a_namespace_that_stays() {
    let create = |namespace| decide(Operation::Create, "Pod", "pods", namespace, "p");
    assert_eq!(create("here"), Ok(()));
    assert_eq!(create("nowhere"), Err(r#"404 namespaces "nowhere" not found"#.to_owned()));
    assert_eq!(
        create("going"),
        Err("403 pods \"p\" is forbidden: unable to create new content in namespace going because it is being terminated".to_owned())
    );
}

#[test]
fn updates_and_deletions_go_on_in_a_namespace_that_goes_away() {
    assert_eq!(decide(Operation::Update, "Pod", "pods", "going", "p"), Ok(()));
    assert_eq!(decide(Operation::Delete, "Pod", "pods", "going", "p"), Ok(()));
}

#[test]
fn the_systems_namespaces_cannot_be_deleted() {
    let delete = |name| decide(Operation::Delete, "Namespace", "namespaces", name, name);
    assert_eq!(delete("here"), Ok(()));
    for name in ["default", "kube-system", "kube-public"] {
        assert_eq!(
            delete(name),
            Err(format!("403 namespaces \"{name}\" is forbidden: this namespace may not be deleted"))
        );
    }
}

#[test]
fn flags_choose_the_plugins() {
    let names = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
    let none = Stages::default();
    let chain = Chain::new(&[], &names(&["NamespaceLifecycle", "ServiceAccount"]), &none).unwrap();
    assert_eq!(chain.plugins().count(), 0);
    assert_eq!(Chain::new(&names(&["Nope"]), &[], &none).unwrap_err(), ChainError::Unknown("Nope".into()));
    assert_eq!(
        Chain::new(&names(&["LimitRanger"]), &[], &none).unwrap_err(),
        ChainError::NotYet("LimitRanger".into())
    );
    let both = names(&["NamespaceLifecycle"]);
    assert_eq!(Chain::new(&both, &both, &none).unwrap_err(), ChainError::Both("NamespaceLifecycle".into()));
}
