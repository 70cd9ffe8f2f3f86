//! Runs every page `spec/plugin_*.md` as a test of built-in plugins. The code blocks of a page are:
//!
//! - `yaml cluster`: objects to store; an object with the name of an earlier one replaces it.
//! - `yaml soon`: objects that exist only for a plugin that waits for them.
//! - `yaml create PLUGIN`, `yaml update PLUGIN` (old object, then new), `yaml delete PLUGIN`: a request, optionally followed by
//!   `user=NAME`, `groups=A,B`, `subresource=NAME` and `features=all`, which turns on the features that are off by default.
//! - `text`: the result of that request: `admitted` or the error, warnings, audit annotations, and changes of the object.

#![expect(clippy::unwrap_used, clippy::panic, reason = "this is a test")]

mod cluster;

use std::fmt::Write as _;

use admission::plugins::{PluginSettings, resource_quota};
use admission::{
    AdmissionAttributes, AdmissionNotes, AdmissionSnapshot, ChainConfig, ClusterView, Operation, PluginChain,
    VersionedObject,
};
use api::features::Features;
use api::{GroupResource, Status, meta};
use authn::User;
use pages::{Page, pages};
use value::{Value, yaml};

use cluster::{FakeCluster, wait};

pages!(
    check, "plugin_":
    plugin_certificates,
    plugin_defaults,
    plugin_limit_ranger,
    plugin_nodes,
    plugin_off_by_default,
    plugin_pod_groups,
    plugin_pod_security,
    plugin_priority,
    plugin_resource_quota,
    plugin_runtime_class,
    plugin_service_account,
    plugin_volume_claims,
);

/// The user `admin` may do everything; any other user only the `VERB NAME` that is its name.
fn may(user: &User, context: &authz::AuthorizationAttributes) -> bool {
    user.name == "admin" || user.name == format!("{} {}", context.verb, context.name)
}

fn resource(object: &Value) -> GroupResource {
    let kind = meta::gvk(object);
    let lower = kind.kind.to_lowercase();
    let plural = if lower.ends_with('s') { format!("{lower}es") } else { format!("{lower}s") };
    GroupResource::new(kind.group, plural)
}

/// The stored objects of a page.
struct World {
    cluster: FakeCluster,
}

impl World {
    /// Runs a request through a chain of one plugin and formats the result.
    fn ask(&self, words: &[&str], mut objects: Vec<Value>) -> String {
        let operation = match words.first() {
            Some(&"create") => Operation::Create,
            Some(&"update") => Operation::Update,
            Some(&"delete") => Operation::Delete,
            other => panic!("not an operation: {other:?}"),
        };
        let word = |name: &str| words.iter().find_map(|word| word.strip_prefix(name)).unwrap_or_default();
        let plugin = words.get(1).copied().unwrap_or_default();
        let new = if operation == Operation::Delete { None } else { objects.pop() };
        let old = objects.pop();
        let any = new.as_ref().or(old.as_ref()).unwrap();
        let groups = word("groups=").split(',').filter(|group| !group.is_empty());
        let name = if word("user=").is_empty() { "admin" } else { word("user=") };
        let user = User::named(name.replace('_', " ")).in_groups(groups);
        let (kind, options) = (meta::gvk(any), Value::Null);
        let attributes = AdmissionAttributes {
            user: &user,
            operation,
            stored_kind: kind.clone(),
            version: kind.version.clone(),
            kind,
            resource: resource(any),
            subresource: word("subresource=").into(),
            namespace: meta::namespace(any).into(),
            name: meta::name(any).into(),
            old_object: VersionedObject::new(old.as_ref()),
            options: &options,
            dry_run: false,
            now: 1_700_000_000,
            deadline: None,
            budget: value::Budget::UNLIMITED,
            snapshot: AdmissionSnapshot::default(),
        };
        let mut report = String::new();
        if plugin == "ResourceQuota" {
            return self.charge(&attributes, new.as_ref());
        }
        let features = if word("features=") == "all" { Features::ALL } else { Features::default() };
        let chain = only(plugin, features);
        let mut notes = AdmissionNotes::default();
        let mut object = new.clone();
        let outcome = wait(async {
            chain.mutate(&attributes, object.as_mut(), &self.cluster, &mut notes).await?;
            chain.validate(&attributes, object.as_ref(), &self.cluster, &mut notes).await
        });
        report.push_str(&verdict(outcome));
        for warning in &notes.warnings {
            let _ = writeln!(report, "warning: {warning}");
        }
        for annotation in &notes.annotations {
            let _ = writeln!(report, "annotation: {} = {}", annotation.key, annotation.value);
        }
        changes("", new.as_ref(), object.as_ref(), &mut report);
        report
    }

