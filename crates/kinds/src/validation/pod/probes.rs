//! Validation of a container's probes and lifecycle hooks.

use api::validation::fields::{At, Read, Report};
use api::{FieldErrors, names};
use value::Value;

use crate::validation::optional_value;
use crate::validation::ports::port_name_or_number;

pub(in crate::validation) fn probes(container: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = container.part(field) else { continue };
        let at = at.field(field);
        self::probe(probe, &at, errors);
        if field == "readinessProbe" {
            if let Some(seconds) = probe.number_if_set("terminationGracePeriodSeconds") {
                let detail = "must not be set for readinessProbes";
                errors.invalid(&at.field("terminationGracePeriodSeconds"), seconds, detail);
            }
        } else if probe.number("successThreshold") != 1 {
            errors.invalid(&at.field("successThreshold"), probe.number("successThreshold"), "must be 1");
        }
    }
}

fn probe(probe: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    handler(probe, &["exec", "httpGet", "tcpSocket", "grpc"], None, at, errors);
    for field in
        ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
    {
        errors.not_negative(&at.field(field), probe.number(field));
    }
    if let Some(seconds) = probe.number_if_set("terminationGracePeriodSeconds")
        && seconds <= 0
    {
        errors.invalid(&at.field("terminationGracePeriodSeconds"), seconds, "must be greater than 0");
    }
}

/// Validates `lifecycle`. `grace` is the pod's grace period in seconds and `os` the pod's operating system.
pub(in crate::validation) fn lifecycle(
    lifecycle: &Value,
    grace: Option<i64>,
    os: Option<&Value>,
    at: &At<'_>,
    errors: &mut FieldErrors,
) {
    for field in ["postStart", "preStop"] {
        if let Some(hook) = lifecycle.part(field) {
            handler(hook, &["exec", "httpGet", "tcpSocket", "sleep"], grace, &at.field(field), errors);
        }
    }
    if let Some(signal) = lifecycle.text_if_set("stopSignal") {
        stop_signal(signal, os, &at.field("stopSignal"), errors);
    }
}

fn handler(holder: &Value, kinds: &[&str], grace: Option<i64>, at: &At<'_>, errors: &mut FieldErrors) {
    let mut found = false;
    for kind in kinds {
        let Some(action) = holder.part(kind) else { continue };
        let at = at.field(kind);
        if found {
            errors.forbidden(&at, "may not specify more than 1 handler type");
            continue;
        }
        found = true;
        match *kind {
            "exec" => {
                if action.items("command").is_empty() {
                    errors.required(&at.field("command"), "");
                }
            }
            "httpGet" => http_get(action, &at, errors),
            "tcpSocket" => port_name_or_number(action.part("port"), &at.field("port"), errors),
            "grpc" => grpc(action, &at, errors),
            _ => {
                let seconds = action.number("seconds");
                if let Some(grace) = grace
                    && !(0..=grace).contains(&seconds)
                {
                    let detail =
                        format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                    errors.invalid(&at, seconds, detail);
                }
            }
        }
    }
    if !found {
        errors.required(at, "must specify a handler type");
    }
}

fn http_get(action: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    const PROTOCOLS: [&str; 2] = ["HTTP1", "HTTP2"];
    if action.text("path").is_empty() {
        errors.required(&at.field("path"), "");
    }
    port_name_or_number(action.part("port"), &at.field("port"), errors);
    let scheme = action.text("scheme");
    if !matches!(scheme, "HTTP" | "HTTPS") {
        errors.not_supported(&at.field("scheme"), scheme, &["HTTP", "HTTPS"]);
    }
    for header in action.items("httpHeaders") {
        let name = header.text("name");
        errors.invalid_each(&at.field("httpHeaders"), name, names::is_http_header_name(name));
    }
    let Some(protocol) = action.text_if_set("protocol") else { return };
    if !PROTOCOLS.contains(&protocol) {
        errors.not_supported(&at.field("protocol"), protocol, &PROTOCOLS);
    } else if protocol == "HTTP2" && scheme != "HTTP" {
        errors.invalid(&at.field("protocol"), protocol, "is only supported with HTTP (H2C)");
    } else if protocol == "HTTP2" && !action.text("host").is_empty() {
        let detail = "must be empty when `protocol` is \"HTTP2\"";
        errors.invalid(&at.field("host"), action.text("host"), detail);
    }
}

fn grpc(action: &Value, at: &At<'_>, errors: &mut FieldErrors) {
    const MODES: [&str; 2] = ["Plaintext", "TLS"];
    port_name_or_number(action.part("port"), &at.field("port"), errors);
    optional_value(action, "mode", &MODES, at, errors);
}

fn stop_signal(signal: &str, os: Option<&Value>, at: &At<'_>, errors: &mut FieldErrors) {
    const WINDOWS: [&str; 2] = ["SIGKILL", "SIGTERM"];
    /// Real-time signals (`SIGRTMIN+n` and `SIGRTMAX-n`) are not listed here.
    const LINUX: [&str; 36] = [
        "SIGABRT",
        "SIGALRM",
        "SIGBUS",
        "SIGCHLD",
        "SIGCLD",
        "SIGCONT",
        "SIGFPE",
        "SIGHUP",
        "SIGILL",
        "SIGINT",
        "SIGIO",
        "SIGIOT",
        "SIGKILL",
        "SIGPIPE",
        "SIGPOLL",
        "SIGPROF",
        "SIGPWR",
        "SIGQUIT",
        "SIGRTMAX",
        "SIGRTMIN",
        "SIGSEGV",
        "SIGSTKFLT",
        "SIGSTOP",
        "SIGSYS",
        "SIGTERM",
        "SIGTRAP",
        "SIGTSTP",
        "SIGTTIN",
        "SIGTTOU",
        "SIGURG",
        "SIGUSR1",
        "SIGUSR2",
        "SIGVTALRM",
        "SIGWINCH",
        "SIGXCPU",
        "SIGXFSZ",
    ];
    match os.map(|os| os.text("name")) {
        None => errors.forbidden(at, "may not be set for containers with empty `spec.os.name`"),
        Some("windows") => {
            if !WINDOWS.contains(&signal) {
                errors.not_supported(at, signal, &WINDOWS);
            }
        }
        Some("linux") => {
            let mut known: Vec<String> = LINUX.iter().map(ToString::to_string).collect();
            known.extend((1..=15).map(|n| format!("SIGRTMIN+{n}")));
            known.extend((1..=14).map(|n| format!("SIGRTMAX-{n}")));
            if !known.iter().any(|name| name == signal) {
                known.sort_unstable();
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                errors.not_supported(at, signal, &known);
            }
        }
        Some(_) => {}
    }
}
