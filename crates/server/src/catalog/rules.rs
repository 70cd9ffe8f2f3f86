//! What a kind says of objects that are written: what becomes of them, and what is wrong with them.

use api::FieldErrors;
use resources::custom::Found;
use resources::strategy;
use resources::validation::{self, Context, Rules};
use value::Value;

use super::facet::Facet;
use super::kind::{Kind, Nature};

impl Kind {
    /// Whether a PUT of an object that does not exist creates it. It must name the object itself: nothing is ever created
    /// through a subresource, because policies, webhooks, quota and allocators that look at creates of the resource would not
    /// see it.
    pub fn creates_on_update(&self, facet: Facet) -> bool {
        facet == Facet::Whole
            && self.row().is_some()
            && strategy::allow_create_on_update(&self.stored.group_kind())
    }

    /// Whether a server-side apply to an object that does not exist creates it: never through a subresource.
    pub fn creates_on_apply(facet: Facet) -> bool {
        facet == Facet::Whole
    }

    /// The rules of the kind: those of the group in the path, where they are stricter than the stored kind's (events).
    pub fn rules(&self) -> Option<&'static Rules> {
        self.row()?;
        validation::rules(&self.gvk.group_kind()).or_else(|| validation::rules(&self.stored.group_kind()))
    }

    /// Makes an object a new one: what a create does to it before anybody judges it.
    pub fn prepare_create(&self, object: &mut Value, context: &strategy::Context) {
        match &self.nature {
            Nature::BuiltIn(_) => strategy::prepare_create(&self.stored.group_kind(), object, context),
            Nature::Custom(custom) => custom.version.compiled().prepare_create(object),
        }
    }

    /// Makes an object the successor of `old` through a facet.
    pub fn prepare_update(&self, facet: Facet, new: &mut Value, old: &Value, context: &strategy::Context) {
        let kind = self.stored.group_kind();
        match (&self.nature, facet) {
            (Nature::Custom(custom), Facet::Status) => custom.version.compiled().prepare_status(new, old),
            (Nature::Custom(custom), _) => custom.version.compiled().prepare_update(new, old),
            (_, Facet::Whole | Facet::Scale) => strategy::prepare_update(&kind, new, old, context),
            (_, Facet::Status) => strategy::prepare_update_status(&kind, new, old, context),
            (_, Facet::Finalize) => strategy::prepare_namespace_finalize(new, old),
            (_, Facet::Approval) => strategy::prepare_approval(new, old, context),
            (_, Facet::EphemeralContainers) => strategy::prepare_ephemeral_containers(new, old),
            (_, Facet::Resize) => strategy::prepare_resize(new, old),
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
        Found { errors, warnings: validation::warnings(&self.stored.group_kind(), object, None) }
    }

    /// What is wrong with a change through a facet, and what a client is told about one that is right.
    pub fn validate_update(&self, facet: Facet, new: &Value, old: &Value, context: &Context) -> Found {
        if let Nature::Custom(custom) = &self.nature {
            let compiled = custom.version.compiled();
            return match facet {
                Facet::Status => compiled.validate_status(new, old, context.bounds()),
                _ => compiled.validate_update(new, old, context.bounds()),
            };
        }
        let errors = match self.rules() {
            None => FieldErrors::new(),
            Some(rules) => validation::bounded(|| match facet {
                Facet::Whole | Facet::Scale => (rules.update)(new, old, context),
                Facet::Finalize => validation::core::namespace_finalize(new, old, context),
                Facet::Status => (rules.update_status)(new, old, context),
                Facet::Approval => validation::certificates::approval(new, old, context),
                Facet::EphemeralContainers => validation::pod::update_ephemeral_containers(new, old, context),
                Facet::Resize => validation::pod::update_resize(new, old, context),
            }),
        };
        let kind = self.stored.group_kind();
        let warnings = match facet {
            Facet::Status => strategy::warnings::on_update_status(&kind, new),
            _ => validation::warnings(&kind, new, Some(old)),
        };
        Found { errors, warnings }
    }

    /// Whether an update without a revision replaces whatever is there.
    pub fn allows_unconditional_update(&self) -> bool {
        self.row().is_some() && strategy::allow_unconditional_update(&self.stored.group_kind())
    }

    /// Drops the fields that are only written out, so that what was sent and what is stored compare.
    pub fn normalise(&self, object: &mut Value) {
        if self.row().is_some() {
            resources::decode::normalise(object, self.stored_schema());
        }
    }

    /// The same of an object in the version of the request.
    pub fn fill_shown(&self, object: &mut Value) {
        if let Nature::BuiltIn(built_in) = &self.nature {
            resources::decode::fill(object, built_in.schema);
        }
    }

    /// Adds the fields that are written out even when they are empty.
    pub fn fill(&self, object: &mut Value) {
        if self.row().is_some() {
            resources::decode::fill(object, self.stored_schema());
        }
    }

    /// An object with nothing but metadata, as bookmarks carry it: what Go writes even when it is empty is there.
    pub fn empty_with(&self, mut object: Value) -> Value {
        if let Nature::BuiltIn(built_in) = &self.nature {
            resources::decode::fill(&mut object, built_in.schema);
        }
        object
    }
}
