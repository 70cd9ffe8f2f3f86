//! The validate stage: completes a mutated object, applies the rules of its kind and runs validating admission.

use std::sync::Arc;

use admission::Operation;
use api::{FieldError, FieldErrors, Status, meta};
use catalog::unreadable::Concern;
use catalog::{StoredObject, Subresource, Working};
use crd::ValidationFindings;
use kinds::strategy;
use storage::{Expect, StoredEntry};
use value::{Budget, Path, Value, text};

use super::admitted_namespace::AdmittedNamespace;
use super::metadata::{copy_meta, remove_server_metadata, set_namespace};
use super::{Admitted, AdmittedDelete, Mutated, OPTIMISTIC_LOCK, WriteContext};
use crate::addresses::AddressClaims;
use crate::admission::param_access;
use crate::aggregation::check_service;
use crate::call::Call;
use crate::device_access;
use crate::ownership;
use crate::signer_access;

impl WriteContext<'_> {
    /// Sets the server-owned metadata of a new object, allocates service addresses, validates the object and runs validating admission.
    pub async fn admit_create(&self, call: &mut Call, mutated: Mutated) -> Result<Admitted, Status> {
        let Mutated { mut object } = mutated;
        // The caller was authorized for the request's namespace only, so mutation must not move the object to another one.
        set_namespace(&mut object, if self.kind.namespaced { &call.info.namespace } else { "" })?;
        remove_server_metadata(&mut object);
        meta::set(&mut object, "uid", runtime::random::uid());
        meta::set(&mut object, "creationTimestamp", api::time::Timestamp::from_seconds(call.now).time());
        let base = meta::text(&object, "generateName").to_owned();
        if meta::name(&object).is_empty() && !base.is_empty() {
            let base = text::first_chars(&base, runtime::random::MAX_BASE);
            meta::set(&mut object, "name", format!("{base}{}", runtime::random::suffix()));
        }
        let namespace = AdmittedNamespace::of_new(self, call, &object);
        let address_claims = self.allocate(call, &mut object, None).await?;
        match self.complete_create(call, object).await {
            Ok((object, stored)) => {
                let key = self.kind.key(&call.info.namespace, meta::name(&object)).into();
                Ok(Admitted { key, object, stored, expect: Expect::Absent, address_claims, namespace })
            }
            Err(status) => Err(revert(address_claims, status).await),
        }
    }

    /// The part of [`WriteContext::admit_create`] after the allocation of service addresses.
    async fn complete_create(
        &self,
        call: &mut Call,
        mut object: Working,
    ) -> Result<(Working, Option<StoredObject>), Status> {
        let context = self.state.strategy_context(call);
        call.effort.run(|| self.kind.write_rules().prepare_create(&mut object, &context))?;
        device_access::drop_admin(self.state, self.kind, &mut object, None);
        let mut context = self.state.validation_context(call.now);
        context.version = call.info.version.clone();
        let validate = |budget: &Budget| {
            context.budget = budget.clone();
            self.kind.write_rules().validate_create(&object, &context)
        };
        let ValidationFindings { mut errors, warnings, warnings_if_valid } =
            call.effort.spend(validate).await;
        call.effort.check()?;
        for warning in warnings {
            call.warn(warning);
        }
        if errors.is_empty() {
            errors = api::validation::meta::create(
                &object,
                self.kind.namespaced,
                api::validation::meta::path_segment,
            );
        }
        let name = meta::name(&object).to_owned();
        if errors.is_empty() {
            errors.extend(self.check_params(call, &object, None).await);
            errors.extend(check_service(self.state.apis.catalog.served(), self.kind, &object, None));
        }
        let mut all = device_access::check_admin(self.state, call, self.kind, &object, None).await?;
        if !all.is_empty() && !self.dry_run {
            self.state.metrics.admin_access(&self.kind.stored.kind, false);
        }
        all.extend(errors);
        refuse_invalid(self, &object, &name, &all)?;
        for warning in warnings_if_valid {
            call.warn(warning);
        }
        strategy::canonicalize(self.kind.strategy(), &mut object);
        let stored = self.with_stored_defaults(&object).await?;
        let seen = changed(stored.as_ref()).unwrap_or(&object);
        self.run_validating(call, Operation::Create, &name, Some(seen), None).await?;
        let errors = device_access::check_admin_again(self.state, call, self.kind, &object, None).await?;
        refuse_invalid(self, &object, &name, &errors)?;
        // kube-apiserver makes this check in its storage layer, which skips it for dry runs and for updates that create.
        if call.info.verb == "create" && !self.dry_run && !meta::resource_version(&object).is_empty() {
            return Err(Status::plain("resourceVersion should not be set on objects to be created"));
        }
        Ok((object, stored.map(|(stored, _)| stored)))
    }

    /// Turns a mutated object into the successor of `old`: copies server-owned metadata, validates the object and runs validating
    /// admission.
    pub async fn admit_update(
        &self,
        call: &mut Call,
        mutated: Mutated,
        old: &StoredEntry,
        old_object: &Working,
    ) -> Result<Admitted, Status> {
        let Mutated { mut object } = mutated;
        let name = call.info.name.clone();
        self.kind.shapes().normalize(&mut object);
        self.check_revision(&mut object, old, &name)?;
        let address_claims = self.allocate(call, &mut object, Some(old_object)).await?;
        match self.complete_update(call, object, old_object).await {
            Ok((object, stored)) => {
                let (key, expect) = (Arc::clone(&old.key), Expect::Revision(old.revision));
                Ok(Admitted { key, object, stored, expect, address_claims, namespace: None })
            }
            Err(status) => Err(revert(address_claims, status).await),
        }
    }

    /// The part of [`WriteContext::admit_update`] after the allocation of service addresses.
    async fn complete_update(
        &self,
        call: &mut Call,
        mut object: Working,
        old_object: &Working,
    ) -> Result<(Working, Option<StoredObject>), Status> {
        let name = call.info.name.clone();
        // Strategies and validation compare the new object with the stored one, so remove from both the fields that are written even when
        // empty.
        let mut before = old_object.clone();
        self.kind.shapes().normalize(&mut before);
        let before = &before;
        copy_meta(&mut object, old_object, "generation");
        let context = self.state.strategy_context(call);
        call.effort.run(|| {
            self.kind.write_rules().prepare_update(self.subresource, &mut object, before, &context);
        })?;
        device_access::drop_admin(self.state, self.kind, &mut object, Some(before));
        if meta::uid(&object).is_empty() {
            copy_meta(&mut object, old_object, "uid");
        }
        copy_meta(&mut object, old_object, "creationTimestamp");
        if meta::is_deleting(old_object) {
            copy_meta(&mut object, old_object, "deletionTimestamp");
        }
        if object.at(&["metadata", "deletionGracePeriodSeconds"]).is_none() {
            copy_meta(&mut object, old_object, "deletionGracePeriodSeconds");
        }
        let mut context = self.state.validation_context(call.now);
        context.version = call.info.version.clone();
        let mut errors = api::validation::meta::update_any(&object, before, self.kind.namespaced);
        if self.subresource == Subresource::Status {
            let refused =
                device_access::check_admin(self.state, call, self.kind, &object, Some(before)).await?;
            errors.extend(refused);
            errors.extend(device_access::check_status(self.state, call, self.kind, &object, before).await);
        }
        let validate = |budget: &Budget| {
            context.budget = budget.clone();
            self.kind.write_rules().validate_update(self.subresource, &object, before, &context)
        };
        let found = call.effort.spend(validate).await;
        call.effort.check()?;
        for warning in found.warnings {
            call.warn(warning);
        }
        errors.extend(found.errors);
        if errors.is_empty() && self.subresource == Subresource::None {
            errors.extend(self.check_params(call, &object, Some(before)).await);
            errors.extend(check_service(self.state.apis.catalog.served(), self.kind, &object, Some(before)));
        }
        if errors.is_empty() && self.subresource == Subresource::Status {
            errors.extend(signer_access::check_status(self.state, call, self.kind, &object, before).await);
        }
        refuse_invalid(self, &object, &name, &errors)?;
        for warning in found.warnings_if_valid {
            call.warn(warning);
        }
        strategy::canonicalize(self.kind.strategy(), &mut object);
        ownership::drop_times(&mut object, before);
        if self.subresource == Subresource::Scale {
            let (new, old) = (
                self.kind.shapes().view(Subresource::Scale, &object)?,
                self.kind.shapes().view(Subresource::Scale, old_object)?,
            );
            self.run_validating(call, Operation::Update, &name, Some(&new), Some(&old)).await?;
            return Ok((object, None));
        }
        let stored = self.with_stored_defaults(&object).await?;
        let seen = changed(stored.as_ref()).unwrap_or(&object);
        self.run_validating(call, Operation::Update, &name, Some(seen), Some(before)).await?;
        if self.subresource == Subresource::Status {
            let again = device_access::check_admin_again(self.state, call, self.kind, &object, Some(before));
            refuse_invalid(self, &object, &name, &again.await?)?;
        }
        Ok((object, stored.map(|(stored, _)| stored)))
    }

    /// The form in which a custom resource is stored, and whether defaults of the storage version have changed it: validating admission
    /// must see what is stored and what clients read, and converts it to the versions that policies and webhooks match.
    async fn with_stored_defaults(&self, object: &Working) -> Result<Option<(StoredObject, bool)>, Status> {
        self.state.converter(self.kind).with_stored_defaults(object).await
    }

    /// Requires that a client that writes an admission policy or a binding can read its parameter objects.
    async fn check_params(&self, call: &Call, new: &Value, old: Option<&Value>) -> Option<FieldError> {
        if *call.caller().via() == authn::AuthenticationMethod::Internal {
            return None;
        }
        param_access::check(self.state, call.user(), &self.kind.built_in_kind(), new, old).await
    }

    /// Requires the stored `resourceVersion` in an update, or none where the kind allows unconditional updates.
    fn check_revision(&self, object: &mut Value, old: &StoredEntry, name: &str) -> Result<(), Status> {
        let sent = meta::resource_version(object);
        let sent_revision = match sent {
            "" => 0,
            text => text.parse::<u64>().map_err(|_| {
                let quoted = api::field::quote(text);
                Status::plain(format!("strconv.ParseUint: parsing {quoted}: invalid syntax"))
            })?,
        };
        if sent_revision == 0 {
            if !self.kind.write_rules().allows_unconditional_update() {
                let kind = api::GroupKind::new(
                    self.kind.resource.group.clone(),
                    self.kind.resource.resource.clone(),
                );
                let path = Path::root().field("metadata").field("resourceVersion");
                let error = FieldError::invalid(&path, 0, "must be specified for an update");
                return Err(Status::invalid(&kind, name, &[error]));
            }
            meta::set(object, "resourceVersion", old.revision.to_string());
        } else if sent_revision != old.revision {
            return Err(Status::conflict(&self.kind.resource, name, OPTIMISTIC_LOCK));
        }
        Ok(())
    }

    /// Runs both admission stages for the deletion of `old`, the object in `entry`. `name` goes into the admission attributes.
    pub async fn admit_delete(
        &self,
        call: &mut Call,
        name: &str,
        entry: &StoredEntry,
        old: &Working,
    ) -> Result<AdmittedDelete, Status> {
        self.run_mutating(call, Operation::Delete, name, None, Some(old)).await?;
        self.run_validating(call, Operation::Delete, name, None, Some(old)).await?;
        Ok(AdmittedDelete::of(entry))
    }

    /// Allocates the cluster IPs and node ports of a Service; `None` for other kinds.
    async fn allocate(
        &self,
        call: &Call,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<Option<AddressClaims>, Status> {
        if !self.is_service() || !matches!(self.subresource, Subresource::None) {
            return Ok(None);
        }
        // An unreadable Service may own addresses, which must not be allocated twice.
        self.state.storage.unreadable.check(&Concern::Addresses)?;
        Ok(Some(self.state.addresses.allocate(&call.effort, object, old, self.dry_run).await?))
    }
}

