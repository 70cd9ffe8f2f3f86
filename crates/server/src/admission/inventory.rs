//! The page `/debug/admission`: all admission policies, bindings and webhooks, in the order of evaluation.
//!
//! The API does not show objects of manifest files, so this page shows the objects of both sources to users who may read the path:
//! where each comes from, what it matches, and its counters. Match conditions appear as they were written; other expressions, the
//! messages of policies and credentials do not appear.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ::admission::inventory::{EstimateRange, InventoryCounters, InventoryEntry};
use ::admission::manifests::ManifestProblem;
use ::admission::policy::ValidationAction;
use ::admission::webhook::{Webhook, WebhookEndpoint};
use api::Status;
use api::field::quote;
use api::time::Timestamp;
use requests::negotiate;
use runtime::url_credentials::without_user_info;
use value::{Str, Value, json, write};

use crate::admission::informers::{ListedBinding, ListedPolicy, PolicyOrigin};
use crate::admission::registered_webhooks::ListedWebhook;
use crate::body::Body;
use crate::call::{Call, HandlerResponse};
use crate::manifests::DirectoryStatus;
use crate::state::State;

/// The page shows at most this many policies or webhooks of a plugin and counts the rest.
const MAX_SHOWN: usize = 10_000;

/// The plugins on the page, in the order in which they run.
const PLUGINS: [&str; 4] = [
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
];

/// Renders the page as text or JSON, by the header `Accept`. `?plugin=NAME` shows one plugin alone.
pub(crate) async fn page(state: &Arc<State>, call: &Call) -> Result<HandlerResponse, Status> {
    let wanted = call.query.get("plugin").map(str::to_owned);
    if let Some(wanted) = &wanted
        && !PLUGINS.contains(&wanted.as_str())
    {
        let known = PLUGINS.join(", ");
        return Err(Status::bad_request(format!(
            "plugin {} is unknown or has no policies; use one of {known}",
            quote(wanted)
        )));
    }
    let forms = [("text", "plain"), ("application", "json")];
    let form = negotiate::clauses(&call.headers)
        .iter()
        .find_map(|clause| forms.iter().find(|(kind, subtype)| clause.covers(kind, subtype)))
        .ok_or_else(|| Status::no_representation(&["text/plain", "application/json"]))?;
    let as_json = form.1 == "json";
    let state = Arc::clone(state);
    let render = move || {
        let plugins = PLUGINS
            .iter()
            .filter(|plugin| wanted.as_ref().is_none_or(|wanted| wanted == *plugin))
            .map(|plugin| PluginInventory::of(&state, plugin))
            .collect::<Vec<_>>();
        if as_json {
            let plugins = Value::List(plugins.iter().map(PluginInventory::json).collect());
            let mut text = write::to_vec(&Value::map([("plugins", plugins)]));
            text.push(b'\n');
            text
        } else {
            let mut text = String::new();
            for plugin in &plugins {
                plugin.text(&mut text);
            }
            text.into_bytes()
        }
    };
    // Rendering thousands of entries takes long enough to hold up other requests on this thread.
    let body = tokio::task::spawn_blocking(render)
        .await
        .map_err(|_| Status::internal("rendering the list of admission policies failed"))?;
    let content_type = if as_json { "application/json" } else { "text/plain; charset=utf-8" };
    Ok(HandlerResponse::Raw(200, content_type, Body::from(body)))
}

/// One plugin as the page shows it.
struct PluginInventory {
    name: &'static str,
    enabled: bool,
    directory: Option<DirectoryStatus>,
    entries: Vec<InventoryRow>,
    omitted: usize,
}

/// One policy or webhook as the page shows it.
struct InventoryRow {
    name: Str,
    /// Name of the webhook configuration; `None` for a policy.
    configuration: Option<Str>,
    /// URL or service of a webhook; `None` for a policy.
    target: Option<String>,
    origin: Origin,
    fails_closed: bool,
    in_force: bool,
    inventory: InventoryDetails,
    compiled_in: Option<Duration>,
    bindings: Vec<Bound>,
}

struct Bound {
    name: Str,
    origin: Origin,
    actions: Vec<ValidationAction>,
    inventory: InventoryDetails,
}

enum Origin {
    File(Str, usize),
    Object(Str),
}

