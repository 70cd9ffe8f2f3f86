//! The versions of a served resource, as the tracking of managed fields needs them.

use api::GroupVersion;
use crd::CrdConversion;
use schema::Schema;
use schema::apply::{Element, Replicas, ServedVersions, Unconverted};
use value::Value;

use crate::{Sent, ServedResource};

impl ServedVersions for ServedResource {
    fn schema(&self, api_version: &str) -> Option<&Schema> {
        let version = GroupVersion::parse(api_version).ok()?;
        if let Some(custom) = self.as_custom() {
            let of_group = version.group == self.gvk.group;
            let version = custom.crd.version(&version.version).filter(|_| of_group)?;
            return Some(version.compiled().schema());
        }
        self.in_version(&version).and_then(|other| other.row()?.schema(&version.version))
    }

    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, Unconverted> {
        let version = GroupVersion::parse(api_version).map_err(Unconverted::Failed)?;
        if let Some(custom) = self.as_custom() {
            if object.str_at(&["apiVersion"]) == Some(api_version) {
                return Ok(object.clone());
            }
            if version.group != self.gvk.group {
                return Err(Unconverted::Failed(format!(
                    "{}, Kind={} is unstructured and is not suitable for converting to {}",
                    object.str_at(&["apiVersion"]).unwrap_or_default(),
                    object.str_at(&["kind"]).unwrap_or_default(),
                    api::field::quote(api_version)
                )));
            }
            if custom.crd.version(&version.version).is_none() {
                return Err(Unconverted::Failed(format!(
                    "request to convert CR to an invalid group/version: {api_version}"
                )));
            }
            // A webhook cannot be called from here: see `RecordedConversions`.
            if custom.crd.conversion != CrdConversion::None {
                return Err(Unconverted::NoSuchVersion);
            }
            // Do not prune fields that the other version lacks: the caller's schema check must fail, since ownership is then unknown.
            let mut object = object.clone();
            object.set_at(&["apiVersion"], api_version);
            return Ok(object);
        }
        let in_version = |version: &GroupVersion| self.in_version(version).ok_or(Unconverted::NoSuchVersion);
        let own = object.str_at(&["apiVersion"]).unwrap_or_default();
        let from = in_version(&GroupVersion::parse(own).map_err(Unconverted::Failed)?)?;
        let to = in_version(&version)?;
        Ok(from.shapes().to_version(Sent::decoded(object.clone()), &to).into_value())
    }

    fn resets(&self, _: &str) -> bool {
        self.as_custom().is_none()
    }
}

impl Replicas for ServedResource {
    fn path(&self, api_version: &str) -> Option<Option<Vec<Element>>> {
        let version = GroupVersion::parse(api_version).ok()?;
        if let Some(custom) = self.as_custom() {
            let found = custom.crd.version(&version.version).filter(|_| version.group == self.gvk.group)?;
            return Some(found.scale.as_ref().map(|paths| {
                let steps = paths.spec_replicas.strip_prefix('.').unwrap_or(&paths.spec_replicas).split('.');
                steps.map(|step| Element::Field(step.into())).collect()
            }));
        }
        let known = version == self.stored.group_version()
            // Versions that are no longer served may still occur in managed fields.
            || version.group == "apps" && matches!(version.version.as_str(), "v1beta1" | "v1beta2");
        known.then(|| Some(vec![Element::Field("spec".into()), Element::Field("replicas".into())]))
    }
}
