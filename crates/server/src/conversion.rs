//! [`Converter`]: conversions of a resource that may call the conversion webhook of its CRD.
//!
//! A built-in resource is stored in its working shape, so it needs no webhook. A custom resource is processed in the version of the
//! request: on read it gets the defaults of its current schema and is converted to that version; on write it is converted to the storage
//! version.

mod webhook;

use std::sync::Arc;
use std::time::Instant;

use api::selector::Selection;
use api::{GroupVersion, Status, StatusCause, meta};
use catalog::keys;
use catalog::{CustomResourceVersion, Sent, ServedResource, StoredObject, Subresource, Working};
use crd::{CrdConversion, DefaultsAllowance};
use runtime::truncate_remote::MAX_OBJECTS;
use storage::StoredEntry;
use value::Value;

pub use webhook::{ConversionWebhookClients, TIMEOUT};

use crate::call::HandlerResponse;
use crate::state::State;

#[derive(Clone, Copy)]
pub struct Converter<'a> {
    state: &'a State,
    resource: &'a ServedResource,
}

impl State {
    /// A converter that calls the conversion webhook of the resource's CRD.
    pub fn converter<'a>(&'a self, resource: &'a ServedResource) -> Converter<'a> {
        Converter { state: self, resource }
    }
}

impl Converter<'_> {
    /// Reads the object of an entry, converted to the version of the request if necessary.
    pub async fn load(&self, entry: &StoredEntry) -> Result<Working, Status> {
        let Some(custom) = self.resource.as_custom() else { return self.resource.load_built_in(entry) };
        let stored = StoredObject::read(entry)?;
        if !self.resource.must_convert(entry) {
            return Ok(Working::of_converted(stored.into_value()));
        }
        self.current_one(custom, stored).await.map_err(|status| undecodable(entry, &status))
    }

    /// Reads the objects of entries. Those that need the webhook are converted in one call.
    pub async fn load_all(&self, entries: &[Arc<StoredEntry>]) -> Result<Vec<Working>, Status> {
        let Some(custom) = self.resource.as_custom() else {
            return entries.iter().map(|entry| self.resource.load_built_in(entry)).collect();
        };
        let stored = entries.iter().map(|entry| StoredObject::read(entry)).collect::<Result<Vec<_>, _>>()?;
        if !entries.iter().any(|entry| self.resource.must_convert(entry)) {
            return Ok(stored.into_iter().map(|object| Working::of_converted(object.into_value())).collect());
        }
        let until = Instant::now() + TIMEOUT;
        match self.current(custom, stored).await {
            Ok(current) => Ok(current),
            Err(status) => self.retry_one_by_one(custom, entries, until, status).await,
        }
    }

    /// Reads the objects of entries in the shape that clients read.
    pub async fn show_all(&self, entries: &[Arc<StoredEntry>]) -> Result<Vec<Sent>, Status> {
        let objects = self.load_all(entries).await?;
        Ok(objects.into_iter().map(|object| self.resource.to_sent(object)).collect())
    }

    /// Retries a failed batch one object at a time, to name every object that cannot be converted. It fails with `together`, the error of the
    /// batch, after `until`, or when the webhook has added more bytes to the objects than a single answer may have.
    async fn retry_one_by_one(
        &self,
        custom: &CustomResourceVersion,
        entries: &[Arc<StoredEntry>],
        until: Instant,
        together: Status,
    ) -> Result<Vec<Working>, Status> {
        let mut converted = Vec::with_capacity(entries.len());
        let mut causes: Vec<StatusCause> = Vec::new();
        let mut room =
            entries.iter().map(|entry| entry.body.len()).sum::<usize>().saturating_add(MAX_OBJECTS);
        for entry in entries {
            if Instant::now() >= until || room == 0 {
                return Err(together);
            }
            match self.current_one(custom, StoredObject::read(entry)?).await {
                Ok(object) => {
                    room = room.saturating_sub(object.size_up_to(room));
                    converted.push(object);
                }
                Err(_) if causes.len() == MAX_UNREADABLE => {
                    let message = "too many errors, the list is truncated".to_owned();
                    causes.push(StatusCause {
                        reason: "FieldValueTooMany".into(),
                        message,
                        ..StatusCause::default()
                    });
                    break;
                }
                Err(status) => {
                    let field = entry.key.to_string();
                    let message = corrupt(&field, entry.revision, &status);
                    causes.push(StatusCause { reason: "UnexpectedServerResponse".into(), message, field });
                }
            }
        }
        if causes.is_empty() {
            Ok(converted)
        } else {
            Err(Status::unreadable(&self.resource.resource, causes))
        }
    }

    /// The object as clients would read it after storing: conversion to the storage version and back may change it.
    pub async fn reread(&self, object: Working) -> Result<Working, Status> {
        let Some(custom) = self.resource.as_custom() else { return Ok(object) };
        let stored = self.to_storage(&object).await?;
        if self.resource.is_stored_version() {
            return Ok(Working::of_converted(stored.into_value()));
        }
        self.current_one(custom, stored).await
    }

    /// Evaluates a selection on entries. Those that need the webhook are converted in one call.
    pub async fn selected(
        &self,
        selection: &Selection,
        entries: &[Arc<StoredEntry>],
    ) -> Result<Vec<bool>, Status> {
        let mut selected: Vec<Option<bool>> =
            entries.iter().map(|entry| self.resource.selects(selection, entry)).collect();
        let open: Vec<Arc<StoredEntry>> = entries
            .iter()
            .zip(&selected)
            .filter(|(_, known)| known.is_none())
            .map(|(entry, _)| Arc::clone(entry))
            .collect();
        if !open.is_empty() {
            let objects = self.show_all(&open).await?;
            let found = open.iter().zip(&objects).map(|(e, o)| self.resource.selects_fields(selection, e, o));
            for (slot, found) in selected.iter_mut().filter(|known| known.is_none()).zip(found) {
                *slot = Some(found);
            }
        }
        Ok(selected.into_iter().map(Option::unwrap_or_default).collect())
    }

    /// Applies the current schemas to stored objects and converts them to the version of the request.
    async fn current(
        &self,
        custom: &CustomResourceVersion,
        stored: Vec<StoredObject>,
    ) -> Result<Vec<Working>, Status> {
        let mut room = DefaultsAllowance::for_list();
        let mut objects: Vec<Value> = stored.into_iter().map(StoredObject::into_value).collect();
        for object in &mut objects {
            let version = meta::gvk(object).version;
            // The fallback is not expected: a version is removed from a CRD only after no object is stored in it.
            let stored = custom.crd.version(&version).unwrap_or(&custom.stored);
            stored.compiled().refresh(object, &mut room);
        }
        let objects =
            convert_and_prune(self.state, custom, objects, &self.resource.gvk.group_version()).await?;
        Ok(objects.into_iter().map(Working::of_converted).collect())
    }

    async fn current_one(
        &self,
        custom: &CustomResourceVersion,
        stored: StoredObject,
    ) -> Result<Working, Status> {
        self.current(custom, vec![stored]).await?.pop().ok_or_else(no_result)
    }

    /// Converts a custom resource from any of its versions, or a built-in resource from its storage version, to the version of the request.
    pub async fn convert_from(&self, object: Value) -> Result<Sent, Status> {
        let Some(custom) = self.resource.as_custom() else {
            return Ok(self.resource.to_sent(Working::of_built_in(object)));
        };
        let wanted = self.resource.gvk.group_version();
        let mut objects = convert_and_prune(self.state, custom, vec![object], &wanted).await?;
        objects.pop().map(Sent::new).ok_or_else(no_result)
    }

    /// Converts a custom resource to another of its versions without pruning fields that are unknown there.
    pub async fn convert_to(&self, object: Value, version: &GroupVersion) -> Result<Value, Status> {
        let Some(custom) = self.resource.as_custom() else { return Ok(object) };
        let mut objects = convert(self.state, custom, vec![object], version).await?;
        objects.pop().ok_or_else(no_result)
    }

    /// Converts an object to its storage version.
    pub async fn to_storage(&self, object: &Working) -> Result<StoredObject, Status> {
        let Some(custom) = self.resource.as_custom() else {
            return self.resource.to_stored_built_in(object).ok_or_else(no_result);
        };
        let mut object = Value::clone(object);
        if !self.resource.is_stored_version() {
            let wanted = self.resource.stored.group_version();
            let mut objects = convert_and_prune(self.state, custom, vec![object], &wanted).await?;
            object = objects.pop().ok_or_else(no_result)?;
        }
        // Add the defaults of the storage version and drop nulls of fields that are not nullable, also after an apply or a scale, so that
        // the stored bytes can be sent unchanged.
        custom.stored.compiled().drop_nulls_and_default(&mut object).map_err(Status::too_large)?;
        Ok(StoredObject::of_converted(object))
    }

    /// The answer for an entry through a subresource.
    pub async fn answer(
        &self,
        subresource: Subresource,
        code: u16,
        entry: Arc<StoredEntry>,
    ) -> Result<HandlerResponse, Status> {
        match (subresource, self.resource.as_custom()) {
            (Subresource::Scale, Some(custom)) => {
                let object = self.load(&entry).await?;
                let paths = custom.version.scale.as_ref().ok_or_else(Status::no_such_resource)?;
                Ok(HandlerResponse::Object(code, crd::scale::get(paths, &object)?))
            }
            (Subresource::Scale, None) => {
                let scale = self.resource.view(subresource, &self.resource.load_built_in(&entry)?)?;
                Ok(HandlerResponse::Object(code, scale.into_value()))
            }
            (_, Some(_)) if self.resource.must_convert(&entry) => {
                let object = self.resource.to_sent(self.load(&entry).await?);
                Ok(HandlerResponse::Object(code, object.into_value()))
            }
            _ => Ok(HandlerResponse::Entry(code, entry)),
        }
    }
}

