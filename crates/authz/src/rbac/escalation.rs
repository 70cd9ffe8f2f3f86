//! Who may hand out which rules.
//!
//! Nobody gives what they do not have: writing a role needs all of its rules (or `escalate` on it), binding one needs all of the
//! role's rules (or `bind` on it). Rules are compared piece by piece: one group, one resource, one verb, one name each.

use std::collections::{BTreeMap, BTreeSet};

use api::field::{aggregate, quote};
use api::{GroupResource, Status, meta};
use authn::{User, names};
use value::{Str, Value};

use crate::attributes::Attributes;
use crate::chain::Chain;
use crate::decision::Decision;
use crate::rbac::held::Held;
use crate::rbac::index::Index;
use crate::rbac::rule::{Rule, everything, quoted};
use crate::rbac::subject::RoleRef;

/// Whether a user may write a Role (in `namespace`) or ClusterRole (with none) called `name`. `old` is the stored one, if there
/// is one; a change of the metadata alone is checked all the same.
pub async fn check_role(
    chain: &Chain,
    index: &Index,
    user: &User,
    namespace: &str,
    name: &str,
    old: Option<&Value>,
    new: &Value,
) -> Result<(), Status> {
    let resource = if namespace.is_empty() { "clusterroles" } else { "roles" };
    let escalate =
        Attributes::resource("escalate", super::GROUP, resource).in_namespace(namespace).named(name);
    if user.is_in(names::MASTERS) || allowed(chain, user, &escalate).await || only_lets_go(old, new) {
        return Ok(());
    }
    let resource = GroupResource::new(super::GROUP, resource);
    let refuse = |why: String| Status::forbidden(&resource, meta::name(new), why);
    confirm(index, user, namespace, &Rule::all_of(new), &resource).map_err(refuse)?;
    let aggregates = |role: &Value| !role.list_at(&["aggregationRule", "clusterRoleSelectors"]).is_empty();
    // A role that gathers others' rules may come to hold anything.
    if (aggregates(new) || old.is_some_and(aggregates))
        && confirm(index, user, namespace, &everything(), &resource).is_err()
    {
        return Err(refuse("must have cluster-admin privileges to use the aggregationRule".to_owned()));
    }
    Ok(())
}

/// Whether a user may write a RoleBinding (in `namespace`) or ClusterRoleBinding (with none).
pub async fn check_binding(
    chain: &Chain,
    index: &Index,
    user: &User,
    namespace: &str,
    old: Option<&Value>,
    new: &Value,
) -> Result<(), Status> {
    if user.is_in(names::MASTERS) || only_lets_go(old, new) {
        return Ok(());
    }
    let role = RoleRef::of(new);
    let bound = match role.kind.as_str() {
        "ClusterRole" => Some("clusterroles"),
        "Role" => Some("roles"),
        _ => None,
    };
    if let Some(bound) = bound {
        let group = new.str_at(&["roleRef", "apiGroup"]).unwrap_or_default();
        let bind =
            Attributes::resource("bind", group, bound).in_namespace(namespace).named(role.name.clone());
        if allowed(chain, user, &bind).await {
            return Ok(());
        }
    }
    let resource = if namespace.is_empty() { "clusterrolebindings" } else { "rolebindings" };
    let resource = GroupResource::new(super::GROUP, resource);
    // Kubernetes names the resource of the request here, not that of the role which is missing.
    let rules = index.role_rules(&role, namespace).ok_or_else(|| Status::not_found(&resource, &role.name))?;
    confirm(index, user, namespace, &rules, &resource)
        .map_err(|why| Status::forbidden(&resource, meta::name(new), why))
}

/// How many entries the rules have that are compared for a write of a role or binding: those that the user holds, and those of
/// the role.
pub fn entries(index: &Index, user: &User, namespace: &str, new: &Value) -> usize {
    if user.is_in(names::MASTERS) {
        return 0;
    }
    let entries = |rules: &[Rule]| rules.iter().map(Rule::entries).sum::<usize>();
    let wanted = match new.get("roleRef") {
        Some(_) => index.role_rules(&RoleRef::of(new), namespace).map_or(0, |rules| entries(&rules)),
        None => entries(&Rule::all_of(new)),
    };
    held_entries(index, user, namespace).saturating_add(wanted)
}

/// How many entries the rules have that a user holds in a namespace.
pub fn held_entries(index: &Index, user: &User, namespace: &str) -> usize {
    let (held, _) = index.held(user, namespace);
    held.iter().map(|rules| rules.iter().map(Rule::entries).sum::<usize>()).sum()
}

async fn allowed(chain: &Chain, user: &User, attributes: &Attributes) -> bool {
    chain.decide(user, attributes).await.decision == Decision::Allow
}

