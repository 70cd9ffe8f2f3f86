mod cost;

use std::pin::pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use value::{Str, Value};

use super::decision::{DependentAction, GarbageDecision, decide};
use super::graph::OwnerGraph;
use crate::api::{ClusterReader, ObjectChange};
use crate::fake::{FakeReader, parse};

/// A fake cluster and a graph that has observed all of it.
struct Cluster {
    fake: FakeReader,
    graph: Mutex<OwnerGraph>,
}

impl Cluster {
    fn of(objects: &[Value]) -> Self {
        let mut fake = FakeReader::new(&[]);
        fake.objects = objects.to_vec();
        let mut cluster = Cluster { fake, graph: Mutex::default() };
        for object in objects {
            cluster.observe(object, false);
        }
        cluster
    }

    fn observe(&mut self, object: &Value, deleted: bool) -> Vec<Str> {
        let change =
            ObjectChange { object_ref: self.fake.object_ref(object), object: object.clone(), deleted };
        self.graph.get_mut().unwrap().observe(&change)
    }

    /// Stores or replaces an object and passes the change to the graph.
    fn put(&mut self, object: &Value) -> Vec<Str> {
        let object_ref = self.fake.object_ref(object);
        self.fake.objects.retain(|old| {
            let gvk = api::meta::gvk(old);
            self.fake
                .kinds
                .iter()
                .find(|k| k.kind == gvk.kind)
                .unwrap()
                .object_ref(api::meta::namespace(old), api::meta::name(old))
                != object_ref
        });
        self.fake.objects.push(object.clone());
        self.observe(object, false)
    }

    /// Removes the object with this UID and passes the deletion to the graph.
    fn remove(&mut self, uid: &str) -> Vec<Str> {
        let at = self.fake.objects.iter().position(|o| api::meta::uid(o) == uid).unwrap();
        let object = self.fake.objects.remove(at);
        self.observe(&object, true)
    }

    fn decide(&self, uid: &str) -> GarbageDecision {
        self.decide_with(&self.fake, uid).0
    }

