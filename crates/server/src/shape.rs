//! Stored entries to objects in the version of a request, and back to what is stored.
//!
//! Built-in kinds are worked on in the shape they are stored in. A custom resource is worked on in the version of the request:
//! on its way out of the store it is brought into the form of the schema as it is now, with its defaults, and converted; on its
//! way in it is converted to the version that is stored.

use std::sync::Arc;
use std::time::Instant;

use api::selector::Selection;
use api::{GroupVersion, Status, StatusCause, meta};
use resources::custom::{Conversion, Room};
use storage::Entry;
use value::Value;

use crate::call::Answer;
use crate::catalog::{Custom, ServedResource, Subresource};
use crate::conversion;
use crate::encode;
use crate::keys;
use crate::state::State;

impl ServedResource {
    /// The object of an entry, in the shape in which it is worked on.
    pub async fn load(&self, state: &State, entry: &Entry) -> Result<Value, Status> {
        let object = encode::tree(entry)?;
        match self.as_custom() {
            Some(custom) if self.must_convert(entry) => {
                let objects = self.current(state, custom, vec![object]).await;
                let mut objects = objects.map_err(|status| undecodable(entry, &status))?;
                objects.pop().ok_or_else(|| Status::internal("a conversion without a result"))
            }
            _ => Ok(object),
        }
    }

    /// The objects of entries in the version of the request; what has to be converted is converted together.
    pub async fn show_all(&self, state: &State, entries: &[Arc<Entry>]) -> Result<Vec<Value>, Status> {
        let objects: Vec<Value> =
            entries.iter().map(|entry| encode::tree(entry)).collect::<Result<_, Status>>()?;
        match self.as_custom() {
            None => Ok(objects.into_iter().map(|object| self.from_stored(object)).collect()),
            Some(custom) if entries.iter().any(|entry| self.must_convert(entry)) => {
                let until = Instant::now() + conversion::TIMEOUT;
                match self.current(state, custom, objects).await {
                    Ok(shown) => Ok(shown),
                    Err(status) => self.one_by_one(state, custom, entries, until, status).await,
                }
            }
            Some(_) => Ok(objects),
        }
    }

