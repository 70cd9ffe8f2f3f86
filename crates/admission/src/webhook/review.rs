//! Writes an `AdmissionReview`, with fields in the order in which Kubernetes writes them.

use api::{GroupResource, GroupVersionKind};
use authn::User;
use value::{Str, Value, write};

use crate::AdmissionAttributes;
use crate::webhook::AdmissionReviewVersion;

/// A request as a webhook sees it: the kind and resource that its rules name, and the objects in that
/// version.
pub(super) struct ReviewInput<'a> {
    pub(super) kind: &'a GroupVersionKind,
    /// The resource that the webhook's rules matched.
    pub(super) resource: &'a GroupResource,
    pub(super) version: &'a str,
    /// For a namespace, its own name.
    pub(super) namespace: &'a str,
    /// `None` for a delete.
    pub(super) object: Option<&'a Value>,
    pub(super) old_object: Option<&'a Value>,
}

pub(super) fn review(
    version: AdmissionReviewVersion,
    uid: &str,
    attributes: &AdmissionAttributes<'_>,
    input: &ReviewInput<'_>,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(4096);
    out.extend_from_slice(b"{\"kind\":\"AdmissionReview\",\"apiVersion\":\"");
    out.extend_from_slice(version.api_version().as_bytes());
    out.extend_from_slice(b"\",\"request\":");
    let mut fields = JsonObjectWriter::begin(&mut out);
    fields.text("uid", uid);
    fields.kind("kind", input.kind);
    fields.resource("resource", input.resource, input.version);
    fields.text_if_any("subResource", &attributes.subresource);
    fields.kind("requestKind", &attributes.kind);
    fields.resource("requestResource", &attributes.resource, &attributes.version);
    fields.text_if_any("requestSubResource", &attributes.subresource);
    fields.text_if_any("name", &attributes.name);
    fields.text_if_any("namespace", input.namespace);
    fields.text("operation", attributes.operation.as_str());
    fields.user("userInfo", attributes.user);
    fields.value("object", input.object.unwrap_or(&Value::Null));
    fields.value("oldObject", input.old_object.unwrap_or(&Value::Null));
    fields.value("dryRun", &Value::Bool(attributes.dry_run));
    fields.value("options", attributes.options);
    fields.end();
    out.extend_from_slice(b"}\n");
    out
}

/// Writes the fields of a JSON object in call order.
struct JsonObjectWriter<'a> {
    out: &'a mut Vec<u8>,
    first: bool,
}

impl<'a> JsonObjectWriter<'a> {
    fn begin(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        JsonObjectWriter { out, first: true }
    }

    fn end(self) {
        self.out.push(b'}');
    }

    fn name(&mut self, name: &str) -> &mut Vec<u8> {
        if !std::mem::take(&mut self.first) {
            self.out.push(b',');
        }
        write::string(self.out, name);
        self.out.push(b':');
        self.out
    }

    fn text(&mut self, name: &str, text: &str) {
        write::string(self.name(name), text);
    }

    fn text_if_any(&mut self, name: &str, text: &str) {
        if !text.is_empty() {
            self.text(name, text);
        }
    }

    fn value(&mut self, name: &str, value: &Value) {
        write::write(self.name(name), value);
    }

    fn kind(&mut self, name: &str, kind: &GroupVersionKind) {
        let mut fields = JsonObjectWriter::begin(self.name(name));
        fields.text("group", &kind.group);
        fields.text("version", &kind.version);
        fields.text("kind", &kind.kind);
        fields.end();
    }

    fn resource(&mut self, name: &str, resource: &GroupResource, version: &str) {
        let mut fields = JsonObjectWriter::begin(self.name(name));
        fields.text("group", &resource.group);
        fields.text("version", version);
        fields.text("resource", &resource.resource);
        fields.end();
    }

    fn texts(&mut self, name: &str, texts: &[Str]) {
        if !texts.is_empty() {
            self.value(name, &Value::list(texts.iter().cloned()));
        }
    }

    fn user(&mut self, name: &str, user: &User) {
        let mut fields = JsonObjectWriter::begin(self.name(name));
        fields.text_if_any("username", &user.name);
        fields.text_if_any("uid", &user.uid);
        fields.texts("groups", &user.groups);
        if !user.extra.is_empty() {
            let extra =
                user.extra.iter().map(|(key, values)| (key.clone(), Value::list(values.iter().cloned())));
            fields.value("extra", &Value::map(extra));
        }
        fields.end();
    }
}
