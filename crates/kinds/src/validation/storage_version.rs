//! Validation of StorageVersion: its name and the versions that each server encodes, decodes and serves.

use std::collections::{HashMap, HashSet};

use api::FieldErrors;
use api::names;
use api::validation::fields::{At, Read, Report};
use api::validation::meta;
use value::Value;

use super::{ValidationRules, no_rules};

pub(crate) const STORAGE_VERSION: ValidationRules = ValidationRules {
    create: |object, _| {
        let mut errors = meta::create(object, false, |name, _| object_name(name));
        status(object, &mut errors);
        errors
    },
    update: no_rules,
    update_status: |new, _, _| {
        let mut errors = FieldErrors::new();
        status(new, &mut errors);
        errors
    },
};

/// Served versions that are reported as not decodable. Each report lists all decodable versions, so more could fill the memory.
const MAX_MISSING: usize = 16;

/// The name is `<group>.<resource>`.
fn object_name(name: &str) -> Vec<String> {
    let Some((group, resource)) = name.rsplit_once('.') else {
        return vec!["name must be in the form of <group>.<resource>".to_owned()];
    };
    let group = names::is_dns1123_subdomain(group).into_iter().map(|why| format!("the group segment {why}"));
    let resource = names::is_dns1035_label(resource).into_iter();
    group.chain(resource.map(|why| format!("the resource segment {why}"))).collect()
}

fn status(object: &Value, errors: &mut FieldErrors) {
    let status = object.part("status");
    let at = At::new("status");
    let list = at.field("storageVersions");
    let mut servers = HashSet::new();
    for (i, server) in status.items("storageVersions").iter().enumerate() {
        let at = list.index(i);
        let id = server.text("apiServerID");
        if !servers.insert(id) {
            errors.duplicate(&at.field("apiServerID"), id);
        }
        server_versions(server, &at, errors);
    }
    common_version(status, errors);
    conditions(status.items("conditions"), errors);
}

fn server_versions(server: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    let id = server.text("apiServerID");
    errors.invalid_each(&at.field("apiServerID"), id, names::name_is_dns_subdomain(id, false));
    let mut version = |at: &At<'_>, version: &str| {
        let wrong = api_version(version);
        if !wrong.is_empty() {
            errors.invalid(at, version, wrong.join(","));
        }
    };
    let encoding = server.text("encodingVersion");
    version(&at.field("encodingVersion"), encoding);
    let list = at.field("decodableVersions");
    let decodable: HashSet<&str> = server.texts("decodableVersions").collect();
    for (i, decodable) in server.texts("decodableVersions").enumerate() {
        version(&list.index(i), decodable);
    }
    if !decodable.contains(&encoding) {
        let shown = server.part("decodableVersions").cloned().unwrap_or_default();
        errors.invalid(&list, shown, format!("decodableVersions must include encodingVersion {encoding}"));
    }
    let list = at.field("servedVersions");
    let shown = server.texts("decodableVersions").collect::<Vec<_>>().join(" ");
    let mut missing = 0;
    for (i, served) in server.texts("servedVersions").enumerate() {
        let wrong = api_version(served);
        if !wrong.is_empty() {
            errors.invalid(&list.index(i), served, wrong.join(","));
        }
        if !decodable.contains(served) && missing < MAX_MISSING {
            missing += 1;
            let detail = format!(
                "individual served version : {served} must be included in decodableVersions : [{shown}]"
            );
            errors.invalid(&list.index(i), served, detail);
        }
    }
}

/// Returns why a text is not `VERSION` or `GROUP/VERSION`.
fn api_version(text: &str) -> Vec<String> {
    const EMPTY: &str = "must be non-empty";
    let (group, version) = match text.split('/').collect::<Vec<_>>()[..] {
        [version] => (None, version),
        [group, version] => (Some(group), version),
        _ => {
            return vec![
                "an apiVersion is a DNS-1035 label, which must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyVersion')"
                    .to_owned(),
            ];
        }
    };
    let checked = |text: &str, part: &str, check: fn(&str) -> Vec<String>| {
        let wrong = if text.is_empty() { vec![EMPTY.to_owned()] } else { check(text) };
        wrong.into_iter().map(|why| format!("{part} part: {why}")).collect::<Vec<_>>()
    };
    let mut wrong = group.map_or(Vec::new(), |group| checked(group, "group", names::is_dns1123_subdomain));
    wrong.extend(checked(version, "version", names::is_dns1035_label));
    wrong
}

/// `commonEncodingVersion` is set exactly if all servers encode the same version.
fn common_version(status: Option<&Value>, errors: &mut FieldErrors) {
    let mut versions = status.items("storageVersions").iter().map(|server| server.text("encodingVersion"));
    let common = versions.next().filter(|first| versions.all(|other| other == *first));
    let at = At::new("status.commonEncodingVersion");
    match (common, status.text_if_set("commonEncodingVersion")) {
        (None, Some(stated)) => errors.invalid(
            &at,
            stated,
            "should be nil if servers do not agree on the same encoding version, or if there is no server reporting the supported versions yet",
        ),
        // Kubernetes prints an absent text so.
        (Some(common), None) => {
            errors.invalid(&at, "null", format!("the common encoding version is {common}"));
        }
        (Some(common), Some(stated)) if common != stated => {
            errors.invalid(&at, stated, format!("the actual common encoding version is {common}"));
        }
        _ => {}
    }
}

/// The paths omit `conditions`, as in kube-apiserver.
fn conditions(conditions: &[Value], errors: &mut FieldErrors) {
    let at = At::new("status");
    let mut seen: HashMap<&str, usize> = HashMap::new();
    for (i, condition) in conditions.iter().enumerate() {
        let at = at.index(i);
        let kind = condition.text("type");
        if let Some(former) = seen.insert(kind, i) {
            let detail =
                format!("the type of the condition is not unique, it also appears in conditions[{former}]");
            errors.invalid(&at.field("type"), kind, detail);
        }
        for field in ["type", "status"] {
            let text = condition.text(field);
            errors.invalid_each(&at.field(field), text, names::is_qualified_name(text));
        }
        for field in ["reason", "message"] {
            if condition.text(field).is_empty() {
                errors.required(&at.field(field), "");
            }
        }
    }
}