/// The stored form of an object if defaults have changed it.
fn changed(stored: Option<&(StoredObject, bool)>) -> Option<&Value> {
    stored.filter(|(_, is_changed)| *is_changed).map(|(stored, _)| &**stored)
}

/// Releases what was allocated for a Service that is refused.
async fn revert(address_claims: Option<AddressClaims>, status: Status) -> Status {
    if let Some(address_claims) = address_claims {
        address_claims.revert().await;
    }
    status
}

/// Upper limit of errors in one response, so that its size does not depend on the number of mistakes.
const MAX_ERRORS: usize = 500;

/// Upper limit of bytes of errors in one response; the first error is included whatever its length.
const MAX_ERROR_BYTES: usize = 1 << 20;

/// Truncates errors to [`MAX_ERRORS`] and [`MAX_ERROR_BYTES`].
fn truncate_errors(errors: &FieldErrors) -> &[FieldError] {
    let mut bytes = 0;
    let fits = |error: &&FieldError| {
        let has_room = bytes <= MAX_ERROR_BYTES;
        bytes += error.body().len();
        has_room
    };
    let count = errors.iter().take(MAX_ERRORS).take_while(fits).count();
    errors.get(..count).unwrap_or_default()
}

fn refuse_invalid(
    context: &WriteContext<'_>,
    object: &Value,
    name: &str,
    errors: &FieldErrors,
) -> Result<(), Status> {
    if errors.is_empty() {
        return Ok(());
    }
    let shown = truncate_errors(errors);
    if context.kind.row().is_none() {
        // Use the group and kind that the object names: they may be wrong, which is then one of the errors.
        return Err(Status::invalid_with_repeats(&meta::gvk(object).group_kind(), name, shown));
    }
    let kind = context.kind.stored.group_kind();
    // CRD validation reports duplicate errors as often as kube-apiserver does.
    if kind.group == "apiextensions.k8s.io" {
        return Err(Status::invalid_with_repeats(&kind, name, shown));
    }
    Err(Status::invalid(&kind, name, shown))
}

#[cfg(test)]
mod tests;
