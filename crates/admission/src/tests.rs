use api::{GroupResource, GroupVersionKind};
use authn::User;
use value::Value;

use crate::fake_cluster::{FakeCluster, wait};
use crate::{
    AdmissionAttributes, AdmissionNotes, AdmissionSnapshot, ChainConfig, ChainError, Operation, PluginChain,
    VersionedObject,
};

/// A cluster with the active namespace `here` and the terminating namespace `going`.
fn two() -> FakeCluster {
    let namespaces = [("here", "Active"), ("going", "Terminating")].map(|(name, phase)| {
        let mut namespace = Value::map([("apiVersion", "v1"), ("kind", "Namespace")]);
        namespace.set_at(&["metadata", "name"], name);
        namespace.set_at(&["status", "phase"], phase);
        namespace
    });
    namespaces.into_iter().collect()
}

/// A chain of only this plugin.
fn only(plugin: &str) -> PluginChain {
    let none = ChainConfig::default();
    let others: Vec<String> = PluginChain::new(&[], &[], &none)
        .unwrap()
        .plugins()
        .filter(|name| *name != plugin)
        .map(str::to_owned)
        .collect();
    PluginChain::new(&[], &others, &none).unwrap()
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
    let attributes = AdmissionAttributes {
        user: &user,
        operation,
        kind: GroupVersionKind::new("", "v1", kind),
        stored_kind: GroupVersionKind::new("", "v1", kind),
        resource: GroupResource::new("", resource),
        version: "v1".into(),
        subresource: "".into(),
        namespace: namespace.into(),
        name: name.into(),
        old_object: VersionedObject::absent(),
        options: &options,
        dry_run: false,
        now: 0,
        deadline: None,
        budget: value::Budget::UNLIMITED,
        snapshot: AdmissionSnapshot::default(),
    };
    let chain = only("NamespaceLifecycle");
    let (mut notes, mut object) = (AdmissionNotes::default(), Value::Null);
    // A delete has no object to mutate.
    let object = (operation != Operation::Delete).then_some(&mut object);
    wait(chain.mutate(&attributes, object, &two(), &mut notes)).map_err(|s| format!("{} {s}", s.code()))?;
    wait(chain.validate(&attributes, None, &two(), &mut notes)).map_err(|s| format!("{} {s}", s.code()))
}

#[test]
fn create_requires_a_namespace_that_exists_and_is_not_terminating() {
    let create = |namespace| decide(Operation::Create, "Pod", "pods", namespace, "p");
    assert_eq!(create("here"), Ok(()));
    assert_eq!(create("nowhere"), Err(r#"404 namespaces "nowhere" not found"#.to_owned()));
    assert_eq!(
        create("going"),
        Err("403 pods \"p\" is forbidden: unable to create new content in namespace going because it is being terminated".to_owned())
    );
}

#[test]
fn updates_and_deletes_are_admitted_in_a_terminating_namespace() {
    assert_eq!(decide(Operation::Update, "Pod", "pods", "going", "p"), Ok(()));
    assert_eq!(decide(Operation::Delete, "Pod", "pods", "going", "p"), Ok(()));
}

#[test]
fn deleting_a_system_namespace_is_forbidden() {
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
fn flags_enable_and_disable_admission_plugins() {
    let names = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
    let none = ChainConfig::default();
    let all = PluginChain::new(&[], &[], &none).unwrap().plugins().count();
    let chain = PluginChain::new(&names(&["AlwaysPullImages"]), &names(&["ServiceAccount"]), &none).unwrap();
    assert_eq!(chain.plugins().count(), all);
    assert!(chain.plugins().all(|name| name != "ServiceAccount"));
    assert_eq!(
        PluginChain::new(&names(&["Nope"]), &[], &none).unwrap_err(),
        ChainError::Unknown("Nope".into())
    );
    assert_eq!(
        PluginChain::new(&names(&["ImagePolicyWebhook"]), &[], &none).unwrap_err(),
        ChainError::NeedsServer("ImagePolicyWebhook".into())
    );
    let both = names(&["NamespaceLifecycle"]);
    assert_eq!(
        PluginChain::new(&both, &both, &none).unwrap_err(),
        ChainError::EnabledAndDisabled("NamespaceLifecycle".into())
    );
}

/// As in Kubernetes, the mutating phase already rejects the deletion, so that no webhook is called for it.
#[test]
fn deleting_a_system_namespace_is_denied_before_other_plugins_run() {
    let (user, options) = (User::named("u"), Value::Null);
    let kind = GroupVersionKind::new("", "v1", "Namespace");
    let attributes = AdmissionAttributes {
        user: &user,
        operation: Operation::Delete,
        kind: kind.clone(),
        stored_kind: kind,
        resource: GroupResource::new("", "namespaces"),
        version: "v1".into(),
        subresource: "".into(),
        namespace: "".into(),
        name: "kube-system".into(),
        old_object: VersionedObject::absent(),
        options: &options,
        dry_run: false,
        now: 0,
        deadline: None,
        budget: value::Budget::UNLIMITED,
        snapshot: crate::AdmissionSnapshot::default(),
    };
    let outcome =
        wait(only("NamespaceLifecycle").mutate(&attributes, None, &two(), &mut AdmissionNotes::default()));
    assert_eq!(outcome.unwrap_err().code(), 403);
}

/// The default plugins of Kubernetes 1.37, without those that the server provides.
#[test]
fn default_admission_plugins_equal_those_of_kubernetes_in_order() {
    let none = ChainConfig::default();
    let chain = PluginChain::new(&[], &[], &none).unwrap();
    let names: Vec<&str> = chain.plugins().collect();
    assert_eq!(
        names,
        [
            "NamespaceLifecycle",
            "LimitRanger",
            "ServiceAccount",
            "TaintNodesByCondition",
            "PodSecurity",
            "Priority",
            "DefaultTolerationSeconds",
            "DefaultStorageClass",
            "StorageObjectInUseProtection",
            "PodGroupProtection",
            "PersistentVolumeClaimResize",
            "RuntimeClass",
            "CertificateApproval",
            "CertificateSigning",
            "ClusterTrustBundleAttest",
            "CertificateSubjectRestriction",
            "DefaultIngressClass",
            "PodTopologyLabels",
            "NodeDeclaredFeatureValidator",
            "PodResizeValidator",
        ]
    );
}
