//! Builds the SubjectAccessReview to send.

use authn::User;
use value::{Map, Str, Value, write};

use crate::attributes::AuthorizationAttributes;
use crate::conditions::selector;
use crate::config::SubjectAccessReviewVersion;

/// The `spec` of the review, without empty fields. Its text is the key of the cache.
pub(super) fn spec(
    user: &User,
    attributes: &AuthorizationAttributes,
    version: SubjectAccessReviewVersion,
) -> Value {
    let strings = |list: &[Str]| Value::List(list.iter().cloned().map(Value::String).collect());
    let mut out = Map::with_capacity(5);
    if !user.extra.is_empty() {
        out.insert("extra", Value::Map(user.extra.iter().map(|(k, v)| (k.clone(), strings(v))).collect()));
    }
    if !user.groups.is_empty() {
        let field = if version == SubjectAccessReviewVersion::V1 { "groups" } else { "group" };
        out.insert(field, strings(&user.groups));
    }
    let texts = |fields: &[(&'static str, &Str)]| -> Map {
        let non_empty = fields.iter().filter(|(_, text)| !text.is_empty());
        non_empty.map(|(field, text)| (Str::new_static(field), Value::String((*text).clone()))).collect()
    };
    if attributes.is_resource {
        let mut resource = texts(&[
            ("group", &attributes.group),
            ("name", &attributes.name),
            ("namespace", &attributes.namespace),
            ("resource", &attributes.resource),
            ("subresource", &attributes.subresource),
            ("verb", &attributes.verb),
            ("version", &attributes.version),
        ]);
        for (field, part) in [("fieldSelector", &attributes.fields), ("labelSelector", &attributes.labels)] {
            if !part.requirements.is_empty() {
                resource.insert(field, selector(part));
            }
        }
        out.insert("resourceAttributes", resource);
    } else {
        let path = texts(&[("path", &attributes.path), ("verb", &attributes.verb)]);
        out.insert("nonResourceAttributes", path);
    }
    if !user.uid.is_empty() {
        out.insert("uid", user.uid.clone());
    }
    if !user.name.is_empty() {
        out.insert("user", user.name.clone());
    }
    Value::Map(out)
}

pub(super) fn body(spec: Value, version: SubjectAccessReviewVersion) -> Vec<u8> {
    let mut out = Map::with_capacity(5);
    out.insert("apiVersion", api_version(version));
    out.insert("kind", "SubjectAccessReview");
    out.insert("metadata", Map::new());
    out.insert("spec", spec);
    out.insert("status", Value::map([("allowed", false)]));
    write::to_vec(&Value::Map(out))
}

pub(super) fn api_version(version: SubjectAccessReviewVersion) -> &'static str {
    match version {
        SubjectAccessReviewVersion::V1 => "authorization.k8s.io/v1",
        SubjectAccessReviewVersion::V1Beta1 => "authorization.k8s.io/v1beta1",
    }
}
