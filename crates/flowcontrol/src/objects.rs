//! FlowSchema and PriorityLevelConfiguration objects in the form this crate uses.

use authn::{User, names};
use value::{Str, Value};

use crate::dealer::Dealer;
use crate::queueset::Queuing;

/// Name of the level and the schema for requests that are never limited.
pub const EXEMPT: &str = "exempt";
/// Name of the level and the schema for requests that match no other schema.
pub const CATCH_ALL: &str = "catch-all";

/// The request attributes that flow schemas match.
#[derive(Clone, Copy, Debug)]
pub struct RequestDigest<'a> {
    /// The authenticated user of the request.
    pub user: &'a User,
    /// Distinguishes resource requests from non-resource URLs.
    pub is_resource: bool,
    pub verb: &'a str,
    /// Empty for the core group.
    pub group: &'a str,
    pub resource: &'a str,
    /// Empty if there is none.
    pub subresource: &'a str,
    /// Empty for cluster-scoped requests.
    pub namespace: &'a str,
    /// The URL path, matched by non-resource rules.
    pub path: &'a str,
}

/// How a flow schema divides its requests into flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distinguisher {
    /// All requests are one flow.
    None,
    /// One flow per user.
    ByUser,
    /// One flow per namespace.
    ByNamespace,
}

impl Distinguisher {
    /// The flow distinguisher of a request.
    pub fn of<'a>(self, attributes: &RequestDigest<'a>) -> &'a str {
        match self {
            Distinguisher::None => "",
            Distinguisher::ByUser => attributes.user.name.as_str(),
            Distinguisher::ByNamespace => attributes.namespace,
        }
    }
}

/// A FlowSchema in a form that matches requests.
#[derive(Clone, Debug)]
pub struct FlowSchema {
    pub name: Str,
    /// Empty if the object is not stored.
    pub uid: Str,
    /// Name of its priority level.
    pub level: Str,
    /// Schemas with a lower value are matched first.
    pub precedence: i64,
    pub distinguisher: Distinguisher,
    /// The stored `Dangling` condition, if there is one.
    pub dangling: Option<DanglingCondition>,
    rules: Vec<FlowSchemaRule>,
}

/// The part of the `Dangling` condition that this crate maintains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DanglingCondition {
    /// Either `True` or `False`.
    pub status: Str,
    /// Either `NotFound` or `Found`.
    pub reason: Str,
    pub message: String,
}

impl DanglingCondition {
    /// The correct condition for a reference to `level`.
    pub fn of(level: &str, exists: bool) -> Self {
        let (status, reason, rest) = if exists {
            ("False", "Found", "and it exists")
        } else {
            ("True", "NotFound", "but there is no such object")
        };
        let quoted = api::field::quote(level);
        let message =
            format!("This FlowSchema references the PriorityLevelConfiguration object named {quoted} {rest}");
        DanglingCondition { status: status.into(), reason: reason.into(), message }
    }
}

impl FlowSchema {
    /// Reads a stored object, which has passed validation.
    pub fn read(object: &Value) -> Self {
        let text = |path: &[&str]| Str::from(object.str_at(path).unwrap_or_default());
        let distinguisher = match object.str_at(&["spec", "distinguisherMethod", "type"]) {
            Some("ByUser") => Distinguisher::ByUser,
            Some("ByNamespace") => Distinguisher::ByNamespace,
            _ => Distinguisher::None,
        };
        let conditions = object.list_at(&["status", "conditions"]);
        let dangling = conditions.iter().find(|c| c.str_at(&["type"]) == Some("Dangling")).map(|condition| {
            DanglingCondition {
                status: condition.str_at(&["status"]).unwrap_or_default().into(),
                reason: condition.str_at(&["reason"]).unwrap_or_default().into(),
                message: condition.str_at(&["message"]).unwrap_or_default().to_owned(),
            }
        });
        FlowSchema {
            name: text(&["metadata", "name"]),
            uid: text(&["metadata", "uid"]),
            level: text(&["spec", "priorityLevelConfiguration", "name"]),
            precedence: object.int_at(&["spec", "matchingPrecedence"]).unwrap_or_default(),
            distinguisher,
            dangling,
            rules: object.list_at(&["spec", "rules"]).iter().map(FlowSchemaRule::read).collect(),
        }
    }

    /// Indices of the rules that match a user by name or group.
    pub(crate) fn rules_for(&self, user: &User) -> impl Iterator<Item = usize> {
        let rules = self.rules.iter().enumerate();
        rules.filter(|(_, rule)| rule.names(user)).map(|(number, _)| number)
    }

    /// Reports whether the rule with this index matches the request, apart from its subjects.
    pub(crate) fn covers(&self, rule: usize, attributes: &RequestDigest<'_>) -> bool {
        self.rules.get(rule).is_some_and(|rule| rule.covers(attributes))
    }

    /// The extent to which the rule with this index matches the requests of its subjects: those for resources, or the others.
    pub(crate) fn extent(&self, rule: usize, is_resource: bool) -> RuleExtent {
        self.rules.get(rule).map_or(RuleExtent::None, |rule| rule.extent(is_resource))
    }
}

