//! Declarative validation by tables: the rules that Kubernetes states as `+k8s:` tags of its types.
//!
//! A [`DeclaredType`] lists the fields of a type with their rules. Rules skip fields that an update leaves unchanged. The first stage of a
//! field (feature, immutability, number of items, presence, allowed changes) reports all of its errors; only if there are none, the
//! content is checked.

use std::collections::{HashMap, HashSet};

use api::features::{Feature, Features};
use api::field::FieldErrorKind;
use api::validation::fields::{At, IMMUTABLE, Read, Report, same};
use api::validation::repeated::{Repeated, first_by};
use api::{FieldErrors, names};
use value::Value;

use super::resource_declared::{in_bytes, subdomain, unique};

/// A struct type with its rules.
pub(super) struct DeclaredType {
    /// The fields of which exactly one must be set; empty without such a rule.
    pub(super) union: &'static [&'static str],
    pub(super) fields: &'static [DeclaredField],
}

/// A field with its rules.
pub(super) struct DeclaredField {
    name: &'static str,
    shape: FieldShape,
    gate: FieldGate,
    required: bool,
    immutable: Immutability,
    max_items: Option<usize>,
    updates: &'static [UpdateRule],
    checks: &'static [Check],
}

enum FieldShape {
    /// A pointer to a scalar.
    Pointer,
    /// A scalar, whose zero value counts as unset.
    Plain,
    PointerTo(&'static DeclaredType),
    /// A struct, which is always set.
    Struct(&'static DeclaredType),
    List(&'static DeclaredList),
}

/// A list whose items are structs.
pub(super) struct DeclaredList {
    /// The field that identifies an item, if the list is a map.
    pub(super) key: Option<&'static str>,
    /// The type of the items in `data/internal-kinds.txt`.
    pub(super) kind: &'static str,
    pub(super) items: &'static DeclaredType,
}

/// Whether a field may be set.
enum FieldGate {
    Always,
    /// If the feature is on.
    With(Feature),
    /// The feature is off in 1.37.
    Never,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Immutability {
    Mutable,
    Immutable,
    /// Immutable while the feature of the field is on.
    WithFeature,
}

/// A change that an update must not make.
#[derive(Clone, Copy)]
#[expect(clippy::enum_variant_names, reason = "the names of Kubernetes' rules")]
pub(super) enum UpdateRule {
    NoSet,
    NoUnset,
    NoModify,
    NoAddItem,
    NoRemoveItem,
}

/// A rule about the content of a scalar field.
pub(super) enum Check {
    LongName,
    ShortName,
    LabelKey,
    PrefixedLabelKey,
    PathSegment,
    Uuid,
    /// The domain is not one of Kubernetes' own.
    UnreservedDomain,
    /// The value is at least 1000 or negative: lower ones are reserved for Kubernetes' own responders.
    UnreservedPriority,
    Minimum(i64),
    Maximum(i64),
    /// The length in characters is at most this.
    MaxLength(usize),
    /// An update does not decrease the number.
    Monotonic,
    OneOf(&'static [&'static str]),
}

impl DeclaredField {
    const fn new(name: &'static str, shape: FieldShape) -> Self {
        DeclaredField {
            name,
            shape,
            gate: FieldGate::Always,
            required: false,
            immutable: Immutability::Mutable,
            max_items: None,
            updates: &[],
            checks: &[],
        }
    }

    pub(super) const fn pointer(name: &'static str, checks: &'static [Check]) -> Self {
        DeclaredField { checks, ..DeclaredField::new(name, FieldShape::Pointer) }
    }

    pub(super) const fn plain(name: &'static str, checks: &'static [Check]) -> Self {
        DeclaredField { checks, ..DeclaredField::new(name, FieldShape::Plain) }
    }

    pub(super) const fn pointer_to(name: &'static str, to: &'static DeclaredType) -> Self {
        DeclaredField::new(name, FieldShape::PointerTo(to))
    }

    pub(super) const fn structure(name: &'static str, of: &'static DeclaredType) -> Self {
        DeclaredField::new(name, FieldShape::Struct(of))
    }

    pub(super) const fn list(name: &'static str, max_items: usize, list: &'static DeclaredList) -> Self {
        DeclaredField { max_items: Some(max_items), ..DeclaredField::new(name, FieldShape::List(list)) }
    }

    pub(super) const fn with(mut self, feature: Feature) -> Self {
        self.gate = FieldGate::With(feature);
        self
    }

    pub(super) const fn never(mut self) -> Self {
        self.gate = FieldGate::Never;
        self
    }

    pub(super) const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    pub(super) const fn immutable(mut self) -> Self {
        self.immutable = Immutability::Immutable;
        self
    }

    pub(super) const fn immutable_if_enabled(mut self) -> Self {
        self.immutable = Immutability::WithFeature;
        self
    }

    pub(super) const fn updates(mut self, rules: &'static [UpdateRule]) -> Self {
        self.updates = rules;
        self
    }

    /// The value of the field, if it is set.
    fn of<'a>(&self, holder: Option<&'a Value>) -> Option<&'a Value> {
        holder.part(self.name).filter(|value| match (value, &self.shape) {
            (Value::Null, _) => false,
            (Value::List(list), _) => !list.is_empty(),
            (Value::String(text), FieldShape::Plain) => !text.is_empty(),
            (Value::Int(number), FieldShape::Plain) => *number != 0,
            _ => true,
        })
    }
}

/// Facts about the request that rules depend on.
#[derive(Clone, Copy)]
pub(super) struct DeclaredContext {
    pub(super) is_update: bool,
    pub(super) features: Features,
}

/// A value, and the value that an update replaces by it.
#[derive(Clone, Copy)]
struct DeclaredChange<'v> {
    new: Option<&'v Value>,
    old: Option<&'v Value>,
}

