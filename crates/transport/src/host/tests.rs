use super::*;

fn checked(version: Version, method: &Method, hosts: &[&str]) -> Result<(), HostError> {
    let mut headers = HeaderMap::new();
    for host in hosts {
        headers.append(HOST, HeaderValue::from_str(host).unwrap());
    }
    check(version, method, &headers)
}

#[test]
fn http_1_1_requires_one_well_formed_host() {
    let get = |hosts: &[&str]| checked(Version::HTTP_11, &Method::GET, hosts);
    for accepted in ["localhost", "127.0.0.1:6443", "[::1]:6443", "kubernetes.default.svc", "a,b", ""] {
        assert_eq!(get(&[accepted]), Ok(()), "{accepted}");
    }
    for malformed in ["a b", "a/b", "a@b", "a?b", "a#b", "a\"b", "a<b", "a\tb"] {
        assert_eq!(get(&[malformed]), Err(HostError::Malformed), "{malformed}");
    }
    assert_eq!(get(&[]), Err(HostError::Missing));
    assert_eq!(get(&["a", "b"]), Err(HostError::Several));
    assert_eq!(get(&["a", "a"]), Err(HostError::Several));
    assert_eq!(get(&["a b", "a"]), Err(HostError::Several));
}

#[test]
fn http_1_0_and_connect_need_no_host() {
    assert_eq!(checked(Version::HTTP_10, &Method::GET, &[]), Ok(()));
    assert_eq!(checked(Version::HTTP_11, &Method::CONNECT, &[]), Ok(()));
    assert_eq!(checked(Version::HTTP_10, &Method::GET, &["a", "b"]), Err(HostError::Several));
    assert_eq!(checked(Version::HTTP_10, &Method::GET, &["a b"]), Err(HostError::Malformed));
}

#[test]
fn http_2_has_no_rule_for_the_header() {
    for hosts in [&[][..], &["a"], &["a", "b"]] {
        assert_eq!(checked(Version::HTTP_2, &Method::GET, hosts), Ok(()));
    }
}

#[test]
fn the_answer_is_that_of_go() {
    let cases = [
        (HostError::Missing, "Bad Request: missing required Host header"),
        (HostError::Malformed, "Bad Request: malformed Host header"),
        (HostError::Several, "Bad Request"),
    ];
    for (error, reason) in cases {
        let response = error.answer(str::to_owned);
        assert_eq!(response.status(), 400);
        assert_eq!(response.extensions().get::<ReasonPhrase>().unwrap().as_bytes(), reason.as_bytes());
        assert_eq!(response.headers()[CONTENT_TYPE], "text/plain; charset=utf-8");
        assert_eq!(response.headers()[CONNECTION], "close");
        assert_eq!(*response.body(), format!("400 {reason}"));
    }
}
