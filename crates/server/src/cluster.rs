//! The cluster as admission sees it: objects from the working set, kinds from the catalog.

use std::sync::Arc;

use admission::{Cluster, Later, Served};
use api::{GroupResource, GroupVersionKind, meta};
use authn::User;
use resources::schema::Link;
use value::Value;

use crate::catalog::Kind;
use crate::encode;
use crate::state::State;

/// Where the objects of a resource are kept.
fn scope(group: &str, resource: &str, namespace: &str) -> String {
    let directory = if group.is_empty() { "core" } else { group };
    if namespace.is_empty() {
        format!("/registry/{directory}/{resource}/")
    } else {
        format!("/registry/{directory}/{resource}/{namespace}/")
    }
}

fn served(kind: &Kind) -> Served {
    Served { resource: kind.resource.clone(), kind: kind.gvk.clone(), namespaced: kind.namespaced }
}

impl Cluster for State {
    fn object(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let key = format!("{}{name}", scope(group, resource, namespace));
        let entry = self.store.get(&key)?;
        encode::tree(&entry).ok().map(Arc::new)
    }

    fn list(&self, group: &str, resource: &str, namespace: &str) -> Vec<Arc<Value>> {
        let snapshot = self.store.snapshot(&scope(group, resource, namespace));
        snapshot.entries.iter().filter_map(|entry| encode::tree(entry).ok()).map(Arc::new).collect()
    }

    fn served(&self, kind: &GroupVersionKind) -> Option<Served> {
        self.catalog.find_kind(&kind.group, &kind.version, &kind.kind).map(|kind| served(&kind))
    }

    fn equivalents(&self, resource: &GroupResource, version: &str) -> Vec<Served> {
        let asked = self.catalog.find(&resource.group, &version.into(), &resource.resource);
        let Some(asked) = asked else { return Vec::new() };
        let others = self.catalog.equivalents(&asked);
        let others = others.iter().filter(|other| other.gvk != asked.gvk).map(|other| served(other));
        std::iter::once(served(&asked)).chain(others).collect()
    }

    fn convert<'a>(
        &'a self,
        object: &'a Value,
        kind: &'a GroupVersionKind,
    ) -> Later<'a, Result<Value, String>> {
        let target = self.catalog.find_kind(&kind.group, &kind.version, &kind.kind);
        if let Some(target) = target.as_ref().filter(|target| target.as_custom().is_some()) {
            let target = Arc::clone(target);
            return Box::pin(async move {
                target.convert(self, object.clone()).await.map_err(|status| status.message().to_owned())
            });
        }
        let converted = match target {
            Some(target) if meta::gvk(object) == target.stored => {
                let mut shown = target.from_stored(object.clone());
                resources::decode::fill(&mut shown, target.schema());
                Ok(shown)
            }
            // What is posted to a subresource has one version.
            _ if meta::gvk(object) == *kind => {
                let mut shown = object.clone();
                if let Some(schema) = resources::schema::of(&kind.group, &kind.version, &kind.kind) {
                    resources::decode::fill(&mut shown, schema);
                }
                Ok(shown)
            }
            _ => Err(format!("{} cannot be converted to {kind}", meta::gvk(object))),
        };
        Box::pin(std::future::ready(converted))
    }

    fn adopt<'a>(
        &'a self,
        mut object: Value,
        kind: &'a GroupVersionKind,
        strict: bool,
    ) -> Later<'a, Result<Value, String>> {
        let target = self.catalog.find_kind(&kind.group, &kind.version, &kind.kind);
        if let Some(custom) = target.as_ref().and_then(|target| target.as_custom()) {
            let compiled = custom.version.compiled();
            let adopted = compiled.coerce(&mut object, strict).and_then(|unknown| {
                if !unknown.is_empty() {
                    let unknown = resources::decode::strict_errors(&unknown, &[]);
                    return Err(format!("strict decoding error: {}", unknown.join(", ")));
                }
                compiled.default(&mut object);
                Ok(object)
            });
            return Box::pin(std::future::ready(adopted));
        }
        let schema = match &target {
            Some(target) => Some(target.schema()),
            None => resources::schema::of(&kind.group, &kind.version, &kind.kind),
        };
        let adopted = match schema {
            None => Err(format!("{kind} is not known")),
            Some(schema) => {
                let outcome = resources::decode::normalise(&mut object, schema);
                let unknown = resources::decode::strict_errors(&outcome.unknown, &[]);
                match outcome.type_error {
                    Some(error) => Err(error),
                    None if strict && !unknown.is_empty() => {
                        Err(format!("strict decoding error: {}", unknown.join(", ")))
                    }
                    None => Ok(match target {
                        Some(target) => target.to_stored(object),
                        None => object,
                    }),
                }
            }
        };
        Box::pin(std::future::ready(adopted))
    }

    fn schema(&self, kind: &GroupVersionKind) -> Option<Link> {
        let served = self.catalog.find_kind(&kind.group, &kind.version, &kind.kind);
        if let Some(custom) = served.as_ref().and_then(|served| served.as_custom()) {
            return Some(Link::Shared(Arc::clone(custom.version.compiled().schema())));
        }
        resources::schema::of(&kind.group, &kind.version, &kind.kind).map(Link::Node)
    }

    fn authorize<'a>(
        &'a self,
        user: &'a User,
        attributes: &'a authz::Attributes,
    ) -> Later<'a, authz::Answer> {
        let chain = self.authorizer.load_full();
        Box::pin(async move { chain.decide(user, attributes).await })
    }
}
