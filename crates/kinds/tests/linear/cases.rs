//! The list fields of all types, and where in a kind they are.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;

use kinds::table::{self, KindStorage, Resource};
use schema::{Schema, ValueType};

/// One step of the path from the root to a list.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    Field(&'static str),
    Key,
    Item,
}

/// The kind of the objects of a resource, or of the bodies that are posted to a subresource of it.
#[derive(Clone, Copy)]
pub(crate) struct CaseKind {
    pub(crate) group: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    /// Empty for the objects of the resource.
    pub(crate) subresource: &'static str,
    pub(crate) is_namespaced: bool,
    pub(crate) stored_version: Option<&'static str>,
}

impl CaseKind {
    fn of(row: &'static Resource) -> Self {
        CaseKind {
            group: row.group,
            kind: row.kind,
            plural: row.plural,
            subresource: "",
            is_namespaced: row.is_namespaced(),
            stored_version: match row.storage {
                KindStorage::Own(version) => Some(version),
                _ => row.versions.first().map(|version| version.name),
            },
        }
    }

    pub(crate) fn schema(&self, version: &str) -> Option<&'static Schema> {
        schema::of(self.group, version, self.kind)
    }
}

/// As in messages: `Pod (pods)`, `TokenRequest (serviceaccounts/token)`.
impl fmt::Display for CaseKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CaseKind { kind, plural, subresource, .. } = self;
        let slash = if subresource.is_empty() { "" } else { "/" };
        write!(f, "{kind} ({plural}{slash}{subresource})")
    }
}

/// A kind that is only posted to a subresource and that has a long list.
const TOKEN_REQUEST: CaseKind = CaseKind {
    group: "authentication.k8s.io",
    kind: "TokenRequest",
    plural: "serviceaccounts",
    subresource: "token",
    is_namespaced: true,
    stored_version: Some("v1"),
};

pub(crate) struct LinearCase {
    /// Type and field, for example `core.v1.PodSpec.volumes`.
    pub(crate) name: String,
    pub(crate) kind: CaseKind,
    pub(crate) version: &'static str,
    /// Lists that grow together; each path ends in the field.
    pub(crate) paths: Vec<Vec<Step>>,
}

/// Lists each list field of each type once, at its position nearest to the root of a kind.
pub(crate) fn cases() -> Vec<LinearCase> {
    let mut found = BTreeSet::new();
    let mut cases = Vec::new();
    let mut queue: VecDeque<(CaseKind, &'static str, &'static Schema, Vec<Step>)> = VecDeque::new();
    for row in table::all() {
        // The storage version comes first because validation applies to it.
        let others = row.versions.iter().map(|version| version.name);
        let kind = CaseKind::of(row);
        for version in kind.stored_version.into_iter().chain(others) {
            if let Some(schema) = kind.schema(version) {
                queue.push_back((kind, version, schema, Vec::new()));
            }
        }
    }
    let token_request = TOKEN_REQUEST.schema("v1").unwrap();
    queue.push_back((TOKEN_REQUEST, "v1", token_request, Vec::new()));
    let mut visited = BTreeSet::new();
    while let Some((kind, version, schema, path)) = queue.pop_front() {
        let with = |step: Step| path.iter().cloned().chain([step]).collect::<Vec<_>>();
        match &schema.value_type {
            ValueType::Object(object) => {
                if !visited.insert(schema.name.as_str()) {
                    continue;
                }
                for property in &object.properties {
                    let below = with(Step::Field(property.name.as_str()));
                    let link: &'static Schema = property.schema.get();
                    if matches!(link.value_type, ValueType::List(_)) {
                        let name = format!("{}.{}", schema.name, property.name);
                        if found.insert(name.clone()) {
                            cases.push(LinearCase { name, kind, version, paths: vec![below.clone()] });
                        }
                    }
                    queue.push_back((kind, version, link, below));
                }
            }
            ValueType::List(list) => queue.push_back((kind, version, list.items.get(), with(Step::Item))),
            ValueType::Map(map) => queue.push_back((kind, version, map.values.get(), with(Step::Key))),
            _ => {}
        }
    }
    cases.extend(pairs());
    cases.extend(rule_pairs());
    cases
}

