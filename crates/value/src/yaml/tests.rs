use super::{body, documents, read, write};
use crate::{Path, json, write as canonical};

/// The JSON of a YAML text.
#[track_caller]
fn check(input: &str, expected: &str) {
    match read(input.as_bytes()) {
        Ok(read) => assert_eq!(canonical::to_string(&read.value), expected, "{input}"),
        Err(error) => panic!("{input}: {error}"),
    }
}

#[track_caller]
fn refuse(input: &str, message: &str) {
    match read(input.as_bytes()) {
        Ok(read) => panic!("{input}: read as {}", canonical::to_string(&read.value)),
        Err(error) => assert_eq!(error.message, message, "{input}"),
    }
}

#[test]
fn words_are_booleans_and_nulls_as_in_yaml_1_1() {
    check(
        "[y, Y, yes, Yes, YES, true, True, TRUE, on, On, ON]",
        "[true,true,true,true,true,true,true,true,true,true,true]",
    );
    check(
        "[n, N, no, No, NO, false, False, FALSE, off, Off, OFF]",
        "[false,false,false,false,false,false,false,false,false,false,false]",
    );
    check("[~, null, Null, NULL, '', !!null ]", r#"[null,null,null,null,"",null]"#);
    check("[yEs, tRUE, oN, nUll, nO]", r#"["yEs","tRUE","oN","nUll","nO"]"#);
}

#[test]
fn fields_are_located() {
    let documents =
        documents(b"# c\n---\na: 1\nspec:\n  l:\n  - x: &q {p: 1}\n    y.z: *q\n---\nb: 2\n").unwrap();
    let [_, first, second] = documents.as_slice() else { panic!("{documents:?}") };
    assert_eq!((first.line, second.line), (3, 9));
    let place = first.spans.locate(&Path::root().field("spec").field("l").index(0).field("y.z")).unwrap();
    assert_eq!((place.key.to_string(), place.value.to_string()), ("7:5".to_owned(), "7:10".to_owned()));
    assert_eq!(first.spans.locate_text("spec.l[0].y.z.p").unwrap().value.to_string(), "6:15");
    assert_eq!(first.spans.locate_text("spec.l[1]"), None);
    assert_eq!(first.spans.nearest("spec.l[0].q").value.to_string(), "6:5");
    assert_eq!(second.spans.locate_text("b").unwrap().key.to_string(), "9:1");
}
