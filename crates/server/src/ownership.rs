//! Field ownership (`metadata.managedFields`) of written objects: the server's side of [`schema::apply`].
//!
//! Every write passes through this file before admission: updates are tracked, applied configurations are merged. Objects are compared in
//! the version of the request, with all the fields that this version writes even when they are empty.

use std::cell::RefCell;
use std::sync::LazyLock;

use api::{GroupVersion, GroupVersionKind, Status, meta};
use catalog::{Sent, ServedResource, Subresource, Working};
use crd::CrdConversion;
use heavy_lane::Effort;
use kinds::strategy;
use schema::Schema;
use schema::apply::{self, ApplyError, FieldManagement, Managers, Reset, ServedVersions, Unconverted};
use value::{Str, Value};

use crate::call::Call;
use crate::state::State;

/// How a write changes field ownership.
#[derive(Clone, Copy, Debug)]
pub enum FieldTracking<'a> {
    /// An update by this field manager, to be tracked.
    Updates(&'a str),
    /// The managed fields are final already: a configuration was applied, or the server only sets fields of its own.
    Settled,
}

const MANAGED_FIELDS: &[&str] = &["metadata", "managedFields"];

static NOTHING: Reset = Reset::Nothing;

/// The versions of a kind whose CRD may use a conversion webhook. The comparison of fields is synchronous and cannot call it, so a missing
/// conversion is recorded in `missing`, [`with_versions`] calls the webhook, and the comparison runs again.
struct RecordedConversions<'a> {
    kind: &'a ServedResource,
    /// Finished conversions: object, target version, result.
    results: Vec<(Value, String, Value)>,
    /// The first conversion that was missing in this run.
    missing: RefCell<Option<(Value, String)>>,
}

/// Upper limit of conversions for one write; more than the versions of any CRD need.
const MAX_CONVERSIONS: usize = 200;

impl ServedVersions for RecordedConversions<'_> {
    fn schema(&self, api_version: &str) -> Option<&Schema> {
        ServedVersions::schema(self.kind, api_version)
    }

    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, Unconverted> {
        let by_webhook = self
            .kind
            .as_custom()
            .is_some_and(|custom| matches!(custom.crd.conversion, CrdConversion::Webhook(_)));
        let is_there = object.str_at(&["apiVersion"]) == Some(api_version);
        if !by_webhook || is_there || self.schema(api_version).is_none() {
            return ServedVersions::convert(self.kind, object, api_version);
        }
        let is_result = |(of, version, _): &&(Value, String, Value)| version == api_version && of == object;
        if let Some((_, _, result)) = self.results.iter().find(is_result) {
            return Ok(result.clone());
        }
        self.missing.borrow_mut().get_or_insert_with(|| (object.clone(), api_version.to_owned()));
        Err(Unconverted::NoSuchVersion)
    }

    fn resets(&self, api_version: &str) -> bool {
        self.kind.resets(api_version)
    }
}

/// Runs `work` again until all the conversions that it needs are known. Fails if a conversion fails or after [`MAX_CONVERSIONS`] of them.
async fn with_versions<T>(
    state: &State,
    kind: &ServedResource,
    work: impl Fn(&dyn ServedVersions) -> T,
) -> Result<T, Status> {
    let mut conversions = RecordedConversions { kind, results: Vec::new(), missing: RefCell::default() };
    while conversions.results.len() < MAX_CONVERSIONS {
        let done = work(&conversions);
        let Some((object, api_version)) = conversions.missing.take() else { return Ok(done) };
        let version = GroupVersion::parse(&api_version).map_err(Status::internal)?;
        let mut sent = object.clone();
        remove_managed_fields(&mut sent);
        let sent = kind
            .shapes()
            .in_named_version(sent)
            .ok_or_else(|| Status::internal("a conversion webhook was requested for a built-in resource"))?;
        let converted = state.converter(kind).convert_to(sent, &version).await?;
        conversions.results.push((object, api_version, converted.into_value()));
    }
    Err(Status::internal("the managed fields of the object name too many versions"))
}

