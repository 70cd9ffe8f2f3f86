//! The cost of a decision when users write many owner references.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use api::Status;
use value::{Str, Value};

use super::super::decision::{DependentAction, GarbageDecision};
use super::{Cluster, deleting, map, owned_by};
use crate::api::{AggregatedKinds, ClusterReader, ObjectChange, ResourceKind, TypedObjectRef};

const MANY: usize = 2_000;

/// Counts look-ups in a cluster and asserts that the graph is not locked during them.
struct Counted<'a> {
    cluster: &'a Cluster,
    kinds: AtomicUsize,
    objects: AtomicUsize,
    /// Restarts the graph at every read, and lists this object again.
    restart: Option<Value>,
}

impl<'a> Counted<'a> {
    fn new(cluster: &'a Cluster) -> Self {
        Counted { cluster, kinds: AtomicUsize::new(0), objects: AtomicUsize::new(0), restart: None }
    }

    /// Number of kinds and objects looked up.
    fn lookups(&self) -> (usize, usize) {
        (self.kinds.load(Ordering::Relaxed), self.objects.load(Ordering::Relaxed))
    }

    fn note(&self, counter: &AtomicUsize) {
        assert!(self.cluster.graph.try_lock().is_ok(), "the graph is locked during a look-up");
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl ClusterReader for Counted<'_> {
    fn kind(&self, api_version: &str, kind: &str) -> Option<Arc<ResourceKind>> {
        self.note(&self.kinds);
        self.cluster.fake.kind(api_version, kind)
    }

    fn kinds(&self) -> Vec<Arc<ResourceKind>> {
        self.cluster.fake.kinds()
    }

    fn aggregated_kinds(&self) -> AggregatedKinds {
        self.cluster.fake.aggregated_kinds()
    }

    fn get(&self, object_ref: &TypedObjectRef) -> Result<Option<Value>, Status> {
        self.note(&self.objects);
        if let Some(object) = &self.restart {
            let mut graph = self.cluster.graph.lock().unwrap();
            graph.restart();
            graph.observe(&ObjectChange {
                object_ref: self.cluster.fake.object_ref(object),
                object: object.clone(),
                deleted: false,
            });
        }
        self.cluster.fake.get(object_ref)
    }

    fn metadata(&self, object_ref: &TypedObjectRef) -> Result<Option<Value>, Status> {
        self.get(object_ref)
    }

    fn list(&self, kind: &ResourceKind, namespace: &str) -> Result<Vec<Value>, Status> {
        self.cluster.fake.list(kind, namespace)
    }

    fn list_by_field(&self, kind: &ResourceKind, field: &str, value: &str) -> Result<Vec<Value>, Status> {
        self.cluster.fake.list_by_field(kind, field, value)
    }

    fn names(&self, kind: &ResourceKind, namespace: &str) -> Vec<Str> {
        self.cluster.fake.names(kind, namespace)
    }

    fn count(&self, kind: &ResourceKind, namespace: &str) -> usize {
        ClusterReader::count(&self.cluster.fake, kind, namespace)
    }

    fn now(&self) -> i64 {
        self.cluster.fake.now()
    }

    fn fresh_uid(&self) -> String {
        self.cluster.fake.fresh_uid()
    }
}

/// References to the ConfigMap `name` with these UIDs.
fn references(name: &str, uids: impl IntoIterator<Item = String>, blocks: bool) -> Vec<Value> {
    let reference = |uid: String| {
        let mut reference =
            Value::map([("apiVersion", "v1"), ("kind", "ConfigMap"), ("name", name), ("uid", &uid)]);
        reference.set_at(&["blockOwnerDeletion"], blocks);
        reference
    };
    uids.into_iter().map(reference).collect()
}

/// A ConfigMap with these owner references.
fn with_references(name: &str, references: Vec<Value>) -> Value {
    let mut object = map(name);
    object.set_at(&["metadata", "ownerReferences"], references);
    object
}

fn many(prefix: &str) -> impl Iterator<Item = String> {
    (0..MANY).map(move |number| format!("{prefix}{number}"))
}

#[test]
fn an_object_that_names_itself_by_many_uids_is_read_twice_and_deleted() {
    let cluster = Cluster::of(&[with_references("a", references("a", many("u"), false))]);
    let view = Counted::new(&cluster);
    let (decision, yields) = cluster.decide_with(&view, "a");
    let GarbageDecision::Do(actions) = decision else { panic!("{decision:?}") };
    let [DependentAction::Delete(deleting)] = actions.as_slice() else { panic!("{actions:?}") };
    assert_eq!((deleting.policy, deleting.owners.len()), ("Background", MANY));
    assert_eq!(view.lookups(), (1, 2), "the object itself, and the one owner that all references name");
    assert!(yields > 0, "a long decision yields");
}

#[test]
fn among_many_references_to_one_owner_only_the_one_with_its_uid_stays() {
    let uids = many("u").chain(["a".to_owned()]);
    let cluster = Cluster::of(&[map("a"), with_references("b", references("a", uids, false))]);
    let view = Counted::new(&cluster);
    let (decision, _) = cluster.decide_with(&view, "b");
    let GarbageDecision::Do(actions) = decision else { panic!("{decision:?}") };
    let [DependentAction::Patch { patch, .. }] = actions.as_slice() else { panic!("{actions:?}") };
    let left = patch.list_at(&["metadata", "ownerReferences"]);
    assert_eq!(left.iter().map(|reference| reference.str_at(&["uid"])).collect::<Vec<_>>(), [Some("a")]);
    assert_eq!(view.lookups(), (1, 2));
}

#[test]
fn each_of_several_owners_is_read_once() {
    let mut list = references("a", ["a".to_owned()], false);
    for name in ["b", "missing", "a", "b", "missing"] {
        list.extend(references(name, many("u"), false));
    }
    let cluster = Cluster::of(&[map("a"), map("b"), with_references("c", list)]);
    let view = Counted::new(&cluster);
    let (decision, _) = cluster.decide_with(&view, "c");
    assert!(matches!(decision, GarbageDecision::Do(_)), "{decision:?}");
    assert_eq!(view.lookups(), (1, 4), "the dependent and three owners, one of which does not exist");
}

#[test]
fn an_ordinary_decision_does_not_yield() {
    let cluster = Cluster::of(&[map("a"), owned_by("b", &[("a", true)])]);
    let view = Counted::new(&cluster);
    assert_eq!(cluster.decide_with(&view, "b"), (GarbageDecision::Nothing, 0));
    assert_eq!(view.lookups(), (1, 2));
}

#[test]
fn orphaning_many_dependents_yields_and_reads_each_once() {
    let dependents = many("d").map(|name| owned_by(&name, &[("a", false)])).take(100);
    let objects: Vec<Value> = dependents.chain([deleting(map("a"), &["orphan"])]).collect();
    let cluster = Cluster::of(&objects);
    let view = Counted::new(&cluster);
    let (decision, yields) = cluster.decide_with(&view, "a");
    let GarbageDecision::Do(actions) = decision else { panic!("{decision:?}") };
    assert_eq!(actions.len(), 101);
    assert_eq!(view.lookups(), (0, 101));
    assert!(yields > 0);
}

#[test]
fn replacing_many_references_moves_the_object_to_its_new_owners() {
    let mut cluster = Cluster::of(&[deleting(map("u7"), &["foregroundDeletion"])]);
    let old = references("a", many("u").chain(many("u")), true);
    assert_eq!(cluster.put(&with_references("d", old)), ["d"]);
    assert_eq!(cluster.decide("u7"), GarbageDecision::Attempt(vec!["d".into()]));
    // One of two references to an owner blocks it: that suffices.
    let mut both = references("a", ["u7".to_owned()], true);
    both.extend(references("a", many("u"), false));
    assert_eq!(cluster.put(&with_references("d", both)), ["d"]);
    assert_eq!(cluster.decide("u7"), GarbageDecision::Attempt(vec!["d".into()]));
    let affected = cluster.put(&with_references("d", references("a", many("v"), true)));
    assert_eq!(super::uids(affected), ["d", "u7"], "the owner that waits no longer has a dependent");
    let graph = cluster.graph.get_mut().unwrap();
    let names = |uid: &str| graph.dependents(uid).map(|(uid, _)| uid.clone()).collect::<Vec<Str>>();
    assert!(many("u").all(|uid| names(&uid).is_empty()));
    assert!(many("v").all(|uid| names(&uid) == ["d"]));
}

#[test]
fn a_graph_that_is_being_listed_again_does_not_release_a_foreground_deletion() {
    let owner = deleting(map("a"), &["foregroundDeletion"]);
    let cluster = Cluster::of(&[owner.clone(), owned_by("b", &[("a", true)])]);
    let view = Counted { restart: Some(owner), ..Counted::new(&cluster) };
    assert_eq!(cluster.decide_with(&view, "a").0, GarbageDecision::Nothing);
}
