//! `/statusz` and `/flagz`: version, uptime and flags of this server, as text, or as objects if `Accept` names the kind.

use std::fmt::Write as _;

use api::time::Timestamp;
use api::{Status, order};
use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};
use requests::negotiate::{self, Media};
use value::Value;

use super::documents;
use crate::body::Body;
use crate::call::{Call, HandlerResponse};
use crate::respond;
use crate::state::State;

/// Component name on these pages.
const COMPONENT: &str = "apiserver";

/// Media types of the pages, as a 406 lists them.
const FORMS: &[&str] = &["application/json", "application/yaml", "text/plain"];

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Zpage {
    Status,
    Flags,
}

impl Zpage {
    fn path_name(self) -> &'static str {
        match self {
            Zpage::Status => "statusz",
            Zpage::Flags => "flagz",
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Zpage::Status => "Statusz",
            Zpage::Flags => "Flagz",
        }
    }

    fn content_type(self, media: Media, version: ZpageVersion) -> String {
        let media = if media == Media::Yaml { "yaml" } else { "json" };
        format!("application/{media};g=config.k8s.io;v={};as={}", version.as_str(), self.kind())
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum ZpageVersion {
    Alpha,
    Beta,
}

impl ZpageVersion {
    fn as_str(self) -> &'static str {
        match self {
            ZpageVersion::Alpha => "v1alpha1",
            ZpageVersion::Beta => "v1beta1",
        }
    }
}

/// The form of a page that a client accepts.
#[derive(Debug, PartialEq)]
enum ZpageForm {
    Text,
    Object(Media, ZpageVersion),
}

fn requested_form(headers: &HeaderMap, page: Zpage) -> Option<ZpageForm> {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    if accept.trim().is_empty() {
        return Some(ZpageForm::Text);
    }
    negotiate::clauses(headers).iter().find_map(|clause| {
        let object = (clause.param("g"), clause.param("as")) == (Some("config.k8s.io"), Some(page.kind()));
        let version = match clause.param("v") {
            Some("v1beta1") => Some(ZpageVersion::Beta),
            Some("v1alpha1") => Some(ZpageVersion::Alpha),
            _ => None,
        };
        match version.filter(|_| object) {
            Some(version) if clause.covers("application", "json") => {
                Some(ZpageForm::Object(Media::Json, version))
            }
            Some(version) if clause.covers("application", "yaml") => {
                Some(ZpageForm::Object(Media::Yaml, version))
            }
            Some(_) => None,
            None => {
                (clause.covers("text", "plain") && clause.param("as").is_none()).then_some(ZpageForm::Text)
            }
        }
    })
}

pub fn handle(state: &State, call: &mut Call, page: Zpage) -> Result<HandlerResponse, Status> {
    let requested_form = requested_form(&call.headers, page).ok_or_else(|| Status::not_acceptable(FORMS))?;
    let ZpageForm::Object(media, version) = requested_form else {
        let body = match page {
            Zpage::Status => status_text(state, call.now),
            Zpage::Flags => flags_text(&state.info.flags),
        };
        let text = format!(
            "\n{COMPONENT} {}\nWarning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.\n{body}",
            page.path_name()
        );
        return Ok(HandlerResponse::Raw(200, "text/plain; charset=utf-8", Body::from(text)));
    };
    if version == ZpageVersion::Alpha {
        call.warn(format!(
            "This version of the {} endpoint is deprecated. Please use a newer version.",
            page.path_name()
        ));
    }
    let mut object = Value::map([
        ("kind", page.kind().to_owned()),
        ("apiVersion", format!("config.k8s.io/{}", version.as_str())),
    ]);
    object.set_at(&["metadata", "name"], COMPONENT);
    match page {
        Zpage::Status => {
            object.set_at(&["startTime"], Timestamp::from_seconds(state.info.started).time());
            object.set_at(&["uptimeSeconds"], up(state, call.now));
            object.set_at(&["binaryVersion"], runtime::version::BINARY);
            object.set_at(&["emulationVersion"], emulated(state));
            object.set_at(&["paths"], Value::list(first_segments(state)));
        }
        Zpage::Flags => {
            for (name, value) in &state.info.flags {
                object.set_at(&["flags", name], value.as_str());
            }
        }
    }
    let pretty = negotiate::is_pretty(&call.headers, &call.query);
    let body = respond::render(&object, order::of(&object), media, pretty);
    let headers = vec![(CONTENT_TYPE, page.content_type(media, version))];
    Ok(HandlerResponse::With(200, "", headers, Body::from(body)))
}

fn up(state: &State, now: i64) -> i64 {
    now.saturating_sub(state.info.started).max(0)
}

fn emulated(state: &State) -> String {
    format!("1.{}", state.info.emulated_minor)
}

/// First path segments of the pages for debugging, without API, OpenAPI and OpenID documents.
fn first_segments(state: &State) -> Vec<String> {
    let mut first_segments: Vec<String> = documents::paths(state)
        .iter()
        .filter_map(|path| path.split('/').nth(1))
        .filter(|first| {
            !first.is_empty() && !matches!(*first, "api" | "apis" | "openid" | "openapi" | ".well-known")
        })
        .map(|first| format!("/{first}"))
        .collect();
    first_segments.dedup();
    first_segments
}

fn status_text(state: &State, now: i64) -> String {
    let up = up(state, now);
    format!(
        "\nStarted: {}\nUp: {} hr {:02} min {:02} sec\nBinary version: {}\nEmulation version: {}\nPaths: {}\n",
        unix_date(state.info.started),
        up / 3600,
        up / 60 % 60,
        up % 60,
        runtime::version::BINARY,
        emulated(state),
        first_segments(state).join(" ")
    )
}

fn flags_text(flags: &[(String, String)]) -> String {
    flags.iter().fold(String::new(), |mut text, (name, value)| {
        let _ = writeln!(text, "{name}: {value}");
        text
    })
}

/// Formats a time like `Mon Jan  2 15:04:05 UTC 2006` (Go's `UnixDate`).
fn unix_date(seconds: i64) -> String {
    let Date { weekday, day, month, year, time } = Date::of(seconds);
    format!("{weekday} {month} {:>2} {time} UTC {year}", day.trim_start_matches('0'))
}

/// Formats a time like `Mon, 02 Jan 2006 15:04:05 UTC` (Go's `RFC1123`).
pub fn date(seconds: i64) -> String {
    let Date { weekday, day, month, year, time } = Date::of(seconds);
    format!("{weekday}, {day} {month} {year} {time} UTC")
}

/// The formatted parts of a date.
struct Date {
    weekday: &'static str,
    day: String,
    month: &'static str,
    year: String,
    time: String,
}

impl Date {
    fn of(seconds: i64) -> Self {
        const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
        const MONTHS: [&str; 12] =
            ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        let text = Timestamp::from_seconds(seconds).time();
        let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default().to_owned();
        let weekday = usize::try_from(seconds.div_euclid(86_400).rem_euclid(7)).unwrap_or(0);
        let month = part(5, 7).parse::<usize>().unwrap_or(1).saturating_sub(1);
        Date {
            weekday: DAYS.get(weekday).copied().unwrap_or_default(),
            day: part(8, 10),
            month: MONTHS.get(month).copied().unwrap_or_default(),
            year: part(0, 4),
            time: part(11, 19),
        }
    }
}

#[cfg(test)]
mod tests;
