use http::{HeaderMap, HeaderValue, header::ACCEPT};

use super::{Media, Zpage, ZpageForm, ZpageVersion, date, flags_text, requested_form, unix_date};

#[test]
fn zpages_are_plain_text_unless_their_kind_is_requested() {
    let asked = |accept: &'static str| {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        requested_form(&headers, Zpage::Status)
    };
    assert_eq!(requested_form(&HeaderMap::new(), Zpage::Flags), Some(ZpageForm::Text));
    for text in ["", "*/*", "text/*", "text/plain", "application/json, text/plain;q=0.1"] {
        assert_eq!(asked(text), Some(ZpageForm::Text), "{text}");
    }
    assert_eq!(
        asked("application/json;v=v1beta1;g=config.k8s.io;as=Statusz"),
        Some(ZpageForm::Object(Media::Json, ZpageVersion::Beta))
    );
    assert_eq!(
        asked("application/yaml;v=v1alpha1;g=config.k8s.io;as=Statusz"),
        Some(ZpageForm::Object(Media::Yaml, ZpageVersion::Alpha))
    );
    for nothing in [
        "application/json",
        "text/html",
        "application/json;v=v1;g=config.k8s.io;as=Statusz",
        "application/json;v=v1beta1;g=config.k8s.io;as=Flagz",
    ] {
        assert_eq!(asked(nothing), None, "{nothing}");
    }
}

#[test]
fn the_content_type_of_a_zpage_names_its_group_version_and_kind() {
    assert_eq!(
        Zpage::Status.content_type(Media::Json, ZpageVersion::Beta),
        "application/json;g=config.k8s.io;v=v1beta1;as=Statusz"
    );
    assert_eq!(
        Zpage::Flags.content_type(Media::Yaml, ZpageVersion::Alpha),
        "application/yaml;g=config.k8s.io;v=v1alpha1;as=Flagz"
    );
}

#[test]
fn dates_and_flags_are_written_as_go_does() {
    assert_eq!(unix_date(1_794_777_641), "Sun Nov 15 21:20:41 UTC 2026");
    assert_eq!(date(1_826_317_251), "Mon, 15 Nov 2027 22:20:51 UTC");
    assert_eq!(unix_date(0), "Thu Jan  1 00:00:00 UTC 1970");
    let flags = [("a".to_owned(), "[]".to_owned()), ("b".to_owned(), String::new())];
    assert_eq!(flags_text(&flags), "a: []\nb: \n");
}
