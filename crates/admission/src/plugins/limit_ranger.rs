//! LimitRanger: applies the defaults and enforces the bounds of a namespace's LimitRanges.

use std::fmt::Display;

use api::Status;
use api::quantity::Quantity;
use value::{Str, Value};

use crate::{AdmissionAttributes, AdmissionNotes, ClusterView, Operation, Plugin};
use api::pod_resources::{self, Amounts, amounts};

/// The annotation that lists the defaults set on a pod.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";
/// Amounts above this are compared as whole numbers, because their thousandths would overflow.
const MAX_MILLI: i64 = i64::MAX / 1000;

#[derive(Debug)]
pub struct LimitRanger;

impl LimitRanger {
    /// Containers' resources change only through `resize`, so updates of pods are ignored.
    fn handles(attributes: &AdmissionAttributes<'_>) -> bool {
        if !attributes.resource.group.is_empty() {
            return false;
        }
        match (attributes.resource.resource.as_str(), attributes.subresource.as_str(), attributes.operation) {
            ("pods", "", Operation::Create)
            | ("pods", "resize", Operation::Update)
            | ("persistentvolumeclaims", "", Operation::Create | Operation::Update) => {
                !attributes.old_object.stored().is_some_and(api::meta::is_deleting)
            }
            _ => false,
        }
    }
}

impl Plugin for LimitRanger {
    fn mutate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: &mut Value,
        cluster: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        if !Self::handles(attributes) || attributes.resource.resource != "pods" {
            return Ok(());
        }
        for range in cluster.list("", "limitranges", &attributes.namespace) {
            apply_defaults(object, &range);
        }
        Ok(())
    }

    fn validate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        object: Option<&Value>,
        cluster: &dyn ClusterView,
        _: &mut AdmissionNotes,
    ) -> Result<(), Status> {
        let Some(object) = object else { return Ok(()) };
        if !Self::handles(attributes) {
            return Ok(());
        }
        for range in cluster.list("", "limitranges", &attributes.namespace) {
            let mut errors = Vec::new();
            for limit in range.list_at(&["spec", "limits"]) {
                let limit = LimitRangeItem::of(limit);
                if attributes.resource.resource == "pods" {
                    limit.check_pod(object, &mut errors);
                } else {
                    limit.check_claim(object, &mut errors);
                }
            }
            if !errors.is_empty() {
                return Err(attributes.refuse(Some(object), api::field::aggregate(errors)));
            }
        }
        Ok(())
    }
}

/// Sets the container defaults of a LimitRange, and lists them in an annotation.
fn apply_defaults(pod: &mut Value, range: &Value) {
    let mut requests: Vec<(Str, Value)> = Vec::new();
    let mut limits: Vec<(Str, Value)> = Vec::new();
    for limit in range.list_at(&["spec", "limits"]) {
        if limit.str_at(&["type"]) == Some("Container") {
            for (into, field) in [(&mut requests, "defaultRequest"), (&mut limits, "default")] {
                let map = limit.get(field).and_then(Value::as_map);
                for (name, amount) in map.into_iter().flat_map(value::Map::iter) {
                    into.retain(|(known, _)| known != name);
                    into.push((name.clone(), amount.clone()));
                }
            }
        }
    }
    if requests.is_empty() && limits.is_empty() {
        return;
    }
    let mut report = Vec::new();
    for (field, words) in [("containers", "container"), ("initContainers", "init container")] {
        let Some(containers) = pod.at_mut(&["spec", field]).and_then(Value::as_list_mut) else { continue };
        for container in containers {
            let name = container.str_at(&["name"]).unwrap_or_default().to_owned();
            for (side, what, defaults) in [("requests", "request", &requests), ("limits", "limit", &limits)] {
                let mut set: Vec<&str> = Vec::new();
                for (resource, amount) in defaults {
                    if container.at(&["resources", side, resource.as_str()]).is_none() {
                        container.set_at(&["resources", side, resource.as_str()], amount.clone());
                        set.push(resource);
                    }
                }
                if !set.is_empty() {
                    set.sort_unstable();
                    report.push(format!("{} {what} for {words} {name}", set.join(", ")));
                }
            }
        }
    }
    if !report.is_empty() {
        let text = format!("LimitRanger plugin set: {}", report.join("; "));
        pod.set_at(&["metadata", "annotations", ANNOTATION], text);
    }
}

struct LimitRangeItem<'a> {
    item_type: &'a str,
    min: Amounts,
    max: Amounts,
    ratio: Amounts,
}

impl<'a> LimitRangeItem<'a> {
    fn of(limit: &'a Value) -> Self {
        LimitRangeItem {
            item_type: limit.str_at(&["type"]).unwrap_or_default(),
            min: amounts(limit.get("min")),
            max: amounts(limit.get("max")),
            ratio: amounts(limit.get("maxLimitRequestRatio")),
        }
    }

    fn check_pod(&self, pod: &Value, errors: &mut Vec<String>) {
        match self.item_type {
            "Container" => {
                let regular = pod.list_at(&["spec", "containers"]);
                for container in regular.iter().chain(pod.list_at(&["spec", "initContainers"])) {
                    let requests = amounts(container.at(&["resources", "requests"]));
                    let limits = amounts(container.at(&["resources", "limits"]));
                    self.check(&requests, &limits, errors);
                }
            }
            "Pod" => {
                let [requests, limits] = ["requests", "limits"].map(|side| {
                    let mut total = pod_resources::of_containers(pod, side);
                    let may = |name: &str| matches!(name, "cpu" | "memory");
                    pod_resources::of_pod_itself(pod, side, &mut total, may);
                    total
                });
                self.check(&requests, &limits, errors);
            }
            _ => {}
        }
    }

