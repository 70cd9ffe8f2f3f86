//! Validation of StorageClass, VolumeAttributesClass, VolumeAttachment, CSIDriver, CSINode and CSIStorageCapacity.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use api::FieldErrors;
use api::field::FieldErrorKind;
use api::names;
use api::quantity::Quantity;
use api::validation::fields::{At, IMMUTABLE, NOT_NEGATIVE, Read, Report, same, supersede};
use api::validation::meta;
use api::validation::repeated::Repeated;
use value::{Map, Value};

use super::persistent_volume::volume_spec;
use super::pod::volume_sources::csi_driver_name;
use super::{ValidationContext, ValidationRules, internal_json, no_rules, optional_value, token_seconds};

pub(crate) const STORAGE_CLASS: ValidationRules =
    ValidationRules { create: storage_class, update: storage_class_update, update_status: no_rules };
pub(crate) const VOLUME_ATTRIBUTES_CLASS: ValidationRules =
    ValidationRules { create: attributes_class, update: attributes_class_update, update_status: no_rules };
pub(crate) const VOLUME_ATTACHMENT: ValidationRules =
    ValidationRules { create: attachment, update: attachment_update, update_status: attachment_update };
pub(crate) const CSI_DRIVER: ValidationRules =
    ValidationRules { create: driver, update: driver_update, update_status: no_rules };
pub(crate) const CSI_NODE: ValidationRules =
    ValidationRules { create: csi_node, update: csi_node_update, update_status: csi_node_status_update };
pub(crate) const CSI_STORAGE_CAPACITY: ValidationRules = ValidationRules {
    create: |object, _| capacity(object, false),
    update: capacity_update,
    update_status: no_rules,
};

const MAX_PARAMETERS: usize = 512;
const MAX_PARAMETERS_SIZE: usize = 256 << 10;
const MAX_METADATA_SIZE: usize = 256 << 10;
const MAX_ERROR_MESSAGE: usize = 1024;
const MAX_NODE_ID: usize = 256;
const MAX_DRIVER_NAME: usize = 63;

fn storage_class(class: &Value, _: &ValidationContext) -> FieldErrors {
    supersede(class_rules(class), declared_class(class, None))
}

fn storage_class_update(new: &Value, old: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = class_rules(new);
    errors.extend(meta::update(new, old));
    supersede(errors, declared_class(new, Some(old)))
}

fn class_rules(class: &Value) -> FieldErrors {
    let mut errors = meta::create(class, false, names::name_is_dns_subdomain);
    provisioner(class.text("provisioner"), &At::new("provisioner"), &mut errors);
    parameters(class.map_of("parameters"), true, &mut errors);
    let policy = class.text("reclaimPolicy");
    if !policy.is_empty() && !matches!(policy, "Delete" | "Retain") {
        errors.not_supported(&At::new("reclaimPolicy"), policy, &["Delete", "Retain"]);
    }
    let at = At::new("volumeBindingMode");
    match class.text_if_set("volumeBindingMode") {
        None => errors.required(&at, ""),
        Some("Immediate" | "WaitForFirstConsumer") => {}
        Some(other) => errors.not_supported(&at, other, &["Immediate", "WaitForFirstConsumer"]),
    }
    topologies(class.items("allowedTopologies"), &mut errors);
    errors
}

/// Declarative validation: provisioner, parameters, reclaim policy and binding mode are immutable; the provisioner is required.
fn declared_class(new: &Value, old: Option<&Value>) -> FieldErrors {
    let mut declared = FieldErrors::new();
    let Some(old) = old else {
        if new.text("provisioner").is_empty() {
            declared.required(&At::new("provisioner"), "");
        }
        return declared;
    };
    if new.text("provisioner") != old.text("provisioner") {
        if new.text("provisioner").is_empty() {
            declared.required(&At::new("provisioner"), "");
        }
        declared.invalid(&At::new("provisioner"), Value::Null, IMMUTABLE);
    }
    for field in ["parameters", "reclaimPolicy", "volumeBindingMode"] {
        if !same_map(new.part(field), old.part(field)) {
            declared.invalid(&At::new(field), Value::Null, IMMUTABLE);
        }
    }
    declared
}

/// Like [`same`], for fields that are maps in Go: an empty map equals an absent one.
fn same_map(a: Option<&Value>, b: Option<&Value>) -> bool {
    let is_there = |value: &&Value| value.as_map().is_none_or(|map| !map.is_empty());
    same(a.filter(is_there), b.filter(is_there))
}

