use super::{BASE, Commit, check, parse};

fn complaints(message: &str) -> Vec<String> {
    check(&Commit { hash: BASE, message })
}

#[test]
fn an_imperative_subject_with_a_body_is_accepted() {
    for message in [
        "Add watch bookmarks",
        "dra: release consumed capacity on delete",
        "cel, value: pass the budget of regular expressions\n\nMatching was not counted.\n",
        "api: embed the OpenAPI document",
        "server: pass `Accept` on",
    ] {
        assert!(complaints(message).is_empty(), "{:?}", complaints(message));
    }
}

#[test]
fn a_subject_in_another_mood_is_rejected() {
    for (message, word) in [
        ("A tree that is printed for a message ends soon", "A"),
        ("The store is opened once", "The"),
        ("Bytes that are there are told from none", "Bytes"),
        ("server: added a flag", "added"),
        ("server: adding a flag", "adding"),
        ("server: wrote a test", "wrote"),
    ] {
        let expected = format!(
            "2533c3879f `{message}`: `{word}` is no verb in the imperative mood, such as `add` or `refuse`"
        );
        assert_eq!(complaints(message), [expected]);
    }
    assert_eq!(complaints("fixup! server: add a flag").len(), 1);
}

#[test]
fn a_subject_of_72_characters_is_accepted_and_of_73_is_rejected() {
    let subject = format!("add {}", "é".repeat(68));
    assert!(complaints(&subject).is_empty());
    assert_eq!(complaints(&format!("{subject}é")).len(), 1);
}

#[test]
fn a_full_stop_an_empty_subject_and_a_second_line_are_rejected() {
    assert_eq!(complaints("server: add a flag.").len(), 1);
    assert_eq!(complaints("").len(), 1);
    let two_lines = "server: add a flag\nand remove another";
    assert_eq!(
        complaints(two_lines),
        ["2533c3879f `server: add a flag`: the line after the subject is not empty"]
    );
}

#[test]
fn commits_are_separated_by_nul_characters() {
    let log = "h1\nfirst\n\nbody\n\0h2\nsecond\n\0";
    let expected =
        [Commit { hash: "h1", message: "first\n\nbody" }, Commit { hash: "h2", message: "second" }];
    assert_eq!(parse(log), expected);
    assert!(parse("").is_empty());
}
