//! Checks that the cost of every write stage grows linearly with the length of every list field.
//!
//! The test finds each list field of the schema table in a kind that has it, makes that list 1,000 and 10,000 items long, and runs
//! everything that a write runs: decoding, defaults, strategies, validation, warnings, patches and server-side apply. The plugins of
//! admission are measured with the same cases in `crates/admission/tests/linear.rs`. It counts accesses to the value trees
//! (`value::steps`), which do not depend on the machine. Ten times as many items may take at most fifteen times as many steps. Loops over
//! texts copied out of the tree do not count as steps, so a second test searches the sources for their usual spellings.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod cases;
mod samples;
mod stages;

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use api::FieldErrors;
use api::field_errors::MAX_ERROR_BYTES;
use schema::ValueType;
use value::{Budget, BudgetEnded, Value, steps};

use cases::{LinearCase, cases};
use samples::{SampleStyle, object};
use stages::{MeasuredStage, STAGES, validated};

/// List lengths that are compared, and the highest allowed ratio of their steps.
const SHORT: usize = 1000;
const LONG: usize = 10_000;
const FACTOR: u64 = 15;

/// Steps and duration of a stage for a list of the given length.
fn measure(case: &LinearCase, stage: MeasuredStage, length: usize, style: SampleStyle) -> (u64, Duration) {
    let object = object(case, length, style);
    let start = Instant::now();
    let steps = steps::of(|| stage(case, &object));
    (steps, start.elapsed())
}

/// Runs `check` for each case on all cores, and fails with the problems that it returns.
fn check_all(check: impl Fn(&LinearCase) -> Vec<String> + Sync) {
    let cases = cases();
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = check(case);
                    wrong.lock().unwrap().extend(found);
                }
            });
        }
    });
    let mut wrong = wrong.into_inner().unwrap();
    wrong.sort_unstable();
    assert!(wrong.is_empty(), "{} problems:\n{}", wrong.len(), wrong.join("\n"));
}

/// The problem if a stage takes too many steps.
fn compared(case: &LinearCase, name: &str, stage: MeasuredStage, style: SampleStyle) -> Option<String> {
    let (short, short_time) = measure(case, stage, SHORT, style);
    let (long, long_time) = measure(case, stage, LONG, style);
    let (kind, case) = (case.kind, &case.name);
    // Durations help to find loops that steps do not show. They do not affect the result.
    if std::env::var_os("PORTCULLIS_PRINT_TIMES").is_some() {
        eprintln!("{long_time:?} {short_time:?} {long} {short} {name} {style:?} {kind} {case}");
    }
    let is_too_much = long > short.saturating_mul(FACTOR);
    is_too_much.then(|| format!("{case} in {kind}, {name}, {style:?}: {short} steps, then {long}"))
}

#[test]
fn ten_times_as_many_items_take_at_most_fifteen_times_as_many_steps() {
    check_all(|case| {
        let compared = |(name, stage)| compared(case, name, stage, SampleStyle::Valid);
        STAGES.into_iter().filter_map(compared).collect()
    });
}

#[test]
fn errors_about_every_item_take_linear_steps_and_limited_memory() {
    let bytes = |errors: &FieldErrors| -> usize {
        let value = |value: &Value| value.size_up_to(usize::MAX);
        let size = |error: &api::FieldError| {
            error.field.len() + error.detail.len() + error.bad_value.as_ref().map_or(0, value)
        };
        errors.iter().map(size).sum()
    };
    check_all(|case| {
        let mut wrong = Vec::new();
        for style in [SampleStyle::Invalid, SampleStyle::Equal] {
            let validate: MeasuredStage = |case, object| drop(validated(case, object));
            wrong.extend(compared(case, "validate", validate, style));
            let object = object(case, LONG, style);
            let input = object.size_up_to(usize::MAX);
            for errors in validated(case, &object) {
                let output = bytes(&errors);
                if output > MAX_ERROR_BYTES + 2 * input {
                    let kind = case.kind;
                    wrong.push(format!(
                        "{} in {kind}, {style:?}: {output} bytes of errors from {input}",
                        case.name
                    ));
                }
            }
        }
        wrong
    });
}

/// Every stage checks the budget of its request: it ends soon after the budget does.
#[test]
fn an_ended_budget_interrupts_every_stage() {
    let case = cases().into_iter().find(|case| case.name == "core.v1.PodSpec.containers").unwrap();
    let object = object(&case, LONG, SampleStyle::Valid);
    for (name, stage) in STAGES {
        let whole = Budget::new(u64::MAX);
        steps::within(&whole, || stage(&case, &object)).unwrap();
        for steps in [1000, 5000] {
            let budget = Budget::new(steps);
            let ended = steps::within(&budget, || stage(&case, &object));
            assert_eq!(ended, Err(BudgetEnded::Exhausted), "{name}");
            assert!(budget.spent() < steps + 2000, "{name}: {} of {} steps", budget.spent(), whole.spent());
        }
        // Another thread cancels it once it has begun.
        let budget = Budget::new(u64::MAX);
        let other = budget.clone();
        let cancels = std::thread::spawn(move || {
            while other.spent() == 0 {
                std::thread::yield_now();
            }
            other.cancel();
        });
        let mut rounds = 0;
        let ended = steps::within(&budget, || {
            // More rounds than the other thread can possibly miss.
            while rounds < 1000 {
                stage(&case, &object);
                rounds += 1;
            }
        });
        cancels.join().unwrap();
        assert_eq!(ended, Err(BudgetEnded::Canceled), "{name}");
        assert!(rounds < 1000, "{name}");
    }
}