    /// Decides with `view`. Returns the decision and how often it yielded to other tasks.
    fn decide_with(&self, view: &impl ClusterReader, uid: &str) -> (GarbageDecision, usize) {
        let mut decision = pin!(decide(&self.graph, view, uid));
        let mut yields = 0;
        loop {
            match decision.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(decision) => return (decision.unwrap(), yields),
                Poll::Pending => yields += 1,
            }
        }
    }

    fn only(&self, uid: &str) -> DependentAction {
        match self.decide(uid) {
            GarbageDecision::Do(mut actions) if actions.len() == 1 => actions.remove(0),
            other => panic!("{other:?}"),
        }
    }

    fn policy(&self, uid: &str) -> &'static str {
        match self.only(uid) {
            DependentAction::Delete(deleting) => {
                assert_eq!(deleting.uid, uid);
                deleting.policy
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A ConfigMap in namespace `n` whose UID is its name.
fn map(name: &str) -> Value {
    let mut object =
        parse(r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"n","resourceVersion":"7"}}"#);
    object.set_at(&["metadata", "name"], name);
    object.set_at(&["metadata", "uid"], name);
    object
}

fn owned_by(name: &str, owners: &[(&str, bool)]) -> Value {
    let mut object = map(name);
    let references = owners.iter().map(|(owner, blocks)| {
        let mut reference =
            Value::map([("apiVersion", "v1"), ("kind", "ConfigMap"), ("name", owner), ("uid", owner)]);
        if *blocks {
            reference.set_at(&["blockOwnerDeletion"], true);
        }
        reference
    });
    object.set_at(&["metadata", "ownerReferences"], references.collect::<Vec<_>>());
    object
}

fn deleting(mut object: Value, finalizers: &[&str]) -> Value {
    object.set_at(&["metadata", "deletionTimestamp"], "2026-01-01T00:00:00Z");
    object.set_at(&["metadata", "finalizers"], Value::list(finalizers.iter().copied()));
    object
}

fn uids(mut list: Vec<Str>) -> Vec<Str> {
    list.sort();
    list.dedup();
    list
}

#[test]
fn an_object_whose_owner_exists_is_not_collected() {
    let cluster = Cluster::of(&[map("a"), owned_by("b", &[("a", true)])]);
    assert_eq!(cluster.decide("b"), GarbageDecision::Nothing);
    assert_eq!(cluster.decide("a"), GarbageDecision::Nothing);
}

#[test]
fn dependents_are_requeued_and_deleted_in_the_background_after_their_owner() {
    let mut cluster =
        Cluster::of(&[map("a"), owned_by("b", &[("a", false)]), owned_by("c", &[("b", false)])]);
    assert_eq!(cluster.remove("a"), ["b"]);
    assert_eq!(cluster.policy("b"), "Background");
    assert_eq!(cluster.remove("b"), ["c"]);
    assert_eq!(cluster.policy("c"), "Background");
    cluster.remove("c");
    assert_eq!(cluster.decide("c"), GarbageDecision::Nothing);
}

#[test]
fn a_new_object_with_a_missing_or_recreated_owner_is_deleted() {
    let mut cluster = Cluster::of(&[]);
    assert_eq!(cluster.put(&owned_by("b", &[("a", false)])), ["b"]);
    assert_eq!(cluster.policy("b"), "Background");
    let mut other = map("a");
    other.set_at(&["metadata", "uid"], "another");
    cluster.put(&other);
    assert_eq!(cluster.policy("b"), "Background");
}

#[test]
fn an_owner_in_another_namespace_counts_as_absent() {
    let mut elsewhere = map("a");
    elsewhere.set_at(&["metadata", "namespace"], "elsewhere");
    let cluster = Cluster::of(&[elsewhere, owned_by("b", &[("a", false)])]);
    assert_eq!(cluster.policy("b"), "Background");
}

#[test]
fn a_cluster_scoped_owner_is_valid_in_every_namespace() {
    let node = parse(r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"node","uid":"u"}}"#);
    let mut dependent = map("b");
    let reference = parse(r#"[{"apiVersion":"v1","kind":"Node","name":"node","uid":"u"}]"#);
    dependent.set_at(&["metadata", "ownerReferences"], reference);
    let mut cluster = Cluster::of(&[node, dependent]);
    assert_eq!(cluster.decide("b"), GarbageDecision::Nothing);
    cluster.remove("u");
    assert_eq!(cluster.policy("b"), "Background");
}

#[test]
fn a_cluster_scoped_object_with_a_namespaced_owner_is_not_collected() {
    let role = parse(
        r#"{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"r","uid":"r",
            "ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"a","uid":"a"}]}}"#,
    );
    let cluster = Cluster::of(&[role]);
    assert!(matches!(cluster.decide("r"), GarbageDecision::Impossible { .. }));
}

#[test]
fn an_owner_of_an_unknown_kind_prevents_garbage_collection() {
    let mut object = map("b");
    let references = parse(r#"[{"apiVersion":"example.com/v1","kind":"Widget","name":"w","uid":"w"}]"#);
    object.set_at(&["metadata", "ownerReferences"], references);
    let cluster = Cluster::of(&[object]);
    assert!(matches!(cluster.decide("b"), GarbageDecision::UnknownKind { .. }));
}

#[test]
fn with_one_owner_left_only_dangling_owner_references_are_removed() {
    let mut cluster = Cluster::of(&[map("a"), map("b"), owned_by("c", &[("a", false), ("b", true)])]);
    cluster.remove("a");
    let DependentAction::Patch { object_ref, patch } = cluster.only("c") else { panic!() };
    assert_eq!(object_ref.name, "c");
    let left = patch.list_at(&["metadata", "ownerReferences"]);
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].str_at(&["uid"]), Some("b"));
    assert_eq!(patch.str_at(&["metadata", "resourceVersion"]), Some("7"));
}

#[test]
fn an_object_that_is_already_being_deleted_is_not_garbage_collected() {
    let cluster = Cluster::of(&[deleting(owned_by("b", &[("a", false)]), &["example.com/held"])]);
    assert_eq!(cluster.decide("b"), GarbageDecision::Nothing);
}

#[test]
fn existing_finalizers_determine_the_propagation_policy() {
    let mut orphaning = owned_by("b", &[("a", false)]);
    orphaning.set_at(&["metadata", "finalizers"], Value::list(["orphan"]));
    let mut foreground = owned_by("c", &[("a", false)]);
    foreground.set_at(&["metadata", "finalizers"], Value::list(["foregroundDeletion"]));
    let cluster = Cluster::of(&[orphaning, foreground]);
    assert_eq!(cluster.policy("b"), "Orphan");
    assert_eq!(cluster.policy("c"), "Foreground");
}