    fn charge(&self, attributes: &AdmissionAttributes<'_>, object: Option<&Value>) -> String {
        if !resource_quota::affects_quota(attributes, object) {
            return "admitted\nnot charged\n".to_owned();
        }
        let quotas = self.cluster.list("", "resourcequotas", &attributes.namespace);
        match resource_quota::check(attributes, object.unwrap(), &quotas, &[], &self.cluster) {
            Err(status) => verdict(Err(status)),
            Ok(charges) => {
                let mut report = verdict(Ok(()));
                for charge in charges {
                    let before = charge.quota.at(&["status", "used"]);
                    changes(
                        &format!(".{}", meta::name(&charge.quota)),
                        before,
                        Some(&charge.used),
                        &mut report,
                    );
                }
                report
            }
        }
    }
}

fn verdict(outcome: Result<(), Status>) -> String {
    match outcome {
        Ok(()) => "admitted\n".to_owned(),
        Err(status) => {
            let mut report = format!("{} {}: {}\n", status.code(), status.reason(), status.message());
            for cause in status.details().iter().flat_map(|details| &details.causes) {
                let _ = writeln!(report, "cause: {} {}", cause.reason, cause.field);
            }
            report
        }
    }
}

/// A chain of only this plugin.
fn only(plugin: &str, features: Features) -> PluginChain {
    let settings = PluginSettings { features, ..PluginSettings::default() };
    let config = ChainConfig { settings, ..ChainConfig::default() };
    let others: Vec<String> = PluginChain::new(&[], &[], &config)
        .unwrap()
        .plugins()
        .filter(|name| *name != plugin)
        .map(str::to_owned)
        .collect();
    PluginChain::new(&[plugin.to_owned()], &others, &config).unwrap()
}

/// Writes the differences from `old` to `new`, one line per value.
fn changes(path: &str, old: Option<&Value>, new: Option<&Value>, out: &mut String) {
    match (old, new) {
        (old, new) if old == new => {}
        (Some(_), None) => {
            let _ = writeln!(out, "removed {path}");
        }
        (old, Some(Value::Map(map))) => {
            let before = old.and_then(Value::as_map);
            for (key, value) in map.iter() {
                let key_path =
                    if key.contains(['.', '/']) { format!("{path}[{key}]") } else { format!("{path}.{key}") };
                changes(&key_path, before.and_then(|before| before.get(key)), Some(value), out);
            }
            for key in before.into_iter().flat_map(value::Map::keys).filter(|key| !map.contains_key(key)) {
                let _ = writeln!(out, "removed {path}.{key}");
            }
        }
        (old, Some(Value::List(list))) => {
            let before = old.and_then(Value::as_list).unwrap_or_default();
            for (i, value) in list.iter().enumerate() {
                changes(&format!("{path}[{i}]"), before.get(i), Some(value), out);
            }
            for i in list.len()..before.len() {
                let _ = writeln!(out, "removed {path}[{i}]");
            }
        }
        (_, Some(new)) => {
            let _ = writeln!(out, "{path} = {}", value::write::to_string(new));
        }
        (None, None) => {}
    }
}

fn check(page: &Page) {
    let mut world = World { cluster: FakeCluster { may, ..FakeCluster::default() } };
    let mut report: Option<String> = None;
    page.check(|info, body| {
        match info.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["text"] => {
                return Some(report.take().unwrap_or_else(|| panic!("nothing was asked before:\n{body}")));
            }
            ["yaml", rest @ ..] => {
                let documents = yaml::documents(body.as_bytes()).unwrap_or_else(|e| panic!("{e}\n{body}"));
                let objects: Vec<Value> = documents.into_iter().map(|document| document.value).collect();
                if rest == ["cluster"] {
                    world.cluster.extend(objects);
                } else if rest == ["soon"] {
                    world.cluster.soon = Some(Box::new(objects.into_iter().collect()));
                } else {
                    assert!(report.is_none(), "a question without an answer before\n{body}");
                    report = Some(world.ask(rest, objects));
                }
            }
            other => panic!("a block of {other:?}"),
        }
        None
    });
    assert!(report.is_none(), "the last question has no answer");
}
