//! What admission says besides yes or no: warnings for the client and annotations for the audit log.

use value::Str;

/// Collected while a request passes the chain. They count even when it ends in a refusal.
#[derive(Debug, Default)]
pub struct Notes {
    /// Texts of `Warning` headers, in order.
    pub warnings: Vec<String>,
    /// Audit annotations, in order; of two with one key the first counts.
    pub annotations: Vec<(Str, String)>,
}

impl Notes {
    /// Warns the client.
    pub fn warn(&mut self, text: impl Into<String>) {
        self.warnings.push(text.into());
    }

    /// Annotates the audit event.
    pub fn annotate(&mut self, key: impl Into<Str>, value: impl Into<String>) {
        self.annotations.push((key.into(), value.into()));
    }
}
