//! The values that kube-apiserver stores in etcd, and their conversion from and to the records of the store.
//!
//! | resources | written as | read |
//! |---|---|---|
//! | built-in | protobuf or as `--storage-media-type` says, in Kubernetes' storage version | protobuf, JSON, YAML, and base64 of these, in every version that Kubernetes 1.37 reads |
//! | CustomResourceDefinition | JSON, `apiextensions.k8s.io/v1beta1` | JSON, v1beta1 and v1 |
//! | APIService | JSON, v1 | as built-in |
//! | custom | JSON in the CRD's storage version | JSON |
//! | `masterleases`, `peerserverleases`, `ranges`, `portcullis-quota-fences` | protobuf, v1 | as built-in |
//!
//! Other keys belong to other programs: they are neither read nor changed. A value that cannot be decoded becomes a record whose body
//! states why ([`encode::unreadable`]).

mod crd;
mod go_json;
#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use api::{GroupVersion, GroupVersionKind, meta};
use bytes::Bytes;
use etcd::ValueCodec;
use kinds::convert::stored::stored_version;
use kinds::strategy::service::{self, Family};
use kinds::table::{self, KindStorage, Resource};
use storage::Record;
use value::go::base64::STD;
use value::{Value, json, write, yaml};

use crate::unreadable::DecodeFailures;
use crate::{Sent, ServedResource, StoredObject};
use crate::{encode, keys};

const PROTOBUF: &[u8] = b"k8s\0";
/// Values that `--encryption-provider-config` of kube-apiserver has encrypted begin with this.
const ENCRYPTED: &[u8] = b"k8s:enc:";

/// The encoding of new values of built-in resources (`--storage-media-type`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StorageMediaType {
    #[default]
    Protobuf,
    Json,
    Yaml,
}

