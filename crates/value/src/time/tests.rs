use super::{ZonedTime, format_duration, parse_duration, parse_rfc3339};

/// Rows printed by Go's `time` package: `duration` or `time`, a text, and either an error or the result. A duration is its
/// nanoseconds and its text; a time is its seconds, nanoseconds and offset.
const GO: &str = include_str!("go.tsv");

#[test]
fn random_durations_and_times_parse_and_print_as_in_go() {
    assert_eq!(GO.lines().count(), 600);
    let mut wrong = Vec::new();
    for row in GO.lines() {
        let mut columns = row.splitn(3, '\t');
        let (Some(sort), Some(text)) = (columns.next(), columns.next()) else { panic!("{row}") };
        let result = match sort {
            "duration" => parse_duration(text).map(|nanos| format!("{nanos}\t{}", format_duration(nanos))),
            _ => parse_rfc3339(text)
                .map(|ZonedTime { seconds, nanos, offset }| format!("{seconds}\t{nanos}\t{offset}")),
        };
        let (Ok(result) | Err(result)) = result;
        if columns.next() != Some(&*result) {
            wrong.push(format!("{row}\n{sort}\t{text}\t{result}"));
        }
    }
    assert!(wrong.is_empty(), "{} rows differ:\n{}", wrong.len(), wrong.join("\n"));
}
