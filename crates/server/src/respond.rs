//! Turns a handler's answer into an HTTP response.

mod built;

use crate::table::{self, TableOptions, TableRequest, TableScope};
use api::{Status, StatusReason, order};
use audit::AuditRecord;
use catalog::ServedResource;
use catalog::encode;
use crd::columns::TableAllowance;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER, VARY, WARNING,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use kinds::table::Verb;
use requests::negotiate::{self, Forms, Media, MetadataShape, NegotiatedResponse, ObjectForm};
use requests::request_info::Query;
use value::order::KeyOrder;
use value::{Value, text, write, yaml};

use crate::body::Body;
use crate::call::{Call, HandlerResponse};
use crate::decode::internal_package;
use heavy_lane::LARGE;
use transport::unsent::UnsentPieces;

pub use built::{ListWriter, finished};

/// Minimum size in bytes of a body that is compressed.
const GZIP_FROM: u64 = 128 * 1024;

/// The response to a request that reached its handler, with its warnings.
pub fn response_of(
    call: &mut Call,
    kind: Option<&ServedResource>,
    result: Result<HandlerResponse, Status>,
) -> Response<Body> {
    let mut response = match result.and_then(|answer| encode(call, kind, answer)) {
        Ok(response) => response,
        Err(status) => refusal(&status, &call.headers, &call.query, call.audit_record()),
    };
    warn(&mut response, call.take_warnings());
    response
}

/// Estimated work, in bytes, to encode an answer; 0 if stored bytes are sent unchanged.
pub fn encoding(
    call: &Call,
    kind: Option<&ServedResource>,
    result: &Result<HandlerResponse, Status>,
) -> usize {
    let packs = || call.info.is_read_only() && call.headers.get(ACCEPT_ENCODING).is_some_and(takes_gzip);
    match result {
        Ok(HandlerResponse::Entry(_, entry)) => {
            let size = entry.body.len();
            let Some(kind) = kind.filter(|kind| table::work(kind, size) > LARGE) else { return size };
            let accepted = negotiate::accept(&call.headers, &call.query, forms(call, kind)).ok();
            let is_plain =
                accepted.is_some_and(|a| a.form == ObjectForm::Object && a.media == Media::Json && !a.pretty);
            match accepted.map(|accepted| accepted.form) {
                Some(ObjectForm::Table(_)) => table::work(kind, size),
                _ if is_plain && !packs() && !call.audit_record().wants_response() => 0,
                _ => size,
            }
        }
        Ok(HandlerResponse::Object(_, value)) => {
            let size = value.size_up_to(LARGE + 1);
            let asks_table = |kind: &&ServedResource| {
                let accepted = negotiate::accept(&call.headers, &call.query, forms(call, kind));
                accepted.is_ok_and(|accepted| matches!(accepted.form, ObjectForm::Table(_)))
            };
            let columns = kind.filter(|kind| table::work(kind, size) > LARGE).filter(asks_table);
            columns.map_or(size, |kind| table::work(kind, size))
        }
        Ok(
            HandlerResponse::Raw(.., body)
            | HandlerResponse::Public(.., body)
            | HandlerResponse::With(.., body),
        ) => {
            let large = body.len().filter(|len| *len >= GZIP_FROM && packs());
            large.map_or(0, |len| usize::try_from(len).unwrap_or(usize::MAX))
        }
        _ => 0,
    }
}

/// Adds `Warning` headers to a response.
pub fn warn(response: &mut Response<Body>, warnings: Vec<String>) {
    for warning in bounded(warnings) {
        if let Ok(value) = HeaderValue::try_from(warning_value(&warning)) {
            response.headers_mut().append(WARNING, value);
        }
    }
}

/// The response for a failed request: a `Status` object.
pub fn refusal(status: &Status, headers: &HeaderMap, query: &Query, record: &AuditRecord) -> Response<Body> {
    let pretty = negotiate::is_pretty(headers, query);
    // A `Status` is never a table: a client that accepts only tables gets JSON.
    let media = negotiate::accept(headers, query, Forms::ObjectOnly).map_or(Media::Json, |a| a.media);
    let value = status.to_value();
    record.response_status(&value);
    if record.wants_response() {
        record.response_object(&write::to_vec(&value).into());
    }
    let body = render(&value, order::of(&value), media, pretty);
    let mut response = respond(status.code(), media.content_type(), Body::from(body));
    let retry = status.details().map_or(0, |d| d.retry_after_seconds);
    if retry > 0 {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(retry));
    }
    response
}

