//! Runs every page `spec/policy_*.md` as a test. The code blocks of a page are:
//!
//! - `yaml`: objects to store. Policies and bindings are validated as by the API and take effect; an object with the kind and name
//!   of an earlier one replaces it.
//! - `remove`: objects to delete, one `KIND NAME` per line.
//! - `refused`: an object that the API rejects, and after `->` the errors, one per line.
//! - `ask`: requests and their results:
//!
//! ```text
//! alice CREATE v1/pods team/web {metadata: {labels: {app: web}}} -> allowed
//! alice UPDATE v1/configmaps team/c {data: {k: new}} was {data: {k: old}} -> 422 Invalid: configmaps "c" is forbidden: …
//! ```
//!
//! Further results follow on indented lines: `warning: …`, `annotation KEY: …`, and `object: …` if mutating policies changed it.

#![expect(clippy::unwrap_used, clippy::panic, reason = "this is a test")]

mod cluster;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use admission::policy::{
    MutatingPolicies, MutatingPolicy, PolicyBinding, PolicySnapshot, PolicySource, ValidatingPolicies,
    ValidatingPolicy,
};
use admission::{
    AdmissionAttributes, AdmissionNotes, AdmissionSnapshot, ChainConfig, NoMetrics, Operation, PluginChain,
    VersionedObject,
};
use api::{GroupResource, GroupVersionKind, meta};
use authn::User;
use pages::{Page, pages};
use value::{Str, Value};

use cluster::{FakeCluster, wait};

pages!(
    check, "policy_":
    policy_actions,
    policy_api,
    policy_authorizer,
    policy_budgets,
    policy_conditions,
    policy_exempt,
    policy_failures,
    policy_matching,
    policy_messages,
    policy_mutation,
    policy_params,
    policy_reinvocation,
    policy_variables,
);

/// The objects and policies that a page has stored so far.
#[derive(Default)]
struct World {
    cluster: FakeCluster,
    validating: BTreeMap<Str, Arc<ValidatingPolicy>>,
    validating_bindings: BTreeMap<Str, Arc<PolicyBinding>>,
    mutating: BTreeMap<Str, Arc<MutatingPolicy>>,
    mutating_bindings: BTreeMap<Str, Arc<PolicyBinding>>,
}

/// The user `admin` may do everything, every user may `get`, and the service account `robot` may `deploy`.
fn may(user: &User, attributes: &authz::AuthorizationAttributes) -> bool {
    let robot = user.name == "system:serviceaccount:team:robot" && attributes.verb == "deploy";
    user.name == "admin" || attributes.verb == "get" || robot
}

impl World {
    fn store(&mut self, object: Value) {
        let kind = meta::gvk(&object);
        let name = Str::from(meta::name(&object));
        let wrong = refusals(&object);
        assert!(wrong.is_empty(), "{} {name}: {wrong:?}", kind.kind);
        let object = defaulted(object);
        match kind.kind.as_str() {
            "ValidatingAdmissionPolicy" => {
                self.validating.insert(name, Arc::new(ValidatingPolicy::compile(&object)));
            }
            "ValidatingAdmissionPolicyBinding" => {
                self.validating_bindings.insert(name, Arc::new(PolicyBinding::read(&object)));
            }
            "MutatingAdmissionPolicy" => {
                self.mutating.insert(name, Arc::new(MutatingPolicy::compile(&object)));
            }
            "MutatingAdmissionPolicyBinding" => {
                self.mutating_bindings.insert(name, Arc::new(PolicyBinding::read(&object)));
            }
            _ => self.cluster.extend([object]),
        }
    }

    fn remove(&mut self, kind: &str, name: &str) {
        let gone = match kind {
            "ValidatingAdmissionPolicy" => self.validating.remove(name).is_some(),
            "ValidatingAdmissionPolicyBinding" => self.validating_bindings.remove(name).is_some(),
            "MutatingAdmissionPolicy" => self.mutating.remove(name).is_some(),
            "MutatingAdmissionPolicyBinding" => self.mutating_bindings.remove(name).is_some(),
            _ => {
                let before = self.cluster.objects.len();
                self.cluster.objects.retain(|key, _| key.3 != name);
                self.cluster.objects.len() < before
            }
        };
        assert!(gone, "there is no {kind} {name}");
    }

    fn chain(&self) -> PluginChain {
        let (validating, mutating) =
            (ValidatingPolicies::new(Arc::new(NoMetrics)), MutatingPolicies::new(Arc::new(NoMetrics)));
        validating.replace(PolicySnapshot::new([(
            PolicySource::Api,
            &self.validating,
            &self.validating_bindings,
        )]));
        mutating.replace(PolicySnapshot::new([(PolicySource::Api, &self.mutating, &self.mutating_bindings)]));
        let stages = ChainConfig {
            validating_policies: Some(Arc::new(validating)),
            mutating_policies: Some(Arc::new(mutating)),
            ..ChainConfig::default()
        };
        // Other pages test the other built-in plugins.
        let off: Vec<String> = PluginChain::new(&[], &[], &stages)
            .unwrap()
            .plugins()
            .filter(|name| *name != "NamespaceLifecycle" && !name.ends_with("AdmissionPolicy"))
            .map(str::to_owned)
            .collect();
        PluginChain::new(&[], &off, &stages).unwrap()
    }

