//! Durations in Go's notation: `1m0s` and `60s` are the same.

/// The duration in nanoseconds; `None` for any other text. A number without a unit is not a
/// duration here.
pub(super) fn nanoseconds(text: &str) -> Option<u64> {
    let mut total = 0_u64;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .filter(|end| *end > 0)?;
        let number: u64 = rest[..digits].parse().ok()?;
        let unit = rest[digits..]
            .find(|c: char| c.is_ascii_digit())
            .map_or(rest.len(), |length| digits + length);
        let factor = match &rest[digits..unit] {
            "ns" => 1,
            "us" | "µs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        total = total.checked_add(number.checked_mul(factor)?)?;
        rest = &rest[unit..];
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_durations_are_equal() {
        assert_eq!(nanoseconds("60s"), nanoseconds("1m0s"));
        assert_eq!(nanoseconds("87600h0m0s"), nanoseconds("87600h"));
        assert_eq!(nanoseconds("1s"), Some(1_000_000_000));
        assert_eq!(nanoseconds("0s"), Some(0));
        for other in ["", "0", "10", "s", "1d", "50Mi", "1s ", "-1s", "x1s"] {
            assert_eq!(nanoseconds(other), None, "{other}");
        }
    }
}
