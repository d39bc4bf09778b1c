//! YAML 1.1 plain scalars as PyYAML resolves them, because that is how Salt reads an SLS.
//!
//! Two differences are intended and described in `docs/coming-from-salt.md`: base-60 numbers (`22:22`)
//! and dates stay text.

use super::Kind;

/// The value of a plain (unquoted) scalar.
#[must_use]
pub fn resolve(raw: &str) -> Kind {
    match raw {
        "" | "~" | "null" | "Null" | "NULL" => return Kind::Null,
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Kind::Bool(true);
        }
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Kind::Bool(false);
        }
        _ => {}
    }
    if let Some(number) = integer(raw) {
        return Kind::Int(number);
    }
    if let Some(number) = float(raw) {
        return Kind::Float(number);
    }
    Kind::Text(raw.to_owned())
}

/// `[-+]?0b[01_]+`, `[-+]?0[0-7_]+`, `[-+]?0x[0-9a-fA-F_]+`, `[-+]?(0|[1-9][0-9_]*)`; beyond 64
/// bits it stays text.
fn integer(raw: &str) -> Option<i64> {
    let (negative, digits) = sign(raw);
    let (radix, digits) = if let Some(rest) = digits.strip_prefix("0b") {
        (2, rest)
    } else if let Some(rest) = digits.strip_prefix("0x") {
        (16, rest)
    } else if digits.len() > 1 && digits.starts_with('0') {
        (8, &digits[1..])
    } else {
        (10, digits)
    };
    if digits.starts_with('_') && radix == 10 {
        return None;
    }
    let digits: String = digits.chars().filter(|c| *c != '_').collect();
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    let sign = if negative { "-" } else { "" };
    i64::from_str_radix(&format!("{sign}{digits}"), radix).ok()
}

/// `[-+]?[0-9][0-9_]*\.[0-9_]*([eE][-+][0-9]+)?`, `\.[0-9][0-9_]*…`, `[-+]?\.inf`, `\.nan`.
fn float(raw: &str) -> Option<f64> {
    let (negative, rest) = sign(raw);
    if matches!(rest, ".inf" | ".Inf" | ".INF") {
        return Some(if negative {
            f64::NEG_INFINITY
        } else {
            f64::INFINITY
        });
    }
    if matches!(raw, ".nan" | ".NaN" | ".NAN") {
        return Some(f64::NAN);
    }
    let (whole, fraction) = rest.split_once('.')?;
    let (fraction, exponent) = match fraction.find(['e', 'E']) {
        Some(at) => (&fraction[..at], Some(&fraction[at + 1..])),
        None => (fraction, None),
    };
    let digits = |text: &str| text.chars().all(|c| c.is_ascii_digit() || c == '_');
    let starts = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    let shaped = if whole.is_empty() {
        rest.len() == raw.len() && starts(fraction)
    } else {
        starts(whole)
    };
    if !shaped || !digits(whole) || !digits(fraction) {
        return None;
    }
    if let Some(exponent) = exponent {
        let figures = exponent.strip_prefix(['-', '+'])?;
        if figures.is_empty() || !figures.chars().all(|c| c.is_ascii_digit()) {
            return None;
        }
    }
    let mut text: String = raw.chars().filter(|c| *c != '_').collect();
    if text.ends_with('.') {
        text.push('0');
    }
    text.parse().ok()
}

fn sign(raw: &str) -> (bool, &str) {
    match raw.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, raw.strip_prefix('+').unwrap_or(raw)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_as_pyyaml_does() {
        for (raw, wanted) in [
            ("0644", Kind::Int(0o644)),
            ("644", Kind::Int(644)),
            ("0", Kind::Int(0)),
            ("00", Kind::Int(0)),
            ("-12", Kind::Int(-12)),
            ("+12", Kind::Int(12)),
            ("1_000", Kind::Int(1000)),
            ("0x1F", Kind::Int(31)),
            ("0b101", Kind::Int(5)),
            ("yes", Kind::Bool(true)),
            ("Off", Kind::Bool(false)),
            ("1.5", Kind::Float(1.5)),
            ("1.", Kind::Float(1.0)),
            (".5", Kind::Float(0.5)),
            ("1.0e+3", Kind::Float(1000.0)),
            ("~", Kind::Null),
            ("", Kind::Null),
        ] {
            assert_eq!(resolve(raw), wanted, "{raw}");
        }
        for text in [
            "089",
            "08",
            "1e3",
            "1.2.3",
            "22:22",
            "2024-01-01",
            "y",
            "n",
            "_1",
            "0o17",
            "1.0e3",
            "-",
            "+",
            ".",
            "-.5",
            "v1.36.3",
            "99999999999999999999",
            "0x",
            "0b2",
        ] {
            assert_eq!(resolve(text), Kind::Text(text.to_owned()), "{text}");
        }
        assert_eq!(resolve("-.inf"), Kind::Float(f64::NEG_INFINITY));
    }
}
