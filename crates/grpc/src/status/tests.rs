use super::*;

fn read(pairs: &[(&'static str, &'static str)]) -> Option<Result<(), Status>> {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.insert(*name, http::HeaderValue::from_static(value));
    }
    Status::read(&headers)
}

#[test]
fn a_status_of_zero_is_success_and_a_missing_one_is_none() {
    assert_eq!(read(&[("grpc-status", "0")]), Some(Ok(())));
    assert_eq!(read(&[]), None);
}

#[test]
fn a_failure_has_its_code_and_decoded_message() {
    let status = read(&[("grpc-status", "11"), ("grpc-message", "etcdserver: 100%25 %e2%9c%93 %zz")]);
    assert_eq!(status, Some(Err(Status::new(Code::OutOfRange, "etcdserver: 100% ✓ %zz"))));
}

#[test]
fn unreadable_and_unknown_codes_are_failures() {
    for code in ["2", "99", "x", "-1", ""] {
        assert_eq!(read(&[("grpc-status", code)]), Some(Err(Status::new(Code::Unknown, ""))), "{code}");
    }
}

#[test]
fn the_http_status_of_a_proxy_is_mapped() {
    assert_eq!(Status::of_http(http::StatusCode::BAD_GATEWAY).code, Code::Unavailable);
    assert_eq!(Status::of_http(http::StatusCode::NOT_FOUND).code, Code::Unimplemented);
    assert_eq!(Status::of_http(http::StatusCode::FOUND).code, Code::Unknown);
}