/// The versions of `Scale` and of objects posted to subresources, which have only the version of the request.
struct OnlyVersion;

impl ServedVersions for OnlyVersion {
    fn schema(&self, _: &str) -> Option<&Schema> {
        None
    }

    fn convert(&self, _: &Value, _: &str) -> Result<Value, Unconverted> {
        Err(Unconverted::NoSuchVersion)
    }
}

/// Arguments of [`track`] that concern the write and not its new object.
#[derive(Clone, Copy, Debug)]
pub struct TrackedUpdate<'a> {
    /// The stored object; `None` for a create.
    pub old: Option<&'a Working>,
    /// Fields that the client sent as empty lists. Decoding drops them from the object, but the client owns them.
    pub empty: &'a [Vec<Str>],
    pub manager: &'a str,
    pub effort: &'a Effort,
}

/// Records in the managed fields of `object` which fields `manager` changed compared with `old`. Fails only if the
/// budget of the request ends.
pub async fn track(
    state: &State,
    kind: &ServedResource,
    subresource: Subresource,
    TrackedUpdate { old, empty, manager, effort }: TrackedUpdate<'_>,
    object: &mut Working,
    now: i64,
) -> Result<(), Status> {
    let api_version = kind.gvk.api_version();
    let shapes = kind.shapes();
    let mut new = shapes.to_sent_unfilled(object.clone());
    strategy::show(kind.strategy(), &mut new);
    shapes.fill_sent(&mut new);
    for path in empty {
        let path: Vec<&str> = path.iter().map(Str::as_str).collect();
        let holder = path.split_last().and_then(|(_, holder)| new.at(holder));
        if holder.is_some() && new.at(&path).is_none_or(Value::is_null) {
            new.set_at(&path, Value::List(Vec::new()));
        }
    }
    let converted = match old {
        Some(_) if kind.is_stored_version() => None,
        Some(old) => Some(shapes.to_sent(old.clone())),
        None => Some(shapes.empty_sent()),
    };
    let live: &Value = match (&converted, old) {
        (Some(converted), _) => converted,
        (None, Some(old)) => old,
        (None, None) => &Value::Null,
    };
    // A status that will be dropped, or an object written in another version, may not match the schema. Then the managed fields of the old
    // object stay as they are.
    let fits = |object: &Value| apply::check(object, kind.schema(), true).is_ok();
    if kind.as_custom().is_some() && !(fits(&new) && old.is_none_or(|_| fits(live))) {
        set(object, live.at(MANAGED_FIELDS).cloned());
        return Ok(());
    }
    let tracked = with_versions(state, kind, |versions| {
        let field_management = field_management(kind, subresource, &api_version, versions, now);
        effort.run(|| field_management.track(live, &new, manager))
    });
    // If a conversion webhook fails, the managed fields of the old object stay as they are.
    let tracked = tracked.await.unwrap_or_else(|_| Ok(live.at(MANAGED_FIELDS).cloned()))?;
    set(object, tracked);
    Ok(())
}

fn field_management<'a>(
    kind: &'a ServedResource,
    subresource: Subresource,
    api_version: &'a str,
    versions: &'a dyn ServedVersions,
    now: i64,
) -> FieldManagement<'a> {
    FieldManagement {
        api_version,
        schema: kind.schema(),
        subresource: subresource.name(),
        reset: reset(kind, subresource),
        versions,
        now,
    }
}

/// The fields that a write through this subresource cannot set, so that its manager does not own them.
fn reset(kind: &ServedResource, subresource: Subresource) -> &'static Reset {
    static STATUS: LazyLock<Reset> = LazyLock::new(|| Reset::without(&["status"]));
    static ALL_BUT_STATUS: LazyLock<Reset> = LazyLock::new(|| Reset::without(&["metadata", "spec"]));
    match (kind.as_custom(), subresource) {
        (None, _) => strategy::reset_fields(kind.strategy(), subresource.name()),
        (Some(_), Subresource::Status) => &ALL_BUT_STATUS,
        (Some(custom), Subresource::None) if custom.version.status => &STATUS,
        (Some(_), _) => &NOTHING,
    }
}