#[test]
fn a_foreground_deletion_waits_for_the_dependents_that_block_it() {
    let owner = deleting(map("a"), &["foregroundDeletion"]);
    let mut cluster = Cluster::of(&[map("a"), owned_by("b", &[("a", true)]), owned_by("c", &[("a", false)])]);
    assert_eq!(
        uids(cluster.put(&owner)),
        ["a", "b", "c"],
        "all dependents are deleted, not only those that block"
    );
    assert_eq!(cluster.decide("a"), GarbageDecision::Attempt(vec!["b".into()]));
    assert_eq!(cluster.policy("b"), "Background");
    assert_eq!(cluster.policy("c"), "Background");
    assert_eq!(cluster.remove("b"), ["a"]);
    let DependentAction::Release { object_ref, patch } = cluster.only("a") else { panic!() };
    assert_eq!(object_ref.name, "a");
    assert_eq!(patch.at(&["metadata", "finalizers"]), Some(&Value::Null));
    assert_eq!(cluster.remove("a"), ["c"]);
}

#[test]
fn releasing_an_owner_preserves_foreign_finalizers() {
    let cluster = Cluster::of(&[deleting(map("a"), &["x/y", "foregroundDeletion", "z/w"])]);
    let DependentAction::Release { patch, .. } = cluster.only("a") else { panic!() };
    assert_eq!(patch.at(&["metadata", "finalizers"]), Some(&Value::list(["x/y", "z/w"])));
}

#[test]
fn a_dependent_that_stops_blocking_wakes_its_owner() {
    let mut cluster = Cluster::of(&[
        deleting(map("a"), &["foregroundDeletion"]),
        map("d"),
        owned_by("b", &[("a", true), ("d", false)]),
    ]);
    let DependentAction::Patch { patch, .. } = cluster.only("b") else { panic!("another owner keeps it") };
    assert_eq!(patch.list_at(&["metadata", "ownerReferences"]).len(), 1);
    assert_eq!(uids(cluster.put(&owned_by("b", &[("a", false), ("d", false)]))), ["a", "b"]);
    assert!(matches!(cluster.only("a"), DependentAction::Release { .. }));
}

#[test]
fn in_a_foreground_deletion_dependents_wait_for_their_own_dependents() {
    let cluster = Cluster::of(&[
        deleting(map("a"), &["foregroundDeletion"]),
        owned_by("b", &[("a", true)]),
        owned_by("c", &[("b", true)]),
    ]);
    assert_eq!(cluster.policy("b"), "Foreground");
}

#[test]
fn a_cycle_of_foreground_deletions_is_broken() {
    let mut first = deleting(owned_by("a", &[("b", true)]), &["foregroundDeletion"]);
    let mut cluster = Cluster::of(&[first.clone(), owned_by("b", &[("a", true)])]);
    let DependentAction::Patch { object_ref, patch } = cluster.only("b") else { panic!() };
    assert_eq!(object_ref.name, "b");
    let references = patch.list_at(&["metadata", "ownerReferences"]);
    assert_eq!(references[0].bool_at(&["blockOwnerDeletion"]), Some(false));
    // After that write the object is reconciled again and deleted, and its owner is released.
    assert_eq!(uids(cluster.put(&owned_by("b", &[("a", false)]))), ["a", "b"]);
    assert_eq!(cluster.policy("b"), "Foreground");
    first.set_at(&["metadata", "resourceVersion"], "8");
    cluster.put(&first);
    assert!(matches!(cluster.only("a"), DependentAction::Release { .. }));
}

#[test]
fn orphaned_dependents_lose_their_owner_references_before_the_owner_is_released() {
    let mut cluster = Cluster::of(&[
        map("a"),
        map("d"),
        owned_by("b", &[("a", true)]),
        owned_by("c", &[("a", false), ("d", true)]),
    ]);
    assert_eq!(cluster.put(&deleting(map("a"), &["orphan"])), ["a"]);
    let GarbageDecision::Do(actions) = cluster.decide("a") else { panic!() };
    let [
        DependentAction::Patch { patch: first, .. },
        DependentAction::Patch { patch: second, .. },
        DependentAction::Release { .. },
    ] = actions.as_slice()
    else {
        panic!("{actions:?}")
    };
    assert_eq!(first.at(&["metadata", "ownerReferences"]), Some(&Value::Null));
    assert_eq!(second.list_at(&["metadata", "ownerReferences"])[0].str_at(&["uid"]), Some("d"));
    // Their owner still exists, so they are not deleted meanwhile.
    assert_eq!(cluster.decide("b"), GarbageDecision::Nothing);
}

#[test]
fn an_object_without_owner_references_is_not_a_dependent() {
    let mut cluster = Cluster::of(&[map("a"), owned_by("b", &[("a", true)])]);
    assert_eq!(cluster.put(&map("b")), [] as [Str; 0]);
    assert_eq!(cluster.remove("a"), [] as [Str; 0]);
    assert_eq!(cluster.decide("b"), GarbageDecision::Nothing);
    assert!(cluster.fake.kind("v1", "ConfigMap").is_some());
}
