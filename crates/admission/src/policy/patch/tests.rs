use super::*;

/// Lists in lists, each twice the one below: `levels` of them.
fn doubled(levels: usize) -> Val<'static> {
    (0..levels).fold(Val::list(vec![Val::Int(1)]), |inner, _| Val::list(vec![inner.clone(), inner]))
}

#[test]
fn what_shares_its_parts_is_counted_as_if_it_did_not() {
    assert_eq!(is_bounded(&doubled(10)), Ok(()));
    let too_large = Err("what the mutation gives is too large".to_owned());
    assert_eq!(is_bounded(&doubled(60)), too_large);
    assert_eq!(patch(&doubled(60), &Value::Null).map(drop), too_large);
}