/// The content of an [`InventoryEntry`], with wall-clock times.
struct InventoryDetails {
    hash: String,
    rules: Vec<u8>,
    estimate: EstimateRange,
    counters: InventoryCounters,
    /// Time of the last error.
    failed: Option<String>,
}

impl PluginInventory {
    fn of(state: &State, name: &'static str) -> Self {
        let clock = ClockPair::now(state);
        let mut entries: Vec<InventoryRow> = match name {
            "MutatingAdmissionPolicy" => policies(state.admission.policies.list_mutating(), &clock),
            "ValidatingAdmissionPolicy" => policies(state.admission.policies.list_validating(), &clock),
            "MutatingAdmissionWebhook" => webhooks(&state.admission.webhooks.list_mutating(), &clock),
            _ => webhooks(&state.admission.webhooks.list_validating(), &clock),
        };
        let omitted = entries.len().saturating_sub(MAX_SHOWN);
        entries.truncate(MAX_SHOWN);
        PluginInventory {
            name,
            enabled: state.admission.chain.plugins().any(|plugin| plugin == name),
            directory: state.admission.manifests.of_plugin(name),
            entries,
            omitted,
        }
    }
}

fn policies(listed: Vec<ListedPolicy>, clock: &ClockPair) -> Vec<InventoryRow> {
    let bound = |ListedBinding { from, binding }: &ListedBinding| Bound {
        name: binding.name.clone(),
        origin: origin(from, &binding.inventory),
        actions: binding.actions.clone(),
        inventory: InventoryDetails::of(&binding.inventory, clock),
    };
    // Policies past `MAX_SHOWN` are only counted, so their bindings are not read.
    let entry = |(position, policy): (usize, ListedPolicy)| {
        let bindings: Vec<Bound> =
            if position < MAX_SHOWN { policy.bindings.iter().map(bound).collect() } else { Vec::new() };
        InventoryRow {
            configuration: None,
            target: None,
            origin: origin(&policy.from, &policy.inventory),
            fails_closed: policy.fails_closed,
            in_force: !policy.bindings.is_empty(),
            inventory: InventoryDetails::of(&policy.inventory, clock),
            compiled_in: Some(policy.from.compiled_in),
            bindings,
            name: policy.name,
        }
    };
    listed.into_iter().enumerate().map(entry).collect()
}

fn webhooks(listed: &[ListedWebhook], clock: &ClockPair) -> Vec<InventoryRow> {
    let entry = |ListedWebhook { hook, source }: &ListedWebhook| InventoryRow {
        name: hook.name.clone(),
        configuration: Some(hook.configuration.clone()),
        target: Some(target(hook)),
        origin: match source {
            Some((file, line)) => Origin::File(file.clone(), *line),
            None => Origin::Object(hook.inventory.uid.clone()),
        },
        fails_closed: !hook.ignores_failures,
        in_force: true,
        inventory: InventoryDetails::of(&hook.inventory, clock),
        compiled_in: None,
        bindings: Vec::new(),
    };
    listed.iter().map(entry).collect()
}

fn origin(from: &PolicyOrigin, inventory: &InventoryEntry) -> Origin {
    match &from.manifest_position {
        Some((file, line)) => Origin::File(file.clone(), *line),
        None => Origin::Object(inventory.uid.clone()),
    }
}

/// URL or service of a webhook. Validation rejects credentials in a URL; if there are some nevertheless, they are removed.
fn target(hook: &Webhook) -> String {
    match &hook.target.endpoint {
        WebhookEndpoint::Url(url) => without_user_info(url),
        WebhookEndpoint::Service { namespace, name, port, path } => {
            format!("service {namespace}/{name}:{port}/{}", path.trim_start_matches('/'))
        }
        WebhookEndpoint::Unset => "nowhere".to_owned(),
    }
}

/// One moment on the clock of the admission metrics and on the wall clock: converts times of the metrics to wall clock times.
struct ClockPair {
    own: Duration,
    wall: SystemTime,
}

impl ClockPair {
    fn now(state: &State) -> Self {
        ClockPair { own: state.admission.meter.now(), wall: SystemTime::now() }
    }

    fn at(&self, own: Duration) -> String {
        shown_time(self.wall.checked_sub(self.own.saturating_sub(own)).unwrap_or(UNIX_EPOCH))
    }
}