/// Records that `manager` posted `object`, of a kind with a single version, to a subresource.
pub fn track_posted(kind: &GroupVersionKind, subresource: &str, object: &mut Value, manager: &str, now: i64) {
    let Some(schema) = schema::of(&kind.group, &kind.version, &kind.kind) else { return };
    let api_version = kind.api_version();
    let mut nothing = Value::map([("apiVersion", api_version.as_str()), ("kind", kind.kind.as_str())]);
    let mut new = object.clone();
    kinds::table::behavior(&kind.group_kind()).apply_defaults(&mut new);
    for object in [&mut nothing, &mut new] {
        schema::decode::fill(object, schema);
    }
    let field_management = FieldManagement {
        api_version: &api_version,
        schema,
        subresource,
        reset: &NOTHING,
        versions: &OnlyVersion,
        now,
    };
    set(object, field_management.track(&nothing, &new, manager));
}

fn scale_field_management(kind: &ServedResource, now: i64) -> FieldManagement<'_> {
    FieldManagement {
        api_version: apply::SCALE_VERSION,
        schema: kind.subresource_schema(Subresource::Scale),
        subresource: "scale",
        reset: &NOTHING,
        versions: &OnlyVersion,
        now,
    }
}

fn set(object: &mut Value, list: Option<Value>) {
    match list {
        Some(list) => object.set_at(MANAGED_FIELDS, list),
        None => drop(object.remove_at(MANAGED_FIELDS)),
    }
}

/// Records which fields of the scale `object` `manager` changed compared with `shown`, the result of [`scale_of`].
pub fn track_scale(kind: &ServedResource, shown: &Sent, object: &mut Sent, manager: &str, now: i64) {
    let schema = kind.subresource_schema(Subresource::Scale);
    let (mut live, mut new) = (shown.clone(), object.clone());
    for scale in [&mut live, &mut new] {
        schema::decode::fill(scale, schema);
    }
    set(object, scale_field_management(kind, now).track(&live, &new, manager));
}

/// The scale of a workload, with the managed fields that concern its replicas.
pub fn scale_of(kind: &ServedResource, old: &Working) -> Result<Sent, Status> {
    let mut scale = kind.shapes().patch_base(Subresource::Scale, old)?;
    let managers = decoded(old)?;
    set(&mut scale, apply::to_scale(&managers, kind).encode());
    Ok(scale)
}

/// Merges the managed fields of a written scale into those of its workload.
pub fn from_scale(
    kind: &ServedResource,
    old: &Working,
    scale: &Sent,
    workload: &mut Working,
) -> Result<(), Status> {
    let managers = apply::to_workload(&decoded(old)?, &decoded(scale)?, &kind.gvk.api_version(), kind);
    set(workload, managers.encode());
    Ok(())
}

fn decoded(object: &Value) -> Result<Managers, Status> {
    Managers::decode(apply::managed_fields(object)).map_err(Status::plain)
}

/// An applied configuration with the options of the request.
#[derive(Clone, Copy, Debug)]
pub struct ApplyConfiguration<'a> {
    pub config: &'a Value,
    pub manager: &'a str,
    /// Takes over fields of other managers instead of failing with a conflict.
    pub force: bool,
}