/// A struct that an update leaves out, where Go has one without fields.
static ABSENT: Value = Value::Null;

impl DeclaredContext {
    /// Checks an object of a type. `old` is what an update replaces; `None` if there is nothing to compare with.
    pub(super) fn check(
        self,
        of: &DeclaredType,
        new: Option<&Value>,
        old: Option<&Value>,
        at: &At<'_>,
        errors: &mut FieldErrors,
    ) {
        self.check_change(of, DeclaredChange { new, old }, at, errors);
    }

    fn check_change(
        self,
        of: &DeclaredType,
        change: DeclaredChange<'_>,
        at: &At<'_>,
        errors: &mut FieldErrors,
    ) {
        self.union(of.union, change, at, errors);
        for field in of.fields {
            self.field(field, change, at, errors);
        }
    }

    fn union(self, members: &[&str], change: DeclaredChange<'_>, at: &At<'_>, errors: &mut FieldErrors) {
        if members.is_empty() {
            return;
        }
        let of = |holder: Option<&Value>| -> Vec<&str> {
            let is_set = |member: &&&str| match holder.part(member) {
                None | Some(Value::Null) => false,
                Some(Value::List(list)) => !list.is_empty(),
                Some(_) => true,
            };
            members.iter().filter(is_set).copied().collect()
        };
        let set = of(change.new);
        if self.is_update && change.old.is_some() && set == of(change.old) {
            return;
        }
        let all = members.iter().map(|member| format!("`{member}`")).collect::<Vec<_>>().join(", ");
        match set.len() {
            0 => errors.invalid(at, "", format!("must specify one of: {all}")),
            1 => {}
            _ => {
                let set = format!("{{{}}}", set.join(", "));
                errors.invalid(at, set, format!("must specify exactly one of: {all}"));
            }
        }
    }

