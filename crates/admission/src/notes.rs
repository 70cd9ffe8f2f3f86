//! What admission says besides yes or no: warnings for the client and annotations for the audit log.

use value::Str;

/// From which audit level on an annotation is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// `Metadata`.
    Metadata,
    /// `Request`: the annotation shows what is in the request's body.
    Request,
}

/// An annotation of the audit event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// The key.
    pub key: Str,
    /// The value.
    pub value: String,
    /// From which level on it is kept.
    pub level: Level,
}

/// Collected while a request passes the chain. They count even when it ends in a refusal.
#[derive(Debug, Default)]
pub struct Notes {
    /// Texts of `Warning` headers, in order.
    pub warnings: Vec<String>,
    /// Audit annotations, in order; of two with one key the first counts.
    pub annotations: Vec<Annotation>,
    /// What was evaluated that comes from manifest files.
    pub manifests: FromManifests,
    /// What must last until the request is answered.
    pub held: Vec<Held>,
}

/// The names of webhook configurations and policies of manifest files that were evaluated, in order. KEP-5793 has them in the audit
/// event. One that was evaluated more than once may be here as often: most requests are never audited, and looking each of a
/// thousand policies up among the others would cost them more than evaluating it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FromManifests {
    /// Webhook configurations.
    pub webhooks: Vec<Str>,
    /// Policies.
    pub policies: Vec<Str>,
}

impl FromManifests {
    /// The most different names that an audit event lists, before dots stand for the rest: it is no inventory.
    pub const MOST_LISTED: usize = 128;
    /// The most that are kept of either: nothing is evaluated more than a few times for one request, so what is listed is among
    /// them.
    const MOST_KEPT: usize = Self::MOST_LISTED * 4;

    /// A webhook of this configuration was asked.
    pub fn webhook(&mut self, configuration: &Str) {
        Self::add(&mut self.webhooks, configuration);
    }

    /// A policy was evaluated.
    pub fn policy(&mut self, name: &Str) {
        Self::add(&mut self.policies, name);
    }

    fn add(names: &mut Vec<Str>, name: &Str) {
        if names.len() < Self::MOST_KEPT {
            names.push(name.clone());
        }
    }
}

/// Something that its maker wants to see dropped when a request ends.
pub type Held = Box<dyn std::any::Any + Send + Sync>;

impl Notes {
    /// Warns the client.
    pub fn warn(&mut self, text: impl Into<String>) {
        self.warnings.push(text.into());
    }

    /// Annotates the audit event.
    pub fn annotate(&mut self, key: impl Into<Str>, value: impl Into<String>) {
        self.annotate_from(Level::Metadata, key, value);
    }

    /// Annotates the audit event where its level is at least this.
    pub fn annotate_from(&mut self, level: Level, key: impl Into<Str>, value: impl Into<String>) {
        self.annotations.push(Annotation { key: key.into(), value: value.into(), level });
    }

    /// Keeps something until the request is answered.
    pub fn hold(&mut self, held: Held) {
        self.held.push(held);
    }

    /// Adds what another part of the chain had to say.
    pub fn extend(&mut self, other: Notes) {
        self.warnings.extend(other.warnings);
        self.annotations.extend(other.annotations);
        self.held.extend(other.held);
        other.manifests.webhooks.iter().for_each(|name| self.manifests.webhook(name));
        other.manifests.policies.iter().for_each(|name| self.manifests.policy(name));
    }
}
