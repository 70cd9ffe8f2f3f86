use super::*;

fn read(pairs: &[(&'static str, &'static str)]) -> Option<Result<(), GrpcStatus>> {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.insert(*name, http::HeaderValue::from_static(value));
    }
    GrpcStatus::read(&headers)
}

#[test]
fn a_status_of_zero_is_success_and_a_missing_one_is_none() {
    assert_eq!(read(&[("grpc-status", "0")]), Some(Ok(())));
    assert_eq!(read(&[]), None);
}

#[test]
fn a_failure_has_its_code_and_decoded_message() {
    let status = read(&[("grpc-status", "11"), ("grpc-message", "etcdserver: 100%25 %e2%9c%93 %zz")]);
    assert_eq!(status, Some(Err(GrpcStatus::new(GrpcCode::OutOfRange, "etcdserver: 100% ✓ %zz"))));
}

#[test]
fn unreadable_and_unknown_codes_are_failures() {
    for code in ["2", "99", "x", "-1", ""] {
        assert_eq!(
            read(&[("grpc-status", code)]),
            Some(Err(GrpcStatus::new(GrpcCode::Unknown, ""))),
            "{code}"
        );
    }
}

#[test]
fn the_http_status_of_a_proxy_is_mapped() {
    assert_eq!(GrpcStatus::of_http(http::StatusCode::BAD_GATEWAY).code, GrpcCode::Unavailable);
    assert_eq!(GrpcStatus::of_http(http::StatusCode::NOT_FOUND).code, GrpcCode::Unimplemented);
    assert_eq!(GrpcStatus::of_http(http::StatusCode::FOUND).code, GrpcCode::Unknown);
}
