//! Finds the pods that reference a claim or a template.

use std::collections::{BTreeSet, HashMap};

use value::{Str, Value};

use super::ClaimControllerKey;
use super::objects::{ClaimStatuses, extended_claim, is_for_pod, reservations};

/// Index of the claims and templates that pods reference, by namespace and name.
#[derive(Default)]
pub(super) struct PodClaimIndex {
    pub(super) by_claim: HashMap<(Str, Str), BTreeSet<Str>>,
    pub(super) by_template: HashMap<(Str, Str), BTreeSet<Str>>,
    /// Claim names and template names of each pod, used to remove its index entries.
    pub(super) of_pod: HashMap<(Str, Str), (Vec<Str>, Vec<Str>)>,
}

impl PodClaimIndex {
    /// Reports whether every pod that a claim is reserved for has been observed.
    pub(super) fn has_all_reserving_pods(&self, namespace: &Str, claim: &Value) -> bool {
        let seen = |reservation: &Value| {
            let pod = Str::from(reservation.str_at(&["name"]).unwrap_or_default());
            self.of_pod.contains_key(&(namespace.clone(), pod))
        };
        reservations(claim).iter().all(|reservation| !is_for_pod(reservation) || seen(reservation))
    }

    /// Keys of the pods in a namespace that reference claim templates.
    pub(super) fn with_templates_in(&self, namespace: &Str) -> Vec<ClaimControllerKey> {
        let pods =
            self.of_pod.iter().filter(|((own, _), (_, templates))| own == namespace && !templates.is_empty());
        pods.map(|((namespace, name), _)| ClaimControllerKey::Pod {
            namespace: namespace.clone(),
            name: name.clone(),
        })
        .collect()
    }

    pub(super) fn forget(&mut self, namespace: &Str, pod: &Str) {
        let Some((claims, templates)) = self.of_pod.remove(&(namespace.clone(), pod.clone())) else { return };
        for (index, names) in [(&mut self.by_claim, claims), (&mut self.by_template, templates)] {
            for name in names {
                let key = (namespace.clone(), name);
                if let Some(pods) = index.get_mut(&key) {
                    pods.remove(pod);
                    if pods.is_empty() {
                        index.remove(&key);
                    }
                }
            }
        }
    }

    pub(super) fn remember(&mut self, namespace: &Str, pod: &Str, object: &Value) {
        self.forget(namespace, pod);
        let entries = object.list_at(&["spec", "resourceClaims"]);
        let extended = extended_claim(object);
        if entries.is_empty() && extended.is_none() {
            return;
        }
        let statuses = ClaimStatuses::of(object);
        let claims: Vec<Str> = entries
            .iter()
            .filter_map(|one| statuses.resolve(one).ok().flatten())
            .map(|resolved| resolved.name)
            .chain(extended.map(Str::from))
            .collect();
        let templates: Vec<Str> = entries
            .iter()
            .filter_map(|one| one.str_at(&["resourceClaimTemplateName"]))
            .map(Str::from)
            .collect();
        for (index, names) in [(&mut self.by_claim, &claims), (&mut self.by_template, &templates)] {
            for name in names {
                index.entry((namespace.clone(), name.clone())).or_default().insert(pod.clone());
            }
        }
        self.of_pod.insert((namespace.clone(), pod.clone()), (claims, templates));
    }
}
