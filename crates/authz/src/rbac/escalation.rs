//! Privilege escalation checks.
//!
//! A user can grant only permissions that they have: writing a role requires all of its rules (or `escalate`
//! on it), binding a role requires all of its rules (or `bind` on it). Rules are split into single
//! permissions for the comparison: one group, resource, verb and name each.

use std::collections::{BTreeMap, BTreeSet};

use api::field::{aggregate, quote};
use api::{GroupResource, Status, meta};
use authn::{User, names};
use value::{Str, Value};

use crate::attributes::AuthorizationAttributes;
use crate::chain::AuthorizerChain;
use crate::decision::Decision;
use crate::rbac::held_rules::HeldRules;
use crate::rbac::index::RbacIndex;
use crate::rbac::rule::{PolicyRule, everything, quoted};
use crate::rbac::subject::RoleRef;

/// A user who writes a role or a binding.
#[derive(Clone, Copy)]
pub struct GrantingUser<'a> {
    /// Decides whether the user may `escalate` or `bind`.
    pub chain: &'a AuthorizerChain,
    pub index: &'a RbacIndex,
    pub user: &'a User,
    /// The namespace of the Role or RoleBinding; empty for a ClusterRole or ClusterRoleBinding.
    pub namespace: &'a str,
    /// The name in the path of the request; empty for a create, to which rules with `resourceNames` do not apply.
    pub requested_name: &'a str,
}

impl GrantingUser<'_> {
    /// Checks that the user may write a role. `old` is the stored role. A change of metadata alone is
    /// checked, too, except one of owner references and finalizers.
    pub async fn check_role(&self, old: Option<&Value>, new: &Value) -> Result<(), Status> {
        let resource = if self.namespace.is_empty() { "clusterroles" } else { "roles" };
        let escalate = AuthorizationAttributes::resource("escalate", api::groups::RBAC, resource)
            .in_namespace(self.namespace)
            .named(self.requested_name);
        if self.user.is_in(names::MASTERS)
            || self.is_allowed(&escalate).await
            || changes_only_gc_fields(old, new)
        {
            return Ok(());
        }
        let resource = GroupResource::new(api::groups::RBAC, resource);
        let refuse = |why: String| Status::forbidden(&resource, meta::name(new), why);
        self.check_held(&PolicyRule::all_of(new), &resource).map_err(refuse)?;
        let aggregates =
            |role: &Value| !role.list_at(&["aggregationRule", "clusterRoleSelectors"]).is_empty();
        // An aggregated role may receive any rules.
        if (aggregates(new) || old.is_some_and(aggregates))
            && self.check_held(&everything(), &resource).is_err()
        {
            return Err(refuse("must have cluster-admin privileges to use the aggregationRule".to_owned()));
        }
        Ok(())
    }

    /// Checks that the user may write a binding. `old` is the stored binding.
    pub async fn check_binding(&self, old: Option<&Value>, new: &Value) -> Result<(), Status> {
        if self.user.is_in(names::MASTERS) || changes_only_gc_fields(old, new) {
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
            let bind = AuthorizationAttributes::resource("bind", group, bound)
                .in_namespace(self.namespace)
                .named(role.name.clone());
            if self.is_allowed(&bind).await {
                return Ok(());
            }
        }
        let resource = if self.namespace.is_empty() { "clusterrolebindings" } else { "rolebindings" };
        let resource = GroupResource::new(api::groups::RBAC, resource);
        // kube-apiserver names the resource of the request here, not that of the missing role.
        let rules = self.index.role_rules(&role, self.namespace);
        let rules = rules.ok_or_else(|| Status::not_found(&resource, &role.name))?;
        self.check_held(&rules, &resource).map_err(|why| Status::forbidden(&resource, meta::name(new), why))
    }

    /// The size of the comparison for a write of a role or binding: the number of rule entries of the user
    /// and of the role.
    pub fn entries(&self, new: &Value) -> usize {
        if self.user.is_in(names::MASTERS) {
            return 0;
        }
        let entries = |rules: &[PolicyRule]| rules.iter().map(PolicyRule::entries).sum::<usize>();
        let wanted = match new.get("roleRef") {
            Some(_) => {
                self.index.role_rules(&RoleRef::of(new), self.namespace).map_or(0, |rules| entries(&rules))
            }
            None => entries(&PolicyRule::all_of(new)),
        };
        held_entries(self.index, self.user, self.namespace).saturating_add(wanted)
    }

    async fn is_allowed(&self, attributes: &AuthorizationAttributes) -> bool {
        self.chain.decide(self.user, attributes).await.decision == Decision::Allow
    }

    /// Checks that the user has all of `rules`. The error message lists the missing rules. Like
    /// kube-apiserver, it names missing roles as if they were of the `resource` being written.
    fn check_held(&self, rules: &[PolicyRule], resource: &GroupResource) -> Result<(), String> {
        let user = self.user;
        let (own, gone) = self.index.held(user, self.namespace);
        let missing =
            uncovered_permissions(own.iter().flat_map(|rules| rules.iter()), rules).ok_or_else(|| {
                // Rules that cannot be compared count as missing.
                format!(
                    "the rules have too many combinations to compare them with those of user {}",
                    quote(&user.name)
                )
            })?;
        if missing.is_empty() {
            return Ok(());
        }
        let describe_rules = describe_rules(merge_verbs(missing));
        let mut message = format!(
            "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
            quote(&user.name),
            quoted(&user.groups),
            describe_rules.join("\n")
        );
        if !gone.is_empty() {
            let gone = gone.iter().map(|role| format!("{resource} {} not found", quote(&role.name)));
            message.push_str("; resolution errors: [");
            message.push_str(&aggregate(gone));
            message.push(']');
        }
        Err(message)
    }
}

