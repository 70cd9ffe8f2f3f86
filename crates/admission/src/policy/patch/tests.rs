use std::sync::Arc;

use cel::ObjectVal;

use super::*;

/// `levels` nested lists, each of which contains the next inner one twice.
fn doubled(levels: usize) -> Val<'static> {
    (0..levels).fold(Val::list(vec![Val::Int(1)]), |inner, _| Val::list(vec![inner.clone(), inner]))
}

#[test]
fn size_limit_of_mutations_counts_shared_values_each_time_they_occur() {
    assert_eq!(check_size(&doubled(10)), Ok(()));
    let too_large = Err("the result of the mutation is too large".to_owned());
    assert_eq!(check_size(&doubled(60)), too_large);
    assert_eq!(apply_json_patch(&doubled(60), &Value::Null).map(drop), too_large);
}

#[test]
fn size_limit_of_mutations_counts_repeated_strings_each_time() {
    let text = "x".repeat(1 << 20);
    let map = Value::map([(text.clone(), 1)]);
    let field =
        Arc::new(ObjectVal { type_name: "Object".into(), fields: vec![(text.clone().into(), Val::Null)] });
    let bytes = Val::Bytes(text.clone().into_bytes().into());
    for item in [Val::str(&text), bytes, Val::data(&map), Val::Object(field)] {
        let many = |count: usize| Val::list(std::iter::repeat_n(item.clone(), count).collect());
        assert_eq!(check_size(&many(16)), Ok(()));
        let too_large = Err("the result of the mutation is too large".to_owned());
        assert_eq!(check_size(&many(17)), too_large);
    }
}
