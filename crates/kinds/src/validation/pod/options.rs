//! Relaxations of pod validation: values that an update may retain although a new pod or template may not have them.

use api::quantity::Quantity;
use api::validation::fields::{At, Read};
use api::validation::meta;
use value::Value;

use super::{annotations, resources, scheduling, sysctls};
use crate::pod_containers::containers;
use crate::validation::ValidationContext;

/// Each relaxation is set if the old object already has such a value.
#[expect(clippy::struct_excessive_bools, reason = "each is one thing an old object may keep")]
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::validation) struct PodValidationOptions {
    /// True for pods, false for templates.
    pub is_pod: bool,
    /// Set by the `--allow-privileged` flag.
    pub allow_privileged: bool,
    pub invalid_deletion_cost: bool,
    pub invalid_selector_values: bool,
    pub invalid_node_affinity_values: bool,
    pub indivisible_huge_pages: bool,
    pub invalid_spread_selectors: bool,
    pub invalid_spread_keys: bool,
    pub non_local_token_path: bool,
    pub host_sysctls: bool,
    pub restarting_resize_of_init_containers: bool,
    pub user_namespace_with_devices: bool,
    pub user_namespace_on_host_network: bool,
    pub comparing_tolerations: bool,
    pub empty_image_reference: bool,
    pub sys_admin_without_escalation: bool,
}

impl PodValidationOptions {
    /// Options for a pod; `old` is the pod before the update.
    pub(in crate::validation) fn for_pod(old: Option<&Value>, context: &ValidationContext) -> Self {
        let mut options = Self::for_template(old, context);
        options.is_pod = true;
        options
    }

    /// Options for a template; `old` is the template before the update.
    pub(in crate::validation) fn for_template(old: Option<&Value>, context: &ValidationContext) -> Self {
        let mut options = PodValidationOptions {
            allow_privileged: context.allow_privileged,
            ..PodValidationOptions::default()
        };
        let Some(old) = old else { return options };
        let annotations = old.part("metadata").part("annotations");
        options.invalid_deletion_cost = !annotations::is_deletion_cost_valid(annotations);
        let Some(spec) = old.part("spec") else { return options };
        options.relax_scheduling(spec);
        options.relax_volumes(spec);
        options.relax_security(spec);
        options.relax_containers(spec);
        options
    }

    fn relax_scheduling(&mut self, spec: &Value) {
        let affinity = spec.part("affinity");
        self.invalid_selector_values = ["podAffinity", "podAntiAffinity"].iter().any(|field| {
            let affinity = affinity.part(field);
            let required = affinity.items("requiredDuringSchedulingIgnoredDuringExecution").iter().map(Some);
            let preferred = affinity
                .items("preferredDuringSchedulingIgnoredDuringExecution")
                .iter()
                .map(|term| term.part("podAffinityTerm"));
            required.chain(preferred).any(|term| {
                ["labelSelector", "namespaceSelector"]
                    .iter()
                    .any(|field| is_selector_invalid(term.part(field)))
            })
        });
        self.invalid_node_affinity_values = affinity
            .part("nodeAffinity")
            .part("requiredDuringSchedulingIgnoredDuringExecution")
            .items("nodeSelectorTerms")
            .iter()
            .any(|term| meta::has_invalid_label_value(Some(term)));
        let spread = spec.items("topologySpreadConstraints");
        self.invalid_spread_selectors =
            spread.iter().any(|constraint| is_selector_invalid(constraint.part("labelSelector")));
        self.invalid_spread_keys = spread.iter().any(|constraint| {
            let mut errors = api::FieldErrors::new();
            scheduling::match_label_keys(constraint, &At::ROOT, &mut errors);
            !errors.is_empty()
        });
        self.comparing_tolerations = spec
            .items("tolerations")
            .iter()
            .any(|toleration| matches!(toleration.text("operator"), "Lt" | "Gt"));
    }

    fn relax_volumes(&mut self, spec: &Value) {
        self.non_local_token_path = spec
            .items("volumes")
            .iter()
            .flat_map(|volume| {
                volume.part("projected").map(|source| source.items("sources")).unwrap_or_default()
            })
            .filter_map(|source| source.part("serviceAccountToken"))
            .any(|token| {
                let mut errors = api::FieldErrors::new();
                super::volume_paths::local_path(token.text("path"), &At::ROOT, &mut errors);
                !errors.is_empty()
            });
        self.empty_image_reference = spec
            .items("volumes")
            .iter()
            .any(|volume| volume.part("image").is_some_and(|image| image.text("reference").is_empty()));
    }

    fn relax_security(&mut self, spec: &Value) {
        self.host_sysctls = spec
            .part("securityContext")
            .items("sysctls")
            .iter()
            .any(|sysctl| sysctls::host_sysctl(sysctl.text("name"), spec).is_some());
        let own_users = spec.flag_if_set("hostUsers") == Some(false);
        self.user_namespace_with_devices =
            own_users && containers(spec).any(|container| !container.items("volumeDevices").is_empty());
        self.user_namespace_on_host_network = own_users && spec.flag("hostNetwork");
        self.sys_admin_without_escalation = containers(spec).any(|container| {
            let context = container.part("securityContext");
            context.flag_if_set("allowPrivilegeEscalation") != Some(true)
                && context.part("capabilities").is_some_and(|c| c.texts("add").any(|c| c == "CAP_SYS_ADMIN"))
        });
    }

    fn relax_containers(&mut self, spec: &Value) {
        self.restarting_resize_of_init_containers = spec.items("initContainers").iter().any(|container| {
            container.text("restartPolicy") != "Always"
                && container
                    .items("resizePolicy")
                    .iter()
                    .any(|p| p.text("restartPolicy") == "RestartContainer")
        });
        self.indivisible_huge_pages = containers(spec)
            .filter_map(|container| container.part("resources"))
            .flat_map(|resources| resources.entries("limits").chain(resources.entries("requests")))
            .chain(spec.entries("overhead"))
            .any(|(name, quantity)| {
                api::pod_resources::is_huge_page(name)
                    && !quantity
                        .as_str()
                        .and_then(|text| Quantity::parse(text).ok())
                        .is_some_and(|quantity| resources::is_divisible(name, &quantity))
            });
    }
}

fn is_selector_invalid(selector: Option<&Value>) -> bool {
    let mut errors = api::FieldErrors::new();
    meta::label_selector(selector, false, &At::ROOT, &mut errors);
    !errors.is_empty()
}
