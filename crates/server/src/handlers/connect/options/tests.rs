use http::Method;
use value::write;

use super::{log_errors, of_query};
use requests::request_info::{Query, RequestInfo};

fn read(kind: &str, path: &str, query: &str) -> Result<String, String> {
    let query = Query::parse(query);
    let info = RequestInfo::parse(&Method::GET, path, &query);
    of_query(&query, &info, kind).map(|options| write::to_string(&options))
}

#[test]
fn every_option_of_a_stream_is_shown_to_admission() {
    let path = "/api/v1/namespaces/n/pods/p/exec";
    assert_eq!(
        read("PodExecOptions", path, "command=ls&command=-l&stdin=true&tty=0&container=c").unwrap(),
        r#"{"apiVersion":"v1","command":["ls","-l"],"container":"c","kind":"PodExecOptions","stdin":true}"#
    );
    assert!(read("PodExecOptions", path, "").unwrap().contains(r#""command":null"#));
    assert!(read("PodPortForwardOptions", path, "ports=80&ports=81").unwrap().contains("[80,81]"));
    assert_eq!(
        read("PodPortForwardOptions", path, "ports=x").unwrap_err(),
        r#"cannot convert to []int32: strconv.ParseUint: parsing "x": invalid syntax"#
    );
}

#[test]
fn proxy_options_take_the_path_from_the_url_and_not_from_the_query() {
    let read = |path: &str| read("ServiceProxyOptions", path, "path=/mine").unwrap();
    let plain = r#"{"apiVersion":"v1","kind":"ServiceProxyOptions"}"#;
    assert_eq!(read("/api/v1/namespaces/n/services/s/proxy"), plain);
    assert!(read("/api/v1/namespaces/n/services/s/proxy/").contains(r#""path":"/""#));
    assert!(read("/api/v1/namespaces/n/services/s/proxy/a/b/").contains(r#""path":"/a/b/""#));
}

#[test]
fn pod_log_options_are_validated() {
    let check = |query: &str| {
        let text = Query::parse(query);
        let info = RequestInfo::parse(&Method::GET, "/api/v1/namespaces/n/pods/p/log", &text);
        of_query(&text, &info, "PodLogOptions").map(|options| {
            log_errors(&options).iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        })
    };
    assert_eq!(check("tailLines=1&limitBytes=1&sinceSeconds=1&follow=true"), Ok(String::new()));
    assert_eq!(check("tailLines=x").unwrap_err(), r#"strconv.ParseInt: parsing "x": invalid syntax"#);
    assert!(check("sinceTime=x").unwrap_err().starts_with("parsing time \"x\""));
    assert_eq!(
        check("limitBytes=0&sinceSeconds=1&sinceTime=2020-01-01T00:00:00Z&stream=All").unwrap(),
        "limitBytes: Invalid value: 0: must be greater than 0; []: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified; stream: Forbidden: may not be specified"
    );
}
