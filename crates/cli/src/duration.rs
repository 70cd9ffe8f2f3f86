//! Values of flags that are durations in Go's format.

use std::time::Duration;

use anyhow::{Result, anyhow, bail};

/// The meaning of a negative duration for a flag.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NegativeDuration<'m> {
    /// A negative duration has the effect of zero.
    Zero,
    /// A negative duration is an error that names the flag.
    Rejected,
    /// An error with this message.
    RejectedWith(&'m str),
}

/// Parses the value of a flag, which is named without its dashes. The errors are those of kube-apiserver.
pub(crate) fn parse(flag: &str, text: &str, negative: NegativeDuration<'_>) -> Result<Duration> {
    let nanos = api::time::parse_duration(text).map_err(|why| {
        anyhow!("invalid argument {} for \"--{flag}\" flag: {why}", api::field::quote(text))
    })?;
    match (u64::try_from(nanos), negative) {
        (Ok(nanos), _) => Ok(Duration::from_nanos(nanos)),
        (Err(_), NegativeDuration::Zero) => Ok(Duration::ZERO),
        (Err(_), NegativeDuration::Rejected) => bail!("--{flag} can not be negative value"),
        (Err(_), NegativeDuration::RejectedWith(message)) => bail!("{message}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{NegativeDuration, parse};

    fn parsed(text: &str, negative: NegativeDuration<'_>) -> Result<Duration, String> {
        parse("ttl", text, negative).map_err(|error| error.to_string())
    }

    #[test]
    fn durations_are_read_in_go_format_and_negative_ones_as_the_flag_wants() {
        let negatives =
            [NegativeDuration::Zero, NegativeDuration::Rejected, NegativeDuration::RejectedWith("no")];
        for negative in negatives {
            assert_eq!(parsed("1m10s", negative), Ok(Duration::from_secs(70)));
            assert_eq!(parsed("-0s", negative), Ok(Duration::ZERO));
            let error = r#"invalid argument "1" for "--ttl" flag: time: missing unit in duration "1""#;
            assert_eq!(parsed("1", negative), Err(error.to_owned()));
        }
        let expected =
            [Ok(Duration::ZERO), Err("--ttl can not be negative value".to_owned()), Err("no".to_owned())];
        assert_eq!(negatives.map(|negative| parsed("-1s", negative)), expected);
    }
}