/// How many requests a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleExtent {
    None,
    /// Some requests, depending on their attributes.
    Some,
    All,
}

#[derive(Clone, Debug)]
struct FlowSchemaRule {
    subjects: Vec<Subject>,
    resources: Vec<ResourceRule>,
    others: Vec<NonResourceRule>,
}

#[derive(Clone, Debug)]
enum Subject {
    AnyUser,
    User(Str),
    Group(Str),
    /// Prefix of user names: the service accounts of a namespace.
    ServiceAccountsOf(Str),
}

/// A list in which a single `*` means all.
#[derive(Clone, Debug)]
enum NameList {
    All,
    These(Vec<Str>),
}

#[derive(Clone, Debug)]
struct ResourceRule {
    verbs: NameList,
    groups: NameList,
    /// Pairs of resource and subresource; `None` matches all.
    resources: Option<Vec<(Str, Str)>>,
    namespaces: NameList,
    cluster_scope: bool,
}

#[derive(Clone, Debug)]
struct NonResourceRule {
    verbs: NameList,
    /// Each URL with the prefix of the paths below it; `None` matches all.
    urls: Option<Vec<(Str, Str)>>,
}

impl NameList {
    fn read(list: &[Value]) -> Self {
        match list {
            [only] if only.as_str() == Some("*") => NameList::All,
            _ => NameList::These(list.iter().filter_map(Value::as_str).map(Str::from).collect()),
        }
    }

    fn contains(&self, name: &str) -> bool {
        match self {
            NameList::All => true,
            NameList::These(names) => names.iter().any(|known| known == name),
        }
    }
}

impl Subject {
    fn read(subject: &Value) -> Option<Self> {
        let name = |kind: &str| subject.str_at(&[kind, "name"]);
        match subject.str_at(&["kind"])? {
            "User" if name("user")? == "*" => Some(Subject::AnyUser),
            "User" => Some(Subject::User(name("user")?.into())),
            "Group" if name("group")? == "*" => Some(Subject::AnyUser),
            "Group" => Some(Subject::Group(name("group")?.into())),
            "ServiceAccount" => {
                let namespace = subject.str_at(&["serviceAccount", "namespace"])?;
                let prefix = names::SERVICE_ACCOUNT_PREFIX;
                Some(match name("serviceAccount")? {
                    "*" => Subject::ServiceAccountsOf(format!("{prefix}{namespace}:").into()),
                    account => Subject::User(format!("{prefix}{namespace}:{account}").into()),
                })
            }
            _ => None,
        }
    }

    fn matches(&self, user: &User) -> bool {
        match self {
            Subject::AnyUser => true,
            Subject::User(name) => user.name == *name,
            Subject::Group(group) => user.is_in(group),
            Subject::ServiceAccountsOf(prefix) => user.name.starts_with(prefix.as_str()),
        }
    }
}

impl FlowSchemaRule {
    fn read(rule: &Value) -> Self {
        FlowSchemaRule {
            subjects: rule.list_at(&["subjects"]).iter().filter_map(Subject::read).collect(),
            resources: rule.list_at(&["resourceRules"]).iter().map(ResourceRule::read).collect(),
            others: rule.list_at(&["nonResourceRules"]).iter().map(NonResourceRule::read).collect(),
        }
    }

    fn names(&self, user: &User) -> bool {
        self.subjects.iter().any(|subject| subject.matches(user))
    }

    fn extent(&self, is_resource: bool) -> RuleExtent {
        let (is_empty, matches_all) = if is_resource {
            (self.resources.is_empty(), self.resources.iter().any(ResourceRule::matches_all))
        } else {
            (self.others.is_empty(), self.others.iter().any(NonResourceRule::matches_all))
        };
        match (is_empty, matches_all) {
            (true, _) => RuleExtent::None,
            (_, true) => RuleExtent::All,
            _ => RuleExtent::Some,
        }
    }

    fn covers(&self, attributes: &RequestDigest<'_>) -> bool {
        if attributes.is_resource {
            self.resources.iter().any(|rule| rule.matches(attributes))
        } else {
            self.others.iter().any(|rule| rule.matches(attributes))
        }
    }
}

impl ResourceRule {
    fn read(rule: &Value) -> Self {
        let resources = match NameList::read(rule.list_at(&["resources"])) {
            NameList::All => None,
            NameList::These(names) => Some(
                names
                    .iter()
                    .map(|name| name.split_once('/').unwrap_or((name, "")))
                    .map(|(resource, subresource)| (resource.into(), subresource.into()))
                    .collect(),
            ),
        };
        ResourceRule {
            verbs: NameList::read(rule.list_at(&["verbs"])),
            groups: NameList::read(rule.list_at(&["apiGroups"])),
            resources,
            namespaces: NameList::read(rule.list_at(&["namespaces"])),
            cluster_scope: rule.bool_at(&["clusterScope"]).unwrap_or_default(),
        }
    }

