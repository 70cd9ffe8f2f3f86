//! Reads the options of a connection from the query, in the shape that admission sees.

use std::num::{IntErrorKind, ParseIntError};

use api::{FieldError, FieldErrors, time::Timestamp};
use requests::request_info::{Query, RequestInfo};
use value::{Path, Value};

use crate::call::Call;

/// The options as an object of `kind`; errors have the text of Go's parsers.
pub(super) fn read(call: &Call, kind: &str) -> Result<Value, String> {
    of_query(&call.query, &call.info, kind)
}

fn of_query(query: &Query, info: &RequestInfo, kind: &str) -> Result<Value, String> {
    let mut options = Value::map([("kind", kind), ("apiVersion", "v1")]);
    match kind {
        "PodExecOptions" | "PodAttachOptions" => {
            switches(query, &["stdin", "stdout", "stderr", "tty"], &mut options);
            text(query, "container", &mut options);
            if kind == "PodExecOptions" {
                let command: Vec<&str> = query.all("command").collect();
                let command = if command.is_empty() { Value::Null } else { Value::list(command) };
                options.set_at(&["command"], command);
            }
        }
        "PodPortForwardOptions" => {
            let ports: Vec<Value> = query.all("ports").map(port).collect::<Result<_, String>>()?;
            if !ports.is_empty() {
                options.set_at(&["ports"], Value::List(ports));
            }
        }
        "PodProxyOptions" | "ServiceProxyOptions" | "NodeProxyOptions" => {
            let path = below(info);
            if !path.is_empty() {
                options.set_at(&["path"], path);
            }
        }
        // The options of `log`.
        _ => {
            text(query, "container", &mut options);
            switches(
                query,
                &["follow", "previous", "timestamps", "insecureSkipTLSVerifyBackend"],
                &mut options,
            );
            number(query, "sinceSeconds", &mut options)?;
            if let Some(since) = query.get("sinceTime").filter(|since| !matches!(*since, "" | "null")) {
                options.set_at(&["sinceTime"], Timestamp::parse(since)?.time());
            }
            number(query, "tailLines", &mut options)?;
            number(query, "limitBytes", &mut options)?;
            text(query, "stream", &mut options);
        }
    }
    Ok(options)
}

/// The path after `proxy`, with a trailing slash if the request has one.
fn below(info: &RequestInfo) -> String {
    let parts: Vec<&str> = info.parts.iter().skip(3).map(value::Str::as_str).collect();
    let mut path = parts.join("/");
    if !path.is_empty() && !path.starts_with('/') {
        path.insert(0, '/');
    }
    if info.path.ends_with('/') && !path.ends_with('/') {
        path.push('/');
    }
    path
}

fn text(query: &Query, key: &str, options: &mut Value) {
    if let Some(text) = query.get(key).filter(|text| !text.is_empty()) {
        options.set_at(&[key], text);
    }
}

fn switches(query: &Query, keys: &[&str], options: &mut Value) {
    for key in keys.iter().filter(|key| query.is_true(key)) {
        options.set_at(&[key], true);
    }
}

fn number(query: &Query, key: &str, options: &mut Value) -> Result<(), String> {
    if let Some(text) = query.get(key) {
        let number =
            text.parse::<i64>().map_err(|why| go_number_error("ParseInt", text, is_overflow(&why)))?;
        options.set_at(&[key], number);
    }
    Ok(())
}

fn port(text: &str) -> Result<Value, String> {
    let unsigned = text.parse::<u32>().map_err(|why| go_number_error("ParseUint", text, is_overflow(&why)));
    let unsigned = match unsigned {
        // Go's parser of unsigned numbers does not accept a sign.
        _ if text.starts_with('+') => Err(go_number_error("ParseUint", text, false)),
        read => read,
    };
    let port = unsigned.map_err(|why| format!("cannot convert to []int32: {why}"))?;
    // Reinterpret the bits as a signed number, as Go does.
    Ok(Value::from(i64::from(port.cast_signed())))
}

fn is_overflow(error: &ParseIntError) -> bool {
    matches!(error.kind(), IntErrorKind::PosOverflow | IntErrorKind::NegOverflow)
}

fn go_number_error(reader: &str, text: &str, out_of_range: bool) -> String {
    let why = if out_of_range { "value out of range" } else { "invalid syntax" };
    format!("strconv.{reader}: parsing {}: {why}", api::field::quote(text))
}

/// Validates the options of `log`; other options have no rules.
pub(super) fn log_errors(options: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    if options.str_at(&["kind"]) != Some("PodLogOptions") {
        return errors;
    }
    let number = |key: &str| options.int_at(&[key]);
    let at = |key: &str| Path::root().field(key);
    if let Some(lines) = number("tailLines").filter(|n| *n < 0) {
        errors.push(FieldError::invalid(&at("tailLines"), lines, "must be greater than or equal to 0"));
    }
    if let Some(bytes) = number("limitBytes").filter(|n| *n < 1) {
        errors.push(FieldError::invalid(&at("limitBytes"), bytes, "must be greater than 0"));
    }
    let since_time = options.at(&["sinceTime"]).is_some();
    match number("sinceSeconds") {
        Some(_) if since_time => {
            let mut error = FieldError::forbidden(
                &Path::root(),
                "at most one of `sinceTime` or `sinceSeconds` may be specified",
            );
            // kube-apiserver writes an empty path as `[]`.
            "[]".clone_into(&mut error.field);
            errors.push(error);
        }
        Some(seconds) if seconds < 1 => {
            errors.push(FieldError::invalid(&at("sinceSeconds"), seconds, "must be greater than 0"));
        }
        _ => {}
    }
    if options.at(&["stream"]).is_some() {
        errors.push(FieldError::forbidden(&at("stream"), "may not be specified"));
    }
    errors
}

#[cfg(test)]
mod tests;