    /// Runs a request through the chain and formats the result.
    fn ask(&self, request: &str) -> String {
        let mut words = request.splitn(5, ' ');
        let mut word = || words.next().unwrap_or_else(|| panic!("{request}"));
        let (user, operation, path, object_name, rest) = (word(), word(), word(), word(), word());
        let (object, old) = match rest.split_once(" was ") {
            Some((object, old)) => (object, Some(read(old))),
            None => (rest, None),
        };
        let mut parts: Vec<&str> = path.split('/').collect();
        if parts.first() == Some(&"v1") {
            parts.insert(0, "");
        }
        let [group, version, resource, below @ ..] = parts.as_slice() else { panic!("{request}") };
        let (group, version, resource) = (*group, *version, *resource);
        let row = kinds::table::all().find(|row| row.group == group && row.plural == resource).unwrap();
        let kind = GroupVersionKind::new(group, version, row.kind);
        let (namespace, name) = object_name.split_once('/').unwrap();
        let namespace = namespace.trim_matches('-');
        let complete = |mut object: Value| {
            object.set_at(&["apiVersion"], kind.api_version());
            object.set_at(&["kind"], row.kind);
            if !namespace.is_empty() {
                meta::set(&mut object, "namespace", namespace);
            }
            if !name.is_empty() {
                meta::set(&mut object, "name", name);
            }
            object
        };
        let mut new = (object != "-").then(|| complete(read(object)));
        let sent = new.clone();
        let old = old.map(complete);
        let user = User::named(user);
        let options = Value::map([("kind", "CreateOptions"), ("apiVersion", "meta.k8s.io/v1")]);
        let attributes = AdmissionAttributes {
            user: &user,
            operation: match operation {
                "CREATE" => Operation::Create,
                "UPDATE" => Operation::Update,
                "DELETE" => Operation::Delete,
                "CONNECT" => Operation::Connect,
                other => panic!("{other}"),
            },
            kind: kind.clone(),
            stored_kind: kind.clone(),
            resource: GroupResource::new(group, resource),
            version: version.into(),
            subresource: below.first().copied().unwrap_or_default().into(),
            namespace: namespace.into(),
            name: name.into(),
            old_object: VersionedObject::new(old.as_ref()),
            options: &options,
            dry_run: false,
            now: 0,
            deadline: None,
            budget: value::Budget::UNLIMITED,
            snapshot: AdmissionSnapshot::default(),
        };
        let chain = self.chain();
        let mut notes = AdmissionNotes::default();
        let outcome = wait(async {
            chain.mutate(&attributes, new.as_mut(), &self.cluster, &mut notes).await?;
            chain.validate(&attributes, new.as_ref(), &self.cluster, &mut notes).await
        });
        let mut report = match outcome {
            Ok(()) => "allowed".to_owned(),
            Err(status) => format!("{} {}: {}", status.code(), status.reason(), status.message()),
        };
        for warning in notes.warnings {
            write!(report, "\n  warning: {warning}").unwrap();
        }
        for annotation in notes.annotations {
            write!(report, "\n  annotation {}: {}", annotation.key, annotation.value).unwrap();
        }
        if report.starts_with("allowed")
            && let (Some(sent), Some(new)) = (sent, new)
            && sent != new
        {
            let mut new = new;
            for field in ["apiVersion", "kind"] {
                new.make_map().remove(field);
            }
            write!(report, "\n  object: {}", value::write::to_string(&new)).unwrap();
        }
        report
    }
}

fn read(text: &str) -> Value {
    value::yaml::read(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error:?}")).value
}

/// The API's validation errors for the creation of an object.
fn refusals(object: &Value) -> Vec<String> {
    let kind = meta::gvk(object).group_kind();
    let object = defaulted(object.clone());
    let Some(rules) = kinds::table::behavior(&kind).rules.as_ref() else { return Vec::new() };
    if kind.group != "admissionregistration.k8s.io" {
        return Vec::new();
    }
    (rules.create)(&object, &kinds::validation::ValidationContext::default())
        .iter()
        .map(|error| format!("{}: {}", error.field, error.body()))
        .collect()
}

fn defaulted(mut object: Value) -> Value {
    let kind = meta::gvk(&object);
    kinds::table::behavior(&kind.group_kind()).apply_defaults(&mut object);
    object
}

fn check(page: &Page) {
    let cluster = FakeCluster { may, ..FakeCluster::default() };
    let mut world = World { cluster, ..World::default() };
    page.check(|info, body| run(&mut world, info, body));
}

/// Runs a block. Returns its expected content if the block contains results.
fn run(world: &mut World, kind: &str, body: &str) -> Option<String> {
    match kind {
        "yaml" => {
            for document in body.split("---\n").filter(|document| !document.trim().is_empty()) {
                world.store(read(document));
            }
            None
        }
        "remove" => {
            for line in body.lines() {
                let (kind, name) = line.split_once(' ').unwrap();
                world.remove(kind, name);
            }
            None
        }
        "refused" => {
            let (object, _) = body.split_once("->\n").unwrap();
            let refusals = refusals(&read(object));
            assert!(!refusals.is_empty(), "nothing is wrong with {object}");
            Some(format!("{object}->\n{}\n", refusals.join("\n")))
        }
        "ask" => {
            let mut shown = String::new();
            for line in body.lines().filter(|line| !line.starts_with(' ')) {
                let (request, _) = line.split_once(" ->").unwrap_or_else(|| panic!("{line}"));
                writeln!(shown, "{request} -> {}", world.ask(request)).unwrap();
            }
            Some(shown)
        }
        other => panic!("a page has no block called {other:?}"),
    }
}