fn no_result() -> Status {
    Status::internal("the conversion of an object returned no result")
}

/// Upper limit of objects that the error of a list names as unreadable.
const MAX_UNREADABLE: usize = 100;

/// Kubernetes' error for a stored object that cannot be converted.
fn undecodable(entry: &StoredEntry, status: &Status) -> Status {
    Status::internal(corrupt(keys::below_root(&entry.key), entry.revision, status))
}

fn corrupt(key: &str, revision: u64, status: &Status) -> String {
    format!(
        "StorageError: corrupt object, Code: 7, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: object not decodable revision={revision}: {}",
        status.message()
    )
}

/// Converts custom resources, each from the version it names, and drops fields that are unknown in the wanted version.
async fn convert_and_prune(
    state: &State,
    custom: &CustomResourceVersion,
    objects: Vec<Value>,
    wanted: &GroupVersion,
) -> Result<Vec<Value>, Status> {
    let version = wanted.to_string();
    if objects.iter().all(|object| object.str_at(&["apiVersion"]) == Some(version.as_str())) {
        return Ok(objects);
    }
    let mut objects = convert(state, custom, objects, wanted).await?;
    let target = custom.crd.version(&wanted.version).unwrap_or(&custom.stored);
    for object in &mut objects {
        target.compiled().prune(object);
    }
    Ok(objects)
}