impl StorageMediaType {
    /// The names in the order in which Kubernetes lists them.
    pub const ALL: [(&'static str, StorageMediaType); 3] = [
        ("application/json", StorageMediaType::Json),
        ("application/vnd.kubernetes.protobuf", StorageMediaType::Protobuf),
        ("application/yaml", StorageMediaType::Yaml),
    ];
}

/// The owner of a key, which decides how its value is encoded.
enum KeyOwner {
    BuiltIn(&'static BuiltInValues),
    Custom,
    /// The server itself: objects of this core kind that are not served.
    Server(&'static str),
    /// Another program, which stores something unknown here.
    Foreign,
}

/// A stored built-in resource.
struct BuiltInValues {
    row: &'static Resource,
    /// The shape in which the store holds its objects.
    kind: ServedResource,
    /// The version in the values that are written.
    label: GroupVersionKind,
}

/// All stored built-in resources by their key prefix.
static BUILT_IN: LazyLock<HashMap<String, BuiltInValues>> = LazyLock::new(|| {
    let rows = table::all().filter_map(|row| {
        let KindStorage::Own(version) = row.storage else { return None };
        let kind = ServedResource::of_row(row, version)?;
        let label = GroupVersionKind::new(row.group, row.hashed_version.unwrap_or(version), row.kind);
        Some((keys::prefix(row)?, BuiltInValues { row, kind, label }))
    });
    rows.collect()
});

fn owner(key: &str) -> KeyOwner {
    let Some(below) = key.strip_prefix(keys::ROOT) else { return KeyOwner::Foreign };
    match below.split_once('/') {
        Some(("ranges", _)) => return KeyOwner::Server("RangeAllocation"),
        Some(("masterleases" | "peerserverleases", _)) => return KeyOwner::Server("Endpoints"),
        Some(("portcullis-quota-fences", _)) => return KeyOwner::Server("ConfigMap"),
        _ => {}
    }
    let Some(prefix) = keys::prefix_end(key).and_then(|end| key.get(..end)) else { return KeyOwner::Foreign };
    match BUILT_IN.get(prefix) {
        Some(built_in) => KeyOwner::BuiltIn(built_in),
        // The group of a custom resource contains a dot. Without one, it is a built-in resource that this server does not know.
        None if keys::custom_resource(prefix).is_some_and(|(group, _)| group.contains('.')) => {
            KeyOwner::Custom
        }
        None => KeyOwner::Foreign,
    }
}

/// The group and the resource of the object at a key, as kube-apiserver's metrics of etcd name them. `None` as in [`resource_at`].
pub fn resource_names_at(key: &str) -> Option<(&str, &str)> {
    match owner(key) {
        KeyOwner::BuiltIn(built_in) => Some((built_in.row.group, built_in.row.plural)),
        KeyOwner::Custom => keys::custom_resource(key.get(..keys::prefix_end(key)?)?),
        KeyOwner::Server(_) => {
            let below = key.strip_prefix(keys::ROOT)?;
            let resource = match below.split('/').next()? {
                "masterleases" => "apiServerIPInfo",
                "peerserverleases" => "apiServerPeerIPInfo",
                "portcullis-quota-fences" => "portcullisQuotaFences",
                _ if key == keys::NODE_PORTS => "servicenodeportallocations",
                _ => "serviceipallocations",
            };
            Some(("", resource))
        }
        KeyOwner::Foreign => None,
    }
}

/// The resource of the object at a key, such as `deployments.apps`; the directory for keys of the servers themselves. `None` if the key
/// belongs to another program or to a built-in resource that this server does not know.
pub fn resource_at(key: &str) -> Option<String> {
    let named = |plural: &str, group: &str| {
        if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
    };
    match owner(key) {
        KeyOwner::BuiltIn(built_in) => Some(named(built_in.row.plural, built_in.row.group)),
        KeyOwner::Custom => {
            let prefix = keys::prefix_end(key).and_then(|end| key.get(..end))?;
            keys::custom_resource(prefix).map(|(group, plural)| named(plural, group))
        }
        KeyOwner::Server(_) => key.strip_prefix(keys::ROOT)?.split('/').next().map(str::to_owned),
        KeyOwner::Foreign => None,
    }
}

/// The codec of a store in etcd.
#[derive(Debug, Default)]
pub struct KubernetesValues {
    pub media_type: StorageMediaType,
    /// The family that Services without one have.
    pub primary_family: Family,
    pub failures: Arc<DecodeFailures>,
}

impl KubernetesValues {
    /// Reports whether a value has the media type and the version in which this server would write it.
    fn is_current_form(&self, built_in: &BuiltInValues, value: &[u8], group: &str, version: &str) -> bool {
        let (media_type, expected) = match (built_in.row.group, built_in.row.kind) {
            ("apiextensions.k8s.io", "CustomResourceDefinition") => (StorageMediaType::Json, "v1beta1"),
            ("apiregistration.k8s.io", "APIService") => (StorageMediaType::Json, "v1"),
            _ => (self.media_type, built_in.label.version.as_str()),
        };
        media_type_of(value) == Some(media_type) && group == built_in.row.group && version == expected
    }

    /// Decodes a value of a built-in kind: any media type, any version, with the defaults of today.
    fn decode_built_in(&self, built_in: &BuiltInValues, value: &[u8]) -> Result<Record, String> {
        let mut object = tree(value)?;
        let (group, version) = split(&object)?;
        let is_current =
            self.is_current_form(built_in, value, &group, &version) && !is_new_claim(built_in, &object);
        let named = object.str_at(&["kind"]).unwrap_or_default().to_owned();
        let named = named.as_str();
        let wrong = || {
            let (row, found) = (built_in.row, GroupVersionKind::new(group.clone(), version.clone(), named));
            format!("no conversion from {found} to {}", GroupVersionKind::new(row.group, "*", row.kind))
        };
        if named != built_in.row.kind {
            return Err(wrong());
        }
        if (built_in.row.group, named) == ("apiextensions.k8s.io", "CustomResourceDefinition")
            && version == "v1beta1"
        {
            crd::from_v1beta1(&mut object);
        } else if table::find_kind(&group, &version, named).is_none() {
            stored_version(&group, &version, named).ok_or_else(wrong)?.convert(&mut object);
        }
        let (group, version) = split(&object)?;
        let row = table::find_kind(&group, &version, named).ok_or_else(wrong)?;
        let kind = ServedResource::of_row(row, &version).ok_or_else(wrong)?;
        if kind.stored != built_in.kind.stored {
            return Err(wrong());
        }
        let outcome = schema::decode::normalize(&mut object, kind.schema());
        if let Some(error) = outcome.type_error(b"") {
            return Err(error);
        }
        let shapes = kind.shapes();
        let working = shapes.to_working(Sent::decoded(object));
        let mut working = working.map_err(|status| status.message().to_owned())?;
        shapes.normalize(&mut working);
        schema::decode::fill(&mut working, kind.stored_schema());
        match (built_in.row.group, named) {
            ("", "Service") => service::default_on_read(&mut working, self.primary_family),
            ("apps", "DaemonSet") => template_generation(&mut working),
            _ => {}
        }
        working.remove_at(&["metadata", "resourceVersion"]);
        let stored = shapes.to_stored_built_in(&working).ok_or_else(wrong)?;
        Ok(if is_current {
            built_in.kind.record(&stored)
        } else {
            built_in.kind.record_of_other_form(&stored)
        })
    }
}

/// The media type of a value; `None` for base64.
fn media_type_of(value: &[u8]) -> Option<StorageMediaType> {
    if value.starts_with(PROTOBUF) {
        return Some(StorageMediaType::Protobuf);
    }
    match value.trim_ascii_start().first() {
        Some(b'{') => Some(StorageMediaType::Json),
        // Only text with a colon is a map in YAML, and base64 has none.
        _ => value.contains(&b':').then_some(StorageMediaType::Yaml),
    }
}

const CLAIM_PHASE: &[&str] = &["status", "phase"];

/// kube-apiserver adds the phase of a PersistentVolumeClaim when it reads one, and stores it with the first update.
fn is_new_claim(built_in: &BuiltInValues, object: &Value) -> bool {
    is_claim(built_in) && object.str_at(CLAIM_PHASE).unwrap_or_default().is_empty()
}

fn is_claim(built_in: &BuiltInValues) -> bool {
    (built_in.row.group, built_in.row.kind) == ("", "PersistentVolumeClaim")
}

/// The generation of the pod template is an annotation, which Kubernetes shows also if it was never counted.
fn template_generation(daemon_set: &mut Value) {
    const ANNOTATION: &[&str] = &["metadata", "annotations", "deprecated.daemonset.template.generation"];
    if daemon_set.at(ANNOTATION).is_none() {
        daemon_set.set_at(ANNOTATION, "0");
    }
}

impl ValueCodec for KubernetesValues {
    fn encode(&self, key: &str, record: &Record) -> Result<Bytes, String> {
        encode_object(&owner(key), key, stored_object(record)?, self.media_type)
    }

    fn encode_new(&self, key: &str, record: &Record) -> Result<Bytes, String> {
        let (owner, mut object) = (owner(key), stored_object(record)?);
        let is_new_claim = matches!(owner, KeyOwner::BuiltIn(built_in) if is_claim(built_in));
        if is_new_claim && object.str_at(CLAIM_PHASE) == Some("Pending") {
            object.remove_at(CLAIM_PHASE);
        }
        encode_object(&owner, key, object, self.media_type)
    }

    fn decode(&self, key: &str, revision: u64, value: &Bytes) -> Option<Record> {
        let decoded = match owner(key) {
            KeyOwner::BuiltIn(built_in) => self.decode_built_in(built_in, value),
            KeyOwner::Custom => decode_custom(value),
            KeyOwner::Server(kind) => decode_server_key(kind, value),
            KeyOwner::Foreign => return None,
        };
        Some(decoded.unwrap_or_else(|why| {
            self.failures.add(key, revision);
            encode::unreadable(&if value.starts_with(ENCRYPTED) {
                // Kubernetes states no revision here.
                format!("data from the storage is not transformable revision=0: {why}")
            } else {
                format!("object not decodable revision={revision}: {why}")
            })
        }))
    }
}

/// The object of a record, without its revision.
fn stored_object(record: &Record) -> Result<Value, String> {
    let mut object = json::parse_wrapped(&record.body).map_err(|error| error.to_string())?;
    object.remove_at(&["metadata", "resourceVersion"]);
    Ok(object)
}

fn encode_object(
    owner: &KeyOwner,
    key: &str,
    object: Value,
    media_type: StorageMediaType,
) -> Result<Bytes, String> {
    match owner {
        KeyOwner::BuiltIn(built_in) => encode_built_in(built_in, object, media_type),
        KeyOwner::Custom => {
            let mut value = write::to_vec(&object);
            value.push(b'\n');
            Ok(value.into())
        }
        KeyOwner::Server(kind) => {
            let gvk = GroupVersionKind::new("", "v1", *kind);
            schema::protobuf::encode(&gvk, &object).map(Bytes::from)
        }
        KeyOwner::Foreign => Err(format!("no resource is stored at {key}")),
    }
}

fn encode_built_in(
    built_in: &BuiltInValues,
    mut object: Value,
    media_type: StorageMediaType,
) -> Result<Bytes, String> {
    let BuiltInValues { row, kind, label } = built_in;
    match (row.group, row.kind) {
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            let object = crd::to_v1beta1(object);
            return Ok(go_json::crd(&object).into());
        }
        ("apiregistration.k8s.io", "APIService") => return Ok(go_json::api_service(&object).into()),
        _ => {}
    }
    match media_type {
        StorageMediaType::Protobuf => {
            schema::protobuf::encode_as(label, &kind.stored, &object).map(Bytes::from)
        }
        StorageMediaType::Json => {
            object.set_at(&["apiVersion"], label.api_version());
            let mut value = write::to_vec(&object);
            value.push(b'\n');
            Ok(value.into())
        }
        StorageMediaType::Yaml => {
            object.set_at(&["apiVersion"], label.api_version());
            Ok(yaml::write(&object).into())
        }
    }
}

/// The group and the version that an object names.
fn split(object: &Value) -> Result<(value::Str, value::Str), String> {
    let api_version = object.str_at(&["apiVersion"]).unwrap_or_default();
    let GroupVersion { group, version } = GroupVersion::parse(api_version)?;
    if version.is_empty() || object.str_at(&["kind"]).is_none_or(str::is_empty) {
        return Err("Object 'Kind' or 'apiVersion' is missing".to_owned());
    }
    Ok((group, version))
}

/// Parses a value of any media type.
fn tree(value: &[u8]) -> Result<Value, String> {
    if let Some(tree) = tree_of_text(value)? {
        return Ok(tree);
    }
    // kube-apiserver 1.5 and earlier stored base64.
    let decoded = STD.decode(value.trim_ascii()).map_err(|error| error.to_string())?;
    tree_of_text(&decoded)?.ok_or_else(|| "neither protobuf nor JSON nor YAML".to_owned())
}

/// `None` if the value is neither protobuf nor an object in JSON or YAML.
fn tree_of_text(value: &[u8]) -> Result<Option<Value>, String> {
    if value.starts_with(ENCRYPTED) {
        return Err("identity transformer tried to read encrypted data".to_owned());
    }
    if value.starts_with(PROTOBUF) {
        return schema::protobuf::read_stored(value, layout_of).map(Some);
    }
    let is_json = value.trim_ascii_start().first() == Some(&b'{');
    let parsed = if is_json {
        json::parse_wrapped(value).map_err(|error| error.to_string())?
    } else {
        match yaml::parse_wrapped(value) {
            Ok(parsed) => parsed,
            Err(_) => return Ok(None),
        }
    };
    Ok(parsed.as_map().is_some().then_some(parsed))
}

/// The kind whose messages have the layout of a stored kind's.
fn layout_of(gvk: &GroupVersionKind) -> GroupVersionKind {
    match stored_version(&gvk.group, &gvk.version, &gvk.kind) {
        Some(stored)
            if !stored.has_own_schema && table::find_kind(&gvk.group, &gvk.version, &gvk.kind).is_none() =>
        {
            GroupVersionKind::new(stored.read_as.0, stored.read_as.1, gvk.kind.clone())
        }
        _ => gvk.clone(),
    }
}

/// Decodes a custom resource as it is. Its CRD is not needed: readers convert it to the schema in force.
fn decode_custom(value: &[u8]) -> Result<Record, String> {
    if value.starts_with(ENCRYPTED) {
        return Err("identity transformer tried to read encrypted data".to_owned());
    }
    let mut object = json::parse_wrapped(value).map_err(|error| error.to_string())?;
    let (group, version) = split(&object)?;
    object.remove_at(&["metadata", "resourceVersion"]);
    if meta::name(&object).is_empty() {
        return Err("metadata.name is missing".to_owned());
    }
    let kind = object.str_at(&["kind"]).unwrap_or_default().to_owned();
    let head = encode::sorted_head(&GroupVersion::new(group, version).to_string(), &kind);
    Ok(ServedResource::custom_record(&head, &StoredObject::of_unknown_crd(object)))
}

/// Decodes an object that the server itself keeps.
fn decode_server_key(kind: &str, value: &[u8]) -> Result<Record, String> {
    let mut object = tree(value)?;
    object.remove_at(&["metadata", "resourceVersion"]);
    Ok(encode::record(&encode::head("v1", kind), &object, Vec::new()))
}