/// Whether an update changes at most what the garbage collector needs: owner references and finalizers.
fn only_lets_go(old: Option<&Value>, new: &Value) -> bool {
    let Some(old) = old else { return false };
    let without = |object: &Value| {
        let mut object = object.clone();
        for field in ["ownerReferences", "finalizers", "managedFields"] {
            object.remove_at(&["metadata", field]);
        }
        object
    };
    without(old) == without(new)
}

/// Whether a user holds all of `rules` in a namespace (or cluster-wide, with none); the message says which are missing, and
/// names roles that do not exist as if they were of the `resource` that is being written, as Kubernetes does.
fn confirm(
    index: &Index,
    user: &User,
    namespace: &str,
    rules: &[Rule],
    resource: &GroupResource,
) -> Result<(), String> {
    let (own, gone) = index.held(user, namespace);
    let missing = uncovered(own.iter().flat_map(|rules| rules.iter()), rules).ok_or_else(|| {
        // Denied: what cannot be compared is not held.
        format!(
            "the rules have too many combinations to compare them with those of user {}",
            quote(&user.name)
        )
    })?;
    if missing.is_empty() {
        return Ok(());
    }
    let described = described(compact(missing));
    let mut message = format!(
        "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        quote(&user.name),
        quoted(&user.groups),
        described.join("\n")
    );
    if !gone.is_empty() {
        let gone = gone.iter().map(|role| format!("{resource} {} not found", quote(&role.name)));
        message.push_str("; resolution errors: [");
        message.push_str(&aggregate(gone));
        message.push(']');
    }
    Err(message)
}

/// The rules as they are told, sorted. Not all, if they are long: each combination has all the names in it.
fn described(rules: Vec<Rule>) -> Vec<String> {
    let mut room = MOST_TOLD;
    let mut described = BTreeSet::new();
    for rule in rules {
        let text = rule.to_string();
        let Some(left) = room.checked_sub(text.len()) else { break };
        room = left;
        described.insert(text);
    }
    described.into_iter().collect()
}

/// The most bytes of rules in one message.
const MOST_TOLD: usize = 1 << 20;

/// The most pieces that rules are taken apart into: four short lists have billions.
const MOST_PIECES: usize = 100_000;

/// The pieces of `wanted` that no rule of `own` covers; `None` if there are too many to look at.
pub fn uncovered<'r>(own: impl IntoIterator<Item = &'r Rule>, wanted: &[Rule]) -> Option<Vec<Rule>> {
    let held = Held::new(own);
    let mut left = MOST_PIECES;
    let mut missing = Vec::new();
    for rule in wanted {
        // Taken apart only if no rule covers it as a whole.
        if count(rule) == 0 || held.covers(rule).ok()? {
            continue;
        }
        left = left.checked_sub(count(rule))?;
        for piece in pieces(rule) {
            if !held.covers(&piece).ok()? {
                missing.push(piece);
            }
        }
    }
    Some(missing)
}

/// How many pieces a rule has.
fn count(rule: &Rule) -> usize {
    let resources = [&rule.groups, &rule.resources, &rule.verbs]
        .into_iter()
        .fold(rule.resource_names.len().max(1), |product, list| product.saturating_mul(list.len()));
    resources.saturating_add(rule.urls.len().saturating_mul(rule.verbs.len()))
}

/// A rule as rules of one verb and either one group, one resource and at most one name, or one path.
fn pieces(rule: &Rule) -> Vec<Rule> {
    let mut out = Vec::new();
    let names: Vec<Vec<Str>> = if rule.resource_names.is_empty() {
        vec![Vec::new()]
    } else {
        rule.resource_names.iter().map(|name| vec![name.clone()]).collect()
    };
    for group in &rule.groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                out.extend(names.iter().map(|names| Rule {
                    verbs: vec![verb.clone()],
                    groups: vec![group.clone()],
                    resources: vec![resource.clone()],
                    resource_names: names.clone(),
                    urls: Vec::new(),
                }));
            }
        }
    }
    for url in &rule.urls {
        out.extend(rule.verbs.iter().map(|verb| Rule {
            verbs: vec![verb.clone()],
            urls: vec![url.clone()],
            ..Rule::default()
        }));
    }
    out
}

/// Pieces that differ in their verb alone, put together.
fn compact(pieces: Vec<Rule>) -> Vec<Rule> {
    let mut out = Vec::new();
    let mut by_target: BTreeMap<Rule, Vec<Str>> = BTreeMap::new();
    for mut piece in pieces {
        if piece.urls.is_empty() {
            let verbs = std::mem::take(&mut piece.verbs);
            by_target.entry(piece).or_default().extend(verbs);
        } else {
            out.push(piece);
        }
    }
    out.extend(by_target.into_iter().map(|(target, verbs)| Rule { verbs, ..target }));
    out
}
