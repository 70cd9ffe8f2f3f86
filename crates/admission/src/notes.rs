//! Warnings for the client and audit annotations that plugins produce.

use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use value::Str;
use value::text::first_bytes;

use crate::AdmissionFuture;

/// A response has at most so many characters of warnings, as in kube-apiserver. If there are more, each warning is cut to
/// [`MAX_CUT_WARNING`] characters, and those that still exceed the limit are left out.
const MAX_WARNING_CHARACTERS: usize = 4 << 10;
const MAX_CUT_WARNING: usize = 256;
/// Total bytes of the values of audit annotations. Further values are cut to [`MAX_CUT_ANNOTATION_BYTES`].
const MAX_ANNOTATION_BYTES: usize = 8 << 20;
const MAX_CUT_ANNOTATION_BYTES: usize = 1 << 10;

/// The lowest audit level at which an annotation is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AuditLevel {
    Metadata,
    /// For annotations that reveal content of the request body.
    Request,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditAnnotation {
    pub key: Str,
    pub value: String,
    pub level: AuditLevel,
}

/// Collected while a request passes the chain. They count even if the request is rejected.
#[derive(Debug, Default)]
pub struct AdmissionNotes {
    /// Texts of `Warning` headers, in order and without duplicates. Those that cannot be sent are left out.
    pub warnings: Vec<String>,
    /// In order. If a key occurs twice, the first value counts.
    pub annotations: Vec<AuditAnnotation>,
    /// The policies and webhook configurations from manifest files that were evaluated.
    pub manifests: EvaluatedManifests,
    /// Dropped after the request is answered and its write has ended.
    pub guards: Vec<Arc<dyn WriteGuard>>,
    /// The elements of `warnings`.
    known_warnings: HashSet<String>,
    /// Characters of all warnings after each is cut.
    cut_warning_characters: usize,
    /// Characters of all warnings.
    warning_characters: usize,
    annotation_bytes: usize,
}

/// Names of the policies and webhook configurations from manifest files that were evaluated, in order, for
/// the audit event (KEP-5793). Names can repeat: most requests are not audited, and deduplicating a thousand
/// policies would cost more than evaluating them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EvaluatedManifests {
    pub webhooks: Vec<Str>,
    pub policies: Vec<Str>,
}

impl EvaluatedManifests {
    /// An audit event lists at most this many distinct names.
    pub const MAX_LISTED: usize = 128;
    /// At most this many names are recorded of each kind. A name repeats only a few times per request, so
    /// this suffices for [`Self::MAX_LISTED`] distinct ones.
    const MAX_RECORDED: usize = Self::MAX_LISTED * 4;

    pub fn record_webhook(&mut self, configuration: &Str) {
        Self::add(&mut self.webhooks, configuration);
    }

    pub fn record_policy(&mut self, name: &Str) {
        Self::add(&mut self.policies, name);
    }

    fn add(names: &mut Vec<Str>, name: &Str) {
        if names.len() < Self::MAX_RECORDED {
            names.push(name.clone());
        }
    }
}

/// A resource that admission holds for a write. It is dropped when the request is answered and its write has ended, also if the client does
/// not wait for that.
pub trait WriteGuard: Debug + Send + Sync {
    /// Called immediately before the write is sent to the store. The error refuses the write.
    fn check(&self) -> AdmissionFuture<'_, Result<(), Status>>;

    /// How long the store may take; `None` for its own limit.
    fn time_limit(&self) -> Option<Duration>;

    /// The key that must be unchanged when the store decides the write; `None` if only the object counts.
    fn fence(&self) -> Option<WriteFence>;
}

/// A key of the store, and the revision of its last change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteFence {
    pub key: Str,
    pub revision: u64,
}

impl AdmissionNotes {
    /// Adds a warning, unless it is a duplicate or the response cannot contain it.
    pub fn warn(&mut self, text: impl Into<String>) {
        let text = text.into();
        // A header cannot carry control characters.
        if text.is_empty() || text.contains(char::is_control) || !self.can_send_warnings() {
            return;
        }
        if self.known_warnings.insert(text.clone()) {
            let characters = text.chars().count();
            self.warning_characters += characters;
            self.cut_warning_characters += characters.min(MAX_CUT_WARNING);
            self.warnings.push(text);
        }
    }

    /// Whether a response with the warnings so far has room for another one.
    pub(crate) fn can_send_warnings(&self) -> bool {
        self.warning_characters <= MAX_WARNING_CHARACTERS
            || self.cut_warning_characters < MAX_WARNING_CHARACTERS
    }

    /// Adds an audit annotation at level `Metadata`.
    pub fn annotate(&mut self, key: impl Into<Str>, value: impl Into<String>) {
        self.annotate_at_level(AuditLevel::Metadata, key, value);
    }

    pub fn annotate_at_level(&mut self, level: AuditLevel, key: impl Into<Str>, value: impl Into<String>) {
        let mut value = value.into();
        if self.annotation_bytes.saturating_add(value.len()) > MAX_ANNOTATION_BYTES {
            value.truncate(first_bytes(&value, MAX_CUT_ANNOTATION_BYTES).len());
        }
        self.annotation_bytes = self.annotation_bytes.saturating_add(value.len());
        self.annotations.push(AuditAnnotation { key: key.into(), value, level });
    }

    pub fn guard_write(&mut self, guard: Arc<dyn WriteGuard>) {
        self.guards.push(guard);
    }

    /// Appends the notes of a call that ran concurrently.
    pub fn extend(&mut self, other: AdmissionNotes) {
        other.warnings.into_iter().for_each(|text| self.warn(text));
        for AuditAnnotation { key, value, level } in other.annotations {
            self.annotate_at_level(level, key, value);
        }
        self.guards.extend(other.guards);
        other.manifests.webhooks.iter().for_each(|name| self.manifests.record_webhook(name));
        other.manifests.policies.iter().for_each(|name| self.manifests.record_policy(name));
    }
}

#[cfg(test)]
mod tests;
