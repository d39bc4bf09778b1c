//! The command line of `ctl health`.

use std::time::Duration;

use clap::Args;

/// `ctl health`.
#[derive(Debug, Args)]
pub struct Health {
    /// Wait until all is well, at most this time, for example 10m.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub wait: Option<Duration>,
}

/// Parses a time such as `90s` or `10m`, in jiff's "friendly" format.
fn time(text: &str) -> Result<Duration, String> {
    let parsed: Option<jiff::SignedDuration> = text.parse().ok();
    let time = parsed.and_then(|time| Duration::try_from(time).ok());
    time.ok_or_else(|| "give a time such as 90s or 10m".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit() {
        assert_eq!(time("10m"), Ok(Duration::from_mins(10)));
        assert_eq!(time("90s"), Ok(Duration::from_secs(90)));
        for bad in ["10", "", "-1m", "soon"] {
            assert!(time(bad).is_err(), "{bad}");
        }
    }
}
