//! What a kind says of objects that are written: what becomes of them, and what is wrong with them.

use api::FieldErrors;
use crd::Found;
use kinds::strategy;
use kinds::validation::{self, Context, Rules};
use value::Value;

use super::served_resource::{Nature, ServedResource};
use super::subresource::Subresource;

impl ServedResource {
    /// Whether a PUT of an object that does not exist creates it. It must name the object itself: nothing is ever created
    /// through a subresource, because policies, webhooks, quota and allocators that look at creates of the resource would not
    /// see it.
    pub fn creates_on_update(&self, subresource: Subresource) -> bool {
        subresource == Subresource::None
            && self.row().is_some()
            && strategy::allow_create_on_update(self.strategy())
    }

    /// Whether a server-side apply to an object that does not exist creates it: never through a subresource.
    pub fn creates_on_apply(subresource: Subresource) -> bool {
        subresource == Subresource::None
    }

    /// The rules of the kind: those of the group in the path, where they are stricter than the stored kind's (events).
    pub fn rules(&self) -> Option<&'static Rules> {
        self.row()?.behavior.rules.as_ref().or(self.behavior().rules.as_ref())
    }

    /// Makes an object a new one: what a create does to it before anybody judges it.
    pub fn prepare_create(&self, object: &mut Value, context: &strategy::Context) {
        match &self.nature {
            Nature::BuiltIn(_) => strategy::prepare_create(self.strategy(), object, context),
            Nature::Custom(custom) => custom.version.compiled().prepare_create(object),
        }
    }

    /// Makes an object the successor of `old` through a subresource.
    pub fn prepare_update(
        &self,
        subresource: Subresource,
        new: &mut Value,
        old: &Value,
        context: &strategy::Context,
    ) {
        match (&self.nature, subresource) {
            (Nature::Custom(custom), Subresource::Status) => {
                custom.version.compiled().prepare_status(new, old);
            }
            (Nature::Custom(custom), _) => custom.version.compiled().prepare_update(new, old),
            (_, Subresource::None | Subresource::Scale) => {
                strategy::prepare_update(self.strategy(), new, old, context);
            }
            (_, Subresource::Status) => strategy::prepare_update_status(self.strategy(), new, old, context),
            (_, Subresource::Finalize) => strategy::prepare_namespace_finalize(new, old),
            (_, Subresource::Approval) => strategy::prepare_approval(new, old, context),
            (_, Subresource::EphemeralContainers) => strategy::prepare_ephemeral_containers(new, old),
            (_, Subresource::Resize) => strategy::prepare_resize(new, old),
        }
    }

    /// What is wrong with a new object, and what a client is told about one that is right.
    pub fn validate_create(&self, object: &Value, context: &Context) -> Found {
        if let Nature::Custom(custom) = &self.nature {
            return custom.version.compiled().validate_create(object, context.bounds());
        }
        let errors = match self.rules() {
            Some(rules) => validation::bounded(|| (rules.create)(object, context)),
            None => FieldErrors::new(),
        };
        Found { errors, warnings: self.behavior().warnings_on_write(object, None) }
    }

    /// What is wrong with a change through a subresource, and what a client is told about one that is right.
    pub fn validate_update(
        &self,
        subresource: Subresource,
        new: &Value,
        old: &Value,
        context: &Context,
    ) -> Found {
        if let Nature::Custom(custom) = &self.nature {
            let compiled = custom.version.compiled();
            return match subresource {
                Subresource::Status => compiled.validate_status(new, old, context.bounds()),
                _ => compiled.validate_update(new, old, context.bounds()),
            };
        }
        let errors = match self.rules() {
            None => FieldErrors::new(),
            Some(rules) => validation::bounded(|| match subresource {
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
        let warnings = match subresource {
            Subresource::Status => self.behavior().warnings_on_status(new),
            _ => self.behavior().warnings_on_write(new, Some(old)),
        };
        Found { errors, warnings }
    }

    /// Whether an update without a revision replaces whatever is there.
    pub fn allows_unconditional_update(&self) -> bool {
        self.row().is_some() && strategy::allow_unconditional_update(self.strategy())
    }

    /// An object with nothing but metadata, as bookmarks carry it: what Go writes even when it is empty is there.
    pub fn empty_with(&self, mut object: Value) -> Value {
        if let Nature::BuiltIn(built_in) = &self.nature {
            schema::decode::fill(&mut object, built_in.schema);
        }
        object
    }
}
