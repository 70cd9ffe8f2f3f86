//! Validation of schedules and time zones of CronJobs.

use api::{FieldErrors, time::parse_duration};

use api::validation::fields::{At, Report};

/// Range of a schedule's field, and the names of its values.
struct CronFieldRange {
    min: u64,
    max: u64,
    names: &'static [&'static str],
}

const FIELDS: [CronFieldRange; 5] = [
    CronFieldRange { min: 0, max: 59, names: &[] },
    CronFieldRange { min: 0, max: 23, names: &[] },
    CronFieldRange { min: 1, max: 31, names: &[] },
    CronFieldRange {
        min: 1,
        max: 12,
        names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    },
    CronFieldRange { min: 0, max: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] },
];

const TIME_ZONES: &str = include_str!("../../data/time-zones.txt");
const MAX_ZONE_PART: usize = 14;

/// Checks a schedule: five fields or a descriptor such as `@daily`. The error has the wording of the library that Kubernetes uses.
pub(super) fn check(schedule: &str) -> Result<(), String> {
    let mut rest = schedule;
    if schedule.starts_with("TZ=") || schedule.starts_with("CRON_TZ=") {
        let Some(space) = schedule.find(' ') else {
            // Go's library slices out of range here; -1 is the position of the missing space.
            return Err("invalid schedule format: runtime error: slice bounds out of range [:-1]".to_owned());
        };
        let zone = schedule.get(..space).and_then(|zone| zone.split_once('=')).map_or("", |(_, zone)| zone);
        if !is_zone(zone) {
            return Err(format!("provided bad location {zone}: unknown time zone {zone}"));
        }
        rest = schedule.get(space..).unwrap_or_default().trim();
    }
    if rest.starts_with('@') {
        return descriptor(rest);
    }
    let fields: Vec<&str> = rest.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    fields.iter().zip(&FIELDS).try_for_each(|(field, bounds)| {
        field.split(',').filter(|range| !range.is_empty()).try_for_each(|range| check_range(range, bounds))
    })
}

fn descriptor(text: &str) -> Result<(), String> {
    match text {
        "@yearly" | "@annually" | "@monthly" | "@weekly" | "@daily" | "@midnight" | "@hourly" => Ok(()),
        _ => match text.strip_prefix("@every ") {
            Some(duration) => parse_duration(duration)
                .map(drop)
                .map_err(|why| format!("failed to parse duration {text}: {why}")),
            None => Err(format!("unrecognized descriptor: {text}")),
        },
    }
}

fn check_range(range: &str, bounds: &CronFieldRange) -> Result<(), String> {
    let mut parts = range.split('/');
    let (span, step, more_steps) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
    let mut ends = span.split('-');
    let (low, high, more) = (ends.next().unwrap_or_default(), ends.next(), ends.next());
    let (start, mut end) = if matches!(low, "*" | "?") {
        (bounds.min, bounds.max)
    } else {
        let start = number_or_name(low, bounds)?;
        match (high, more) {
            (None, _) => (start, start),
            (Some(high), None) => (start, number_or_name(high, bounds)?),
            _ => return Err(format!("too many hyphens: {range}")),
        }
    };
    let step = match (step, more_steps) {
        (None, _) => 1,
        (Some(step), None) => {
            let step = number(step)?;
            if high.is_none() {
                end = bounds.max;
            }
            step
        }
        _ => return Err(format!("too many slashes: {range}")),
    };
    let (min, max) = (bounds.min, bounds.max);
    if start < min {
        return Err(format!("beginning of range ({start}) below minimum ({min}): {range}"));
    }
    if end > max {
        return Err(format!("end of range ({end}) above maximum ({max}): {range}"));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {range}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {range}"));
    }
    Ok(())
}

fn number_or_name(text: &str, bounds: &CronFieldRange) -> Result<u64, String> {
    let lower = text.to_lowercase();
    match bounds.names.iter().zip(bounds.min..).find(|(name, _)| **name == lower) {
        Some((_, number)) => Ok(number),
        None => number(text),
    }
}

fn number(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        let quoted = api::field::quote(text);
        return Err(format!(
            "failed to parse int from {text}: strconv.Atoi: parsing {quoted}: invalid syntax"
        ));
    }
    let number: i64 = text.parse().map_err(|_| {
        let quoted = api::field::quote(text);
        format!("failed to parse int from {text}: strconv.Atoi: parsing {quoted}: value out of range")
    })?;
    u64::try_from(number).map_err(|_| format!("negative number ({number}) not allowed: {text}"))
}

fn is_zone(name: &str) -> bool {
    matches!(name, "" | "UTC" | "Local") || TIME_ZONES.lines().any(|zone| zone == name)
}

pub(super) fn time_zone(zone: &str, at: &At<'_>, errors: &mut FieldErrors) {
    if zone.is_empty() {
        errors.invalid(at, zone, "timeZone must be nil or non-empty string");
        return;
    }
    let is_part = |part: &str| {
        !matches!(part, "" | "." | "..")
            && !part.starts_with('-')
            && part.len() <= MAX_ZONE_PART
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_+".contains(&b))
    };
    if !zone.split('/').all(is_part) {
        errors.invalid(at, zone, format!("unknown time zone {zone}"));
        return;
    }
    if zone.eq_ignore_ascii_case("local") {
        let detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        errors.invalid(at, zone, detail);
    }
    if !is_zone(zone) {
        errors.invalid(at, zone, format!("unknown time zone {zone}"));
    }
}