fn shown_time(at: SystemTime) -> String {
    let micros = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    Timestamp::from_micros(i64::try_from(micros).unwrap_or(i64::MAX)).micro_time()
}

impl InventoryDetails {
    fn of(inventory: &InventoryEntry, clock: &ClockPair) -> Self {
        let counters = inventory.counters();
        InventoryDetails {
            hash: inventory.hash(),
            rules: inventory.rules().to_vec(),
            estimate: inventory.estimate,
            failed: counters.last_error.as_ref().map(|error| clock.at(error.at)),
            counters,
        }
    }

    fn rules(&self) -> Value {
        json::parse(&self.rules).unwrap_or(Value::Null)
    }
}

fn number(count: impl TryInto<i64>) -> Value {
    Value::from(count.try_into().unwrap_or(i64::MAX))
}

impl Origin {
    fn describe(&self, into: &mut Value) {
        match self {
            Origin::File(file, line) => {
                into.set_at(&["source"], "manifest");
                into.set_at(&["file"], file.clone());
                into.set_at(&["line"], number(*line));
            }
            Origin::Object(uid) => {
                into.set_at(&["source"], "api");
                into.set_at(&["uid"], uid.clone());
            }
        }
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::File(file, line) => write!(f, "{file}:{line}"),
            Origin::Object(uid) => write!(f, "api uid {uid}"),
        }
    }
}

impl PluginInventory {
    fn json(&self) -> Value {
        let mut plugin = Value::map([("name", self.name)]);
        plugin.set_at(&["enabled"], self.enabled);
        if let Some(directory) = &self.directory {
            plugin.set_at(&["manifests"], reloads(directory));
        }
        let entries = self.entries.iter().enumerate().map(|(position, entry)| entry.json(position + 1));
        plugin.set_at(&["entries"], Value::List(entries.collect()));
        if self.omitted > 0 {
            plugin.set_at(&["omitted"], number(self.omitted));
        }
        plugin
    }

    fn text(&self, out: &mut String) {
        let _ = writeln!(out, "{}: {}", self.name, if self.enabled { "on" } else { "off" });
        if let Some(directory) = &self.directory {
            let _ = write!(out, "  manifests in {}", quote(&directory.directory));
            if let Some(good) = &directory.in_force {
                let hash = if good.hash.is_empty() { "no content" } else { &good.hash };
                let _ = write!(out, ": {} objects, {hash}, loaded {}", good.objects, shown_time(good.since));
            }
            if !directory.followed {
                let _ = write!(out, "; NO LONGER FOLLOWED");
            }
            let _ = writeln!(out);
            for warning in directory.in_force.iter().flat_map(|good| &good.warnings) {
                let _ = writeln!(out, "  warning: {}", quote(&warning.one_line()));
            }
            if let Some((at, why)) = &directory.failure {
                let _ = writeln!(out, "  last failure {}: {}", shown_time(*at), quote(why));
            }
        }
        for (position, entry) in self.entries.iter().enumerate() {
            entry.text(position + 1, out);
        }
        if self.omitted > 0 {
            let _ = writeln!(out, "  and {} more", self.omitted);
        }
        let _ = writeln!(out);
    }
}

/// The state of a directory: the manifests in force with their warnings, and the last reload with its error, if it failed.
fn reloads(directory: &DirectoryStatus) -> Value {
    let mut value = Value::map([("folder", directory.directory.as_str())]);
    value.set_at(&["followed"], directory.followed);
    let mut last = None;
    if let Some(good) = &directory.in_force {
        value.set_at(&["hash"], good.hash.as_str());
        value.set_at(&["objects"], number(good.objects));
        value.set_at(&["lastSuccess"], shown_time(good.since));
        if !good.warnings.is_empty() {
            value.set_at(&["warnings"], Value::List(good.warnings.iter().map(warning).collect()));
        }
        last = Some((good.since, "success"));
    }
    if let Some((at, why)) = &directory.failure {
        value.set_at(&["lastFailure", "time"], shown_time(*at));
        value.set_at(&["lastFailure", "error"], why.as_str());
        last = last.filter(|(since, _)| since >= at).or(Some((*at, "failure")));
    }
    if let Some((at, status)) = last {
        value.set_at(&["lastReload", "time"], shown_time(at));
        value.set_at(&["lastReload", "status"], status);
    }
    value
}