/// The response to a request that the authorizers deny. Its text contains names that the caller chose, hence `nosniff`.
pub fn forbidden(
    status: &Status,
    headers: &HeaderMap,
    query: &Query,
    record: &AuditRecord,
) -> Response<Body> {
    let mut response = refusal(status, headers, query, record);
    response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

/// The response for an unknown path, in plain text as kube-apiserver's router sends it.
pub fn page_not_found() -> Response<Body> {
    plain(404, Body::from("404 page not found\n"))
}

/// A plain text response that browsers must not interpret as another type.
fn plain(code: u16, body: Body) -> Response<Body> {
    let mut response = respond(code, "text/plain; charset=utf-8", body);
    response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

/// The response to a request over the limits of requests in flight, in plain text with `Retry-After`.
pub fn too_many_requests(status: &Status) -> Response<Body> {
    let mut response = plain(429, Body::from(format!("{status}\n")));
    let retry = status.details().map_or(1, |d| d.retry_after_seconds);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(retry));
    response
}

/// A 429 with kube-apiserver's text and `Retry-After` in seconds.
pub fn too_many_requests_after(seconds: u64) -> Response<Body> {
    let text = "Too many requests, please try again later.\n";
    let mut response = plain(429, Body::from(text));
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    response
}

/// The response to a failure before the handler, in plain text as kube-apiserver sends it.
pub fn internal_error(uri: &str, why: &str) -> Response<Body> {
    let text = format!("Internal Server Error: {}: {why}", api::field::quote(uri));
    // Escape the text: a browser that takes it for HTML must not run markup from the request.
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    plain(500, Body::from(text + "\n"))
}

/// The response after a handler panicked.
pub fn panicked() -> Response<Body> {
    let text = "This request caused apiserver to panic. Look in the logs for details.\n";
    plain(500, Body::from(text))
}

/// Initial capacity of the header map: twice the headers of most responses, so that few of them collide in it.
const HEADERS: usize = 13;

fn respond(code: u16, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.headers_mut() = HeaderMap::with_capacity(HEADERS);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    if !content_type.is_empty() {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// Checks that the client accepts a form in which this write can be answered. Runs before the write, so that a request that is refused
/// with 406 has changed nothing.
pub fn can_answer(call: &Call, kind: &ServedResource, verb: Verb) -> Result<(), Status> {
    let accepted = negotiate::accept(&call.headers, &call.query, forms(call, kind))?;
    match (accepted.form, verb) {
        (ObjectForm::Table(_), _) => TableOptions::parse(&call.query).map(drop),
        (ObjectForm::Metadata(_, MetadataShape::One), Verb::DeleteCollection) => Err(is_a_list(kind)),
        (ObjectForm::Metadata(_, MetadataShape::Many), Verb::Create | Verb::Update | Verb::Patch)
            if !kind.is_virtual() =>
        {
            Err(is_no_list(kind))
        }
        _ => Ok(()),
    }
}

/// Subresources of built-in kinds for which kube-apiserver makes no table.
const WITHOUT_TABLE: &[(&str, &str)] = &[
    ("pods", "binding"),
    ("pods", "eviction"),
    ("pods", "ephemeralcontainers"),
    ("pods", "resize"),
    ("namespaces", "finalize"),
    ("serviceaccounts", "token"),
    ("certificatesigningrequests", "approval"),
    ("resourceclaims", "status"),
    ("devicetaintrules", "status"),
    ("customresourcedefinitions", "status"),
    ("apiservices", "status"),
];

/// The forms that are available for the response to a request.
pub fn forms(call: &Call, kind: &ServedResource) -> Forms {
    let is_shown = !kind.is_virtual() || kind.gvk.kind == "ComponentStatus";
    let plural = kind.row().map_or("", |row| row.plural);
    if !is_shown || WITHOUT_TABLE.contains(&(plural, call.info.subresource.as_str())) {
        Forms::Metadata
    } else {
        Forms::All
    }
}

/// The Go type of an object or a list, as it occurs in some error messages of kube-apiserver.
fn go_type(kind: &ServedResource, name: &str, list: &str) -> String {
    match kind.row() {
        Some(_) => format!("{}.{name}", internal_package(&kind.stored.group)),
        None => format!("unstructured.Unstructured{list}"),
    }
}

fn is_no_list(kind: &ServedResource) -> Status {
    let message = format!(
        "you requested PartialObjectMetadataList, but the requested object is not a list (*{})",
        go_type(kind, &kind.stored.kind, "")
    );
    Status::failure(406, StatusReason::NotAcceptable, message)
}

/// The 406 for a request for the metadata of one object where the response is a list.
pub fn is_a_list(kind: &ServedResource) -> Status {
    let message = format!(
        "you requested PartialObjectMetadata, but the requested object is a list (*{})",
        go_type(kind, &kind.list_kind(), "List")
    );
    Status::failure(406, StatusReason::NotAcceptable, message)
}

fn encode(
    call: &mut Call,
    kind: Option<&ServedResource>,
    answer: HandlerResponse,
) -> Result<Response<Body>, Status> {
    let response = match answer {
        HandlerResponse::Raw(code, content_type, body) => respond(code, content_type, body),
        HandlerResponse::Plain(code, body) => plain(code, body),
        HandlerResponse::Public(code, content_type, seconds, body) => {
            let mut response = respond(code, content_type, body);
            if let Ok(cache_control) = HeaderValue::try_from(format!("public, max-age={seconds}")) {
                response.headers_mut().insert(CACHE_CONTROL, cache_control);
            }
            response
        }
        HandlerResponse::With(code, content_type, headers, body) => {
            let mut response = respond(code, content_type, body);
            for (name, value) in headers {
                let Ok(value) = HeaderValue::try_from(value) else { continue };
                if name == VARY {
                    response.headers_mut().append(name, value);
                } else {
                    response.headers_mut().insert(name, value);
                }
            }
            response
        }
        HandlerResponse::Entry(code, entry) => {
            let kind = kind.ok_or_else(|| {
                Status::internal("the kind of a stored object is unknown, so it cannot be encoded")
            })?;
            let accepted = negotiate::accept(&call.headers, &call.query, forms(call, kind))?;
            if accepted.form == ObjectForm::Object
                && accepted.media == Media::Json
                && !kind.must_convert(&entry)
            {
                let bytes = kind.bytes(&entry);
                let body = match accepted.pretty {
                    true => built::indented(call, &bytes)?,
                    false if kind.is_stored_version() => Body::shared(bytes),
                    false => Body::from(bytes),
                };
                respond(code, "application/json", body)
            } else {
                object(
                    call,
                    Some(kind),
                    code,
                    kind.shapes().show_unconverted(&entry)?.into_value(),
                    accepted,
                )?
            }
        }
        HandlerResponse::Object(code, value) => {
            if value.str_at(&["kind"]) == Some("Status") {
                call.audit_record().response_status(&value);
            }
            let accepted = match kind {
                Some(kind) => negotiate::accept(&call.headers, &call.query, forms(call, kind))?,
                None => negotiate::accept_page(&call.headers, &call.query, &call.info.path)?,
            };
            object(call, kind, code, value, accepted)?
        }
    };
    note(call, &response)?;
    compressed(call, response)
}

/// Copies of a response that are in memory while it is recorded.
const AUDIT_COPIES: u64 = 4;

/// Records the response object for audit. Responses outside the API are not recorded, as in kube-apiserver. Fails with 429 if the client
/// has no room for the copies, unless the request has written.
fn note(call: &Call, response: &Response<Body>) -> Result<(), Status> {
    let record = call.audit_record();
    let is_object = call.info.is_resource || call.info.path.starts_with("/api");
    if !is_object || !record.wants_response() {
        return Ok(());
    }
    let copies = response.body().len().unwrap_or_default().saturating_mul(AUDIT_COPIES);
    let charge = UnsentPieces::new(call.payer.clone()).charge_work(copies);
    let _charge = if call.effort.has_written() { charge.ok().flatten() } else { charge? };
    let content_type = response.headers().get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let Some(body) = response.body().bytes() else { return Ok(()) };
    if content_type.starts_with("application/json") {
        record.response_object(&body);
    } else if content_type.starts_with("application/yaml")
        && let Ok(read) = yaml::read(&body)
    {
        record.response_object(&write::to_vec(&read.value).into());
    }
    Ok(())
}

fn object(
    call: &mut Call,
    kind: Option<&ServedResource>,
    code: u16,
    value: Value,
    accepted: NegotiatedResponse,
) -> Result<Response<Body>, Status> {
    let own_form = matches!(value.str_at(&["kind"]), Some("Status" | "Table" | "PartialObjectMetadataList"));
    let is_list = |kind: &ServedResource| value.str_at(&["kind"]) == Some(&*kind.list_kind());
    let value = match (accepted.form, kind) {
        (ObjectForm::Table(version), Some(kind)) if !own_form => {
            let mut options = TableOptions::parse(&call.query)?;
            let revision = Some(api::meta::resource_version(&value)).filter(|revision| !revision.is_empty());
            let metadata = Value::map(revision.map(|revision| ("resourceVersion", revision)));
            let objects = if is_list(kind) {
                options.of = TableScope::List;
                value.list_at(&["items"])
            } else {
                std::slice::from_ref(&value)
            };
            let allowance = TableAllowance::new(&call.effort.budget);
            let request = TableRequest { version, options, now: call.now, allowance: &allowance };
            let table = table::table(kind, objects, metadata, request);
            call.effort.check()?;
            if allowance.is_used_up() {
                call.warn(table::INCOMPLETE);
            }
            table
        }
        (ObjectForm::Metadata(_, MetadataShape::One), Some(kind)) if is_list(kind) => {
            return Err(is_a_list(kind));
        }
        (ObjectForm::Metadata(version, MetadataShape::Many), Some(kind)) if is_list(kind) => {
            let metadata = value.at(&["metadata"]).cloned().unwrap_or_default();
            table::partial_list(value.list_at(&["items"]), version, metadata)
        }
        (ObjectForm::Metadata(version, MetadataShape::One), Some(_)) if !own_form => {
            table::partial(&value, version)
        }
        (ObjectForm::Metadata(_, MetadataShape::Many), Some(kind)) if !own_form => {
            return Err(is_no_list(kind));
        }
        _ => value,
    };
    let body = built::object(call, &value, order_of(kind, &value), accepted)?;
    Ok(respond(code, accepted.media.content_type(), body))
}

/// Field order in the JSON of an answer about a kind.
pub fn order_of(kind: Option<&ServedResource>, value: &Value) -> &'static KeyOrder {
    match kind {
        Some(kind) if kind.row().is_none() => order::of_custom(value),
        _ => order::of(value),
    }
}

pub fn render(value: &Value, order: &'static KeyOrder, media: Media, pretty: bool) -> Vec<u8> {
    match media {
        Media::Yaml => yaml::write(value).into_bytes(),
        Media::Json => {
            let mut out = Vec::with_capacity(512);
            order.write(&mut out, value);
            if pretty {
                return encode::indent(&out);
            }
            out.push(b'\n');
            out
        }
    }
}

/// Reports whether `Accept-Encoding` lists gzip. As in kube-apiserver, an entry with a weight such as `gzip;q=1` does not match.
fn takes_gzip(header: &HeaderValue) -> bool {
    header.to_str().is_ok_and(|encodings| encodings.split(',').any(|encoding| encoding.trim() == "gzip"))
}

/// Compresses a large response to a read if the client accepts gzip.
fn compressed(call: &Call, mut response: Response<Body>) -> Result<Response<Body>, Status> {
    let large = response.body().len().is_some_and(|len| len >= GZIP_FROM);
    if !large || !call.info.is_read_only() || !call.headers.get(ACCEPT_ENCODING).is_some_and(takes_gzip) {
        return Ok(response);
    }
    let body = std::mem::replace(response.body_mut(), Body::empty());
    *response.body_mut() = built::compressed(call, body)?;
    response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    if !response.headers().get_all(VARY).iter().any(|known| known == "Accept-Encoding") {
        response.headers_mut().append(VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    Ok(response)
}

/// Limits warnings as Kubernetes does: all in full up to 4096 characters in total. Beyond that, each is cut to 256 characters and further
/// ones are added while the total allows it.
fn bounded(warnings: Vec<String>) -> Vec<String> {
    const TOTAL: usize = 4 * 1024;
    const EACH: usize = 256;
    let mut sent: Vec<String> = Vec::new();
    let (mut written, mut cutting) = (0, false);
    let cut = |text: String| text::first_chars(&text, EACH).to_owned();
    for text in warnings {
        // Drop empty warnings, and those with control characters, which a header cannot carry.
        if text.is_empty() || text.contains(char::is_control) {
            continue;
        }
        if cutting && written >= TOTAL {
            break;
        }
        let text = if cutting { cut(text) } else { text };
        written += text.chars().count();
        sent.push(text);
        if !cutting && written > TOTAL {
            cutting = true;
            sent = sent.into_iter().map(cut).collect();
            written = sent.iter().map(|text| text.chars().count()).sum();
        }
    }
    sent
}

/// Value of a `Warning` header: code 299, no agent, the text quoted.
fn warning_value(text: &str) -> String {
    let mut out = String::from("299 - \"");
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests;