    /// Checks a field of the structs in `holders`.
    fn field(
        self,
        field: &DeclaredField,
        holders: DeclaredChange<'_>,
        at: &At<'_>,
        errors: &mut FieldErrors,
    ) {
        let change = DeclaredChange { new: field.of(holders.new), old: field.of(holders.old) };
        if self.is_update && holders.old.is_some() && same(change.new, change.old) {
            return;
        }
        let at = at.field(field.name);
        if self.has_failed(field, change, &at, errors) {
            return;
        }
        match &field.shape {
            FieldShape::Struct(of) => {
                let old = holders.old.map(|_| change.old.unwrap_or(&ABSENT));
                self.check_change(of, DeclaredChange { old, ..change }, &at, errors);
            }
            FieldShape::PointerTo(of) if change.new.is_some() => self.check_change(of, change, &at, errors),
            FieldShape::List(list) if change.new.is_some() => self.items(list, change, &at, errors),
            FieldShape::Pointer | FieldShape::Plain => {
                if let Some(value) = change.new {
                    for check in field.checks {
                        check.run(value, change.old.filter(|_| self.is_update), &at, errors);
                    }
                }
            }
            FieldShape::PointerTo(_) | FieldShape::List(_) => {}
        }
    }

    /// Runs the first stage and returns true if it reported an error.
    fn has_failed(
        self,
        field: &DeclaredField,
        change: DeclaredChange<'_>,
        at: &At<'_>,
        errors: &mut FieldErrors,
    ) -> bool {
        let mut has_failed = false;
        let is_on = match field.gate {
            FieldGate::Always => true,
            FieldGate::With(feature) => self.features.has(feature),
            FieldGate::Never => false,
        };
        if !is_on && change.new.is_some() {
            errors.forbidden(at, "");
            has_failed = true;
        }
        let is_immutable = match field.immutable {
            Immutability::Mutable => false,
            Immutability::Immutable => true,
            Immutability::WithFeature => is_on,
        };
        if is_immutable && self.is_update {
            errors.invalid(at, Value::Null, IMMUTABLE);
            has_failed = true;
        }
        let count = items_of(change.new).len();
        if let Some(most) = field.max_items.filter(|most| count > *most) {
            errors.too_many(at, count, most);
            has_failed = true;
        }
        if field.required && change.new.is_none() {
            errors.required(at, "");
            has_failed = true;
        }
        let rules = field.updates.iter().filter(|_| self.is_update);
        for rule in rules {
            has_failed |= rule.reports(field, change, at, errors);
        }
        has_failed
    }

    fn items(self, list: &DeclaredList, change: DeclaredChange<'_>, at: &At<'_>, errors: &mut FieldErrors) {
        let (new, old) = (items_of(change.new), items_of(change.old));
        let mut stored = HashMap::new();
        if let Some(key) = list.key {
            unique(new, list.kind, at, errors, |item| item.text(key));
            stored = first_by(old, key);
        }
        for (i, item) in new.iter().enumerate() {
            let old = list.key.and_then(|key| stored.get(item.text(key)).copied());
            if self.is_update && old.is_some() && same(Some(item), old) {
                continue;
            }
            self.check_change(list.items, DeclaredChange { new: Some(item), old }, &at.index(i), errors);
        }
    }
}

impl UpdateRule {
    /// Reports a forbidden change and returns whether there was one.
    fn reports(
        self,
        field: &DeclaredField,
        change: DeclaredChange<'_>,
        at: &At<'_>,
        errors: &mut FieldErrors,
    ) -> bool {
        let detail = match (self, change.old.is_some(), change.new.is_some()) {
            (UpdateRule::NoSet, false, true) => "field cannot be set once created",
            (UpdateRule::NoUnset, true, false) => "field cannot be cleared once set",
            (UpdateRule::NoModify, true, true) => "field cannot be modified once set",
            (UpdateRule::NoAddItem, ..) => {
                let added = absent_items(field, change.new, change.old);
                for i in &added {
                    errors.forbidden(&at.index(*i), "item may not be added");
                }
                return !added.is_empty();
            }
            (UpdateRule::NoRemoveItem, ..) => {
                let removed = absent_items(field, change.old, change.new);
                for _ in &removed {
                    errors.forbidden(at, "item may not be removed");
                }
                return !removed.is_empty();
            }
            _ => return false,
        };
        errors.invalid(at, Value::Null, detail);
        true
    }
}

