//! Preparation and validation of written objects by the rules of their kind.

use api::FieldErrors;
use crd::ValidationFindings;
use kinds::strategy;
use kinds::validation::{self, ValidationContext, ValidationRules};
use value::Value;

use super::served_resource::{ResourceOrigin, ServedResource};
use super::subresource::Subresource;

/// The rules that a write of one resource must follow.
#[derive(Clone, Copy, Debug)]
pub struct WriteRules<'a> {
    resource: &'a ServedResource,
}

impl ServedResource {
    pub fn write_rules(&self) -> WriteRules<'_> {
        WriteRules { resource: self }
    }
}

impl WriteRules<'_> {
    /// Reports whether a PUT of a missing object creates it. Never through a subresource: policies, webhooks, quota and allocators that
    /// match creates of the resource would not see it.
    pub fn creates_on_update(&self, subresource: Subresource) -> bool {
        subresource == Subresource::None
            && self.resource.row().is_some()
            && strategy::allow_create_on_update(self.resource.strategy())
    }

    /// Reports whether a server-side apply to a missing object creates it: never through a subresource.
    pub fn creates_on_apply(subresource: Subresource) -> bool {
        subresource == Subresource::None
    }

    /// Validation rules of the kind. Those of the group in the path win where they are stricter than the stored kind's (events).
    fn validation(self) -> Option<&'static ValidationRules> {
        self.resource.row()?.behavior.rules.as_ref().or(self.resource.behavior().rules.as_ref())
    }

    /// Prepares an object for creation, before validation: strategies reset the fields that clients cannot set.
    pub fn prepare_create(&self, object: &mut Value, context: &strategy::StrategyContext) {
        match &self.resource.origin {
            ResourceOrigin::BuiltIn(_) => strategy::prepare_create(self.resource.strategy(), object, context),
            ResourceOrigin::Custom(custom) => custom.version.compiled().prepare_create(object),
        }
    }

    /// Prepares an object to replace `old` through a subresource, before validation.
    pub fn prepare_update(
        &self,
        subresource: Subresource,
        new: &mut Value,
        old: &Value,
        context: &strategy::StrategyContext,
    ) {
        match (&self.resource.origin, subresource) {
            (ResourceOrigin::Custom(custom), Subresource::Status) => {
                custom.version.compiled().prepare_status(new, old);
            }
            (ResourceOrigin::Custom(custom), _) => custom.version.compiled().prepare_update(new, old),
            (_, Subresource::None | Subresource::Scale) => {
                strategy::prepare_update(self.resource.strategy(), new, old, context);
            }
            (_, Subresource::Status) => {
                strategy::prepare_update_status(self.resource.strategy(), new, old, context);
            }
            (_, Subresource::Finalize) => strategy::prepare_namespace_finalize(new, old),
            (_, Subresource::Approval) => strategy::prepare_approval(new, old, context),
            (_, Subresource::EphemeralContainers) => strategy::prepare_ephemeral_containers(new, old),
            (_, Subresource::Resize) => strategy::prepare_resize(new, old),
        }
    }

    /// Validates a new object; returns errors, and warnings for the client.
    pub fn validate_create(&self, object: &Value, context: &ValidationContext) -> ValidationFindings {
        if let ResourceOrigin::Custom(custom) = &self.resource.origin {
            return custom.version.compiled().validate_create(object, context.bounds());
        }
        let errors = match self.validation() {
            Some(rules) => validation::bounded(&context.budget, || (rules.create)(object, context)),
            None => FieldErrors::new(),
        };
        let warnings_if_valid = self.resource.behavior().warnings_on_write(object, None);
        ValidationFindings { errors, warnings: Vec::new(), warnings_if_valid }
    }

    /// Validates an update through a subresource; returns errors, and warnings for the client.
    pub fn validate_update(
        &self,
        subresource: Subresource,
        new: &Value,
        old: &Value,
        context: &ValidationContext,
    ) -> ValidationFindings {
        if let ResourceOrigin::Custom(custom) = &self.resource.origin {
            let compiled = custom.version.compiled();
            return match subresource {
                Subresource::Status => compiled.validate_status(new, old, context.bounds()),
                _ => compiled.validate_update(new, old, context.bounds()),
            };
        }
        let errors = match self.validation() {
            None => FieldErrors::new(),
            Some(rules) => validation::bounded(&context.budget, || match subresource {
                Subresource::None | Subresource::Scale => (rules.update)(new, old, context),
                Subresource::Finalize => validation::core::namespace_finalize(new, old, context),
                Subresource::Status => (rules.update_status)(new, old, context),
                Subresource::Approval => validation::certificates::approval(new, old, context),
                Subresource::EphemeralContainers => {
                    validation::pod::update_ephemeral_containers(new, old, context)
                }
                Subresource::Resize => validation::pod::update_resize(new, old, context),
            }),
        };
        let warnings_if_valid = match subresource {
            Subresource::Status => self.resource.behavior().warnings_on_status(new),
            _ => self.resource.behavior().warnings_on_write(new, Some(old)),
        };
        ValidationFindings { errors, warnings: Vec::new(), warnings_if_valid }
    }

    /// Reports whether an update may omit `resourceVersion` and then replaces any revision.
    pub fn allows_unconditional_update(&self) -> bool {
        self.resource.row().is_some() && strategy::allow_unconditional_update(self.resource.strategy())
    }
}
