//! The frames of a watch: each event is one line of JSON.

use api::Status;
use crd::columns::TableAllowance;
use requests::negotiate::ObjectForm;
use storage::StoredEntry;
use value::{Budget, Value};

use super::Sender;
use crate::respond;
use crate::table::{self, TableOptions, TableRequest};

/// The body of an entry without its line feed.
pub(super) fn trimmed(entry: &StoredEntry) -> &[u8] {
    entry.body.get(..entry.body.len().saturating_sub(1)).unwrap_or_default()
}

pub(super) fn frame(out: &mut Vec<u8>, word: &str, object: &[u8]) {
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(word.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    out.extend_from_slice(object);
    out.extend_from_slice(b"}\n");
}

impl Sender {
    /// Adds a bookmark. With `initial_end` it marks the end of the initial events.
    pub(super) fn bookmark(&mut self, revision: u64, initial_end: bool) {
        let mut metadata = Value::map([("resourceVersion", revision.to_string())]);
        if initial_end {
            metadata.set_at(&["annotations", "k8s.io/initial-events-end"], "true");
        }
        let mut object = Value::map([
            ("kind", Value::from(self.kind.gvk.kind.clone())),
            ("apiVersion", Value::from(self.kind.gvk.api_version())),
        ]);
        object.set_at(&["metadata"], metadata);
        let object = match self.form {
            ObjectForm::Object => self.kind.shapes().fill_metadata(object),
            ObjectForm::Metadata(version, _) => table::partial(&object, version),
            ObjectForm::Table(version) => {
                let options =
                    TableOptions { headers: !std::mem::replace(&mut self.headed, true), ..self.table };
                let metadata = Value::map([("resourceVersion", revision.to_string())]);
                let allowance = &TableAllowance::new(&Budget::UNLIMITED);
                let request = TableRequest { version, options, now: self.now, allowance };
                table::table(&self.kind, std::slice::from_ref(&object), metadata, request)
            }
        };
        let mut out = Vec::new();
        frame(&mut out, "BOOKMARK", &self.json(&object));
        self.out.extend_from_slice(&out);
    }

    fn json(&self, value: &Value) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        respond::order_of(Some(&self.kind), value).write(&mut out, value);
        out
    }

    pub(super) fn error(&mut self, status: &Status) {
        let mut out = Vec::new();
        frame(&mut out, "ERROR", &self.json(&status.to_value()));
        self.out.extend_from_slice(&out);
    }
}
