//! Checks that the author of a policy or binding may read the parameters that it names. Policies read parameters with the server's own
//! permissions, so their messages could otherwise disclose objects that the author may not read.

use admission::ClusterView;
use api::groups::ADMISSION_REGISTRATION;
use api::{FieldError, GroupKind, GroupVersion};
use authn::User;
use authz::{AuthorizationAttributes, Decision};
use value::{Path, Str, Value};

/// The error if `user` may not read the parameters of a new or changed policy or binding. Members of the group `system:masters` are
/// not checked.
pub(crate) async fn check(
    cluster: &dyn ClusterView,
    user: &User,
    kind: &GroupKind,
    new: &Value,
    old: Option<&Value>,
) -> Option<FieldError> {
    if kind.group != ADMISSION_REGISTRATION || user.is_in(authn::names::MASTERS) {
        return None;
    }
    let (field, refused) = match kind.kind.as_str() {
        "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy" => {
            ("paramKind", of_policy(cluster, user, new, old).await)
        }
        "ValidatingAdmissionPolicyBinding" => {
            ("paramRef", of_binding(cluster, user, new, "validatingadmissionpolicies").await)
        }
        "MutatingAdmissionPolicyBinding" => {
            ("paramRef", of_binding(cluster, user, new, "mutatingadmissionpolicies").await)
        }
        _ => return None,
    };
    let why = refused.err()?;
    Some(FieldError::forbidden(&Path::root().field("spec").field(field), why))
}

fn present<'v>(object: &'v Value, field: &str) -> Option<&'v Value> {
    object.at(&["spec", field]).filter(|value| !value.is_null())
}

async fn of_policy(
    cluster: &dyn ClusterView,
    user: &User,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), String> {
    let Some(param_kind) = present(new, "paramKind") else { return Ok(()) };
    if old.and_then(|old| present(old, "paramKind")) == Some(param_kind) {
        return Ok(());
    }
    let resolved = Resolved::of(cluster, param_kind);
    let attributes = resolved.attributes("get").in_namespace("*").named("*");
    if allows(cluster, user, &attributes).await? {
        return Ok(());
    }
    let text = |field: &str| param_kind.str_at(&[field]).unwrap_or_default();
    Err(format!(
        r#"user {} must have "get" permission on all objects of the referenced paramKind (kind={}, apiVersion={})"#,
        go_struct_text(user),
        text("kind"),
        text("apiVersion")
    ))
}

async fn of_binding(
    cluster: &dyn ClusterView,
    user: &User,
    new: &Value,
    policies: &str,
) -> Result<(), String> {
    let Some(reference) = present(new, "paramRef") else { return Ok(()) };
    let text = |field: &str| reference.str_at(&[field]).unwrap_or_default();
    let name = new.str_at(&["spec", "policyName"]).unwrap_or_default();
    let policy = cluster.object(ADMISSION_REGISTRATION, policies, "", name);
    let param_kind = policy.as_deref().and_then(|policy| present(policy, "paramKind"));
    let resolved = param_kind.map_or_else(Resolved::default, |kind| Resolved::of(cluster, kind));
    let verb = if text("name").is_empty() { "list" } else { "get" };
    let attributes = resolved.attributes(verb).in_namespace(text("namespace")).named(text("name"));
    let is_validating = policies == "validatingadmissionpolicies";
    let allowed = allows(cluster, user, &attributes)
        .await
        .map_err(|why| if is_validating { format!("failed to authorize request: {why}") } else { why })?;
    if allowed {
        return Ok(());
    }
    let user = go_struct_text(user);
    let without_rights = format!(
        r#"to determine minimum required permissions and user {user} does not have "{verb}" permission for all groups, versions and resources"#
    );
    if policy.is_none() {
        return Err(format!("unable to get policy {name} {without_rights}"));
    }
    let param_kind = param_kind.map(|kind| {
        let text = |field: &str| kind.str_at(&[field]).unwrap_or_default();
        format!("&{{{} {}}}", text("apiVersion"), text("kind"))
    });
    match (param_kind, resolved.failed) {
        (Some(kind), Some(Failed::Parse)) => {
            Err(format!("unable to parse paramKind {kind} {without_rights}"))
        }
        (Some(kind), Some(Failed::Resolve)) => {
            Err(format!("unable to resolve paramKind {kind} {without_rights}"))
        }
        // kube-apiserver swaps user and verb in this message for mutating policies.
        _ if is_validating => Err(format!(
            r#"user {user} does not have "{verb}" permission on the object referenced by paramRef"#
        )),
        _ => Err(format!(
            r#"user {verb} does not have "{user}" permission on the object referenced by paramRef"#
        )),
    }
}

/// The resource that the author must be able to read. Parts that could not be determined are `*`.
struct Resolved {
    group: Str,
    version: Str,
    resource: Str,
    failed: Option<Failed>,
}

enum Failed {
    Parse,
    Resolve,
}

impl Default for Resolved {
    fn default() -> Self {
        let any = Str::new_static("*");
        Resolved { group: any.clone(), version: any.clone(), resource: any, failed: None }
    }
}

impl Resolved {
    fn of(cluster: &dyn ClusterView, param_kind: &Value) -> Self {
        let text = |field: &str| param_kind.str_at(&[field]).unwrap_or_default();
        let Ok(version) = GroupVersion::parse(text("apiVersion")) else {
            return Resolved { failed: Some(Failed::Parse), ..Resolved::default() };
        };
        let known = Resolved {
            group: version.group.clone(),
            version: version.version.clone(),
            ..Resolved::default()
        };
        match cluster.rest_mapping(&version.kind(text("kind"))) {
            Some(served) => Resolved { resource: served.resource.resource, ..known },
            None => Resolved { failed: Some(Failed::Resolve), ..known },
        }
    }

    fn attributes(&self, verb: &'static str) -> AuthorizationAttributes {
        let mut attributes =
            AuthorizationAttributes::resource(verb, self.group.clone(), self.resource.clone());
        attributes.version = self.version.clone();
        attributes
    }
}

async fn allows(
    cluster: &dyn ClusterView,
    user: &User,
    attributes: &AuthorizationAttributes,
) -> Result<bool, String> {
    let answer = cluster.authorize(user, attributes).await;
    match (answer.decision, answer.error) {
        (Decision::Allow, _) => Ok(true),
        (_, Some(error)) => Err(error),
        (_, None) => Ok(false),
    }
}

/// A user as Go prints its struct.
fn go_struct_text(user: &User) -> String {
    let extra: Vec<String> =
        user.extra.iter().map(|(key, values)| format!("{key}:[{}]", join(values))).collect();
    format!("&{{{} {} [{}] map[{}]}}", user.name, user.uid, join(&user.groups), extra.join(" "))
}

fn join(texts: &[Str]) -> String {
    texts.iter().map(Str::as_str).collect::<Vec<_>>().join(" ")
}
