use std::sync::Arc;

use api::{GroupResource, GroupVersionKind};
use authn::User;
use value::Value;

use crate::{Attributes, Chain, ChainError, Cluster, Operation};

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
        resource: GroupResource::new("", resource),
        version: "v1".into(),
        subresource: "".into(),
        namespace: namespace.into(),
        name: name.into(),
        old_object: None,
        options: &options,
        dry_run: false,
    };
    let chain = Chain::new(&[], &[]).unwrap();
    chain.mutate(&attributes, &mut Value::Null, &Two).map_err(|s| format!("{} {s}", s.code()))?;
    chain.validate(&attributes, None, &Two).map_err(|s| format!("{} {s}", s.code()))
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
    let chain = Chain::new(&[], &names(&["NamespaceLifecycle", "ServiceAccount"])).unwrap();
    assert_eq!(chain.plugins().count(), 0);
    assert_eq!(Chain::new(&names(&["Nope"]), &[]).unwrap_err(), ChainError::Unknown("Nope".into()));
    assert_eq!(
        Chain::new(&names(&["LimitRanger"]), &[]).unwrap_err(),
        ChainError::NotYet("LimitRanger".into())
    );
    let both = names(&["NamespaceLifecycle"]);
    assert_eq!(Chain::new(&both, &both).unwrap_err(), ChainError::Both("NamespaceLifecycle".into()));
}
