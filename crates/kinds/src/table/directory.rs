//! Storage directories: every resource has its own key prefix, laid out as in kube-apiserver.
//!
//! A built-in resource uses the directory that Kubernetes gives it, usually its plural name. A custom resource uses
//! `<group>/<plural>`. The group of a CRD contains a dot, and only two built-in directories begin with a segment that
//! does, so only those two can collide ([`overlapping`]). CRDs that collide are rejected and never served.

use api::GroupResource;

use super::{KindStorage, Resource, all};

impl Resource {
    /// Directory of the objects, relative to the root of all keys and without leading or trailing slash. `None` if the
    /// resource is not stored. `events` of both groups share one directory.
    pub fn directory(&self) -> Option<&'static str> {
        match self.storage {
            KindStorage::Nowhere => None,
            KindStorage::Own(_) | KindStorage::With(..) => Some(self.directory.unwrap_or(self.plural)),
        }
    }
}

pub fn custom_directory(group: &str, plural: &str) -> String {
    format!("{group}/{plural}")
}

/// Returns the built-in resource whose directory equals, contains or is contained in that of the custom resource.
pub fn overlapping(group: &str, plural: &str) -> Option<GroupResource> {
    let overlapping = all().find(|row| {
        row.directory().is_some_and(|directory| {
            let mut custom = [group, plural].into_iter();
            let mut built_in = directory.split('/');
            loop {
                match (custom.next(), built_in.next()) {
                    (Some(a), Some(b)) if a == b => {}
                    (Some(_), Some(_)) => return false,
                    _ => return true,
                }
            }
        })
    });
    overlapping.map(|row| GroupResource::new(row.group, row.plural))
}
