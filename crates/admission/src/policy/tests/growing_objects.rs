//! The size of objects that mutations enlarge.

use super::*;

/// Mutations that each add a value of 2 MB times `factor` to a ConfigMap.
fn growing(count: usize, factor: usize, failure_policy: &str) -> String {
    let value = format!(
        "\"{}\".replace(\"a\", \"{}\").replace(\"b\", \"{}\")",
        "a".repeat(100),
        "b".repeat(100),
        "c".repeat(200 * factor)
    );
    let mutation = |n: usize| {
        format!(
            "{{patchType: JSONPatch, jsonPatch: {{expression: '[JSONPatch{{op: \"add\", path: \"/data/k{n}\", value: {value}}}]'}}}}"
        )
    };
    let mutations: Vec<String> = (0..count).map(mutation).collect();
    format!("{{failurePolicy: {failure_policy}, mutations: [{}]}}", mutations.join(", "))
}

/// The result of mutating a ConfigMap, and its size afterwards.
fn mutate_config_map(stage: &dyn AsyncPlugin) -> (Result<(), String>, usize) {
    let cluster = clocked(NO_DEADLINE, vec![namespace()]);
    let mut object = config_map();
    let outcome = with_attributes(|attributes| {
        let (mut notes, mut reinvocation) = (AdmissionNotes::default(), Reinvocation::default());
        let mut request = MutatingRequest {
            attributes,
            cluster: &cluster,
            notes: &mut notes,
            reinvocation: &mut reinvocation,
        };
        run_counting_yields(stage.mutate(&mut request, Some(&mut object))).0
    });
    (outcome, object.size_up_to(usize::MAX))
}

#[test]
fn the_size_of_the_object_is_checked_after_every_mutation() {
    let (outcome, size) = mutate_config_map(&mutating(&growing(2, 1, "Fail")));
    assert_eq!(outcome, Ok(()));
    assert!(size > 4_000_000, "{size}");
    for failure_policy in ["Fail", "Ignore"] {
        for (count, factor) in [(20, 1), (1, 5)] {
            let (outcome, size) = mutate_config_map(&mutating(&growing(count, factor, failure_policy)));
            let why = "413 Request entity too large: admission makes the object larger than 8388608 bytes";
            assert_eq!(outcome, Err(why.to_owned()));
            assert!(size <= 8 << 20, "{size}");
        }
    }
}