#[test]
fn interrupted_validation_reports_one_error_that_says_so() {
    let case = cases().into_iter().find(|case| case.name == "core.v1.PodSpec.containers").unwrap();
    let object = object(&case, LONG, SampleStyle::Valid);
    let rules = || validated(&case, &object).into_iter().flatten().collect::<FieldErrors>();
    let of = |budget: &Budget| -> Vec<String> {
        kinds::validation::bounded(budget, rules).iter().map(ToString::to_string).collect()
    };
    let exhausted = "<nil>: Forbidden: validation takes too many steps; use shorter lists and texts";
    assert_eq!(of(&Budget::new(100)), [exhausted]);
    let canceled = Budget::new(u64::MAX);
    canceled.cancel();
    assert_eq!(of(&canceled), ["<nil>: Forbidden: validation was canceled because the request ended"]);
    assert!(!of(&Budget::new(u64::MAX)).iter().any(|error| error.contains("steps")));
}

/// List fields that no stored object contains: they occur in responses and in options.
const NOT_STORED: [&str; 28] = [
    "core.v1.PodExecOptions.command",
    "core.v1.PodPortForwardOptions.ports",
    // Only read from etcd, and converted to v1.
    "discovery.v1beta1.Endpoint.addresses",
    "discovery.v1beta1.EndpointSlice.endpoints",
    "discovery.v1beta1.EndpointSlice.ports",
    "meta.v1.APIGroup.serverAddressByClientCIDRs",
    "meta.v1.APIGroup.versions",
    "meta.v1.APIGroupList.groups",
    "meta.v1.APIResource.categories",
    "meta.v1.APIResource.shortNames",
    "meta.v1.APIResource.verbs",
    "meta.v1.APIResourceList.resources",
    "meta.v1.APIVersions.serverAddressByClientCIDRs",
    "meta.v1.APIVersions.versions",
    "meta.v1.DeleteOptions.dryRun",
    "meta.v1.StatusDetails.causes",
    // Only read from etcd, and converted to v1.
    "networking.v1beta1.HTTPIngressRuleValue.paths",
    "networking.v1beta1.IngressSpec.rules",
    "networking.v1beta1.IngressSpec.tls",
    "rbac.v1alpha1.ClusterRole.rules",
    "rbac.v1alpha1.ClusterRoleBinding.subjects",
    "rbac.v1alpha1.PolicyRule.apiGroups",
    "rbac.v1alpha1.PolicyRule.nonResourceURLs",
    "rbac.v1alpha1.PolicyRule.resourceNames",
    "rbac.v1alpha1.PolicyRule.resources",
    "rbac.v1alpha1.PolicyRule.verbs",
    "rbac.v1alpha1.Role.rules",
    "rbac.v1alpha1.RoleBinding.subjects",
];

#[test]
fn every_list_field_of_every_type_is_a_case() {
    let cases = cases();
    let covered: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    let mut missing = Vec::new();
    for name in schema::all() {
        let ValueType::Object(object) = &schema::named(name).unwrap().value_type else { continue };
        for property in &object.properties {
            let field = format!("{name}.{}", property.name);
            // Skips the items of list responses.
            let is_list_kind = name.ends_with("List") && property.name == "items";
            if matches!(property.schema.get().value_type, ValueType::List(_))
                && !is_list_kind
                && !covered.contains(field.as_str())
            {
                missing.push(field);
            }
        }
    }
    assert_eq!(missing, NOT_STORED);
    // The exact count detects lost cases.
    assert_eq!(cases.len(), 464);
}

#[test]
fn step_counts_detect_a_quadratic_list_search() {
    let case = cases().into_iter().find(|case| case.name == "core.v1.PodSpec.volumes").unwrap();
    let searched: MeasuredStage = |_, object| {
        let volumes = object.list_at(&["spec", "volumes"]);
        let repeats = |(i, volume): (usize, &Value)| {
            volumes.iter().take(i).any(|earlier| earlier.get("name") == volume.get("name"))
        };
        assert!(!volumes.iter().enumerate().any(repeats));
    };
    let (short, _) = measure(&case, searched, 100, SampleStyle::Valid);
    let (long, _) = measure(&case, searched, 1000, SampleStyle::Valid);
    assert!(long > short * FACTOR, "{short} steps, then {long}");
}

/// Common spellings of a search through a list for each of its items. Searching constant lists with `contains` is fine.
const SEARCHES: [&str; 5] =
    [".take(i).any(", ".skip(i + 1).any(", "seen: Vec<", "get(..i).is_some_and(", "seen.push("];

#[test]
fn no_rule_searches_a_list_for_each_of_its_items() {
    fn sources(folder: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                found.push(path);
            }
        }
    }
    let mut files = Vec::new();
    for folder in [
        "kinds/src/validation",
        "kinds/src/strategy",
        "kinds/src/defaults",
        "kinds/src/warnings",
        "crd/src",
        "admission/src/plugins",
    ] {
        sources(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder), &mut files);
    }
    assert!(files.len() > 50, "the sources are read");
    let mut wrong = Vec::new();
    for file in files.iter().filter(|file| !file.to_string_lossy().contains("tests")) {
        for (number, line) in std::fs::read_to_string(file).unwrap().lines().enumerate() {
            if SEARCHES.iter().any(|search| line.contains(search)) {
                wrong.push(format!("{}:{}: {}", file.display(), number + 1, line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "use `Repeated` or a set instead:\n{}", wrong.join("\n"));
}
