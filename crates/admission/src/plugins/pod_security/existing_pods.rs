//! Checks the pods of a namespace when its policy becomes stricter. Violations cause warnings only.

use std::collections::{HashMap, HashSet};

use api::{GroupVersionKind, meta};
use value::Str;

use super::checks::{PodView, in_short, violations};
use super::{LevelVersion, PodSecurityConfiguration, exempts, runtime_class};
use crate::{ClusterView, UndecodedObject};

/// At most this many pods are checked.
pub(super) const MAX_PODS: usize = 3000;
/// At most so many stored bytes of pods are decoded, which takes about as long as the one second that kube-apiserver limits the check to.
pub(super) const MAX_BYTES: usize = 32 * 1024 * 1024;

fn pods<'a>(namespace: &str, cluster: &'a dyn ClusterView) -> Vec<UndecodedObject<'a>> {
    let pods = cluster.rest_mapping(&GroupVersionKind::new("", "v1", "Pod"));
    pods.map_or_else(Vec::new, |pods| cluster.list_undecoded(&pods, namespace))
}

/// The stored bytes that [`warnings`] decodes.
pub(super) fn stored_bytes(namespace: &str, cluster: &dyn ClusterView) -> usize {
    let bytes = pods(namespace, cluster).iter().map(|pod| pod.stored_bytes).fold(0, usize::saturating_add);
    bytes.min(MAX_BYTES)
}

/// A pod that was checked.
struct CheckedPod {
    name: Str,
    /// The reasons why it violates the level; empty if it does not.
    violations: String,
}

/// The pods that were checked, and how many there are.
struct CheckedPods {
    checked: Vec<CheckedPod>,
    /// Without exempt pods, as far as they are known.
    total: usize,
}

/// Checks the pods of a namespace one at a time, until a limit is reached. Pods of one controller are alike, so one of each controller
/// counts first.
fn check(
    configuration: &PodSecurityConfiguration,
    namespace: &str,
    enforce: LevelVersion,
    cluster: &dyn ClusterView,
) -> CheckedPods {
    let pods = pods(namespace, cluster);
    let (mut first, mut alike) = (Vec::new(), Vec::new());
    let mut controllers: HashSet<Str> = HashSet::new();
    let (mut exempt, mut bytes) = (0, 0_usize);
    for pod in &pods {
        bytes = bytes.saturating_add(pod.stored_bytes);
        if first.len() >= MAX_PODS || bytes > MAX_BYTES {
            break;
        }
        let Some(pod) = pod.read() else { continue };
        if exempts(&configuration.runtime_classes, runtime_class(&pod)) {
            exempt += 1;
            continue;
        }
        let controller = meta::owner_references(&pod).find(|owner| owner.controller);
        let is_first = controller.is_none_or(|owner| controllers.insert(owner.uid));
        let group = if is_first { &mut first } else { &mut alike };
        if group.len() < MAX_PODS {
            let violations = in_short(&violations(enforce, PodView { object: &pod }));
            group.push(CheckedPod { name: meta::name(&pod).into(), violations });
        }
    }
    first.append(&mut alike);
    first.truncate(MAX_PODS);
    CheckedPods { checked: first, total: pods.len().saturating_sub(exempt) }
}

/// The warnings about the pods of a namespace that violate the level to enforce.
pub(super) fn warnings(
    configuration: &PodSecurityConfiguration,
    namespace: &str,
    enforce: LevelVersion,
    cluster: &dyn ClusterView,
) -> Vec<String> {
    let CheckedPods { checked, total } = check(configuration, namespace, enforce, cluster);
    let mut warnings = Vec::new();
    if checked.len() < total {
        let checked = checked.len();
        warnings.push(format!(
            "new PodSecurity enforce level only checked against the first {checked} of {total} existing pods"
        ));
    }
    // For each violation the least name of a pod that has it, and the number of such pods.
    let mut violations: HashMap<String, (Str, usize)> = HashMap::new();
    for pod in checked.into_iter().filter(|pod| !pod.violations.is_empty()) {
        let (least, count) = violations.entry(pod.violations).or_insert_with(|| (pod.name.clone(), 0));
        if pod.name < *least {
            *least = pod.name;
        }
        *count += 1;
    }
    if !violations.is_empty() {
        let namespace = api::field::quote(namespace);
        warnings.push(format!(
            "existing pods in namespace {namespace} violate the new PodSecurity enforce level \"{enforce}\""
        ));
    }
    let of_pods = violations.into_iter().map(|(short, (name, count))| match count {
        1 => format!("{name}: {short}"),
        2 => format!("{name} (and 1 other pod): {short}"),
        count => format!("{name} (and {} other pods): {short}", count - 1),
    });
    let mut of_pods: Vec<String> = of_pods.collect();
    of_pods.sort();
    warnings.append(&mut of_pods);
    warnings
}