/// A warning about a manifest, as `/debug/admission` shows it.
fn warning(problem: &ManifestProblem) -> Value {
    let mut value = Value::map([("file", problem.file.as_str()), ("message", problem.message.as_str())]);
    if let Some(position) = problem.position {
        value.set_at(&["line"], number(position.line));
    }
    if !problem.field.is_empty() {
        value.set_at(&["field"], problem.field.as_str());
    }
    value
}

impl InventoryRow {
    fn json(&self, position: usize) -> Value {
        let mut entry = Value::map([("name", self.name.as_str())]);
        entry.set_at(&["position"], number(position));
        self.origin.describe(&mut entry);
        if let Some(configuration) = &self.configuration {
            entry.set_at(&["configuration"], configuration.as_str());
        }
        if let Some(target) = &self.target {
            entry.set_at(&["target"], target.as_str());
        }
        entry.set_at(&["hash"], self.inventory.hash.as_str());
        entry.set_at(&["failurePolicy"], if self.fails_closed { "Fail" } else { "Ignore" });
        entry.set_at(&["match"], self.inventory.rules());
        let estimate = self.inventory.estimate;
        entry.set_at(&["compile", "estimatedCost", "min"], number(estimate.min));
        if estimate.max != u64::MAX {
            entry.set_at(&["compile", "estimatedCost", "max"], number(estimate.max));
        }
        if let Some(took) = self.compiled_in {
            entry.set_at(&["inForce"], self.in_force);
            entry.set_at(&["compile", "microseconds"], number(took.as_micros()));
            entry.set_at(&["bindings"], Value::List(self.bindings.iter().map(Bound::json).collect()));
        }
        let InventoryCounters { calls, denials, last_error } = &self.inventory.counters;
        entry.set_at(&["calls"], number(*calls));
        entry.set_at(&["denials"], number(*denials));
        if let (Some(error), Some(at)) = (last_error, &self.inventory.failed) {
            entry.set_at(&["lastError", "time"], at.as_str());
            entry.set_at(&["lastError", "message"], error.message.as_str());
        }
        entry
    }

    fn text(&self, position: usize, out: &mut String) {
        let InventoryRow { name, origin, inventory, .. } = self;
        let of = self.configuration.as_ref().map(|name| format!(" of {name}")).unwrap_or_default();
        let fails = if self.fails_closed { "fails closed" } else { "fails open" };
        let idle = if self.in_force { "" } else { ", bound by nothing" };
        let _ = writeln!(out, "  {position}. {name}{of} ({origin}), {fails}{idle}");
        if let Some(target) = &self.target {
            let _ = writeln!(out, "     asks {target}");
        }
        let most = match inventory.estimate.max {
            u64::MAX => "no bound".to_owned(),
            most => most.to_string(),
        };
        let took = self.compiled_in.map(|took| format!(", compiled in {took:?}")).unwrap_or_default();
        let _ = writeln!(out, "     {}{took}, cost {} to {most}", inventory.hash, inventory.estimate.min);
        let _ = writeln!(out, "     match {}", String::from_utf8_lossy(&inventory.rules));
        for bound in &self.bindings {
            let actions: Vec<&str> = bound.actions.iter().map(|action| action.as_str()).collect();
            let rules = String::from_utf8_lossy(&bound.inventory.rules);
            let _ = writeln!(
                out,
                "     bound by {} ({}) {} match {rules}",
                bound.name,
                bound.origin,
                actions.join(",")
            );
        }
        let InventoryCounters { calls, denials, last_error } = &inventory.counters;
        let _ = write!(out, "     calls {calls}, denials {denials}");
        if let (Some(error), Some(at)) = (last_error, &inventory.failed) {
            let _ = write!(out, ", last error {at}: {}", quote(&error.message));
        }
        let _ = writeln!(out);
    }
}

impl Bound {
    fn json(&self) -> Value {
        let mut bound = Value::map([("name", self.name.as_str())]);
        self.origin.describe(&mut bound);
        bound.set_at(&["hash"], self.inventory.hash.as_str());
        bound.set_at(&["match"], self.inventory.rules());
        if !self.actions.is_empty() {
            let actions = self.actions.iter().map(|action| action.as_str());
            bound.set_at(&["validationActions"], Value::list(actions));
        }
        bound
    }
}