/// Cases with several lists or maps where the items of one refer to those of another.
fn pairs() -> Vec<LinearCase> {
    use Step::{Field, Item};
    let core = |resource: &str, name: &str, paths: Vec<Vec<Step>>| {
        let kind = CaseKind::of(table::find("", "v1", resource).unwrap());
        LinearCase { name: name.to_owned(), kind, version: "v1", paths }
    };
    let pod = |name: &str, paths: Vec<Vec<Step>>| core("pods", name, paths);
    let spec = |steps: &[Step]| [Field("spec")].iter().chain(steps).cloned().collect::<Vec<_>>();
    let container = |field: &'static str| spec(&[Field("containers"), Item, Field(field)]);
    let claims = spec(&[Field("containers"), Item, Field("resources"), Field("claims")]);
    let spread = |steps: &[Step]| {
        let mut path = spec(&[Field("topologySpreadConstraints"), Item]);
        path.extend_from_slice(steps);
        path
    };
    vec![
        pod("volumes and their mounts", vec![spec(&[Field("volumes")]), container("volumeMounts")]),
        pod("volumes and their devices", vec![spec(&[Field("volumes")]), container("volumeDevices")]),
        pod("mounts and devices", vec![container("volumeMounts"), container("volumeDevices")]),
        pod("volumes and variables", vec![spec(&[Field("volumes")]), container("env")]),
        pod("claims and their users", vec![spec(&[Field("resourceClaims")]), claims]),
        pod(
            "containers of both kinds",
            vec![
                spec(&[Field("containers")]),
                spec(&[Field("initContainers")]),
                spec(&[Field("ephemeralContainers")]),
            ],
        ),
        pod(
            "keys and expressions of a spread constraint",
            vec![
                spread(&[Field("matchLabelKeys")]),
                spread(&[Field("labelSelector"), Field("matchExpressions")]),
            ],
        ),
        pod(
            "claims and their statuses",
            vec![spec(&[Field("resourceClaims")]), vec![Field("status"), Field("resourceClaimStatuses")]],
        ),
        pod(
            "containers and their statuses",
            vec![spec(&[Field("containers")]), vec![Field("status"), Field("containerStatuses")]],
        ),
        pod(
            "containers, volumes and statuses",
            vec![
                spec(&[Field("containers")]),
                spec(&[Field("initContainers")]),
                spec(&[Field("volumes")]),
                vec![Field("status"), Field("containerStatuses")],
                vec![Field("status"), Field("initContainerStatuses")],
            ],
        ),
        core(
            "resourcequotas",
            "scopes and resources of a quota",
            vec![spec(&[Field("scopes")]), spec(&[Field("hard")])],
        ),
        core(
            "resourcequotas",
            "selected scopes and resources of a quota",
            vec![spec(&[Field("scopeSelector"), Field("matchExpressions")]), spec(&[Field("hard")])],
        ),
        core(
            "services",
            "ports and addresses of a service",
            vec![
                spec(&[Field("ports")]),
                spec(&[Field("externalIPs")]),
                spec(&[Field("clusterIPs")]),
                spec(&[Field("ipFamilies")]),
            ],
        ),
        LinearCase {
            name: "versions of a CRD and stored versions".to_owned(),
            kind: CaseKind::of(
                table::find("apiextensions.k8s.io", "v1", "customresourcedefinitions").unwrap(),
            ),
            version: "v1",
            paths: vec![spec(&[Field("versions")]), vec![Field("status"), Field("storedVersions")]],
        },
    ]
}

/// Cases with the groups and resources of a rule, whose pairs are as many as their product.
fn rule_pairs() -> Vec<LinearCase> {
    use Step::{Field, Item};
    let rules = |group: &str, resource: &str, path: &[Step]| LinearCase {
        name: format!("groups and resources of a rule of {resource}"),
        kind: CaseKind::of(table::find(group, "v1", resource).unwrap()),
        version: "v1",
        paths: ["apiGroups", "resources"]
            .map(|field| path.iter().cloned().chain([Item, Field(field)]).collect())
            .to_vec(),
    };
    vec![
        rules(
            "admissionregistration.k8s.io",
            "validatingwebhookconfigurations",
            &[Field("webhooks"), Item, Field("rules")],
        ),
        rules(
            "admissionregistration.k8s.io",
            "mutatingwebhookconfigurations",
            &[Field("webhooks"), Item, Field("rules")],
        ),
        rules(
            "admissionregistration.k8s.io",
            "validatingadmissionpolicies",
            &[Field("spec"), Field("matchConstraints"), Field("resourceRules")],
        ),
        rules("rbac.authorization.k8s.io", "clusterroles", &[Field("rules")]),
    ]
}