    fn matches_all(&self) -> bool {
        matches!((&self.verbs, &self.groups, &self.namespaces), (NameList::All, NameList::All, NameList::All))
            && self.resources.is_none()
            && self.cluster_scope
    }

    fn matches(&self, attributes: &RequestDigest<'_>) -> bool {
        let is_named = |(resource, subresource): &(Str, Str)| {
            resource == attributes.resource && subresource == attributes.subresource
        };
        self.verbs.contains(attributes.verb)
            && self.resources.as_ref().is_none_or(|resources| resources.iter().any(is_named))
            && self.groups.contains(attributes.group)
            && if attributes.namespace.is_empty() {
                self.cluster_scope
            } else {
                self.namespaces.contains(attributes.namespace)
            }
    }
}

impl NonResourceRule {
    fn read(rule: &Value) -> Self {
        let below = |url: &str| {
            let prefix = url.strip_suffix('*').unwrap_or(url);
            if prefix.ends_with('/') { Str::from(prefix) } else { format!("{prefix}/").into() }
        };
        let urls: Vec<&str> = rule.list_at(&["nonResourceURLs"]).iter().filter_map(Value::as_str).collect();
        NonResourceRule {
            verbs: NameList::read(rule.list_at(&["verbs"])),
            urls: (!urls.contains(&"*"))
                .then(|| urls.iter().map(|url| (Str::from(*url), below(url))).collect()),
        }
    }

    fn matches_all(&self) -> bool {
        matches!(self.verbs, NameList::All) && self.urls.is_none()
    }

    fn matches(&self, attributes: &RequestDigest<'_>) -> bool {
        let is_named = |(url, below): &(Str, Str)| {
            attributes.path == url.as_str() || attributes.path.starts_with(below.as_str())
        };
        self.verbs.contains(attributes.verb)
            && self.urls.as_ref().is_none_or(|urls| urls.iter().any(is_named))
    }
}

/// A PriorityLevelConfiguration in the form this crate uses.
#[derive(Clone, Debug)]
pub struct PriorityLevel {
    pub name: Str,
    /// Empty if the object is not stored.
    pub uid: Str,
    /// Its share of the server's seats, relative to the other levels.
    pub shares: u32,
    /// Percentage of its seats that it lends.
    pub lendable: u32,
    /// Maximum that it borrows, in percent of its nominal seats; `None` means no limit.
    pub borrowing: Option<u32>,
    /// The treatment of requests that find no free seat.
    pub queuing: Queuing,
    /// Number of queues of each flow; `None` without queues.
    pub hand_size: Option<u32>,
}

impl PriorityLevel {
    /// Reads a stored object; the error says why it cannot be used.
    pub fn read(object: &Value) -> Result<Self, String> {
        let name: Str = object.str_at(&["metadata", "name"]).unwrap_or_default().into();
        let kind = object.str_at(&["spec", "type"]).unwrap_or_default();
        let (limited, exempt) = (object.at(&["spec", "limited"]), object.at(&["spec", "exempt"]));
        if (kind == "Limited") != limited.is_some() {
            return Err("broken union structure at the top, for Limited".to_owned());
        }
        if (kind == "Exempt") != exempt.is_some() {
            return Err("broken union structure at the top, for Exempt".to_owned());
        }
        if (kind == "Exempt") != (name == EXEMPT) {
            return Err("non-alignment between name and type".to_owned());
        }
        let Some(spec) = limited.or(exempt) else { return Err("neither Limited nor Exempt".to_owned()) };
        let number = |field: &str| spec.int_at(&[field]).and_then(|number| u32::try_from(number).ok());
        let (queuing, hand_size) = queuing(limited)?;
        Ok(PriorityLevel {
            uid: object.str_at(&["metadata", "uid"]).unwrap_or_default().into(),
            shares: number("nominalConcurrencyShares").unwrap_or_default(),
            lendable: number("lendablePercent").unwrap_or_default(),
            borrowing: limited.and_then(|_| number("borrowingLimitPercent")),
            queuing,
            hand_size,
            name,
        })
    }

    /// Reports whether its requests are never limited.
    pub fn is_exempt(&self) -> bool {
        self.queuing == Queuing::Exempt
    }
}

fn queuing(limited: Option<&Value>) -> Result<(Queuing, Option<u32>), String> {
    let Some(limited) = limited else { return Ok((Queuing::Exempt, None)) };
    let queuing = limited.at(&["limitResponse", "queuing"]);
    let rejects = limited.str_at(&["limitResponse", "type"]) == Some("Reject");
    let Some(queuing) = queuing.filter(|_| !rejects) else {
        return if rejects && queuing.is_none() {
            Ok((Queuing::Reject, None))
        } else {
            Err("broken union structure for limit response".to_owned())
        };
    };
    let number =
        |field: &str| queuing.int_at(&[field]).and_then(|n| u32::try_from(n).ok()).unwrap_or_default();
    let (queues, hand, length_limit) = (number("queues"), number("handSize"), number("queueLengthLimit"));
    let dealer = Dealer::new(queues, hand)?;
    Ok((Queuing::Queue { dealer, queues, length_limit }, Some(hand)))
}
