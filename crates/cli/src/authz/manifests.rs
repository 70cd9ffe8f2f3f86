//! Reads the roles, bindings and other objects that authorizers use from manifest files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use api::features::Features;
use api::meta;
use authz::node::{self, NodeAuthorizer};
use authz::rbac::{self, aggregation, bootstrap};
use value::{Value, yaml};

/// The data of the RBAC and Node authorizers.
pub(super) struct AuthorizerData {
    pub(super) roles: Arc<rbac::RbacIndex>,
    pub(super) nodes: Arc<NodeAuthorizer>,
}

/// Reads files, and the YAML and JSON files in directories. Computes the rules of aggregated ClusterRoles as the controller does.
pub(super) fn read(paths: &[PathBuf], with_bootstrap: bool) -> Result<AuthorizerData> {
    let mut objects = if with_bootstrap { bootstrap::objects(Features::default()) } else { Vec::new() };
    for path in paths {
        for file in files(path)? {
            let bytes = std::fs::read(&file).with_context(|| format!("cannot read `{}`", file.display()))?;
            let documents = yaml::documents(&bytes).map_err(|error| {
                anyhow::anyhow!("{}:{}: {}", file.display(), error.position, error.message)
            })?;
            for document in documents {
                add(document.value, &mut objects, &file)?;
            }
        }
    }
    let data = AuthorizerData { roles: Arc::default(), nodes: Arc::new(NodeAuthorizer::new()) };
    let mut cluster_roles: Vec<Value> = Vec::new();
    for object in objects {
        let kind = object.str_at(&["kind"]).unwrap_or_default();
        match (rbac::RbacKind::parse(kind), node::GraphKind::parse(kind)) {
            (Some(rbac::RbacKind::ClusterRole), _) => {
                // A ClusterRole replaces an earlier one of the same name.
                cluster_roles.retain(|role| meta::name(role) != meta::name(&object));
                cluster_roles.push(object);
            }
            (Some(kind), _) => data.roles.apply(kind, None, Some(&object)),
            (_, Some(kind)) => data.nodes.graph().apply(kind, None, Some(&object)),
            _ => {}
        }
    }
    aggregate(&mut cluster_roles);
    for role in &cluster_roles {
        data.roles.apply(rbac::RbacKind::ClusterRole, None, Some(role));
    }
    Ok(data)
}

/// Repeats until nothing changes, because an aggregated ClusterRole may itself be aggregated; cycles end after one round per role.
fn aggregate(roles: &mut [Value]) {
    roles.sort_by(|a, b| meta::name(a).cmp(meta::name(b)));
    for _ in 0..roles.len() {
        let all: Vec<Value> = roles.to_vec();
        let all: Vec<&Value> = all.iter().collect();
        let mut changed = false;
        for role in roles.iter_mut() {
            if let Some(rules) = aggregation::rules(role, &all) {
                role.set_at(&["rules"], Value::List(rules.iter().map(rbac::PolicyRule::to_value).collect()));
                changed = true;
            }
        }
        if !changed {
            return;
        }
    }
}

fn files(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).with_context(|| format!("cannot read `{}`", path.display()))? {
        let file = entry?.path();
        let extension = file.extension().and_then(|e| e.to_str()).unwrap_or_default();
        if file.is_file() && matches!(extension, "yaml" | "yml" | "json") {
            found.push(file);
        }
    }
    found.sort();
    Ok(found)
}

fn add(object: Value, objects: &mut Vec<Value>, file: &Path) -> Result<()> {
    let kind = object.str_at(&["kind"]).unwrap_or_default();
    if object.is_null() {
        return Ok(());
    }
    if kind.is_empty() {
        bail!("{}: an object has no kind", file.display());
    }
    if kind.ends_with("List") && object.get("items").is_some() {
        let (api_version, item_kind) = (
            object.str_at(&["apiVersion"]).unwrap_or_default().to_owned(),
            kind.trim_end_matches("List").to_owned(),
        );
        for item in object.list_at(&["items"]) {
            let mut item = item.clone();
            // The items of a list of one kind, such as RoleList, need not repeat the kind.
            if item.str_at(&["kind"]).is_none() && !item_kind.is_empty() {
                item.set_at(&["kind"], item_kind.as_str());
                item.set_at(&["apiVersion"], api_version.as_str());
            }
            add(item, objects, file)?;
        }
        return Ok(());
    }
    if rbac::RbacKind::parse(kind).is_none() && node::GraphKind::parse(kind).is_none() {
        bail!("{}: no authorizer uses the kind `{kind}`; remove the object", file.display());
    }
    objects.push(object);
    Ok(())
}