/// Merges a configuration into the stored object (server-side apply). The result is in the version of the request and not yet decoded.
pub async fn merge_applied(
    state: &State,
    kind: &ServedResource,
    subresource: Subresource,
    old: Option<&Working>,
    ApplyConfiguration { config, manager, force }: ApplyConfiguration<'_>,
    call: &Call,
) -> Result<Value, Status> {
    let now = call.now;
    let applied = if subresource == Subresource::Scale {
        let schema = kind.subresource_schema(subresource);
        let empty = kind.shapes().empty_scale();
        let mut live = match old {
            Some(old) => scale_of(kind, old)?,
            None => empty.clone(),
        };
        schema::decode::fill(&mut live, schema);
        let field_management = scale_field_management(kind, now);
        call.effort.run(|| field_management.apply(&live, &empty, config, manager, force))?
    } else {
        let api_version = kind.gvk.api_version();
        let empty = kind.shapes().empty_sent();
        let converted = old.map(|old| kind.shapes().to_sent(old.clone()));
        let live = converted.as_ref().unwrap_or(&empty);
        // An object written in another version or under a former schema may not match this one. A mismatch of the configuration is reported
        // first.
        if kind.as_custom().is_some() && apply::check(config, kind.schema(), false).is_ok() {
            apply::check(live, kind.schema(), true).map_err(|misfits| {
                let (namespace, name) = (meta::namespace(live), meta::name(live));
                let kind = &kind.gvk.kind;
                Status::plain(format!(
                    "failed to create typed live object ({namespace}/{name}; {api_version}, Kind={kind}): {misfits}"
                ))
            })?;
        }
        let applied = with_versions(state, kind, |versions| {
            let field_management = field_management(kind, subresource, &api_version, versions, now);
            call.effort.run(|| field_management.apply(live, &empty, config, manager, force))
        });
        applied.await??
    };
    applied.map(|applied| applied.object).map_err(ApplyError::into_status)
}

/// Restores managed fields that mutating admission made invalid and returns a warning for the client.
pub fn restore_invalid_managed_fields(object: &mut Value, before: Option<Value>) -> Option<String> {
    if object.at(MANAGED_FIELDS) == before.as_ref() {
        return None;
    }
    let why = Managers::decode(apply::managed_fields(object)).err()?;
    set(object, before);
    Some(format!(
        ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission controller; please fix your requests: {why}"
    ))
}

/// A copy of the managed fields, for a later call of [`restore_invalid_managed_fields`].
pub fn managed_fields(object: &Value) -> Option<Value> {
    object.at(MANAGED_FIELDS).cloned()
}

pub fn remove_managed_fields(object: &mut Value) {
    set(object, None);
}

/// Restores the old times of managed fields if the update changed nothing else, so that it is not stored.
pub fn drop_times(object: &mut Value, old: &Value) {
    let (new_list, old_list) = (apply::managed_fields(object), apply::managed_fields(old));
    if old_list.is_empty() || new_list == old_list || !apply::same_but_for_times(new_list, old_list) {
        return;
    }
    let times = managed_fields(object);
    set(object, managed_fields(old));
    if object != old {
        set(object, times);
    }
}

/// The field manager of a request: the one named in the query, or else the user agent up to its first `/`, at most 128 bytes.
pub fn manager<'a>(named: &'a str, headers: &'a http::HeaderMap) -> std::borrow::Cow<'a, str> {
    const MAX: usize = 128;
    if !named.is_empty() {
        return named.into();
    }
    let agent = headers.get(http::header::USER_AGENT).map(|agent| String::from_utf8_lossy(agent.as_bytes()));
    let agent = agent.unwrap_or_default();
    let name = agent.split('/').next().unwrap_or_default();
    let mut out = String::with_capacity(name.len().min(MAX));
    for c in name.chars().filter(|c| api::field::is_printable(*c)) {
        if out.len() + c.len_utf8() > MAX {
            break;
        }
        out.push(c);
    }
    out.into()
}

/// Refuses a configuration that names a uid when no object exists.
pub fn refuse_uid(kind: &ServedResource, name: &str, object: &Value) -> Result<(), Status> {
    match meta::uid(object) {
        "" => Ok(()),
        uid => Err(Status::conflict(
            &kind.resource,
            name,
            format_args!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            ),
        )),
    }
}

#[cfg(test)]
mod tests;
