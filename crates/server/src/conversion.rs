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
use catalog::{CustomResourceVersion, Sent, ServedResource, Shapes, StoredObject, Subresource, Working};
use crd::{CrdConversion, DefaultsAllowance};
use runtime::truncate_remote::MAX_OBJECTS;
use storage::StoredEntry;
use value::Value;

pub use webhook::{ConversionWebhookClients, TIMEOUT};

use crate::call::HandlerResponse;
use crate::state::State;

/// The limits and errors of all conversions for one list, which may be converted in parts.
pub struct ListConversion {
    defaults: DefaultsAllowance,
    /// Bytes that all objects together may still have after conversion.
    room: usize,
    /// Objects that cannot be converted.
    causes: Vec<StatusCause>,
    /// When objects of a failed batch are no longer tried one by one.
    retry_until: Instant,
}

impl ListConversion {
    /// For a list of these entries.
    pub fn new(entries: &[Arc<StoredEntry>]) -> Self {
        let stored = entries.iter().map(|entry| entry.body.len()).sum::<usize>();
        ListConversion {
            defaults: DefaultsAllowance::for_list(),
            room: stored.saturating_add(MAX_OBJECTS),
            causes: Vec::new(),
            retry_until: Instant::now() + TIMEOUT,
        }
    }

    /// True if some objects could not be converted, so that the list cannot be answered.
    pub fn has_failed(&self) -> bool {
        !self.causes.is_empty()
    }

    /// Fails if some objects could not be converted.
    pub fn finish(self, resource: &ServedResource) -> Result<(), Status> {
        if self.causes.is_empty() {
            return Ok(());
        }
        Err(Status::unreadable(&resource.resource, self.causes))
    }

