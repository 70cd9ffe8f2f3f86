//! Accessors of timestamps and durations, such as `getFullYear`.

use value::go::quote;

use crate::env::Builder;
use crate::eval::{Error, EvalResult};
use crate::val::time::Civil;
use crate::val::{CelTimestamp, Val};

/// Declares the accessors of timestamps and durations.
pub(crate) fn add(b: &mut Builder) {
    macro_rules! part {
        ($name:literal, $id:literal, $zoned:literal, $part:expr) => {
            b.function(
                $name,
                &[
                    ($id, "timestamp.() -> int", |_, args| part(args, $part)),
                    ($zoned, "timestamp.(string) -> int", |_, args| part(args, $part)),
                ],
            );
        };
    }
    part!("getFullYear", "timestamp_to_year", "timestamp_to_year_with_tz", |c, _| c.year);
    part!("getMonth", "timestamp_to_month", "timestamp_to_month_with_tz", |c, _| c.month - 1);
    part!("getDayOfYear", "timestamp_to_day_of_year", "timestamp_to_day_of_year_with_tz", |c, _| c
        .day_of_year);
    part!("getDayOfMonth", "timestamp_to_day_of_month", "timestamp_to_day_of_month_with_tz", |c, _| c.day
        - 1);
    part!(
        "getDate",
        "timestamp_to_day_of_month_1_based",
        "timestamp_to_day_of_month_1_based_with_tz",
        |c, _| c.day
    );
    part!("getDayOfWeek", "timestamp_to_day_of_week", "timestamp_to_day_of_week_with_tz", |c, _| c.weekday);
    part!("getHours", "timestamp_to_hours", "timestamp_to_hours_with_tz", |c, _| c.hour);
    part!("getMinutes", "timestamp_to_minutes", "timestamp_to_minutes_with_tz", |c, _| c.minute);
    part!("getSeconds", "timestamp_to_seconds", "timestamp_to_seconds_tz", |c, _| c.second);
    part!("getMilliseconds", "timestamp_to_milliseconds", "timestamp_to_milliseconds_with_tz", |_, t| {
        i64::from(t.nanos / 1_000_000)
    });
    b.function(
        "getHours",
        &[("duration_to_hours", "duration.() -> int", |_, args| whole(args, 3_600_000_000_000))],
    );
    b.function(
        "getMinutes",
        &[("duration_to_minutes", "duration.() -> int", |_, args| whole(args, 60_000_000_000))],
    );
    b.function(
        "getSeconds",
        &[("duration_to_seconds", "duration.() -> int", |_, args| whole(args, 1_000_000_000))],
    );
    b.function(
        "getMilliseconds",
        &[("duration_to_milliseconds", "duration.() -> int", |_, args| whole(args, 1_000_000))],
    );
}

fn whole<'a>(args: &[Val<'a>], unit: i64) -> EvalResult<'a> {
    match args {
        [Val::Duration(nanos)] => Ok(Val::Int(nanos / unit)),
        _ => super::refuse(),
    }
}

fn part<'a>(args: &[Val<'a>], part: fn(&Civil, &CelTimestamp) -> i64) -> EvalResult<'a> {
    let (t, offset) = match args {
        [Val::Timestamp(t)] => (t, 0),
        [Val::Timestamp(t), Val::String(zone)] => (t, offset(zone, t)?),
        _ => return super::refuse(),
    };
    Ok(Val::Int(part(&t.civil(offset), t)))
}

/// UTC offset in seconds of a time zone at a time. The zone is a name of the time zone database or `+hh:mm`.
fn offset(zone: &str, t: &CelTimestamp) -> Result<i64, Error> {
    let Some((hours, minutes)) = zone.split_once(':') else {
        if matches!(zone, "" | "UTC" | "Local") {
            return Ok(0);
        }
        if zone.starts_with(['/', '\\']) || zone.contains("..") {
            return Err(Error::new("time: invalid location name"));
        }
        let unknown = || Error::new(format!("unknown time zone {zone}"));
        let database = jiff::tz::db();
        let found = database.get(zone).map_err(|_| unknown())?;
        // Go accepts zone names only in their exact spelling.
        if found.iana_name() != Some(zone) {
            return Err(unknown());
        }
        // The database ends shortly before CEL's latest time; its last rule applies until then.
        let seconds = t.seconds.min(jiff::Timestamp::MAX.as_second());
        let instant = jiff::Timestamp::from_second(seconds).map_err(|_| unknown())?;
        return Ok(i64::from(found.to_offset(instant).seconds()));
    };
    let hours_number = atoi(hours)?;
    let minutes_number = atoi(minutes)?;
    let total = if hours.starts_with('-') {
        hours_number.saturating_mul(60).saturating_sub(minutes_number)
    } else {
        hours_number.saturating_mul(60).saturating_add(minutes_number)
    };
    Ok(total.saturating_mul(60).clamp(-(1 << 40), 1 << 40))
}

fn atoi(text: &str) -> Result<i64, Error> {
    text.parse().map_err(|_| {
        let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
        let number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        let why = if number { "value out of range" } else { "invalid syntax" };
        Error::new(format!("strconv.Atoi: parsing {}: {why}", quote(text)))
    })
}