/// The indexes of the items of `list` whose keys do not occur in `other`.
fn absent_items(field: &DeclaredField, list: Option<&Value>, other: Option<&Value>) -> Vec<usize> {
    let FieldShape::List(DeclaredList { key: Some(key), .. }) = &field.shape else { return Vec::new() };
    let known: HashSet<&str> = items_of(other).iter().map(|item| item.text(key)).collect();
    let items = items_of(list).iter().enumerate();
    items.filter(|(_, item)| !known.contains(item.text(key))).map(|(i, _)| i).collect()
}

fn items_of(list: Option<&Value>) -> &[Value] {
    list.and_then(Value::as_list).unwrap_or_default()
}

/// Domains of Kubernetes' own components.
const RESERVED: [&str; 2] = [".k8s.io", ".kubernetes.io"];

impl Check {
    fn run(&self, value: &Value, former: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
        let text = value.as_str().unwrap_or_default();
        let number = value.as_int().unwrap_or_default();
        match self {
            Check::LongName => errors.invalid_each(at, text, subdomain(text)),
            Check::ShortName => errors.invalid_each(at, text, in_bytes(names::is_dns1123_label(text))),
            Check::LabelKey => errors.invalid_each(at, text, label_key(text)),
            Check::PrefixedLabelKey => {
                let wrong = label_key(text);
                if wrong.is_empty() && !text.contains('/') {
                    errors.invalid(at, text, "must include a prefix (e.g. 'example.com/key')");
                }
                errors.invalid_each(at, text, wrong);
            }
            Check::PathSegment => errors.invalid_each(at, text, names::is_path_segment_name(text)),
            Check::Uuid if !is_uuid(text) => {
                errors.invalid(at, text, "must be a lowercase UUID in 8-4-4-4-12 format");
            }
            Check::UnreservedDomain if has_reserved_domain(text) => {
                errors.invalid(at, text, "domain names *.k8s.io, *.kubernetes.io are reserved");
            }
            Check::UnreservedPriority if (0..1000).contains(&number) => {
                let detail = "priorities 0-999 are reserved for responders with *.k8s.io suffix";
                errors.invalid(at, number, detail);
            }
            Check::Minimum(least) if number < *least => {
                errors.invalid(at, number, format!("must be greater than or equal to {least}"));
            }
            Check::Maximum(most) if number > *most => {
                errors.invalid(at, number, format!("must be less than or equal to {most}"));
            }
            Check::MaxLength(most) if text.chars().count() > *most => {
                let detail = format!("may not be more than {most} characters");
                errors.report(FieldErrorKind::TooLong, at, None, detail);
            }
            Check::Monotonic => {
                let before = former.and_then(Value::as_int).filter(|before| number < *before);
                if let Some(before) = before {
                    errors.invalid(at, number, format!("may not be decreased from {before}"));
                }
            }
            Check::OneOf(values) if !values.contains(&text) => errors.not_supported(at, text, values),
            _ => {}
        }
    }
}

fn label_key(text: &str) -> Vec<String> {
    let details = in_bytes(names::is_qualified_name(text));
    details.map(|detail| detail.replacen("a qualified name must", "a valid label key must", 1)).collect()
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(i, byte)| match i {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        })
}

fn has_reserved_domain(key: &str) -> bool {
    let domain = key.split('/').next().unwrap_or_default().to_lowercase();
    let domain = domain.trim().trim_end_matches('.');
    RESERVED.iter().any(|suffix| domain.ends_with(suffix) || domain == suffix.trim_matches('.'))
}

/// Reports whether a list has items with equal keys.
pub(super) fn has_repeated(list: &[Value], key: &str) -> bool {
    Repeated::of_field(list, key).any()
}
