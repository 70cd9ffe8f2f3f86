//! Small values in strings: quantities, durations, times, addresses, base64.

use std::cmp::Ordering;
use std::net::IpAddr;

use api::names::{parse_cidr_sloppy, parse_ip_sloppy};
use api::time::{Timestamp, format_duration, parse_duration};
use fuzz::Corpus;
use value::quantity::Quantity;

#[test]
fn quantities_are_written_as_the_same_quantity() {
    let seeds = [
        "1",
        "100m",
        "1.5Gi",
        "-2e3",
        "12E",
        "0.001u",
        "1Ki",
        "+3.14159n",
        "1e-9",
        "123456789012345678901234567890",
        "9Ei",
    ];
    let tokens = [
        "k",
        "Ki",
        "M",
        "Mi",
        "G",
        "Gi",
        "T",
        "P",
        "E",
        "Ei",
        "m",
        "u",
        "n",
        "e",
        "E+",
        "e-",
        ".",
        "+",
        "-",
        "000000000",
    ];
    fuzz::run(&Corpus::new(seeds, &tokens).inputs(), |input| {
        let text = input.text();
        let _ = Quantity::parse_json(&text);
        let Ok(quantity) = Quantity::parse(&text) else { return Ok(()) };
        let canonical = quantity.canonical();
        if canonical.len() > text.len() + 64 {
            return Err(format!("canonical form of {} characters", canonical.len()));
        }
        // Quantities with more digits are rounded, and exponents are capped: their text changes.
        let digits = text.chars().filter(char::is_ascii_digit).count();
        if digits > 36 || text.split(['e', 'E']).nth(1).is_some_and(|exponent| exponent.len() > 4) {
            return Ok(());
        }
        let again = Quantity::parse(&canonical).map_err(|error| format!("{canonical}: {error}"))?;
        if again.canonical() != canonical
            || again.nanos() != quantity.nanos()
            || again.sub(&quantity).sign() != 0
        {
            return Err(format!("{canonical} is another quantity"));
        }
        let one = Quantity::parse("1").map_err(|error| error.to_string())?;
        let _ = (quantity.add(&one).sub(&one), quantity.as_approximate_f64());
        let expected = quantity.sign();
        let order = quantity.cmp_i64(0);
        if (order == Ordering::Greater) != (expected > 0) || (order == Ordering::Less) != (expected < 0) {
            return Err(format!("compares as {order:?}, sign {expected}"));
        }
        let _ = (quantity.value(), quantity.milli_value(), quantity.as_i64(), quantity.is_integer());
        Ok(())
    });
}

#[test]
fn durations_and_times_are_written_as_the_same_moment() {
    let seeds = [
        "1h2m3s",
        "1.5h",
        "-2ms",
        "3us",
        "4µs",
        "5ns",
        "0",
        "2562047h47m16.854775807s",
        "2026-11-16T07:43:10Z",
        "2026-02-28T23:59:60Z",
        "2024-02-29T00:00:00.123456Z",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59.999999999+14:00",
        "1969-12-31T23:59:59-00:01",
    ];
    let tokens = [
        "h",
        "m",
        "s",
        "ms",
        "µs",
        "T",
        "Z",
        "+14:00",
        "-00:00",
        ":",
        "-",
        ".",
        "000000000000",
        "24",
        "60",
        "02-30",
    ];
    fuzz::run(&Corpus::new(seeds, &tokens).inputs(), |input| {
        let text = input.text();
        if let Ok(nanos) = parse_duration(&text) {
            let written = format_duration(nanos);
            if parse_duration(&written) != Ok(nanos) {
                return Err(format!("{nanos} ns is written as {written}"));
            }
        }
        if let Ok(time) = Timestamp::parse(&text) {
            let written = time.time();
            // A time zone can shift a time beyond the last year that can be read. Kubernetes writes such times too.
            if written.starts_with("10000-") {
                return Ok(());
            }
            let again = Timestamp::parse(&written).map_err(|error| format!("{written}: {error}"))?;
            if again.time() != written {
                return Err(format!("{written} is written as {}", again.time()));
            }
        }
        if let Ok(time) = Timestamp::parse_micro(&text) {
            let written = time.micro_time();
            let again = Timestamp::parse_micro(&written).map_err(|error| format!("{written}: {error}"))?;
            if again.micros() != time.micros() {
                return Err(format!("{written} is another time"));
            }
        }
        let _ = api::time::human_age(Some(&text), 1_800_000_000);
        Ok(())
    });
}

#[test]
fn addresses_are_read_as_the_standard_library_reads_them() {
    let seeds = [
        "1.2.3.4",
        "::1",
        "fe80::1",
        "::ffff:1.2.3.4",
        "2001:db8::8:800:200c:417a",
        "10.0.0.0/8",
        "2001:db8::/32",
        "0.0.0.0/0",
        "01.02.03.04",
        "aGVsbG8gd29ybGQ=",
        "AAEC/w==",
    ];
    let tokens = [
        "/", "/0", "/33", "/129", "/08", "::", ":", ".", "%eth0", "ffff", "256", "255", "0x1", "=", "==",
        "\r\n",
    ];
    fuzz::run(&Corpus::new(seeds, &tokens).inputs(), |input| {
        let text = input.text();
        let ours = parse_ip_sloppy(&text);
        if let Ok(standard) = text.parse::<IpAddr>()
            && ours.map(|ip| ip.to_canonical()) != Some(standard.to_canonical())
        {
            return Err(format!("{standard} is read as {ours:?}"));
        }
        if let Some(ip) = ours
            && parse_ip_sloppy(&ip.to_string()) != Some(ip)
        {
            return Err(format!("{ip} is read as another address"));
        }
        if let Some((ip, length)) = parse_cidr_sloppy(&text) {
            let most = if ip.is_ipv4() { 32 } else { 128 };
            if length > most || parse_cidr_sloppy(&format!("{ip}/{length}")) != Some((ip, length)) {
                return Err(format!("read as {ip}/{length}"));
            }
        }
        if let Ok(bytes) = value::go::base64::STD.decode(&text)
            && bytes.len() > text.len()
        {
            return Err(format!("{} bytes", bytes.len()));
        }
        Ok(())
    });
}
