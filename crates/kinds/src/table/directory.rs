//! Where objects are stored: every resource has a directory of its own, laid out as Kubernetes lays out its keys.
//!
//! A built-in resource has the directory that Kubernetes gives it, most often its plural name. A custom resource has
//! `<group>/<plural>`. A CRD's group contains a dot, and only two built-in directories begin with a segment that does, so
//! [`overlapping`] finds something for those two alone. CRDs for which it does are refused, and never served.

use api::GroupResource;

use super::{Resource, Storage, all};

impl Resource {
    /// The directory of its objects, relative to the root of all keys and without slashes around it; `None` if nothing is
    /// stored. `events` of both groups share one.
    pub fn directory(&self) -> Option<&'static str> {
        match self.storage {
            Storage::Nowhere => None,
            Storage::Own(_) | Storage::With(..) => Some(self.directory.unwrap_or(self.plural)),
        }
    }
}

/// The directory of a custom resource.
pub fn custom_directory(group: &str, plural: &str) -> String {
    format!("{group}/{plural}")
}

/// The built-in resource whose directory equals, contains or lies within that of a custom resource.
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