fn provisioner(name: &str, at: &At<'_>, errors: &mut FieldErrors) {
    if name.is_empty() {
        errors.required(at, "");
    } else {
        let name = name.to_lowercase();
        errors.invalid_each(at, &name, names::is_qualified_name(&name));
    }
}

fn parameters(parameters: Option<&Map>, may_be_empty: bool, errors: &mut FieldErrors) {
    let at = At::new("parameters");
    let count = parameters.map_or(0, Map::len);
    if count > MAX_PARAMETERS {
        errors.too_long(&at, MAX_PARAMETERS);
        return;
    }
    let mut size = 0;
    for (key, value) in parameters.into_iter().flat_map(Map::iter) {
        if key.is_empty() {
            errors.invalid(&at, "", "field can not be empty.");
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > MAX_PARAMETERS_SIZE {
        errors.too_long(&at, MAX_PARAMETERS_SIZE);
    }
    if !may_be_empty && count == 0 {
        errors.required(&at, "must contain at least one key/value pair");
    }
}

fn topologies(terms: &[Value], errors: &mut FieldErrors) {
    let list = At::new("allowedTopologies");
    let mut earlier: HashMap<BTreeMap<&str, BTreeSet<&str>>, usize> = HashMap::new();
    for (i, term) in terms.iter().enumerate() {
        let at = list.index(i);
        let expressions = at.field("matchLabelExpressions");
        let mut values_of: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (j, requirement) in term.items("matchLabelExpressions").iter().enumerate() {
            let here = expressions.index(j);
            let values_at = here.field("values");
            let mut values = BTreeSet::new();
            if requirement.items("values").is_empty() {
                errors.required(&values_at, "");
            }
            for (k, value) in requirement.texts("values").enumerate() {
                if !values.insert(value) {
                    errors.duplicate(&values_at.index(k), value);
                }
            }
            let key = requirement.text("key");
            meta::label_name(key, &here.field("key"), errors);
            if values_of.insert(key, values).is_some() {
                errors.duplicate(&here.field("key"), key);
            }
        }
        // kube-apiserver compares with one empty slot per term, which equals every term without expressions.
        let empty = if values_of.is_empty() { terms.len() } else { 0 };
        let times = earlier.entry(values_of).or_default();
        // Every pair of equal terms is an error.
        for _ in 0..empty + *times {
            if errors.is_full() {
                break;
            }
            errors.duplicate(&expressions, "");
        }
        *times += 1;
    }
}

fn attributes_class(class: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::create(class, false, names::name_is_dns_subdomain);
    provisioner(class.text("driverName"), &At::new("driverName"), &mut errors);
    parameters(class.map_of("parameters"), false, &mut errors);
    errors
}

fn attributes_class_update(new: &Value, old: &Value, context: &ValidationContext) -> FieldErrors {
    let mut errors = meta::update(new, old);
    if new.text("driverName") != old.text("driverName") {
        errors.forbidden(&At::new("driverName"), "updates to driverName are forbidden.");
    }
    if !same_map(new.part("parameters"), old.part("parameters")) {
        errors.forbidden(&At::new("parameters"), "updates to parameters are forbidden.");
    }
    errors.extend(attributes_class(new, context));
    errors
}

fn attachment(object: &Value, context: &ValidationContext) -> FieldErrors {
    let errors = attachment_rules(object, context);
    let mut declared = FieldErrors::new();
    declared_attacher(object, &mut declared);
    // Declarative validation reports this field with another message.
    let mut errors = errors;
    errors.retain(|error| error.field != "spec.attacher");
    supersede(errors, declared)
}

fn attachment_update(new: &Value, old: &Value, context: &ValidationContext) -> FieldErrors {
    let mut errors = attachment_rules(new, context);
    let mut declared = FieldErrors::new();
    if !same(new.part("spec"), old.part("spec")) {
        errors.retain(|error| !(error.kind == FieldErrorKind::Invalid && error.field == "spec"));
        declared.invalid(&At::new("spec"), Value::Null, IMMUTABLE);
    }
    supersede(errors, declared)
}

fn declared_attacher(object: &Value, declared: &mut FieldErrors) {
    let name = object.part("spec").text("attacher");
    let at = At::new("spec.attacher");
    if name.is_empty() {
        declared.required(&at, "");
        return;
    }
    declared.invalid_each(&at, name, names::is_dns1123_subdomain_caseless(name));
    if name.chars().count() > MAX_DRIVER_NAME {
        let detail = format!("may not be more than {MAX_DRIVER_NAME} characters");
        declared.report(FieldErrorKind::TooLong, &at, None, detail);
    }
}

fn attachment_rules(object: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::create(object, false, names::name_is_dns_subdomain);
    let spec = object.part("spec");
    csi_driver_name(spec.text("attacher"), &At::new("spec.attacher"), &mut errors);
    let at = At::new("spec.source");
    let source = spec.part("source");
    let volume = source.text_if_set("persistentVolumeName");
    let words = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (source.part("inlineVolumeSpec"), volume) {
        (None, None) => errors.required(&at, words),
        (Some(_), Some(_)) => errors.forbidden(&at, words),
        (None, Some("")) => {
            errors.required(&at.field("persistentVolumeName"), "must specify non empty persistentVolumeName");
        }
        (None, Some(_)) => {}
        (Some(inline), None) => {
            volume_spec(Some(inline), "", true, false, &at.field("inlineVolumeSpec"), &mut errors);
        }
    }
    let node = spec.text("nodeName");
    errors.invalid_each(&At::new("spec.nodeName"), node, names::is_dns1123_subdomain(node));
    attachment_status(object.part("status"), &mut errors);
    if let Some(volume) = volume {
        errors.invalid_each(
            &At::new("spec.source.persistentVolumeName"),
            volume,
            names::is_dns1123_subdomain(volume),
        );
    }
    errors
}

fn attachment_status(status: Option<&Value>, errors: &mut FieldErrors) {
    let at = At::new("status");
    let size: usize =
        status.text_entries("attachmentMetadata").map(|(key, value)| key.len() + value.len()).sum();
    if size > MAX_METADATA_SIZE {
        errors.too_long(&at.field("attachmentMetadata"), MAX_METADATA_SIZE);
    }
    for field in ["attachError", "detachError"] {
        let Some(error) = status.part(field) else { continue };
        let here = at.field(field);
        if error.text("message").len() > MAX_ERROR_MESSAGE {
            errors.too_long(&here.field("message"), MAX_ERROR_MESSAGE);
        }
        if let Some(code) = error.number_if_set("errorCode")
            && code < 0
        {
            let detail = names::inclusive_range_error(0, i64::from(i32::MAX));
            errors.invalid(&here.field("errorCode"), code, detail);
        }
    }
}

fn driver(driver: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::create(driver, false, names::name_is_dns_subdomain);
    driver_spec(driver, &mut errors);
    errors
}

fn driver_update(new: &Value, old: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::update(new, old);
    driver_spec(new, &mut errors);
    let (spec, former) = (new.part("spec"), old.part("spec"));
    let at = At::new("spec");
    errors.immutable(
        &at.field("attachedRequired"),
        spec.part("attachRequired"),
        former.part("attachRequired"),
    );
    let field = "volumeLifecycleModes";
    errors.immutable(&at.field(field), spec.part(field), former.part(field));
    errors
}

fn driver_spec(driver: &Value, errors: &mut FieldErrors) {
    const POLICIES: [&str; 3] = ["File", "None", "ReadWriteOnceWithFSType"];
    let spec = driver.part("spec");
    let at = At::new("spec");
    let required = |field: &str, shown: &str, errors: &mut FieldErrors| {
        if spec.part(field).is_none() {
            errors.required(&at.field(shown), "");
        }
    };
    required("attachRequired", "attachedRequired", errors);
    required("podInfoOnMount", "podInfoOnMount", errors);
    required("storageCapacity", "storageCapacity", errors);
    optional_value(spec, "fsGroupPolicy", &POLICIES, &at, errors);
    token_requests(spec.items("tokenRequests"), errors);
    for mode in spec.texts("volumeLifecycleModes") {
        if !matches!(mode, "Persistent" | "Ephemeral") {
            errors.not_supported(&at.field("volumeLifecycleModes"), mode, &["Persistent", "Ephemeral"]);
        }
    }
    required("seLinuxMount", "seLinuxMount", errors);
    if let Some(period) = spec.number_if_set("nodeAllocatableUpdatePeriodSeconds")
        && period < 10
    {
        let here = at.field("nodeAllocatableUpdatePeriodSeconds");
        errors.invalid(&here, period, "must be greater than or equal to 10 seconds");
    }
    if let Some(in_secrets) = spec.flag_if_set("serviceAccountTokenInSecrets")
        && spec.items("tokenRequests").is_empty()
    {
        let detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        errors.invalid(&at.field("serviceAccountTokenInSecrets"), in_secrets, detail);
    }
    required("preventPodSchedulingIfMissing", "preventPodSchedulingIfMissing", errors);
}

fn token_requests(requests: &[Value], errors: &mut FieldErrors) {
    let list = At::new("spec.tokenRequests");
    let repeated = Repeated::of_field(requests, "audience");
    for (i, request) in requests.iter().enumerate() {
        let at = list.index(i);
        let audience = request.text("audience");
        if repeated.at(i) {
            errors.duplicate(&at.field("audience"), audience);
            continue;
        }
        let Some(seconds) = request.number_if_set("expirationSeconds") else { continue };
        token_seconds(seconds, &at.field("expirationSeconds"), errors);
    }
}

fn csi_node(node: &Value, _: &ValidationContext) -> FieldErrors {
    let mut errors = meta::create(node, false, names::name_is_dns_subdomain);
    let drivers = node.list_at(&["spec", "drivers"]);
    let list = At::new("spec.drivers");
    let repeated = Repeated::of_field(drivers, "name");
    for (i, driver) in drivers.iter().enumerate() {
        let at = list.index(i);
        let name = driver.text("name");
        csi_driver_name(name, &at.field("name"), &mut errors);
        let id = driver.text("nodeID");
        if id.is_empty() {
            errors.required(&at.field("nodeID"), "");
        }
        if id.len() > MAX_NODE_ID {
            errors.invalid(&at.field("nodeID"), id, format!("must be {MAX_NODE_ID} characters or less"));
        }
        if let Some(count) = driver.part("allocatable").number_if_set("count") {
            errors.not_negative(&at.field("allocatable.count"), count);
        }
        if repeated.at(i) {
            errors.duplicate(&at.field("name"), name);
        }
        let mut seen = BTreeSet::new();
        for key in driver.texts("topologyKeys") {
            if key.is_empty() {
                errors.required(&at, "");
            }
            if !seen.insert(key) {
                errors.duplicate(&at, key);
            }
            errors.invalid_each(&at, key, names::is_qualified_name(key));
        }
    }
    errors
}

fn csi_node_update(new: &Value, old: &Value, context: &ValidationContext) -> FieldErrors {
    let mut errors = csi_node(new, context);
    let without_allocatable = |driver: &Value| {
        let mut driver = driver.clone();
        driver.remove_at(&["allocatable"]);
        driver
    };
    let mut by_name: HashMap<&str, Vec<&Value>> = HashMap::new();
    for driver in new.list_at(&["spec", "drivers"]) {
        by_name.entry(driver.text("name")).or_default().push(driver);
    }
    for former in old.list_at(&["spec", "drivers"]) {
        // Removed, because names of a valid old object are unique: an invalid one must not be compared pairwise.
        for driver in by_name.remove(former.text("name")).into_iter().flatten() {
            let (former, driver) = (without_allocatable(former), without_allocatable(driver));
            if !same(Some(&former), Some(&driver)) {
                let shown = internal_json::compact("CSINodeDriver", Some(&driver));
                let detail = format!("{shown}: {IMMUTABLE}");
                errors.report(FieldErrorKind::Invalid, &At::new("spec.drivers"), None, detail);
            }
        }
    }
    errors
}

fn csi_node_status_update(new: &Value, old: &Value, _: &ValidationContext) -> FieldErrors {
    meta::update(new, old)
}

fn capacity(object: &Value, lenient: bool) -> FieldErrors {
    let mut errors = meta::create(object, true, names::name_is_dns_subdomain);
    meta::label_selector(object.part("nodeTopology"), lenient, &At::new("nodeTopology"), &mut errors);
    let class = object.text("storageClassName");
    errors.invalid_each(&At::new("storageClassName"), class, names::is_dns1123_subdomain(class));
    if let Some(Ok(amount)) = object.text_if_set("capacity").map(Quantity::parse)
        && amount.sign() < 0
    {
        errors.invalid(&At::new("capacity"), amount.to_string(), NOT_NEGATIVE);
    }
    errors
}

fn capacity_update(new: &Value, old: &Value, _: &ValidationContext) -> FieldErrors {
    let mut wrong = FieldErrors::new();
    meta::label_selector(old.part("nodeTopology"), false, &At::ROOT, &mut wrong);
    let mut errors = capacity(new, !wrong.is_empty());
    errors.extend(meta::update(new, old));
    if !same(new.part("nodeTopology"), old.part("nodeTopology")) {
        let shown = meta::label_selector_json(new.part("nodeTopology"));
        let detail = format!("{shown}: {IMMUTABLE}");
        errors.report(FieldErrorKind::Invalid, &At::new("nodeTopology"), None, detail);
    }
    if new.text("storageClassName") != old.text("storageClassName") {
        errors.invalid(&At::new("storageClassName"), new.text("storageClassName"), IMMUTABLE);
    }
    errors
}
