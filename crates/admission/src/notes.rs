//! Warnings for the client and audit annotations that plugins produce.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use api::Status;
use value::Str;

use crate::BoxFuture;

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
    /// Texts of `Warning` headers, in order.
    pub warnings: Vec<String>,
    /// In order. If a key occurs twice, the first value counts.
    pub annotations: Vec<AuditAnnotation>,
    /// The policies and webhook configurations from manifest files that were evaluated.
    pub manifests: EvaluatedManifests,
    /// Dropped after the request is answered and its write has ended.
    pub guards: Vec<Arc<dyn WriteGuard>>,
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

/// A resource that admission holds for a write. It is dropped when the request is answered and its write has ended, also if the client does not
/// wait for that.
pub trait WriteGuard: Debug + Send + Sync {
    /// Called immediately before the write is sent to the store. The error refuses the write.
    fn check(&self) -> BoxFuture<'_, Result<(), Status>>;

    /// How long the store may take; `None` for its own limit.
    fn time_limit(&self) -> Option<Duration>;
}

impl AdmissionNotes {
    pub fn warn(&mut self, text: impl Into<String>) {
        self.warnings.push(text.into());
    }

    /// Adds an audit annotation at level `Metadata`.
    pub fn annotate(&mut self, key: impl Into<Str>, value: impl Into<String>) {
        self.annotate_at_level(AuditLevel::Metadata, key, value);
    }

    pub fn annotate_at_level(&mut self, level: AuditLevel, key: impl Into<Str>, value: impl Into<String>) {
        self.annotations.push(AuditAnnotation { key: key.into(), value: value.into(), level });
    }

    pub fn guard_write(&mut self, guard: Arc<dyn WriteGuard>) {
        self.guards.push(guard);
    }

    /// Appends the notes of a call that ran concurrently.
    pub fn extend(&mut self, other: AdmissionNotes) {
        self.warnings.extend(other.warnings);
        self.annotations.extend(other.annotations);
        self.guards.extend(other.guards);
        other.manifests.webhooks.iter().for_each(|name| self.manifests.record_webhook(name));
        other.manifests.policies.iter().for_each(|name| self.manifests.record_policy(name));
    }
}