/// Converts custom resources, each from the version it names, without pruning.
async fn convert(
    state: &State,
    custom: &CustomResourceVersion,
    mut objects: Vec<Value>,
    wanted: &GroupVersion,
) -> Result<Vec<Value>, Status> {
    let version = wanted.to_string();
    let is_there = |object: &Value| object.str_at(&["apiVersion"]) == Some(version.as_str());
    if objects.iter().all(is_there) {
        return Ok(objects);
    }
    match &custom.crd.conversion {
        CrdConversion::None => {
            for object in &mut objects {
                object.set_at(&["apiVersion"], version.as_str());
            }
        }
        CrdConversion::Webhook(config) => {
            let (indices, others): (Vec<usize>, Vec<Value>) = objects
                .iter()
                .enumerate()
                .filter(|(_, object)| !is_there(object))
                .map(|(i, o)| (i, o.clone()))
                .unzip();
            let converted =
                // Boxed, because it would enlarge the future of every read.
                Box::pin(webhook::call(state, &custom.crd, config, &others, &version)).await?;
            for (index, object) in indices.into_iter().zip(converted) {
                if let Some(slot) = objects.get_mut(index) {
                    *slot = object;
                }
            }
        }
    }
    Ok(objects)
}

#[cfg(test)]
mod tests;