/// The number of entries of all rules that a user has in a namespace.
fn held_entries(index: &RbacIndex, user: &User, namespace: &str) -> usize {
    let (held, _) = index.held(user, namespace);
    held.iter().map(|rules| rules.iter().map(PolicyRule::entries).sum::<usize>()).sum()
}

/// Whether an update changes only owner references and finalizers, as the garbage collector does.
fn changes_only_gc_fields(old: Option<&Value>, new: &Value) -> bool {
    old.is_some_and(|old| meta::differ_only_in_gc_fields(new, old))
}

/// The rules as text, sorted; truncated, because every combination of a rule repeats all of its names.
fn describe_rules(rules: Vec<PolicyRule>) -> Vec<String> {
    let mut remaining = MAX_LISTED_BYTES;
    let mut describe_rules = BTreeSet::new();
    for rule in rules {
        let text = rule.to_string();
        let Some(left) = remaining.checked_sub(text.len()) else { break };
        remaining = left;
        describe_rules.insert(text);
    }
    describe_rules.into_iter().collect()
}

/// Maximum total length of rules in a message, in bytes.
const MAX_LISTED_BYTES: usize = 1 << 20;

/// Maximum number of single permissions that rules are split into: four short lists can multiply to billions.
const MAX_PERMISSIONS: usize = 100_000;

/// The permissions of `wanted` that no rule of `own` covers; `None` if there are too many to compare.
pub fn uncovered_permissions<'r>(
    own: impl IntoIterator<Item = &'r PolicyRule>,
    wanted: &[PolicyRule],
) -> Option<Vec<PolicyRule>> {
    let held = HeldRules::new(own);
    let mut left = MAX_PERMISSIONS;
    let mut missing = Vec::new();
    for rule in wanted {
        // A rule is split only if no single rule covers it as a whole.
        if count(rule) == 0 || held.covers(rule).ok()? {
            continue;
        }
        left = left.checked_sub(count(rule))?;
        for piece in split_permissions(rule) {
            if !held.covers(&piece).ok()? {
                missing.push(piece);
            }
        }
    }
    Some(missing)
}

/// The number of single permissions of a rule.
fn count(rule: &PolicyRule) -> usize {
    let resources = [&rule.groups, &rule.resources, &rule.verbs]
        .into_iter()
        .fold(rule.resource_names.len().max(1), |product, list| product.saturating_mul(list.len()));
    resources.saturating_add(rule.urls.len().saturating_mul(rule.verbs.len()))
}

/// Splits a rule into rules with one verb and either one group, one resource and at most one name, or one
/// path.
fn split_permissions(rule: &PolicyRule) -> Vec<PolicyRule> {
    let mut out = Vec::new();
    let names: Vec<Vec<Str>> = if rule.resource_names.is_empty() {
        vec![Vec::new()]
    } else {
        rule.resource_names.iter().map(|name| vec![name.clone()]).collect()
    };
    for group in &rule.groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                out.extend(names.iter().map(|names| PolicyRule {
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
        out.extend(rule.verbs.iter().map(|verb| PolicyRule {
            verbs: vec![verb.clone()],
            urls: vec![url.clone()],
            ..PolicyRule::default()
        }));
    }
    out
}

/// Merges permissions that differ only in the verb.
fn merge_verbs(split_permissions: Vec<PolicyRule>) -> Vec<PolicyRule> {
    let mut out = Vec::new();
    let mut by_target: BTreeMap<PolicyRule, Vec<Str>> = BTreeMap::new();
    for mut piece in split_permissions {
        if piece.urls.is_empty() {
            let verbs = std::mem::take(&mut piece.verbs);
            by_target.entry(piece).or_default().extend(verbs);
        } else {
            out.push(piece);
        }
    }
    out.extend(by_target.into_iter().map(|(target, verbs)| PolicyRule { verbs, ..target }));
    out
}
