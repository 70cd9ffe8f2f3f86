use super::*;

fn answer(config: &BrowserConfig, method: &Method, origin: &str) -> (Option<u16>, Vec<String>) {
    let mut headers = HeaderMap::new();
    if !origin.is_empty() {
        headers.insert(ORIGIN, HeaderValue::from_str(origin).unwrap());
    }
    let Some(added) = config.for_request(method, &headers) else { return (None, Vec::new()) };
    let preflight = added.preflight().map(|response| response.status().as_u16());
    let mut answered = HeaderMap::new();
    added.add_to(&mut answered);
    let shown = answered
        .iter()
        .filter(|(name, _)| *name == ACCESS_CONTROL_ALLOW_ORIGIN || *name == STRICT_TRANSPORT_SECURITY);
    (preflight, shown.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect())
}

#[test]
fn only_allowed_origins_get_cors_headers() {
    let config = BrowserConfig::new(&["^https://([a-z]+[.])?example[.]com$".to_owned()], &[]).unwrap();
    let allowed = vec!["access-control-allow-origin: https://a.example.com".to_owned()];
    assert_eq!(answer(&config, &Method::GET, "https://a.example.com"), (None, allowed.clone()));
    assert_eq!(answer(&config, &Method::OPTIONS, "https://a.example.com"), (Some(204), allowed));
    for origin in ["", "https://a.example.com.evil.org", "http://a.example.com", "null"] {
        assert_eq!(answer(&config, &Method::OPTIONS, origin), (None, Vec::new()), "{origin}");
    }
    let nothing = BrowserConfig::default();
    assert_eq!(answer(&nothing, &Method::OPTIONS, "https://a.example.com"), (None, Vec::new()));
    assert!(BrowserConfig::new(&["(".to_owned()], &[]).is_err());
}

#[test]
fn every_response_gets_the_transport_security_directives() {
    let directives = ["max-age=31536000".to_owned(), "includeSubDomains".to_owned()];
    let config = BrowserConfig::new(&[], &directives).unwrap();
    let header = vec!["strict-transport-security: max-age=31536000; includeSubDomains".to_owned()];
    assert_eq!(answer(&config, &Method::GET, ""), (None, header.clone()));
    assert_eq!(answer(&config, &Method::OPTIONS, "https://a.example.com"), (None, header));
}