    fn deduct(&mut self, objects: &[Working]) {
        for object in objects {
            self.room = self.room.saturating_sub(object.size_up_to(self.room));
        }
    }
}

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
        if let Some(object) = self.resource.shapes().load_current(entry)? {
            return Ok(object);
        }
        let custom = self.resource.as_custom().ok_or_else(no_result)?;
        self.current_one(custom, StoredObject::read(entry)?)
            .await
            .map_err(|status| undecodable(entry, &status))
    }

    /// Reads the objects of entries. Those that need the webhook are converted in one call.
    pub async fn load_all(&self, entries: &[Arc<StoredEntry>]) -> Result<Vec<Working>, Status> {
        let mut list = ListConversion::new(entries);
        let objects = self.load_part(entries, &mut list).await?;
        list.finish(self.resource)?;
        Ok(objects)
    }

    /// Reads a part of a list. Those objects that need the webhook are converted in one call. If some cannot be converted, they are added to
    /// the errors of the list.
    async fn load_part(
        &self,
        entries: &[Arc<StoredEntry>],
        list: &mut ListConversion,
    ) -> Result<Vec<Working>, Status> {
        let shapes = self.resource.shapes();
        let Some(custom) = self.resource.as_custom() else {
            return entries.iter().map(|entry| shapes.load_built_in(entry)).collect();
        };
        if !entries.iter().any(|entry| self.resource.must_convert(entry)) {
            let current = entries.iter().map(|entry| shapes.load_current(entry).transpose());
            if let Some(current) = current.collect::<Option<Result<Vec<_>, _>>>() {
                return current;
            }
        }
        let stored = entries.iter().map(|entry| StoredObject::read(entry)).collect::<Result<Vec<_>, _>>()?;
        match self.current(custom, stored, &mut list.defaults).await {
            Ok(current) if matches!(custom.crd.conversion, CrdConversion::Webhook(_)) => {
                list.deduct(&current);
                if list.room == 0 { Err(inflated()) } else { Ok(current) }
            }
            Ok(current) => Ok(current),
            Err(status) if is_refused(&status) => Err(status),
            Err(status) => self.retry_one_by_one(custom, entries, list, status).await,
        }
    }

    /// Reads the objects of entries in the shape that clients read.
    pub async fn show_all(&self, entries: &[Arc<StoredEntry>]) -> Result<Vec<Sent>, Status> {
        let objects = self.load_all(entries).await?;
        Ok(objects.into_iter().map(|object| self.resource.shapes().to_sent(object)).collect())
    }

    /// Like [`Converter::show_all`], for a part of a list. The result is incomplete if [`ListConversion::has_failed`].
    pub async fn show_part(
        &self,
        entries: &[Arc<StoredEntry>],
        list: &mut ListConversion,
    ) -> Result<Vec<Sent>, Status> {
        let objects = self.load_part(entries, list).await?;
        Ok(objects.into_iter().map(|object| self.resource.shapes().to_sent(object)).collect())
    }

    /// Retries a failed batch one object at a time, to name every object that cannot be converted. It fails with `together`, the error of the
    /// batch, after the time limit of the list, or when the webhook has added more bytes to the objects than a single answer may have.
    async fn retry_one_by_one(
        &self,
        custom: &CustomResourceVersion,
        entries: &[Arc<StoredEntry>],
        list: &mut ListConversion,
        together: Status,
    ) -> Result<Vec<Working>, Status> {
        let mut converted = Vec::with_capacity(entries.len());
        for entry in entries {
            if Instant::now() >= list.retry_until || list.room == 0 {
                return Err(together);
            }
            match self.current_one(custom, StoredObject::read(entry)?).await {
                Ok(object) => {
                    list.deduct(std::slice::from_ref(&object));
                    converted.push(object);
                }
                Err(_) if list.causes.len() == MAX_UNREADABLE => {
                    let message = "too many errors, the list is truncated".to_owned();
                    list.causes.push(StatusCause {
                        reason: "FieldValueTooMany".into(),
                        message,
                        ..StatusCause::default()
                    });
                    return Err(Status::unreadable(
                        &self.resource.resource,
                        std::mem::take(&mut list.causes),
                    ));
                }
                Err(status) => {
                    let field = entry.key.to_string();
                    let message = corrupt(&field, entry.revision, &status);
                    let reason = "UnexpectedServerResponse".into();
                    list.causes.push(StatusCause { reason, message, field });
                }
            }
        }
        Ok(converted)
    }

    /// An object that was converted for the store, as clients would read it: conversion to the storage version and back may change it.
    pub async fn reread(&self, stored: StoredObject) -> Result<Working, Status> {
        match self.resource.shapes().reread(stored) {
            Ok(object) => Ok(object),
            Err(stored) => {
                let custom = self.resource.as_custom().ok_or_else(no_result)?;
                self.current_one(custom, stored).await
            }
        }
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
        defaults: &mut DefaultsAllowance,
    ) -> Result<Vec<Working>, Status> {
        let mut objects: Vec<Value> = stored.into_iter().map(StoredObject::into_value).collect();
        for object in &mut objects {
            let version = meta::gvk(object).version;
            // The fallback is not expected: a version is removed from a CRD only after no object is stored in it.
            let stored = custom.crd.version(&version).unwrap_or(&custom.stored);
            stored.compiled().refresh(object, defaults);
        }
        let objects =
            convert_and_prune(self.state, custom, objects, &self.resource.gvk.group_version()).await?;
        objects.into_iter().map(|object| self.resource.shapes().of_converted(object)).collect()
    }

    async fn current_one(
        &self,
        custom: &CustomResourceVersion,
        stored: StoredObject,
    ) -> Result<Working, Status> {
        let mut defaults = DefaultsAllowance::for_list();
        self.current(custom, vec![stored], &mut defaults).await?.pop().ok_or_else(no_result)
    }

    /// Converts a custom resource from the version that it names to the version of the request. A built-in resource is returned unchanged.
    pub async fn convert_from(&self, object: Sent) -> Result<Sent, Status> {
        let Some(custom) = self.resource.as_custom() else { return Ok(object) };
        let wanted = self.resource.gvk.group_version();
        let objects = convert_and_prune(self.state, custom, vec![object.into_value()], &wanted).await?;
        self.only_one(objects)
    }

    /// Converts a custom resource to another of its versions without pruning fields that are unknown there. A built-in resource is returned
    /// unchanged.
    pub async fn convert_to(&self, object: Sent, version: &GroupVersion) -> Result<Sent, Status> {
        let Some(custom) = self.resource.as_custom() else { return Ok(object) };
        self.only_one(convert(self.state, custom, vec![object.into_value()], version).await?)
    }

    fn only_one(&self, mut converted: Vec<Value>) -> Result<Sent, Status> {
        converted
            .pop()
            .and_then(|object| self.resource.shapes().in_named_version(object))
            .ok_or_else(no_result)
    }

    /// Converts an object to its storage version.
    pub async fn to_storage(&self, object: &Working) -> Result<StoredObject, Status> {
        let Some(custom) = self.resource.as_custom() else {
            return self.resource.shapes().to_stored_built_in(object).ok_or_else(no_result);
        };
        let object = self.in_stored_version(custom, object).await?;
        Shapes::to_stored_custom(custom, object)
    }

    async fn in_stored_version(
        &self,
        custom: &CustomResourceVersion,
        object: &Working,
    ) -> Result<Value, Status> {
        let object = Value::clone(object);
        if self.resource.is_stored_version() {
            return Ok(object);
        }
        let wanted = self.resource.stored.group_version();
        let mut objects = convert_and_prune(self.state, custom, vec![object], &wanted).await?;
        objects.pop().ok_or_else(no_result)
    }

    /// The stored form of a custom resource that is in another version than the storage version, and whether defaults of the storage version
    /// changed it. `None` for objects in the storage version and of built-in kinds, and if the storage version has no defaults.
    pub async fn with_stored_defaults(
        &self,
        object: &Working,
    ) -> Result<Option<(StoredObject, bool)>, Status> {
        let Some(custom) = self.resource.as_custom() else { return Ok(None) };
        let compiled = custom.stored.compiled();
        if self.resource.is_stored_version() || !compiled.has_defaults() {
            return Ok(None);
        }
        let converted = self.in_stored_version(custom, object).await?;
        let stored = Shapes::to_stored_custom(custom, converted.clone())?;
        let is_changed = *stored != converted;
        Ok(Some((stored, is_changed)))
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
                let shapes = self.resource.shapes();
                let scale = shapes.view(subresource, &shapes.load_built_in(&entry)?)?;
                Ok(HandlerResponse::Object(code, scale.into_value()))
            }
            (_, Some(_)) if self.resource.must_convert(&entry) => {
                let object = self.resource.shapes().to_sent(self.load(&entry).await?);
                Ok(HandlerResponse::Object(code, object.into_value()))
            }
            _ => Ok(HandlerResponse::Entry(code, entry)),
        }
    }
}

fn no_result() -> Status {
    Status::internal("the conversion of an object returned no result")
}

fn inflated() -> Status {
    Status::internal("the conversion webhook makes the objects of the list too large")
}

/// Upper limit of objects that the error of a list names as unreadable.
const MAX_UNREADABLE: usize = 100;

/// True if the conversion was refused because of other requests of the client, and not because of the object.
fn is_refused(status: &Status) -> bool {
    status.code() == 429
}

/// Kubernetes' error for a stored object that cannot be converted.
fn undecodable(entry: &StoredEntry, status: &Status) -> Status {
    if is_refused(status) {
        return status.clone();
    }
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