    /// What could not be converted together, which `together` says why, each by itself: those that cannot be are all named,
    /// if that is known in time.
    async fn one_by_one(
        &self,
        state: &State,
        custom: &Custom,
        entries: &[Arc<Entry>],
        until: Instant,
        together: Status,
    ) -> Result<Vec<Value>, Status> {
        let mut shown = Vec::with_capacity(entries.len());
        let mut causes: Vec<StatusCause> = Vec::new();
        for entry in entries {
            // Who waits for a webhook that is slow has waited long enough, whether it converts or not.
            if Instant::now() >= until {
                return Err(together);
            }
            match self.current(state, custom, vec![encode::tree(entry)?]).await {
                Ok(objects) => shown.extend(objects),
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
        if causes.is_empty() { Ok(shown) } else { Err(Status::unreadable(&self.resource, causes)) }
    }

    /// What a reader of an object would see if it were stored: conversion there and back may change it.
    pub async fn reread(&self, state: &State, object: Value) -> Result<Value, Status> {
        let Some(custom) = self.as_custom() else { return Ok(object) };
        let stored = self.to_storage(state, &object).await?;
        if self.is_stored_version() {
            return Ok(stored);
        }
        let mut objects = self.current(state, custom, vec![stored]).await?;
        objects.pop().ok_or_else(|| Status::internal("a conversion without a result"))
    }

    /// Which of some entries are selected; what has to be converted for that is converted together.
    pub async fn selected(
        &self,
        state: &State,
        selection: &Selection,
        entries: &[Arc<Entry>],
    ) -> Result<Vec<bool>, Status> {
        let mut selected: Vec<Option<bool>> =
            entries.iter().map(|entry| self.selects(selection, entry)).collect();
        let open: Vec<Arc<Entry>> = entries
            .iter()
            .zip(&selected)
            .filter(|(_, known)| known.is_none())
            .map(|(entry, _)| Arc::clone(entry))
            .collect();
        if !open.is_empty() {
            let objects = self.show_all(state, &open).await?;
            let found = open.iter().zip(&objects).map(|(e, o)| self.selects_fields(selection, e, o));
            for (slot, found) in selected.iter_mut().filter(|known| known.is_none()).zip(found) {
                *slot = Some(found);
            }
        }
        Ok(selected.into_iter().map(Option::unwrap_or_default).collect())
    }

    /// Brings stored objects into the form that the CRD gives them now, in the version of the request.
    async fn current(
        &self,
        state: &State,
        custom: &Custom,
        mut objects: Vec<Value>,
    ) -> Result<Vec<Value>, Status> {
        let mut room = Room::for_list();
        for object in &mut objects {
            let version = meta::gvk(object).version;
            // A version that the CRD no longer has was not stored any more when it went.
            let stored = custom.crd.version(&version).unwrap_or(&custom.stored);
            stored.compiled().refresh(object, &mut room);
        }
        convert(state, custom, objects, &self.gvk.group_version()).await
    }

    /// An object of a custom kind in this version, from any other of its versions.
    pub async fn convert(&self, state: &State, object: Value) -> Result<Value, Status> {
        let Some(custom) = self.as_custom() else { return Ok(self.from_stored(object)) };
        let mut objects = convert(state, custom, vec![object], &self.gvk.group_version()).await?;
        objects.pop().ok_or_else(|| Status::internal("a conversion without a result"))
    }

    /// An object of a custom kind in another of its versions, as it came from there: nothing is dropped that is unknown in it.
    pub async fn convert_to(
        &self,
        state: &State,
        object: Value,
        version: &GroupVersion,
    ) -> Result<Value, Status> {
        let Some(custom) = self.as_custom() else { return Ok(object) };
        let mut objects = convert_whole(state, custom, vec![object], version).await?;
        objects.pop().ok_or_else(|| Status::internal("a conversion without a result"))
    }

    /// What is stored for an object as it was worked on.
    pub async fn to_storage(&self, state: &State, object: &Value) -> Result<Value, Status> {
        let Some(custom) = self.as_custom() else { return Ok(object.clone()) };
        let mut object = if self.is_stored_version() {
            object.clone()
        } else {
            let mut objects =
                convert(state, custom, vec![object.clone()], &self.stored.group_version()).await?;
            objects.pop().ok_or_else(|| Status::internal("a conversion without a result"))?
        };
        // A reader is shown the defaults of the stored version and no nulls that mean nothing, whatever a configuration or a
        // scale made of it; so the bytes can be shown as they are.
        custom.stored.compiled().settle(&mut object).map_err(Status::too_large)?;
        Ok(object)
    }

    /// The answer for an entry through a subresource.
    pub async fn answer(
        &self,
        state: &State,
        subresource: Subresource,
        code: u16,
        entry: Arc<Entry>,
    ) -> Result<Answer, Status> {
        match (subresource, self.as_custom()) {
            (Subresource::Scale, Some(custom)) => {
                let object = self.load(state, &entry).await?;
                let paths = custom.version.scale.as_ref().ok_or_else(Status::no_such_resource)?;
                Ok(Answer::Object(code, resources::custom::scale::get(paths, &object)?))
            }
            (Subresource::Scale, None) => {
                Ok(Answer::Object(code, self.view(subresource, &encode::tree(&entry)?)?))
            }
            (_, Some(_)) if self.must_convert(&entry) => {
                Ok(Answer::Object(code, self.load(state, &entry).await?))
            }
            _ => Ok(Answer::Entry(code, entry)),
        }
    }
}

/// How many objects of a list are named that cannot be read.
const MAX_UNREADABLE: usize = 100;

/// Kubernetes' words for a stored object that no webhook converts.
fn undecodable(entry: &Entry, status: &Status) -> Status {
    Status::internal(corrupt(keys::below_root(&entry.key), entry.revision, status))
}

fn corrupt(key: &str, revision: u64, status: &Status) -> String {
    format!(
        "StorageError: corrupt object, Code: 7, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: object not decodable revision={revision}: {}",
        status.message()
    )
}

/// Converts objects of a custom kind, each from the version it says, and drops what is unknown in the version wanted.
async fn convert(
    state: &State,
    custom: &Custom,
    objects: Vec<Value>,
    wanted: &GroupVersion,
) -> Result<Vec<Value>, Status> {
    let version = wanted.to_string();
    if objects.iter().all(|object| object.str_at(&["apiVersion"]) == Some(version.as_str())) {
        return Ok(objects);
    }
    let mut objects = convert_whole(state, custom, objects, wanted).await?;
    let target = custom.crd.version(&wanted.version).unwrap_or(&custom.stored);
    for object in &mut objects {
        target.compiled().prune(object);
    }
    Ok(objects)
}

async fn convert_whole(
    state: &State,
    custom: &Custom,
    mut objects: Vec<Value>,
    wanted: &GroupVersion,
) -> Result<Vec<Value>, Status> {
    let version = wanted.to_string();
    let is_there = |object: &Value| object.str_at(&["apiVersion"]) == Some(version.as_str());
    if objects.iter().all(is_there) {
        return Ok(objects);
    }
    match &custom.crd.conversion {
        Conversion::None => {
            for object in &mut objects {
                object.set_at(&["apiVersion"], version.as_str());
            }
        }
        Conversion::Webhook(webhook) => {
            let (places, strangers): (Vec<usize>, Vec<Value>) = objects
                .iter()
                .enumerate()
                .filter(|(_, object)| !is_there(object))
                .map(|(i, o)| (i, o.clone()))
                .unzip();
            let converted =
                // On the heap: whoever reads an object would carry its weight.
                Box::pin(conversion::call(state, &custom.crd, webhook, &strangers, &version)).await?;
            for (place, object) in places.into_iter().zip(converted) {
                if let Some(slot) = objects.get_mut(place) {
                    *slot = object;
                }
            }
        }
    }
    Ok(objects)
}

#[cfg(test)]
mod tests;