    fn check(&self, requests: &Amounts, limits: &Amounts, errors: &mut Vec<String>) {
        let bounded = |bounds| self.bounded(bounds, requests, limits);
        errors.extend(bounded(&self.min).filter_map(BoundedUsage::below));
        errors.extend(bounded(&self.max).filter_map(BoundedUsage::above));
        errors.extend(bounded(&self.ratio).filter_map(BoundedUsage::ratio_exceeded));
    }

    fn check_claim(&self, claim: &Value, errors: &mut Vec<String>) {
        if self.item_type != "PersistentVolumeClaim" {
            return;
        }
        let requests = amounts(claim.at(&["spec", "resources", "requests"]));
        let limits = Amounts::new();
        let bounded = |bounds| self.bounded(bounds, &requests, &limits);
        errors.extend(bounded(&self.min).filter_map(BoundedUsage::below));
        errors.extend(bounded(&self.max).filter_map(BoundedUsage::request_above));
    }

    /// The usage of each resource in `bounds`.
    fn bounded<'u>(
        &'u self,
        bounds: &'u Amounts,
        requests: &'u Amounts,
        limits: &'u Amounts,
    ) -> impl Iterator<Item = BoundedUsage<'u>> {
        bounds.iter().map(|(name, bound)| BoundedUsage {
            item_type: self.item_type,
            name,
            bound,
            request: requests.get(name),
            limit: limits.get(name),
        })
    }
}

/// Request and limit of one resource, and the bound that a LimitRange sets for it.
struct BoundedUsage<'a> {
    item_type: &'a str,
    name: &'a str,
    bound: &'a Quantity,
    request: Option<&'a Quantity>,
    limit: Option<&'a Quantity>,
}

impl BoundedUsage<'_> {
    /// Request, limit and bound in the same unit: thousandths if all three fit.
    fn comparable(&self) -> (i64, i64, i64) {
        let whole = |amount: Option<&Quantity>| amount.map_or(0, Quantity::value);
        let milli = |amount: Option<&Quantity>| amount.map_or(0, Quantity::milli_value);
        let three = (whole(self.request), whole(self.limit), self.bound.value());
        if three.0 <= MAX_MILLI && three.1 <= MAX_MILLI && three.2 <= MAX_MILLI {
            return (milli(self.request), milli(self.limit), self.bound.milli_value());
        }
        three
    }

    /// The error if the usage is below the bound.
    fn below(self) -> Option<String> {
        let (requested, limited, bounded) = self.comparable();
        let Some(request) = self.request else {
            return Some(self.error("minimum", ".  No request is specified"));
        };
        if requested < bounded {
            return Some(self.error("minimum", format_args!(", but request is {request}")));
        }
        let limit = self.limit.filter(|_| limited < bounded)?;
        Some(self.error("minimum", format_args!(", but limit is {limit}")))
    }

    /// The error if the request is above the bound. Claims have no limits.
    fn request_above(self) -> Option<String> {
        let (requested, _, bounded) = self.comparable();
        let Some(request) = self.request else {
            return Some(self.error("maximum", ".  No request is specified"));
        };
        (requested > bounded).then(|| self.error("maximum", format_args!(", but request is {request}")))
    }

    /// The error if the usage is above the bound.
    fn above(self) -> Option<String> {
        let (requested, limited, bounded) = self.comparable();
        let Some(limit) = self.limit else {
            return Some(self.error("maximum", ".  No limit is specified"));
        };
        if limited > bounded {
            return Some(self.error("maximum", format_args!(", but limit is {limit}")));
        }
        let request = self.request.filter(|_| requested > bounded)?;
        Some(self.error("maximum", format_args!(", but request is {request}")))
    }

    /// An error about a minimum or maximum.
    fn error(&self, which: &str, why: impl Display) -> String {
        format!("{which} {} usage per {} is {}{why}", self.name, self.item_type, self.bound)
    }

    /// The error if the limit is too many times the request.
    #[expect(clippy::cast_precision_loss, reason = "Kubernetes compares these ratios as floats")]
    fn ratio_exceeded(self) -> Option<String> {
        let (requested, limited, _) = self.comparable();
        let BoundedUsage { item_type, name, bound, request, limit } = self;
        let refuse = |why: &str| {
            Some(format!("{name} max limit to request ratio per {item_type} is {bound}, but {why}"))
        };
        if request.is_none() || requested == 0 {
            return refuse("no request is specified or request is 0");
        }
        if limit.is_none() || limited == 0 {
            return refuse("no limit is specified or limit is 0");
        }
        let ratio = limited as f64 / requested as f64;
        let whole = bound.value();
        let over = if whole <= MAX_MILLI {
            ratio * 1000.0 > bound.milli_value() as f64
        } else {
            ratio > whole as f64
        };
        if over { refuse(&format!("provided ratio is {ratio:.6}")) } else { None }
    }
}
