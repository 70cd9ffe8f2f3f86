use super::*;

fn warned(texts: impl IntoIterator<Item = String>) -> AdmissionNotes {
    let mut notes = AdmissionNotes::default();
    texts.into_iter().for_each(|text| notes.warn(text));
    notes
}

fn bytes(texts: &[String]) -> usize {
    texts.iter().map(String::len).sum()
}

#[test]
fn distinct_warnings_are_collected_in_order() {
    let notes = warned(["b", "a", "b", ""].map(str::to_owned));
    assert_eq!(notes.warnings, ["b", "a"]);
    let short: Vec<String> = (0..60).map(|n| format!("{n:060}")).collect();
    assert_eq!(warned(short.clone()).warnings, short);
    // A first warning that is too long is cut, and does not displace the others.
    let mixed = vec!["long".repeat(2000), "second".to_owned()];
    assert_eq!(warned(mixed.clone()).warnings, mixed);
}

#[test]
fn warnings_that_the_response_cannot_contain_are_not_collected() {
    let long = |n: usize| format!("{n:010}{}", "w".repeat(10_000));
    assert!(bytes(&warned((0..1000).map(long)).warnings) < 200_000);
    assert!(bytes(&warned((0..100_000).map(|n| format!("{n}"))).warnings) < 10_000);
    assert_eq!(bytes(&warned((0..1000).map(|n| format!("{n}\n"))).warnings), 0);
    let mut all = AdmissionNotes::default();
    (0..1000).for_each(|n| all.extend(warned([long(n)])));
    assert!(bytes(&all.warnings) < 200_000);
}

#[test]
fn audit_annotations_are_complete_up_to_a_total_size() {
    let value = |length: usize| "a".repeat(length);
    let mut notes = AdmissionNotes::default();
    for n in 0..8 {
        notes.annotate(format!("k{n}"), value(1 << 20));
    }
    assert!(notes.annotations.iter().all(|annotation| annotation.value.len() == 1 << 20));
    for n in 0..100 {
        notes.annotate(format!("l{n}"), value(1 << 20));
    }
    let mut other = AdmissionNotes::default();
    other.annotate("m", value(1 << 20));
    notes.extend(other);
    assert_eq!(notes.annotations.len(), 109);
    let total: usize = notes.annotations.iter().map(|annotation| annotation.value.len()).sum();
    assert!(total < MAX_ANNOTATION_BYTES + 200_000, "{total}");
}
