use std::time::Duration;

use super::left;
use crate::fake::parse;

const HOUR: Duration = Duration::from_hours(1);
/// 2026-01-01T00:00:00Z as Unix time in seconds.
const NEW_YEAR: i64 = 1_767_225_600;

#[test]
fn the_ttl_of_an_event_starts_at_its_last_write() {
    let event = parse(r#"{"metadata":{"creationTimestamp":"2026-01-01T00:00:00Z"}}"#);
    assert_eq!(left(&event, HOUR, NEW_YEAR), HOUR);
    assert_eq!(left(&event, HOUR, NEW_YEAR + 3_599), Duration::from_secs(1));
    assert_eq!(left(&event, HOUR, NEW_YEAR + 3_600), Duration::ZERO);
    assert_eq!(left(&event, HOUR, NEW_YEAR + 9_999), Duration::ZERO);
    let counted = parse(
        r#"{"metadata":{"creationTimestamp":"2026-01-01T00:00:00Z","managedFields":[
            {"time":"2026-01-01T00:30:00Z"},{"time":"2026-01-01T00:10:00Z"},{"time":"soon"},{}]}}"#,
    );
    assert_eq!(left(&counted, HOUR, NEW_YEAR + 3_600), HOUR / 2);
    assert_eq!(left(&counted, HOUR, NEW_YEAR + 5_400), Duration::ZERO);
}

#[test]
fn events_with_missing_or_future_timestamps_expire_within_the_ttl() {
    assert_eq!(left(&parse("{}"), HOUR, NEW_YEAR), Duration::ZERO);
    // The clock was set back.
    let event = parse(r#"{"metadata":{"creationTimestamp":"2026-01-01T00:00:00Z"}}"#);
    assert_eq!(left(&event, HOUR, NEW_YEAR - 5), HOUR);
    assert_eq!(left(&event, HOUR, i64::MIN), HOUR);
}
