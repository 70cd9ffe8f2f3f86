//! The parts of a request that are read before authentication: path, query and headers.

use fuzz::Corpus;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use requests::negotiate::{self, Forms};
use requests::options::{DeleteOptions, ListOptions, WriteOptions};
use requests::request_info::{Query, RequestInfo, percent_decode};

#[test]
fn paths_and_queries_are_read_in_one_way() {
    let seeds = [
        "/api/v1/namespaces/default/pods/web/log?follow=true&tailLines=5",
        "/apis/apps/v1/namespaces/a/deployments?watch=1&resourceVersion=5&labelSelector=a%3Db",
        "/api/v1/nodes?fieldSelector=metadata.name%3Dx&limit=500&continue=abc",
        "/healthz?verbose&exclude=etcd",
        "/openapi/v3/apis/apps/v1?hash=0",
        "/apis//v1/pods",
        "/api/v1/namespaces/a/finalize?dryRun=All&fieldManager=m&fieldValidation=Strict",
        "/api/v1/watch/pods?timeoutSeconds=5&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
        "/api/v1/namespaces/a/pods/x?gracePeriodSeconds=0&propagationPolicy=Foreground&orphanDependents=true",
        "/api/v1/proxy/namespaces/a/services/b/c/d",
    ];
    let tokens = [
        "/",
        "//",
        "/.",
        "/..",
        "%2F",
        "%2e",
        "%",
        "%zz",
        "?",
        "&",
        "=",
        ";",
        "+",
        "watch",
        "proxy",
        "namespaces",
        "api",
        "apis",
        "status",
        "watch=0",
        "limit=-1",
        "continue=",
        "timeout=1h",
        "dryRun=",
        "#",
    ];
    fuzz::run(&Corpus::new(seeds, &tokens).inputs(), |input| {
        let text = input.text();
        let (path, query) = text.split_once('?').unwrap_or((&text, ""));
        let query = Query::parse(query);
        for method in [Method::GET, Method::POST, Method::DELETE, Method::PATCH, Method::HEAD] {
            let decoded = percent_decode(path);
            let info = RequestInfo::parse(&method, &decoded, &query);
            if info.path != decoded {
                return Err(format!("authorized as {}", info.path));
            }
            // Routing uses exactly the parts of the path that were authorized.
            let again = RequestInfo::parse(&method, decoded.trim_matches('/'), &query);
            if (RequestInfo { path: info.path.clone(), ..again }) != info {
                return Err("slashes around a path change what it names".to_owned());
            }
            if info.is_resource && !matches!(info.prefix.as_str(), "api" | "apis") {
                return Err(format!("a resource below {}", info.prefix));
            }
            let names_parts =
                [&info.resource, &info.name, &info.namespace].iter().any(|part| !part.is_empty());
            if !info.is_resource && names_parts {
                return Err("a path that names no resource has parts of one".to_owned());
            }
            let _ = (info.is_long_running(), info.is_read_only(), info.path_name());
        }
        let _ = (
            ListOptions::parse(&query, false),
            ListOptions::parse(&query, true),
            DeleteOptions::from_query(&query),
        );
        let _ = (WriteOptions::parse("CreateOptions", &query), WriteOptions::parse_apply(&query));
        Ok(())
    });
}

#[test]
fn header_negotiation_never_panics() {
    let seeds = [
        "application/json",
        "application/yaml;q=0.5, */*;q=0.1",
        "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        "application/vnd.kubernetes.protobuf;stream=watch",
        "application/apply-patch+yaml",
        "text/plain; charset=\"utf-8\"",
    ];
    let tokens = [
        ";",
        ",",
        "=",
        "q=",
        "q=1.0001",
        "*/*",
        "*",
        "/",
        "application/",
        "json",
        "as=Table",
        "\"",
        "\\\"",
        "v=v1",
        "g=meta.k8s.io",
        "as=PartialObjectMetadataList",
        "stream=watch",
        "pretty=1",
    ];
    fuzz::run(&Corpus::new(seeds, &tokens).inputs(), |input| {
        let Ok(value) = HeaderValue::from_bytes(input) else { return Ok(()) };
        let mut headers = HeaderMap::new();
        headers.append(ACCEPT, value.clone());
        headers.append(CONTENT_TYPE, value);
        let query = Query::parse("pretty=1");
        for forms in [Forms::ObjectOnly, Forms::Metadata, Forms::All] {
            let _ = negotiate::accept(&headers, &query, forms);
        }
        let _ = (
            negotiate::clauses(&headers).len(),
            negotiate::body_media(&headers),
            negotiate::is_pretty(&headers, &query),
        );
        let _ = (negotiate::accept_page(&headers, &query, "/version"), negotiate::content_type(&headers));
        Ok(())
    });
}
