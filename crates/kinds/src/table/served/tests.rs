use api::features::{Feature, Features};

use super::super::find;
use super::{RuntimeConfig, Served};

fn served(config: &str) -> Served {
    Served::parse(config).unwrap()
}

#[test]
fn only_stable_versions_are_served_by_default() {
    let served = Served::default();
    assert!(served.is_served("", "v1") && served.is_served("resource.k8s.io", "v1"));
    assert!(!served.is_served("resource.k8s.io", "v1beta1"));
    assert!(!served.is_served("admissionregistration.k8s.io", "v1alpha1"));
}

#[test]
fn stages_apply_from_all_to_alpha_in_any_order_on_the_command_line() {
    for config in ["api/all=false,api/beta=true,/v1=true", "/v1=true,api/beta=true,api/all=false"] {
        let served = served(config);
        assert!(served.is_served("resource.k8s.io", "v1beta1"), "{config}");
        assert!(served.is_served("", "v1") && !served.is_served("apps", "v1"), "{config}");
        assert!(!served.is_served("admissionregistration.k8s.io", "v1alpha1"), "{config}");
    }
    let all = served("api/all=true,api/alpha=false");
    assert!(all.is_served("resource.k8s.io", "v1beta1") && !all.is_served("resource.k8s.io", "v1alpha3"));
    let alpha = served("api/alpha=true");
    assert!(alpha.is_served("resource.k8s.io", "v1alpha3") && !alpha.is_served("resource.k8s.io", "v1beta2"));
    let stable = served("api/ga=false");
    assert!(!stable.is_served("apps", "v1") && !stable.has_group("apps"));
}

#[test]
fn a_version_overrides_its_stage_and_a_resource_its_version() {
    let served = served(
        "api/beta=false,resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta1/deviceclasses=false,apps/v1=false,apps/v1/deployments=true",
    );
    let row = |group, plural| find(group, "v1", plural).unwrap();
    let (claims, classes) =
        (row("resource.k8s.io", "resourceclaims"), row("resource.k8s.io", "deviceclasses"));
    assert_eq!(served.versions(claims).collect::<Vec<_>>(), ["v1", "v1beta1"]);
    assert_eq!(served.versions(classes).collect::<Vec<_>>(), ["v1"]);
    assert!(served.is_resource_served(row("apps", "deployments"), "v1") && served.is_served("apps", "v1"));
    assert!(!served.is_resource_served(row("apps", "daemonsets"), "v1"));
}

#[test]
fn values_are_booleans_of_go_and_the_last_value_of_a_key_counts() {
    for on in ["", "=", "=1", "=t", "=True", "=false,resource.k8s.io/v1beta1=true"] {
        assert!(
            served(&format!("resource.k8s.io/v1beta1{on}")).is_served("resource.k8s.io", "v1beta1"),
            "{on}"
        );
    }
    for off in ["=0", "=F", "=true, resource.k8s.io/v1beta1 = false "] {
        assert!(
            !served(&format!("resource.k8s.io/v1beta1{off}")).is_served("resource.k8s.io", "v1beta1"),
            "{off}"
        );
    }
}

#[test]
fn versions_that_are_never_served_can_be_set_without_effect() {
    for version in ["apps/v1beta1", "networking.k8s.io/v1beta1", "extensions/v1beta1"] {
        assert_eq!(served(&format!("{version}=true")), Served::default(), "{version}");
    }
    assert_eq!(served("apps/v1/gadgets=true"), Served::default());
}

#[test]
fn a_resource_is_served_only_if_its_feature_is_on_and_its_version_is_enabled() {
    const SCHEDULING: &str = "scheduling.k8s.io";
    const LIFECYCLE: &str = "lifecycle.k8s.io";
    let names = |config: &str, features: Features, group: &str, version: &str| -> Vec<&str> {
        let served = RuntimeConfig::parse(config).unwrap().served(features);
        let rows = crate::table::group(group).unwrap().resources.iter();
        rows.filter(|row| served.is_resource_served(row, version)).map(|row| row.plural).collect()
    };
    let all = "api/all=true";
    let workloads = Features::default().with(Feature::GenericWorkload);
    for (version, on) in [("v1beta1", &["podgroups", "workloads"]), ("v1alpha3", &["podgroups", "workloads"])]
    {
        assert!(names(all, Features::default(), SCHEDULING, version).is_empty(), "{version}");
        assert!(names("", workloads, SCHEDULING, version).is_empty(), "{version}");
        assert_eq!(names(all, workloads, SCHEDULING, version), on, "{version}");
    }
    let composite = workloads.with(Feature::CompositePodGroup);
    assert_eq!(
        names(all, composite, SCHEDULING, "v1alpha3"),
        ["compositepodgroups", "podgroups", "workloads"]
    );
    assert_eq!(names(all, composite, SCHEDULING, "v1beta1"), ["podgroups", "workloads"]);
    assert!(names(all, composite, LIFECYCLE, "v1alpha1").is_empty());
    let evictions = Features::default().with(Feature::EvictionRequestApi);
    assert!(names("", evictions, LIFECYCLE, "v1alpha1").is_empty());
    assert_eq!(names("api/alpha=true", evictions, LIFECYCLE, "v1alpha1"), ["evictionrequests", "evictions"]);
    assert_eq!(RuntimeConfig::default().served(Features::ALL), Served::default());
}

#[test]
fn invalid_configurations_get_the_messages_of_kubernetes() {
    for (config, expected) in [
        ("v1=true", "runtime-config invalid key v1"),
        ("apps/v1/deployments/scale", "runtime-config invalid key apps/v1/deployments/scale"),
        ("b.example/v1,a.example/v1=false", "unknown api groups a.example/v1,b.example/v1"),
        ("api/v1=true", "unknown api groups api/v1"),
        ("apps/v9=true", "group version apps/v9 that has not been registered"),
        ("/v2=true", "group version v2 that has not been registered"),
        ("api/all=false", "invalid runtime-config with only api/all=false"),
        ("api/beta", "invalid value api/beta="),
        ("api/all=1", "invalid value api/all=1"),
        (
            "apps/v1=maybe",
            r#"invalid value of apps/v1: maybe, err: strconv.ParseBool: parsing "maybe": invalid syntax"#,
        ),
        (
            "apps/v1/Deployments=true",
            r#"invalid key apps/v1/Deployments: group/version/resource and resource is always lowercase plural, not "Deployments""#,
        ),
    ] {
        assert_eq!(Served::parse(config).unwrap_err(), expected, "{config}");
    }
}

#[test]
fn priority_and_fairness_needs_its_api() {
    let conflict = |config: &str| RuntimeConfig::parse(config).unwrap().conflict_with_priority_and_fairness();
    let error = |key: &str| {
        Some(format!("--runtime-config={key}=false conflicts with --enable-priority-and-fairness=true"))
    };
    for key in ["flowcontrol.apiserver.k8s.io/v1", "api/ga"] {
        assert_eq!(conflict(&format!("{key}=false")), error(key));
    }
    assert_eq!(conflict("api/all=false,/v1=true"), error("api/all"));
    for accepted in [
        "",
        "flowcontrol.apiserver.k8s.io/v1beta3=false",
        "flowcontrol.apiserver.k8s.io/v1=true,api/all=false",
        "api/all=false,api/ga=true",
    ] {
        assert_eq!(conflict(accepted), None, "{accepted}");
    }
}
