use super::*;

fn maintained(kind: FlowControlKind, name: &str) -> Maintained {
    objects().into_iter().find(|found| found.kind == kind && found.name() == name).unwrap()
}

fn stored(of: &Maintained, generation: i64) -> Value {
    let mut stored = of.object.clone();
    stored.set_at(&["metadata", "generation"], generation);
    stored
}

#[test]
fn there_are_two_mandatory_objects_of_each_kind_and_fifteen_suggested_ones() {
    let all = objects();
    assert_eq!(all.iter().filter(|found| found.is_mandatory).count(), 4);
    assert_eq!(all.len(), 19);
}

#[test]
fn correct_objects_stay_and_missing_ones_are_created() {
    for one in objects() {
        assert_eq!(one.revise(None), MaintenanceWrite::Create(one.object.clone()));
        assert_eq!(one.revise(Some(&stored(&one, 1))), MaintenanceWrite::Keep);
    }
}

#[test]
fn a_changed_suggested_spec_is_restored_unless_its_annotation_forbids_it() {
    let level = maintained(FlowControlKind::PriorityLevel, "workload-low");
    let mut changed = stored(&level, 2);
    changed.set_at(&["spec", "limited", "nominalConcurrencyShares"], 7_i64);
    assert_eq!(level.revise(Some(&changed)), MaintenanceWrite::Update(stored(&level, 2)));
    changed.set_at(&["metadata", "annotations", AUTO_UPDATE], "false");
    assert_eq!(level.revise(Some(&changed)), MaintenanceWrite::Keep);
    // Without a readable annotation, a changed spec belongs to the operator, and the annotation records that from now on.
    for word in [Some("maybe"), None] {
        match word {
            Some(word) => changed.set_at(&["metadata", "annotations", AUTO_UPDATE], word),
            None => drop(changed.remove_at(&["metadata", "annotations"])),
        }
        let mut customized = changed.clone();
        customized.set_at(&["metadata", "annotations", AUTO_UPDATE], "false");
        assert_eq!(level.revise(Some(&changed)), MaintenanceWrite::Update(customized));
    }
    // A spec that was never changed belongs to the server.
    changed.set_at(&["metadata", "generation"], 1_i64);
    assert_eq!(level.revise(Some(&changed)), MaintenanceWrite::Update(stored(&level, 1)));
}

#[test]
fn a_mandatory_object_is_restored_whatever_its_annotation_says() {
    let schema = maintained(FlowControlKind::FlowSchema, "catch-all");
    let mut changed = stored(&schema, 5);
    changed.set_at(&["spec", "matchingPrecedence"], 9_i64);
    changed.set_at(&["metadata", "annotations", AUTO_UPDATE], "false");
    assert_eq!(schema.revise(Some(&changed)), MaintenanceWrite::Update(stored(&schema, 5)));
}

#[test]
fn changes_to_the_seats_of_the_exempt_level_are_preserved() {
    let level = maintained(FlowControlKind::PriorityLevel, "exempt");
    let mut changed = stored(&level, 3);
    changed.set_at(&["spec", "exempt", "nominalConcurrencyShares"], 40_i64);
    changed.set_at(&["spec", "exempt", "lendablePercent"], 50_i64);
    assert_eq!(level.revise(Some(&changed)), MaintenanceWrite::Keep);
    changed.remove_at(&["spec", "exempt"]);
    assert_eq!(level.revise(Some(&changed)), MaintenanceWrite::Update(stored(&level, 3)));
}

#[test]
fn only_unknown_objects_with_the_annotation_are_obsolete() {
    let mut foreign = maintained(FlowControlKind::FlowSchema, "probes").object;
    assert!(!is_obsolete(FlowControlKind::FlowSchema, &foreign));
    assert!(is_obsolete(FlowControlKind::PriorityLevel, &foreign), "there is no such level");
    foreign.set_at(&["metadata", "name"], "old");
    for (word, obsolete) in [("true", true), ("T", true), ("false", false), ("yes", false)] {
        foreign.set_at(&["metadata", "annotations", AUTO_UPDATE], word);
        assert_eq!(is_obsolete(FlowControlKind::FlowSchema, &foreign), obsolete, "{word}");
    }
    foreign.remove_at(&["metadata", "annotations"]);
    assert!(!is_obsolete(FlowControlKind::FlowSchema, &foreign));
}
